// The order of transports that go around each other. Each test shows the right place and the
// wrong one. e2e has the same for golang.org/x/oauth2 and otelhttp.

package clients

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/gregjones/httpcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/recorder"

	"github.com/aplomb-go/aplomb/classify"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// over returns a Transport over a base.
func over(t *testing.T, base http.RoundTripper, rule policy.Rule) *transport.Transport {
	t.Helper()
	tr, err := transport.New(transport.Config{Base: base, Rule: rule})
	require.NoError(t, err)
	return tr
}

// A got is what a program gets, and how long that took.
type got struct {
	status int
	body   string
	err    error
	after  time.Duration
}

func get(t *testing.T, rt http.RoundTripper, url string) got {
	t.Helper()
	begin := time.Now()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return got{err: err, after: time.Since(begin)}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, string(body), err, time.Since(begin)}
}

// cached puts a cache above a Transport, or below it.
func cached(t *testing.T, above bool, base http.RoundTripper) http.RoundTripper {
	rule := policy.Rule{ShareRetryAfter: policy.On}.Or(profile.API())
	cache := httpcache.NewTransport(httpcache.NewMemoryCache())
	if above {
		cache.Transport = over(t, base, rule)
		return cache
	}
	cache.Transport = base
	return over(t, cache, rule)
}

// A cache above the Transport answers at once while a host refuses requests. Below, what it has
// waits with the rest.
func TestCacheAndHolds(t *testing.T) {
	for _, above := range []bool{true, false} {
		inMemory(t, func(t *testing.T) {
			fresh := ts.OK("kept").Header("Cache-Control", "max-age=3600")
			s := newSite(t, ts.Config{Routes: map[string]ts.Script{
				"/kept": {fresh},
				"/busy": {ts.Status(429).Header("Retry-After", "30"), ts.OK("")},
			}})
			rt := cached(t, above, s.Transport())
			require.Equal(t, "kept", get(t, rt, s.URL+"/kept").body)
			done := make(chan got)
			go func() { done <- get(t, rt, s.URL+"/busy") }()
			time.Sleep(time.Second)
			g := get(t, rt, s.URL+"/kept")
			assert.Equal(t, "kept", g.body)
			assert.Equal(t, above, g.after == 0, "%v", g.after)
			assert.GreaterOrEqual(t, (<-done).after, 30*time.Second)
			assert.Len(t, s.Log(), 3, "the cache had the second answer")
		})
	}
}

// If a cache may answer with an old copy after a failure (stale-if-error), then above the
// Transport it does so when all attempts have failed. Below, it does so at the first failure, and
// nothing is tried again.
func TestCacheAndOldCopies(t *testing.T) {
	for _, above := range []bool{true, false} {
		inMemory(t, func(t *testing.T) {
			page := func(text string) ts.Step {
				return ts.OK(text).Header("Cache-Control", "max-age=1, stale-if-error=3600").Header("ETag", `"`+text+`"`)
			}
			s := newSite(t, ts.Config{Routes: map[string]ts.Script{
				"/": {page("old"), ts.Status(503), page("new"), ts.Status(503)},
			}})
			rt := cached(t, above, s.Transport())
			require.Equal(t, "old", get(t, rt, s.URL+"/").body)
			time.Sleep(time.Minute)
			want := map[bool]string{true: "new", false: "old"}[above]
			assert.Equal(t, want, get(t, rt, s.URL+"/").body)
			if above {
				time.Sleep(time.Minute)
				assert.Equal(t, "new", get(t, rt, s.URL+"/").body, "the old copy, after all attempts")
				assert.Len(t, s.Log(), 3+policy.Defaults().MaxAttempts, "requests that arrived")
			}
		})
	}
}

// A cache above the Transport keeps a body that was cut and continued. Below, it forgets what it
// has of a URL when the rest is asked for, and keeps nothing of the body.
func TestCacheAndCutBodies(t *testing.T) {
	for _, above := range []bool{true, false} {
		inMemory(t, func(t *testing.T) {
			text := strings.Repeat("text ", 500_000)
			whole := ts.Content([]byte(text), `"v1"`).Header("Cache-Control", "max-age=3600")
			s := newSite(t, ts.Config{Routes: map[string]ts.Script{"/": {whole.CutAt(1_500_000, ts.Reset), whole}}})
			rt := cached(t, above, s.Transport())
			for range 2 {
				g := get(t, rt, s.URL+"/")
				require.NoError(t, g.err)
				require.Equal(t, text, g.body)
			}
			assert.Len(t, s.Log(), map[bool]int{true: 2, false: 3}[above], "requests that arrived")
		})
	}
}

