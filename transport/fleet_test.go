package transport_test

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	shared "github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A memFleet is a fleet in memory, for tests in virtual time. News takes delay from a
// member to the ledger and back.
type memFleet struct {
	delay time.Duration
	seed  maphash.Seed
	begun time.Time

	mu      sync.Mutex
	members []*memMember
	hosts   map[string]*shared.Host
	tokens  map[string]*shared.Tokens
	calls   int  // of Tell
	away    bool // nobody is told anything but how many members there are
	unmet   bool // nor that
}

func newMemFleet(delay time.Duration) *memFleet {
	return &memFleet{
		delay: delay, seed: maphash.MakeSeed(), begun: time.Now(),
		hosts: map[string]*shared.Host{}, tokens: map[string]*shared.Tokens{},
	}
}

// memMember is the fleet as a member sees it.
type memMember struct {
	*memFleet
	id   int64
	hear func(fleetmsg.Message)
}

// member returns a further member. fleettest.Link makes a transport.Fleet of it, or of a type
// that has it and methods of its own.
func (f *memFleet) member() *memMember { return &memMember{memFleet: f} }

func (m *memMember) Join(hear func(fleetmsg.Message)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hear = hear
	m.members = append(m.members, m)
	m.id = int64(len(m.members))
	time.AfterFunc(0, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, other := range m.members {
			if m.unmet {
				break
			}
			other.hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: len(m.members)})
		}
	})
	return nil
}

func (m *memMember) Scope(text string) uint64 { return maphash.String(m.seed, text) }
func (m *memMember) State() fleetlink.State   { return fleetlink.State{} }

// later runs ask at the ledger, and tell at the members when its result has arrived.
func (m *memMember) later(host string, ask func(now instant.Instant, h *shared.Host) func()) {
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	time.AfterFunc(m.delay/2, func() {
		m.mu.Lock()
		if m.away {
			m.mu.Unlock()
			return
		}
		h := m.hosts[host]
		if h == nil {
			h = new(shared.Host)
			m.hosts[host] = h
		}
		tell := ask(instant.At(time.Since(m.begun)), h)
		m.mu.Unlock()
		if tell != nil {
			time.AfterFunc(m.delay/2, tell)
		}
	})
}

// others returns a function that tells all other members.
func (m *memMember) others(news fleetmsg.Message) func() {
	members := m.members
	return func() {
		for _, other := range members {
			if other != m {
				other.hear(news)
			}
		}
	}
}

func (m *memMember) Tell(msg fleetmsg.Message) {
	m.later(msg.Host, func(now instant.Instant, h *shared.Host) func() {
		switch msg.Kind {
		case fleetmsg.Meet:
			if !h.IsDown() {
				return nil
			}
			return func() {
				m.hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: msg.Host, Wait: m.now().Sub(h.Since())})
			}
		case fleetmsg.Hold:
			return m.others(msg)
		case fleetmsg.Quota:
			msg.Members = len(m.members)
			return m.others(msg)
		case fleetmsg.Failing:
			return m.failing(msg, now, h)
		case fleetmsg.Working:
			if !h.Working(now) {
				return nil
			}
			return m.others(fleetmsg.Message{Kind: fleetmsg.Up, Host: msg.Host, Wait: shared.ReturnTime(len(m.members))})
		case fleetmsg.AskTokens:
			return m.take(msg, now)
		}
		return nil
	})
}

func (m *memMember) now() instant.Instant { return instant.At(time.Since(m.begun)) }

func (m *memMember) failing(msg fleetmsg.Message, now instant.Instant, h *shared.Host) func() {
	down, from := h.Failing(now, m.id, msg.Failures, now.Add(-msg.Wait), len(m.members))
	if !down {
		return nil
	}
	members := m.members
	return func() {
		for _, o := range members {
			o.hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: msg.Host, Wait: m.now().Sub(from)})
		}
	}
}

