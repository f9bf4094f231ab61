package exchange_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/exchange/exchangetest"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/policy"
)

var answer, change, play = exchangetest.Answer, exchangetest.Change, exchangetest.Play

type site = exchangetest.Site

// A waiting is a turn that knows for how long it has waited.
type waiting struct {
	exchange.Turn
	queued attempt.Queued
}

func (w *waiting) await(r *exchange.Request, place line.Place, latest instant.Instant) *exchange.Rejection {
	return w.Await(r, place, latest, &w.queued)
}

var breaker = policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}
var fast = policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}

// fail notes the failure of a request that begins and ends now.
func fail(t *testing.T, s *site, o attempt.Outcome) {
	t.Helper()
	o.Class, o.SentAt = classify.Ambiguous, s.Registry.Now()
	s.Done(s.Request(t, 0), nil, &o)
}

// bringDown makes ten attempts fail within two seconds.
func bringDown(t *testing.T, s *site) {
	t.Helper()
	for range 10 {
		fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(500)})
		time.Sleep(200 * time.Millisecond)
	}
	require.True(t, s.Request(t, 0).Down())
}

// A host is down after ten failures in a row, over a second or more, until it answers.
func TestDownAndUp(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		assert.False(t, s.Request(t, 0).Down())
		s.Request(t, 0).Succeeded(line.Success{})
		assert.Nil(t, s.Request(t, 0).State.MachinesMade(), "nothing has failed")
		first := s.Registry.Now().Add(200 * time.Millisecond)
		for range 9 {
			time.Sleep(200 * time.Millisecond)
			fail(t, s, attempt.Outcome{Kind: attempt.First, Err: os.ErrDeadlineExceeded})
			fail(t, s, attempt.Outcome{Kind: attempt.Cut, Err: syscall.ECONNRESET})
			fail(t, s, attempt.Outcome{Kind: attempt.First, Err: syscall.ECONNRESET, BodyBroke: true})
			fail(t, s, attempt.Outcome{Kind: attempt.First, Err: http.ErrBodyReadAfterClose})
		}
		for range 5 {
			fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(429)})
		}
		assert.Empty(t, s.Told)
		assert.False(t, s.Request(t, 0).Down())
		fail(t, s, attempt.Outcome{Kind: attempt.Retry, Resp: answer(500)})
		assert.Equal(t, []string{change(news.Down, false, 500, false)}, s.Told)
		assert.Equal(t, first, s.Last.Since, "when the first failure began")
		assert.True(t, s.Request(t, 0).Down())
		s.Ends(t, nil, 429, classify.Final)
		assert.Len(t, s.Told, 1, "a refusal is no success")
		s.Ends(t, nil, 503, classify.Final)
		assert.Len(t, s.Told, 1, "a failure that is final is no success")
		s.Done(s.Request(t, 0), nil, &attempt.Outcome{Kind: attempt.First, Err: http.ErrBodyReadAfterClose, Class: classify.Final})
		assert.Len(t, s.Told, 1, "an error is no success")
		s.Ends(t, nil, 404, classify.Final)
		assert.Equal(t, change(news.Down, true, 0, false), s.Told[1])
		assert.False(t, s.Request(t, 0).Down())
		assert.Equal(t, 503, s.Request(t, 0).State.Machines().News().Failure().Status, "the last failure")

		fail(t, s, attempt.Outcome{Kind: attempt.First, Err: syscall.ECONNRESET, Resp: nil})
		assert.Equal(t, news.Cause{Err: syscall.ECONNRESET}, s.Request(t, 0).State.Machines().News().Failure(), "the last failure")
	})
}

// An attempt that was never sent failed when its outcome came.
func TestDownWithoutASend(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		first := s.Registry.Now()
		for range 10 {
			s.Done(s.Request(t, 0), nil, &attempt.Outcome{Kind: attempt.First, Err: syscall.ECONNREFUSED, Class: classify.Refused, DoneAt: s.Registry.Now()})
			time.Sleep(200 * time.Millisecond)
		}
		assert.Equal(t, first, s.Last.Since)
	})
}

