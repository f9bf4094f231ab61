package member_test

import (
	"math"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/policy"
)

const (
	ms   = time.Millisecond
	sec  = time.Second
	name = "http://h.test"
)

// A site is a host of a member.
type site struct {
	*testing.T
	fleetlink.Host
	instant.Clock
	fleet    fleetlink.Fleet
	machines host.Machines
	hear     func(fleetmsg.Message)
	sent     []fleetmsg.Message
}

// in plays with a host in virtual time.
func in(t *testing.T, title string, rule policy.Rule, play func(*site)) {
	t.Run(title, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &site{T: t, Clock: instant.NewClock()}
			s.fleet = (&member.Backend{
				Join:  func(hear func(fleetmsg.Message)) error { s.hear = hear; return nil },
				Tell:  func(m fleetmsg.Message) { s.sent = append(s.sent, m) },
				Scope: func(text string) uint64 { return uint64(len(text)) },
			}).Link()
			require.NoError(t, s.fleet.Join(s.Clock))
			s.Host = s.fleet.Host(name, &s.machines.Line, s.machines.LimiterMade)
			s.Obey(&rule)
			time.Sleep(time.Minute)
			require.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Meet, Host: name}}, s.said())
			play(s)
		})
	})
}

// said returns what was told since the last call.
func (s *site) said() []fleetmsg.Message {
	defer func() { s.sent = nil }()
	return s.sent
}

// hears lets the member hear something of the host.
func (s *site) hears(k fleetmsg.Kind, m fleetmsg.Message) {
	m.Kind, m.Host = k, name
	s.hear(m)
}

// waits returns how long a request of a scope waits that has some time, or any if that is 0.
func (s *site) waits(scope uint64, has time.Duration) time.Duration {
	w, begun := queue.NewWaiter(), time.Now()
	if w.From = s.Now(); has > 0 {
		w.By = s.Now().Add(has)
	}
	defer s.Leave(scope, w)
	for {
		a := s.Enter(s.Now(), scope, w)
		if a.Verb == queue.Go {
			return time.Since(begun)
		}
		assert.Zero(s, a.Until, "the word of a fleet refuses nobody")
		select {
		case <-w.Ready:
		case <-time.After(a.Ask.Sub(s.Now())):
		}
	}
}

// A list gets its elements from several goroutines.
type list[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *list[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

// take returns the elements since the last call.
func (l *list[T]) take() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

var (
	holding = policy.Rule{ShareRetryAfter: policy.On}
	paced   = policy.Rule{QuotaPacing: policy.On}
)

// What the fleet says of waits and quotas holds requests within their time, and within the rule. What it says of a setting that is
// off has no effect.
func TestHear(t *testing.T) {
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Status: 429, Wait: 20 * sec, Scope: 1}
	quota := fleetmsg.Message{Kind: fleetmsg.Quota, Limit: 100, Wait: 20 * sec, Scope: 1}
	rest := fleetmsg.Message{Kind: fleetmsg.Quota, Amount: 4, Limit: 100, Wait: 20 * sec, Scope: 1, Members: 4}
	much := fleetmsg.Message{Kind: fleetmsg.Quota, Amount: 90, Limit: 100, Wait: 20 * sec, Scope: 1}
	short := policy.Rule{MaxRetryAfter: 5 * sec}
	for title, row := range map[string]struct {
		rule        policy.Rule
		m           fleetmsg.Message
		has         time.Duration
		least, most time.Duration
		news        bool
	}{
		"hold":                        {holding, hold, 0, 20 * sec, 21 * sec, true},
		"hold and a deadline":         {holding, hold, 8 * sec, 6 * sec, 6 * sec, true},
		"hold beyond the bound":       {holding.Or(short), hold, 0, 5 * sec, 6 * sec, true},
		"hold without a throttle":     {paced, hold, 0, 0, 0, false},
		"hold that is over":           {holding, fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 1}, 0, 0, 0, false},
		"quota":                       {paced, quota, 0, 20 * sec, 20 * sec, true},
		"quota and a deadline":        {paced, quota, 8 * sec, 4 * sec, 4 * sec, true},
		"quota beyond the bound":      {paced.Or(short), quota, 0, 5 * sec, 5 * sec, true},
		"quota of which some is left": {paced, rest, 0, 0, 0, true},
		"quota of which much is left": {paced, much, 0, 0, 0, false},
		"quota without pacing":        {holding, quota, 0, 0, 0, false},
		"quota that is over":          {paced, fleetmsg.Message{Kind: fleetmsg.Quota, Scope: 1}, 0, 0, 0, false},
	} {
		in(t, title, row.rule, func(s *site) {
			assert.True(s, s.Quiet())
			s.hears(row.m.Kind, row.m)
			assert.Zero(s, s.waits(2, 0), "another scope")
			told := s.Heard(s.Now())
			if assert.Len(s, told, map[bool]int{true: 1}[row.news]); row.news {
				assert.True(s, told[0].Fleet && told[0].Until > s.Now(), "%+v", told)
			}
			assert.Empty(s, s.Heard(s.Now()), "told once")
			took := s.waits(1, row.has)
			assert.GreaterOrEqual(s, took, row.least)
			assert.LessOrEqual(s, took, row.most)
			time.Sleep(time.Minute)
			s.waits(1, 0)
			assert.True(s, s.Quiet(), "it is forgotten")
			assert.Empty(s, s.said())
		})
	}
}

