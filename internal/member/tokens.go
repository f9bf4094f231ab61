// Tokens of a rate that the members share.

package member

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/rate"
)

const (
	// AnswerTime is how long a member waits for an answer of the fleet. Then it goes on
	// by its own knowledge. So a fleet that does not answer stops nobody.
	AnswerTime = 10 * time.Millisecond
	// FirstTime is how long after its first question of all a member waits for answers. It
	// does not know yet how many share the rate. If many members start together, each of them
	// would send as much as all may.
	FirstTime = 250 * time.Millisecond
	// MetTime is FirstTime for a member that has heard of the fleet. That so many start
	// together may be the reason why the answer takes long.
	MetTime = time.Second

	// askEvery is the mean time between two questions for tokens, at least. A random time
	// up to askJitter is added. Two members that always asked in the same order would
	// share the tokens unevenly. Up to askBurst questions may follow each other at once,
	// for requests that come together. So there are ten in any second at most.
	askEvery  = 130 * time.Millisecond
	askJitter = 40 * time.Millisecond
	askBurst  = 3

	// tokenLife is how long a token can be used. A member that pauses does not save up
	// the tokens of others.
	tokenLife = time.Second
)

// tokens are the rate.Tokens of a host. The rules:
//
//   - The member asks for as many tokens as requests wait, and for twice as many as it
//     used since it asked last. It asks ten times in a second at most. So a client that
//     sends one request after the other is soon at its full speed.
//   - If there is no answer within 10 ms, or within the first time of all (see [FirstTime]), the
//     fleet is silent. The member then uses its part of the rate, from a random time on. It goes
//     on asking while requests wait. An answer in time ends this.
//     The tokens of an answer that comes late are not used.
//   - If the fleet names no token that can be used soon for 2 s, or for four times as long as it takes
//     until each member could have a token, it counts as silent as well. A random time is added, up
//     to as much. Otherwise all members that became hungry together would send together.
//   - When the member asks again, it says how many tokens it used by itself, so that the fleet
//     takes them from the rate. Tokens of the fleet that it dropped pay for the first of them.
//   - Other members may have other rules. The fleet then gives each of them tokens, and
//     the member itself keeps to its own rate.
type tokens struct {
	askAt atomic.Int64 // no question for tokens before this time; written with the lock

	mu     sync.Mutex  // the lock, if a comment says that it is held; guards everything below
	conf   rate.Config // zero: the host has no rate
	bucket rate.Bucket // with the member's own part of the rate
	part   int         // of the burst that is the member's own
	silence
	leases  []lease
	asking  bool
	asked   instant.Instant
	until   instant.Instant // when the fleet is silent if there is no answer
	due     instant.Instant // when to ask next without a burst
	want    int             // tokens that the last question asked for
	used    int             // tokens used since the last question
	need    int             // tokens that the first waiter needs together; 0: one at a time
	needed  instant.Instant // when it asked for them last
	members int             // of the fleet
	hungry  instant.Instant // since when all answers are without tokens; 0: the last had some, or was late
	luck    float64         // random, in [0,1), drawn at each question unless it is hungry
	own     instant.Instant // no token of this member before this time
}

// A silence is the time since the fleet has not answered.
type silence struct {
	silent bool
	since  instant.Instant // when the first question was asked that got no answer, if silent
	spent  int             // tokens used since then, less those of the fleet that were dropped
	told   int             // tokens of spent that the last question told of
}

// A lease is n tokens, the first of them for the time at, the others every so much later.
type lease struct {
	at    instant.Instant
	every time.Duration
	n     int
}

// A question asks the fleet for tokens. If the fleet was silent, it says for how long, and how many
// tokens the member has used by itself.
type question struct {
	rate    rate.Config
	want    int
	silence time.Duration
	spent   int
}

// Set changes the rate.
func (s *tokens) Set(now instant.Instant, c rate.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conf == (rate.Config{}) {
		s.own, s.members = -instant.Never, 1
	} else if c.PerSecond != s.conf.PerSecond {
		s.forget(now)
	}
	s.conf = c
	s.divide(now)
}

// share notes the size of the fleet, and reports whether it is new.
func (s *tokens) share(now instant.Instant, members int) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed = s.members != members && s.members > 0; changed {
		s.members = members
		s.divide(now)
	}
	return changed
}

// mayAsk reports whether it may be time to ask the fleet for tokens. It is a single atomic load.
func (s *tokens) mayAsk(now instant.Instant) bool { return int64(now) >= s.askAt.Load() }