func (m *memMember) take(msg fleetmsg.Message, now instant.Instant) func() {
	tokens := m.tokens[msg.Unit+msg.Host]
	if tokens == nil {
		tokens = new(shared.Tokens)
		m.tokens[msg.Unit+msg.Host] = tokens
	}
	n, first, every, again := tokens.Take(now, msg.PerSecond, int(msg.Burst), int(msg.Amount))
	answer := fleetmsg.Message{Kind: fleetmsg.Tokens, Host: msg.Host, Unit: msg.Unit, Amount: float64(n), First: first.Sub(now) - m.delay/2, Every: every, Wait: again}
	return func() { m.hear(answer) }
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

// count returns how often Tell was called.
func (f *memFleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
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
			before, mid, calls := c.each(), c.count(0), f.count()
			time.Sleep(10 * time.Second)
			total, calls := c.count(0)-mid, f.count()-calls
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

// A single busy member gets the whole rate of the fleet, also if it sends one request after
// the other. The requests of a burst do not wait for each other's tokens.
func TestFleetRateOfOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newMemFleet(2 * time.Millisecond)
		c := newCrew(t, 20, f, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100, Burst: 1}}, func(_ int, req *http.Request) (*http.Response, error) {
			return play(req, status(200))
		})
		began := time.Now()
		for time.Since(began) < 12*time.Second {
			if time.Since(began) < 2*time.Second {
				c.sent[0] = 0 // it takes a moment to get there
			}
			c.get(t, 0)
		}
		t.Logf("%d in 10 s", c.count(0))
		assert.InDelta(t, 1000, c.count(0), 20)
	})
}

// A burst that the fleet has saved up goes at once, also at a slow rate.
func TestFleetRateBurst(t *testing.T) {
	for most, rate := range map[time.Duration]policy.RateLimit{50 * time.Millisecond: {PerSecond: 1000, Burst: 100}, time.Second: {PerSecond: 1, Burst: 10}} {
		bubble(t, func(t *testing.T) {
			c := newCrew(t, 2, newMemFleet(2*time.Millisecond), policy.Rule{RateLimit: rate}, func(_ int, req *http.Request) (*http.Response, error) {
				return play(req, status(200))
			})
			began := time.Now()
			together(min(50, rate.Burst), func(int) { c.get(t, 0) })
			assert.Less(t, time.Since(began), most)
		})
	}
}

// A newcomer has no connection to the fleet for a while, and does not hear how many members
// there are.
type newcomer struct {
	*memMember
	connected time.Time
}

func (m newcomer) Join(hear func(fleetmsg.Message)) error {
	return m.memMember.Join(func(msg fleetmsg.Message) {
		if msg.Kind != fleetmsg.Members {
			hear(msg)
		}
	})
}

func (m newcomer) Tell(msg fleetmsg.Message) {
	time.AfterFunc(max(0, time.Until(m.connected)), func() { m.memMember.Tell(msg) })
}

// Members that start together wait for their first answer, and keep the rate from the first
// second on.
func TestFleetRateOfNewcomers(t *testing.T) {
	const members, perSecond = 60, 50
	for _, limiter := range []policy.Concurrency{{}, {Max: 100}} {
		inBubble(t, fmt.Sprint("limiter ", limiter.Max), func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			var sent atomic.Int64
			ctx := endsAfter(t, time.Second)
			var all sync.WaitGroup
			for range members {
				tr := mustNew(t, transport.Config{
					Fleet: fleettest.Link(newcomer{f.member(), time.Now().Add(200 * time.Millisecond)}),
					Rule:  policy.Rule{RateLimit: policy.RateLimit{PerSecond: perSecond}, Concurrency: limiter},
					Base:  rt(func(req *http.Request) (*http.Response, error) { sent.Add(1); return play(req, status(200)) }),
				})
				sendAll(ctx, tr, &all, 4)
			}
			all.Wait()
			assert.InDelta(t, 2*perSecond, sent.Load(), perSecond, "the burst and a second")
		})
	}
}

// The first 250 ms of a fleet that is away, or the first second of a fleet that is there and does not
// answer, cost no request more than its time, and later ones cost 10 ms.
func TestFleetAwayAtTheStart(t *testing.T) {
	for i, limiter := range []policy.Concurrency{{}, {}, {Max: 100}, {Max: 100}} {
		first := []time.Duration{250 * time.Millisecond, time.Second}[i%2]
		inBubble(t, fmt.Sprint("limiter ", limiter.Enabled, " ", first), func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			f.away, f.unmet = true, i%2 == 0
			c := newCrew(t, 1, f, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1000}, Concurrency: limiter}, func(_ int, req *http.Request) (*http.Response, error) {
				return play(req, status(200))
			})
			get := func(host string, within time.Duration) (took time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				resp, err := c.transports[0].RoundTrip(newRequest(t, http.MethodGet, host, nil).WithContext(ctx))
				assert.NoError(t, closing(resp, err), within)
				return time.Since(began)
			}
			var all sync.WaitGroup
			all.Go(func() { assert.Equal(t, first, get("http://a.test/", time.Hour)) })
			for _, within := range []time.Duration{time.Hour, 100 * time.Millisecond, 20 * time.Millisecond} {
				all.Go(func() {
					time.Sleep(time.Millisecond)
					assert.LessOrEqual(t, get("http://b.test/", within), within*3/4+3*time.Millisecond)
				})
			}
			all.Wait()
			assert.LessOrEqual(t, get("http://c.test/", time.Hour), 10*time.Millisecond)
		})
	}
}

