// The faults and the promised results.

package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	done   = "done"    // the body of every success
	sorry  = "not now" // and of every failure
	upload = 512 << 10 // bytes of the PUT
)

// A fault is a request, the server's behaviour, and the promised results.
type fault struct {
	name   string
	method string
	body   func() io.Reader           // nil: none
	limit  time.Duration              // of the request's context; 0: none
	late   time.Duration              // the server listens only from then on
	steps  []step                     // what it does, request by request
	plain  promise                    // of the plain client
	aplomb promise                    // of ours
	also   func(result) (note, error) // what else is promised of ours, and what to say of it
}

// A promise is a response or an error, and the number of requests that arrive.
type promise struct {
	status   int                // 0: an error
	kind     classify.ErrorType // of the error
	arrivals int
}

type note = string

var faults = []fault{
	{
		name:   "503 twice, then 200",
		method: http.MethodGet,
		steps:  []step{fail(503, ""), fail(503, ""), ok()},
		plain:  promise{status: 503, arrivals: 1},
		aplomb: promise{status: 200, arrivals: 3},
		also:   attempts,
	},
	{
		name:   "429, Retry-After 1",
		method: http.MethodGet,
		steps:  []step{fail(429, "1"), ok()},
		plain:  promise{status: 429, arrivals: 1},
		aplomb: promise{status: 200, arrivals: 2},
		also:   notBefore(time.Second),
	},
	{
		name:   "connection reset",
		method: http.MethodGet,
		steps:  []step{{}, ok()},
		plain:  promise{kind: classify.ErrorReset, arrivals: 1},
		aplomb: promise{status: 200, arrivals: 2},
		also:   attempts,
	},
	{
		name:   "refused for 0.8 s",
		method: http.MethodGet,
		late:   800 * time.Millisecond,
		steps:  []step{ok()},
		plain:  promise{kind: classify.ErrorDial, arrivals: 0},
		aplomb: promise{status: 200, arrivals: 1},
		also:   attempts,
	},
	{
		name:   "PUT of 512 KiB, 502",
		method: http.MethodPut,
		body:   stream,
		steps:  []step{fail(502, ""), ok()},
		plain:  promise{status: 502, arrivals: 1},
		aplomb: promise{status: 200, arrivals: 2},
		also:   sameBodies,
	},
	{
		name:   "POST, 503",
		method: http.MethodPost,
		body:   func() io.Reader { return bytes.NewReader([]byte("pay 10")) },
		steps:  []step{fail(503, ""), ok()},
		plain:  promise{status: 503, arrivals: 1},
		aplomb: promise{status: 503, arrivals: 1},
		also:   because(transport.ReasonNotIdempotent),
	},
	{
		name:   "told 30 s, has 2 s",
		method: http.MethodGet,
		limit:  2 * time.Second,
		steps:  []step{fail(503, "30"), ok()},
		plain:  promise{status: 503, arrivals: 1},
		aplomb: promise{status: 503, arrivals: 1},
		also:   because(transport.ReasonDeadline),
	},
}

func ok() step { return step{status: http.StatusOK, body: done} }

func fail(status int, retryAfter string) step {
	return step{status: status, retryAfter: retryAfter, body: sorry}
}

// stream returns a body that can be read only once. net/http cannot make it
// anew, and it cannot seek. Its bytes are random and always the same.
func stream() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), upload) }

// attempts says which attempt succeeded.
func attempts(r result) (note, error) {
	return fmt.Sprintf("attempt %d", len(r.attempts)), nil
}

// notBefore checks at the server that no request came back earlier than told.
func notBefore(wait time.Duration) func(result) (note, error) {
	return func(r result) (note, error) {
		gap := r.arrivals[1].time.Sub(r.arrivals[0].time)
		if gap < wait {
			return "", fmt.Errorf("came back after %v, told to wait %v", gap, wait)
		}
		return "sent after " + seconds(gap), nil
	}
}

// sameBodies compares the hash of the bytes that arrived with the hash of the
// bytes that were sent.
func sameBodies(r result) (note, error) {
	sent, err := io.ReadAll(stream())
	if err != nil {
		return "", err
	}
	for i, a := range r.arrivals {
		if !a.whole || a.hash != sha256.Sum256(sent) {
			return "", fmt.Errorf("request %d arrived with %d bytes of another hash", i+1, a.length)
		}
	}
	return "same body twice", nil
}

// because checks the reason why there was no retry, and that the decision took
// no time.
func because(reason transport.Reason) func(result) (note, error) {
	return func(r result) (note, error) {
		switch {
		case len(r.attempts) == 0:
			return "", errors.New("the transport reported nothing")
		case r.attempts[0].Reason != reason:
			return "", fmt.Errorf("the reason is %q, promised %q", r.attempts[0].Reason, reason)
		case r.took > time.Second:
			return "", fmt.Errorf("took %v instead of returning at once", r.took)
		}
		return string(reason), nil
	}
}

// A result is the result of a request.
type result struct {
	status   int
	err      error
	body     string
	story    string // as transport.Explain tells it
	took     time.Duration
	attempts []transport.AttemptEnd // none from the plain client
	arrivals []arrival
}

// meet starts a server with the fault and sends the request to it.
func (f *fault) meet(ctx context.Context, client *http.Client, tell func(transport.AttemptEnd)) (r result) {
	server, err := newServer(f.late, f.steps)
	if err != nil {
		return result{err: err}
	}
	defer server.close()

	// Hooks run in the request's own goroutine, so r needs no lock.
	ctx = transport.WithTrace(ctx, &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
		r.attempts = append(r.attempts, e)
		tell(e)
	}})
	if f.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.limit)
		defer cancel()
	}
	start := time.Now()
	r.status, r.body, r.story, r.err = f.send(ctx, client, server.url)
	r.took = time.Since(start)
	r.arrivals = server.log()
	return r
}

func (f *fault) send(ctx context.Context, client *http.Client, url string) (status int, text, story string, err error) {
	var body io.Reader
	if f.body != nil {
		body = f.body()
	}
	req, err := http.NewRequestWithContext(ctx, f.method, url, body)
	if err != nil {
		return 0, "", "", err
	}
	resp, err := client.Do(req)
	story = transport.Explain(resp, err)
	if err != nil {
		return 0, "", story, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), story, err
}

// check compares a result with the promise.
func (p promise) check(r result) error {
	want := sorry
	if p.status == http.StatusOK {
		want = done
	}
	switch {
	case p.status == 0 && (r.err == nil || classify.ErrorTypeOf(r.err) != p.kind):
		return fmt.Errorf("got %s, promised an error of the kind %q", r, p.kind)
	case p.status != 0 && (r.err != nil || r.status != p.status):
		return fmt.Errorf("got %s, promised %d", r, p.status)
	case p.status != 0 && r.body != want:
		return fmt.Errorf("got the body %q, promised %q", r.body, want)
	case len(r.arrivals) != p.arrivals:
		return fmt.Errorf("%d requests arrived, promised %d", len(r.arrivals), p.arrivals)
	}
	return nil
}
