package transport_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
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
	case slog.TimeKey, "host", "url", "addr", "duration", "lane":
		return slog.Attr{}
	case slog.MessageKey:
		return slog.String(a.Key, regexp.MustCompile(` to http://[0-9.:]+[0-9]| after [0-9]+ms(, )`).ReplaceAllString(a.Value.String(), "$1"))
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

	ctx := transport.WithTrace(context.Background(), &transport.Trace{Event: func(e transport.Event) {
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
	// level=DEBUG msg="GET, attempt 1: EOF, retry after 1ms" method=GET attempt=1 kind=first reason=retry error=EOF wait=1ms
	// 2: status 503, error <nil>, ambiguous: retry
	// level=DEBUG msg="GET, attempt 2: 503, retry after 1ms" method=GET attempt=2 kind=retry reason=retry status=503 wait=1ms
	// 3: status 200, error <nil>, final: final
	// level=DEBUG msg="GET, attempt 3: 200, the caller gets it" method=GET attempt=3 kind=retry reason=final status=200
}
