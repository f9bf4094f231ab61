package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"
)

var (
	// ErrLent is the error of a Read by an attempt that is over, and of a GetBody
	// for it.
	ErrLent = errors.New("transport: read of a request body that is closed or lent to another attempt")

	// ErrBusy says that the base transport did not stop reading the body in time.
	ErrBusy = errors.New("the base transport is still reading it")

	// ErrEnded says that the caller's context ended while a Read was awaited.
	ErrEnded = errors.New("the request's context has ended")
)

// MaxBusy is how long a Read of an old attempt is waited for at most.
const MaxBusy = time.Second

// Limits say where a body is kept that can neither be made anew nor sought.
type Limits struct {
	Memory int64  // bytes in memory; not positive: none
	Disk   int64  // bytes in a temporary file; not positive: no file
	Dir    string // of the file; "": os.TempDir
}

// A Body is the body of one request, for all its attempts. The zero Body is that
// of a request without one, or of a request that is sent once only.
//
// Its methods are called by the goroutine that sends the request, one at a time.
// The readers and the functions that it hands out may be used by any goroutine,
// also when the attempt is over.
type Body struct {
	getBody func() (io.ReadCloser, error) // makes bodies that share nothing; nil with a source
	next    io.ReadCloser                 // made by getBody for the next attempt, not sent yet
	source  *source                       // owns any other body
	err     error                         // of getBody
}

// New returns the body of a request that may be sent again. It reads nothing.
func New(req *http.Request, limits Limits, pool *Pool) Body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return Body{}
	case Independent(req):
		return Body{getBody: req.GetBody}
	case req.GetBody != nil:
		return Body{source: &source{body: req.Body, remake: req.GetBody, pool: pool}}
	}
	if whole := detached(req.Body); whole != nil {
		return Body{getBody: func() (io.ReadCloser, error) { return detached(whole), nil }}
	}
	s := &source{body: req.Body, limit: limits.Memory, pool: pool}
	if seeker, ok := req.Body.(io.Seeker); ok {
		// Standard input, a pipe and a terminal have a Seek method that fails.
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			s.seeker, s.start = seeker, at
		}
	}
	if s.seeker == nil && limits.Disk > 0 {
		s.spool = newSpool(s, limits.Dir, limits.Disk)
	}
	return Body{source: s}
}

// Replayable reports whether the body can be produced again, as far as is known
// now. TakeBack and Renew have the last word.
func (b *Body) Replayable() bool { return b.source == nil || b.source.replayable() }

// Broke reports whether reading or closing a body failed. net/http returns that
// error as it is. A body that comes from another server may have failed to
// connect there, and its error then looks like that of a request that never left.
func (b *Body) Broke() bool { return b.source != nil && b.source.broke() }

// Why returns why the body cannot be produced again, nil if nothing is known.
func (b *Body) Why() error {
	if b.source != nil {
		return b.source.cause()
	}
	return b.err
}

// Concurrent reports whether a second body can be made while the first one is
// being read.
func (b *Body) Concurrent() bool { return b.source == nil || b.source.inHand() }

// Untouched reports whether the package has made no body and owns none, so that
// closing the caller's is up to the caller of New.
func (b *Body) Untouched() bool { return b.source == nil && b.next == nil }

// TakeBack takes the body from the attempt that has it, for another one. It waits
// for a Read under way until limit has passed or ctx ends. It returns nil,
// ErrBusy, ErrEnded, or the reason why the body cannot be produced again. After an
// error the attempt still has the body.
//
// It comes before the response at hand is given up, so that the caller can have
// that response if there is no body for another attempt. Bodies in memory are made
// here, any other by Renew.
func (b *Body) TakeBack(ctx context.Context, limit time.Duration) error {
	switch {
	case b.source != nil:
		return b.source.rewind(ctx, limit)
	case b.getBody == nil || b.next != nil: // no body, or one made for an attempt that was not sent
		return nil
	}
	b.next, b.err = made(b.getBody())
	return b.err
}

// Renews reports whether Renew may still fail after TakeBack has succeeded.
func (b *Body) Renews() bool { return b.source != nil && b.source.awaitsRenewal() }

// Renew calls the caller's GetBody for an attempt that is about to be sent. By
// then nothing of the old attempt is left that could read the result of GetBody:
// TakeBack took the old body, its response is discarded, and the wait is over.
func (b *Body) Renew() error {
	if b.source == nil {
		return nil
	}
	_, err := b.source.renew(anyTurn, false)
	return err
}

// made checks the results of a GetBody.
func made(body io.ReadCloser, err error) (io.ReadCloser, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("Request.GetBody failed: %w", err)
	case body == nil || IsNil(body):
		return nil, errors.New("Request.GetBody returned no body")
	}
	return body, nil
}

// Next returns the body for the attempt that is about to be sent. It is nil if
// the request has none, and if the caller's own is to be sent as it is.
func (b *Body) Next() io.ReadCloser {
	if s := b.source; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lend()
	}
	body := b.next
	b.next = nil
	return body
}

// GetBody returns the GetBody for the base transport during the attempt that is
// about to be sent, nil if the caller's own serves. Its error is ErrLent, ErrEnded,
// or that of the caller's GetBody.
func (b *Body) GetBody(ctx context.Context) func() (io.ReadCloser, error) {
	if b.source == nil || b.source.remake == nil {
		return nil
	}
	return b.source.inner(ctx)
}

// Leave takes the body from a base transport that may still be sending it after a
// redirect. http.Client calls the caller's own GetBody then, which may return the
// reader that the old attempt has.
func (b *Body) Leave(ctx context.Context) {
	if b.source != nil && b.source.remake != nil {
		_ = b.source.reclaim(ctx, MaxBusy, anyTurn)
	}
}

// Finish says that there will be no further attempt. The caller's body is closed
// as soon as no attempt holds it. A body that was made for an attempt that did not
// come is closed here.
func (b *Body) Finish() {
	if b.next != nil {
		_ = b.next.Close()
		b.next = nil
	}
	if b.source != nil {
		b.source.finish()
	}
}

// IsNil reports whether an interface holds a nil pointer, map, slice, function or
// channel. Most methods panic on such a value, and nobody can know what the caller
// means by it.
func IsNil(v any) bool {
	if v == nil {
		return false
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}
