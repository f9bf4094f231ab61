package transport_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
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
