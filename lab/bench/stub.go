// Base transports that respond at once, so the time of a call is the library's
// time.

package main

import (
	"io"
	"net/http"
	"strings"
)

// fields are the header of each response. Nobody writes to them.
var fields = http.Header{
	"Content-Type": {"text/plain"},
	"Date":         {"Tue, 06 Jan 2026 10:00:00 GMT"},
	"Server":       {"bench"},
}

const apology = "please try again later"

// respond makes a response. Each call makes a new one, because some libraries
// change its Body.
func respond(req *http.Request, code int) *http.Response {
	resp := &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: fields, Body: http.NoBody, Request: req,
	}
	if code != http.StatusOK {
		resp.Body = io.NopCloser(strings.NewReader(apology))
		resp.ContentLength = int64(len(apology))
	}
	return resp
}

// consume reads and closes a request's body, as a transport does.
func consume(req *http.Request) error {
	if req.Body == nil {
		return nil
	}
	defer req.Body.Close()
	_, err := io.Copy(io.Discard, req.Body)
	return err
}

// A flaky base responds failures times with 503, then once with 200, and so on.
// It is for requests that come one after the other.
type flaky struct {
	failures int
	body     string // of a success
	sent     int
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := consume(req); err != nil {
		return nil, err
	}
	f.sent++
	if f.sent%(f.failures+1) != 0 {
		return respond(req, http.StatusServiceUnavailable), nil
	}
	resp := respond(req, http.StatusOK)
	if f.body != "" {
		resp.Body = io.NopCloser(struct{ io.Reader }{strings.NewReader(f.body)}) // nobody sees that it is in memory
		resp.ContentLength = int64(len(f.body))
	}
	return resp, nil
}
