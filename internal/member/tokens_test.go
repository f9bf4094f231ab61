package member

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/soak"
)

const (
	ms  = hosttest.Ms
	sec = hosttest.Sec
)

// The figures are those that the comments name.
func TestFigures(t *testing.T) {
	assert.Equal(t, [...]time.Duration{10 * ms, 250 * ms, sec, 130 * ms, 40 * ms, sec},
		[...]time.Duration{AnswerTime, FirstTime, MetTime, askEvery, askJitter, tokenLife})
}

// A fleetRate is a rate whose tokens come from a fleet, and the queue of those who wait for it.
type fleetRate struct {
	*rate.Rate
	concurrency.Limiter
	t tokens
}

func (r *fleetRate) Enter(now instant.Instant, w *queue.Waiter) queue.Answer {
	a := r.Limiter.Enter(now, nil, w, concurrency.Config{Max: concurrency.NoMax, Rate: r.Rate, Cost: w.Costs()})
	a.Room, a.NoToken = false, false
	return a
}

func (r *fleetRate) Peek(now instant.Instant) time.Duration {
	return r.Rate.Peek(now, 1, r.State().Cost)
}

func newRate(c rate.Config, members int) *fleetRate {
	r := &fleetRate{}
	r.Rate = rate.New(c, &r.t)
	r.Share(0, members)
	return r
}

func (r *fleetRate) Share(now instant.Instant, members int) {
	if r.t.share(now, members) {
		r.WakeFirst()
	}
}

func (r *fleetRate) Grant(now instant.Instant, n int, at instant.Instant, every time.Duration, again instant.Instant) {
	r.t.grant(now, n, at, every, again)
	r.WakeFirst()
}

// sharedRate returns a rate of 100 per second, with a burst of 10, whose tokens come from
// a fleet of four.
func sharedRate() *fleetRate { return newRate(rate.Config{PerSecond: 100, Burst: 10}, 4) }

func mayAsk(r *fleetRate, now instant.Instant, waiting int) bool {
	_, ok := r.t.ask(now, waiting, AnswerTime, 0)
	return ok
}

func mustAskFor(t *testing.T, r *fleetRate, now instant.Instant, waiting, want int) {
	t.Helper()
	ask, ok := r.t.ask(now, waiting, AnswerTime, 0)
	require.Equal(t, []any{question{rate: rate.Config{PerSecond: 100, Burst: 10}, want: want}, true}, []any{ask, ok}, "at %v", now)
	require.False(t, mayAsk(r, now, waiting), "at %v: asks twice", now)
}

// taken returns how many tokens can be used now.
func taken(r *fleetRate, now instant.Instant) (n int) {
	for n < 1000 && r.Take(now, 1, false) {
		n++
	}
	return n
}

// A request waits for the fleet's answer, and uses its token at its time.
func TestRateFromFleet(t *testing.T) {
	r := sharedRate()
	first, second := queue.NewWaiter(), queue.NewWaiter()
	assert.Equal(t, queue.Answer{Verb: queue.Wait, Ask: instant.At(sec + AnswerTime), Until: instant.At(sec + AnswerTime)}, r.Enter(sec, first))
	r.Enter(sec, second)
	mustAskFor(t, r, sec, 2, 2)
	r.Grant(sec+ms, 2, sec+50*ms, 30*ms, 0)
	assert.True(t, hosttest.Woken(first) && !hosttest.Woken(second), "the first waiter was not woken, or not alone")
	assert.Equal(t, (queue.Answer{Verb: queue.Wait, Ask: sec + 50*ms, Until: sec + 50*ms}), r.Enter(sec+ms, first))
	assert.Equal(t, AnswerTime, r.Peek(sec+ms), "behind the waiters, with the next question")
	assert.Equal(t, queue.Answer{}, r.Enter(sec+50*ms, first))
	assert.True(t, hosttest.Woken(second))
	assert.Equal(t, queue.Answer{}, r.Enter(sec+80*ms, second))
	// It asks for what it used as well, because as many requests may come again.
	mustAskFor(t, r, instant.At(sec+askEvery), 1, 5)
}

