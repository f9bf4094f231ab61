// A hold is what a cooldown knows of a scope that was told to wait. The rules are
// at Cooldown.

package cooldown

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

const (
	// rampStep, rampGrowth and rampTime shape the return after a hold.
	rampStep   = 100 * time.Millisecond
	rampGrowth = 2
	rampTime   = 10 * time.Second

	// These constants shape the doubt in a hold.
	maxProbes   = 2                      // in a run of holds
	minDoubt    = 2                      // below it a hold stands
	maxDoubt    = 12                     // successes that count at most
	refusalCost = 2                      // successes that a refusal outweighs
	testimony   = 100 * time.Millisecond // for the responses in flight, if no other time is known
	probeWait   = time.Second            // a probe without a response is given up
	putOff      = 4                      // so many times later comes the next probe if a probe in the fleet was refused
)

// A demand holds the wait that the responses of one code asked for.
type demand struct {
	end    instant.Instant // no request before this time
	refuse instant.Instant // requests are refused until this time
	named  instant.Instant // the time that the server named, if it is later than end
}

// A hold is the record of a scope that has to wait. No request goes before the time
// that the server named. With the jitter the hold lasts until open. Then its ramp
// begins. The lock of its Cooldown guards it.
type hold struct {
	own     [codes]demand          // of responses to this member
	heard   [codes]instant.Instant // the ends of the waits that only the fleet was told
	open    instant.Instant
	jitter  time.Duration   // the part of open that was drawn once for this run of holds
	next    instant.Instant // when the ramp lets the next request go, whatever is answered
	credits int32           // how many more requests the responses let go
	refusal uint32          // the number of the last refusal
	saved   ramp            // the ramp that this run of holds interrupted

	doubt   int8            // how much speaks against the hold
	probes  int8            // probes in this run of holds
	probeAt instant.Instant // no further probe before this time; until then a probe may be under way
	refused instant.Instant // when the last of the refused requests was sent
	told    instant.Instant // when the last refusal came
	news    instant.Instant // when the fleet last told of a refusal that put off the probe
	freeAt  instant.Instant // a success in the fleet ends the hold then; 0: there was none
	freed   bool            // the fleet told of a success in this run of holds
	deaf    instant.Instant // what the fleet says is not believed before this time
	ignored instant.Instant // when the fleet last said something that was not believed; 0: a success has followed

	// Two waiters hear of changes: the first in the queue, and the waiter with the
	// nearest deadline. When one of them goes or leaves, its successor hears. So an
	// event wakes at most two waiters, however many there are.
	queue queue.Queue
	dated *queue.Deadlines // the waiters in the queue that have a deadline; nil if there was none
}

// A ramp says how far the return of a scope had come at a time.
type ramp struct {
	at, open, next instant.Instant
	credits        int32
}

// newHold returns a hold that is over. A ramp of an earlier hold would be over, too.
func newHold() *hold { return &hold{open: instant.At(-rampTime)} }

// refuse notes a refusal of a request of this member. It reports whether the request was
// sent although the hold was known.
func (h *hold) refuse(now instant.Instant, r Refusal, conf Config, u float64) (again bool) {
	end := instant.After(now, min(r.Wait, conf.Max))
	if now >= h.named() {
		h.probes, h.refused, h.freed = 0, 0, false
	} else {
		again = r.Sent >= h.told
	}
	h.begin(now, end, conf, u)
	d := &h.own[r.Code]
	if now >= d.refuse {
		d.named = 0
	}
	if conf.Stop && r.Wait > conf.Max {
		d.refuse = max(d.refuse, end)
		d.named = max(d.named, instant.After(now, r.Wait))
	}
	d.end = max(d.end, end)
	h.deaf, h.freeAt = 0, 0
	h.doubt = max(0, h.doubt-refusalCost)
	if now < h.heardEnd() {
		h.doubt = 0 // two members were refused, so the hold is not about one of them
	}
	h.probeAt = h.reprobe(now, r, conf, u)
	if r.Sent <= 0 {
		r.Sent = now
	}
	h.refused = max(h.refused, r.Sent)
	h.told = now
	h.reopen()
	return again
}

