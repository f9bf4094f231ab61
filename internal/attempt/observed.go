// A body that tells its end.

package attempt

import (
	"io"
	"net/http"
	"sync"

	"github.com/aplomb-go/aplomb/internal/resume"
)

// A BodyObserver hears of the end of a body, once. err is io.EOF if it was read whole, and nil
// if it was closed before.
type BodyObserver interface{ BodyEnded(bytes int64, err error) }

// An ObservedBody counts the bytes of a response and tells its end. Wrap must be called first.
// Close may come from another goroutine during a Read.
type ObservedBody struct {
	io.ReadCloser
	by BodyObserver

	mu     sync.Mutex // guards the fields below
	bytes  int64
	closed bool // or being closed
	ended  bool
}

// Wrap makes the body of a response tell its end.
func (b *ObservedBody) Wrap(resp *http.Response, by BodyObserver) {
	b.ReadCloser, b.by, resp.Body = resp.Body, by, b
}

func (b *ObservedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	b.bytes += int64(max(n, 0))
	b.mu.Unlock()
	if err != nil {
		b.end(err)
	}
	return n, err
}

// ResumeTried reports whether the body has asked for its rest. A Transport around this
// one asks.
func (b *ObservedBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

// Close tells the end after the body is closed, also if its Close panics. A Read that it ends
// is no error of the body.
func (b *ObservedBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	defer b.end(nil)
	return b.ReadCloser.Close()
}

// end tells the end, once.
func (b *ObservedBody) end(err error) {
	b.mu.Lock()
	ended, n := b.ended, b.bytes
	if b.closed && err != io.EOF {
		err = nil
	}
	b.ended = true
	b.mu.Unlock()
	if !ended {
		b.by.BodyEnded(n, err)
	}
}
