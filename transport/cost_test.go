// The cost of a request in common settings, and what a base sees of a request that costs nothing.

package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// costSettings are the settings whose cost is measured and pinned.
func costSettings() map[string]policy.Rule {
	return map[string]policy.Rule{
		"default": {},
		"functions": {
			Classify:       func(o classify.Outcome) classify.Class { return classify.Refusals(o) },
			RetryAfter:     func(o classify.Outcome) (time.Duration, bool) { return classify.RetryAfter(o) },
			Idempotent:     func(r *http.Request) bool { return classify.Idempotent(r) },
			MaxElapsedTime: time.Minute,
		},
		"API": profile.API(),
		"timeouts": {
			AttemptTimeout: 10 * time.Second,
			StallTimeout:   30 * time.Second,
		},
		"everything": {
			AttemptTimeout:  10 * time.Second,
			StallTimeout:    30 * time.Second,
			MaxElapsedTime:  time.Minute,
			Classify:        classify.Refusals,
			ReplayBuffer:    16 << 20,
			RateLimit:       policy.RateLimit{PerSecond: 1e6, Burst: 1e6},
			ShareRetryAfter: policy.On,
			QuotaPacing:     policy.On,
			Concurrency:     policy.Concurrency{Enabled: policy.On, Max: 100},
		},
	}
}

var costOrder = []string{"default", "functions", "API", "timeouts", "everything"}

// A failing base responds n times with 503 and then once with 200, and so on.
type failing struct{ n, sent int }

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	f.sent++
	if f.sent%(f.n+1) == 0 {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), ContentLength: 2, Request: req}, nil
	}
	return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("later")), ContentLength: 5, Request: req}, nil
}

// allocations are the most allocations that each setting may add to the floor.
var allocations = map[string]struct{ get, post, twoFailures float64 }{
	"default":    {get: 0, post: 0, twoFailures: 4},
	"functions":  {get: 0, post: 0, twoFailures: 4},
	"API":        {get: 1, post: 1, twoFailures: 10},
	"timeouts":   {get: 1, post: 2, twoFailures: 10},
	"everything": {get: 1, post: 2, twoFailures: 12},
}

// TestAllocationsOfCommonSettings pins the allocations of a call. The floor is the same
// number of attempts without a Transport.
func TestAllocationsOfCommonSettings(t *testing.T) {
	get, post := getRequest(t, "https://api.example.com/v1/things"), postRequest(t, "https://api.example.com/v1/things")
	get.Header.Set("Authorization", "Bearer secret")
	floor := func(req *http.Request, failures int) float64 {
		base := &failing{n: failures}
		return testing.AllocsPerRun(200, func() {
			for range failures + 1 {
				finish(base.RoundTrip(req))
			}
		})
	}
	for setting, most := range allocations {
		if raceDetector {
			most.twoFailures++ // a sync.Pool then drops values at random
		}
		of := func(req *http.Request, failures int) float64 {
			tr := costOf(t, setting, failures)
			return testing.AllocsPerRun(200, func() { finish(tr.RoundTrip(req)) }) - floor(req, failures)
		}
		assert.LessOrEqual(t, of(get, 0), most.get, "%s: GET", setting)
		assert.LessOrEqual(t, of(post, 0), most.post, "%s: POST", setting)
		assert.LessOrEqual(t, of(get, 2), most.twoFailures, "%s: two failures", setting)
	}
}

// A body that may be cut costs one allocation if somebody can hear of the cut: a reader of a GET
// gets the rest, and a Trace is told of any other body.
func TestAllocationsOfABody(t *testing.T) {
	base := rt(func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: reader(strings.NewReader("it is not empty")), ContentLength: 15, Request: req}, nil
	})
	get, post := getRequest(t, "https://api.example.com/v1/things"), postRequest(t, "https://api.example.com/v1/things")
	for name, row := range map[string]struct {
		config transport.Config
		req    *http.Request
		most   float64
	}{
		"a GET":                  {transport.Config{}, get, 1},
		"a GET, and a Logger":    {transport.Config{Logger: slog.New(slog.DiscardHandler)}, get, 1},
		"a GET, and a Hedge":     {transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Hour}}}, get, 7},
		"a GET without its rest": {transport.Config{Rule: policy.Rule{Resume: policy.Off}}, get, 0},
		"a POST":                 {transport.Config{}, post, 0},
		"a POST, and a Logger":   {transport.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, post, 0},
		"a POST, and a Trace":    {transport.Config{Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) {}}}}, post, 6},
	} {
		of := func(base http.RoundTripper) float64 {
			return testing.AllocsPerRun(200, func() { finish(base.RoundTrip(row.req)) })
		}
		row.config.Base = base
		assert.LessOrEqual(t, of(mustNew(t, row.config))-of(base), row.most, name)
	}
}

