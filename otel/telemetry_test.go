package aplombotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/testkit"
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A kit has the SDK with exporters in memory.
type kit struct {
	t       *testing.T
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	sums    bool // sum returns the sum of a histogram
}

func newKit(t *testing.T) *kit {
	k := &kit{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	k.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(k.spans))
	k.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(k.reader))
	return k
}

// inBubble runs a test with a kit in virtual time.
func inBubble(t *testing.T, test func(*testing.T, *kit)) {
	synctest.Test(t, func(t *testing.T) { test(t, newKit(t)) })
}

func (k *kit) config() aplombotel.Config {
	return aplombotel.Config{TracerProvider: k.tracers, MeterProvider: k.meters, Propagator: propagation.TraceContext{}}
}

// transport makes a Transport that is observed.
func (k *kit) transport(c transport.Config) *transport.Transport {
	tr, stop := k.watched(c)
	k.t.Cleanup(func() { assert.NoError(k.t, stop()) })
	return tr
}

// watched is transport with the function that ends the watch.
func (k *kit) watched(c transport.Config) (tr *transport.Transport, stop func() error) {
	telemetry := mustObserve(k.t, k.config())
	c.Traces = []*transport.Trace{telemetry.Trace()}
	tr = transport.MustNew(c)
	stop = testkit.Must(telemetry.Observe(tr))(k.t)
	return tr, stop
}

func mustObserve(t testing.TB, c aplombotel.Config) *aplombotel.Telemetry {
	return testkit.Must(aplombotel.New(c))(t)
}

// named returns the ended spans whose names begin with a text.
func (k *kit) named(prefix string) (all []sdktrace.ReadOnlySpan) {
	for _, s := range k.spans.Ended() {
		if strings.HasPrefix(s.Name(), prefix) {
			all = append(all, s)
		}
	}
	return all
}

// sum returns the sum of a metric over the points that have all the attributes.
func (k *kit) sum(name string, where ...attribute.KeyValue) (total float64) {
	var all metricdata.ResourceMetrics
	require.NoError(k.t, k.reader.Collect(context.Background(), &all))
	match := func(set attribute.Set) bool {
		for _, kv := range where {
			if v, ok := set.Value(kv.Key); !ok || v != kv.Value {
				return false
			}
		}
		return true
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				total += sumOf(d.DataPoints, match)
			case metricdata.Gauge[int64]:
				total += sumOf(d.DataPoints, match)
			case metricdata.Gauge[float64]:
				total += sumOf(d.DataPoints, match)
			case metricdata.Histogram[float64]: // the number of values, or their sum
				for _, p := range d.DataPoints {
					switch {
					case !match(p.Attributes):
					case k.sums:
						total += p.Sum
					default:
						total += float64(p.Count)
					}
				}
			default:
				k.t.Fatalf("%s is a %T", name, d)
			}
		}
	}
	return total
}

// total returns the sum of all values of a histogram.
func (k *kit) total(name string) float64 {
	k.sums = true
	defer func() { k.sums = false }()
	return k.sum(name)
}

func sumOf[N int64 | float64](points []metricdata.DataPoint[N], match func(attribute.Set) bool) (total float64) {
	for _, p := range points {
		if match(p.Attributes) {
			total += float64(p.Value)
		}
	}
	return total
}

func attrs(s sdktrace.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, kv := range s.Attributes() {
		all[string(kv.Key)] = kv.Value.AsInterface()
	}
	return all
}

type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func response(req *http.Request, code int, body io.Reader, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1, Request: req}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Set(name, value)
	}
	return resp
}

// always responds with a status and a text.
func always(code int, text string, header ...string) base {
	return func(req *http.Request) (*http.Response, error) {
		return response(req, code, strings.NewReader(text), header...), nil
	}
}

// sized is response with a length, and with an ETag.
func sized(req *http.Request, code, length int, body io.Reader, header ...string) *http.Response {
	resp := response(req, code, body, append(header, `ETag: "v1"`)...)
	resp.ContentLength = int64(length)
	return resp
}

