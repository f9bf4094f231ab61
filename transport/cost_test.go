// The cost of a request in common settings.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
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