// A body that may be continued costs one allocation, however it comes.
func TestAllocationsOfALongBody(t *testing.T) {
	const read = 8 << 10
	p := make([]byte, read)
	for _, row := range []struct {
		size    int
		unknown bool
		header  http.Header
		want    float64
	}{
		{size: 1 << 10, want: 1},
		{size: 1 << 10, unknown: true, want: 1},
		{size: read + 1, want: 1},
		{size: read + 1, unknown: true, want: 1},
		{size: 32 * read, want: 1},
		{size: 32 * read, unknown: true, want: 1},
		{size: 32 * read, header: http.Header{"Etag": {`"v1"`}}, want: 1},
		{size: 32 * read, header: http.Header{"Etag": {`"v1"`}, "Accept-Ranges": {"bytes"}}, want: 1},
		{size: 32 * read, header: http.Header{"Content-Type": {"text/event-stream"}}, want: 0},
	} {
		data := strings.Repeat("x", row.size)
		base := rt(func(req *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Header: row.header, Body: reader(strings.NewReader(data)), ContentLength: int64(row.size), Request: req}
			if row.unknown {
				resp.ContentLength = -1
			}
			return resp, nil
		})
		of := func(base http.RoundTripper) float64 {
			req := getRequest(t, "https://api.example.com/v1/things")
			return testing.AllocsPerRun(200, func() {
				resp, err := base.RoundTrip(req)
				for err == nil {
					_, err = resp.Body.Read(p)
				}
				_ = resp.Body.Close()
			})
		}
		assert.Equal(t, row.want, of(mustNew(t, transport.Config{Base: base}))-of(base), "%+v", row)
	}
}

// An http.Client with a Timeout sets Request.Cancel and a deadline for each request. Its
// requests stay on the fast path.
func TestAllocationsUnderAClientTimeout(t *testing.T) {
	req := getRequest(t, "https://api.example.com/v1/things")
	of := func(base http.RoundTripper) float64 {
		client := &http.Client{Transport: base, Timeout: time.Minute}
		least := math.Inf(1)
		for range 5 { // the goroutines of earlier calls may still allocate
			least = min(least, testing.AllocsPerRun(100, func() { finish(client.Do(req)) }))
		}
		return least
	}
	floor := of(&failing{})
	for _, setting := range []string{"default", "functions", "API", "timeouts"} {
		// The goroutines of the client make the count uncertain by one. Outside the
		// fast path it would be ten more.
		assert.LessOrEqual(t, of(costOf(t, setting, 0))-floor, allocations[setting].get+2, setting)
	}
}

// The timer of an attempt and the context that it ends cost something only if the base waits for the end
// of the context.
func TestAllocationsOfATimer(t *testing.T) {
	var wait func(context.Context)
	base := rt(func(req *http.Request) (*http.Response, error) {
		wait(req.Context())
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{AttemptTimeout: time.Minute}})
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), cancellable} {
		req := getRequest(t, "https://api.example.com/v1/things").WithContext(ctx)
		of := func(rt http.RoundTripper) float64 {
			return testing.AllocsPerRun(200, func() { finish(rt.RoundTrip(req)) })
		}
		wait = func(context.Context) {}
		assert.LessOrEqual(t, of(tr)-of(base), 1.0, ctx)
		wait = func(ctx context.Context) { ctx.Done() }
		assert.LessOrEqual(t, of(tr)-of(base), 6.0, ctx)
	}
}

