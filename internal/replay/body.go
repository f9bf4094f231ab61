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
	// ErrLent is the error of a Read by an attempt that is over, and of its GetBody.
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
	Memory int64  // the most bytes in memory, none if not positive
	Disk   int64  // the most bytes in a temporary file, none if not positive
	Dir    string // the directory of the file, os.TempDir if empty
}

// A Body is the body of one request, for all its attempts. The zero Body is that
// of a request without a body, or of a request that is sent once only.
//
// Its methods are called by the goroutine that runs the request. The readers and
// the functions that they return may be used by any goroutine at any time, also
// when the attempt is over.
type Body struct {
	// At most one of these three is set.
	copies   func() (io.ReadCloser, error) // makes bodies that share no state
	remade   *remade                       // the caller's GetBody makes the body anew
	original *original                     // all attempts read the caller's body

	made io.ReadCloser // by copies, for the next attempt
	err  error         // of copies
}

// New returns the body of a request that may be sent again. It reads nothing.
func New(req *http.Request, limits Limits, pool *Pool) Body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return Body{}
	case Independent(req):
		return Body{copies: req.GetBody}
	case req.GetBody != nil:
		return Body{remade: newRemade(req)}
	}
	if whole := detached(req.Body); whole != nil {
		return Body{copies: func() (io.ReadCloser, error) { return detached(whole), nil }}
	}
	return Body{original: newOriginal(req.Body, limits, pool)}
}

// Owned reports whether Finish closes the caller's body. If it does not, and the
// body was never sent, the caller of New must close it.
func (b *Body) Owned() bool { return b.remade != nil || b.original != nil }

// Replayable reports whether the body can be produced again, as far as is known
// now. TakeBack and Renew may still fail.
func (b *Body) Replayable() bool { return b.original == nil || b.original.cause() == nil }

// Broke reports whether reading or closing a body failed. net/http returns that
// error as it is. If a body comes from another server and failed to connect there,
// its error looks like the error of a request that never left.
func (b *Body) Broke() bool { return b.remade != nil && b.remade.broke() }

// Why returns why the body cannot be produced again, nil if nothing is known.
func (b *Body) Why() error {
	switch {
	case b.remade != nil:
		return b.remade.cause()
	case b.original != nil:
		return b.original.cause()
	}
	return b.err
}

// Concurrent reports whether two attempts can have the body at the same time. That
// is so if each has a copy.
func (b *Body) Concurrent() bool {
	return b.original == nil && (b.remade == nil || b.remade.inMemory())
}

// TakeBack takes the body from the attempt that has it, for another attempt. It
// waits for a Read under way until limit has passed or ctx ends. It returns nil,
// [ErrBusy], [ErrEnded], or the reason why the body cannot be produced again. After
// an error the attempt still has the body.
//
// TakeBack comes before the response at hand is given up. If there is no body for
// another attempt, the caller can thus have that response. Bodies in memory are made
// here, others by Renew.
func (b *Body) TakeBack(ctx context.Context, limit time.Duration) error {
	switch {
	case b.remade != nil:
		return b.remade.takeBack(ctx, limit)
	case b.original != nil:
		return b.original.takeBack(ctx, limit)
	case b.copies != nil && b.made == nil:
		b.made, b.err = checked(b.copies())
		return b.err
	}
	return nil // there is no body, or the attempt that it was made for was not sent
}

// Renews reports whether Renew is still to call GetBody, and so may fail.
func (b *Body) Renews() bool { return b.remade != nil && b.remade.awaitsRenewal() }

// Renew calls the caller's GetBody for an attempt that is about to be sent. By
// then nothing of the old attempt is left that could read the result of GetBody. Its
// body was taken back, its response is discarded, and the wait is over.
func (b *Body) Renew() error {
	if b.remade == nil {
		return nil
	}
	return b.remade.renew()
}

// Next returns the body for the attempt that is about to be sent. It returns nil if
// the request has none, or if the caller's own body is to be sent as it is.
func (b *Body) Next() io.ReadCloser {
	switch {
	case b.remade != nil:
		return b.remade.next()
	case b.original != nil:
		return b.original.next()
	}
	body := b.made
	b.made = nil
	return body
}

// GetBody returns the GetBody for the base transport during the attempt that is
// about to be sent. Its error is [ErrLent], [ErrEnded] if ctx ends while a Read is
// awaited, or the error of the caller's GetBody. GetBody returns nil if the
// caller's own needs no guard.
func (b *Body) GetBody(ctx context.Context) func() (io.ReadCloser, error) {
	if b.remade == nil {
		return nil
	}
	return b.remade.forBase(ctx)
}

// Leave takes the body from a base transport that may still be sending it after a
// redirect. http.Client calls the caller's own GetBody then, which may return the
// reader that the old attempt has.
func (b *Body) Leave(ctx context.Context) {
	if b.remade != nil {
		b.remade.leave(ctx, MaxBusy)
	}
}

// Finish says that there will be no further attempt. The caller's body is closed as
// soon as no attempt has it. A body that was made for an attempt that was not sent
// is closed here.
func (b *Body) Finish() {
	switch {
	case b.remade != nil:
		b.remade.finish()
	case b.original != nil:
		b.original.finish()
	case b.made != nil:
		_ = b.made.Close()
		b.made = nil
	}
}

// checked checks the results of a GetBody.
func checked(body io.ReadCloser, err error) (io.ReadCloser, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("Request.GetBody failed: %w", err)
	case body == nil || IsNil(body):
		return nil, errors.New("Request.GetBody returned no body")
	}
	return body, nil
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
