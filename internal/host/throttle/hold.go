// A hold and its bounds.

package throttle

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A Config bounds holds. Zero fields take the defaults.
type Config struct {
	// Max is the longest time for which a single response can hold a scope. The
	// default is 1 min. A negative Max means no bound.
	Max time.Duration
	// Jitter is the width of the jitter at the end of a hold. The jitter keeps
	// members that were told the same time from coming back in the same
	// instant. It only ever makes a hold longer. The default is half the wait,
	// at most 1 s. A negative Jitter means no jitter.
	Jitter time.Duration
}

// Longest returns the longest time for which a response can hold a scope.
func (c Config) Longest() time.Duration { return instant.Bound(c.Max) }

// jitter returns the width of the jitter after a wait.
func (c Config) jitter(wait time.Duration) time.Duration {
	if c.Jitter == 0 {
		return min(wait/2, time.Second)
	}
	return max(0, c.Jitter)
}

// These constants shape the return after a hold.
const (
	rampStep   = 100 * time.Millisecond
	rampGrowth = 2
	rampTime   = 10 * time.Second

	// At most 20 requests go at once, and then one every rampGap. These are 300 in a step.
	rampGap   = rampStep / 280
	rampBurst = 19 * rampGap
)

// A hold is the record of a scope that has to wait. No request goes before the time
// that the server named. With the jitter the hold lasts until open. Then its ramp
// begins. The lock of its Throttle guards it.
type hold struct {
	named   instant.Instant // the last time that the server named
	open    instant.Instant
	jitter  time.Duration   // the part of open that was drawn once for this run of holds
	next    instant.Instant // when the ramp lets the next request go, whatever is answered
	credits int32           // how many more requests the responses let go
	room    instant.Instant // from rampBurst before it on there is room for a further request

	// The first waiter hears when its turn has come. When it goes or leaves, its successor
	// hears. So an event wakes one waiter, however many there are.
	queue queue.Queue
}

// lengthen holds the scope for as long as a response asked, and begins the ramp anew. A run of holds has a single jitter. If the
// jitter were drawn per response and the largest were kept, a member with many requests in flight
// would end at the upper end of the jitter, and so would all other members.
func (h *hold) lengthen(now instant.Instant, wait time.Duration, conf Config, u float64) {
	if now >= h.open {
		h.jitter = time.Duration(u * float64(conf.jitter(wait)))
	}
	h.named = max(h.named, instant.After(now, wait))
	h.open = instant.After(h.named, h.jitter)
	h.next, h.credits = h.open, 0
}

// opens returns when the hold is over for w. Its patience ends no jitter and no ramp, because everybody who came at the begin of a
// long hold would go at once then. The jitter takes at most half of the time from the named end to the deadline of w.
func (h *hold) opens(w *queue.Waiter) instant.Instant {
	switch {
	case w == nil:
		return h.open
	case 0 < w.Until && w.Until < h.named:
		return w.Until
	case w.By > h.named:
		return min(h.open, h.named.Add(w.By.Sub(h.named)/2))
	}
	return h.open
}

// over reports whether the ramp lets newcomers go.
func (h *hold) over(now instant.Instant) bool { return now >= instant.After(h.open, rampTime) }

// forgotten reports whether nothing has to be remembered any more.
func (h *hold) forgotten(now instant.Instant) bool { return h.over(now) && h.queue.Len() == 0 }

// passes reports whether w may go now, and uses up its turn in the ramp.
func (h *hold) passes(now instant.Instant, w *queue.Waiter) bool {
	switch own := h.opens(w); {
	case now < own:
		return false
	case own < h.open:
		return true // its deadline or its patience leaves no time to wait for longer
	case h.over(now) && !h.queue.Has(w):
		return true
	case !h.queue.Turn(w):
		return false
	}
	switch {
	case now < h.room.Add(-rampBurst):
		return false
	case now >= h.next:
		// Turns that nobody used are not saved up. A turn that was used a little
		// late does not delay the next turn.
		if h.next = h.next.Add(rampStep); h.next <= now {
			h.next = now.Add(rampStep)
		}
	case h.credits > 0:
		h.credits--
	default:
		return false
	}
	h.room = max(h.room, now).Add(rampGap)
	return true
}

// wait puts w in the queue and tells it when to ask again.
func (h *hold) wait(now instant.Instant, w *queue.Waiter) queue.Answer {
	if w != nil {
		h.queue.Join(w)
	}
	// Behind the hold, a waiter that is not first is woken when its turn comes. The end of
	// the ramp is for the case that a waiter before it neither asks nor leaves.
	a := queue.Answer{Verb: queue.Wait, Ask: instant.After(now, rampTime), Until: h.named}
	switch own := h.opens(w); {
	case now < own:
		a.Ask, a.Until, a.Open = own, min(own, h.named), h.open
	case h.queue.Turn(w):
		a.Ask = h.room.Add(-rampBurst)
		if h.credits == 0 {
			a.Ask = max(a.Ask, h.next)
		}
		a.Until = a.Ask
	}
	return a
}

// Spare is for [queue.Scopes]. The waiters of a hold that is over stay, to be spread by its ramp.
func (h *hold) Spare() (end instant.Instant, ok bool) { return h.open, h.queue.Len() == 0 }
