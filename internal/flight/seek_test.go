package flight

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/policy"
)

// A tripper is a base transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

var errDial = errors.New("no connection")

// unconnected returns a base that asks for a connection and gets none.
func unconnected(then func()) tripper {
	return func(req *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
		then()
		_ = req.Body.Close()
		return nil, errDial
	}
}

// A closed tells of its Close.
type closed struct {
	io.Reader
	did bool
}

func (c *closed) Close() error { c.did = true; return nil }

// seeker returns a flight beside another that seeks the first connection of a lane, and its body.
func seeker(ctx context.Context, base http.RoundTripper, other tripper) (*Flight, *closed) {
	l := lane.New(base)
	l.Number = 1
	l.Enter(0)
	timeouts := TimeoutsOf(&policy.Rule{}, NewAlarms())
	body := &closed{Reader: strings.NewReader("text")}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPut, "http://h.test/", nil)
	return &Flight{
		Base: base, Req: req, Ctx: ctx, Number: 2, Body: body, Timeouts: &timeouts, Home: clock{}, Beside: true,
		Lane: l, Link: &Link{Seeks: &Seek{Lane: l, Base: other}},
	}, body
}

// fly sends a flight.
func fly(f *Flight) (*http.Response, error) {
	out := f.Copied()
	f.Arm(out)
	return f.SendCopy(out)
}

// TestAbortTwice aborts an attempt that seeks the first connection of a lane a second time, when
// another seeks it.
func TestAbortTwice(t *testing.T) {
	f, _ := seeker(t.Context(), nil, nil)
	l := f.Lane
	f.Abort()
	if e, _ := l.Enter(0); e != lane.Seek {
		t.Fatalf("the entry of the next attempt is %v", e)
	}
	f.Abort()
	if e, _ := l.Enter(0); e != lane.Wait {
		t.Errorf("the entry is %v while another attempt seeks a connection", e)
	}
}

// TestCallerUsesItsRequestAgain has an attempt that may outlive the call, whose caller then uses
// its request for something else.
func TestCallerUsesItsRequestAgain(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	var f *Flight
	f, _ = seeker(t.Context(), unconnected(func() {
		//lint:ignore SA1019 old callers still set Request.Cancel
		f.Req.Cancel = gone
	}), func(*http.Request) (*http.Response, error) { return new(http.Response), nil })
	if _, err := fly(f); err != nil {
		t.Errorf("the attempt reads the caller's request after the call: %v", err)
	}
}

// TestBodyOfAnAttemptThatNeverGoes has a context that has ended before a base asks for a connection.
func TestBodyOfAnAttemptThatNeverGoes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, body := seeker(ctx, unconnected(func() {}), func(*http.Request) (*http.Response, error) { return nil, errDial })
	if _, err := fly(f); err == nil || !body.did {
		t.Errorf("the error is %v; the body is closed: %v", err, body.did)
	}
}
