// The body of a request, which one endpoint has at a time.

package failover

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A source lends the body of a request to one endpoint. It knows when the endpoint has closed each body that it had,
// because many a GetBody returns the same reader again.
type source struct {
	users  sync.RWMutex // readers: the bodies that are not closed, and what is under way with them; writer: the next endpoint
	broken atomic.Bool  // a Read failed
}

// lendTo gives a copy of a request its body.
func (s *source) lendTo(req *http.Request, b io.ReadCloser) {
	getBody := req.GetBody
	req.Body, _ = s.lend(func() (io.ReadCloser, error) { return b, nil })
	if seeker, ok := b.(io.Seeker); ok && getBody == nil {
		req.Body = struct { // a Transport sends it again by Seek
			io.ReadCloser
			io.Seeker
		}{req.Body, seeker}
	}
	if getBody != nil {
		req.GetBody = func() (io.ReadCloser, error) { return s.lend(getBody) }
	}
}

// lend lends a new body, unless the next endpoint has the source.
func (s *source) lend(getBody func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	if !s.users.TryRLock() {
		return nil, http.ErrBodyReadAfterClose
	}
	b, err := getBody()
	if b == nil || err != nil {
		s.users.RUnlock()
		return b, err
	}
	return &lent{ReadCloser: b, source: s}, nil
}

// take takes the body from the endpoint, and reports whether that has closed it within a second.
func (s *source) take(ctx context.Context) bool {
	for i := 0; !s.users.TryLock(); i++ {
		if i == 100 || ctx.Err() != nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// A lent body is one that an endpoint has.
type lent struct {
	io.ReadCloser
	*source
	closed atomic.Bool
}

func (l *lent) Read(p []byte) (int, error) {
	if l.closed.Load() || !l.users.TryRLock() {
		return 0, http.ErrBodyReadAfterClose
	}
	defer l.users.RUnlock()
	n, err := l.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !l.closed.Load() { // a Close may end a Read
		l.broken.Store(true)
	}
	return n, err
}

func (l *lent) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	defer l.users.RUnlock()
	return l.ReadCloser.Close()
}
