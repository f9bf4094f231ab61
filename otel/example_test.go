package aplombotel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A request that is retried has a span for each attempt.
func Example() {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	exporter := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	defer func() { _ = tracers.Shutdown(context.Background()) }()

	telemetry, err := aplombotel.New(aplombotel.Config{TracerProvider: tracers})
	if err != nil {
		log.Fatal(err)
	}
	tr := transport.MustNew(transport.Config{
		Traces: []*transport.Trace{telemetry.Trace()},
		Rule:   policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
	})
	defer tr.CloseIdleConnections()

	resp, err := (&http.Client{Transport: tr}).Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, span := range exporter.GetSpans() {
		fmt.Print(span.Name)
		for _, kv := range span.Attributes {
			switch kv.Key {
			case "aplomb.attempt.kind", "http.request.resend_count", "http.response.status_code", "aplomb.attempts":
				fmt.Printf(" %s=%s", kv.Key, kv.Value.String())
			}
		}
		fmt.Println()
	}
	// Output:
	// GET aplomb.attempt.kind=first http.response.status_code=503
	// GET http.request.resend_count=1 aplomb.attempt.kind=retry http.response.status_code=200
	// aplomb GET aplomb.attempts=2 http.response.status_code=200
}

// Without a provider the global ones count. otelhttp around the Transport makes the span of
// the request, so this Telemetry makes only those of the attempts.
func ExampleConfig() {
	telemetry, err := aplombotel.New(aplombotel.Config{NoRequestSpan: true})
	if err != nil {
		log.Fatal(err)
	}
	tr := transport.MustNew(transport.Config{Traces: []*transport.Trace{telemetry.Trace()}})
	stop, err := telemetry.Observe(tr) // the gauges of the hosts
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: otelhttp.NewTransport(tr)}
	fmt.Println(client.Timeout, stop())
	// Output: 0s <nil>
}
