// Package ledger is what a fleet knows of a host. It says whether the host is down, which
// member may probe it, and which tokens of a rate a member may take. A backend of a fleet
// keeps one ledger for all members. This package is the plain form of its rules. The
// scripts of the module fleet do the same inside Redis, and a test compares the two. The
// simulations use this package as it is.
//
// Nothing in it sleeps or reads a clock. Times count from any epoch that the caller
// chooses, and are positive. So are the numbers of members. A ledger is not safe for concurrent use.
//
// # When a host is down
//
// A member reports that its requests fail, with the number of failures in a row and the
// time when the row began. A report counts once the row is 2 s old. The host is down for
// the fleet if all of this holds for the reports that count:
//
//   - They are of at least 3 members, or of all members if the fleet has only 2.
//   - Together they have 10 failures or more.
//
// A success of any member withdraws all reports. So members that cannot reach a host for
// reasons of their own count only while nobody else uses the host.
//
// The host is down since the latest of the times at which the rows began. If a request of a
// member succeeded that was sent later, the member does not obey, and says that the host
// works. Since rows count from an age of 2 s, a member that has a success every second is
// never stopped. Later means two round trips, but from 100 ms to 1 s. A host that froze may
// have lost requests that were sent a little before the last that it answered.
//
// Such an objection ends the outage. For 10 s after it there is no other outage, so that the
// members that fail cannot stop the idle members again and again.
//
// # Who may probe
//
// One probe is under way in the whole fleet. After it has failed, no probe goes for
// 0.5 s. The member that sent it waits twice as long, so that others have their turn. A
// member whose probe failed comes after the members that have sent none. So members that
// cannot reach the host do not keep it from the first request of a member that can. A
// permit is lent for 1 s. The member asks again every 0.3 s while its probe is under way,
// and each time the permit lasts for 1 s more. So if the member dies, another soon sends a
// probe. A probe that did not end after 10 s counts as failed, however often its member
// asks. So a member that hears nothing cannot keep the permit.
// The members that were refused ask again one after the other.
package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The constants of an outage and of the probes. See the package comment.
const (
	Quorum      = 3
	MinFailures = 10
	MinTime     = 2 * time.Second
	Objection   = 10 * time.Second // no outage after an objection
	ReportTime  = 10 * time.Second // how long a report counts
	MaxReports  = 16               // members whose reports are kept
	DownTime    = time.Minute      // how long an outage lasts without a probe
	ProbeTime   = 10 * time.Second // how long a probe may be under way
	LendTime    = time.Second      // how long a permit lasts unless its member asks again
	ProbeGap    = 500 * time.Millisecond

	// MaxReturn and ReturnEach shape the return after a success: the members come back
	// within ReturnEach for each of them, and MaxReturn at most.
	MaxReturn  = 5 * time.Second
	ReturnEach = 100 * time.Millisecond

	// AskEach is the time between two members that ask for a probe again after they were
	// refused. So the whole fleet asks a hundred times per second, and the next probe goes
	// soon after it may go.
	AskEach = 10 * time.Millisecond

	// MaxTried bounds the members that are known to have failed, and AskSlack is how late a
	// member may ask.
	MaxTried = 32
	AskSlack = 100 * time.Millisecond
)

// A Host is what the fleet knows of a host. The zero Host is ready. The scripts of module
// fleet have the same fields in the same order.
type Host struct {
	down    bool
	since   instant.Instant // the host is down since then
	fresh   instant.Instant // the outage lapses DownTime after this
	quiet   instant.Instant // no outage before this time
	worked  instant.Instant // when the last success was reported; 0: none was
	prober  int64           // the member whose probe is under way or was the last
	probing instant.Instant // when its permit was granted first; 0: no probe is under way
	free    instant.Instant // no other probe before this time
	failing []report
	turn    instant.Instant // when the last member that was refused asks again
	tried   []int64         // the last members whose probe failed
	others  instant.Instant // until then a member is expected to ask that is not in tried
}

// A report is what a member said of its failures.
type report struct {
	member    int64
	failures  int
	since, at instant.Instant
}

