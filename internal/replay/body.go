// Package replay lets the body of a request be sent more than once.
//
// The caller of [New] hands a request's body over to a [Body]. For each attempt it
// asks for a reader with Next. Before the next attempt it takes the body from the last one with
// Rewind, and calls GetBody, if that is due, just before that attempt is sent. Finish
// ends it all. A request without a body has a nil Body.
//
// There are three kinds of bodies:
//
//   - A memoryBody is in memory, and each attempt has a copy that shares no state
//     with other copies. There is nothing to wait for, to keep or to wrap. net/http sees
//     a type that it knows, and attempts may run beside each other.
//   - A getBodyBody is made anew by the caller's GetBody. Two results may be the
//     same reader, so the old body is closed first. If it is in memory, an attempt has a copy.
//   - A streamBody has no GetBody. It is sought back, or the bytes that were
//     read are kept in memory.
//
// A single attempt at a time has a body of the last two kinds, unless that is in memory. A lease guards it, because
// base transports read and close the bodies of old attempts when they like.
//
// The package knows nothing of rules, reasons and responses. It starts no goroutine but
// for each call of the caller's GetBody, and for timers.
//
// The files:
//
//	body.go     Body, and a lock on the caller's body, held during a Read
//	memory.go   bodies in memory, which of them share no state with their copies, and the pool that bounds
//	            the bytes that are kept
//	getbody.go  a body that GetBody makes anew
//	stream.go   a body that is sought back, or whose bytes are kept
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/counted"
)

var (
	// ErrDetached is the error of a Read by an attempt that is over, and of its GetBody.
	ErrDetached = errors.New("transport: read of a request body that is closed or detached from its attempt")

	// ErrBusy says that the base transport did not stop reading the body in time.
	ErrBusy = errors.New("the base transport is still reading it")

	// ErrEnded says that the caller's context ended while a Read or GetBody was awaited.
	ErrEnded = errors.New("the request's context has ended")
)

// MaxBusy is how long a Read of an old attempt is waited for at most.
const MaxBusy = time.Second

// A Body is the body of a request, for all its attempts.
//
// Its methods are called by the goroutine that runs the request. The readers and
// the functions that they return may be used by any goroutine at any time, also
// when the attempt is over.
type Body interface {
	// Next returns the body for the n-th attempt, counted from 1, which is about to
	// be sent. It is nil if the caller's own body is to be sent as it is.
	//
	// getBody is the GetBody for the base transport during that attempt. Its error is
	// [ErrDetached], [ErrEnded] if ctx ends while a Read or GetBody is awaited, or the error of
	// the caller's GetBody. It is nil if the caller's own GetBody needs no guard.
	Next(ctx context.Context, n int) (body io.ReadCloser, getBody func() (io.ReadCloser, error))

	// Broke reports whether reading or closing a body of the caller's failed. The server is not
	// at fault then. net/http returns that error, at times inside another error, so only the
	// body itself knows whose error it is. If a body comes from another server and failed
	// to connect there, its error looks like the error of a request that never left.
	Broke() bool

	// Why returns why the body cannot be produced again, as far as is known now. A body that broke
	// cannot. If Why returns nil, Rewind and GetBody may still fail.
	Why() error

	// Concurrent reports whether two attempts can have the body at the same time.
	// That is so if each has a copy.
	Concurrent() bool

	// Rewind takes the body from the attempt that has it, for another attempt. It
	// waits for a Read or Close under way until limit has passed or ctx ends. Its error is
	// [ErrBusy], [ErrEnded], or the reason why the body cannot be produced again.
	// After an error the attempt still has the body.
	//
	// Rewind comes before the response at hand is given up. If there is no body for
	// another attempt, the caller can thus have that response.
	Rewind(ctx context.Context, limit time.Duration) error

	// GetBody calls the caller's GetBody, if that is due, for an attempt that is about to be sent. By
	// then nothing of the old attempt is left that could read the result of GetBody.
	// Its body was detached, its response is discarded, and the wait is over. If ctx
	// ends first, its error is [ErrEnded].
	GetBody(ctx context.Context) error

	// Detach takes the body from a base transport that may still be sending it after a
	// redirect. http.Client calls the caller's own GetBody then, which may return the
	// reader that the old attempt has.
	Detach(ctx context.Context)

	// Finish says that there will be no further attempt. The caller's body is closed
	// as soon as no attempt has it.
	Finish()
}