func get(ctx context.Context, tr http.RoundTripper, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

var quick = policy.Rule{Backoff: backoff.Constant(time.Second)}

// TestSpans: a request that is retried has a span for each attempt under its own, with
// the attributes of the semantic conventions and without secrets.
func TestSpans(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		n := 0
		tr := k.transport(transport.Config{Rule: quick, Base: base(func(req *http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			switch n++; n {
			case 1:
				return response(req, 503, strings.NewReader("")), nil
			case 2:
				return nil, fmt.Errorf("Get %q: %w", req.URL, syscall.ECONNRESET)
			}
			return response(req, 200, strings.NewReader("text")), nil
		})})
		start := time.Now()
		testkit.Must(get(t.Context(), tr, "https://user:SECRET@api.example.com/v1/things?token=SECRET"))(t)

		spans := k.spans.Ended()
		require.Len(t, spans, 4, "spans")
		request := spans[3]
		common := map[string]any{
			"http.request.method": "GET", "server.address": "api.example.com", "server.port": int64(443),
			"url.full": "https://xxxxx@api.example.com/v1/things?token=xxxxx",
		}
		with := func(more map[string]any) map[string]any {
			for key, v := range common {
				more[key] = v
			}
			return more
		}
		assert.Equal(t, "aplomb GET", request.Name())
		assert.Equal(t, trace.SpanKindInternal, request.SpanKind())
		assert.Equal(t, codes.Unset, request.Status().Code)
		assert.Equal(t, with(map[string]any{
			"http.response.status_code": int64(200), "aplomb.reason": "final", "aplomb.attempts": int64(3), "http.response.body.size": int64(4),
		}), attrs(request))
		assert.Equal(t, []map[string]any{
			with(map[string]any{"aplomb.attempt.kind": "first", "http.response.status_code": int64(503), "error.type": "503", "network.protocol.version": "1.1"}),
			with(map[string]any{"aplomb.attempt.kind": "retry", "http.request.resend_count": int64(1), "error.type": "reset"}),
			with(map[string]any{"aplomb.attempt.kind": "retry", "http.request.resend_count": int64(2), "http.response.status_code": int64(200), "network.protocol.version": "1.1"}),
		}, []map[string]any{attrs(spans[0]), attrs(spans[1]), attrs(spans[2])})
		for i, s := range spans[:3] {
			assert.Equal(t, "GET", s.Name())
			assert.Equal(t, trace.SpanKindClient, s.SpanKind())
			assert.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID())
			assert.Equal(t, time.Duration(i)*1100*time.Millisecond, s.StartTime().Sub(start).Round(time.Millisecond))
			assert.Equal(t, 100*time.Millisecond, s.EndTime().Sub(s.StartTime()))
			assert.NotContains(t, fmt.Sprint(s.Attributes(), s.Status(), s.Events()), "SECRET")
		}
		assert.Equal(t, codes.Error, spans[1].Status().Code)
		assert.Contains(t, spans[1].Status().Description, syscall.ECONNRESET.Error())
		require.Len(t, request.Events(), 2)
		assert.Equal(t, "retry", request.Events()[0].Name)
	})
}

// TestSpanOfABody: the request's span ends with the body, and the reconnects are below it.
func TestSpanOfABody(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		tr := k.transport(transport.Config{Rule: quick, Base: base(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Range") != "" {
				return sized(req, 206, 5, strings.NewReader("56789"), "Content-Range: bytes 5-9/10"), nil
			}
			return sized(req, 200, 10, io.MultiReader(strings.NewReader("01234"), broken{})), nil
		})})
		text := testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
		assert.Equal(t, "0123456789", string(text))
		spans := k.spans.Ended()
		require.Len(t, spans, 3, "spans")
		request := spans[2]
		assert.Equal(t, request.SpanContext().SpanID(), spans[1].Parent().SpanID())
		assert.Equal(t, "resume", attrs(spans[1])["aplomb.attempt.kind"])
		assert.EqualValues(t, 5, attrs(spans[1])["aplomb.offset"])
		assert.EqualValues(t, 1, attrs(request)["aplomb.resumes"])
		assert.EqualValues(t, 10, attrs(request)["http.response.body.size"])
		assert.False(t, request.EndTime().Before(spans[1].EndTime()))
		assert.EqualValues(t, 1, k.sum("aplomb.attempts", kindIs("resume")))
		assert.EqualValues(t, 10, k.total("http.client.response.body.size"))
		assert.Zero(t, k.sum("aplomb.body.failures"))
	})
}

// TestBodyFails: a body whose end the caller does not get is counted.
func TestBodyFails(t *testing.T) {
	k := newKit(t)
	tr := k.transport(transport.Config{Rule: policy.Rule{Resume: policy.Off}, Base: base(func(req *http.Request) (*http.Response, error) {
		return response(req, 200, io.MultiReader(strings.NewReader("01234"), broken{})), nil
	})})
	_, err := get(t.Context(), tr, "http://h.test/")
	require.Error(t, err)
	assert.EqualValues(t, 1, k.sum("aplomb.body.failures"))
	assert.EqualValues(t, 5, k.total("http.client.response.body.size"))
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// TestSpansThatFail: errors, panics and refusals end their spans.
func TestSpansThatFail(t *testing.T) {
	for _, row := range []struct {
		name          string
		base          base
		attempt, call string // error types
	}{
		{"an unknown error", func(*http.Request) (*http.Response, error) { return nil, errors.New("no idea") }, "_OTHER", "_OTHER"},
		{"a panic", func(*http.Request) (*http.Response, error) { panic("base") }, "panic", "panic"},
		{"a final status", always(404, ""), "404", "404"},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := newKit(t)
			tr := k.transport(transport.Config{Base: row.base})
			func() {
				defer func() { _ = recover() }()
				_, _ = get(t.Context(), tr, "http://h.test/")
			}()
			spans := k.spans.Ended()
			require.Len(t, spans, 2, "spans")
			assert.Equal(t, row.attempt, attrs(spans[0])["error.type"])
			assert.Equal(t, row.call, attrs(spans[1])["error.type"])
			assert.Equal(t, codes.Error, spans[1].Status().Code)
			assert.Len(t, k.spans.Started(), 2)
		})
	}
}

