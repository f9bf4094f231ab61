// Package ledger keeps a fleet's knowledge of a host. It says whether the host is down, and which
// tokens of a rate a member may take. A backend of a fleet keeps one ledger for all members. This
// package is the plain form of its rules. The scripts of the module fleet do the same inside
// Redis, and a test compares the two. The simulations use this package as it is.
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
// The host is down since the latest of the times at which the rows began. The members share its
// probes then. A member whose own requests have not failed obeys with all but its next request, and its
// success ends the outage. So it is held up for the time of one response.
//
// The first success that a member reports ends the outage. Two outages begin 10 s apart or more. So the
// members that fail cannot stop the idle members again and again, if another member has
// successes and ends each outage at once.
package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// The constants of an outage. See the package comment.
const (
	Quorum      = 3
	MinFailures = 10
	MinTime     = 2 * time.Second
	MinApart    = 10 * time.Second // between the beginnings of two outages
	ReportTime  = 10 * time.Second // how long a report counts
	MaxReports  = 16               // members whose reports are kept

	// MaxReturn and ReturnEach shape the return after a success: the members come back
	// within ReturnEach for each of them, and MaxReturn at most.
	MaxReturn  = 5 * time.Second
	ReturnEach = 100 * time.Millisecond
)

// A Host is the outage of a host, as the fleet knows it. The zero Host is ready. The scripts of
// module fleet have the same fields in the same order.
type Host struct {
	down    bool
	since   instant.Instant // the host is down since then
	next    instant.Instant // no outage begins before this time
	worked  instant.Instant // when the last success was reported; 0: none was
	failing []report
}

// A report says how often a member has failed in a row.
type report struct {
	member    int64
	failures  int
	since, at instant.Instant
}

// Failing takes a member's report: failures in a row, the first of them at since. It
// returns true if the host is down from now on, and the time since when.
func (h *Host) Failing(now instant.Instant, member int64, failures int, since instant.Instant, members int) (down bool, from instant.Instant) {
	if h.down || since <= h.worked {
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
	if now < h.next || rows < max(2, min(Quorum, members)) || sum < MinFailures {
		return false, 0
	}
	h.down, h.since, h.next, h.failing = true, last, now.Add(MinApart), nil
	return true, last
}

// Working takes a report of a success. It returns true if the host was down, so that all members
// have to hear of it.
func (h *Host) Working(now instant.Instant) (up bool) {
	up = h.down
	h.down, h.worked, h.failing = false, now, nil
	return up
}

// IsDown reports whether the host is down.
func (h *Host) IsDown() bool { return h.down }

// Since returns since when the host is down.
func (h *Host) Since() instant.Instant { return h.since }

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

// Tokens are given ahead of their time, so that a member can use each at its time without
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
//     as far ahead as a token may be. The tokens for which a full bucket has no room pay the rest
//     of the debt.
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
// Take forgets tokens that are too far ahead.
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
