package exchange_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/exchange/exchangetest"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/policy"
)

var (
	rated   = policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 1}}
	limited = policy.Rule{Concurrency: policy.Concurrency{Max: 1}}
	paced   = policy.Rule{QuotaPacing: policy.On}
)

// waits lets requests ask a limit that lets one of them go, and returns a function that takes the others out of its queue.
func waits(t *testing.T, s *site, n int) (leave func()) {
	t.Helper()
	r, all := s.Request(t, 0), []*queue.Waiter(nil)
	m, conf := r.State.Machines(), concurrency.Config{Max: concurrency.NoMax}
	if r.Rule.Concurrency {
		conf = r.Rule.Settings.Concurrency
	}
	if r.Rule.RateLimit {
		conf.Rate = m.Rate(r.Rule.Settings.Rate)
	}
	for range n {
		w := queue.NewWaiter()
		all = append(all, w)
		m.Limits().Concurrency().Enter(s.Registry.Now(), new(concurrency.Slot), w, conf)
	}
	return func() {
		for _, w := range all {
			m.Limits().Concurrency().Leave(w)
		}
	}
}

// review lets a request look at what lasts, and returns all that was told.
func review(t *testing.T, s *site) []string {
	t.Helper()
	s.Request(t, 0).Review()
	return s.Told
}

// A limit that holds requests for long is told with its figures. It is over when nobody has waited for long for ten seconds and
// nobody waits, or when an Update turns it off.
func TestHeldForLong(t *testing.T) {
	both := limited.Or(rated)
	both.Concurrency.Max = 2
	for name, row := range map[string]struct {
		rule    policy.Rule
		of      news.Condition
		waiting int // of three of which one goes
		room    int
		off     bool // an Update turns the limit off
	}{
		"rate":              {rated, news.RateLimited, 2, 0, false},
		"rate, turned off":  {rated, news.RateLimited, 2, 0, true},
		"limiter":           {limited, news.Crowded, 2, 1, false},
		"limiter, off":      {limited, news.Crowded, 2, 1, true},
		"rate at a limiter": {both, news.RateLimited, 2, 0, false},
	} {
		play(t, name, row.rule, func(t *testing.T, s *site) {
			leave, r, began := waits(t, s, 3), s.Request(t, 0), s.Registry.Now()
			r.BeginHeld(row.of, news.Cause{Status: 7}, 2*time.Second)
			assert.Equal(t, []string{change(row.of, false, 7, false)}, s.Told)
			assert.Equal(t, news.Change{
				Key: news.Key{Condition: row.of}, Cause: news.Cause{Status: 7}, Since: began.Add(-2 * time.Second), Waiting: row.waiting, Room: row.room,
			}, s.Last, "with the figures of now")
			r.BeginHeld(row.of, news.Cause{}, time.Hour)
			assert.Len(t, s.Told, 1, "it lasts already")

			if row.off {
				s.Update(t, policy.Rule{})
			} else {
				time.Sleep(time.Minute)
				assert.Len(t, review(t, s), 1, "requests wait")
				leave()
				s.Request(t, 0).BeginHeld(row.of, news.Cause{}, time.Second)
				s.Update(t, limited.Or(row.rule)) // the limiter may be new
			}
			time.Sleep(10*time.Second - 1)
			assert.Len(t, review(t, s), 1, "not yet")
			time.Sleep(time.Nanosecond)
			s.Request(t, 0).Review()
			require.Len(t, s.Told, 2)
			assert.Equal(t, change(row.of, true, 0, false), s.Told[1])
			room := row.room
			if row.off {
				room = 0
			}
			assert.Equal(t, []any{0, room, instant.Instant(0)}, []any{s.Last.Waiting, s.Last.Room, s.Last.Until})
			leave()
		})
	}
}