// A new rate does not wait for the tokens of the rate before it.
func TestRateForgetsTheTokensOfAnotherRate(t *testing.T) {
	r := newRate(rate.Config{PerSecond: 1.0 / 60, Burst: 1}, 4)
	for _, n := range []int{1, 0} { // a token a minute ahead, then none for a minute
		r.t.ask(sec, 5, AnswerTime, 0)
		r.Grant(sec, n, 61*sec, 60*sec, 61*sec)
		r.Set(sec, rate.Config{PerSecond: 100, Burst: 10})
		mustAskFor(t, r, sec, 5, 5)
		r.Grant(sec, 5, sec, 10*ms, 0)
		assert.Equal(t, 5, taken(r, sec+40*ms), "took")
		r.Set(sec, rate.Config{PerSecond: 1.0 / 60, Burst: 1})
	}
}

// If the processes have different rates, none of them is faster than its own rate.
func TestRateKeepsToItself(t *testing.T) {
	r := newRate(rate.Config{PerSecond: 1, Burst: 1}, 4)
	used := 0
	for now := instant.At(sec); now < 11*sec; now += 10 * ms {
		if _, ok := r.t.ask(now, 3, AnswerTime, 0); ok {
			r.Grant(now, 1, now, sec, 0) // others with a faster rate have let it in
		}
		used += taken(r, now)
	}
	assert.Equal(t, 10, used, "sends in 10 s")
}

// There are ten questions in a second at most, and none if enough tokens are there.
func TestRateAsksSeldom(t *testing.T) {
	r := sharedRate()
	var asks []time.Duration
	for now := instant.Instant(0); now < 5*sec; now += ms {
		if now > sec && now < 2*sec {
			continue // a pause
		}
		may := r.t.mayAsk(now)
		if _, ok := r.t.ask(now, 5, AnswerTime, 0); ok {
			asks = append(asks, now.Since())
			r.Grant(now, 1, now, 0, 0)
			require.True(t, may, "MayAsk said no")
		}
		r.Take(now, 1, false)
	}
	for i := range asks {
		assert.True(t, i < 10 || asks[i]-asks[i-10] >= sec, "11 questions within a second")
	}
	assert.GreaterOrEqual(t, len(asks), 28, "questions in four seconds")
	for n := range 3 {
		_, may := r.t.ask(9*sec, 50, AnswerTime, 0.5)
		assert.Equal(t, n < 2, may, "number %d at once", n)
		r.Grant(9*sec, 0, 0, 0, 0)
	}
	assert.True(t, !mayAsk(r, 9040*ms-1, 50) && mayAsk(r, 9040*ms, 50), "two take 300 ms, and 260 ms are free")
	r = sharedRate()
	assert.False(t, mayAsk(r, 0, 0), "asks for nothing")
	mustAskFor(t, r, 0, 5, 5)
	r.Grant(0, 5, 900*ms, ms, 0)
	assert.False(t, mayAsk(r, 500*ms, 5), "asks for tokens that it has")
	mustAskFor(t, r, 500*ms, 6, 1)
	r.Grant(500*ms, 0, 0, 0, 800*ms)
	assert.False(t, mayAsk(r, 800*ms-1, 6), "asks before it was told to")
	assert.False(t, mayAsk(new(fleetRate), 0, 5), "asks without a rate")
}