// TestUnknownMethods: what a caller invents does not make new names.
func TestUnknownMethods(t *testing.T) {
	k := newKit(t)
	tr := k.transport(transport.Config{Base: always(200, "")})
	req := testkit.Must(http.NewRequestWithContext(t.Context(), "INVENTED", "http://h.test:8080/", nil))(t)
	resp := testkit.Must(tr.RoundTrip(req))(t)
	require.NoError(t, resp.Body.Close())
	span := k.spans.Ended()[0]
	assert.Equal(t, "HTTP", span.Name())
	assert.Equal(t, "_OTHER", attrs(span)["http.request.method"])
	assert.Equal(t, "INVENTED", attrs(span)["http.request.method_original"])
	assert.EqualValues(t, 8080, attrs(span)["server.port"])
}

// A server counts what reaches it. Each request has a path of its own.
type server struct {
	mu                                sync.Mutex
	attempts, firsts, retries, hedges int
	reconnects, resumes, wrong        int
	open                              map[string]int
	seen                              map[string]int
}

const whole = "0123456789"

// RoundTrip serves a path n by its faults: one of seven is hung so that it is hedged, one
// of five fails twice, one of three is cut, and one of eleven has a reconnect that fails.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	n, _ := strconv.Atoi(strings.Trim(path, "/"))
	partial := req.Header.Get("Range") != ""
	s.mu.Lock()
	s.attempts++
	hedge := s.open[path] > 0
	number := s.seen[path]
	s.seen[path]++
	s.open[path]++
	switch {
	case partial:
		s.reconnects++
	case hedge:
		s.hedges++
	case number > 0:
		s.retries++
	default:
		s.firsts++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open[path]--
		s.mu.Unlock()
	}()
	if !sampled(req) {
		s.count(&s.wrong)
	}
	switch {
	case partial && n%11 == 0 && s.first("reconnect"+path):
		return response(req, 503, strings.NewReader("")), nil
	case partial:
		s.count(&s.resumes)
		return sized(req, 206, 5, strings.NewReader(whole[5:]), "Content-Range: bytes 5-9/10"), nil
	case n%7 == 0 && number == 0:
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(10 * time.Second): // the hedge failed
		}
		return response(req, 503, strings.NewReader("")), nil
	case n%5 == 0 && number < 2:
		if n%2 == 0 {
			return nil, syscall.ECONNRESET
		}
		return response(req, 503, strings.NewReader("")), nil
	case n%3 == 0:
		return sized(req, 200, 10, io.MultiReader(strings.NewReader(whole[:5]), broken{})), nil
	}
	return sized(req, 200, 10, strings.NewReader(whole)), nil
}

func (s *server) count(what *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*what++
}

func (s *server) first(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[key]++
	return s.seen[key] == 1
}

// sampled reports whether the request carries the trace context of a span.
func sampled(req *http.Request) bool {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(req.Header))
	own := trace.SpanContextFromContext(req.Context())
	return own.IsValid() && trace.SpanContextFromContext(ctx).SpanID() == own.SpanID()
}

// TestCountsAgree: given a thousand requests with faults, hedges and resumes, the spans
// and the metrics agree with what the server counted.
func TestCountsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := newKit(t), &server{open: map[string]int{}, seen: map[string]int{}}
		rule := policy.Rule{
			Hedge:       policy.Hedge{Delay: 500 * time.Millisecond},
			RetryBudget: policy.RetryBudget{Enabled: policy.Off},
		}.Or(quick)
		tr := k.transport(transport.Config{Base: s, Rule: rule})
		const requests = 1000
		testkit.Together(20, func(worker int) {
			for n := worker; n < requests; n += 20 {
				text, err := get(t.Context(), tr, fmt.Sprintf("http://h.test/%d", n))
				assert.NoError(t, err)
				assert.Equal(t, whole, string(text))
			}
		})
		synctest.Wait()

		for _, row := range []struct {
			what   string
			server int
			metric float64
			spans  int
		}{
			{"attempts", s.attempts, k.sum("aplomb.attempts"), len(k.named("GET"))},
			{"first attempts", s.firsts, k.sum("aplomb.attempts", kindIs("first")), k.kinds("first")},
			{"retries", s.retries, k.sum("aplomb.attempts", kindIs("retry")), k.kinds("retry")},
			{"hedges", s.hedges, k.sum("aplomb.attempts", kindIs("hedge")), k.kinds("hedge")},
			{"reconnects", s.reconnects, k.sum("aplomb.attempts", kindIs("resume")), k.kinds("resume")},
			{"resumes", s.resumes, k.sum("aplomb.attempts", kindIs("resume")) - k.sum("aplomb.attempts", kindIs("resume"), attribute.String("error.type", "503")), k.resumes()},
			{"requests", requests, k.sum("aplomb.request.duration"), len(k.named("aplomb GET"))},
			{"durations", s.attempts, k.sum("http.client.request.duration"), len(k.named("GET"))},
		} {
			assert.EqualValues(t, row.server, row.metric, "the metric of %s", row.what)
			assert.Equal(t, row.server, row.spans, "the spans of %s", row.what)
			assert.Greater(t, row.server, 50, "%s happen", row.what)
		}
		assert.Positive(t, k.sum("aplomb.attempts", attribute.String("error.type", "reset"))*k.sum("aplomb.attempts", attribute.String("error.type", "503")))
		assert.Zero(t, s.wrong, "each attempt carries the trace context of its own span")
		assert.EqualValues(t, requests*len(whole), k.total("http.client.response.body.size"))
		assert.Len(t, k.spans.Started(), len(k.spans.Ended()), "each span ends")
		parents := map[trace.SpanID]bool{}
		for _, span := range k.named("aplomb GET") {
			parents[span.SpanContext().SpanID()] = true
		}
		for _, span := range k.named("GET") {
			assert.True(t, parents[span.Parent().SpanID()], "each attempt belongs to a request")
		}
	})
}

