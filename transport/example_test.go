package transport_test

import (
	"context"
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
			steps[i] = faults.Reset()
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
		Rule: policy.Rule{Attempts: 5000},
		Hosts: map[string]policy.Rule{
			"*.example.com":   {Rate: policy.Rate{PerSecond: 1e12}},
			"https://x.test/": {},
		},
	})
	fmt.Println(err)
	var faults policy.Errors
	fmt.Println(errors.As(err, &faults), len(faults))
	// Output:
	// Rule.Attempts: 5000 is more than 1000 attempts
	// Hosts["*.example.com"].Rate.PerSecond: 1e+12 is more than 1e+09 requests per second
	// Hosts["https://x.test/"]: "https://x.test/" has a scheme; leave it out
	// true 3
}

// The faults of a configuration in the source code are found when the program starts.
func ExampleMustNew() {
	defer func() { fmt.Println(recover()) }()
	transport.MustNew(transport.Config{
		Rule:  policy.Rule{Attempts: 5000},
		Hosts: map[string]policy.Rule{"example.com/{id}": {}},
	})
	// Output:
	// transport: wrong Config: Rule.Attempts: 5000 is more than 1000 attempts
	// Hosts["example.com/{id}"]: "example.com/{id}" has braces in its path, which has no wildcards; a slash at its end means everything below it
}

// New rules while requests are under way, as after a change of a file.
func ExampleTransport_Update() {
	tr, err := transport.New(transport.Config{Base: server(503), Rule: policy.Rule{Backoff: atOnce, Attempts: 3}})
	if err != nil {
		log.Fatal(err)
	}
	rule, hosts, err := rulefile.Load(strings.NewReader(`{
		"rule":  {"backoff": {"type": "constant", "delay": "0s"}, "attempts": 2},
		"hosts": {"billing.example.com": {"attempts": "off"}}
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
func ExampleRepeatable() {
	tr, err := transport.New(transport.Config{Base: server(0, 200), Rule: policy.Rule{Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := transport.Repeatable(context.Background())
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
func ExampleOnce() {
	tr, err := transport.New(transport.Config{Base: server(0, 200), Rule: policy.Rule{Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := transport.Once(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/next-number", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = tr.RoundTrip(req)
	fmt.Println(err)
	// Output:
	// -> GET https://api.example.com/next-number
	// read tcp: read: connection reset by peer
}

// A response that would have been retried, had there been a limit less.
func ExampleHistoryOf() {
	tr, err := transport.New(transport.Config{Base: server(503), Rule: policy.Rule{Attempts: 2, Backoff: atOnce}})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	h := transport.HistoryOf(resp)
	fmt.Println(resp.StatusCode, h.Reason, len(h.Attempts))
	// Output:
	// -> GET https://api.example.com
	// -> GET https://api.example.com
	// 503 attempts 2
}

// What was tried before the error.
func ExampleError() {
	tr, err := transport.New(transport.Config{Base: server(503, 0), Rule: policy.Rule{Attempts: 2, Backoff: atOnce}})
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