// If there is no answer within 10 ms, the process uses its part of the rate, without a
// burst. A late answer counts for nothing. An answer in time ends this.
func TestRateWithASilentFleet(t *testing.T) {
	r := sharedRate()
	w := queue.NewWaiter()
	r.Enter(sec, w)
	mustAskFor(t, r, sec, 1, 1)
	assert.False(t, r.Take(instant.At(sec+AnswerTime-1), 1, false), "does not wait for the answer")
	r.Grant(instant.At(sec+AnswerTime), 10, 0, 0, 0) // too late
	assert.Equal(t, queue.Go, r.Enter(instant.At(sec+AnswerTime), w).Verb)
	assert.Zero(t, taken(r, instant.At(sec+AnswerTime)), "more tokens at once")
	n := 0
	for now := instant.At(sec).Add(AnswerTime); now < instant.At(3*sec+AnswerTime); now += ms {
		n += taken(r, now)
	}
	assert.True(t, n >= 48 && n <= 50, "%d tokens in 2 s, want a quarter of 200", n)
	ask, _ := r.t.ask(4*sec, 1, AnswerTime, 0)
	assert.Equal(t, []any{AnswerTime, n + 1 - 1}, []any{ask.silence, ask.spent}, "the silence, and the tokens spent in it less the late one")
	r.Grant(instant.At(4*sec+AnswerTime), 0, 0, 0, 0)
	ask, _ = r.t.ask(5*sec, 3, AnswerTime, 0)
	assert.Zero(t, ask.spent, "the fleet knows of the others")
	r.Grant(5*sec, 3, 5*sec-20*ms, 10*ms, 0)
	assert.Equal(t, 3, taken(r, 5*sec), "tokens, not those of the fleet")
}

// The first tokens of the members' own come one after the other. Meanwhile a request waits for the
// next answer of the fleet, so its deadline does not refuse it.
func TestRateOfAMemberBeginsAtRandom(t *testing.T) {
	for u, want := range map[float64]instant.Instant{0: 10 * ms, 0.5: 25 * ms, 0.9999: 40 * ms} {
		r := sharedRate()
		_, ok := r.t.ask(0, 1, AnswerTime, u)
		require.True(t, ok)
		now, w := instant.At(AnswerTime), queue.NewWaiter()
		a := r.Enter(now, w)
		for ; a.Verb == queue.Wait; a = r.Enter(now, w) {
			answer := now.Add(AnswerTime)
			assert.True(t, a.Until <= answer && r.ReadyIn(now, 1) <= AnswerTime && r.Peek(now) <= AnswerTime, "at %v: %+v", now, a)
			now += ms
		}
		assert.InDelta(t, int64(want), int64(max(now, a.Until)), 0.1*ms, u)
	}
	for perSecond, want := range map[float64]int{399: 0, 400: 1} { // of four members
		r := newRate(rate.Config{PerSecond: perSecond, Burst: 10}, 4)
		_, ok := r.t.ask(0, 1, AnswerTime, 0.9999)
		require.True(t, ok)
		assert.Equal(t, want, taken(r, instant.At(AnswerTime)), "%v: it is not worth a wait", perSecond)
	}
}

// The part follows the size of the fleet. Waiters hear of it.
func TestRateOfAPart(t *testing.T) {
	r := newRate(rate.Config{PerSecond: 1, Burst: 1}, 100)
	r.t.ask(0, 1, AnswerTime, 0)
	r.Take(instant.At(AnswerTime), 1, false)
	w := queue.NewWaiter()
	r.Enter(instant.At(AnswerTime), w)
	r.Share(20*ms, 1)
	require.True(t, hosttest.Woken(w), "not woken")
	assert.True(t, !r.Take(900*ms, 1, false) && r.Take(1020*ms, 1, false), "not a token of the whole rate")
	r.Share(30*ms, 1)
	assert.False(t, hosttest.Woken(w), "woken without a reason")
}

// A member saves up its part of the burst.
func TestRateSavesAPart(t *testing.T) {
	r := newRate(rate.Config{PerSecond: 8, Burst: 8}, 4)
	mayAsk(r, 0, 1) // nobody answers
	assert.Equal(t, []int{1, 2}, []int{taken(r, 10*ms), taken(r, 10*sec)})
}