// What a response says of the host. A wait that it asks for is no success, and one that the rule sees elsewhere changes nothing.
func TestSuccess(t *testing.T) {
	for name, row := range map[string]struct {
		o  attempt.Outcome
		up bool
	}{
		"200":                        {attempt.Outcome{Resp: answer(200), Class: classify.Final}, true},
		"200 that is retried":        {attempt.Outcome{Resp: answer(200), Class: classify.Ambiguous}, false},
		"its body broke":             {attempt.Outcome{Resp: answer(200), Class: classify.Ambiguous, BodyBroke: true}, true},
		"an error":                   {attempt.Outcome{Err: http.ErrBodyReadAfterClose, Class: classify.Final}, false},
		"501":                        {attempt.Outcome{Resp: answer(501, "Retry-After: 4"), Class: classify.Final}, true},
		"a cut":                      {attempt.Outcome{Kind: attempt.Cut, Err: syscall.ECONNRESET, Class: classify.Ambiguous}, false},
		"the rest of a body":         {attempt.Outcome{Kind: attempt.Resume, Resp: answer(206), Class: classify.Final}, true},
		"a body that broke, and 503": {attempt.Outcome{Resp: answer(503, "Retry-After: 4"), Class: classify.Ambiguous, BodyBroke: true}, false},
		"the same without a wait":    {attempt.Outcome{Resp: answer(503), Class: classify.Ambiguous, BodyBroke: true}, true},
	} {
		play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
			bringDown(t, s)
			s.Done(s.Request(t, 0), nil, &row.o)
			assert.Equal(t, row.up, !s.Request(t, 0).Down(), name)
		})
	}
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		bringDown(t, s)
		s.Request(t, 0).Succeeded(line.Success{})
		assert.False(t, s.Request(t, 0).Down(), "on the light path")
	})
}

// The fleet hears of an outage and of its end.
func TestDownInAFleet(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		s.Join()
		s.Request(t, 0)
		s.Sent = nil
		bringDown(t, s)
		require.NotEmpty(t, s.Sent)
		assert.Equal(t, fleetmsg.Message{Kind: fleetmsg.Failing, Host: exchangetest.Name, Failures: 10, Wait: 1800 * time.Millisecond}, s.Sent[0])
		s.Sent = nil
		s.Ends(t, nil, 200, classify.Final)
		s.Ends(t, nil, 200, classify.Final)
		assert.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Working, Host: exchangetest.Name}}, s.Sent, "the end is told once")

		s.Hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: exchangetest.Name, Wait: time.Minute})
		assert.True(t, s.Request(t, 0).Down())
		s.Request(t, 0).Review()
		assert.Equal(t, change(news.Down, false, 500, false), s.Told[2], "an outage of others")
	})
}

// A retry takes what the budget has, and gives it back if no attempt goes. Without a wait it gets nothing else, and with a
// wait what time earns.
func TestTurn(t *testing.T) {
	play(t, "", policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.1}}, func(t *testing.T, s *site) {
		try := func() (*exchange.Turn, bool) {
			turn := new(exchange.Turn)
			return turn, turn.Try(s.Request(t, 0), line.Place{Sent: 1})
		}
		turn, ok := try()
		assert.True(t, ok)
		_, ok = try()
		assert.False(t, ok, "it has one")
		turn.Over(s.Request(t, 0))
		turn.Over(s.Request(t, 0))
		turn, ok = try()
		assert.True(t, ok, "it is given back, once")
		_, ok = try()
		assert.False(t, ok)
		turn.Start()
		turn.Over(s.Request(t, 0))
		_, ok = try()
		assert.False(t, ok, "an attempt has used it")

		await := func(d time.Duration) (*waiting, *exchange.Rejection, time.Duration) {
			r, turn, begin := s.Request(t, 0), new(waiting), time.Now()
			no := turn.await(r, line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(d))
			turn.Start()
			turn.Over(r)
			return turn, no, time.Since(begin).Round(time.Millisecond)
		}
		_, no, took := await(0)
		assert.Equal(t, []any{exchange.WhyOverdue, exchange.LimitLine, time.Duration(0)}, []any{no.Why, no.Limit, took})
		assert.Empty(t, s.Told)
		since := s.Registry.Now()
		_, no, took = await(5 * time.Second)
		assert.Equal(t, []any{exchange.WhyOverdue, exchange.LimitLine, 5 * time.Second}, []any{no.Why, no.Limit, took})
		assert.Equal(t, []string{change(news.NoRetries, false, 0, false)}, s.Told)
		assert.Equal(t, since, s.Last.Since)
		w, no, took := await(time.Minute)
		assert.Nil(t, no)
		assert.Equal(t, 5*time.Second, took, "time has earned one")
		assert.Equal(t, attempt.Queued{Line: took}, w.queued)

		time.Sleep(10 * time.Second)
		w = new(waiting)
		assert.Nil(t, w.await(s.Request(t, 0), line.Place{Sent: 1}, s.Registry.Now().Add(time.Second)))
		w.Over(s.Request(t, 0))
		_, ok = try()
		assert.True(t, ok, "what it waited for is given back, too")

		r := s.Request(t, time.Second)
		no = new(waiting).await(r, line.Place{Sent: 1}, s.Registry.Now().Add(time.Minute))
		assert.ErrorIs(t, no.Err, context.DeadlineExceeded)
		assert.Empty(t, no.Limit)
		assert.Zero(t, r.State.Machines().Line.State().Waiting, "all have left")

		rule := s.Request(t, 0).Rule.Policy
		for members, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second} {
			s = exchangetest.New(t, rule)
			s.Join()
			s.Hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: members})
			_, ok = try()
			assert.True(t, ok)
			_, no, took = await(time.Minute)
			assert.Nil(t, no)
			assert.Equal(t, want, took, "a member's part of what time earns, of %d", members)
		}

		s = exchangetest.New(t, rule)
		_, ok = try()
		assert.True(t, ok)
		r = s.Request(t, 0)
		s.Update(t, policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 1}})
		s.Request(t, 0)
		time.Sleep(time.Second)
		assert.True(t, new(exchange.Turn).Try(r, line.Place{Sent: 1}), "an Update changes the budget of those who have begun, too")
	})
}