// A fleet that does not answer costs a second once, and then 10 ms at most. Each member falls
// back to its part of the rate, whose first token comes within the time of one for each other member.
func TestFleetAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newMemFleet(2 * time.Millisecond)
		f.away = true
		rule := policy.Rule{RateLimit: policy.RateLimit{PerSecond: 40, Burst: 4}}
		c := newCrew(t, 4, f, rule, func(_ int, req *http.Request) (*http.Response, error) { return play(req, status(200)) })
		began := time.Now()
		assert.Equal(t, 200, c.get(t, 0))
		assert.LessOrEqual(t, time.Since(began), time.Second+75*time.Millisecond)
		began = time.Now()
		for range 20 {
			assert.Equal(t, 200, c.get(t, 0))
		}
		assert.InDelta(t, 2, time.Since(began).Seconds(), 0.2, "a quarter of 40 per second")
		f.mu.Lock()
		f.away = false
		f.mu.Unlock()
		time.Sleep(time.Second)
		began = time.Now()
		for range 40 {
			assert.Equal(t, 200, c.get(t, 0))
		}
		assert.InDelta(t, 1, time.Since(began).Seconds(), 0.25, "the whole rate, because nobody else sends")
	})
}

// Each member has its part of the budget's floor.
func TestFleetBudget(t *testing.T) {
	retries := func(t *testing.T, members int) (n int) {
		bubble(t, func(t *testing.T) {
			rule := policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off}}
			var sent atomic.Int64
			c := newCrew(t, members, newMemFleet(0), rule, func(_ int, req *http.Request) (*http.Response, error) {
				if sent.Add(1)%10 == 0 { // so that the budget does not rest
					return play(req, status(200))
				}
				return play(req, status(503))
			})
			together(50, func(_ int) {
				for range 10 {
					c.get(t, 0)
				}
			})
			n = c.count(0) - 500
		})
		return n
	}
	alone, four := retries(t, 1), retries(t, 4)
	t.Logf("%d retries alone, %d as one of four", alone, four)
	assert.InDelta(t, float64(alone)/4, four, float64(alone)/8)
}

// Nonsense from a Fleet does no harm.
func TestFleetNonsense(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newMemFleet(0)
		rule := policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 100}, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}, QuotaPacing: policy.On,
		}
		c := newCrew(t, 1, f, rule, func(_ int, req *http.Request) (*http.Response, error) { return play(req, status(200)) })
		require.Equal(t, 200, c.get(t, 0))
		hear := f.members[0].hear
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
		assert.Equal(t, 200, c.get(t, 0))
		t.Logf("the next request took %v", time.Since(began))
		assert.LessOrEqual(t, time.Since(began), 2*time.Minute+10*time.Second, "a hold lasts for MaxRetryAfter and its jitter")
	})
}

// A Config without a usable Fleet is refused.
func TestFleetConfig(t *testing.T) {
	_, err := transport.New(transport.Config{Fleet: (*fleettest.Member)(nil)})
	require.ErrorContains(t, err, "Fleet")
	_, err = transport.New(transport.Config{Fleet: fleettest.Link(fullFleet{newMemFleet(0).member()})})
	require.ErrorContains(t, err, "it has a member already")
}

type fullFleet struct{ *memMember }

func (fullFleet) Join(func(fleetmsg.Message)) error { return errors.New("it has a member already") }

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
	for _, row := range []struct {
		name  string
		rule  policy.Rule
		knows fleetmsg.Message
		least time.Duration
	}{
		{"a hold keeps the first requests back", sharing, hold, 2 * time.Second},
	} {
		for _, updated := range []bool{false, true} {
			inBubble(t, fmt.Sprint(row.name, ", updated ", updated), func(t *testing.T) {
				begun := time.Now()
				rule := row.rule
				if updated {
					rule = policy.Rule{}
				}
				tr := mustNew(t, transport.Config{Rule: rule, Fleet: fleettest.Link(slowFleet{newMemFleet(0).member(), row.knows}), Base: rt(func(req *http.Request) (*http.Response, error) {
					assert.GreaterOrEqual(t, time.Since(begun), row.least)
					return play(req, status(200))
				})})
				if updated {
					require.NoError(t, tr.Update(row.rule, nil))
				}
				c := &crew{transports: []*transport.Transport{tr}}
				together(10, func(i int) {
					time.Sleep(time.Duration(i) * time.Millisecond)
					assert.Equal(t, 200, c.get(t, 0))
				})
			})
		}
	}
}

