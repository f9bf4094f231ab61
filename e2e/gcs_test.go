// Google Cloud Storage, with fake-gcs-server as the server.

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/googleapis/gax-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/aplomb-go/aplomb/policy/profile"
)

func gcsClient() client {
	return client{
		name: "cloud.google.com/go/storage",
		off: "`c.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithErrorFunc(func(error) bool { return false }))`, " +
			"because `RetryNever` leaves the retries of an upload's chunks on",
		needs:   "`profile.GoogleCloud()`; chunks of at most `ReplayBuffer`",
		rule:    profile.GoogleCloud(),
		size:    1 << 20,
		resumes: true,
		reopens: true,
		serve: func(t testing.TB, url string) http.Handler {
			return newFakeGCS(t, url, fakestorage.Object{
				ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: object},
				Content:     content(1 << 20),
			}).HTTPHandler()
		},
		open: func(t testing.TB, s setup) session {
			o := newGCS(t, s).Bucket(bucket).Object(object)
			return session{
				download: func(ctx context.Context) error { return gcsDownload(ctx, o, content(1<<20)) },
				upload: func(ctx context.Context, b []byte) error {
					return gcsUpload(ctx, o, b) // the SDK compares checksums
				},
				own: asError[*googleapi.Error],
			}
		},
	}
}

func gcsDownload(ctx context.Context, o *storage.ObjectHandle, want []byte) error {
	r, err := o.NewReader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return same(r, want)
}

func gcsUpload(ctx context.Context, o *storage.ObjectHandle, b []byte, options ...func(*storage.Writer)) error {
	w := o.NewWriter(ctx)
	for _, set := range options {
		set(w)
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}

// newGCS returns a client. Its own retries have no end but that of the context, so
// the tests allow it four attempts.
func newGCS(t testing.TB, s setup) *storage.Client {
	c, err := storage.NewClient(context.Background(), option.WithHTTPClient(s.http),
		option.WithEndpoint(s.url+"/storage/v1/"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if s.retries {
		c.SetRetry(storage.WithMaxAttempts(4),
			storage.WithBackoff(gax.Backoff{Initial: time.Millisecond, Max: time.Millisecond, Multiplier: 1}))
	} else {
		c.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithErrorFunc(func(error) bool { return false }))
	}
	return c
}

func newFakeGCS(t testing.TB, url string, objects ...fakestorage.Object) *fakestorage.Server {
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		InitialObjects: objects, NoListener: true, ExternalURL: url,
		PublicHost: strings.TrimPrefix(url, "http://"), Writer: io.Discard,
	})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	return s
}

// 64 MiB go up and come down through connections that are reset every few MiB. The
// fake appends each chunk that it gets, so a chunk that is stored twice would show
// in the content.
func TestCloudStorageLarge(t *testing.T) {
	want := content(64 << 20)
	var fake *fakestorage.Server
	s := newServer(t, func(url string) http.Handler {
		fake = newFakeGCS(t, url)
		return fake.HTTPHandler()
	})
	n := newNetwork(t, s.url)
	chunks := func(w *storage.Writer) { w.ChunkSize = 4 << 20 }
	bare := newGCS(t, setup{http: &http.Client{Transport: base(t, n, false)}, url: s.url}).Bucket(bucket)
	hc, r := under(t, base(t, n, false), profile.GoogleCloud(), nil)
	c := newGCS(t, setup{http: hc, url: s.url}).Bucket(bucket)

	require.NoError(t, n.set(resetAfter(up, 10<<20)...))
	require.Error(t, gcsUpload(bounded(t), bare.Object("bare"), want, chunks))
	require.NoError(t, gcsUpload(bounded(t), c.Object(object), want, chunks))
	assert.GreaterOrEqual(t, len(r.told()), 5, "resets")
	stored, err := fake.GetObject(bucket, object)
	require.NoError(t, err)
	assert.Equal(t, sha256.Sum256(want), sha256.Sum256(stored.Content))

	// A chunk has 16 MiB if nobody says otherwise. The profile keeps as much.
	require.NoError(t, n.set(resetAfter(up, 20<<20)...))
	require.NoError(t, gcsUpload(bounded(t), c.Object("default"), want))

	require.NoError(t, n.set(resetAfter(down, 6<<20)...))
	before := len(r.told())
	require.NoError(t, gcsDownload(bounded(t), c.Object(object), want))
	assert.GreaterOrEqual(t, len(r.told())-before, 10, "resets")
	// The SDK's reader continues by itself after a cut, but not before the headers.
	require.NoError(t, n.set(newToxic("reset_peer", down, "timeout", 0)))
	require.Error(t, gcsDownload(bounded(t), bare.Object(object), want))
}

// RetryNever does not turn the retries of chunks off, so that they multiply.
func TestCloudStorageRetryNever(t *testing.T) {
	s := newServer(t, func(url string) http.Handler { return newFakeGCS(t, url).HTTPHandler() })
	c := newGCS(t, setup{http: &http.Client{Transport: base(t, newNetwork(t, s.url), false)}, url: s.url})
	s.answer(func(n int, w http.ResponseWriter, req *http.Request) bool {
		return req.Header.Get("Content-Range") != "" && n < 4 && unavailable(n, w, req)
	})
	o := c.Bucket(bucket).Object(object)
	upload := func() error {
		return gcsUpload(bounded(t), o, bytes.Repeat([]byte{1}, 1<<20), func(w *storage.Writer) { w.ChunkSize = 256 << 10 })
	}
	require.Error(t, upload())
	c.SetRetry(storage.WithPolicy(storage.RetryNever))
	o = c.Bucket(bucket).Object(object)
	s.answer(s.early)
	require.NoError(t, upload(), "retried")
}