// Requests earn retries.
func TestTurnsOfRequests(t *testing.T) {
	play(t, "", policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 0.5, MinPerSecond: policy.Off}}, func(t *testing.T, s *site) {
		try := func() bool { return new(exchange.Turn).Try(s.Request(t, 0), line.Place{Sent: 1}) }
		assert.Equal(t, []bool{true, false, true, false, true}, []bool{try(), try(), try(), try(), try()})
	})
}

// A retry that waits briefly is not told.
func TestShortTurnIsNotTold(t *testing.T) {
	play(t, "", fast.Or(policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 1}}), func(t *testing.T, s *site) {
		await := func(d time.Duration) *exchange.Rejection {
			return new(waiting).await(s.Request(t, 0), line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(d))
		}
		for new(exchange.Turn).Try(s.Request(t, 0), line.Place{Sent: 1}) {
		}
		assert.Nil(t, await(time.Minute))
		assert.Empty(t, s.Told, "a second is not long")
		for _, d := range []time.Duration{0, 500 * time.Millisecond} {
			no := await(d)
			require.NotNil(t, no)
			assert.Equal(t, []any{exchange.WhyOverdue, exchange.LimitLine}, []any{no.Why, no.Limit}, "the host is not down")
		}
		assert.Equal(t, []string{change(news.NoRetries, false, 0, false)}, s.Told, "a retry that did not go is told at once")
	})
}

// While a host is down, a retry waits, and with a circuit breaker a first attempt. The time counts as that of the outage.
func TestTurnInAnOutage(t *testing.T) {
	for name, row := range map[string]struct {
		rule  policy.Rule
		place line.Place
		why   exchange.Why
		limit string // empty: it goes
	}{
		"a retry":                     {policy.Rule{}, line.Place{Sent: 1}, exchange.WhyOverdue, exchange.LimitLine},
		"a retry with a breaker":      {breaker, line.Place{Sent: 1}, exchange.WhyOverdue, exchange.LimitCircuit},
		"a first attempt":             {breaker, line.Place{}, exchange.WhyOverdue, exchange.LimitCircuit},
		"a first attempt, no breaker": {policy.Rule{}, line.Place{}, 0, ""},
		"it fails fast":               {fast, line.Place{}, exchange.WhyFull, exchange.LimitCircuit},
	} {
		play(t, name, row.rule, func(t *testing.T, s *site) {
			bringDown(t, s)
			r := s.Request(t, 0)
			time.Sleep(time.Second)
			require.True(t, new(exchange.Turn).Try(r, line.Place{Sent: 1}), "a probe, after which the next goes in a second")
			row.place.Failed = s.Registry.Now()
			assert.Equal(t, row.limit == "", new(exchange.Turn).Try(r, row.place), "at once")
			turn, start := new(waiting), time.Now()
			if no := new(waiting).await(r, row.place, s.Registry.Now()); assert.NotNil(t, no) {
				limit := exchange.LimitLine
				if row.rule.CircuitBreaker.Enabled == policy.On {
					limit = exchange.LimitCircuit
				}
				assert.Equal(t, []any{exchange.WhyOverdue, limit}, []any{no.Why, no.Limit}, "without time")
			}
			no := turn.await(r, row.place, s.Registry.Now().Add(500*time.Millisecond))
			if row.limit == "" {
				assert.Nil(t, no)
				return
			}
			require.NotNil(t, no)
			assert.Equal(t, []any{row.why, row.limit}, []any{no.Why, no.Limit})
			if row.why != exchange.WhyFull {
				assert.Equal(t, 500*time.Millisecond, time.Since(start).Round(time.Millisecond))
				assert.Equal(t, attempt.Queued{Outage: time.Since(start)}, turn.queued)
			}
			assert.NotContains(t, s.Told, change(news.NoRetries, false, 500, false))
		})
	}
}