func kindIs(v string) attribute.KeyValue { return attribute.String("aplomb.attempt.kind", v) }

func (k *kit) kinds(kind string) (n int) {
	for _, s := range k.named("GET") {
		if attrs(s)["aplomb.attempt.kind"] == kind {
			n++
		}
	}
	return n
}

func (k *kit) resumes() (n int) {
	for _, s := range k.named("aplomb GET") {
		if v, ok := attrs(s)["aplomb.resumes"].(int64); ok {
			n += int(v)
		}
	}
	return n
}

// TestWithheld: a retry that waits in vain is counted, and so is the time in the line.
func TestWithheld(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		rule := policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 1e-9, MinPerSecond: 1e-9}}.Or(quick)
		tr := k.transport(transport.Config{Rule: rule, Base: always(503, "")})
		for range 3 {
			testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
		}
		assert.EqualValues(t, 3, k.sum("aplomb.request.duration", attribute.String("aplomb.reason", "retry_budget"), attribute.String("error.type", "503")))
		assert.EqualValues(t, 1, k.sum("aplomb.attempts", kindIs("retry")))
		assert.EqualValues(t, 4, k.sum("aplomb.wait.duration", attribute.String("aplomb.reason", "retry")))
		assert.EqualValues(t, 3, k.sum("aplomb.wait.duration", attribute.String("aplomb.reason", "retry_budget")))
		assert.InDelta(t, 15, k.total("aplomb.wait.duration"), 0.001)
		assert.InDelta(t, 15, k.total("aplomb.request.duration"), 0.001)
	})
}

// TestWaitsAreToldApart: the metric tells the waits of the server from those of the back-off, and from the line.
func TestWaitsAreToldApart(t *testing.T) {
	for name, row := range map[string]struct {
		retryAfter string
		want       map[string]float64 // seconds, by the reason; the jitter of the server's wait is a second at most
	}{
		"back-off":                         {"", map[string]float64{"retry": 4}},
		"the server":                       {"30", map[string]float64{"throttled": 30}},
		"the server asks for a little":     {"1", map[string]float64{"throttled": 1}},
		"the server asks for more already": {"5", map[string]float64{"throttled": 5}},
	} {
		inBubble(t, func(t *testing.T, k *kit) {
			n := 0
			rule := policy.Rule{Backoff: backoff.Constant(4 * time.Second)}.Or(quick)
			tr := k.transport(transport.Config{Rule: rule, Base: base(func(req *http.Request) (*http.Response, error) {
				if n++; n > 1 {
					return response(req, 200, strings.NewReader("")), nil
				}
				resp := response(req, 503, strings.NewReader(""))
				if row.retryAfter != "" {
					resp.Header.Set("Retry-After", row.retryAfter)
				}
				return resp, nil
			})})
			testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
			for why, seconds := range row.want {
				assert.EqualValues(t, 1, k.sum("aplomb.wait.duration", attribute.String("aplomb.reason", why)), name)
				assert.InDelta(t, seconds+0.5, k.total("aplomb.wait.duration"), 0.6, name)
			}
		})
	}
}

