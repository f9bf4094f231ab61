// A body that tells its end.

package flight

import (
	"errors"
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
	by     BodyObserver
	copier observedCopier // of the body itself, if it has WriteTo

	mu     sync.Mutex // guards the fields below
	bytes  int64
	closed bool // or being closed
	ended  bool
}

// Wrap makes the body of a response tell its end. What has WriteTo keeps it.
func (b *ObservedBody) Wrap(resp *http.Response, by BodyObserver) {
	b.ReadCloser, b.by = resp.Body, by
	if _, ok := resp.Body.(io.WriterTo); ok {
		b.copier.ObservedBody = b
		resp.Body = &b.copier
	} else {
		resp.Body = b
	}
}

func (b *ObservedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count(n)
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

func (b *ObservedBody) count(n int) {
	b.mu.Lock()
	b.bytes += int64(max(n, 0))
	b.mu.Unlock()
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

// An observedCopier is an ObservedBody that has WriteTo.
type observedCopier struct{ *ObservedBody }

// WriteTo counts what the writer takes. An error of the writer does not end the body.
func (c *observedCopier) WriteTo(w io.Writer) (int64, error) {
	to := &countingWriter{w: w, b: c.ObservedBody}
	n, err := c.ReadCloser.(io.WriterTo).WriteTo(to)
	switch {
	case err == nil:
		c.end(io.EOF)
	case to.err == nil || !errors.Is(err, to.err):
		c.end(err)
	}
	return n, err
}

type countingWriter struct {
	w   io.Writer
	b   *ObservedBody
	err error
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.b.count(n)
	if w.err = err; err == nil && n < len(p) {
		w.err = io.ErrShortWrite
	}
	return n, err
}
