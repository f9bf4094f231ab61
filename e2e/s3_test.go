// Amazon S3, with gofakes3 as the server.

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const bucket, object = "bucket", "object"

func s3Client() client {
	return client{
		name:    "aws-sdk-go-v2 S3",
		off:     "`o.Retryer = aws.NopRetryer{}`",
		needs:   "`profile.AWS()`; parts of at most `ReplayBuffer`",
		rule:    profile.AWS(),
		size:    1 << 20,
		resumes: true,
		serve: func(t testing.TB, _ string) http.Handler {
			backend, fake := newFakeS3(t)
			testkit.Must(backend.PutObject(bucket, object, nil, bytes.NewReader(content(1<<20)), 1<<20, nil))(t)
			return fake
		},
		open: func(_ testing.TB, s setup) session {
			c := newS3(s)
			return session{
				download: func(ctx context.Context) error {
					out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(object)})
					if err != nil {
						return err
					}
					defer func() { _ = out.Body.Close() }()
					return same(out.Body, content(1<<20))
				},
				upload: func(ctx context.Context, b []byte) error {
					_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("other"), Body: bytes.NewReader(b)})
					return err // the SDK sends a checksum, and the fake checks the length
				},
				own: asError[*smithy.OperationError],
			}
		},
	}
}

func newS3(s setup) *s3.Client {
	o := s3.Options{
		HTTPClient: s.http, BaseEndpoint: &s.url, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		Retryer:     retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond }),
	}
	if !s.retries {
		o.Retryer = aws.NopRetryer{}
	}
	return s3.New(o)
}

// newFakeS3 returns a server with an empty bucket.
func newFakeS3(t testing.TB) (gofakes3.Backend, http.Handler) {
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(bucket))
	return backend, gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()
}

// A parts counter counts how often each part of an upload was stored.
type partsCounter struct {
	next   http.Handler
	mu     sync.Mutex
	stored map[string]int
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 { // gofakes3 calls it again after an error
		w.status = status
		w.ResponseWriter.WriteHeader(status)
	}
}

func (p *partsCounter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	sw := &statusWriter{ResponseWriter: w}
	p.next.ServeHTTP(sw, req)
	if part := req.URL.Query().Get("partNumber"); req.Method == http.MethodPut && sw.status < http.StatusMultipleChoices {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stored[part]++
	}
}