// TestGauges: the state of each host is a gauge, until the Transport is watched no more.
func TestGauges(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		tr, stop := k.watched(transport.Config{
			Rule: policy.Rule{ShareRetryAfter: policy.On, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 2}}.Or(quick),
			Base: base(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Minute)
				return response(req, 429, strings.NewReader(""), "Retry-After: 3600"), nil
			}),
		})
		for range 5 {
			go func() { _, _ = get(t.Context(), tr, "http://h.test:8080/") }()
		}
		synctest.Wait()
		host := []attribute.KeyValue{attribute.String("server.address", "h.test"), attribute.Int("server.port", 8080)}
		assert.EqualValues(t, 5, k.sum("http.client.active_requests", host...))
		assert.EqualValues(t, 2, k.sum("aplomb.host.concurrency.usage", host...))
		assert.EqualValues(t, 3, k.sum("aplomb.host.concurrency.waiting", host...))
		assert.EqualValues(t, 2, k.sum("aplomb.host.concurrency.limit", host...))
		assert.Positive(t, k.sum("aplomb.host.retry_budget", host...))
		time.Sleep(61 * time.Second)
		assert.EqualValues(t, 1, k.sum("aplomb.host.throttled_keys", host...))
		held := append(host, attribute.String("aplomb.reason", "throttled"))
		assert.EqualValues(t, 1, k.sum("aplomb.host.changes", append(held, attribute.Bool("aplomb.over", false))...))
		assert.Zero(t, k.sum("aplomb.host.changes", append(held, attribute.Bool("aplomb.over", true))...))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		assert.Zero(t, k.sum("aplomb.host.retry_budget"))
	})
}

// TestGaugesOfAnOutage: a host that is down has gauges, and so have the requests that wait for its end. An open circuit needs a
// circuit breaker.
func TestGaugesOfAnOutage(t *testing.T) {
	for enabled, open := range map[policy.Switch]int{policy.Off: 0, policy.On: 1} {
		inBubble(t, func(t *testing.T, k *kit) {
			start := time.Now()
			tr, _ := k.watched(transport.Config{
				Rule: policy.Rule{Backoff: backoff.Constant(2 * time.Second), CircuitBreaker: policy.CircuitBreaker{Enabled: enabled}},
				Base: base(func(req *http.Request) (*http.Response, error) {
					status := 503
					if time.Since(start) > 10*time.Second {
						status = 200
					}
					return response(req, status, strings.NewReader("")), nil
				}),
			})
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { _, _ = get(t.Context(), tr, "http://h.test/") })
				time.Sleep(150 * time.Millisecond)
			}
			host := attribute.String("server.address", "h.test")
			assert.EqualValues(t, 1, k.sum("aplomb.host.down", host))
			assert.EqualValues(t, open, k.sum("aplomb.host.circuit_open", host))
			assert.Positive(t, k.sum("aplomb.host.retries_waiting", host))
			all.Wait()
			assert.Zero(t, k.sum("aplomb.host.down", host))
			assert.Zero(t, k.sum("aplomb.host.circuit_open", host))
			assert.Zero(t, k.sum("aplomb.host.retries_waiting", host))
			assert.Positive(t, k.sum("aplomb.wait.duration", host, attribute.String("aplomb.reason", "circuit_open")))
		})
	}
}

// TestFleet: the figures of the fleet are metrics.
func TestFleet(t *testing.T) {
	names := []string{"connected", "members", "heartbeat.age", "commands", "dropped"}
	figures := func(f transport.Fleet) (all []float64) {
		k := newKit(t)
		k.transport(transport.Config{Fleet: f})
		for _, name := range names {
			all = append(all, k.sum("aplomb.fleet."+name))
		}
		return all
	}
	saying := func(s fleetlink.State) transport.Fleet {
		f := fleettest.Link(fleettest.NewMemory().Member())
		f.State = func() fleetlink.State { return s }
		return f
	}
	synctest.Test(t, func(t *testing.T) { // where no time passes
		assert.Equal(t, []float64{1, 7, 2.5, 100, 3},
			figures(saying(fleetlink.State{Connected: true, Members: 7, LastHeartbeat: time.Now().Add(-2500 * time.Millisecond), Commands: 100, Dropped: 3})))
		assert.Equal(t, []float64{0, 0, 0, 0, 0}, figures(saying(fleetlink.State{})))
		assert.Equal(t, []float64{1, 1, 0, 0, 0}, figures(fleettest.NewMemory().Member()))
		assert.Equal(t, []float64{0, 0, 0, 0, 0}, figures(nil))
	})
}