// The hooks of an attempt cost something only if the base asks for them.
func TestAllocationsOfHooks(t *testing.T) {
	base := rt(func(req *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(req.Context())
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	for _, row := range []struct {
		rule      policy.Rule
		get, post float64
	}{
		{policy.Rule{}, 0, 0},
		{policy.Rule{AttemptTimeout: time.Minute}, 1, 4},
		{policy.Rule{StallTimeout: time.Minute}, 4, 7},
	} {
		tr := mustNew(t, transport.Config{Base: base, Rule: row.rule})
		of := func(method string, rt http.RoundTripper) float64 {
			req := newRequest(t, method, "https://api.example.com/v1/things", nil)
			return testing.AllocsPerRun(200, func() { finish(rt.RoundTrip(req)) })
		}
		assert.LessOrEqual(t, of(http.MethodGet, tr)-of(http.MethodGet, base), row.get, "%+v", row)
		assert.LessOrEqual(t, of(http.MethodPost, tr)-of(http.MethodPost, base), row.post, "%+v", row)
	}
}

// finish reads and closes a response.
func finish(resp *http.Response, err error) {
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func costOf(t testing.TB, setting string, failures int) *transport.Transport {
	rule := costSettings()[setting]
	rule.Backoff = backoff.Constant(0)
	rule.RetryBudget = policy.RetryBudget{Enabled: policy.Off}
	return mustNew(t, transport.Config{Base: &failing{n: failures}, Rule: rule})
}

func BenchmarkCost(b *testing.B) {
	for _, failures := range []int{0, 2} {
		kind := map[int]string{0: "first", 2: "two failures"}[failures]
		base := &failing{n: failures}
		b.Run(kind+"/floor", func(b *testing.B) {
			req := getRequest(b, "https://api.example.com/v1/things")
			b.ReportAllocs()
			for b.Loop() {
				for range failures + 1 {
					finish(base.RoundTrip(req))
				}
			}
		})
		for _, setting := range costOrder {
			b.Run(kind+"/"+setting, func(b *testing.B) {
				tr := costOf(b, setting, failures)
				req := getRequest(b, "https://api.example.com/v1/things")
				b.ReportAllocs()
				for b.Loop() {
					finish(tr.RoundTrip(req))
				}
			})
		}
	}
}

// cpu makes a benchmark show the processor's time of an operation as well. Other programs make the
// machine slower, but this time only a little longer.
func cpu(b *testing.B) (show func()) {
	start := testkit.CPU()
	return func() { b.ReportMetric(float64(testkit.CPU()-start)/float64(b.N), "cpu-ns/op") }
}

// BenchmarkBody is the cost of a body with its length, over a base in memory.
func BenchmarkBody(b *testing.B) {
	for _, size := range []int{1 << 10, 256 << 10} {
		data := strings.Repeat("x", size)
		for _, header := range []http.Header{{"Content-Type": {"application/json"}}, {"Etag": {`"v1"`}}} {
			base := rt(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: header, Body: reader(strings.NewReader(data)), ContentLength: int64(size), Request: req}, nil
			})
			name := fmt.Sprintf("%d KiB", size>>10)
			if header["Etag"] != nil {
				name += " with an ETag"
			}
			for over, tr := range map[string]http.RoundTripper{"floor": base, "default": mustNew(b, transport.Config{Base: base})} {
				b.Run(name+"/"+over, func(b *testing.B) {
					req := getRequest(b, "https://api.example.com/v1/things")
					b.ReportAllocs()
					defer cpu(b)()
					for b.Loop() {
						finish(tr.RoundTrip(req))
					}
				})
			}
		}
	}
}

// BenchmarkServer is a GET of 1 KiB from a real server in the same process, which takes most of the
// time. So only the difference to bare counts.
func BenchmarkServer(b *testing.B) {
	data := []byte(strings.Repeat("x", 1<<10))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }))
	defer server.Close()
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	defer base.CloseIdleConnections()
	trs := map[string]http.RoundTripper{"bare": base}
	for _, setting := range []string{"default", "API", "everything"} {
		trs[setting] = mustNew(b, transport.Config{Base: base, Rule: costSettings()[setting]})
	}
	for _, setting := range []string{"bare", "default", "API", "everything"} {
		b.Run("one after the other/"+setting, func(b *testing.B) {
			req := getRequest(b, server.URL)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				finish(trs[setting].RoundTrip(req))
			}
		})
		b.Run("64 at a time/"+setting, func(b *testing.B) {
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.ReportAllocs()
			defer cpu(b)()
			b.RunParallel(func(pb *testing.PB) {
				req := getRequest(b, server.URL)
				for pb.Next() {
					finish(trs[setting].RoundTrip(req))
				}
			})
		})
	}
}

// The first attempt reads the clock for a Logger only if the Logger takes the lines of attempts.
func TestLoggerThatIsOffReadsNoClock(t *testing.T) {
	for level, timed := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		log := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level}))
		resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: script(status(503)), Logger: log}), postRequest(t, "http://h.test/"))
		attempts := transport.HistoryOf(resp, nil).Attempts
		require.Len(t, attempts, 1, "attempts")
		assert.Equal(t, timed, !attempts[0].Start.IsZero(), level)
	}
}

// noop responds at once with the same response, so that what is measured is
// ours.
type noop struct{ resp *http.Response }