// The first in line sees a probe in each quarter of its time.
func TestTimeOfAProbe(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		bringDown(t, s)
		start := time.Now()
		assert.Nil(t, new(waiting).await(s.Request(t, 0), line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(2*time.Second)))
		assert.Equal(t, 300*time.Millisecond, time.Since(start), "half a second after the last attempt")
	})
}

// Those who failed before the end of an outage come back one after the other. The next goes when the attempt of the first is over,
// whether it has waited or has passed others that wait. The time counts as that of the outage.
func TestReturn(t *testing.T) {
	neutral := attempt.Outcome{Kind: attempt.Retry, Err: http.ErrBodyReadAfterClose, Class: classify.Final}
	for name, over := range map[string]func(*exchange.Turn, *exchange.Request){
		"its outcome": func(turn *exchange.Turn, r *exchange.Request) { turn.Done(r, &neutral) },
		"its end":     (*exchange.Turn).Over,
	} {
		for _, passes := range []bool{false, true} {
			play(t, fmt.Sprint(name, passes), policy.Rule{}, func(t *testing.T, s *site) {
				bringDown(t, s)
				place := line.Place{Sent: 2, Failed: s.Registry.Now()}
				var turns [3]waiting
				var went atomic.Int32
				for i := range turns {
					r := s.Request(t, 0)
					go func() {
						if turns[i].await(r, place, s.Registry.Now().Add(time.Hour)) == nil {
							went.Add(1)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(100 * time.Millisecond)
				s.Ends(t, nil, 200, classify.Final)
				synctest.Wait()
				rest := turns[:]
				if passes { // behind the first, for whose successor the pace leaves some time
					over(&turns[0].Turn, s.Request(t, 0))
					passing := new(exchange.Turn)
					require.True(t, passing.Try(s.Request(t, 0), line.Place{Sent: 1, Failed: s.Registry.Now()}))
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					assert.EqualValues(t, 1, went.Load(), "the window is 1")
					over(passing, s.Request(t, 0))
					rest = turns[1:]
				}
				for i := range rest {
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					assert.EqualValues(t, len(turns)-len(rest)+i+1, went.Load(), "the window is 1")
					over(&rest[i].Turn, s.Request(t, 0))
				}
				for _, turn := range turns {
					assert.True(t, turn.queued.Outage > 0 && turn.queued.Line == 0, turn.queued)
				}
				for i, waits := range []bool{false, true} {
					late := new(waiting)
					assert.Nil(t, late.await(s.Request(t, 0), place, s.Registry.Now().Add(time.Minute)))
					late.Over(s.Request(t, 0))
					assert.Equal(t, attempt.Queued{Outage: late.queued.Outage}, late.queued)
					assert.Equal(t, waits, late.queued.Outage > 0, "number %d", i)
				}
			})
		}
	}
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		new(exchange.Turn).Over(s.Request(t, 0))
		assert.Nil(t, s.Request(t, 0).State.MachinesMade(), "a zero turn is in no line")
	})
}

// A failure counts in the scope of its path, and a 429 in that of its credentials. These are only asked for after a 429.
func TestScopesOfTheLine(t *testing.T) {
	keys := 0
	play(t, "", policy.Rule{ThrottleKey: func(*http.Request) string { keys++; return "k" }}, func(t *testing.T, s *site) {
		r, other := s.Request(t, 0), s.Request(t, 0)
		other.Req.URL.Path = "/other"
		assert.Equal(t, r.LineScope(500), r.LineScope(200))
		assert.NotEqual(t, r.LineScope(500), other.LineScope(500))
		assert.Zero(t, keys)
		assert.Equal(t, r.LineScope(429), other.LineScope(429))
		assert.Equal(t, r.Scope(), r.LineScope(429))
		assert.NotEqual(t, r.LineScope(500), r.LineScope(429))

		keys = 0
		fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(500)})
		s.Ends(t, nil, 200, classify.Final)
		s.Request(t, 0).Succeeded(line.Success{})
		assert.Zero(t, keys, "after a failure")

		// So are ten failures of a path an outage of that, which a success over another path does not end.
		place := line.Place{Sent: 1, Failed: s.Registry.Now(), Scope: r.LineScope(500)}
		for range 10 {
			fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(500)})
			other.Succeeded(line.Success{})
			time.Sleep(200 * time.Millisecond)
		}
		place.Failed = s.Registry.Now()
		assert.False(t, s.Request(t, 0).Down(), "the host is not down")
		assert.False(t, new(exchange.Turn).Try(r, place), "the path is")
		s.Request(t, 0).Succeeded(line.Success{})
		assert.True(t, new(exchange.Turn).Try(r, place), "it is back")

		// Ten times 429 are an outage of the key. A success with the key ends it, over any path.
		for range 10 {
			fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(429)})
			time.Sleep(200 * time.Millisecond)
		}
		place = line.Place{Sent: 1, Failed: s.Registry.Now(), Scope: r.LineScope(429)}
		assert.False(t, new(exchange.Turn).Try(r, place), "the key is held up")
		assert.False(t, s.Request(t, 0).Down(), "the host is not")
		assert.True(t, new(exchange.Turn).Try(r, line.Place{Sent: 1, Failed: place.Failed, Scope: r.LineScope(500)}), "the path is not")
		keys = 0
		success := s.Request(t, 0)
		success.Req.URL.Path = "/other"
		success.Succeeded(line.Success{})
		assert.Equal(t, 1, keys)
		assert.True(t, new(exchange.Turn).Try(r, place), "it is back")
	})
}