// ask returns the question for the fleet now, while requests wait for so many tokens. ok is false if there is nothing to ask.
// patience is how long the request that asks, or that comes while an answer is awaited, can wait for it. u in [0,1) draws the
// jitter.
func (s *tokens) ask(now instant.Instant, waiting int, patience time.Duration, u float64) (q question, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := instant.After(now, patience)
	if s.members == 0 || !s.mayAsk(now) {
		return q, false
	}
	if s.asking && now < s.until {
		s.until = min(s.until, until)
		return q, false
	}
	s.fromFleet(now)
	s.expire(now)
	if waiting > 0 && now < instant.After(s.needed, 2*tokenLife) {
		waiting = max(waiting, s.need)
	}
	want := waiting + 2*s.used - s.left()
	if want <= 0 {
		return q, false
	}
	q = question{rate: s.conf, want: want}
	if s.silent {
		q.silence, q.spent = s.until.Sub(s.since), max(0, s.spent)
	}
	s.asking, s.asked, s.until, s.want, s.used, s.told = true, now, until, want, 0, q.spent
	if s.hungry == 0 {
		s.luck = u
	}
	s.due = max(s.due, now).Add(askEvery + time.Duration(u*float64(askJitter)))
	s.askAt.Store(int64(s.due.Add(-(askBurst - 1) * askEvery)))
	return q, true
}

// giveBack returns the tokens of the fleet that were not used, and drops them.
func (s *tokens) giveBack(now instant.Instant) (unused question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	unused = question{rate: s.conf, want: s.left()}
	s.leases = nil
	return unused
}

// left returns how many tokens are leased.
func (s *tokens) left() (n int) {
	for _, l := range s.leases {
		n += l.n
	}
	return n
}

// grant is the fleet's answer: n tokens, the first for the time at. If n is 0, the member
// does not ask again before the time again. More tokens than the member wanted do not
// count. Neither do times that are further away than a second, or two tokens at this rate. And
// the member never takes more than the whole rate and its burst.
func (s *tokens) grant(now instant.Instant, n int, at instant.Instant, every time.Duration, again instant.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asking {
		return // too late
	}
	far := max(tokenLife, 2*interval(s.conf.PerSecond))
	n = min(n, s.want)
	feeds := n > 0 && at <= instant.After(now, far)
	switch {
	case feeds:
		s.hungry = 0
	case s.hungry == 0:
		s.hungry = now
	}
	endures := (1 + s.luck) * float64(max(2*tokenLife, interval(s.conf.PerSecond/(4*float64(s.members)))))
	starves := !feeds && now > instant.After(s.hungry, time.Duration(endures))
	inTime := now < s.until
	// If the answer is late, the fleet is silent from now on, also if no request has looked
	// since. Otherwise a fleet that always takes a little too long would stop the rate.
	if s.fromFleet(now) && starves {
		s.hearNothing(now)
	}
	s.asking = false
	s.spent = max(s.spent-s.told-n, -s.want)
	if inTime && !starves {
		s.silent = false
		if feeds {
			least := interval(s.conf.PerSecond)
			every = min(max(every, least), far)
			saved := min(float64(s.conf.Burst-1)*float64(least), float64(instant.Forever/4))
			at = max(at, s.own, now.Add(-time.Duration(saved)))
			s.own = instant.After(at, time.Duration(n)*every)
			s.lease(now, n, at, every)
		}
		s.askAt.Store(max(s.askAt.Load(), int64(min(again, instant.After(now, far)))))
	}
}

// lease takes n tokens, the first of them for the time at. Those whose time has come can be
// used from now on.
func (s *tokens) lease(now instant.Instant, n int, at instant.Instant, every time.Duration) {
	if at <= now {
		saved := int(min(int64(n), int64(now.Sub(at)/every)+1))
		s.leases = append(s.leases, lease{now, 0, saved})
		at, n = at.Add(time.Duration(saved)*every), n-saved
	}
	if n > 0 {
		s.leases = append(s.leases, lease{at, every, n})
	}
}

// count counts the tokens of a send, to know for how many to ask the fleet.
func (s *tokens) count(n int) {
	if s.used += n; s.silent {
		s.spent += n
	}
}

// forget drops the tokens and the waits that the fleet gave for another rate; the lock is held.
// They may lie far ahead if that rate was low.
func (s *tokens) forget(now instant.Instant) {
	s.leases, s.own, s.due = nil, -instant.Never, now
	s.askAt.Store(int64(now))
}

// interval returns the time between two tokens of a rate, a day at most.
func interval(perSecond float64) time.Duration {
	return time.Duration(min(float64(time.Second)/perSecond, float64(24*time.Hour)))
}

// WaitFor returns how long it takes until there are n tokens. For tokens of the fleet that are not leased yet, it is how long it
// takes until the fleet has answered.
func (s *tokens) WaitFor(now instant.Instant, n int, first bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.collect(now, n)
	}
	if !s.fromFleet(now) {
		if first {
			n = min(n, s.part)
		}
		return s.orAnswer(now, s.bucket.WaitFor(now, n, first)).Sub(now)
	}
	s.expire(now)
	if at, enough := s.last(n); enough {
		return max(0, at.Sub(now))
	}
	return s.answer(now).Sub(now)
}