// A hold is told without the jitter of this process, with the requests that wait, and ends when nothing is held.
func TestHeld(t *testing.T) {
	play(t, "", policy.Rule{ShareRetryAfter: policy.On}, func(t *testing.T, s *site) {
		r, now := s.Request(t, 0), s.Registry.Now()
		hold := &r.State.Machines().Limits().Throttle
		until := hold.Hold(now, r.Scope(), 4*time.Second, throttle.Config{Jitter: time.Second}, 0.5)
		require.Greater(t, until, now.Add(4*time.Second))
		w := queue.NewWaiter()
		hold.Enter(now, r.Scope(), w)
		held := news.Change{Key: news.Key{Condition: news.Held, Scope: r.Scope()}, Cause: news.Cause{Status: 429}, Since: now, Until: until}
		r.Begin(held)
		want := held
		want.Until, want.Waiting = now.Add(4*time.Second), 1
		assert.Equal(t, want, s.Last)

		time.Sleep(4 * time.Second)
		assert.Len(t, review(t, s), 1, "it is held for its jitter")
		hold.Leave(w)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{change(news.Held, false, 429, false), change(news.Held, true, 0, false)}, review(t, s))
		assert.Zero(t, s.Last.Until)
		assert.Len(t, review(t, s), 2, "the end is told once")
	})
}

// A request finds out that the hold of its own scope is over. It asks for its scope only while a condition lasts that differs by scope.
func TestScopeOfAReview(t *testing.T) {
	keys := 0
	play(t, "", policy.Rule{ShareRetryAfter: policy.On, ThrottleKey: func(*http.Request) string { keys++; return "k" }}, func(t *testing.T, s *site) {
		bringDown(t, s)
		s.Request(t, 0).Review()
		assert.Zero(t, keys, "while a host is down")
		r := s.Request(t, 0)
		r.Begin(news.Change{Key: news.Key{Condition: news.Held, Scope: r.Scope()}, Until: s.Registry.Now().Add(time.Hour)})
		keys = 0
		s.Request(t, 0).Review()
		assert.Equal(t, 1, keys)
		assert.Equal(t, change(news.Held, true, 0, false), s.Told[len(s.Told)-1], "its own hold is over, before the time that was told")
	})
}

// A condition of a quota ends with its time, or when an Update turns the pacing off.
func TestLowQuota(t *testing.T) {
	play(t, "", paced, func(t *testing.T, s *site) {
		key := news.Key{Condition: news.LowQuota}
		s.Request(t, 0).Begin(news.Change{Key: key, Cause: news.Cause{Status: 200}, Until: s.Registry.Now().Add(time.Minute), Room: 5})
		assert.Equal(t, []any{instant.Instant(1), s.Registry.Now().Add(time.Minute), 5}, []any{s.Last.Since, s.Last.Until, s.Last.Room}, "some time is known")
		assert.Len(t, review(t, s), 1)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{change(news.LowQuota, false, 200, false), change(news.LowQuota, true, 0, false)}, review(t, s))

		s.Request(t, 0).Begin(news.Change{Key: key, Cause: news.Cause{Status: 200}, Until: s.Registry.Now().Add(time.Minute)})
		s.Update(t, policy.Rule{})
		assert.Equal(t, []string{change(news.LowQuota, false, 200, false), change(news.LowQuota, true, 0, false)}, review(t, s)[2:], "an Update turned the pacing off")
		s.Request(t, 0).End(key)
		assert.Len(t, s.Told, 4, "it does not last")
	})
}

// Retries that wait for long are told until none waits. An outage is told before them.
func TestNoRetries(t *testing.T) {
	play(t, "", policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.02}}, func(t *testing.T, s *site) {
		s.Request(t, 0).State.Machines().News().Failed(news.Cause{Status: 502})
		for new(exchange.Turn).Try(s.Request(t, 0), line.Place{Sent: 1}) {
		}
		for range 2 {
			r := s.Request(t, 0)
			go new(waiting).await(r, line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(time.Hour))
			synctest.Wait()
		}
		time.Sleep(50*time.Second + 1)
		synctest.Wait()
		assert.Equal(t, []string{change(news.NoRetries, false, 502, false)}, s.Told, "by the first that went")
		assert.Equal(t, []any{1, instant.Instant(0)}, []any{s.Last.Waiting, s.Last.Until})
		time.Sleep(40 * time.Second)
		assert.Len(t, review(t, s), 1, "one waits")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		s.Request(t, 0).Review()
		assert.Equal(t, change(news.NoRetries, true, 0, false), s.Told[1])
	})
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		s.Join()
		s.Request(t, 0)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: exchangetest.Name})
		s.Request(t, 0).BeginHeld(news.NoRetries, news.Cause{}, time.Minute)
		assert.Equal(t, []string{change(news.Down, false, 0, false), change(news.NoRetries, false, 0, false)}, s.Told)
	})
}

