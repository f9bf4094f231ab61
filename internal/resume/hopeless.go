// A body that nothing continues.

package resume

import "io"

// Hopeless makes a body tell a Sender why nothing continues it when it is cut.
func Hopeless(body io.ReadCloser, s Sender, why error) io.ReadCloser {
	return &hopelessBody{ReadCloser: body, sender: s, why: why}
}

type hopelessBody struct {
	io.ReadCloser
	sender Sender
	why    error
	read   int64
	done   bool
}

// Read reads from the body.
func (b *hopelessBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(max(n, 0))
	if err != nil && err != io.EOF && !b.done {
		b.done = true
		if !Tried(b.ReadCloser) && b.sender.Lost(err) {
			_ = b.sender.Stopped(b.read, err, b.why, false)
		}
	}
	return n, err
}

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *hopelessBody) ResumeTried() bool { return Tried(b.ReadCloser) }
