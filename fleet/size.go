package fleet

import "time"

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