// A hold of the fleet is told by the next request, and is over when its time has come, although this process holds nothing.
func TestHoldOfTheFleet(t *testing.T) {
	play(t, "", policy.Rule{ShareRetryAfter: policy.On}, func(t *testing.T, s *site) {
		s.Join()
		s.Request(t, 0)
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 429, Wait: 4 * time.Second})
		assert.Empty(t, s.Told)
		assert.Equal(t, []string{change(news.Held, false, 429, true)}, review(t, s), "by the next request")
		s.Hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: exchangetest.Name, Status: 500, Scope: 2})
		assert.Len(t, review(t, s), 1, "it holds nothing")
		time.Sleep(3 * time.Second)
		assert.Len(t, review(t, s), 1, "not yet")
		time.Sleep(time.Minute)
		s.Request(t, 0).Review()
		assert.Equal(t, change(news.Held, true, 0, true), s.Told[1])
	})
}

// Nothing is told if nobody watches, and nothing is made for it.
func TestNobodyWatches(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		s.Registry.Watched = false
		r := s.Request(t, 0)
		r.Review()
		r.BeginHeld(news.Crowded, news.Cause{}, time.Minute)
		r.Begin(news.Change{Key: news.Key{Condition: news.LowQuota}})
		assert.Nil(t, r.State.MachinesMade())
		bringDown(t, s)
		s.Ends(t, nil, 200, classify.Final)
		assert.Empty(t, s.Told)
		assert.Nil(t, r.State.Machines().NewsMade())
	})
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		s.Request(t, 0).Review()
		assert.Nil(t, s.Request(t, 0).State.MachinesMade(), "no host has failed")
		s.Request(t, 0).BeginHeld(news.RateLimited, news.Cause{}, time.Second)
		s.Request(t, 0).BeginHeld(news.Crowded, news.Cause{}, time.Second)
		assert.Nil(t, s.Request(t, 0).State.Machines().LimitsMade(), "no limit is made to look at it")
	})
}

// After more changes than the log has lines for, it is told what lasts, with the figures of now.
func TestLogOfTheState(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		m := s.Request(t, 0).State.Machines()
		for range 7 {
			m.News().TakeLine(s.Registry.Now(), news.Change{})
		}
		bringDown(t, s)
		assert.Empty(t, s.State)
		time.Sleep(time.Minute)
		go new(waiting).await(s.Request(t, 0), line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(time.Second))
		go new(waiting).await(s.Request(t, 0), line.Place{Sent: 1, Failed: s.Registry.Now()}, s.Registry.Now().Add(time.Second))
		synctest.Wait()
		s.Ends(t, nil, 500, classify.Ambiguous)
		require.Len(t, s.State, 1, "conditions that last")
		assert.EqualValues(t, news.Down, s.State[0].Condition)
		assert.Equal(t, 1, s.State[0].Waiting, "those who wait now")
	})
}

// What a hook that panics has left is told by the next request.
func TestRestOfTheNews(t *testing.T) {
	play(t, "", policy.Rule{}, func(t *testing.T, s *site) {
		n, told := s.Request(t, 0).State.Machines().News(), false
		assert.Panics(t, func() { n.Tell(func() { n.Tell(func() { told = true }); panic("hook") }) })
		s.Request(t, 0).Review()
		assert.True(t, told, "by the next request")
	})
}