// Failing takes a member's report: failures in a row, the first of them at since. It
// returns true if the host is down from now on, and the time since when.
func (h *Host) Failing(now instant.Instant, member int64, failures int, since instant.Instant, members int) (down bool, from instant.Instant) {
	if h.IsDown(now) || now < h.quiet || since <= h.worked {
		return false, 0
	}
	h.failing = slices.DeleteFunc(h.failing, func(r report) bool { return r.member == member || now.Sub(r.at) > ReportTime })
	if len(h.failing) < MaxReports {
		h.failing = append(h.failing, report{member, failures, since, now})
	}
	rows, sum, last := 0, 0, instant.Instant(0)
	for _, r := range h.failing {
		if now.Sub(r.since) >= MinTime {
			rows, sum, last = rows+1, sum+min(max(r.failures, 0), MinFailures), max(last, r.since)
		}
	}
	if rows < max(2, min(Quorum, members)) || sum < MinFailures {
		return false, 0
	}
	h.down, h.since, h.fresh, h.failing = true, last, now, nil
	return true, last
}

// Working takes a member's report of a success. It returns true if the host was down or if
// this was its probe, so that all members have to hear of it.
func (h *Host) Working(now instant.Instant, member int64) (up bool) {
	probe := h.probing > 0 && h.prober == member
	up = h.IsDown(now) || probe
	if h.IsDown(now) && !probe {
		h.quiet = now.Add(Objection)
	}
	if up {
		*h = Host{quiet: h.quiet, prober: h.prober, free: now, turn: now}
	}
	h.failing, h.down, h.worked = nil, false, now
	return up
}

// IsDown reports whether the host is down.
func (h *Host) IsDown(now instant.Instant) bool { return h.down && now.Sub(h.fresh) < DownTime }

// Since returns since when the host is down.
func (h *Host) Since() instant.Instant { return h.since }

// Probe asks for the right to send a probe. If it is not granted, the member should ask
// again after wait. The members come back one after the other.
func (h *Host) Probe(now instant.Instant, member int64, members int) (granted bool, wait time.Duration) {
	mine, free := h.prober == member, h.free
	switch {
	case mine && h.probing > 0 && now < free:
		h.free = min(now.Add(LendTime), h.probing.Add(ProbeTime)) // the probe is under way, or the answer was lost
		return true, 0
	case mine:
		free = free.Add(ProbeGap)
	}
	tried := slices.Contains(h.tried, member)
	if now < free || tried && now < h.others {
		// If all that are refused at the same time came back at the same time, no member
		// would ask in between.
		last := now.Add(max(ProbeGap, time.Duration(members)*AskEach)) // some may have ended
		h.turn = min(max(h.turn.Add(AskEach), now.Add(min(max(free.Sub(now), AskEach), ProbeGap))), last)
		if !tried {
			h.others = h.turn.Add(AskSlack)
		}
		return false, h.turn.Sub(now)
	}
	if !tried {
		h.others = 0
	}
	h.prober, h.probing, h.free = member, now, now.Add(LendTime)
	h.fresh = now
	return true, 0
}

// ProbeFailed ends a member's probe.
func (h *Host) ProbeFailed(now instant.Instant, member int64) {
	if h.probing > 0 && h.prober == member {
		h.probing, h.free = 0, now.Add(ProbeGap)
		h.tried = append(slices.DeleteFunc(h.tried, func(m int64) bool { return m == member }), member)
		if len(h.tried) > MaxTried {
			h.tried = h.tried[1:]
		}
	}
}

// ReturnTime returns the time within which so many members return.
func ReturnTime(members int) time.Duration {
	return min(time.Duration(members)*ReturnEach, MaxReturn)
}

// Tokens is the rate of a host, for all members together. It is a GCRA, the token bucket
// of ATM, whose state is a single time. The other fields are for members that have sent without
// tokens. The zero Tokens is a full bucket.
type Tokens struct {
	next    instant.Instant // when the next token may be used if the bucket is empty
	debt    time.Duration   // the time of tokens that are yet to be taken; below 0: that were taken ahead
	asked   instant.Instant // when a member got the last answer
	resumed instant.Instant // when the first member got an answer after an interruption
	used    bool
}

// Tokens are given ahead of their time, so that a member can use one at its time without
// another question.
const (
	// FirstAhead bounds the first token of an answer, and MoreAhead the others. The first
	// may be further ahead, so that a member that wants little gets its token although
	// others have taken all tokens of the near future.
	FirstAhead = 500 * time.Millisecond
	MoreAhead  = 250 * time.Millisecond

	// A slower rate counts as a token per MaxEvery.
	MaxEvery = 24 * time.Hour
)

