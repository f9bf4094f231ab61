// go-containerregistry, with its own registry. As the registry named distribution
// does, it gives a blob its digest as ETag.

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	randomimage "github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	registrytransport "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy/profile"
)

func registryClient() client {
	var repositories atomic.Int64 // each session has its own
	return client{
		name:    "go-containerregistry",
		off:     "`remote.WithRetryBackoff(remote.Backoff{Steps: 1})`",
		needs:   "`profile.Registry()` or `profile.DockerHub()`",
		rule:    profile.Registry(),
		size:    1 << 20,
		resumes: true,
		serve:   func(t testing.TB, _ string) http.Handler { return newRegistry(t, content(1<<20)) },
		open: func(t testing.TB, s setup) session {
			repo := testkit.Must(name.NewRepository(fmt.Sprint("registry.test/e2e/", repositories.Add(1))))(t)
			return session{
				download: func(ctx context.Context) error {
					return pull(ctx, s, repo.Digest(digest(content(1<<20)).String()))
				},
				upload: func(ctx context.Context, b []byte) error {
					ctx, cancel := limit(ctx, s)
					defer cancel()
					if err := remote.WriteLayer(repo, static.NewLayer(b, types.OCILayer), registryOptions(ctx, s)...); err != nil {
						return err
					}
					return pull(ctx, s, repo.Digest(digest(b).String()))
				},
				own: asError[*registrytransport.Error],
			}
		},
	}
}

// limit bounds a context by the timeout of the client, because a library was given
// only the client's transport.
func limit(ctx context.Context, s setup) (context.Context, context.CancelFunc) {
	if s.http.Timeout > 0 {
		return context.WithTimeout(ctx, s.http.Timeout)
	}
	return context.WithCancel(ctx)
}

func registryOptions(ctx context.Context, s setup) []remote.Option {
	backoff := remote.Backoff{Steps: 1}
	if s.retries {
		backoff = remote.Backoff{Duration: time.Millisecond, Steps: 3} // the default has as many steps
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(withoutTLS{s.http.Transport}), remote.WithRetryBackoff(backoff)}
}

// withoutTLS reaches a server without TLS under an https URL. If the name of a
// registry is of this machine, the library tries both schemes in a race.
type withoutTLS struct{ http.RoundTripper }

func (w withoutTLS) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme = "http"
	return w.RoundTripper.RoundTrip(req)
}

func digest(b []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sum(b))} }

// pull reads a blob. The library checks its digest.
func pull(ctx context.Context, s setup, ref name.Digest) error {
	ctx, cancel := limit(ctx, s)
	defer cancel()
	layer, err := remote.Layer(ref, registryOptions(ctx, s)...)
	if err != nil {
		return err
	}
	r, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	_, err = io.Copy(io.Discard, r)
	return err
}

// newRegistry returns a registry that has a blob.
func newRegistry(t testing.TB, blob []byte) http.Handler {
	r := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v2/e2e/blobs/uploads/?digest="+digest(blob).String(), bytes.NewReader(blob)))
	require.Equal(t, http.StatusCreated, w.Code)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, hash, ok := strings.Cut(req.URL.Path, "/blobs/sha256:")
		if !ok || req.Method != http.MethodGet {
			r.ServeHTTP(w, req)
			return
		}
		whole := req.Clone(req.Context())
		whole.Header.Del("Range")
		got := httptest.NewRecorder()
		r.ServeHTTP(got, whole)
		if got.Code != http.StatusOK {
			w.WriteHeader(got.Code)
			return
		}
		w.Header().Set("ETag", `"sha256:`+hash+`"`)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(got.Body.Bytes()))
	})
}

// Every kind of request of a push is refused once, POST and PATCH as well. The
// registry has said UNAVAILABLE, so nothing was done.
func TestRegistryPush(t *testing.T) {
	b := newBench(t, registryClient())
	refuse := func() map[string]bool {
		var mu sync.Mutex
		refused := map[string]bool{}
		b.answer(func(_ int, w http.ResponseWriter, req *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if refused[req.Method] {
				return false
			}
			refused[req.Method] = true
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAVAILABLE","message":"try again"}]}`)
			return true
		})
		return refused
	}
	image := testkit.Must(randomimage.Image(100_000, 2))(t)
	want := testkit.Must(image.Digest())(t)
	ref := testkit.Must(name.ParseReference("registry.test/e2e/image"))(t)

	refuse()
	bare := setup{http: &http.Client{Transport: base(t, b.network, false)}}
	require.Error(t, remote.Write(ref, image, registryOptions(bounded(t), bare)...))

	hc, r := under(t, base(t, b.network, false), profile.Registry(), nil)
	refused := refuse()
	s := setup{http: hc}
	require.NoError(t, remote.Write(ref, image, registryOptions(bounded(t), s)...))
	assert.Len(t, refused, 5, "GET, HEAD, POST, PATCH and PUT")
	assert.Len(t, r.told(), 5, "attempts told")
	got := testkit.Must(remote.Image(ref, registryOptions(bounded(t), s)...))(t)
	h := testkit.Must(got.Digest())(t)
	assert.Equal(t, want, h)
	layers := testkit.Must(got.Layers())(t)
	for _, l := range layers {
		content := testkit.Must(l.Compressed())(t)
		_, err := io.Copy(io.Discard, content) // checks the digest
		require.NoError(t, err)
		require.NoError(t, content.Close())
	}
}
