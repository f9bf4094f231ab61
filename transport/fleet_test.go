package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A memFleet is a fleet in memory whose news takes delay from a member to the others.
type memFleet struct {
	*fleettest.Memory
	delay time.Duration
	calls atomic.Int64 // of Tell
}

func newMemFleet(delay time.Duration) *memFleet {
	return &memFleet{Memory: fleettest.NewMemory(), delay: delay}
}

// memMember is the fleet as a member sees it.
type memMember struct {
	*fleettest.Member
	fleet *memFleet
	hear  func(fleetmsg.Message)
}

// member returns a further member. fleettest.Link makes a transport.Fleet of it, or of a type
// that has it and methods of its own.
func (f *memFleet) member() *memMember { return &memMember{Member: f.Member(), fleet: f} }

func (m *memMember) Join(hear func(fleetmsg.Message)) error {
	m.hear = hear
	return m.Member.Join(func(msg fleetmsg.Message) {
		if msg.Kind != fleetmsg.Members {
			time.Sleep(m.fleet.delay / 2)
		}
		hear(msg)
	})
}

func (m *memMember) Tell(msg fleetmsg.Message) {
	m.fleet.calls.Add(1)
	time.AfterFunc(m.fleet.delay/2, func() { m.Member.Tell(msg) })
}

// A crew is a number of Transports over the same base. Each counts what it sends.
type crew struct {
	transports []*transport.Transport
	sent       []int
	mu         sync.Mutex
}

// newCrew makes n Transports, which are members of f unless f is nil. base gets the number of
// the member.
func newCrew(t *testing.T, n int, f *memFleet, rule policy.Rule, base func(i int, req *http.Request) (*http.Response, error)) *crew {
	c := &crew{sent: make([]int, n)}
	for i := range n {
		config := transport.Config{Rule: rule, Base: rt(func(req *http.Request) (*http.Response, error) {
			c.mu.Lock()
			c.sent[i]++
			c.mu.Unlock()
			return base(i, req)
		})}
		if f != nil {
			config.Fleet = fleettest.Link(f.member())
		}
		c.transports = append(c.transports, mustNew(t, config))
	}
	time.Sleep(time.Nanosecond) // they hear how many they are
	return c
}

// get makes a request of member i and returns its status, or 0 after an error.
func (c *crew) get(t *testing.T, i int) int {
	code, _ := send(t, c.transports[i], http.MethodGet, "http://h.test/")
	return code
}

// count returns the sends of all members but the first few.
func (c *crew) count(from int) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sent[from:] {
		n += s
	}
	return n
}

// each returns the sends of each member.
func (c *crew) each() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// One process is told to wait for 2 s, and the server refuses the others, too. They obey, and
// come back spread.
func TestFleetHold(t *testing.T) {
	const members = 50
	for _, together := range []bool{true, false} {
		inBubble(t, fmt.Sprint("together ", together), func(t *testing.T) {
			var f *memFleet
			if together {
				f = newMemFleet(20 * time.Millisecond)
			}
			var mu sync.Mutex
			var told time.Time
			var during int
			back := map[int]int{} // tenths of a second after the hold
			c := newCrew(t, members, f, sharing, func(i int, req *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				switch since := time.Since(told); {
				case told.IsZero() && i == 0 && req.Header.Get("Refuse") != "":
					told = time.Now()
					return play(req, status(429, "Retry-After: 2"))
				case told.IsZero():
				case since < 2*time.Second:
					if i > 0 && since >= 100*time.Millisecond {
						during++
					}
					if together {
						return play(req, status(429, "Retry-After: 2", "Date: "))
					}
				default:
					back[int((since-2*time.Second)/(100*time.Millisecond))]++
				}
				return play(req, status(200))
			})
			var all sync.WaitGroup
			ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
			defer stop()
			for i := range members {
				for range 2 {
					all.Go(func() {
						for ctx.Err() == nil {
							assert.Equal(t, 200, c.get(t, i))
							time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
						}
					})
				}
			}
			time.Sleep(time.Second)
			req := newRequest(t, http.MethodGet, "http://h.test/", nil)
			req.Header.Set("Refuse", "1")
			resp := mustRoundTrip(t, c.transports[0], req)
			assert.Equal(t, 200, resp.StatusCode)
			all.Wait()
			if !together {
				assert.Greater(t, during, 1000, "without a fleet nobody else waits")
				return
			}
			assert.LessOrEqual(t, during, 3)
			t.Logf("%d sends during the hold; after it, by tenths of a second: %v", during, back)
			assert.Less(t, back[0]+back[1], members, "the members come back at once")
		})
	}
}