// Take takes n tokens, of the fleet or of the member's own part. Of a bucket that has only a part of the burst, the rest is owed: the
// member waits for it afterwards.
func (s *tokens) Take(now instant.Instant, n int, queued bool) (ask instant.Instant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collect(now, n)
	if s.fromFleet(now) {
		return s.takeLeased(now, n)
	}
	some := min(n, s.part)
	if ask, ok = s.bucket.Take(now, some, queued); !ok {
		return s.orAnswer(now, ask.Sub(now)), false
	}
	s.count(n)
	s.bucket.Owe(now, n-some)
	return 0, true
}

// takeLeased takes n tokens of the fleet; the lock is held.
func (s *tokens) takeLeased(now instant.Instant, n int) (ask instant.Instant, ok bool) {
	s.expire(now)
	at, enough := s.last(n)
	if !enough {
		return s.answer(now), false
	}
	if at > now {
		return at, false
	}
	s.need = 0
	s.spend(n)
	s.count(n)
	return 0, true
}

// collect notes that the first waiter needs n tokens together.
func (s *tokens) collect(now instant.Instant, n int) {
	if n > 1 {
		s.need, s.needed = n, now
	}
}

// last returns when the nth token can be used, if there are so many.
func (s *tokens) last(n int) (at instant.Instant, ok bool) {
	for _, l := range s.leases {
		if n <= l.n {
			return l.at.Add(time.Duration(n-1) * l.every), true
		}
		n -= l.n
	}
	return 0, false
}

// spend takes the first n tokens.
func (s *tokens) spend(n int) {
	for n > 0 {
		l := &s.leases[0]
		some := min(n, l.n)
		n -= some
		if l.at, l.n = l.at.Add(time.Duration(some)*l.every), l.n-some; l.n == 0 {
			s.leases = s.leases[1:]
		}
	}
}

// answer returns when the fleet has answered a question, or is silent; the lock is held. If it
// takes longer, nobody is refused for that, and it is asked about again.
func (s *tokens) answer(now instant.Instant) instant.Instant {
	if s.asking && now < s.until {
		return min(s.until, instant.After(now, AnswerTime))
	}
	return instant.After(max(now, instant.Instant(s.askAt.Load())), AnswerTime)
}

// orAnswer returns when a wait for the member's own tokens ends. A fleet that is silent may answer
// the next question, so the wait ends there at the latest; the lock is held.
func (s *tokens) orAnswer(now instant.Instant, wait time.Duration) instant.Instant {
	return min(instant.After(now, wait), s.answer(now))
}

// fromFleet reports whether the tokens come from a fleet that answers; the lock is held.
func (s *tokens) fromFleet(now instant.Instant) bool {
	if s.asking && !s.silent && now >= s.until {
		s.hungry = 0
		s.hearNothing(now)
	}
	return !s.silent
}

// hearNothing makes the fleet count as silent since the last question; the lock is held.
func (s *tokens) hearNothing(now instant.Instant) {
	s.silent, s.since, s.spent, s.leases = true, s.asked, -s.left(), nil
	// No burst: tokens that this member saved up while the fleet answered are not its own. If each member
	// had its first token at once, many members would send far more than the rate together. So
	// these tokens come at random times, in the time in which the rate has a token for each member. A request does not wait
	// for a part of AnswerTime.
	own := 1.
	if float64(s.members) > s.conf.PerSecond*AnswerTime.Seconds() {
		own -= s.luck * (1 - 1/float64(s.members))
	}
	s.bucket.Cut(now, own)
}

// expire drops the tokens that are too old; the lock is held. A request that needs many tokens
// collects them over several answers. Those that it needs do not become too old while it asks.
func (s *tokens) expire(now instant.Instant) {
	spare := math.MaxInt
	if now < instant.After(s.needed, 2*tokenLife) {
		spare = s.left() - s.need
	}
	for len(s.leases) > 0 && spare > 0 {
		l := &s.leases[0]
		old := now.Sub(l.at) - tokenLife
		if old <= 0 {
			return
		}
		n := l.n
		if l.every > 0 {
			n = int(min(int64(l.n), int64(old/l.every)+1))
		}
		n = min(n, spare)
		spare -= n
		if l.at, l.n = l.at.Add(time.Duration(n)*l.every), l.n-n; l.n > 0 {
			return
		}
		s.leases = s.leases[1:]
	}
}

// divide gives the member's own bucket its part of the rate; the lock is held.
func (s *tokens) divide(now instant.Instant) {
	s.part = max(1, int(math.Round(float64(s.conf.Burst)/float64(s.members))))
	s.bucket.Set(now, rate.Config{PerSecond: s.conf.PerSecond / float64(s.members), Burst: s.part})
}