// A hold that a member was told itself holds it for longer in a fleet: the members come back 20 ms apart, over at most the time of the
// wait. Requests come back in a ramp.
func TestHeld(t *testing.T) {
	for members, most := range map[int]time.Duration{1: 0, 20: sec, 100: 2 * sec, 1 << 30: 10 * sec} {
		in(t, "", holding, func(s *site) {
			s.hears(fleetmsg.Members, fleetmsg.Message{Members: members})
			longest := time.Duration(0)
			for range 100 {
				s.Held(s.Now(), 1, 503, 10*sec)
				assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.Hold, Host: name, Scope: 1, Status: 503, Wait: 10 * sec}}, s.said())
				assert.Empty(s, s.Heard(s.Now()), "it is no news")
				longest = max(longest, s.waits(1, 0)-10*sec)
				time.Sleep(time.Minute)
			}
			assert.LessOrEqual(s, longest, most)
			assert.GreaterOrEqual(s, longest, most*9/10)
		})
	}
	in(t, "ramp", holding, func(s *site) {
		s.hears(fleetmsg.Hold, fleetmsg.Message{Status: 429, Wait: sec})
		var times list[time.Duration]
		begun := time.Now()
		for range 5 {
			go func() { s.waits(0, 0); times.add(time.Since(begun)) }()
		}
		time.Sleep(30 * sec)
		went := times.take()
		require.Len(s, went, 5)
		assert.Equal(s, 400*ms, slices.Max(went)-slices.Min(went))
		s.hears(fleetmsg.Hold, fleetmsg.Message{Status: 429, Wait: sec})
		for range 3 {
			go func() { s.waits(0, 0); times.add(time.Since(begun)); s.Answered(s.Now(), 0, s.Now()) }()
		}
		time.Sleep(30 * sec)
		went = times.take()
		require.Len(s, went, 3)
		assert.Equal(s, slices.Max(went), slices.Min(went), "each response lets two go")
	})
}

