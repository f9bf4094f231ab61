package fleet

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A crew is a number of Transports with a Fleet each, as in so many processes. Their
// server notes each request.
type crew struct {
	tr     []*transport.Transport
	fleets []*Fleet
	config Config
	header http.Header // of each request
	begun  time.Time
	failed atomic.Int64 // requests of run that did not get a 200

	mu   sync.Mutex
	sent []send
}

type send struct {
	member int
	at     time.Duration // since begun
}

// newCrew starts so many members. answer plays the server for a member.
func newCrew(t *testing.T, n int, rule policy.Rule, answer func(member int, at time.Duration) (int, string)) *crew {
	return crewOf(t, slices.Repeat([]Config{options(t, sharedServer(t).Addr)}, n), rule, answer)
}

// crewOf starts a member for each of the configs.
func crewOf(t *testing.T, configs []Config, rule policy.Rule, answer func(member int, at time.Duration) (int, string)) *crew {
	c := &crew{begun: time.Now(), config: configs[0]}
	for i, config := range configs {
		f := fresh(t, config)
		tr := transport.MustNew(transport.Config{Fleet: f, Rule: rule, Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			at := time.Since(c.begun)
			c.mu.Lock()
			c.sent = append(c.sent, send{i, at})
			c.mu.Unlock()
			status, wait := answer(i, at)
			if status == 0 {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
			}
			resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}
			if wait != "" {
				resp.Header.Set("Retry-After", wait)
			}
			return resp, nil
		})})
		c.tr, c.fleets = append(c.tr, tr), append(c.fleets, f)
	}
	for _, f := range c.fleets {
		eventually(t, func() bool { return f.state().Connected && f.state().Members == len(configs) }, "not connected")
	}
	return c
}

// get sends a request as a member, and returns the status or 0.
func (c *crew) get(t *testing.T, member int) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host, nil)
	if err != nil {
		return 0
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	resp, err := c.tr[member].RoundTrip(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// commands returns how many commands Redis got.
func (c *crew) commands() (n uint64) {
	for _, f := range c.fleets {
		n += f.state().Commands
	}
	return n
}

// sends returns the requests that were sent between two times.
func (c *crew) sends(from, to time.Duration) (list []send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sent {
		if s.at >= from && s.at < to {
			list = append(list, s)
		}
	}
	return list
}

// run makes members send requests one after the other, until a time. pause is between two
// requests.
func (c *crew) run(t *testing.T, until time.Duration, pause func(member int) time.Duration) {
	testkit.Together(len(c.tr), func(i int) {
		for time.Since(c.begun) < until {
			if c.get(t, i) != http.StatusOK {
				c.failed.Add(1)
			}
			time.Sleep(pause(i))
		}
	})
}

// keep makes each member work again and again until stop, with a number of workers.
func (c *crew) keep(t *testing.T, workers func(member int) int, work func(ctx context.Context, member int)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i := range c.tr {
		for range workers(i) {
			group.Go(func() {
				for ctx.Err() == nil {
					work(ctx, i)
				}
			})
		}
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// Members that cannot reach a host never stop the members that can.
func TestSickMembersStopNobody(t *testing.T) {
	t.Parallel()
	atOnce(t, 2, []int{1, 3}, strconv.Itoa, sickMembers)
}

func sickMembers(t *testing.T, sick int) {
	const members = 6
	c := newCrew(t, members, policy.Rule{MaxAttempts: 1, CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, func(member int, _ time.Duration) (int, string) {
		if member < sick {
			return 0, ""
		}
		return 200, ""
	})
	observer, heard := start(t, c.config)
	eventually(t, func() bool { return observer.state().Connected }, "not connected")
	until := time.Since(c.begun) + 5*time.Second
	var mu sync.Mutex
	failed, longest := 0, time.Duration(0)
	testkit.Together(members, func(i int) {
		for time.Since(c.begun) < until {
			begin := time.Now()
			status := c.get(t, i)
			took := time.Since(begin)
			mu.Lock()
			if i >= sick {
				longest = max(longest, took)
				if status != 200 {
					failed++
				}
			}
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	})
	healthy := 0
	for _, s := range c.sends(0, time.Hour) {
		if s.member >= sick {
			healthy++
		}
	}
	outages, ends := get(heard, func() int { return len(heard.downs) }), get(heard, func() int { return len(heard.ups) })
	t.Logf("%d sick of %d: %d outages, %d ended; the others sent %d, %d failed, the slowest took %v", sick, members, outages, ends, healthy, failed, longest)
	require.Equal(t, sick >= 3, outages > 0)
	require.Equal(t, outages, ends)
	require.Zero(t, failed, "failed requests")
	require.Less(t, longest, soak.Size(10*time.Second, time.Second))
	require.Greater(t, healthy, 200)
}

// A healthy host without a rate costs heartbeats and a command for each new host, however
// many requests there are.
func TestPeaceCostsHeartbeatsOnly(t *testing.T) {
	t.Parallel()
	const members, each = 5, 2000
	c := newCrew(t, members, policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}, Concurrency: policy.Concurrency{Max: 20}, QuotaPacing: policy.On}, func(int, time.Duration) (int, string) { return 200, "" })
	before, begin := c.commands(), time.Now()
	for i := range members {
		for range each {
			require.Equal(t, 200, c.get(t, i))
		}
	}
	time.Sleep(50 * time.Millisecond)
	got, took := c.commands()-before, time.Since(begin)
	t.Logf("%d commands for %d requests in %v", got, members*each, took)
	require.LessOrEqual(t, got, uint64(members*(2+int(took/(beatEach*4/5)))))
}