// All members together keep to the rate, and a member that wants little gets it.
func TestFleetRate(t *testing.T) {
	const members = 20
	for _, limited := range []bool{false, true} {
		inBubble(t, fmt.Sprint("limiter ", limited), func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			rule := policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100, Burst: 1}}
			if limited {
				rule.Concurrency = policy.Concurrency{Enabled: policy.On, Max: 100}
			}
			c := newCrew(t, members, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
				time.Sleep(5 * time.Millisecond)
				return play(req, status(200))
			})
			ctx, stop := context.WithTimeout(t.Context(), 13*time.Second)
			defer stop()
			var all sync.WaitGroup
			for i := range members {
				clients, pause := 1, time.Duration(0)
				switch {
				case i < 2:
					clients = 50 // wants far more than there is
				case i >= 10:
					pause = time.Second
				}
				for range clients {
					all.Go(func() {
						for ctx.Err() == nil {
							c.get(t, i)
							time.Sleep(pause)
						}
					})
				}
			}
			time.Sleep(2 * time.Second)
			before, mid, calls := c.each(), c.count(0), int(f.calls.Load())
			time.Sleep(10 * time.Second)
			total, calls := c.count(0)-mid, int(f.calls.Load())-calls
			each := c.each()
			for i := range each {
				each[i] -= before[i]
			}
			t.Logf("%d in 10 s, by member %v; %.1f questions per second and member", total, each, float64(calls)/members/10)
			assert.GreaterOrEqual(t, total, 950)
			assert.LessOrEqual(t, total, 1010)
			for i, n := range each {
				assert.GreaterOrEqual(t, n, 5, "member %d starves", i)
			}
			assert.LessOrEqual(t, calls, members*100, "calls")
			all.Wait()
		})
	}
}

// A Config without a usable Fleet is refused.
func TestFleetConfig(t *testing.T) {
	_, err := transport.New(transport.Config{Fleet: (*fleettest.Member)(nil)})
	require.ErrorContains(t, err, "Fleet")
	full := fleettest.NewMemory().Member()
	mustNew(t, transport.Config{Fleet: full})
	_, err = transport.New(transport.Config{Fleet: full})
	require.ErrorContains(t, err, "has another already")
}

// A slowFleet answers a Meet within Tell, as a file does.
type slowFleet struct {
	*memMember
	knows fleetmsg.Message
}

func (f slowFleet) Tell(m fleetmsg.Message) {
	if m.Kind == fleetmsg.Meet {
		time.Sleep(5 * time.Millisecond)
		f.knows.Host = m.Host
		f.hear(f.knows)
	}
}

// No request goes before a Fleet that answers at once has answered, also if several requests
// are the first, and if an Update turns something on.
func TestFleetAnswersAtOnce(t *testing.T) {
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Status: 429, Wait: 2 * time.Second}
	for name, rule := range map[string]policy.Rule{"from the beginning": sharing, "updated": {}} {
		inBubble(t, name, func(t *testing.T) {
			begun := time.Now()
			tr := mustNew(t, transport.Config{Rule: rule, Fleet: fleettest.Link(slowFleet{newMemFleet(0).member(), hold}), Base: rt(func(req *http.Request) (*http.Response, error) {
				assert.GreaterOrEqual(t, time.Since(begun), hold.Wait)
				return play(req, status(200))
			})})
			if name == "updated" {
				require.NoError(t, tr.Update(sharing, nil))
			}
			c := &crew{transports: []*transport.Transport{tr}}
			together(10, func(i int) {
				time.Sleep(time.Duration(i) * time.Millisecond)
				assert.Equal(t, 200, c.get(t, 0))
			})
		})
	}
}

// The first try at a healthy host does not call the fleet, and costs nothing.
func TestFleetCostsNothing(t *testing.T) {
	f := newMemFleet(0)
	tr := mustNew(t, transport.Config{Fleet: fleettest.Link(f.member()), Base: rt(func(req *http.Request) (*http.Response, error) { return okResponse, nil })})
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	mustRoundTrip(t, tr, req)
	calls := int(f.calls.Load())
	allocations := testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) })
	assert.Zero(t, allocations)
	count(t, calls, int(f.calls.Load()), "fleet asked")
}

