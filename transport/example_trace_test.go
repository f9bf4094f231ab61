package transport_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A tired server breaks the first connection, is busy once, and then responds.
type tired struct{ requests atomic.Int32 }

func (s *tired) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	switch s.requests.Add(1) {
	case 1:
		panic(http.ErrAbortHandler)
	case 2:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// withoutTimes keeps the log the same in each run.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "host", "url", "addr", "duration", "pool":
		return slog.Attr{}
	}
	return a
}

// A log is told about all requests, and a trace about a single request.
func ExampleWithTrace() {
	server := httptest.NewServer(&tired{})
	defer server.Close()

	tr, err := transport.New(transport.Config{
		Rule:   policy.Rule{Backoff: backoff.Constant(time.Millisecond)},
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTimes})),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer tr.CloseIdleConnections()

	ctx := transport.WithTrace(context.Background(), &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
		fmt.Printf("%d: status %d, error %v, %v: %v\n", e.Number, e.Status, e.Err, e.Class, e.Reason)
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	// Output:
	// 1: status 0, error EOF, ambiguous: retry
	// level=DEBUG msg=attempt method=GET number=1 kind=first error=EOF class=ambiguous reason=retry delay=1ms
	// 2: status 503, error <nil>, ambiguous: retry
	// level=DEBUG msg=attempt method=GET number=2 kind=retry status=503 class=ambiguous reason=retry delay=1ms
	// 3: status 200, error <nil>, final: final
	// level=DEBUG msg=attempt method=GET number=3 kind=retry status=200 class=final reason=final
}
