package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// A roster is what this member knows of the members, by the heartbeats.
type roster struct {
	size   atomic.Int64              // how many there are
	beaten atomic.Pointer[time.Time] // the last heartbeat that succeeded

	telling sync.Mutex // is held while the Transport is told the size, so that it hears the last size last

	mu      sync.Mutex // guards the fields below
	reached bool       // there was a connection to Redis
	told    int        // the size that the Transport was told
	held    heldSize
	clock   clock
	keys    int64 // how many different keys the members have
}

// members returns how many members there are, as far as is known.
func (r *roster) members() int { return max(1, int(r.size.Load())) }

// beatEvery returns the time between two heartbeats.
func (r *roster) beatEvery() time.Duration {
	return min(max(beatEach, time.Duration(r.size.Load())*beatSize), beatMost)
}

// beatGap returns the least time between two heartbeats.
func (r *roster) beatGap() time.Duration {
	return min(max(minGap, time.Duration(r.size.Load())*beatSize), beatMost)
}

// setSize notes the number of members in the reply to a heartbeat, and how often Redis was lost.
func (r *roster) setSize(n int, lost uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size.Store(int64(r.held.hear(time.Now(), n, r.beatEvery(), lost)))
}

// reach notes that there is a connection to Redis. Until Redis has said how many members there
// are, the Transport hears of this one, so that it waits longer for its first answer.
func (r *roster) reach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = true
}

// toTell returns the size if the Transport has to hear it.
func (r *roster) toTell() (n int, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = int(r.size.Load()); r.reached {
		n = max(n, 1)
	}
	news = n > 0 && n != r.told
	r.told = n
	return n, news
}

// setKeys notes how many different keys the members have. It reports true when they begin to
// differ.
func (r *roster) setKeys(keys int64) (differ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	differ = keys > 1 && r.keys <= 1
	r.keys = keys
	return differ
}

// setClock notes that Redis read its clock between two times. It reports true if the clock has
// jumped.
func (r *roster) setClock(start, end time.Time, redis int64) (jumped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock.set(start, end, redis)
}

// now returns what is known of the clock of Redis.
func (r *roster) now() clock {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock
}

// A held size is the number of members that this member goes by. A larger number counts at
// once. A smaller one counts only when Redis has named no larger one for as long as a
// heartbeat of a member may be away, without an interruption. A Redis that starts empty
// counts the members anew, and may die before it has heard of all of them. If each member
// believed the first number, their parts of a rate would add up to a multiple of it.
type heldSize struct {
	n    int       // the members to go by
	most int       // the largest number since from
	from time.Time // since when Redis has named only smaller numbers; zero: it has not
	last time.Time // when Redis named a number last
	lost uint64    // how often Redis had been lost then
}

// hear takes a number and returns the members to go by. every is the time between two
// heartbeats, and lost is how often Redis was lost in all. A Redis that lives shortly but often
// may name a number with each heartbeat.
func (h *heldSize) hear(now time.Time, n int, every time.Duration, lost uint64) int {
	broken := now.Sub(h.last) > 2*every || lost != h.lost
	h.last, h.lost = now, lost
	switch {
	case n >= h.n:
		h.n, h.from = n, time.Time{}
	case h.from.IsZero() || broken:
		h.most, h.from = n, now
	default:
		h.most = max(h.most, n)
		if now.Sub(h.from) >= 3*every+time.Second {
			h.n, h.from = h.most, time.Time{}
		}
	}
	return h.n
}