// An Absence says for how long a member got no answers, and how many tokens it used by itself
// meanwhile. Due is when the next token was due as far as the member knew before, for a bucket that
// was lost. It is so much after now, and counts if the member is Sure.
type Absence struct {
	Silence time.Duration
	Spent   float64
	Due     time.Duration
	Sure    bool
}

// Repay takes the tokens from the bucket that a member has used by itself. The rules:
//
//   - If nobody got an answer for most of the member's silence, all members were silent. First
//     they have used the tokens that were given ahead, or dropped them and sent as many. Then
//     they have sent their parts, which add up to the rate. The tokens for that are taken at
//     once, for this member and for those that come back later. So the bucket is as full as
//     before.
//   - Other tokens are taken from those that were saved, and then from those to come, at most
//     as far ahead as a token may be. What is still owed then is paid by the tokens for which a
//     full bucket has no room.
func (t *Tokens) Repay(now instant.Instant, perSecond float64, burst int, a Absence) {
	every := interval(perSecond)
	if t.used && t.debt > 0 {
		t.debt = max(0, t.debt-max(0, now.Sub(t.next)-saved(every, burst)))
	}
	gap := a.Silence
	if t.used {
		gap = min(gap, now.Sub(t.asked))
	}
	if due := now.Add(min(a.Due, ahead(every))); a.Sure && (!t.used || t.next < due) {
		t.next, t.used = due, true
	}
	if 2*gap > a.Silence {
		taken := gap
		if t.used {
			taken = min(gap, max(0, now.Sub(t.next)))
			t.next = t.next.Add(taken)
		}
		t.debt, t.resumed = -taken, now
	}
	if a.Silence > 0 && now.Add(-a.Silence) > t.resumed {
		t.debt = max(t.debt, 0) // this member was not silent then
	}
	t.debt += time.Duration(min(a.Spent*float64(every), float64(MaxWait)))
	t.pay(now, every, burst)
}

// pay takes the tokens that are owed from the bucket. The rest has to be paid later, because
// Take forgets what is too far ahead.
func (t *Tokens) pay(now instant.Instant, every time.Duration, burst int) {
	if t.debt <= 0 {
		return
	}
	next := now.Add(-saved(every, burst))
	if t.used {
		next = max(next, t.next)
	}
	t.debt = min(t.debt, max(0, now.Sub(next))+ahead(every)) // nobody stops the others for longer
	paid := min(t.debt, max(0, now.Add(ahead(every)+every).Sub(next)))
	t.next, t.debt, t.used = next.Add(paid), t.debt-paid, true
}

// GiveBack puts tokens back that a member was given and does not use.
func (t *Tokens) GiveBack(now instant.Instant, perSecond float64, burst, n int) {
	if every := interval(perSecond); t.used {
		back := time.Duration(min(float64(n)*float64(every), float64(MaxWait)))
		t.next = max(t.next.Add(-back), min(t.next, now.Add(-saved(every, burst))))
	}
}

// saved returns the time in which a bucket becomes full.
func saved(every time.Duration, burst int) time.Duration {
	return time.Duration(min(float64(burst-1)*float64(every), float64(math.MaxInt64/4))) // a product of integers may overflow
}

// interval returns the time between two tokens.
func interval(perSecond float64) time.Duration {
	if ns := float64(time.Second) / perSecond; ns < float64(MaxEvery) {
		return max(1, time.Duration(ns))
	}
	return MaxEvery
}

// ahead returns how far ahead the first token of an answer may be.
func ahead(every time.Duration) time.Duration { return max(FirstAhead, every) }

// Take gives a member up to want tokens: n tokens, the first to be used at first, the
// others every so much later. If n is 0, the member should not ask again before again.
func (t *Tokens) Take(now instant.Instant, perSecond float64, burst, want int) (n int, first instant.Instant, every, again time.Duration) {
	every = interval(perSecond)
	t.asked = now
	limit := ahead(every)
	// If all members ask for the same rate, the next token is at most that far ahead. A
	// member with a slower rate may have taken a token far ahead. It must not stop the
	// others for so long.
	t.next = min(t.next, now.Add(limit+every))
	first = now.Add(-saved(every, burst))
	if t.used {
		first = max(first, t.next)
	}
	if first.Sub(now) > limit {
		return 0, 0, every, first.Sub(now) - limit/2
	}
	n = min(want, max(1, 1+int((MoreAhead-first.Sub(now))/every)))
	t.next, t.used = first.Add(time.Duration(n)*every), true
	return n, first, every, 0
}
