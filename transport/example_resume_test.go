package transport_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

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
// event says how far the body went and why it was not continued.
func ExampleResumeError() {
	var stopped *transport.ResumeError
	tr, err := transport.New(transport.Config{
		Base:  cutting(),
		Rule:  policy.Rule{Backoff: atOnce},
		Trace: &transport.Trace{Event: func(e transport.Event) { errors.As(e.Err, &stopped) }},
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
	// 20 bytes, mismatch
}

// ticker is a base transport in memory. It sends an event for each request, and then
// closes the connection in the middle of the next event.
func ticker() http.RoundTripper {
	return rt(func(req *http.Request) (*http.Response, error) {
		last, _ := strconv.Atoi(req.Header.Get("Last-Event-ID"))
		fmt.Printf("-> Last-Event-ID %q\n", req.Header.Get("Last-Event-ID"))
		if last == 3 {
			return &http.Response{StatusCode: http.StatusNoContent, Request: req, Body: http.NoBody}, nil
		}
		text := fmt.Sprintf("retry: 10\nid: %d\ndata: tick %d\n\nid: %d\ndata: to", last+1, last+1, last+2)
		return &http.Response{
			StatusCode: http.StatusOK, Request: req, ContentLength: -1,
			Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body:   io.NopCloser(io.MultiReader(strings.NewReader(text), cut{})),
		}, nil
	})
}

// An event stream goes on after a cut, and after a clean end, until the server responds
// with a 204.
func Example_events() {
	tr, err := transport.New(transport.Config{
		Base: ticker(),
		Rule: policy.Rule{Backoff: atOnce, Resume: policy.Resume{Events: policy.On}},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com/ticks")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			fmt.Println(data)
		}
	}
	fmt.Println(lines.Err())
	// Output:
	// -> Last-Event-ID ""
	// tick 1
	// -> Last-Event-ID "1"
	// tick 2
	// -> Last-Event-ID "2"
	// tick 3
	// -> Last-Event-ID "3"
	// <nil>
}

// Snapshot shows what is known of each host. This line publishes it at /debug/vars:
//
//	expvar.Publish("aplomb", expvar.Func(func() any { return tr.Snapshot() }))
func ExampleTransport_Snapshot() {
	tr, err := transport.New(transport.Config{
		Base: server(200),
		Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Get("https://api.example.com/things")
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	for _, host := range tr.Snapshot() {
		fmt.Println(host)
	}
	// Output:
	// -> GET https://api.example.com/things
	// https://api.example.com: 1 requests, 0 under way, 30.0 retries left, gate open at 10 with 0 slots in use and 0 waiting
}
