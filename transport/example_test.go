package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"syscall"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

// server is a base transport in memory that responds with these statuses, the
// last one for ever, and prints what it is asked. 0 is a reset.
func server(codes ...int) http.RoundTripper {
	steps := make([]faults.Step, len(codes))
	for i, code := range codes {
		if steps[i] = faults.Status(code); code == 0 {
			steps[i] = faults.ConnReset()
		}
	}
	next := faults.Script(steps...)
	return faults.New(nil, func(req *http.Request) faults.Step {
		fmt.Println("->", req.Method, req.URL)
		return next(req)
	})
}

// atOnce is a back-off for examples, which have no time.
var atOnce = backoff.Constant(0)

// A program that uses http.Get and its like needs a single statement.
func ExampleDefault() {
	http.DefaultClient.Transport = transport.Default()
	defer func() { http.DefaultClient.Transport = nil }()

	s, err := testserver.New(testserver.Config{}, testserver.OK("hello"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Println(string(text), err)
	// Output:
	// hello <nil>
}

// Every fault of a configuration is reported at once, with its position.
func ExampleNew() {
	_, err := transport.New(transport.Config{
		Rule: policy.Rule{MaxAttempts: 5000},
		Hosts: map[string]policy.Rule{
			"*.example.com":   {RateLimit: policy.RateLimit{PerSecond: 1e12}},
			"https://x.test/": {},
		},
	})
	fmt.Println(err)
	var first *policy.FieldError
	fmt.Println(errors.As(err, &first), first.Field)
	// Output:
	// Rule.MaxAttempts: 5000 is more than 1000 attempts
	// Hosts["*.example.com"].RateLimit.PerSecond: 1e+12 is more than 1e+09 requests per second
	// Hosts["https://x.test/"]: "https://x.test/" has a scheme; leave it out
	// true Rule.MaxAttempts
}

// The faults of a configuration in the source code are found when the program starts.
func ExampleMustNew() {
	defer func() { fmt.Println(recover()) }()
	transport.MustNew(transport.Config{
		Rule:  policy.Rule{MaxAttempts: 5000},
		Hosts: map[string]policy.Rule{"example.com/{id}": {}},
	})
	// Output:
	// transport: wrong Config: Rule.MaxAttempts: 5000 is more than 1000 attempts
	// Hosts["example.com/{id}"]: "example.com/{id}" has braces in its path, which has no wildcards; a slash at its end means everything below it
}

// New rules while requests are under way, as after a change of a file.
func ExampleTransport_Update() {
	tr, err := transport.New(transport.Config{Base: server(503), Rule: policy.Rule{Backoff: atOnce, MaxAttempts: 3}})
	if err != nil {
		log.Fatal(err)
	}
	rule, hosts, err := rulefile.Load(strings.NewReader(`{
		"rule":  {"backoff": {"type": "constant", "delay": "0s"}, "max_attempts": 2},
		"hosts": {"billing.example.com": {"max_attempts": 1}}
	}`), rulefile.Names{})
	if err != nil {
		log.Fatal(err)
	}
	if err := tr.Update(rule, hosts); err != nil {
		log.Fatal(err) // and the old rules still hold
	}
	client := &http.Client{Transport: tr}
	for _, url := range []string{"https://api.example.com", "https://billing.example.com"} {
		resp, err := client.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	// Output:
	// -> GET https://api.example.com
	// -> GET https://api.example.com
	// -> GET https://billing.example.com
}

// A POST whose repetition does no harm, as its author knows.
func ExampleWithIdempotent() {
	tr, err := transport.New(transport.Config{Base: server(0, 200), Rule: policy.Rule{Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := transport.WithIdempotent(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/search", strings.NewReader("words"))
	if err != nil {
		log.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// -> POST https://api.example.com/search
	// -> POST https://api.example.com/search
	// 200
}

// A GET that counts, on a server that does not keep to the rules.
func ExampleWithoutRetries() {
	tr, err := transport.New(transport.Config{Base: server(0, 200), Rule: policy.Rule{Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := transport.WithoutRetries(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/next-number", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = tr.RoundTrip(req)
	fmt.Println(err)
	// Output:
	// -> GET https://api.example.com/next-number
	// transport: not retried (retries off): read tcp: read: connection reset by peer
}

// A response that would have been retried, had there been a limit less.
func ExampleHistoryOf() {
	tr, err := transport.New(transport.Config{Base: server(503), Rule: policy.Rule{MaxAttempts: 2, Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	h := transport.HistoryOf(resp, nil)
	fmt.Println(resp.StatusCode, h.Reason, len(h.Attempts), transport.ReasonOf(resp, nil) == transport.ReasonMaxAttempts)
	// Output:
	// -> GET https://api.example.com
	// -> GET https://api.example.com
	// 503 max_attempts 2 true
}

// What was tried before the error.
func ExampleError() {
	tr, err := transport.New(transport.Config{Base: server(503, 0), Rule: policy.Rule{MaxAttempts: 2, Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = (&http.Client{Transport: tr}).Get("https://api.example.com?key=secret")
	var e *transport.Error
	if errors.As(err, &e) {
		fmt.Println(e)
		for _, a := range e.Attempts {
			fmt.Println(a.Number, a.Status, a.Err)
		}
	}
	fmt.Println(errors.Is(err, syscall.ECONNRESET))
	// Output:
	// -> GET https://api.example.com?key=secret
	// -> GET https://api.example.com?key=secret
	// transport: gave up after 2 attempts, last status 503: read tcp: read: connection reset by peer
	// 1 503 <nil>
	// 2 0 read tcp: read: connection reset by peer
	// true
}

// A program changes one thing of the default base, and keeps the rest.
func ExampleNewBase() {
	base := transport.NewBase()
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	client := &http.Client{Transport: transport.Wrap(base)}
	client.CloseIdleConnections()
	fmt.Println(base.MaxIdleConnsPerHost, "idle connections for a host")
	// Output: 4 idle connections for a host
}

// cutting is a base transport in memory that cuts the first response, and has
// another version of the file when it is asked for the rest.
func cutting() http.RoundTripper {
	n := 0
	return rt(func(req *http.Request) (*http.Response, error) {
		n++
		resp := &http.Response{
			StatusCode: http.StatusOK, Request: req, ContentLength: 100,
			Header: http.Header{"Etag": {fmt.Sprintf(`"v%d"`, n)}},
		}
		start := strings.NewReader("the first 20 bytes, ")
		resp.Body = io.NopCloser(io.MultiReader(start, cut{}))
		return resp, nil
	})
}

// cut is what is left of a connection.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A body that was cut is continued, if the server still has the same file. If
// not, the bytes that were read are good, the error is that of the cut, and the
// BodyEnd says how far the body went and why it was not continued.
func ExampleError_body() {
	var stopped *transport.Error
	tr, err := transport.New(transport.Config{
		Base:   cutting(),
		Rule:   policy.Rule{Backoff: atOnce},
		Traces: []*transport.Trace{&transport.Trace{BodyEnd: func(_ context.Context, e transport.BodyEnd) { errors.As(e.Err, &stopped) }}},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://files.example.com/large")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == io.ErrUnexpectedEOF {
		fmt.Printf("%q\n%d bytes, %v\n", text, stopped.Offset, stopped.Reason)
	}
	// Output:
	// "the first 20 bytes, "
	// 20 bytes, not_resumable
}

// Snapshot shows what is known of each host. This line publishes it at /debug/vars:
//
//	expvar.Publish("aplomb", expvar.Func(func() any { return tr.Snapshot() }))
func ExampleTransport_Snapshot() {
	tr, err := transport.New(transport.Config{
		Base: server(200),
		Rule: policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com/things")
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, host := range tr.Snapshot().Hosts {
		fmt.Println(host.Host, host.Requests, host.RetryBudget, host.ConcurrencyLimit, host.CircuitOpen)
	}
	// Output:
	// -> GET https://api.example.com/things
	// https://api.example.com 1 30 100 false
}
