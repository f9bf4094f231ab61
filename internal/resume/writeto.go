// WriteTo, for a base transport whose bodies have it.

package resume

import (
	"io"

	"github.com/aplomb-go/aplomb/internal/counted"
)

// A copier is a Body that has WriteTo.
type copier Body

func (c *copier) Read(p []byte) (int, error) { return (*Body)(c).Read(p) }
func (c *copier) Close() error               { return (*Body)(c).Close() }
func (c *copier) ResumeTried() bool          { return (*Body)(c).ResumeTried() }

// WriteTo writes the rest of the body to w, and reconnects as often as needed.
func (c *copier) WriteTo(w io.Writer) (int64, error) {
	b := (*Body)(c)
	t := &taker{b: b, w: w}
	for {
		if err := b.ready(); err == io.EOF {
			return t.n, nil
		} else if err != nil {
			return t.n, err
		}
		err := t.from(b.body)
		if t.err != nil {
			return t.n, t.err
		}
		if err == nil {
			err = io.EOF
		}
		b.segmentEnded(err)
	}
}

// A taker passes the bytes of a segment on to the caller's writer and counts
// them. It keeps the writer's errors apart from those of the segment.
type taker struct {
	b   *Body
	w   io.Writer
	n   int64
	err error // the writer's
}

// from copies a segment. After a reconnect the segment may lack WriteTo.
func (t *taker) from(body io.Reader) error {
	if from, ok := body.(io.WriterTo); ok {
		_, err := from.WriteTo(t)
		return err
	}
	_, err := io.Copy(t, countedReader{body})
	return err
}

// A countedReader is a reader whose Read may return a wrong count.
type countedReader struct{ io.Reader }

func (r countedReader) Read(p []byte) (int, error) { return counted.Read(r.Reader, p) }

func (t *taker) Write(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	mine := t.b.take(p, nil)
	n, err := t.w.Write(p[:mine])
	t.n += int64(n)
	switch {
	case err != nil:
		t.err = err
	case n < mine:
		t.err = io.ErrShortWrite
	case mine < len(p):
		return n, t.b.err
	}
	return n, t.err
}
