// Tokens of a rate that a fleet shares. A fleet is the processes that share what they
// know of a host.

package rate

import (
	"math"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/internal/host/instant"
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

// shared is the part of a Rate whose tokens come from a fleet. The lock of the Rate
// guards it. The rules:
//
//   - The member asks for as many tokens as requests wait, and for twice as many as it
//     used since it asked last. It asks ten times in a second at most. So a client that
//     sends one request after the other is soon at its full speed.
//   - If there is no answer within 10 ms, or within the first time of all (see [FirstTime]), the
//     fleet is silent. The member then uses its part of the rate, from a random time on. It goes
//     on asking while requests wait. An answer in time ends this.
//     The tokens of an answer that comes late are not used.
//   - If the fleet names no token that can be used soon for 2 s, or for four times as long as it takes
//     until each member could have one, it counts as silent as well. A random time is added, up to
//     as much. Otherwise all members that became hungry together would send together.
//   - When the member asks again, it says how many tokens it used by itself, so that the fleet
//     takes them from the rate. Tokens of the fleet that it dropped pay for the first of them.
//   - Other members may have other rules. The fleet then gives each of them tokens, and
//     the member itself keeps to its own rate.
type shared struct {
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
	silent  bool
	since   instant.Instant // when the first question was asked that got no answer, if silent
	spent   int             // tokens used since then, less those of the fleet that were dropped
	told    int             // tokens of spent that the last question told of
	hungry  instant.Instant // since when all answers are without tokens; 0: the last had some, or was late
	luck    float64         // random, in [0,1), drawn at each question unless it is hungry
	own     instant.Instant // no token of this member before this time
}

// A lease is n tokens, the first of them for the time at, the others every so much later.
type lease struct {
	at    instant.Instant
	every time.Duration
	n     int
}

// A Ask asks the fleet for tokens. If the fleet was silent, it says for how long, and how many
// tokens the member has used by itself.
type Ask struct {
	PerSecond   float64
	Burst, Want int
	Silence     time.Duration
	Spent       int
}

// Share makes the tokens come from a fleet with so many members.
func (r *Rate) Share(now instant.Instant, members int) {
	members = max(1, members)
	r.mu.Lock()
	if r.shared == nil {
		r.shared = &shared{own: -instant.Never}
	}
	changed := r.shared.members != members
	if changed {
		r.shared.members = members
		r.limit(now)
	}
	r.mu.Unlock()
	if changed {
		r.WakeFirst()
	}
}

// MayAsk reports whether it may be time to ask the fleet for tokens. It is a single atomic
// load.
func (r *Rate) MayAsk(now instant.Instant) bool { return int64(now) >= r.askAt.Load() }

// AskTokens returns what the owner has to ask the fleet for now, while so many requests
// wait. ok is false if there is nothing to ask. patience is how long the request that asks, or
// that comes while an answer is awaited, can wait for it. u in [0,1) draws the jitter.
func (r *Rate) AskTokens(now instant.Instant, waiting int, patience time.Duration, u float64) (ask Ask, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, until := r.shared, instant.After(now, patience)
	if s == nil || !r.MayAsk(now) {
		return Ask{}, false
	}
	if s.asking && now < s.until {
		s.until = min(s.until, until)
		return Ask{}, false
	}
	r.fromFleet(now)
	s.expire(now)
	want := waiting + 2*s.used - s.left()
	if want <= 0 {
		return Ask{}, false
	}
	ask = Ask{PerSecond: r.conf.PerSecond, Burst: r.conf.Burst, Want: want}
	if s.silent {
		ask.Silence, ask.Spent = s.until.Sub(s.since), max(0, s.spent)
	}
	s.asking, s.asked, s.until, s.want, s.used, s.told = true, now, until, want, 0, ask.Spent
	if s.hungry == 0 {
		s.luck = u
	}
	s.due = max(s.due, now).Add(askEvery + time.Duration(u*float64(askJitter)))
	r.askAt.Store(int64(s.due.Add(-(askBurst - 1) * askEvery)))
	return ask, true
}

// GiveBack returns the tokens of the fleet that were not used, and drops them.
func (r *Rate) GiveBack(now instant.Instant) (unused Ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shared
	if s == nil {
		return Ask{}
	}
	s.expire(now)
	unused = Ask{PerSecond: r.conf.PerSecond, Burst: r.conf.Burst, Want: s.left()}
	s.leases = nil
	return unused
}

// left returns how many tokens are leased.
func (s *shared) left() (n int) {
	for _, l := range s.leases {
		n += l.n
	}
	return n
}

// Grant is the fleet's answer: n tokens, the first for the time at. If n is 0, the member
// does not ask again before the time again. More tokens than the member wanted do not
// count. Neither do times that are further away than a second, or two tokens at this rate. And
// the member never takes more than the whole rate and its burst.
func (r *Rate) Grant(now instant.Instant, n int, at instant.Instant, every time.Duration, again instant.Instant) {
	r.mu.Lock()
	s := r.shared
	if s == nil || !s.asking {
		r.mu.Unlock()
		return // too late
	}
	far := max(tokenLife, 2*interval(r.conf.PerSecond))
	n = min(n, s.want)
	feeds := n > 0 && at <= instant.After(now, far)
	switch {
	case feeds:
		s.hungry = 0
	case s.hungry == 0:
		s.hungry = now
	}
	endures := (1 + s.luck) * float64(max(2*tokenLife, interval(r.conf.PerSecond/(4*s.parts()))))
	starves := !feeds && now > instant.After(s.hungry, time.Duration(endures))
	inTime := now < s.until
	// If the answer is late, the fleet is silent from now on, also if no request has looked
	// since. Otherwise a fleet that always takes a little too long would stop the rate.
	if r.fromFleet(now) && starves {
		r.hearNothing(now)
	}
	s.asking = false
	s.spent = max(s.spent-s.told-n, -s.want)
	if inTime && !starves {
		s.silent = false
		if feeds {
			least := interval(r.conf.PerSecond)
			every = min(max(every, least), far)
			saved := min(float64(r.conf.Burst-1)*float64(least), float64(instant.Forever/4))
			at = max(at, s.own, now.Add(-time.Duration(saved)))
			s.own = instant.After(at, time.Duration(n)*every)
			s.lease(now, n, at, every)
		}
		r.askAt.Store(max(r.askAt.Load(), int64(min(again, instant.After(now, far)))))
	}
	r.mu.Unlock()
	r.WakeFirst()
}

// lease takes n tokens, the first of them for the time at. Those whose time has come can be
// used from now on.
func (s *shared) lease(now instant.Instant, n int, at instant.Instant, every time.Duration) {
	if at <= now {
		saved := int(min(int64(n), int64(now.Sub(at)/every)+1))
		s.leases = append(s.leases, lease{now, 0, saved})
		at, n = at.Add(time.Duration(saved)*every), n-saved
	}
	if n > 0 {
		s.leases = append(s.leases, lease{at, every, n})
	}
}

// parts returns how many members share the rate.
func (s *shared) parts() float64 {
	if s == nil {
		return 1
	}
	return float64(s.members)
}

// count counts the tokens of a send, to know for how many to ask the fleet.
func (s *shared) count(tokens int) {
	if s == nil {
		return
	}
	if s.used += tokens; s.silent {
		s.spent += tokens
	}
}

// forget drops the tokens and the waits that the fleet gave for another rate; the lock is held.
// They may lie far ahead if that rate was low.
func (r *Rate) forget(now instant.Instant) {
	if s := r.shared; s != nil {
		s.leases, s.own, s.due = nil, -instant.Never, now
		r.askAt.Store(int64(now))
	}
}

// interval returns the time between two tokens of a rate, a day at most.
func interval(perSecond float64) time.Duration {
	return time.Duration(min(float64(time.Second)/perSecond, float64(24*time.Hour)))
}

// leased returns how long it takes until there are n tokens of the fleet. For tokens that
// are not leased yet, it is how long it takes until the fleet has answered. ok is false if
// the tokens do not come from a fleet, or if the fleet is silent. first says that the first
// waiter asks; the lock is held.
func (r *Rate) leased(now instant.Instant, n int, first bool) (wait time.Duration, ok bool) {
	s := r.shared
	if first {
		s.collects(now, n)
	}
	if !r.fromFleet(now) {
		return 0, false
	}
	s.expire(now)
	if at, enough := s.last(n); enough {
		return max(0, at.Sub(now)), true
	}
	return r.answer(now).Sub(now), true
}

// reserveLeased takes n tokens of the fleet that can be used within ahead. at and ask are as
// for Rate.reserve. ok is as in leased. The lock is held.
func (r *Rate) reserveLeased(now instant.Instant, ahead time.Duration, n int) (at, ask instant.Instant, got, ok bool) {
	s := r.shared
	if !r.fromFleet(now) {
		return
	}
	s.collects(now, n)
	s.expire(now)
	at, enough := s.last(n)
	if !enough {
		at = r.answer(now)
		return at, at, false, true
	}
	if at > instant.After(now, ahead) {
		return at, at.Add(-ahead), false, true
	}
	s.need = 0
	s.spend(n)
	s.count(n)
	return max(at, now), ask, true, true
}

// collects notes that the first waiter needs n tokens together.
func (s *shared) collects(now instant.Instant, n int) {
	if s != nil && n > 1 {
		s.need, s.needed = n, now
	}
}

// last returns when the nth token can be used, if there are so many.
func (s *shared) last(n int) (at instant.Instant, ok bool) {
	for _, l := range s.leases {
		if n <= l.n {
			return l.at.Add(time.Duration(n-1) * l.every), true
		}
		n -= l.n
	}
	return 0, false
}

// spend takes the first n tokens.
func (s *shared) spend(n int) {
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
func (r *Rate) answer(now instant.Instant) instant.Instant {
	if s := r.shared; s.asking && now < s.until {
		return min(s.until, instant.After(now, AnswerTime))
	}
	return instant.After(max(now, instant.Instant(r.askAt.Load())), AnswerTime)
}

// orAnswer returns when a wait for the member's own tokens ends. A fleet that is silent may answer
// the next question, so the wait ends there at the latest; the lock is held.
func (r *Rate) orAnswer(now instant.Instant, wait time.Duration) instant.Instant {
	at := instant.After(now, wait)
	if r.shared != nil {
		at = min(at, r.answer(now))
	}
	return at
}

// fromFleet reports whether the tokens come from a fleet that answers; the lock is held.
func (r *Rate) fromFleet(now instant.Instant) bool {
	s := r.shared
	if s == nil {
		return false
	}
	if s.asking && !s.silent && now >= s.until {
		s.hungry = 0
		r.hearNothing(now)
	}
	return !s.silent
}

// hearNothing makes the fleet count as silent since the last question; the lock is held.
func (r *Rate) hearNothing(now instant.Instant) {
	s := r.shared
	s.silent, s.since, s.spent, s.leases = true, s.asked, -s.left(), nil
	// No burst: what this member saved up while the fleet answered is not its own. If each member
	// had its first token at once, many members would send far more than the rate together. So
	// these tokens come at random times, in the time in which the rate has a token for each member.
	own := 1 - s.luck*(1-1/s.parts())
	if r.lim.TokensAt(clockTime(now)) > own {
		r.lim = xrate.NewLimiter(r.lim.Limit(), r.part)
		r.lim.AllowN(clockTime(now.Add(-interval(float64(r.lim.Limit())/own))), r.part)
	}
}

// expire drops the tokens that are too old; the lock is held. A request that needs many tokens
// collects them over several answers. Those that it needs do not become too old while it asks.
func (s *shared) expire(now instant.Instant) {
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

// limit sets the member's own limit: the rate, or its part of it in a fleet; the lock is
// held.
func (r *Rate) limit(now instant.Instant) {
	perSecond := r.conf.PerSecond / r.shared.parts()
	r.part = max(1, int(math.Round(float64(r.conf.Burst)/r.shared.parts())))
	r.lim.SetLimitAt(clockTime(now), xrate.Limit(perSecond))
	r.lim.SetBurstAt(clockTime(now), r.part)
}