// A member tells of quotas that are half used up. It goes on as if the others used them as much, and believes a response more.
func TestQuotas(t *testing.T) {
	quota := func(left int64, unit string) field.Quota {
		return field.Quota{Unit: unit, Remaining: left, Limit: 100, Reset: 100 * sec}
	}
	named := func(s *site, success bool, all ...field.Quota) {
		s.Named(s.Now(), 0, s.Now(), all, success)
	}
	in(t, "told", paced, func(s *site) {
		named(s, true, quota(51, ""), quota(50, "tokens"))
		assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.Quota, Host: name, Unit: "tokens", Amount: 50, Limit: 100, Wait: 100 * sec}}, s.said())
		assert.True(s, s.Quiet(), "nobody else uses them")
	})
	for members, gap := range map[int]time.Duration{0: 10 * sec, 1: 10 * sec, 3: 30 * sec} {
		in(t, "a part", paced, func(s *site) {
			s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 10, Limit: 100, Wait: 100 * sec, Members: members})
			assert.Zero(s, s.waits(0, 0))
			assert.InDelta(s, float64(gap), float64(s.waits(0, 0)), float64(ms))
			named(s, true, quota(90, ""))
			assert.Zero(s, s.waits(0, 0), "much is left")
			for range 75 {
				s.waits(0, 0)
			}
			assert.Positive(s, s.waits(0, 0), "it is used up")
		})
	}
	in(t, "lower", paced, func(s *site) {
		for _, left := range []float64{30, 0, 90} { // news may come out of order
			s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: left, Limit: 100, Wait: 20 * sec})
		}
		s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 90, Limit: 100, Wait: sec})
		s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 90, Limit: 100, Wait: time.Hour})
		assert.Equal(s, 20*sec, s.waits(0, 0))
	})
	in(t, "of another window", paced, func(s *site) {
		s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 10, Limit: 100, Wait: 100 * sec, Members: 1})
		assert.Zero(s, s.waits(0, 0))
		for _, wait := range []time.Duration{sec, time.Hour} {
			s.hears(fleetmsg.Quota, fleetmsg.Message{Limit: 100, Wait: wait, Members: 9})
		}
		for range 2 {
			assert.InDelta(s, float64(10*sec), float64(s.waits(0, 0)), float64(ms))
		}
	})
	in(t, "costs", paced, func(s *site) {
		s.hears(fleetmsg.Quota, fleetmsg.Message{Unit: "tokens", Amount: 40, Limit: 100, Wait: 100 * sec, Members: 1})
		w := queue.NewWaiter()
		w.Cost = 30
		assert.Equal(s, queue.Go, s.Enter(s.Now(), 0, w).Verb)
		assert.Equal(s, s.Now().Add(time.Minute), s.Enter(s.Now(), 0, w).Ask, "too little is left")
		s.Leave(0, w)
	})
	in(t, "another window", paced, func(s *site) {
		s.hears(fleetmsg.Quota, fleetmsg.Message{Limit: 100, Wait: 24 * time.Hour, Members: 9})
		time.Sleep(sec)
		named(s, true, quota(10, ""))
		assert.Zero(s, s.waits(0, 0))
		assert.InDelta(s, float64(100*sec)/10, float64(s.waits(0, 0)), float64(ms), "the others have nothing to do with it")
	})
	in(t, "in order", paced, func(s *site) {
		s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 4, Limit: 100, Wait: 50 * sec})
		var went list[int]
		for i := range 4 {
			go func() { s.waits(0, 0); went.add(i) }()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		assert.Equal(s, []int{0, 1, 2, 3}, went.take())
	})
	in(t, "false", paced, func(s *site) {
		lie := func() { s.hears(fleetmsg.Quota, fleetmsg.Message{Limit: 100, Wait: 24 * time.Hour}) }
		lie()
		s.Named(s.Now(), 0, s.Now().Add(-sec), nil, true)
		named(s, false)
		assert.Equal(s, time.Minute, s.waits(0, 0), "the response came before, or is no success")
		var woken time.Duration
		begun := time.Now()
		go func() { s.waits(0, 0); woken = time.Since(begun) }()
		time.Sleep(sec)
		named(s, true)
		synctest.Wait()
		assert.Equal(s, sec, woken)
		for range 3 {
			time.Sleep(9 * sec)
			lie()
			assert.Zero(s, s.waits(0, 0), "the fleet is not believed")
			named(s, true)
		}
		time.Sleep(10 * sec)
		lie()
		assert.Equal(s, time.Minute, s.waits(0, 0), "it is believed again")
		named(s, true)
		named(s, true, quota(90, "tokens"))
		lie()
		assert.Equal(s, time.Minute, s.waits(0, 0), "since a response has named a quota")
		named(s, true, quota(90, "tokens"))
		assert.Zero(s, s.waits(0, 0), "of another unit")
	})
	in(t, "bounds", paced, func(s *site) {
		for i := range uint64(300) {
			s.hears(fleetmsg.Quota, fleetmsg.Message{Limit: 100, Wait: time.Minute, Scope: i})
		}
		held := 0
		for i := range uint64(300) {
			w := queue.NewWaiter()
			if s.Enter(s.Now(), i, w).Verb == queue.Wait {
				held++
			}
			s.Leave(i, w)
		}
		assert.Equal(s, queue.MaxScopes, held)
		for i := range 10 {
			s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: 90, Limit: 100, Wait: time.Minute, Unit: string(rune('a' + i))})
		}
		for _, x := range []float64{-1, math.NaN(), math.Inf(1), 1e300, 0.9} {
			s.hears(fleetmsg.Quota, fleetmsg.Message{Amount: x, Limit: x, Wait: math.MaxInt64, Members: math.MaxInt, Scope: 1})
			s.hears(fleetmsg.Hold, fleetmsg.Message{Wait: math.MaxInt64, Scope: 1})
		}
		assert.LessOrEqual(s, s.waits(1, 0), time.Minute)
	})
}