// New returns the body of a request that may be sent again. The request has a body. New reads nothing. If the body can neither
// be made anew nor sought, at most limit bytes of it are kept, none if limit is not positive.
func New(req *http.Request, limit int64, pool *Pool) Body {
	switch {
	case Independent(req):
		return memoryBody(req.GetBody)
	case req.GetBody != nil:
		return newGetBodyBody(req)
	}
	if whole := copyOf(req.Body); whole != nil {
		return memoryBody(func() (io.ReadCloser, error) { return copyOf(whole), nil })
	}
	return newStreamBody(req.Body, limit, pool)
}

// Once returns the body of a request that is sent once only. When the base transport closes it, the
// caller's body is closed at once.
func Once(req *http.Request, pool *Pool) Body {
	b := New(req, 0, pool)
	if s, ok := b.(*streamBody); ok {
		s.finished = true
	}
	return b
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
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// IsOfNetHTTP reports whether a type of net/http is the body of a response.
func IsOfNetHTTP(body io.ReadCloser) bool {
	t := reflect.TypeOf(body)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "net/http"
}

// A lease lets a single goroutine at a time use the caller's body. To use the body
// means to read it or to make it anew. A lease is part of each [streamBody] and [getBodyBody].
//
// The habits of base transports make the rules. Over HTTP/1, net/http may stay in a
// Read for ever after an early response. Over HTTP/2, it closes the body from another
// goroutine during a Read. So the Close of an attempt never waits for a Read, and a
// body is detached only when neither a Read nor a Close is running.
type lease struct {
	mu       sync.Mutex // guards the lease and the fields of its owner that are listed after it
	users    int        // how many goroutines use the body: at most one, and its Close beside it
	over     sync.Cond  // of mu: users has become 0
	wanted   bool       // a goroutine waits to detach the body, and no Read begins meanwhile
	finished bool       // there will be no further attempt
	why      error      // why the body cannot be produced again, nil if it can
	failed   error      // of reading or closing a body of the caller's
	sent     int64      // the most bytes that an attempt had
}

func (l *lease) Broke() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed != nil
}

func (l *lease) Why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.why, l.failed)
}

// busy reports whether a goroutine uses the body; the lock is held.
func (l *lease) busy() bool { return l.users > 0 }

// use runs f, which uses the caller's body, without the lock. Before and afterwards, also
// when f panics, the lock is held. The body is not busy unless f closes it.
func (l *lease) use(f func()) {
	l.users++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.leave()
	}()
	f()
}

// read reads a body of the caller's at an offset. Without a length the server could not know that a body ends
// before a byte that an earlier attempt had, such as a file that has become shorter. So that is no clean
// end; the lock is held.
func (l *lease) read(body io.Reader, p []byte, at int64) (n int, err error) {
	l.use(func() { n, err = counted.Read(body, p) })
	end := at + int64(n)
	l.sent = max(l.sent, end)
	if err == io.EOF && end < l.sent {
		err = fmt.Errorf("transport: the request's body ends at byte %d, and an earlier attempt had sent %d", end, l.sent)
	}
	return n, err
}

// broken notes that a method of a body of the caller's failed; the lock is held.
func (l *lease) broken(method string, err error) {
	if l.failed == nil {
		l.failed = fmt.Errorf("its %s failed: %w", method, err)
	}
}

// leave ends a use; the lock is held.
func (l *lease) leave() {
	if l.users--; l.users == 0 {
		l.over.Broadcast()
	}
}

// free waits until nobody uses the body. It returns ErrBusy if that takes longer than
// limit, or if still is not nil and reports false. It returns ErrEnded if ctx ends; the
// lock is held, and given up while it waits.
func (l *lease) free(ctx context.Context, limit time.Duration, still func() bool) error {
	defer func() { l.wanted = false }()
	var bound context.Context
	for {
		switch {
		case still != nil && !still():
			return ErrBusy
		case !l.busy():
			return nil
		case bound == nil:
			own, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			defer context.AfterFunc(own, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.over.Broadcast()
			})()
			bound = own
		case ctx.Err() != nil:
			return ErrEnded
		case bound.Err() != nil:
			return ErrBusy
		}
		l.wanted = true // otherwise a busy upload would begin its next Read at once
		l.over.Wait()
	}
}