// reprobe returns when the next probe may be sent after a refusal of a request of this
// member.
func (h *hold) reprobe(now instant.Instant, r Refusal, conf Config, u float64) instant.Instant {
	switch probed := h.probes >= maxProbes || h.probes > 0 && r.Sent >= h.told; {
	case now < h.heardEnd():
		return max(h.probeAt, now)
	case probed && conf.Members > 1:
		return instant.After(now, testimony+conf.turn(u)) // the fleet has to hear of the refusal first
	case probed:
		return now
	case r.Sent <= 0:
		return instant.After(now, testimony)
	}
	return instant.After(now, now.Sub(r.Sent))
}

// hear notes a refusal in another member of the fleet, and reports whether it is news.
func (h *hold) hear(now instant.Instant, r Refusal, conf Config, u float64) bool {
	if now < h.deaf {
		h.ignored = now
		return false
	}
	end := instant.After(now, min(r.Wait, conf.Max, queue.MaxHeard))
	longer := end > h.heard[r.Code]
	switch {
	case now >= h.named():
		h.probes, h.refused, h.freed, h.freeAt = maxProbes-1, now, false, 0 // the other member sends the other probe
		h.probeAt, h.news = instant.After(now, testimony+conf.turn(u)), now
		if h.doubt > minDoubt {
			h.doubt = max(minDoubt, h.doubt/2)
		}
	case now >= h.heardEnd(): // this member was refused as well, so the hold is not about the other
		h.doubt = 0
		h.probes = max(h.probes, maxProbes-1)
		h.probeAt, h.news = max(h.probeAt, instant.After(now, testimony+conf.turn(u))), now
	case now > h.news.Add(testimony) && (r.Again || end > instant.After(h.heard[r.Code], testimony)): // the probe of another member was refused
		if h.probes < maxProbes {
			h.probeAt = instant.After(now, putOff*(now.Sub(h.saved.at)+max(0, h.probeAt.Sub(now))))
		}
		h.news = now
	case !longer:
		return false
	}
	if longer {
		h.begin(now, end, conf, u)
		h.heard[r.Code] = end
		h.reopen()
	}
	h.told = now
	return true
}

// begin draws the jitter of a run of holds. A run has a single jitter. If the jitter were
// drawn per response and the largest were kept, a member with many requests in flight
// would end at the upper end of the jitter, and so would all other members.
func (h *hold) begin(now, end instant.Instant, conf Config, u float64) {
	if now >= h.open {
		h.saved = ramp{now, h.open, h.next, h.credits}
		h.jitter = time.Duration(u * float64(conf.jitter(end.Sub(now))))
	}
}

// changed returns the waiters to wake after a refusal.
func (h *hold) changed(now instant.Instant) queue.Pair {
	next := queue.Pair{nil, h.hurried()}
	if h.refusing(now) > 0 || h.undecided(now) {
		next[0] = h.queue.First()
	}
	return next
}

// answered takes note of a response that is no refusal.
func (h *hold) answered(now, sent instant.Instant, served bool) {
	if served {
		h.doubt = min(h.doubt+1, maxDoubt)
		h.contradict(now, sent)
	}
	switch later := sent > h.refused; {
	case served && h.recovers(now):
	case served && later && now < h.named() && h.doubt >= minDoubt:
		h.disprove(now)
	case now >= h.open && later:
		h.credits += rampGrowth
	}
}

// disprove ends the hold and begins the ramp. The ramp is needed because a quota that
// is refilled steadily has room for a request now and then, but not for all waiters at
// once.
func (h *hold) disprove(now instant.Instant) {
	h.ignore(now)
	heard := instant.Instant(0)
	if h.heardEnd() > h.ownEnd() {
		heard = now // the ramp is because of the fleet, too
	}
	h.own, h.heard = [codes]demand{}, [codes]instant.Instant{TooMany: heard}
	h.open, h.next, h.credits = now, instant.After(now, rampStep), rampGrowth
}

// ignore says that what the fleet said is wrong, so that this member does not believe
// it for some time.
func (h *hold) ignore(now instant.Instant) {
	if now < h.heardEnd() {
		h.deaf = max(h.deaf, instant.After(now, rampTime))
	}
}

