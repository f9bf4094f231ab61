package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A knowingFleet knows something of each host. It tells it to each member that asks.
type knowingFleet struct {
	*memMember
	knows fleetmsg.Message
	times int // how often it tells it, once per second
}

func (f *knowingFleet) Tell(m fleetmsg.Message) {
	if m.Kind != fleetmsg.Meet {
		f.memMember.Tell(m)
		return
	}
	time.AfterFunc(time.Millisecond, func() {
		for n := range max(f.times, 1) {
			if n > 0 {
				time.Sleep(time.Second)
			}
			news := f.knows
			news.Host = m.Host
			f.hear(news)
		}
	})
}

// aMember returns a Transport whose fleet tells something of each host, and its number of
// sends.
func aMember(t *testing.T, rule policy.Rule, base answer, knows fleetmsg.Message, times int) (*transport.Transport, *int) {
	sent := 0
	return mustNew(t, transport.Config{
		Rule:  rule,
		Fleet: &knowingFleet{newMemFleet(time.Millisecond).member(), knows, times},
		Base:  rt(func(req *http.Request) (*http.Response, error) { sent++; return play(req, base) }),
	}), &sent
}

// A request that has waited for its token needs no second token because the fleet tells of a
// quota meanwhile, if the quota lets it go.
func TestQuotaThatComesDuringTheWait(t *testing.T) {
	for _, gate := range []policy.Gate{{}, {Mode: policy.GateWait}} {
		inBubble(t, fmt.Sprint("gate ", gate.Enabled()), func(t *testing.T) {
			rule := policy.Rule{Rate: policy.Rate{PerSecond: 1}, Pacing: policy.On, Gate: gate}
			knows := fleetmsg.Message{Kind: fleetmsg.Quota, Amount: 34, Limit: 100, Wait: 24 * time.Hour}
			tr, _ := aMember(t, rule, status(200), knows, 1)
			start := time.Now()
			require.NoError(t, closing(get(t, tr, t.Context())))
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
		})
	}
}

// If Update turns on a limit that a fleet shares, the member asks what the fleet knows.
// TestFleetAnswersAtOnce does so with a gate.
func TestUpdateAsksTheFleet(t *testing.T) {
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Status: 429, Wait: time.Minute}
	quota := fleetmsg.Message{Kind: fleetmsg.Quota, Limit: 100, Wait: 50 * time.Second}
	off := policy.Rule{}
	for name, row := range map[string]struct {
		knows   fleetmsg.Message
		on      policy.Rule
		atLeast time.Duration
	}{
		"cooldown": {hold, policy.Rule{Cooldown: policy.On}, 59 * time.Second},
		"pacing":   {quota, policy.Rule{Pacing: policy.On}, 49 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			tr, _ := aMember(t, off, status(200), row.knows, 1)
			send := func() time.Duration {
				begin := time.Now()
				resp := mustGet(t, tr)
				_ = resp.Body.Close()
				return time.Since(begin)
			}
			for range 2 {
				assert.Zero(t, send())
				time.Sleep(10 * time.Millisecond)
			}
			require.NoError(t, tr.Update(row.on, nil))
			assert.Zero(t, send(), "the first request asks")
			time.Sleep(10 * time.Millisecond)
			assert.GreaterOrEqual(t, send(), row.atLeast)
		})
	}
}

