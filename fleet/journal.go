package fleet

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/mailbox"
)

const (
	maxLines  = 16          // log lines that wait to be written; more are lost
	lineEach  = time.Minute // between two log lines of the same kind
	maxReason = 300         // bytes of an error in the log
)

// A journal writes log lines. A handler may block, and it may send its lines through the
// Transport that the Fleet serves. So a goroutine of its own calls the handler, and nobody
// waits for it. The goroutine ends when all lines are written. A panic of the handler has no
// caller there, and would end the process, so the line is lost.
type journal struct {
	logger *slog.Logger
	lines  mailbox.Box[func()]
	wait   atomic.Int32 // how many lines wait to be written
	closed atomic.Bool
}

// add hands over a log line. It never waits for the handler.
func (j *journal) add(level slog.Level, text string, args ...any) {
	if j.logger == nil || j.closed.Load() || j.wait.Load() >= maxLines {
		return
	}
	j.wait.Add(1)
	j.lines.Put(write, func() {
		j.wait.Add(-1)
		j.logger.Log(context.Background(), level, text, args...)
	})
}

func write(line func()) {
	defer func() { _ = recover() }()
	line()
}

// close takes no more lines. It waits for the last ones until the context ends. A handler
// that blocks for longer keeps its goroutine.
func (j *journal) close(ctx context.Context) {
	j.closed.Store(true)
	written := make(chan struct{})
	j.lines.Put(write, func() { close(written) })
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// A rarely lets a log line pass from time to time, and counts in between. It is not safe
// for concurrent use.
type rarely struct {
	last  time.Time
	count uint64
}

// pass counts. It returns the count if a log line is due, else 0.
func (r *rarely) pass(now time.Time) uint64 {
	r.count++
	if !r.last.IsZero() && now.Sub(r.last) < lineEach {
		return 0
	}
	n := r.count
	r.last, r.count = now, 0
	return n
}
