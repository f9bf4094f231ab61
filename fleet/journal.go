package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"
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

	mu      sync.Mutex    // guards the fields below
	lines   []func()      // each writes a log line
	writing chan struct{} // closed at the end of the goroutine; nil if there is none
	closed  bool
}

// add hands over a log line. It never waits for the handler.
func (j *journal) add(level slog.Level, text string, args ...any) {
	if j.logger == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || len(j.lines) >= maxLines {
		return
	}
	j.lines = append(j.lines, func() {
		defer func() { _ = recover() }()
		j.logger.Log(context.Background(), level, text, args...)
	})
	if j.writing == nil {
		j.writing = make(chan struct{})
		go j.write(j.writing)
	}
}

func (j *journal) write(done chan struct{}) {
	defer close(done)
	for log := j.next(); log != nil; log = j.next() {
		log()
	}
}

func (j *journal) next() (log func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) == 0 {
		j.writing = nil
		return nil
	}
	log, j.lines = j.lines[0], j.lines[1:]
	return log
}

// close takes no more lines. It waits for the last ones until the context ends. A handler
// that blocks for longer keeps its goroutine.
func (j *journal) close(ctx context.Context) {
	j.mu.Lock()
	j.closed = true
	writing := j.writing
	j.mu.Unlock()
	if writing == nil {
		return
	}
	select {
	case <-writing:
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
