package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// try sends a request with a rule, and prints the status and how many attempts there were.
func try(base http.RoundTripper, rule policy.Rule, req *http.Request) {
	rule.Backoff = atOnce
	tr, err := transport.New(transport.Config{Base: base, Rule: rule})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", len(transport.HistoryOf(resp, nil).Attempts), "attempts")
}

func getOf(url string) *http.Request {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	return req
}

// A retry after two 503s takes other connections, because a balancer may lead these to a healthy
// server. A NewPool that returns nil turns that off, for a server that takes only one connection of
// each client.
func Example_newPool() {
	pool := func(name string, code int) http.RoundTripper {
		base := faults.New(nil, faults.Script(faults.Status(code)))
		return rt(func(req *http.Request) (*http.Response, error) {
			fmt.Println("->", name)
			return base.RoundTrip(req)
		})
	}
	for _, other := range []http.RoundTripper{pool("other connections", 200), nil} {
		tr, err := transport.New(transport.Config{
			Base:    pool("the base", 503),
			NewPool: func(string) http.RoundTripper { return other },
			Rule:    policy.Rule{MaxAttempts: 3, Backoff: atOnce},
		})
		if err != nil {
			log.Fatal(err)
		}
		resp, err := tr.RoundTrip(getOf("https://api.example.com/things"))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// -> the base
	// -> the base
	// -> other connections
	// 200
	// -> the base
	// -> the base
	// -> the base
	// 503
}

// The response to a POST is lost. With the same key in each attempt the server can tell a
// retry from a second order.
func Example_idempotencyKey() {
	next := faults.Script(faults.ConnReset(), faults.Status(201))
	base := faults.New(nil, func(req *http.Request) faults.Step {
		fmt.Println("->", req.Method, req.Header.Get("Idempotency-Key"))
		return next(req)
	})
	orderOf := func(req *http.Request) string { return strings.TrimPrefix(req.URL.Path, "/orders/") }
	try(base, policy.Rule{IdempotencyKey: orderOf}, post("https://api.example.com/orders/17"))
	// Output:
	// -> POST 17
	// -> POST 17
	// 201 after 2 attempts
}

// The rate counts tokens, of which each request takes 600. 400 are left after the first, and 10
// come back per second. So the second would wait for 20 s, which its caller does not have.
func Example_cost() {
	tr, err := transport.New(transport.Config{
		Base: server(200),
		Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 10, Burst: 1000},
			Cost:      func(*http.Request) int { return 600 },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		resp, err := tr.RoundTrip(getOf("https://api.example.com/chat").WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		}
		fmt.Println("too late:", errors.Is(err, context.DeadlineExceeded))
		cancel()
	}
	// Output:
	// -> GET https://api.example.com/chat
	// too late: false
	// too late: true
}

// The last of 200 requests never gets a response. When it has taken longer than 95 % of the
// others, it is sent a second time.
func Example_percentile() {
	answer := faults.New(nil, faults.Script(faults.Status(200)))
	var requests atomic.Int64
	base := rt(func(req *http.Request) (*http.Response, error) {
		if requests.Add(1) == 200 {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return answer.RoundTrip(req)
	})
	tr, err := transport.New(transport.Config{Base: base, Rule: policy.Rule{Hedge: policy.Hedge{Percentile: 95}}})
	if err != nil {
		log.Fatal(err)
	}
	for range 200 {
		resp, err := tr.RoundTrip(getOf("https://api.example.com/things"))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	fmt.Println("200 responses")
	// Output: 200 responses
}

// The first connection is never made. The attempt that waits for it has sent nothing, so even a
// POST is sent again. Once there is a connection, the response has half a minute.
func Example_connectTimeout() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer server.Close()
	var dials atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	defer base.CloseIdleConnections()
	try(base, policy.Rule{ConnectTimeout: 50 * time.Millisecond, AttemptTimeout: 30 * time.Second}, post(server.URL))
	// Output: 201 after 2 attempts
}

// The first event stream is silent. The second has an event, and that comes with the response.
func Example_firstEventTimeout() {
	base := faults.New(nil, faults.Script(
		faults.Status(200).Header("Content-Type", "text/event-stream").Body(": hello\n\n").StallAt(4),
		faults.Status(200).Header("Content-Type", "text/event-stream").Body("data: hello\n\n"),
	))
	try(base, policy.Rule{FirstEventTimeout: 50 * time.Millisecond}, getOf("https://api.example.com/events"))
	// Output: 200 after 2 attempts
}

// The server asks for a pause that is longer than the caller wants to wait, so the caller gets the
// 429 at once.
func Example_maxRetryAfter() {
	for _, most := range []time.Duration{10 * time.Millisecond, 2 * time.Second} {
		base := faults.New(nil, faults.Script(faults.Status(429).Header("Retry-After", "1"), faults.Status(200)))
		try(base, policy.Rule{MaxRetryAfter: most}, getOf("https://api.example.com/things"))
	}
	// Output:
	// 429 after 1 attempts
	// 200 after 2 attempts
}

// A report of 3 MiB has no validator, so its rest cannot be asked for. After a cut it is fetched
// a second time, and its beginning is compared.
func Example_again() {
	report := bytes.Repeat([]byte("profit "), 3<<20/7)
	for _, again := range []int64{policy.Off, 8 << 20} {
		base := faults.New(nil, faults.Script(faults.Status(200).Body(string(report)).CutAt(2<<20), faults.Status(200).Body(string(report))))
		tr, err := transport.New(transport.Config{Base: base, Rule: policy.Rule{Backoff: atOnce, MaxRefetch: again}})
		if err != nil {
			log.Fatal(err)
		}
		resp, err := tr.RoundTrip(getOf("https://api.example.com/report"))
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(bytes.Equal(text, report), err)
	}
	// Output:
	// false unexpected EOF
	// true <nil>
}