// contradict prolongs the time for which the fleet is not believed, if a request of this
// member succeeded that was sent after the fleet said that it would not.
func (h *hold) contradict(now, sent instant.Instant) {
	if h.ignored > 0 && sent > h.ignored && now < h.deaf {
		h.ignored, h.deaf = 0, instant.After(now, rampTime)
	}
}

// recovers ends the demand of a 503 if a success arrives after it, and reports
// whether the hold is over then.
func (h *hold) recovers(now instant.Instant) bool {
	return now < h.end(Unavailable) && now > h.told && h.recovered(now)
}

// recovered ends the demand of a 503, and reports whether the hold is over then.
func (h *hold) recovered(now instant.Instant) bool {
	h.ignore(now)
	h.own[Unavailable], h.heard[Unavailable] = demand{}, 0
	if h.end(TooMany) > h.saved.at {
		h.reopen() // the demand of a 429 in the same run stands
		return now >= h.open
	}
	// The 503 was about one request and not about the host, so the ramp goes on
	// where it was interrupted. A new ramp would keep nearly all requests waiting
	// after each refusal, and a large server that sheds a little load would lose
	// most of its requests.
	h.open, h.next, h.credits = h.saved.open, h.saved.next, h.saved.credits
	return true
}

// free notes that a success has ended the hold in another member of the fleet. What only
// the fleet was told ends at a time. A member that was refused itself sends one probe
// more then, in case it was refused at random.
func (h *hold) free(at instant.Instant) {
	if h.freeAt == 0 || at < h.freeAt {
		h.freeAt = max(at, 1)
	}
	if !h.freed && h.freeAt < h.own[TooMany].end {
		h.freed = true
		h.doubt, h.probes, h.probeAt = max(h.doubt, minDoubt), min(h.probes, maxProbes-1), at
	}
}

// settle ends a hold at the time to which Free has put it off.
func (h *hold) settle(now instant.Instant) {
	if h.freeAt == 0 || now < h.freeAt {
		return
	}
	h.freeAt = 0
	if now < h.end(Unavailable) {
		h.recovered(now)
	}
	if now < h.heard[TooMany] {
		h.ignore(now)
		h.heard[TooMany], h.jitter = now, 0
		h.reopen()
	}
}

// reopen computes when the hold ends, and begins its ramp anew.
func (h *hold) reopen() {
	h.open = instant.After(h.named(), h.jitter)
	h.credits = 0
	h.next = h.open
}

// end returns the last time that the responses of a code named.
func (h *hold) end(code Code) instant.Instant { return max(h.own[code].end, h.heard[code]) }

// named returns the last time that the server named.
func (h *hold) named() instant.Instant { return max(h.end(TooMany), h.end(Unavailable)) }

// heardEnd returns the end of the longest wait that only the fleet was told.
func (h *hold) heardEnd() instant.Instant { return max(h.heard[TooMany], h.heard[Unavailable]) }

// ownEnd returns the last time that the server named to this member.
func (h *hold) ownEnd() instant.Instant { return max(h.own[TooMany].end, h.own[Unavailable].end) }

// holding returns which codes hold the scope.
func (h *hold) holding(now instant.Instant) (held [codes]bool) {
	for code := range codes {
		held[code] = now < h.end(code)
	}
	return held
}

// The classes of holds say how much is lost if one is forgotten.
const (
	overNow     = iota // nobody waits
	forgettable        // the fleet brought it, and nobody waits
	ownHold            // nobody waits
	returning          // it is over, and waiters come back in its ramp
	waitedFor          // it is never forgotten
)

// worth returns how much is lost if the hold is forgotten. The waiters of a forgotten hold are no
// longer spread by its ramp.
func (h *hold) worth(now instant.Instant) queue.Worth {
	w := queue.Worth{Class: ownHold, End: h.open}
	switch over, waits := now >= h.open, h.queue.Len() > 0; {
	case over && waits:
		w.Class = returning
	case waits:
		w.Class = waitedFor
	case over:
		w.Class = overNow
	case now >= h.ownEnd():
		w.Class = forgettable
	}
	return w
}