func (n noop) RoundTrip(*http.Request) (*http.Response, error) { return n.resp, nil }

func newNoop() noop {
	return noop{&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
}

func getRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func postRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("body"))
	require.NoError(t, err)
	return req
}

func TestFirstTryOfManyHostsAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	reqs := manyRequests(1000)
	for _, req := range reqs {
		_, _ = tr.RoundTrip(req)
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(len(reqs), func() {
		_, _ = tr.RoundTrip(reqs[i%len(reqs)])
		i++
	}))
}

func manyRequests(n int) []*http.Request {
	reqs := make([]*http.Request, n)
	for i := range reqs {
		reqs[i] = &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Scheme: "https", Host: fmt.Sprintf("host-%d.example.com", i)},
			Header: http.Header{},
		}
	}
	return reqs
}

// TestUploadStreams: the first byte is with the base before the second is read.
func TestUploadStreams(t *testing.T) {
	sent := make(chan struct{})
	first := true
	src := oneShot("ab")
	src.Reader = iotest.OneByteReader(strings.NewReader("ab"))
	src.onRead = func() {
		if !first {
			select {
			case <-sent:
			default:
				t.Error("the second byte is read before the first is sent")
			}
		}
		first = false
	}
	base := rt(func(req *http.Request) (*http.Response, error) {
		p := make([]byte, 1)
		n, err := req.Body.Read(p)
		assert.NoError(t, err)
		assert.Equal(t, "a", string(p[:n]))
		close(sent)
		wantText(t, req.Body, "b")
		_ = req.Body.Close()
		return play(req, status(200))
	})
	resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: base}), newRequest(t, http.MethodPut, "http://h", src))
	assert.Equal(t, 200, resp.StatusCode)
	count(t, 1, src.closed(), "body closed")
}

func BenchmarkFirstTry(b *testing.B) {
	base := newNoop()
	tr := mustNew(b, transport.Config{Base: base})
	for _, row := range []struct {
		name string
		req  *http.Request
	}{
		{"GET", getRequest(b, "https://api.example.com/v1/things")},
		{"POST", postRequest(b, "https://api.example.com/v1/things")},
	} {
		for _, over := range []struct {
			name string
			rt   http.RoundTripper
		}{{"base", base}, {"aplomb", tr}} {
			b.Run(row.name+"/"+over.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = over.rt.RoundTrip(row.req)
				}
			})
		}
	}
}

func BenchmarkParallel(b *testing.B) {
	tr := mustNew(b, transport.Config{Base: newNoop()})
	b.Run("serial", func(b *testing.B) {
		req := getRequest(b, "https://api.example.com/v1/things")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = tr.RoundTrip(req)
		}
	})
	b.Run(fmt.Sprintf("parallel=%d", runtime.GOMAXPROCS(0)), func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			req := getRequest(b, "https://api.example.com/v1/things")
			for pb.Next() {
				_, _ = tr.RoundTrip(req)
			}
		})
	})
}

// BenchmarkManyHosts compares with a bare sync.Map lookup of the same keys in
// the same order. One request is used for all hosts: a real one has just been
// made, and is not what is cold.
func BenchmarkManyHosts(b *testing.B) {
	reqs := manyRequests(100_000)
	keys := make([]string, len(reqs))
	var bare sync.Map
	tr := mustNew(b, transport.Config{Base: newNoop()})
	for i, req := range reqs {
		keys[i] = req.URL.Host
		bare.Store(keys[i], new(int))
		_, _ = tr.RoundTrip(req)
	}
	b.Run("syncmap", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v, _ := bare.Load(keys[i%len(keys)])
			_ = v.(*int)
		}
	})
	b.Run("aplomb", func(b *testing.B) {
		b.ReportAllocs()
		req := reqs[0]
		for i := 0; b.Loop(); i++ {
			req.URL.Host = keys[i%len(keys)]
			_, _ = tr.RoundTrip(req)
		}
	})
}

