// otelhttp above aplomb and below it.

package e2e

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aplomb-go/aplomb/policy"
)

func otelClient() client {
	return client{
		name:    "otelhttp",
		off:     hasNone,
		needs:   "any. Above aplomb it makes a span for each request, and below for each attempt",
		size:    1 << 20,
		resumes: true,
		serve:   func(testing.TB, string) http.Handler { return newStore(content(1 << 20)) },
		open: func(t testing.TB, s setup) session {
			rt, _ := traced(t, s.http.Transport)
			return storeSession(&http.Client{Transport: rt, Timeout: s.http.Timeout}, s.url)
		},
	}
}

// traced returns a transport that makes spans, and their keeper.
func traced(t testing.TB, next http.RoundTripper) (http.RoundTripper, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))
	return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{})), kept
}

// statuses returns the status of each span.
func statuses(kept *tracetest.InMemoryExporter) (codes []int64) {
	for _, s := range kept.GetSpans() {
		for _, a := range s.Attributes {
			if a.Key == "http.response.status_code" {
				codes = append(codes, a.Value.AsInt64())
			}
		}
	}
	return codes
}

// A request that is refused twice has a span above aplomb and three spans below,
// which are its children. The server is told of the spans of the attempts.
func TestOTelSpans(t *testing.T) {
	var mu sync.Mutex
	var parents []string // that the server was told of
	s := newServer(t, func(string) http.Handler { return newStore(content(1 << 20)) })
	w := newNetwork(t, s.url)
	busy := func() {
		mu.Lock()
		defer mu.Unlock()
		parents = nil
		s.answer(func(n int, w http.ResponseWriter, req *http.Request) bool {
			mu.Lock()
			parents = append(parents, req.Header.Get("Traceparent"))
			mu.Unlock()
			return busyUntil(3)(n, w, req)
		})
	}
	bare, kept := traced(t, base(t, w, false))
	busy()
	require.Equal(t, statusError(http.StatusServiceUnavailable), storeSession(&http.Client{Transport: bare}, s.url).download(bounded(t)))
	assert.Equal(t, []int64{503}, statuses(kept))

	below, inner := traced(t, base(t, w, false))
	hc, _ := under(t, below, policy.Rule{}, nil)
	above, outer := traced(t, hc.Transport)
	hc.Transport = above
	busy()
	require.NoError(t, storeSession(hc, s.url).download(bounded(t)))
	assert.Equal(t, []int64{200}, statuses(outer))
	assert.Equal(t, []int64{503, 503, 200}, statuses(inner))
	request := outer.GetSpans()[0].SpanContext
	for i, attempt := range inner.GetSpans() {
		assert.Equal(t, request.SpanID(), attempt.Parent.SpanID())
		assert.Equal(t, request.TraceID(), attempt.SpanContext.TraceID())
		assert.Contains(t, parents[i], attempt.SpanContext.SpanID().String())
	}
	slices.Sort(parents)
	assert.Len(t, slices.Compact(parents), 3)
}

// The span above aplomb ends when the body was read, with all that was continued.
// Each reconnect has a span below. An upgraded connection passes both.
func TestOTelBodies(t *testing.T) {
	s := newServer(t, func(string) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/echo", fakeSockets(0))
		mux.Handle("/", newStore(content(1<<20)))
		return mux
	})
	w := newNetwork(t, s.url)
	require.NoError(t, w.set(cutAfter(down, 400_000)...))
	below, inner := traced(t, base(t, w, false))
	hc, r := under(t, below, policy.Rule{}, nil)
	above, outer := traced(t, hc.Transport)
	hc.Transport = above
	require.NoError(t, storeSession(hc, s.url).download(bounded(t)))
	assert.Len(t, outer.GetSpans(), 1)
	assert.NotEmpty(t, r.told())
	assert.Len(t, inner.GetSpans(), 1+len(r.told()))

	require.NoError(t, w.set())
	outer.Reset()
	inner.Reset()
	c, err := dial(bounded(t), setup{http: hc, url: s.url}, "/echo")
	require.NoError(t, err)
	require.NoError(t, c.Write(bounded(t), 1, []byte("text")))
	_, got, err := c.Read(bounded(t))
	require.NoError(t, err)
	assert.Equal(t, "text", string(got))
	require.NoError(t, c.CloseNow())
	assert.Equal(t, []int64{101}, statuses(outer))
	assert.Equal(t, []int64{101}, statuses(inner))
}
