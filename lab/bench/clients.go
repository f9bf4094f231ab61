// The clients that are compared, and how a request goes through them.

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// A doer is the method that http.Client and similar clients share.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Terms are the same for every client that answers a question.
type terms struct {
	base  http.RoundTripper
	delay time.Duration // between tries, if the server asks for no wait

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
		if err := pause(req.Context(), n.delay); err != nil {
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

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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

// caller makes a function whose i-th call sends the i-th of the targets' requests
// through a new client, and starts again after the last. It is for one
// goroutine.
func (l *library) caller(s shape, t terms, method string, to targets) func(i int) error {
	ctx := context.Background()
	if s == build && l.native != nil {
		native := l.native(t)
		return func(i int) error { return native(ctx, method, to.texts[i%len(to.texts)], to.body) }
	}
	if s == build {
		client := l.newClient(t)
		return func(i int) error {
			req, err := http.NewRequestWithContext(ctx, method, to.texts[i%len(to.texts)], reader(to.body))
			if err != nil {
				return err
			}
			return finish(client.Do(req))
		}
	}
	send := http.RoundTripper.RoundTrip
	var via http.RoundTripper
	if s == roundTrip {
		via = l.wrap(t)
	} else {
		via = doing{l.newClient(t)}
	}
	req := to.request(ctx, method)
	return func(i int) error {
		req.URL = to.urls[i%len(to.urls)]
		req.Host = req.URL.Host
		if req.GetBody != nil {
			// Some libraries replace the caller's body.
			req.Body = io.NopCloser(bytes.NewReader(to.body))
		}
		return finish(send(via, req))
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

// Targets are the URLs and the body of a caller's requests.
type targets struct {
	urls  []*url.URL
	texts []string
	body  []byte // nil for none
}

func target(body []byte, texts ...string) targets {
	to := targets{texts: texts, body: body}
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			panic(err) // the URLs are made by this program
		}
		to.urls = append(to.urls, u)
	}
	return to
}

// request makes the request that a caller sends again and again.
func (to targets) request(ctx context.Context, method string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, to.texts[0], reader(to.body))
	if err != nil {
		panic(err) // the URLs and methods are this program's
	}
	return req
}

// reader returns a reader of a kind that net/http knows, nil for no body.
func reader(body []byte) io.Reader {
	if body == nil {
		return nil
	}
	return bytes.NewReader(body)
}