// A request that costs more than the part goes when there are tokens for the part. The next one waits for
// the rest.
func TestRateOwes(t *testing.T) {
	for name, goes := range map[string]func(*fleetRate) bool{
		"Enter": func(r *fleetRate) bool { return r.Enter(sec, &queue.Waiter{Cost: 4}).Verb == queue.Go },
		"Take":  func(r *fleetRate) bool { return r.Take(sec, 4, false) },
	} {
		r := newRate(rate.Config{PerSecond: 8, Burst: 4}, 4)
		mayAsk(r, 0, 1) // nobody answers
		assert.True(t, goes(r), name)
		assert.True(t, !r.Take(3*sec-ms, 1, false) && r.Take(3*sec, 1, false), name)
	}
}

// A token can be used for a second.
func TestRateTokensExpire(t *testing.T) {
	r := sharedRate()
	mustAskFor(t, r, 0, 10, 10)
	r.Grant(0, 10, 0, 100*ms, 0)
	assert.Equal(t, 5, taken(r, instant.At(tokenLife+449*ms)), "tokens")
	mustAskFor(t, r, 2*sec, 5, 15)
	r.Grant(2*sec, 10, 2*sec, 0, 0)
	assert.Zero(t, taken(r, 3*sec+100*ms), "tokens that are too old")
	r = sharedRate()
	w := queue.NewWaiter()
	w.Cost = 2
	r.Enter(sec, w)
	mustAskFor(t, r, sec, 5, 5)
	r.Grant(sec, 5, sec, 0, 0)
	assert.Equal(t, queue.Go, r.Enter(2500*ms, w).Verb, "those that a request collects can be used for longer")
	assert.Zero(t, r.t.giveBack(2500*ms).want, "tokens left")
	mustAskFor(t, r, 2500*ms, 1, 5)
	r.Grant(2500*ms, 1, 2500*ms, 0, 0)
	assert.Zero(t, taken(r, 3501*ms), "nobody collects any longer")
	r = sharedRate()
	r.ReadyIn(sec, 2)
	mustAskFor(t, r, sec, 5, 5)
	r.Grant(sec, 5, sec, 0, 0)
	assert.Equal(t, 2, r.t.giveBack(2500*ms).want, "the first in the queue collects them")
}

// What is not used goes back to the fleet, once.
func TestRateGivesBack(t *testing.T) {
	r := sharedRate()
	mustAskFor(t, r, 0, 10, 10)
	r.Grant(0, 5, 0, 100*ms, 0)
	assert.Equal(t, 1, taken(r, 0), "tokens taken")
	assert.Equal(t, []int{4, 0}, []int{r.t.giveBack(0).want, r.t.giveBack(0).want})
	r.Grant(0, 1, 0, 0, 0) // nobody has asked
	assert.Zero(t, new(tokens).giveBack(0))
}

// A request that is less patient than the one that asked waits for a shorter time. The tokens that
// were dropped pay for those that the member uses by itself.
func TestRateDuringAQuestion(t *testing.T) {
	r := sharedRate()
	mustAskFor(t, r, 0, 5, 5)
	r.Grant(0, 5, 900*ms, ms, 0)
	for _, patience := range []time.Duration{time.Second, AnswerTime} {
		r.t.ask(sec, 6, patience, 0)
	}
	assert.False(t, r.Take(instant.At(sec+AnswerTime-1), 6, false))
	assert.Equal(t, 1, taken(r, instant.At(sec+AnswerTime)), "of its own")
	ask, _ := r.t.ask(2*sec, 1, AnswerTime, 0)
	assert.Equal(t, []any{AnswerTime, 0}, []any{ask.silence, ask.spent}, "the silence, and tokens beyond the dropped ones")
	r = sharedRate()
	mustAskFor(t, r, sec, 1, 1)
	ask, _ = r.t.ask(2*sec, 1, AnswerTime, 0)
	assert.Equal(t, AnswerTime, ask.silence, "although nobody has looked since")
}

