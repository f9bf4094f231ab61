// The limit of bytes per second.

package get

import (
	"context"
	"io"
	"math"

	"golang.org/x/time/rate"
)

// A throttle limits the bytes per second of all downloads together. A nil
// throttle does not limit anything.
type throttle struct {
	limiter *rate.Limiter
	most    int // bytes at once
}

func newThrottle(bytesPerSecond float64) *throttle {
	if bytesPerSecond == 0 {
		return nil
	}
	// The bytes of a tenth of a second at once are smooth, and io.Copy reads 32 KiB
	// at once.
	most := int(min(max(math.Ceil(bytesPerSecond/10), 1), 32<<10))
	return &throttle{rate.NewLimiter(rate.Limit(bytesPerSecond), most), most}
}

// reader returns a reader of r that keeps to the limit.
func (t *throttle) reader(ctx context.Context, r io.Reader) io.Reader {
	if t == nil {
		return r
	}
	return &throttledReader{t, ctx, r}
}

type throttledReader struct {
	*throttle
	ctx context.Context
	r   io.Reader
}

// Read waits after a read and not before it, because only then the number of
// bytes is known.
func (t *throttledReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b[:min(len(b), t.most)])
	if wait := t.limiter.WaitN(t.ctx, n); wait != nil && err == nil {
		err = wait
	}
	return n, err
}