// TestWithOtelhttp: spans of otelhttp above and below are parents and children, and the
// server sees the trace context of the lowest span.
func TestWithOtelhttp(t *testing.T) {
	var mu sync.Mutex
	var wire []trace.SpanContext
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(req.Header))
		mu.Lock()
		defer mu.Unlock()
		if wire = append(wire, trace.SpanContextFromContext(ctx)); len(wire) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	for _, row := range []struct {
		name         string
		above, below bool
		none         bool // of what otelhttp has: the span of the request, and the time of its requests
		names        []string
	}{
		{"alone", false, false, false, []string{"aplomb GET", "GET"}},
		{"above", true, false, false, []string{"above", "aplomb GET", "GET"}},
		{"below", false, true, false, []string{"aplomb GET", "GET", "below"}},
		{"above and below", true, true, false, []string{"above", "aplomb GET", "GET", "below"}},
		{"without what otelhttp has", true, false, true, []string{"above", "GET"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wire = nil
			k := newKit(t)
			layer := func(rt http.RoundTripper, name string) http.RoundTripper {
				return otelhttp.NewTransport(rt, otelhttp.WithTracerProvider(k.tracers), otelhttp.WithMeterProvider(k.meters),
					otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return name }))
			}
			plain := &http.Transport{}
			defer plain.CloseIdleConnections()
			var below http.RoundTripper = plain
			if row.below {
				below = layer(plain, "below")
			}
			conf := k.config()
			conf.NoRequestSpan, conf.NoAttemptMetrics = row.none, row.none
			tr := transport.MustNew(transport.Config{Base: below, Traces: []*transport.Trace{mustObserve(t, conf).Trace()}, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)}})
			var top http.RoundTripper = tr
			if row.above {
				top = layer(tr, "above")
			}
			testkit.Must(get(t.Context(), top, srv.URL))(t)

			byID := map[trace.SpanID]sdktrace.ReadOnlySpan{}
			for _, s := range k.spans.Ended() {
				byID[s.SpanContext().SpanID()] = s
			}
			require.Len(t, wire, 2)
			assert.NotEqual(t, wire[0].SpanID(), wire[1].SpanID())
			for _, sent := range wire {
				var path []string
				for s := byID[sent.SpanID()]; s != nil; s = byID[s.Parent().SpanID()] {
					path = append([]string{s.Name()}, path...)
					assert.Equal(t, sent.TraceID(), s.SpanContext().TraceID())
				}
				assert.Equal(t, row.names, path, "from the top to the span on the wire")
			}
			assert.Len(t, k.spans.Started(), len(k.spans.Ended()))
			durations := map[bool]int{true: 1}[row.above] + map[bool]int{true: 2}[row.below] + map[bool]int{true: 2}[!row.none]
			assert.EqualValues(t, durations, k.sum("http.client.request.duration"))
			assert.EqualValues(t, 2, k.sum("aplomb.attempts"))
		})
	}
}

// A keeper is a span that keeps the attributes that it gets, as an SDK may.
type keeper struct {
	tracenoop.Span
	got *[][2][]attribute.KeyValue // each slice, and a copy of it
}

func (keeper) IsRecording() bool { return true }

func (k keeper) SetAttributes(kv ...attribute.KeyValue) {
	*k.got = append(*k.got, [2][]attribute.KeyValue{kv, slices.Clone(kv)})
}

type keeperTracer struct {
	tracenoop.Tracer
	keeper
}

func (k keeperTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return trace.ContextWithSpan(ctx, k.keeper), k.keeper
}

type keeperProvider struct {
	tracenoop.TracerProvider
	keeper
}

func (k keeperProvider) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return keeperTracer{keeper: k.keeper}
}

// TestAttributesAreLeftAlone: attributes that a span has got do not change afterwards,
// although the spans of a request share memory.
func TestAttributesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][2][]attribute.KeyValue
		telemetry := mustObserve(t, aplombotel.Config{TracerProvider: keeperProvider{keeper: keeper{got: &got}}})
		n := 0
		tr := transport.MustNew(transport.Config{Rule: quick, Traces: []*transport.Trace{telemetry.Trace()}, Base: base(func(req *http.Request) (*http.Response, error) {
			if n++; n < 3 {
				return nil, syscall.ECONNRESET
			}
			return response(req, 200, strings.NewReader("text")), nil
		})})
		testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
		require.Len(t, got, 2+4, "two attempts are counted as resent, and four spans end")
		for _, kv := range got {
			_ = append(kv[0], attribute.String("a", "span")) // may add its own
		}
		for _, kv := range got {
			assert.Equal(t, kv[1], kv[0])
		}
	})
}

// TestSecrets: no span and no metric holds a secret, wherever the caller has put it.
func TestSecrets(t *testing.T) {
	const secret = "s3cret"
	for _, u := range []*url.URL{
		{Scheme: "http", Host: "h.test", User: url.UserPassword("u", secret)},
		{Scheme: "http", Host: "h.test", RawQuery: secret},
		{Scheme: "http", Host: "h.test", RawQuery: "key=" + secret},
		{Scheme: "http", Host: "h.test", Fragment: secret},
		{Scheme: "http", Host: "h.test", Path: "/a;session=" + secret},
		{Scheme: "http", Host: secret + "@h.test"},
		{Scheme: "http", Host: "u:" + secret + "@h.test:8080"},
		{Scheme: "http", Host: "h.test/?" + secret},
		{Scheme: "http", Host: "h.test#" + secret},
		{Scheme: "http", Host: "h.test", Opaque: "//u:" + secret + "@h.test/"},
	} {
		k := newKit(t)
		attempt := 0
		tr := k.transport(transport.Config{Base: base(func(req *http.Request) (*http.Response, error) {
			if attempt++; attempt == 1 {
				return nil, fmt.Errorf("dial %s for %s: %w", u.Host, u, syscall.ECONNREFUSED)
			}
			body := io.MultiReader(strings.NewReader("x"), failing{&url.Error{Op: "Get", URL: u.String(), Err: io.ErrUnexpectedEOF}})
			return response(req, 200, body), nil
		}), Rule: policy.Rule{Backoff: backoff.Constant(0), Resume: policy.Off}})
		resp, err := tr.RoundTrip((&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{"Authorization": {secret}}}).WithContext(t.Context()))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, k.spans.Ended(), 3)
		for _, s := range k.spans.Ended() {
			assert.NotContains(t, fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()), secret, "%#v", u)
			assert.Equal(t, "h.test", attrs(s)["server.address"])
		}
		var all metricdata.ResourceMetrics
		require.NoError(t, k.reader.Collect(context.Background(), &all))
		text := testkit.Must(json.Marshal(all))(t)
		assert.NotContains(t, string(text), secret, "%#v", u)
		assert.Contains(t, string(text), "h.test", "the metrics name the host")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestBodiesThatAreNeverClosed: the state of such a request is freed with its body.