// Whatever a fleet says, no request fails because of it. A quarter of its time is left at
// least.
func TestHearsayRefusesNothing(t *testing.T) {
	for name, knows := range map[string]fleetmsg.Message{
		"hold":              {Kind: fleetmsg.Hold, Status: 429, Wait: 30 * 24 * time.Hour},
		"quota":             {Kind: fleetmsg.Quota, Limit: 100, Wait: 24 * time.Hour, Members: 1 << 24},
		"quota with a rest": {Kind: fleetmsg.Quota, Amount: 2, Limit: 100, Wait: 24 * time.Hour, Members: 1 << 24},
	} {
		for _, most := range []time.Duration{0, -1} {
			inBubble(t, fmt.Sprint(name, most), func(t *testing.T) {
				rule := policy.Rule{Cooldown: policy.On, Pacing: policy.On, RetryAfter: policy.RetryAfter{Max: most}}
				tr, sent := aMember(t, rule, status(503), knows, 1)
				for range 4 {
					begin := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					before := *sent
					resp, err := get(t, tr, ctx)
					assert.Greater(t, *sent, before, "not sent")
					if assert.NoError(t, err) {
						_ = resp.Body.Close()
					}
					assert.LessOrEqual(t, time.Since(begin), 8*time.Second)
					cancel()
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
	}
}

// A false quota of a fleet slows a member until its own responses show that it is false.
func TestFalseQuota(t *testing.T) {
	for name, base := range map[string]answer{
		"the server names its quota": status(200, "RateLimit-Limit: 100", "RateLimit-Remaining: 90", "RateLimit-Reset: 60"),
		"the server names no quota":  status(200),
	} {
		inBubble(t, name, func(t *testing.T) {
			wrong := fleetmsg.Message{Kind: fleetmsg.Quota, Limit: 100, Wait: 24 * time.Hour, Members: 4}
			tr, sent := aMember(t, policy.Rule{Pacing: policy.On}, base, wrong, 200)
			begin := time.Now()
			for time.Since(begin) < 160*time.Second {
				resp := mustGet(t, tr)
				_ = resp.Body.Close()
				time.Sleep(2 * time.Second)
			}
			assert.GreaterOrEqual(t, *sent, 50)
			time.Sleep(time.Minute)
		})
	}
}

// A fleet whose clock jumps back says that the host is down since now. A member with a success every
// second does not obey.
func TestFalseOutage(t *testing.T) {
	for _, mode := range []policy.GateMode{policy.GateWait, policy.GateRefuse} {
		inBubble(t, fmt.Sprint(mode), func(t *testing.T) {
			rule := policy.Rule{Gate: policy.Gate{Mode: mode, Start: 10}}
			tr, _ := aMember(t, rule, status(200), fleetmsg.Message{Kind: fleetmsg.Down}, 60)
			for range 65 {
				time.Sleep(time.Second)
				begin := time.Now()
				assert.NoError(t, closing(get(t, tr, t.Context())))
				assert.Zero(t, time.Since(begin))
			}
		})
	}
}

// inFlight lets each member keep so many requests in flight until the context ends. Each
// takes 100 ms.
func (c *crew) inFlight(ctx context.Context, t *testing.T, all *sync.WaitGroup, each int) {
	for i := range c.transports {
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					req := newRequest(t, http.MethodGet, "http://h.test/", nil)
					_ = closing(c.transports[i].RoundTrip(req.WithContext(ctx)))
				}
			})
		}
	}
}

// endsAfter returns a context without a deadline that ends after d.
func endsAfter(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(d, cancel)
	return ctx
}

// lasts takes the time of a request.
func lasts(req *http.Request) error { return pause(req, 100*time.Millisecond) }

// If all members are refused, they send hardly anything during the hold.
func TestFleetAllRefused(t *testing.T) {
	for _, row := range []struct {
		members, code, seconds, most int
	}{{4, 429, 5, 4 * 8}, {4, 503, 60, 4 * 8}, {50, 429, 60, 20}} {
		inBubble(t, fmt.Sprint(row), func(t *testing.T) {
			const begin = 5 * time.Second
			begun := time.Now()
			var mu sync.Mutex
			var first time.Time // when the first refusal was given
			late := 0
			c := newCrew(t, row.members, newMemFleet(2*time.Millisecond), sharing, func(_ int, req *http.Request) (*http.Response, error) {
				refused := time.Since(begun) > begin
				mu.Lock()
				if !first.IsZero() {
					late++
				}
				mu.Unlock()
				if err := lasts(req); err != nil || !refused {
					resp, _ := play(req, status(200))
					return resp, err
				}
				mu.Lock()
				defer mu.Unlock()
				if first.IsZero() {
					first = time.Now()
				}
				return play(req, status(row.code, fmt.Sprint("Retry-After: ", row.seconds)))
			})
			ctx := endsAfter(t, begin+time.Duration(row.seconds)*time.Second)
			var all sync.WaitGroup
			c.inFlight(ctx, t, &all, 8)
			all.Wait()
			t.Logf("%d sends during the hold", late)
			assert.LessOrEqual(t, late, row.most)
		})
	}
}