var okResponse = &http.Response{StatusCode: 200, Body: http.NoBody}

// A knowingFleet tells what it knows of each host to each member that asks.
type knowingFleet struct {
	*memMember
	knows fleetmsg.Message
}

func (f *knowingFleet) Tell(m fleetmsg.Message) {
	if m.Kind != fleetmsg.Meet {
		f.memMember.Tell(m)
		return
	}
	news := f.knows
	news.Host = m.Host
	time.AfterFunc(time.Millisecond, func() { f.hear(news) })
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
				rule := policy.Rule{ShareRetryAfter: policy.On, QuotaPacing: policy.On, MaxRetryAfter: most}
				base := script(status(503))
				tr := over(t, transport.Config{Rule: rule, Fleet: fleettest.Link(&knowingFleet{newMemFleet(time.Millisecond).member(), knows})}, base)
				for range 4 {
					begin := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					before := base.attempts()
					resp, err := get(t, tr, ctx)
					assert.Greater(t, base.attempts(), before, "not sent")
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

// A frozen server gets few probes of a fleet in all. When the first of them succeeds, all members come back, and no request is
// lost.
func TestFleetOutage(t *testing.T) {
	const members, clients = 40, 10
	const freeze, wake, end = 5 * time.Second, 25 * time.Second, 45 * time.Second
	for name, breaker := range map[string]policy.Switch{"retries wait": policy.Off, "all wait": policy.On} {
		run := func(t *testing.T, f *memFleet) (sent, served, lost int) {
			rule := policy.Rule{AttemptTimeout: 2 * time.Second, CircuitBreaker: policy.CircuitBreaker{Enabled: breaker}}
			begun := time.Now()
			c := newCrew(t, members, f, rule, func(_ int, req *http.Request) (*http.Response, error) {
				if at := time.Since(begun); at >= freeze && at < wake {
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				}
				time.Sleep(100 * time.Millisecond)
				return play(req, status(200))
			})
			var all sync.WaitGroup
			var mu sync.Mutex
			for i := range members {
				for range clients {
					all.Go(func() {
						for time.Since(begun) < end {
							time.Sleep(time.Duration(rand.ExpFloat64() * float64(4*time.Second)))
							code := c.get(t, i)
							mu.Lock()
							if code != 200 {
								lost++
							}
							if at := time.Since(begun); at > wake+5*time.Second && at < end {
								served++
							}
							mu.Unlock()
						}
					})
				}
			}
			time.Sleep(freeze)
			before := c.count(0)
			time.Sleep(wake - freeze)
			sent = c.count(0) - before
			all.Wait()
			return sent, served, lost
		}
		inBubble(t, name, func(t *testing.T) {
			f := newMemFleet(20 * time.Millisecond)
			sent, served, lost := run(t, f)
			alone, _, lostAlone := run(t, nil)
			t.Logf("sent to the frozen server: %d in a fleet, %d alone; served from 5 to 20 s after it: %d; lost: %d and %d; %d messages", sent, alone, served, lost, lostAlone, f.calls.Load())
			assert.Less(t, sent, alone)
			assert.Greater(t, served, 1000, "about 100 per second")
			assert.Zero(t, lost)
		})
	}
}

// Members that cannot reach a host for reasons of their own do not hold up a member that can. It may send all the time, or now
// and then.
func TestFleetSickMembers(t *testing.T) {
	const sick = 4
	for name, row := range map[string]struct {
		rule policy.Rule
		busy bool // there is a member whose requests succeed all the time
	}{
		"beside a busy member":  {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, true},
		"alone":                 {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, false},
		"alone, fails fast":     {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}, false},
		"alone, without limits": {policy.Rule{}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			c := newCrew(t, sick+2, newMemFleet(10*time.Millisecond), row.rule, func(i int, req *http.Request) (*http.Response, error) {
				if time.Sleep(5 * time.Millisecond); i < sick {
					return nil, errors.New("read: connection reset by peer")
				}
				return play(req, status(200))
			})
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var all sync.WaitGroup
			keeps := func(i int, pause time.Duration) {
				all.Go(func() {
					for ctx.Err() == nil {
						begun := time.Now()
						code := c.get(t, i)
						if i >= sick {
							assert.Equal(t, 200, code)
							assert.LessOrEqual(t, time.Since(begun), 30*time.Millisecond, "member %d", i)
						}
						time.Sleep(pause)
					}
				})
			}
			for i := range 10 * sick {
				keeps(i%sick, 100*time.Millisecond)
			}
			if row.busy {
				keeps(sick, 20*time.Millisecond)
			}
			time.Sleep(7 * time.Second)
			keeps(sick+1, 7*time.Second)
			all.Wait()
		})
	}
}

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
				if err := pause(req, 100*time.Millisecond); err != nil || !refused {
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

// sendAll makes a Transport send as much as its rate allows, until the context ends.
func sendAll(ctx context.Context, tr *transport.Transport, group *sync.WaitGroup, streams int) {
	for range streams {
		group.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", nil)
				if err != nil {
					return
				}
				if _, err := tr.RoundTrip(req); err != nil {
					time.Sleep(10 * time.Millisecond) // its turn would come after the deadline
				}
			}
		})
	}
}

