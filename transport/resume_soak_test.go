package transport_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// soakRuns returns how often each protocol's download is repeated, from
// APLOMB_SOAK, which make soak sets. 0 means a short run.
func soakRuns() int {
	n, _ := strconv.Atoi(os.Getenv("APLOMB_SOAK"))
	return n
}

// large returns 256 MiB, or 16 MiB in a short run, and their hash. No two places
// in it look alike.
var large = sync.OnceValues(func() ([]byte, string) {
	size := 16 << 20
	if soakRuns() > 0 {
		size = 256 << 20
	}
	p := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(p)
	sum := sha256.Sum256(p)
	return p, hex.EncodeToString(sum[:])
})

// resetting is a server that resets the connection every 1 to 8 MiB, or every 4
// to 8 MiB in a short run.
func resetting(t *testing.T, config testserver.Config, body []byte) *testserver.Server {
	least := int64(1 << 20)
	if soakRuns() == 0 {
		least = 4 << 20 // a segment below 1 MiB would delay the next reconnect by a second
	}
	config.Handler = func(*testserver.Received) testserver.Step {
		return testserver.Content(body, `"v1"`).CutAt(least+rand.Int64N(8<<20-least), testserver.Reset)
	}
	return testserver.Start(t, config)
}

var wires = map[string]testserver.Config{
	"http1": {},
	"http2": {HTTP2: true, TLS: testserver.Trusted},
	"tls":   {TLS: testserver.Trusted},
}

// TestResumeSoak downloads a large body over connections that are reset all the
// time. make soak downloads 256 MiB APLOMB_SOAK times, three at a time, since
// most of the time is spent in the jitter.
func TestResumeSoak(t *testing.T) {
	runs := max(soakRuns(), 1)
	body, want := large()
	for name, config := range wires {
		t.Run(name, func(t *testing.T) {
			srv := resetting(t, config, body)
			tr := mustNew(t, transport.Config{Base: srv.Transport()})
			defer tr.CloseIdleConnections()
			var all sync.WaitGroup
			room := make(chan struct{}, 3)
			for range runs {
				room <- struct{}{}
				all.Go(func() {
					defer func() { <-room }()
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, srv.URL, nil))
					if !assert.NoError(t, err) {
						return
					}
					defer func() { _ = resp.Body.Close() }()
					sum := sha256.New()
					n, err := io.Copy(sum, resp.Body)
					assert.NoError(t, err, "after %d bytes", n)
					assert.Equal(t, want, hex.EncodeToString(sum.Sum(nil)), "%d bytes", n)
				})
			}
			all.Wait()
			assert.GreaterOrEqual(t, srv.Arrivals(), runs*len(body)/(8<<20))
		})
	}
}

// TestResumeMemory compares the memory in use during such a download with the
// memory that the bare base uses for a download that is not cut.
func TestResumeMemory(t *testing.T) {
	body, _ := large()
	for name, config := range wires {
		t.Run(name, func(t *testing.T) {
			whole := config
			whole.Handler = func(*testserver.Received) testserver.Step { return testserver.Content(body, `"v1"`) }
			plain := testserver.Start(t, whole)
			srv := resetting(t, config, body)
			tr := mustNew(t, transport.Config{Base: srv.Transport()})
			// Other goroutines of the process add to a measurement, so the least of a
			// few is the nearest to the truth. The buffers of HTTP/2 may be empty at the
			// moment of a measurement, so both are measured anew.
			over := int64(math.MaxInt64)
			for range 3 {
				bare := downloadMemory(t, plain.Transport(), plain.URL, 8<<20)
				ours := downloadMemory(t, tr, srv.URL, 12<<20)
				t.Logf("ours %d KiB, bare %d KiB", ours>>10, bare>>10)
				if over = min(over, ours-bare); over < 4<<20 {
					break
				}
			}
			tr.CloseIdleConnections()
			assert.Less(t, over, int64(4<<20))
		})
	}
}

// downloadMemory returns by how much the memory in use grows during a download.
func downloadMemory(t *testing.T, rt http.RoundTripper, url string, size int64) (most int64) {
	before := testkit.Heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp := mustRoundTrip(t, rt, req)
	defer func() { _ = resp.Body.Close() }()
	for size > 0 {
		n, err := io.CopyN(io.Discard, resp.Body, min(size, 2<<20))
		require.NoError(t, err)
		size -= n
		most = max(most, testkit.Heap()-before)
	}
	return most
}

// BenchmarkDownload compares a download of 1 GiB over loopback, resumable but
// not cut, with the bare base. It reports the median of nine quotients of their times as
// ours/bare, and the bare throughput. If the quotient is above 1, ours was faster. In each
// round both bodies are read by turns in slices of 16 MiB, so that other work on the machine
// slows down both.
func BenchmarkDownload(b *testing.B) {
	const size, slice = int64(1 << 30), int64(16 << 20)
	chunk := make([]byte, 1<<20)
	url := newLoopback(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for n := size; n > 0; n -= int64(len(chunk)) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	sides := [2]http.RoundTripper{base, mustNew(b, transport.Config{Base: base})}
	buf := make([]byte, 64<<10)
	round := func() (took [2]time.Duration) {
		var bodies [2]io.ReadCloser
		for i, rt := range sides {
			resp, err := rt.RoundTrip(getRequest(b, url))
			require.NoError(b, err)
			bodies[i] = resp.Body
			defer func() { _ = resp.Body.Close() }()
		}
		_, resumes := bodies[1].(*resume.Body)
		require.True(b, resumes)
		for n := int64(0); n < size; n += slice {
			for i := range bodies {
				i = (i + int(n/slice)) % 2 // neither side is always the second
				start := time.Now()
				k, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(bodies[i], slice), buf)
				took[i] += time.Since(start)
				require.NoError(b, err)
				require.Equal(b, slice, k)
			}
		}
		return took
	}
	round()
	for b.Loop() {
		var quotients, bare []float64
		for range 9 {
			took := round()
			quotients = append(quotients, took[0].Seconds()/took[1].Seconds())
			bare = append(bare, float64(size)/1e9/took[0].Seconds())
		}
		slices.Sort(quotients)
		slices.Sort(bare)
		b.ReportMetric(quotients[4], "ours/bare")
		b.ReportMetric(bare[4], "bare-GB/s")
		b.ReportMetric(quotients[4]*bare[4], "ours-GB/s")
		b.Logf("%.3f", quotients)
	}
}

// newLoopback is a plain server of net/http.
func newLoopback(b *testing.B, h http.HandlerFunc) string {
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	return srv.URL
}

// Given a server of net/http whose chunked response is cut before its last chunk,
// its response to the request for the rest proves that nothing is missing.
func TestCutBeforeTheLastChunk(t *testing.T) {
	const text = "some text"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if req.Header.Get("Range") != "" {
			http.ServeContent(w, req, "text.txt", time.Time{}, strings.NewReader(text))
			return
		}
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	tr := mustNew(t, transport.Config{Rule: quick})
	defer tr.CloseIdleConnections()
	resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, srv.URL, nil))
	wantText(t, resp.Body, text)
}