func TestBodiesThatAreNeverClosed(t *testing.T) {
	k := newKit(t)
	k.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewSimpleSpanProcessor(tracetest.NewNoopExporter())))
	tr := k.transport(transport.Config{Base: always(200, "never read")})
	freed := make(chan struct{})
	func() {
		type mark struct{ _ [64]byte }
		value := new(mark)
		runtime.AddCleanup(value, func(struct{}) { close(freed) }, struct{}{})
		req, err := http.NewRequestWithContext(context.WithValue(t.Context(), mark{}, value), http.MethodGet, "http://h.test/", nil)
		require.NoError(t, err)
		_, err = tr.RoundTrip(req) //nolint:bodyclose // this is the subject
		require.NoError(t, err)
	}()
	for {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-t.Context().Done():
			t.Fatal("the request is still in memory")
		default:
			runtime.Gosched()
		}
	}
}

// TestManyServers: the sets of attributes are bounded, and no count is lost. A host that a rule names has its own sets beside any
// number of others.
func TestManyServers(t *testing.T) {
	k := newKit(t)
	tr := k.transport(transport.Config{
		Rule:  policy.Rule{ShareRetryAfter: policy.On}.Or(quick),
		Hosts: map[string]policy.Rule{"named.test": {}},
		Base:  always(503, "abc", "Retry-After: 3600"),
	})
	const servers, kept = 2010, 1799
	for i := range servers {
		testkit.Must(get(t.Context(), tr, fmt.Sprintf("http://h%d.test/", i)))(t)
	}
	testkit.Must(get(t.Context(), tr, "http://named.test/"))(t)
	named, overflow := attribute.String("server.address", "named.test"), attribute.Bool("otel.metric.overflow", true)
	for _, name := range []string{"http.client.request.duration", "aplomb.request.duration", "http.client.response.body.size", "aplomb.attempts", "aplomb.host.changes"} {
		for range 2 { // a collection changes no count
			assert.EqualValues(t, 1, k.sum(name, named), name)
			assert.EqualValues(t, servers+1, k.sum(name), name)
			assert.EqualValues(t, servers-kept, k.sum(name, overflow), name)
			assert.EqualValues(t, 1, k.sum(name, attribute.String("server.address", "h0.test")), name)
		}
	}
	assert.EqualValues(t, 1, k.sum("aplomb.host.throttled_keys", named))
}

// TestTwoTelemetries: the counts of two Telemetries with the same meters add up.
func TestTwoTelemetries(t *testing.T) {
	k := newKit(t)
	for range 2 {
		tr := k.transport(transport.Config{Base: always(200, "")})
		testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
	}
	assert.EqualValues(t, 2, k.sum("aplomb.request.duration"))
}

// TestForeignContext: if another Trace replaces our context, the spans do not belong
// together any more, but everything is counted.
func TestForeignContext(t *testing.T) {
	k := newKit(t)
	foreign := &transport.Trace{RequestStart: func(context.Context, *http.Request) context.Context { return context.Background() }}
	tr := transport.MustNew(transport.Config{
		Traces: []*transport.Trace{mustObserve(t, k.config()).Trace(), foreign},
		Base:   always(200, "text"),
	})
	testkit.Must(get(t.Context(), tr, "http://h.test/"))(t)
	for _, name := range []string{"aplomb.attempts", "aplomb.request.duration", "http.client.request.duration"} {
		assert.EqualValues(t, 1, k.sum(name), name)
	}
	assert.EqualValues(t, 4, k.total("http.client.response.body.size"))
}

// TestNew: everything that is wrong is told, and the zero Config is complete.
func TestNew(t *testing.T) {
	_, err := mustObserve(t, aplombotel.Config{}).Observe(nil)
	assert.ErrorContains(t, err, "nil Transport")

	_, err = aplombotel.New(aplombotel.Config{TracerProvider: (*sdktrace.TracerProvider)(nil), MeterProvider: (*sdkmetric.MeterProvider)(nil)})
	assert.ErrorContains(t, err, "TracerProvider is a nil pointer")
	assert.ErrorContains(t, err, "MeterProvider is a nil pointer")

	_, err = aplombotel.New(aplombotel.Config{MeterProvider: refusing{}})
	assert.ErrorContains(t, err, "refused")
}

