// The clients that are compared, and how a request goes through them.

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
)

// A doer is the method that http.Client and similar clients share.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Terms are the same for every client that answers a question.
type terms struct {
	base  http.RoundTripper
	delay time.Duration // between tries, if the server asks for no wait
	usual bool          // delay does not count, and each client has its own default or that of its documentation

	// unbounded switches off a limit on retries over time. Questions about the
	// cost of a retry set it, because they need every request to be retried.
	unbounded bool
}

// A library makes clients. Each is set up as its documentation shows, with its
// own number of tries. Only the delay comes from the terms.
type library struct {
	name   string
	module string // "" for a client that is part of Go or of this program
	setup  string // one sentence for the reader of the tables

	// wrap makes a RoundTripper. A library that has none sets client.
	wrap   func(terms) http.RoundTripper
	client func(terms) doer

	// native sends a request as the library's users write it. Libraries that
	// have a request type of their own set it, so that the time of a
	// conversion from http.Request is not counted.
	native func(terms) nativeCall

	// carried finds a response in an error, if the library puts one there.
	carried func(error) *http.Response
}

// A nativeCall sends one request, reads the response and closes it.
type nativeCall func(ctx context.Context, method, url string, body []byte) error

// newClient makes a client with the http.Client's interface.
func (l *library) newClient(t terms) doer {
	if l.client != nil {
		return l.client(t)
	}
	return &http.Client{Transport: l.wrap(t)}
}

// carriedBy returns the response that err carries, nil for none.
func (l *library) carriedBy(err error) *http.Response {
	if l.carried == nil {
		return nil
	}
	return l.carried(err)
}

// bare is a client without any library.
var bare = library{
	name:  "net/http",
	setup: "no library",
	wrap:  func(t terms) http.RoundTripper { return t.base },
}

// naive is the shortest loop that retries. It is the floor for the cost of a
// retry: it does not look at methods, headers, errors or limits.
var naive = library{
	name:  "naive loop",
	setup: "three retries after an error or a 5xx, any method, responses read to their end, nothing else",
	wrap:  func(t terms) http.RoundTripper { return naiveLoop{t.base, t.delay} },
}

type naiveLoop struct {
	base  http.RoundTripper
	delay time.Duration
}

func (n naiveLoop) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 0; ; try++ {
		resp, err := n.base.RoundTrip(req)
		if err == nil && resp.StatusCode < 500 || try == 3 || req.Body != nil && req.GetBody == nil {
			return resp, err
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		_ = virtual.Pause(req.Context(), n.delay)
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		if req.GetBody != nil {
			again := *req
			if again.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
			req = &again
		}
	}
}

// compared returns the clients of the questions: the floors, ours in each
// setting, and the others.
func compared() []library { return slices.Concat([]library{bare, naive}, ours, peers) }

// described returns the clients of the table of facts.
func described() []library { return slices.Concat([]library{bare, ours[0]}, peers) }

// A shape is how a caller hands a request to a client. The cost of a library is
// the difference to the same shape without the library.
type shape int

const (
	roundTrip shape = iota // RoundTrip with a request that is ready
	do                     // Do with a request that is ready
	build                  // a request is made from its parts, then Do
	shapes                 // how many there are
)

func (s shape) String() string {
	return [...]string{"RoundTrip", "Do", "NewRequest and Do"}[s]
}

// shape returns the most direct way into the library.
func (l *library) shape() shape {
	switch {
	case l.native != nil:
		return build
	case l.wrap != nil:
		return roundTrip
	}
	return do
}

// caller makes a function that sends a request to the target through a new client. It is for
// one goroutine.
func (l *library) caller(s shape, t terms, method string, to target) func() error {
	ctx := context.Background()
	if s == build && l.native != nil {
		native := l.native(t)
		return func() error { return native(ctx, method, to.url, to.body) }
	}
	if s == build {
		client := l.newClient(t)
		return func() error {
			req, err := to.request(ctx, method)
			if err != nil {
				return err
			}
			return finish(client.Do(req))
		}
	}
	var via http.RoundTripper
	if s == roundTrip {
		via = l.wrap(t)
	} else {
		via = doing{l.newClient(t)}
	}
	req, err := to.request(ctx, method)
	if err != nil {
		panic(err) // the URLs and methods are this program's
	}
	return func() error {
		if req.GetBody != nil {
			// Some libraries replace the caller's body.
			req.Body = io.NopCloser(bytes.NewReader(to.body))
		}
		return finish(via.RoundTrip(req))
	}
}

// doing lets Do be called like RoundTrip.
type doing struct{ client doer }

func (d doing) RoundTrip(req *http.Request) (*http.Response, error) { return d.client.Do(req) }

// finish reads and closes a response.
func finish(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return err
}

// A target is the URL and the body of a caller's requests.
type target struct {
	url  string
	body []byte // nil for none
}

// request makes a request.
func (to target) request(ctx context.Context, method string) (*http.Request, error) {
	var body io.Reader // of a kind that net/http knows
	if to.body != nil {
		body = bytes.NewReader(to.body)
	}
	return http.NewRequestWithContext(ctx, method, to.url, body)
}