// A timeout is a sign of overload, unless it is the caller who has no more time.
func TestLateAttempts(t *testing.T) {
	for _, row := range []struct {
		name  string
		gone  bool
		o     attempt.Outcome
		slows bool
	}{
		{"a timeout", false, attempt.Outcome{Err: os.ErrDeadlineExceeded}, true},
		{"that of the caller", true, attempt.Outcome{Err: context.DeadlineExceeded}, false},
		{"a failure", false, attempt.Outcome{Resp: answer(500)}, false},
	} {
		play(t, row.name, policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 1}}, func(t *testing.T, s *site) {
			for new(exchange.Turn).Try(s.Request(t, 0), line.Place{Sent: 1}) {
			}
			fail(t, s, attempt.Outcome{Kind: attempt.First, Resp: answer(500)})
			var went atomic.Int32
			for range 3 {
				r := s.Request(t, 0)
				go func() {
					if new(waiting).await(r, line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(time.Hour)) == nil {
						went.Add(1)
					}
				}()
				synctest.Wait()
			}
			r := s.Request(t, 2*time.Second)
			began := s.Registry.Now()
			if time.Sleep(time.Second - 1); row.gone {
				ctx, cancel := context.WithDeadline(r.Ctx, time.Now())
				defer cancel()
				r.Ctx = ctx
			}
			row.o.Kind, row.o.Class, row.o.SentAt = attempt.First, classify.Ambiguous, began
			s.Done(r, nil, &row.o)
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, row.slows, went.Load() < 3, "%d went: a window bounds them", went.Load())
		})
	}
}

// The last failure is noted for a breaker or an observer. Its error is shown without secrets.
func TestCause(t *testing.T) {
	for name, row := range map[string]struct {
		watched bool
		rule    policy.Rule
		noted   bool
	}{
		"watched":     {true, policy.Rule{}, true},
		"a breaker":   {false, breaker, true},
		"nobody asks": {false, policy.Rule{}, false},
	} {
		play(t, "", row.rule, func(t *testing.T, s *site) {
			s.Registry.Watched = row.watched
			for _, o := range []attempt.Outcome{{Kind: attempt.First, Err: syscall.ECONNRESET}, {Kind: attempt.First, Resp: answer(429)}} {
				fail(t, s, o)
				want := news.Cause{}
				if row.noted {
					want = news.Cause{Status: o.Status(), Err: o.Err}
				}
				assert.Equal(t, want, s.Request(t, 0).State.Machines().News().Failure(), name)
			}
			fail(t, s, attempt.Outcome{Kind: attempt.First, Err: http.ErrBodyReadAfterClose})
			assert.NotEqual(t, http.ErrBodyReadAfterClose, s.Request(t, 0).State.Machines().News().Failure().Err, "the request's own error")
		})
	}
}
