// The server says how much of its quota is left: when may the next request go?

package host

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pacingShare is the part of a quota, one in so many, that is spread over
	// the rest of its window.
	pacingShare = 5

	// pacingSlack is how far apart the ends of one window may seem, since
	// servers name them in whole seconds.
	pacingSlack = 1500 * time.Millisecond

	// What a server names beyond these is not believed.
	maxReset = 24 * time.Hour
	maxQuota = 1 << 40
)

// A PacingConfig bounds pacing.
type PacingConfig struct {
	// MaxWait is the longest time from one request to the next, even where the
	// quota is used up until much later: a wrong header stops a host no longer.
	// Default 1 min; negative: no bound.
	MaxWait time.Duration
}

// A Pacing spreads requests over what the server says is left of its quota
// (RateLimit of the IETF draft, X-RateLimit-Remaining and -Reset), per scope.
// The rules:
//
//   - While more than a fifth of the quota is left nothing waits. From then on
//     the requests left are spread evenly over the rest of the window; with
//     none left the next goes at its end.
//   - The answer to the request that passed last is believed, less what has
//     passed since, whatever was known before: one wrong answer counts until
//     the next one. Answers overtake each other. That to an earlier request can
//     only lower the rest of the same window. If it names another window, it is
//     ignored, unless the one that is known is about to end.
//   - Within one window each request that passes lowers the rest.
//   - After its end a window is taken to be followed by one like it until an
//     answer tells; after another one without an answer nothing is known.
//
// At most 256 scopes are kept: one whose window is over goes first, then one
// that ends soonest. The zero Pacing is ready. All methods are safe for
// concurrent use.
type Pacing struct {
	n atomic.Int32 // len(quotas), to be read without the lock

	mu     sync.Mutex // guards what follows and every waiter in a queue
	quotas map[uint64]*quota
	passed uint64 // the largest count of a quota that is gone
}

// A quota is what is known of one scope's window.
type quota struct {
	end     time.Duration // of the window
	length  time.Duration // the longest time to the end that was named
	left    int64
	limit   int64
	next    time.Duration // the next request when the rest is spread
	guessed bool          // the window was not named by the server
	passed  uint64        // counts requests on from Pacing.passed, so that no mark comes twice
	asked   uint64        // the mark of the last request whose answer is known
	queue   queue
}

// Quiet reports whether no quota is known. It is one atomic load.
func (p *Pacing) Quiet() bool { return p.n.Load() == 0 }

// Note is told what an answer says: that remaining requests are left of limit
// (zero where it is not named) until reset from now on. The mark is that with
// which Enter let the request go, zero where it was not asked. A reset of zero
// or less says nothing; other values out of range are cut to it.
func (p *Pacing) Note(now time.Duration, key, mark uint64, remaining, limit int64, reset time.Duration, c PacingConfig) {
	if reset <= 0 {
		return
	}
	end := after(now, min(reset, maxReset))
	remaining = min(max(remaining, 0), maxQuota)
	limit = min(max(limit, remaining), maxQuota)
	p.mu.Lock()
	var next *Waiter
	if q := p.quotaFor(now, key); q != nil {
		q.note(now, end, mark, remaining, limit, c)
		next = q.queue.first
	}
	p.mu.Unlock()
	next.wake()
}

// Enter asks for a request to pass. A nil w is for a request that will not wait
// its turn: it takes no place. One that has to wait asks again with the same w,
// or leaves. The answer is never Refuse.
func (p *Pacing) Enter(now time.Duration, key uint64, w *Waiter, c PacingConfig) Answer {
	p.mu.Lock()
	a, next := p.enter(now, key, w, c)
	p.mu.Unlock()
	next.wake()
	return a
}

// Leave gives up the place of w.
func (p *Pacing) Leave(key uint64, w *Waiter) {
	p.mu.Lock()
	var next *Waiter
	if q := p.quotas[key]; q != nil {
		next = q.queue.leave(w)
	}
	p.mu.Unlock()
	next.wake()
}

// Left returns what is believed to be left of a scope's quota, and when its
// window ends; ok is false where nothing is known.
func (p *Pacing) Left(now time.Duration, key uint64) (left int64, end time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.quotas[key]
	if q == nil || now >= q.end {
		return 0, 0, false
	}
	return q.left, q.end, true
}