// The first try at a healthy host does not call the fleet, and costs nothing.
func TestFleetCostsNothing(t *testing.T) {
	f := newMemFleet(0)
	tr := mustNew(t, transport.Config{Fleet: fleettest.Link(f.member()), Base: rt(func(req *http.Request) (*http.Response, error) { return okResponse, nil })})
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	mustRoundTrip(t, tr, req)
	calls := f.count()
	allocations := testing.AllocsPerRun(1000, func() { _, _ = tr.RoundTrip(req) })
	assert.Zero(t, allocations)
	count(t, calls, f.count(), "fleet asked")
}

var okResponse = &http.Response{StatusCode: 200, Body: http.NoBody}

// A generousFleet has tokens for everybody.
type generousFleet struct{ *memMember }

func (f generousFleet) Tell(m fleetmsg.Message) {
	if m.Kind == fleetmsg.AskTokens {
		go f.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: m.Host, Amount: 1e9})
	}
}

// BenchmarkFleet is the cost of a first try at a healthy host, with and without a fleet.
func BenchmarkFleet(b *testing.B) {
	for _, c := range []struct {
		name string
		rule policy.Rule
	}{
		{"default", policy.Rule{}},
		{"limiter", policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}}},
		{"rate", policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1e9, Burst: 1e9}}},
		{"everything", costSettings()["everything"]},
	} {
		for _, together := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fleet=%v", c.name, together), func(b *testing.B) {
				config := transport.Config{Rule: c.rule, Base: rt(func(*http.Request) (*http.Response, error) { return okResponse, nil })}
				if together {
					config.Fleet = fleettest.Link(generousFleet{newMemFleet(0).member()})
				}
				tr := mustNew(b, config)
				req := newRequest(b, http.MethodGet, "http://h.test/", nil)
				if together && c.rule.RateLimit.PerSecond > 0 {
					for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
						_, _ = tr.RoundTrip(req) // asks for more and more tokens
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					_, _ = tr.RoundTrip(req)
				}
			})
		}
	}
}

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
		Fleet: fleettest.Link(&knowingFleet{newMemFleet(time.Millisecond).member(), knows, times}),
		Base:  rt(func(req *http.Request) (*http.Response, error) { sent++; return play(req, base) }),
	}), &sent
}

// A request that has waited for its token needs no second token because the fleet tells of a
// quota meanwhile, if the quota lets it go.
func TestQuotaThatComesDuringTheWait(t *testing.T) {
	for _, limiter := range []policy.Concurrency{{}, {Max: 100}} {
		inBubble(t, fmt.Sprint("limiter ", limiter.Max), func(t *testing.T) {
			rule := policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1}, QuotaPacing: policy.On, Concurrency: limiter}
			knows := fleetmsg.Message{Kind: fleetmsg.Quota, Amount: 34, Limit: 100, Wait: 24 * time.Hour}
			tr, _ := aMember(t, rule, status(200), knows, 1)
			start := time.Now()
			require.NoError(t, closing(get(t, tr, t.Context())))
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
		})
	}
}

// If Update turns on a limit that a fleet shares, the member asks what the fleet knows.
func TestUpdateAsksTheFleet(t *testing.T) {
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Status: 429, Wait: time.Minute}
	quota := fleetmsg.Message{Kind: fleetmsg.Quota, Limit: 100, Wait: 50 * time.Second}
	off := policy.Rule{}
	for name, row := range map[string]struct {
		knows   fleetmsg.Message
		on      policy.Rule
		atLeast time.Duration
	}{
		"throttle": {hold, policy.Rule{ShareRetryAfter: policy.On}, 59 * time.Second},
		"pacing":   {quota, policy.Rule{QuotaPacing: policy.On}, 49 * time.Second},
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
				rule := policy.Rule{ShareRetryAfter: policy.On, QuotaPacing: policy.On, MaxRetryAfter: most}
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
			tr, sent := aMember(t, policy.Rule{QuotaPacing: policy.On}, base, wrong, 200)
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