// Times that are further away than a second, or two tokens, do not count.
func TestRateFar(t *testing.T) {
	for perSecond, far := range map[float64]instant.Instant{100: sec, 1: 2 * sec, 0.1: 20 * sec} {
		for late, want := range []time.Duration{far.Since(), AnswerTime} {
			r := newRate(rate.Config{PerSecond: perSecond, Burst: 1}, 4)
			r.t.ask(0, 1, AnswerTime, 0)
			r.Grant(0, 1, far+instant.Instant(late), 0, 0)
			assert.Equal(t, want, r.ReadyIn(0, 1), perSecond)
		}
	}
}

// A fleet that always takes a little too long does not stop the rate.
func TestRateWithASlowFleet(t *testing.T) {
	r := sharedRate()
	w := queue.NewWaiter()
	now, sent := instant.At(sec), 0
	for range 100 {
		if a := r.Enter(now, w); a.Verb == queue.Go {
			sent++
		}
		_, ok := r.t.ask(now, 1, AnswerTime, 0)
		if now = now.Add(AnswerTime); ok {
			r.Grant(now, 1, now, 0, 0) // before the request looks
		}
	}
	assert.GreaterOrEqual(t, sent, 20, "sent in a second")
}

// A fleet that answers in time and never has a token stops the rate for three seconds at most. Then the
// member uses its part until there is a token.
func TestRateWithAStingyFleet(t *testing.T) {
	slow := newRate(rate.Config{PerSecond: 1, Burst: 1}, 4)
	now, luck := instant.At(sec), 0.5
	for ; !slow.Take(now, 1, false); now += ms {
		if _, ok := slow.t.ask(now, 1, AnswerTime, luck); ok {
			slow.Grant(now, 0, 0, 0, 0)
			luck = 0.9 // only the first counts
		}
	}
	assert.InDelta(t, 26.6, now.Since().Seconds(), 0.2, "4 s are the time of a member's token, half as much is random, and its own token comes 1.5 s later")
	for name, far := range map[string]time.Duration{"none": 0, "in an hour": time.Hour} {
		r := sharedRate()
		w := queue.NewWaiter()
		sent := make(map[bool]int) // by whether three seconds are over
		for now := instant.At(sec); now < 14*sec; now += ms {
			if r.Enter(now, w).Verb == queue.Go {
				sent[now > 4*sec]++
			}
			if _, ok := r.t.ask(now, 1, AnswerTime, 0.5); ok {
				r.Grant(now, int(min(far, 1)), now.Add(far), 0, instant.Never)
			}
		}
		assert.Zero(t, sent[false], name)
		assert.InDelta(t, 225, sent[true], 5, "%s: a quarter of the rate for nine seconds", name)
		require.True(t, mayAsk(r, 15*sec, 1), name)
		r.Grant(15*sec, 1, 15*sec, 0, 0)
		assert.Equal(t, 1, taken(r, 15*sec), "%s: tokens of the fleet", name)
	}
}

// The members of a fleet that gives none of them a token don't go on without it at the same time.
func TestMembersOfAStingyFleetKeepTheRate(t *testing.T) {
	const members = 50
	rng := rand.New(rand.NewPCG(1, 1))
	var sent [50]int // in 10 s, for which the rate is 10
	for range members {
		r, w := newRate(rate.Config{PerSecond: 1, Burst: 1}, members), queue.NewWaiter()
		for now := instant.At(sec); now < 500*sec; now += 100 * ms {
			if r.Enter(now, w).Verb == queue.Go {
				sent[now.Since()/(10*sec)]++
				w = queue.NewWaiter()
			}
			if _, ok := r.t.ask(now, 1, AnswerTime, rng.Float64()); ok {
				r.Grant(now, 0, 0, 0, now.Add(sec))
			}
		}
	}
	assert.LessOrEqual(t, slices.Max(sent[:]), 25)
}