// enter answers w and returns who has to be woken; p.mu is held.
func (p *Pacing) enter(now time.Duration, key uint64, w *Waiter, c PacingConfig) (Answer, *Waiter) {
	q := p.quotas[key]
	if q == nil {
		return Answer{}, nil
	}
	if !q.roll(now) && q.queue.turn(w) {
		q.queue.leave(w)
		if q.queue.n == 0 {
			p.drop(key)
		}
		return Answer{}, q.queue.first
	}
	if q.queue.turn(w) && q.passes(now, c) {
		q.queue.leave(w)
		return Answer{Mark: q.passed}, q.queue.first
	}
	if w != nil {
		q.queue.join(w)
	}
	if q.queue.turn(w) {
		at := min(q.next, q.end)
		return Answer{Verb: Wait, Ask: at, Until: at}, nil
	}
	return Answer{Verb: Wait, Ask: Never}, nil
}

// quotaFor returns the quota of a key, made where there is none; p.mu is held.
// It returns nil where there is no room.
func (p *Pacing) quotaFor(now time.Duration, key uint64) *quota {
	if q := p.quotas[key]; q != nil {
		return q
	}
	if len(p.quotas) >= maxScopes {
		victim, found := p.victim(now)
		if !found {
			return nil
		}
		p.drop(victim)
	}
	if p.quotas == nil {
		p.quotas = make(map[uint64]*quota)
	}
	q := &quota{passed: p.passed, asked: p.passed}
	p.quotas[key] = q
	p.n.Store(int32(len(p.quotas)))
	return q
}

// victim returns the quota that ends first, or ended first, of those that
// nobody waits for.
func (p *Pacing) victim(now time.Duration) (victim uint64, found bool) {
	soonest := Never
	for key, q := range p.quotas {
		if q.queue.n == 0 && q.end < soonest {
			victim, soonest, found = key, q.end, true
		}
	}
	return victim, found
}

func (p *Pacing) drop(key uint64) {
	p.passed = max(p.passed, p.quotas[key].passed)
	delete(p.quotas, key)
	if len(p.quotas) == 0 {
		p.quotas = nil
	}
	p.n.Store(int32(len(p.quotas)))
}

// note takes in an answer; p.mu is held.
func (q *quota) note(now, end time.Duration, mark uint64, remaining, limit int64, c PacingConfig) {
	mark = min(mark, q.passed)
	before, newest := q.left, mark > q.asked
	same := now < q.end && !q.guessed && end <= q.end+pacingSlack && end >= q.end-pacingSlack
	if newest {
		remaining = max(0, remaining-int64(q.passed-mark))
		q.asked = mark
	}
	switch {
	case same && newest:
		q.left, q.limit = remaining, limit
		q.length = max(q.length, end-now)
	case same:
		q.left, q.limit = min(q.left, remaining), max(q.limit, limit)
		q.length = max(q.length, end-now)
	case now < q.end && q.guessed && !newest:
		// The window that was guessed: requests that passed in it meanwhile are
		// not all in what the server counted.
		q.left, q.limit = min(q.left, remaining), limit
		q.end, q.next, q.guessed = end, 0, false
		q.length = max(q.length, end-now)
	case now < q.end && !newest && (end < q.end || now < q.end-pacingSlack):
		return // a late answer of an earlier window, or one whose window cannot have begun
	default:
		// Another window.
		q.end, q.length, q.left, q.limit = end, end-now, remaining, limit
		q.next, q.guessed = 0, false
	}
	q.spread(now, before, c)
}

// spread computes when the next request goes; p.mu is held.
func (q *quota) spread(now time.Duration, before int64, c PacingConfig) {
	switch {
	case q.left > 0: // more may be left than when the slot was computed
		q.next = min(q.next, after(now, q.gap(now, c)))
	case before > 0 || q.next <= now:
		q.next = min(q.end, after(now, c.maxWait()))
	}
}

// gap returns the time between requests that would use the rest up just at the
// window's end.
func (q *quota) gap(now time.Duration, c PacingConfig) time.Duration {
	return min((q.end-now)/time.Duration(q.left+1), c.maxWait())
}

// roll begins the next window where one is over, and reports whether one is
// running; p.mu is held.
func (q *quota) roll(now time.Duration) bool {
	switch {
	case now < q.end:
		return true
	case q.guessed || now-q.end >= q.length:
		return false
	}
	q.end += q.length
	q.left, q.next, q.guessed = q.limit, 0, true
	return true
}

// passes reports whether one more may go and counts it; p.mu is held.
func (q *quota) passes(now time.Duration, c PacingConfig) bool {
	plenty := q.left > q.limit/pacingShare
	if !plenty && now < q.next {
		return false
	}
	q.passed++
	q.left = max(0, q.left-1)
	if !plenty {
		q.next = after(now, q.gap(now, c))
	}
	return true
}

func (c PacingConfig) maxWait() time.Duration {
	switch {
	case c.MaxWait == 0:
		return time.Minute
	case c.MaxWait < 0:
		return Never
	}
	return c.MaxWait
}
