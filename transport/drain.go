// How is a response given up so that its connection can be used again?

package transport

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// A connection of HTTP/1 is used again only when the response was read to its
// end. Reading on is worth it for an error page; for more it is cheaper to
// connect anew, and an endless or stalled body must not hold the retry up.
const (
	drainBytes = 64 << 10
	drainTime  = 250 * time.Millisecond
)

// discard reads the body's rest within both bounds, and closes it. A Read that
// blocks is ended by Close, which net/http's bodies allow during a Read.
func discard(ctx context.Context, resp *http.Response) { discardWithin(ctx, resp, drainTime) }

// discardWithin is discard with a time bound of its own. If the bound is not
// positive, it closes the body at once.
func discardWithin(ctx context.Context, resp *http.Response, limit time.Duration) {
	if resp == nil || resp.Body == nil {
		return
	}
	shut := sync.OnceFunc(func() { _ = resp.Body.Close() })
	defer shut()
	if resp.ContentLength > drainBytes || limit <= 0 {
		return
	}
	timer := time.AfterFunc(limit, shut)
	defer timer.Stop()
	stop := context.AfterFunc(ctx, shut)
	defer stop()
	// One byte more than allowed: a body of exactly drainBytes shows its end.
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes+1)
}