// Members come and go. Those that leave in good order give back the tokens that they have not
// used.
func TestMembersThatLeaveKeepNoTokens(t *testing.T) {
	const members, perSecond, life, window = 200, 100, 2500 * time.Millisecond, 20 * time.Second
	for name, killed := range map[string]bool{"closed": false, "killed": true} {
		if killed && soak.Size(true, false) {
			continue
		}
		inBubble(t, name, func(t *testing.T) {
			fleet := fleettest.NewMemory()
			var sent atomic.Int64
			var group sync.WaitGroup
			begun := time.Now()
			live := func(d time.Duration) {
				m := fleet.Member()
				tr, err := transport.New(transport.Config{Fleet: fleettest.Link(m), Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond, Burst: 1}},
					Base: rt(func(req *http.Request) (*http.Response, error) {
						sent.Add(1)
						return play(req, status(200))
					})})
				if !assert.NoError(t, err) {
					return
				}
				ctx := expires(t, d)
				var streams sync.WaitGroup
				sendAll(ctx, tr, &streams, 3)
				streams.Wait()
				if !killed {
					assert.NoError(t, m.Close())
				}
			}
			for i := range members {
				group.Go(func() {
					live(life * time.Duration(1+i) / members)
					for time.Since(begun) < 2*time.Second+window {
						live(life)
					}
				})
			}
			time.Sleep(2 * time.Second)
			before := sent.Load()
			time.Sleep(window)
			n, due := float64(sent.Load()-before), perSecond*window.Seconds()
			group.Wait()
			t.Logf("%.0f of %.0f sent, %.3f", n, due, n/due)
			assert.LessOrEqual(t, n, 1.02*due+1)
			if !killed {
				assert.GreaterOrEqual(t, n, 0.95*due)
			}
		})
	}
}

// endsAfter returns a context without a deadline that ends after d.
func endsAfter(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(d, cancel)
	return ctx
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

// Nonsense from a Fleet does no harm.
func TestFleetNonsense(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemFleet(0).member()
		rule := policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 100}, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}, QuotaPacing: policy.On,
		}
		tr := mustNew(t, transport.Config{Rule: rule, Fleet: fleettest.Link(m), Base: script(status(200))})
		require.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		hear := m.hear
		durations := []time.Duration{math.MinInt64, -time.Hour, -1, 0, 1, time.Second, math.MaxInt64}
		for _, host := range []string{"", "http://", "://", "http://h.test", "http://other.test"} {
			for _, d := range durations {
				for _, n := range []int{math.MinInt, -1, 0, 1, math.MaxInt} {
					for kind := range fleetmsg.Kind(128) {
						for _, x := range []float64{float64(n), math.NaN(), math.Inf(1), math.Inf(-1)} {
							for _, unit := range []string{"", "x"} {
								hear(fleetmsg.Message{
									Kind: kind, Host: host, Scope: uint64(n), Status: n, Unit: unit, Wait: d, First: d, Every: d,
									Members: n, Failures: n, Amount: x, Limit: -x, PerSecond: x, Burst: x,
								})
							}
						}
					}
				}
			}
		}
		hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: 1})
		began := time.Now()
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		t.Logf("the next request took %v", time.Since(began))
		assert.LessOrEqual(t, time.Since(began), 2*time.Minute+10*time.Second, "a hold lasts for MaxRetryAfter and its jitter")
	})
}