// An absurd answer neither lets a process exceed the rate for long nor stops it.
func TestRateAnswersAtTheLimits(t *testing.T) {
	for name, grant := range map[string]func(r *fleetRate, now instant.Instant){
		"too many":        func(r *fleetRate, now instant.Instant) { r.Grant(now, math.MaxInt, now, 0, 0) },
		"fewer than none": func(r *fleetRate, now instant.Instant) { r.Grant(now, math.MinInt, now, 0, 0) },
		"far away":        func(r *fleetRate, now instant.Instant) { r.Grant(now, 5, instant.Never, ms, 0) },
		"long ago":        func(r *fleetRate, now instant.Instant) { r.Grant(now, 5, math.MinInt64/2, ms, 0) },
		"far apart":       func(r *fleetRate, now instant.Instant) { r.Grant(now, 5, now, instant.Forever, 0) },
		"backwards":       func(r *fleetRate, now instant.Instant) { r.Grant(now, 5, now, math.MinInt64, 0) },
		"never again":     func(r *fleetRate, now instant.Instant) { r.Grant(now, 0, 0, 0, instant.Never) },
		"unasked":         func(r *fleetRate, now instant.Instant) { r.Grant(now-1, 0, 0, 0, 0); r.Grant(now, 5, now, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := sharedRate()
			mustAskFor(t, r, sec, 5, 5)
			grant(r, sec)
			require.LessOrEqual(t, taken(r, sec), 5, "tokens")
			// Two seconds later it has asked again, and a good answer counts.
			w := queue.NewWaiter()
			now := instant.At(sec)
			for range 100 {
				a := r.Enter(now, w)
				if a.Verb == queue.Go {
					return
				}
				if _, ok := r.t.ask(now, 1, AnswerTime, 0.5); ok {
					if r.Grant(now, 1, now, 0, 0); a.Ask == instant.Never {
						t.Fatal("asks for tokens and never looks again")
					}
					continue
				}
				now = a.Ask
				require.LessOrEqual(t, now, instant.Instant(5*sec), "waits")
			}
			t.Fatal("asks without end")
		})
	}
}

// A group plays the members of a fleet in virtual time.
type group struct {
	hosttest.Clock
	rng         *rand.Rand
	tokens      ledger.Tokens
	stall, back instant.Instant // between them the fleet stands still
	sends       []time.Duration
}

// within returns a random time from now on, shorter than d.
func (g *group) within(d time.Duration) instant.Instant {
	return g.Now.Add(time.Duration(g.rng.Int64N(int64(d))))
}

// ask answers a question. If the fleet stands still, it answers afterwards the questions that are
// not older than a second.
func (g *group) ask(r *fleetRate, q question) {
	at := g.within(4 * ms)
	switch {
	case at >= g.stall && at < g.back.Add(-time.Second):
		return
	case at >= g.stall && at < g.back:
		at = g.back
	}
	g.At(at, func() {
		g.tokens.Repay(g.Now, q.rate.PerSecond, q.rate.Burst, ledger.Absence{Silence: q.silence, Spent: float64(q.spent)})
		n, first, every, again := g.tokens.Take(g.Now, q.rate.PerSecond, q.rate.Burst, q.want)
		asked := g.Now
		g.At(g.within(4*ms), func() { r.Grant(g.Now, n, first, every, asked.Add(again)) })
	})
}

// send sends a request as soon as the rate lets it go, and calls sent then.
func (g *group) send(r *fleetRate, sent func()) {
	w, gone := new(queue.Waiter), false
	var turn func()
	turn = func() {
		if gone {
			return
		}
		a := r.Enter(g.Now, w)
		if q, ok := r.t.ask(g.Now, r.State().Cost, AnswerTime, g.rng.Float64()); ok {
			g.ask(r, q)
		}
		switch {
		case a.Verb == queue.Go:
			gone = true
			g.At(a.Until, func() {
				g.sends = append(g.sends, g.Now.Since())
				sent()
			})
		case a.Ask < instant.Never:
			g.At(a.Ask, turn)
		}
	}
	w.Woken = func(*queue.Waiter) { g.At(g.Now, turn) }
	turn()
}