// A member reports that a host is down every 250 ms at most, as long as attempts fail, and the end of the outage.
func TestChanged(t *testing.T) {
	in(t, "", policy.Rule{}, func(s *site) {
		s.Changed(s.Now(), line.State{State: outage.State{Failures: 3, Since: s.Now()}})
		s.Changed(s.Now(), line.State{})
		assert.Empty(s, s.said(), "it is not down")
		begun := s.Now()
		for i := range 100 {
			s.Changed(s.Now(), line.State{State: outage.State{Down: true, Failures: 10 + i, Since: begun.Add(-sec)}})
			time.Sleep(10 * ms)
		}
		all := s.said()
		assert.Len(s, all, 4, "reports in a second")
		assert.Equal(s, fleetmsg.Message{Kind: fleetmsg.Failing, Host: name, Failures: 10, Wait: sec}, all[0])
		s.Changed(s.Now(), line.State{State: outage.State{Down: true}})
		assert.Empty(s, s.said(), "its own attempts have not failed")
		s.Changed(s.Now(), line.State{})
		s.Changed(s.Now(), line.State{})
		assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.Working, Host: name}}, s.said())
	})
}

// Members share the probes of an outage. A member whose own requests have not failed probes at once, and its success ends the outage
// for all.
func TestDownAndUp(t *testing.T) {
	conf := line.Config{Breaker: true, Probers: 1}
	next := func(s *site) time.Duration {
		c := s.Divide(conf)
		return s.machines.Line.Enter(s.Now(), new(line.Place), nil, &c).Until.Sub(s.Now())
	}
	for title, row := range map[string]struct {
		failures, members int
		probe             time.Duration
	}{"failing": {3, 2, 2 * sec}, "in a crowd": {3, 40, 20 * sec}, "nonsense": {3, 1 << 30, 20 * sec}} {
		in(t, title, policy.Rule{}, func(s *site) {
			s.hears(fleetmsg.Members, fleetmsg.Message{Members: row.members})
			for range row.failures {
				s.machines.Line.Failed(s.Now(), line.Failure{Began: s.Now()})
			}
			s.hears(fleetmsg.Down, fleetmsg.Message{Wait: 3 * sec})
			assert.Equal(s, row.probe, next(s))
			time.Sleep(sec)
			s.hears(fleetmsg.Down, fleetmsg.Message{Wait: 4 * sec})
			assert.Equal(s, row.probe-sec, next(s), "it knows that already")
			s.hears(fleetmsg.Up, fleetmsg.Message{Wait: time.Hour})
			assert.LessOrEqual(s, next(s), 5*sec)
			s.machines.Line.Succeeded(s.Now(), line.Success{})
			s.hears(fleetmsg.Up, fleetmsg.Message{Wait: sec})
			assert.False(s, s.machines.Line.State().Down)
		})
	}
	in(t, "healthy", policy.Rule{}, func(s *site) {
		s.hears(fleetmsg.Members, fleetmsg.Message{Members: 10})
		s.hears(fleetmsg.Down, fleetmsg.Message{Wait: 3 * sec})
		assert.Equal(s, line.State{State: outage.State{Down: true, Since: s.Now().Add(-3 * sec)}}, s.machines.Line.State())
		assert.LessOrEqual(s, next(s), time.Duration(0), "it goes")
		assert.Equal(s, 10*sec, next(s))
		s.machines.Line.Succeeded(s.Now(), line.Success{})
		s.Changed(s.Now(), s.machines.Line.State())
		assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.Working, Host: name}}, s.said())
		assert.Equal(s, 1, s.Divide(conf).Probers)
	})
	in(t, "budget", policy.Rule{}, func(s *site) {
		conf.Budget.PerSecond = 3
		assert.Equal(s, conf, s.Divide(conf))
		s.hears(fleetmsg.Members, fleetmsg.Message{Members: 10})
		assert.InDelta(s, 0.3, s.Divide(conf).Budget.PerSecond, 1e-9)
	})
}