// refusing is a meter that refuses an instrument.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errors.New("refused")
}

// A firstTry is a setting in which the cost of a first attempt is measured. The base
// responds at once, so that there is no other cost.
type firstTry struct {
	name    string
	options []sdktrace.TracerProviderOption
	body    string
}

var firstTries = []firstTry{
	{"sampled", nil, ""},
	{"sampled with a body", nil, strings.Repeat("x", 1<<10)},
	{"exported", []sdktrace.TracerProviderOption{sdktrace.WithBatcher(nowhere{})}, strings.Repeat("x", 1<<10)},
	{"unsampled", []sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.NeverSample())}, ""},
}

// nowhere is an exporter that keeps nothing.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// The layers above the base.
const (
	underOtelhttp       = iota
	underAplomb         // with telemetry
	withoutRequestSpan  // the same without the span of the request
	underOtelhttpInSpan // otelhttp in another span, made as plainly as possible
	layers
)

var layerNames = [layers]string{"otelhttp", "aplomb", "aplomb-without-request-span", "otelhttp-in-a-span"}

// calls returns functions that make a request through each layer.
func (f *firstTry) calls(t testing.TB) [layers]func() {
	header := http.Header{}
	stub := base(func(*http.Request) (*http.Response, error) { // otelhttp wraps the body, so each response is new
		resp := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: http.NoBody}
		if f.body != "" {
			resp.Body = io.NopCloser(strings.NewReader(f.body))
		}
		return resp, nil
	})
	tracers := sdktrace.NewTracerProvider(f.options...)
	t.Cleanup(func() { _ = tracers.Shutdown(context.Background()) })
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	observed := func(none bool) http.RoundTripper {
		telemetry := mustObserve(t, aplombotel.Config{TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{}, NoRequestSpan: none})
		return transport.MustNew(transport.Config{Base: stub, Traces: []*transport.Trace{telemetry.Trace()}})
	}
	buf := make([]byte, 4<<10)
	call := func(rt http.RoundTripper) func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/v1/things", nil)
		require.NoError(t, err)
		return func() {
			resp := testkit.Must(rt.RoundTrip(req))(t)
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			_ = resp.Body.Close()
		}
	}
	plain := otelhttp.NewTransport(stub, otelhttp.WithTracerProvider(tracers), otelhttp.WithMeterProvider(meters), otelhttp.WithPropagators(propagation.TraceContext{}))
	tracer := tracers.Tracer("bench")
	return [layers]func(){
		underOtelhttp:      call(plain),
		underAplomb:        call(observed(false)),
		withoutRequestSpan: call(observed(true)),
		underOtelhttpInSpan: call(base(func(req *http.Request) (*http.Response, error) {
			ctx, span := tracer.Start(req.Context(), "request")
			defer span.End()
			span.SetAttributes(attribute.String("http.request.method", req.Method))
			return plain.RoundTrip(req.WithContext(ctx))
		})),
	}
}

// TestFirstTryAllocates: a first attempt with both spans needs fewer allocations than
// otelhttp with its single span. Four allocations are for the address of the server, which
// the Transport tells every Trace: the connection of the attempt, its two hooks, and the
// context that carries them.
func TestFirstTryAllocates(t *testing.T) {
	for _, f := range firstTries {
		if f.name == "exported" {
			continue // the exporter allocates meanwhile
		}
		var got [layers]float64
		for i, call := range f.calls(t) {
			got[i] = testing.AllocsPerRun(200, call)
		}
		assert.LessOrEqual(t, got[underAplomb], got[underOtelhttp]-1, f.name)
		assert.LessOrEqual(t, got[withoutRequestSpan], got[underOtelhttp]-5, "%s, without the span of the request", f.name)
	}
}

// BenchmarkFirstTry measures a first attempt with telemetry.
func BenchmarkFirstTry(b *testing.B) {
	for _, f := range firstTries {
		for i, call := range f.calls(b) {
			b.Run(f.name+"/"+layerNames[i], func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					call()
				}
			})
		}
	}
}

// BenchmarkAgainstOtelhttp compares the cost of a first attempt with that of otelhttp. In
// each iteration all layers make requests in turn, so that a busy machine slows all of
// them. The medians of the ratios are reported.
func BenchmarkAgainstOtelhttp(b *testing.B) {
	const requests = 2000 // several garbage collections
	for _, f := range firstTries {
		b.Run(f.name, func(b *testing.B) {
			var took [layers]float64
			var ratios [layers][]float64
			all := f.calls(b)
			for b.Loop() {
				for i, call := range all {
					start := time.Now()
					for range requests {
						call()
					}
					took[i] = float64(time.Since(start))
					ratios[i] = append(ratios[i], took[i]/took[underOtelhttp])
				}
			}
			b.ReportMetric(0, "ns/op")
			for i, name := range layerNames {
				if i != underOtelhttp {
					slices.Sort(ratios[i])
					b.ReportMetric(ratios[i][len(ratios[i])/2], name)
				}
			}
		})
	}
}