// A recorder below the Transport records each attempt, and one above it only what the program got.
// A replay belongs to the place of the recording: replayed in the place of the whole Transport, the
// recording of the attempts gives the program the first failure.
func TestRecordings(t *testing.T) {
	for _, above := range []bool{true, false} {
		inMemory(t, func(t *testing.T) {
			s := newSite(t, ts.Config{Routes: map[string]ts.Script{"/": {ts.Status(503).Header("Retry-After", "30"), ts.OK("well")}}})
			tape := filepath.Join(t.TempDir(), "tape")
			place := func(above bool, mode recorder.Mode, base http.RoundTripper) (http.RoundTripper, *recorder.Recorder) {
				options := []recorder.Option{recorder.WithMode(mode), recorder.WithSkipRequestLatency(true)}
				if above {
					base = over(t, base, profile.API())
				}
				r, err := recorder.New(tape, append(options, recorder.WithRealTransport(base))...)
				require.NoError(t, err)
				if above {
					return r, r
				}
				return over(t, r, profile.API()), r
			}

			rt, r := place(above, recorder.ModeRecordOnly, s.Transport())
			assert.Equal(t, "well", get(t, rt, s.URL).body)
			require.NoError(t, r.Stop())
			require.Len(t, s.Log(), 2, "requests that arrived")

			rt, r = place(above, recorder.ModeReplayOnly, nil)
			g := get(t, rt, s.URL)
			assert.Equal(t, "well", g.body)
			assert.Equal(t, above, g.after == 0, "the waits belong to the attempts: %v", g.after)
			require.NoError(t, r.Stop())

			rt, r = place(true, recorder.ModeReplayOnly, nil)
			assert.Equal(t, map[bool]int{true: 200, false: 503}[above], get(t, rt, s.URL).status)
			require.NoError(t, r.Stop())
			assert.Len(t, s.Log(), 2, "a replay asks no server")
		})
	}
}

// gitHub has tokens that live for ten minutes, and refuses the first request for data for an hour.
// Its tokens come with trouble first.
func gitHub(t *testing.T, trouble int) *site {
	tokens, data := 0, 0
	valid := map[string]time.Time{}
	return newSite(t, ts.Config{Host: "api.github.com", Handler: func(r *ts.Received) ts.Step {
		if strings.HasSuffix(r.Path, "/access_tokens") {
			if tokens++; tokens <= trouble {
				return ts.Status(502)
			}
			end := time.Now().Add(10 * time.Minute)
			valid[fmt.Sprint("token ", tokens)] = end
			return json(201, fmt.Sprintf(`{"token":"%d","expires_at":%q}`, tokens, end.UTC().Format(time.RFC3339)))
		}
		if !time.Now().Before(valid[r.Header.Get("Authorization")]) {
			return json(401, `{"message":"Bad credentials"}`)
		}
		if data++; data == 1 {
			return json(429, `{"message":"API rate limit exceeded"}`).Header("Retry-After", "3600")
		}
		return json(200, `{"name":"cli"}`)
	}})
}

// installation returns ghinstallation's transport over a base.
func installation(t *testing.T, base http.RoundTripper) *ghinstallation.Transport {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	it, err := ghinstallation.New(base, 1, 2, text)
	require.NoError(t, err)
	return it
}

// An installationSource gives golang.org/x/oauth2 the tokens of an installation. The requests for
// tokens take ghinstallation's base, and its field Client is not used for anything.
type installationSource struct{ it *ghinstallation.Transport }

func (s installationSource) Token() (*oauth2.Token, error) {
	text, err := s.it.Token(context.Background())
	return &oauth2.Token{AccessToken: text, TokenType: "token"}, err
}

// Credentials belong below the Transport, so that each attempt has valid ones. Above, a token can
// end while its request waits. The requests for tokens need a Transport of their own, because those
// below the Transport do not go through it.
func TestCredentials(t *testing.T) {
	patient := policy.Rule{MaxRetryAfter: 2 * time.Hour}
	tokens := policy.Rule{Idempotent: func(req *http.Request) bool { // a second token does no harm
		return strings.HasSuffix(req.URL.Path, "/access_tokens") || classify.Idempotent(req)
	}}
	for _, row := range []struct {
		name    string
		trouble int // failures of the requests for tokens
		chain   func(t *testing.T, base http.RoundTripper) http.RoundTripper
		status  int
		sent    int
	}{
		{"above: the token ends meanwhile", 0, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
			return installation(t, over(t, base, patient))
		}, 401, 3},
		{"below: each attempt has a token", 0, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
			return over(t, installation(t, base), patient)
		}, 200, 4},
		{"below: a request for a token is lost", 2, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
			return over(t, installation(t, base), patient)
		}, 0, 1},
		{"below: requests for tokens have a Transport, too", 2, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
			source := installationSource{installation(t, over(t, base, tokens))}
			return over(t, &oauth2.Transport{Source: source, Base: base}, patient)
		}, 200, 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T) {
				s := gitHub(t, row.trouble)
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/repos/cli/cli", nil)
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: row.chain(t, s.Transport())}).Do(req)
				assert.Len(t, s.Log(), row.sent, "requests that arrived")
				if row.status == 0 {
					require.True(t, asError[*ghinstallation.HTTPError](err), "%v", err)
					return
				}
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				assert.Equal(t, row.status, resp.StatusCode)
			})
		})
	}
}