// The fleet is asked what it knows when the host is new, and when an Update turns something on.
func TestObey(t *testing.T) {
	in(t, "", policy.Rule{}, func(s *site) {
		for _, row := range []struct {
			rule policy.Rule
			asks bool
		}{{holding, true}, {holding, false}, {paced, true}, {policy.Rule{}, false}, {holding.Or(paced), true}, {paced, false}} {
			s.Obey(&row.rule)
			assert.Equal(s, row.asks, len(s.said()) > 0, "%+v", row.rule)
		}
		s.hears(fleetmsg.Quota, fleetmsg.Message{Limit: 100, Wait: time.Minute})
		s.Obey(&holding)
		assert.Zero(s, s.waits(0, 0), "an Update turned the pacing off")
	})
}

// A request asks for tokens, and a member that leaves gives back those that it has not used. Members with a cost share none with those
// without.
func TestTokens(t *testing.T) {
	in(t, "", policy.Rule{Cost: func(*http.Request) int { return 1 }}, func(s *site) {
		conf := rate.Config{PerSecond: 4, Burst: 2}
		limit := rate.New(conf, s.Host)
		enter := func(w *queue.Waiter) queue.Answer {
			return s.machines.Limits().Concurrency().Enter(s.Now(), nil, w, concurrency.Config{Max: concurrency.NoMax, Rate: limit})
		}
		leave := fleetmsg.Message{Kind: fleetmsg.Leave}
		s.hear(leave)
		assert.Empty(s, s.said(), "it has no tokens")
		s.Ask(s.Now(), 0, false)
		assert.Empty(s, s.said(), "nobody waits")
		w := queue.NewWaiter()
		assert.Equal(s, queue.Wait, enter(w).Verb)
		s.Ask(s.Now(), 0, true)
		assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.AskTokens, Host: name, Unit: "cost", PerSecond: 4, Burst: 2, Amount: 1}}, s.said())
		s.hears(fleetmsg.Tokens, fleetmsg.Message{Amount: 1})
		assert.Equal(s, queue.Wait, enter(w).Verb, "tokens of another unit")
		s.hears(fleetmsg.Tokens, fleetmsg.Message{Amount: 1, Unit: "cost"})
		s.hear(leave)
		s.hear(leave)
		assert.Equal(s, []fleetmsg.Message{{Kind: fleetmsg.Unused, Host: name, Unit: "cost", PerSecond: 4, Burst: 2, Amount: 1}}, s.said())
	})
	in(t, "waiters", policy.Rule{}, func(s *site) {
		limit := s.machines.Rate(rate.Config{PerSecond: 4, Burst: 2})
		s.Set(s.Now(), rate.Config{PerSecond: 4, Burst: 2})
		for range 5 {
			s.machines.Limits().Concurrency().Enter(s.Now(), nil, queue.NewWaiter(), concurrency.Config{Max: concurrency.NoMax, Rate: limit})
		}
		s.Ask(s.Now(), 0, false)
		assert.Equal(s, 3.0, s.said()[0].Amount, "those that wait")
	})
	for members, silence := range map[int]time.Duration{0: 10 * ms, 2: 700 * ms} {
		in(t, "after the first 250 ms", policy.Rule{}, func(s *site) {
			conf, other := rate.Config{PerSecond: 4, Burst: 2}, s.fleet.Host("http://other.test", &s.machines.Line, s.machines.LimiterMade)
			other.Obey(&policy.Rule{})
			if members > 0 {
				s.hears(fleetmsg.Members, fleetmsg.Message{Members: members})
			}
			s.Set(s.Now(), conf)
			s.Ask(s.Now(), 0, true)
			time.Sleep(300 * ms)
			other.Set(s.Now(), conf)
			other.Ask(s.Now(), 0, true)
			time.Sleep(10 * sec)
			s.said()
			other.Ask(s.Now(), 0, true)
			assert.Equal(s, silence, s.said()[0].Wait)
		})
	}
	for title, row := range map[string]struct {
		met     bool
		by      time.Duration
		silence time.Duration
	}{"met": {true, 0, sec}, "a deadline": {true, 400 * ms, 300 * ms}, "short": {true, 4 * ms, 10 * ms}, "nobody has answered": {false, 0, sec}} {
		in(t, title, policy.Rule{}, func(s *site) {
			if row.met {
				s.hears(fleetmsg.Members, fleetmsg.Message{Members: 2})
			}
			s.Set(s.Now(), rate.Config{PerSecond: 4, Burst: 2})
			by := instant.Instant(0)
			if row.by > 0 {
				by = s.Now().Add(row.by)
			}
			s.Ask(s.Now(), by, true)
			time.Sleep(10 * sec)
			s.said()
			s.Ask(s.Now(), 0, true)
			assert.Equal(s, row.silence, s.said()[0].Wait)
		})
	}
}

// News of a host that the Transport does not know, or has forgotten, is dropped.
func TestForgotten(t *testing.T) {
	in(t, "", holding, func(s *site) {
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://other.test", Wait: sec})
		assert.True(s, s.Quiet())
		for i := range 1000 {
			h := s.fleet.Host(string(rune('a'+i)), &s.machines.Line, s.machines.LimiterMade)
			h.Obey(&holding)
		}
		runtime.GC()
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "a", Wait: sec})
		s.hears(fleetmsg.Hold, fleetmsg.Message{Wait: sec})
		assert.False(s, s.Quiet())
	})
}

// The scope of a request is that of its ThrottleKey or of its credentials.
func TestScope(t *testing.T) {
	in(t, "", holding, func(s *site) {
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, name, nil)
		require.NoError(s, err)
		key := func(*http.Request) string { return "ab" }
		assert.Zero(s, s.fleet.Scope(req, nil))
		assert.EqualValues(s, len("scope\x00ab"), s.fleet.Scope(req, key))
		req.Header.Set("Authorization", "x")
		assert.NotZero(s, s.fleet.Scope(req, nil))
	})
}