// Processes with uneven loads share a rate. Together they send nearly as much as it
// allows, and no more. None of them starves.
func TestRateOfAFleet(t *testing.T) {
	const perSecond, burst, members = 100.0, 10, 20
	for seed := range soak.Size[uint64](3, 50) {
		g := group{rng: rand.New(rand.NewPCG(seed, 5))}
		each, waiting := make([]int, members), make([]int, members)
		for m := range members {
			r := newRate(rate.Config{PerSecond: perSecond, Burst: burst}, members)
			var request func()
			request = func() {
				waiting[m]++
				g.send(r, func() {
					waiting[m]--
					each[m]++
				})
				if next := g.within(sec / time.Duration(1+2*m)); next < 12*sec && waiting[m] < 50 {
					g.At(next, request)
				} else {
					g.At(g.Now+100*ms, request)
				}
			}
			g.At(g.within(sec), request)
		}
		g.RunTo(12 * sec)
		n := 0
		for i, at := range g.sends {
			if at >= 2*sec {
				n++
			}
			for j := range i {
				if n, most := float64(i-j+1), burst+perSecond*((at-g.sends[j])+tokenLife).Seconds()+1; n > most {
					t.Fatalf("seed %d: %v sends in %v, want at most %v", seed, n, at-g.sends[j], most)
				}
			}
		}
		assert.True(t, n >= 950 && n <= 1010, "seed %d: %d sends in 10 s", seed, n)
		for m := range members {
			assert.GreaterOrEqual(t, each[m], 8, "seed %d: requests of process %d", seed, m)
		}
	}
}

// If the fleet stands still, many members that are all busy keep to twice the rate and a burst. When it is back, all
// of them soon have their tokens from there, and the rate is used.
func TestManyMembersOfAFleetThatStandsStill(t *testing.T) {
	const perSecond, burst, members = 10, 10, 60
	for _, lasts := range []time.Duration{300 * ms, 1500 * ms, 5 * sec} {
		for seed := range soak.Size[uint64](3, 50) {
			g := group{rng: rand.New(rand.NewPCG(seed, 5)), stall: 10 * sec, back: 10*sec + instant.At(lasts)}
			for range members {
				r := newRate(rate.Config{PerSecond: perSecond, Burst: burst}, members)
				for range 2 {
					var request func()
					request = func() { g.send(r, request) }
					g.At(g.within(sec), request)
				}
			}
			g.RunTo(20 * sec)
			most := 0
			for i, at := range g.sends {
				n, _ := slices.BinarySearch(g.sends[i:], at+time.Second)
				most = max(most, n)
			}
			assert.LessOrEqual(t, most, 2*perSecond+burst, "seed %d: sends in a second, %v", seed, lasts)
			assert.InDelta(t, 20*perSecond+burst, len(g.sends), perSecond, "seed %d: sends in all, %v", seed, lasts)
		}
	}
}

// Whatever a fleet grants, the process takes no more than the whole rate and its burst. It
// can use the tokens that the fleet saved up, although their times are long past.
func TestRateBoundsTheFleet(t *testing.T) {
	r := newRate(rate.Config{PerSecond: 1, Burst: 10}, 4)
	require.True(t, mayAsk(r, 20*sec, 10), "does not ask")
	r.Grant(20*sec, 10, 11*sec, sec, 0)
	assert.Equal(t, 10, taken(r, 20*sec), "tokens at once, not the burst")
	n := 0
	for now := instant.At(21 * sec); now < 81*sec; now += 50 * ms {
		if ask, ok := r.t.ask(now, 5, AnswerTime, 0); ok {
			r.Grant(now, ask.want, now.Add(-time.Duration(n%3)*sec), 0, 0)
		}
		n += taken(r, now)
	}
	assert.True(t, n >= 55 && n <= 61, "%d tokens in a minute at one per second", n)
}