// 64 MiB go up and come down through connections that are reset every few MiB.
func TestS3Large(t *testing.T) {
	want := content(64 << 20)
	hash := sha256.Sum256(want)
	backend, fake := newFakeS3(t)
	parts := &partsCounter{next: fake, stored: map[string]int{}}
	s := newServer(t, func(string) http.Handler { return parts })
	n := newNetwork(t, s.url)
	bare := newS3(setup{http: &http.Client{Transport: base(t, n, false)}, url: s.url})
	open := func(rule policy.Rule, on func(int, transport.AttemptEnd)) (*s3.Client, *recorder) {
		hc, r := under(t, base(t, n, false), rule.Or(profile.AWS()), on)
		return newS3(setup{http: hc, url: s.url}), r
	}
	stored := func(key string) [32]byte {
		o := testkit.Must(backend.GetObject(bucket, key, nil))(t)
		defer func() { _ = o.Contents.Close() }()
		got := testkit.Must(io.ReadAll(o.Contents))(t)
		return sha256.Sum256(got)
	}

	t.Run("in parts", func(t *testing.T) {
		upload := func(c *s3.Client, key string) error {
			m := transfermanager.New(c, func(o *transfermanager.Options) { o.PartSizeBytes, o.Concurrency = 5<<20, 4 })
			_, err := m.UploadObject(bounded(t), &transfermanager.UploadObjectInput{Bucket: aws.String(bucket), Key: &key, Body: bytes.NewReader(want)})
			return err
		}
		require.NoError(t, n.set(resetAfter(up, 12<<20)...))
		require.Error(t, upload(bare, "bare"))
		parts.stored = map[string]int{}
		c, r := open(policy.Rule{MaxAttempts: 10}, nil)
		require.NoError(t, upload(c, "parts"))
		assert.Equal(t, hash, stored("parts"))
		assert.NotEmpty(t, r.told(), "resets")
		assert.Len(t, parts.stored, 13)
		for part, n := range parts.stored {
			testkit.Count(t, 1, n, "part stored", part)
		}
	})
	t.Run("as a whole", func(t *testing.T) {
		upload := func(c *s3.Client, key string) error {
			_, err := c.PutObject(bounded(t), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &key, Body: bytes.NewReader(want)})
			return err
		}
		require.NoError(t, n.set(resetAfter(up, 20<<20)...))
		require.Error(t, upload(bare, "bare"))
		c, r := open(policy.Rule{ReplayBuffer: 64 << 20}, func(i int, _ transport.AttemptEnd) {
			if i == 2 {
				assert.NoError(t, n.set())
			}
		})
		require.NoError(t, upload(c, "whole"))
		assert.Equal(t, hash, stored("whole"))
		assert.Len(t, r.told(), 2, "attempts told")
	})
	t.Run("down in parts", func(t *testing.T) {
		download := func(c *s3.Client) error {
			// The manager tries the body of a part again by itself, so it gets a single try.
			m := transfermanager.New(c, func(o *transfermanager.Options) { o.PartBodyMaxRetries, o.PartSizeBytes = 1, 8<<20 })
			got := types.NewWriteAtBuffer(make([]byte, 0, len(want)))
			_, err := m.DownloadObject(bounded(t), &transfermanager.DownloadObjectInput{Bucket: aws.String(bucket), Key: aws.String("parts"), WriterAt: got})
			if err != nil {
				return err
			}
			return same(bytes.NewReader(got.Bytes()), want)
		}
		require.NoError(t, n.set(resetAfter(down, 6<<20)...))
		require.Error(t, download(bare))
		c, r := open(policy.Rule{}, nil)
		require.NoError(t, download(c))
		assert.GreaterOrEqual(t, len(r.told()), 8, "each part is cut")
	})
	get := func(c *s3.Client, ranges *string, want []byte) error {
		in := &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String("parts"), Range: ranges}
		out, err := c.GetObject(bounded(t), in)
		if err != nil {
			return err
		}
		defer func() { _ = out.Body.Close() }()
		return same(out.Body, want)
	}
	t.Run("down", func(t *testing.T) {
		require.NoError(t, n.set(resetAfter(down, 6<<20)...))
		require.Error(t, get(bare, nil, want))
		c, r := open(policy.Rule{}, nil)
		require.NoError(t, get(c, nil, want))
		assert.GreaterOrEqual(t, len(r.told()), len(want)/(6<<20))
	})
	// The SDK signs a Range of its caller, so another one would not have its signature.
	t.Run("down in a range", func(t *testing.T) {
		require.NoError(t, n.set(resetAfter(down, 6<<20)...))
		c, r := open(policy.Rule{}, nil)
		require.Error(t, get(c, aws.String("bytes=1000000-50000000"), want[1000000:50000001]))
		assert.Len(t, r.told(), 1, "attempts told")
	})
}

// The SDK sends a POST again after a lost response, which can leave an upload behind
// that nobody finishes. aplomb does so only if the rule says that it does no harm.
func TestS3LostPost(t *testing.T) {
	b := newBench(t, s3Client())
	create := func(c *s3.Client) error {
		b.answer(func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		_, err := c.CreateMultipartUpload(bounded(t), &s3.CreateMultipartUploadInput{Bucket: aws.String(bucket), Key: aws.String(object)})
		return err
	}
	require.NoError(t, create(newS3(setup{http: &http.Client{Transport: base(t, b.network, false)}, url: b.url, retries: true})))
	assert.Equal(t, 2, b.seen(), "requests that arrived")

	rule := profile.AWS()
	hc, r := under(t, base(t, b.network, false), rule, nil)
	require.Error(t, create(newS3(setup{http: hc, url: b.url})))
	assert.Equal(t, 1, b.seen(), "requests that arrived")
	require.Len(t, r.told(), 1, "attempts told")
	assert.Equal(t, transport.ReasonNotIdempotent, r.told()[0].Reason)

	rule.Idempotent = func(*http.Request) bool { return true }
	hc, _ = under(t, base(t, b.network, false), rule, nil)
	require.NoError(t, create(newS3(setup{http: hc, url: b.url})))
	assert.Equal(t, 2, b.seen(), "requests that arrived")
}
