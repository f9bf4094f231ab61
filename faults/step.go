// Steps, which say what happens to a request.

package faults

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Step says what happens to one request. The functions below make steps. The
// methods of a Step return a changed copy, so several plans can share a Step. The
// zero Step is [Pass].
type Step struct {
	kind   kind
	name   string      // of a failure
	code   int         // of a status
	header http.Header // of the response
	body   string      // of a status
	err    error       // of a failure
	taken  bool        // the request is read whole before the failure

	delay time.Duration
	early early // how the body ends early
	after int64 // bytes of the body
	drip  int   // bytes of each piece of the body; 0: as fast as it is read
	every time.Duration
}

// A kind is the kind of a step.
type kind uint8

const (
	pass kind = iota
	status
	failure
	hang
)

// An early says how the body of a response ends early.
type early string

const (
	whole early = ""
	cut   early = "cut"
	stall early = "stall"
)

// Pass sends the request to the base of the Transport, without a fault. The methods
// [Step.CutAt], [Step.StallAt] and [Step.Drip] change the body of its response.
// [Step.Header] sets fields of its header.
func Pass() Step { return Step{} }

// Status responds with a status. By default the body is empty.
func Status(code int) Step { return Step{kind: status, code: code} }

// ConnRefused fails as a dial does if nothing listens at the port. The request
// never left. The error is a classify.ErrorDial.
func ConnRefused() Step {
	return Step{kind: failure, name: "connection refused", err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errRefused)}}
}

// DialTimeout fails as a dial does if nobody replies. The request never left. The
// error is a classify.ErrorDial. It comes at once unless [Step.Delay] says otherwise.
func DialTimeout() Step {
	return Step{kind: failure, name: "dial timeout", err: &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}}
}

// ConnReset reads the request, and then fails as if the connection was reset before
// the response. So the server may have acted. The error is a classify.ErrorReset.
func ConnReset() Step {
	return Step{kind: failure, name: "connection reset", taken: true,
		err: &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", errReset)}}
}

// ResponseTimeout reads the request, and then fails as if the base transport's own
// time for the response was over. So the server may have acted. The error is a
// classify.ErrorTimeout. It comes at once unless [Step.Delay] says otherwise.
func ResponseTimeout() Step {
	return Step{kind: failure, name: "response timeout", taken: true,
		err: &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}}
}

// Fail returns err at once. It does not read the request's body, but closes it. If
// err is nil, Fail is the same as Pass.
func Fail(err error) Step {
	if err == nil {
		return Pass()
	}
	return Step{kind: failure, name: "fail", err: err}
}

// Hang reads the request and never responds. It ends with the request's context.
func Hang() Step { return Step{kind: hang} }

// Header adds a field to the header of the response. It has no effect if the step
// has no response. A field of a Pass replaces the fields of the same name.
func (s Step) Header(name, value string) Step {
	if s.header = s.header.Clone(); s.header == nil {
		s.header = http.Header{}
	}
	s.header.Add(name, value)
	return s
}

// RetryAfter sets the Retry-After field of the response (RFC 9110 §10.2.3). The
// field has no fractions of a second, so d is rounded up.
func (s Step) RetryAfter(d time.Duration) Step {
	seconds := int64(math.Ceil(max(d, 0).Seconds()))
	s = s.Header("Retry-After", "")
	s.header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	return s
}

// Body sets the body of a [Status]. It has no effect on other steps.
func (s Step) Body(text string) Step { s.body = text; return s }

// Delay waits before the response or the error, and before a Pass sends the
// request. The wait ends with the request's context.
func (s Step) Delay(d time.Duration) Step { s.delay = d; return s }

// CutAt ends the body of the response with io.ErrUnexpectedEOF after n bytes, as if
// the server closed the connection. A body that has no more than n bytes ends as
// usual, provided that the response names its length.
func (s Step) CutAt(n int64) Step { return s.endAt(n, cut) }

// StallAt makes the body of the response stand still after n bytes. A Read then
// blocks until the request's context ends or the body is closed.
func (s Step) StallAt(n int64) Step { return s.endAt(n, stall) }

func (s Step) endAt(n int64, how early) Step {
	s.early, s.after = how, max(n, 0)
	return s
}

// Drip delivers the body of the response in pieces of at most n bytes. Before each
// piece it waits. If n is less than 1, pieces have 1 byte.
func (s Step) Drip(n int, every time.Duration) Step {
	s.drip, s.every = max(n, 1), every
	return s
}

// String describes the step in a few words, such as "status 503" or "pass, cut at
// 100".
func (s Step) String() string {
	var b strings.Builder
	switch s.kind {
	case pass:
		b.WriteString("pass")
	case status:
		fmt.Fprintf(&b, "status %d", s.code)
	case failure:
		b.WriteString(s.name)
	case hang:
		b.WriteString("hang")
	}
	if s.delay > 0 {
		fmt.Fprintf(&b, ", delay %v", s.delay)
	}
	if s.early != whole {
		fmt.Fprintf(&b, ", %s at %d", s.early, s.after)
	}
	if s.drip > 0 {
		fmt.Fprintf(&b, ", drip %d every %v", s.drip, s.every)
	}
	return b.String()
}