// net/http sees a small body in memory as its own type at every attempt: under
// timeouts, at retries, in hedges, and with any GetBody.
func TestSmallBodiesInMemoryAreNotWrapped(t *testing.T) {
	text := strings.Repeat("x", replay.Small)
	shared := strings.NewReader(text)
	requests := map[string]func(*http.Request){
		"net/http's GetBody": func(*http.Request) {},
		"another GetBody": func(req *http.Request) {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		},
		"one reader, sought back": func(req *http.Request) {
			req.Body = io.NopCloser(shared)
			req.GetBody = seeksBack(shared, io.NopCloser(shared))
		},
		"no GetBody": func(req *http.Request) { req.GetBody = nil },
	}
	for rule, r := range map[string]policy.Rule{
		"no timeout":      {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"stall timeout":   {StallTimeout: time.Hour},
		"hedge":           {AttemptTimeout: time.Hour, Hedge: policy.Hedge{Delay: time.Second}},
	} {
		for name, change := range requests {
			inBubble(t, rule+"/"+name, func(t *testing.T) {
				tr := over(t, transport.Config{Rule: r.Or(quick)}, numbered(func(req *http.Request, attempts int) (*http.Response, error) {
					assert.True(t, replay.SmallInMemory(req.Body), "attempt %d has a %T", attempts, req.Body)
					if req.GetBody != nil {
						again, err := req.GetBody()
						if assert.NoError(t, err) {
							assert.True(t, replay.SmallInMemory(again), "net/http's own resend has a %T", again)
						}
					}
					wantText(t, req.Body, text)
					time.Sleep(2 * time.Second)
					if attempts < 3 {
						return play(req, status(503))
					}
					return play(req, status(200))
				}))
				_, _ = shared.Seek(0, io.SeekStart)
				req := newRequest(t, http.MethodGet, "http://h.test/", bytes.NewReader([]byte(text)))
				change(req)
				resp := mustRoundTrip(t, tr, req)
				assert.Equal(t, 200, resp.StatusCode)
				time.Sleep(time.Minute)
			})
		}
	}
}

// writesCounted counts the writes to a connection.
type writesCounted struct {
	net.Conn
	n *atomic.Int32
}

func (c writesCounted) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// A small request leaves in one write, also under timeouts.
func TestSmallUploadIsOneWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var writes atomic.Int32
		base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				req, err := http.ReadRequest(bufio.NewReader(server))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				_ = server.Close()
			}()
			return writesCounted{client, &writes}, nil
		}}
		tr := over(t, transport.Config{Rule: policy.Rule{AttemptTimeout: time.Minute, StallTimeout: time.Minute}}, base)
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader("text")))
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		count(t, 1, writes.Load(), "connection written")
	})
}

// A file goes to the connection by ReadFrom, which can copy it within the kernel. A small
// buffer goes out together with the headers. Timeouts change neither.
func TestTimeoutsKeepThePathOfABody(t *testing.T) {
	name := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(name, []byte("text"), 0o600))
	file, err := os.Open(name) // closed with the request
	require.NoError(t, err)
	for name, row := range map[string]struct {
		body io.Reader
		want bool
	}{
		"file":   {file, true},
		"buffer": {bytes.NewBufferString("text"), false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			defer srv.Close()
			var called atomic.Bool
			base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return readFromNoted{conn.(*net.TCPConn), &called}, nil
			}}
			defer base.CloseIdleConnections()
			req := newRequest(t, http.MethodPut, srv.URL, row.body)
			req.ContentLength = 4
			resp := mustRoundTrip(t, over(t, transport.Config{Rule: timedOnce()}, base), req)
			_ = resp.Body.Close()
			assert.Equal(t, row.want, called.Load())
		})
	}
}

type readFromNoted struct {
	*net.TCPConn
	called *atomic.Bool
}

func (c readFromNoted) ReadFrom(r io.Reader) (int64, error) {
	c.called.Store(true)
	return c.TCPConn.ReadFrom(r)
}

// timedOnce is a rule with timeouts and without retries.
func timedOnce() policy.Rule {
	return policy.Rule{MaxAttempts: 1, AttemptTimeout: time.Minute, StallTimeout: time.Minute}
}

// net/http resends a POST by itself if nothing of it was written. It has to see that the
// body can be made again, and that nobody has read it. Timeouts leave both as they are.
func TestTimeoutsKeepTheResendOfTheBase(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer srv.Close()
	var writes, dials atomic.Int32
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return secondWriteFails{conn, &writes}, err
	}}
	defer base.CloseIdleConnections()
	tr := over(t, transport.Config{Rule: timedOnce()}, base)
	for range 2 { // the second finds a connection that cannot be written to
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPost, srv.URL, strings.NewReader("text")))
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	count(t, 2, dials.Load(), "connection made")
}

type secondWriteFails struct {
	net.Conn
	writes *atomic.Int32
}

func (c secondWriteFails) Write(p []byte) (int, error) {
	if c.writes.Add(1) == 2 {
		return 0, errors.New("nothing is written")
	}
	return c.Conn.Write(p)
}
