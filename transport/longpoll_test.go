// Callers that poll: for long, for events, again and again at a dead host, and at slow hosts.

package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// The section on streams and long polls in docs/network.md says what these tests show.

// poll is the response to a long poll, which comes after 55 s.
var poll = faults.Status(200).Body("news").Delay(55 * time.Second)

// eventStream is a stream of an hour with an event every 20 s.
var eventStream = faults.Status(200).Header("Content-Type", "text/event-stream").Body(strings.Repeat("e", 180)).Drip(1, 20*time.Second)

func TestLongPollUnderTimeouts(t *testing.T) {
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		step     faults.Step
		attempts int
		after    [2]time.Duration // from, to
		err      error
	}{
		{"default", policy.Rule{}, poll, 1, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
		{"API", profile.API(), poll, 6, [2]time.Duration{211 * time.Second, (180 + 3*9 + 9 + 17) * time.Second}, policy.ErrAttemptTimeout},
		{"API with a longer timeout", policy.Rule{AttemptTimeout: 90 * time.Second}.Or(profile.API()), poll, 1, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
		{"Service", profile.Service(), poll, 3, [2]time.Duration{3150 * time.Millisecond, 3900 * time.Millisecond}, policy.ErrAttemptTimeout},
		{"Stall", policy.Rule{StallTimeout: 30 * time.Second}, poll, 6, [2]time.Duration{211 * time.Second, (180 + 3*9 + 9 + 17) * time.Second}, policy.ErrStallTimeout},
		{"MaxElapsedTime", policy.Rule{MaxElapsedTime: 50 * time.Second}, faults.Status(503).Delay(55 * time.Second), 1, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
		{"Hedge", policy.Rule{Hedge: policy.Hedge{Delay: 10 * time.Second}}, poll, 2, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			server := script(row.step)
			start := time.Now()
			resp, err := get(t, over(t, transport.Config{Rule: row.rule}, server), t.Context())
			took := time.Since(start)
			if err == nil {
				_ = resp.Body.Close()
			}
			assert.ErrorIs(t, err, row.err)
			server.sent(t, row.attempts)
			assert.GreaterOrEqual(t, took, row.after[0])
			assert.LessOrEqual(t, took, row.after[1])
		})
	}
}

func TestStreamUnderTimeouts(t *testing.T) {
	for _, row := range []struct {
		name   string
		client time.Duration // http.Client.Timeout
		rule   policy.Rule
		after  time.Duration
		err    error
	}{
		{"default", 0, policy.Rule{}, time.Hour, nil},
		{"timeout of the client", time.Minute, policy.Rule{}, time.Minute, context.DeadlineExceeded},
		{"API", 0, profile.API(), time.Hour, nil},
		{"MaxElapsedTime", 0, policy.Rule{MaxElapsedTime: time.Minute}, time.Hour, nil},
		{"Stall that is longer than the pauses", 0, policy.Rule{StallTimeout: 30 * time.Second}, time.Hour, nil},
		{"Stall that is shorter", 0, policy.Rule{StallTimeout: 15 * time.Second}, 15 * time.Second, policy.ErrStallTimeout},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			server := script(eventStream)
			client := http.Client{Transport: over(t, transport.Config{Rule: row.rule}, server), Timeout: row.client}
			start := time.Now()
			resp, err := client.Get("http://h.test/")
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			assert.ErrorIs(t, err, row.err)
			assert.Equal(t, row.after, time.Since(start).Round(time.Second))
			server.sent(t, 1, "an event stream is not asked for again")
			_ = resp.Body.Close()
		})
	}
}

// stream returns a stream whose pieces come a minute apart, and then its end.
func streamed(req *http.Request, end error, pieces ...string) *http.Response {
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, p)
		}
		time.Sleep(time.Minute)
		_ = w.CloseWithError(end)
	}()
	resp := newResponse(req, 200, r, "Content-Type: text/event-stream")
	resp.ContentLength = -1
	return resp
}

func TestFirstEventTimeout(t *testing.T) {
	const event = "data: {}\n\n"
	for name, tt := range map[string]struct {
		method string
		first  []string
		end    error
		rule   policy.Rule
		sent   int
		took   time.Duration
		err    error
	}{
		"in time":             {http.MethodGet, []string{": a\n\n", event}, nil, policy.Rule{}, 1, 2 * time.Minute, nil},
		"late":                {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{}, 2, 150*time.Second + time.Minute, nil},
		"late, POST":          {http.MethodPost, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{}, 1, 150 * time.Second, policy.ErrAttemptTimeout},
		"cut":                 {http.MethodGet, []string{": a\n\n"}, io.ErrUnexpectedEOF, policy.Rule{}, 2, 3 * time.Minute, nil},
		"cut, POST":           {http.MethodPost, []string{": a\n\n"}, io.ErrUnexpectedEOF, policy.Rule{}, 1, 2 * time.Minute, io.ErrUnexpectedEOF},
		"ends":                {http.MethodGet, []string{": a\n\n"}, nil, policy.Rule{}, 1, 2 * time.Minute, nil},
		"with other timeouts": {http.MethodGet, []string{event}, nil, policy.Rule{AttemptTimeout: time.Second, StallTimeout: 100 * time.Second}, 1, time.Minute, nil},
		"stalls":              {http.MethodGet, []string{": a\n\n"}, nil, policy.Rule{StallTimeout: 30 * time.Second}, 2, 30*time.Second + time.Minute, policy.ErrStallTimeout},
		"with a limiter":      {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, 2, 150*time.Second + time.Minute, nil},
		"off":                 {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{FirstEventTimeout: policy.Off}, 1, 0, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			defer time.Sleep(time.Hour) // for the streams that nobody reads
			sent := 0
			base := rt(func(req *http.Request) (*http.Response, error) {
				if sent++; sent == 1 {
					return streamed(req, tt.end, tt.first...), nil
				}
				return streamed(req, nil, event), nil
			})
			rule := tt.rule.Or(quick).Or(policy.Rule{FirstEventTimeout: 150 * time.Second})
			if name == "stalls" {
				rule.MaxAttempts = 2
			}
			start := time.Now()
			resp, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(newRequest(t, tt.method, "http://example.test/", nil))
			count(t, tt.sent, sent, "request sent")
			if tt.err != nil {
				assert.ErrorIs(t, err, tt.err)
				assert.Nil(t, resp)
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, tt.took, time.Since(start), float64(time.Second))
			whole := mustRead(t, resp)
			require.NoError(t, resp.Body.Close())
			want := strings.Join(tt.first, "")
			if tt.sent == 2 {
				want = event
			}
			assert.Equal(t, want, string(whole))
		})
	}
}

// A crowd counts what callers do to a host that answers each request with a 503 after
// 20 ms.
type crowd struct {
	tr       *transport.Transport
	sends    atomic.Int64
	calls    atomic.Int64
	withheld atomic.Int64 // the calls that the budget ended
	running  atomic.Int64
}

func newCrowd(t *testing.T, rule policy.Rule) *crowd {
	c := new(crowd)
	c.tr = over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
		c.sends.Add(1)
		time.Sleep(20 * time.Millisecond)
		return play(req, faults.Status(503))
	}))
	return c
}

func (c *crowd) call(t *testing.T) {
	c.running.Add(1)
	defer c.running.Add(-1)
	resp, err := get(t, c.tr, t.Context())
	c.calls.Add(1)
	if err == nil {
		_ = resp.Body.Close()
		if transport.HistoryOf(resp, nil).Reason == transport.ReasonRetryBudget {
			c.withheld.Add(1)
		}
	}
}

// TestPollersOfADeadHost has the figures of lab/figures.md about callers that ask again as
// soon as a call has failed. The calls wait in line, so the host gets hardly more from many pollers than from one.
func TestPollersOfADeadHost(t *testing.T) {
	const span = 2 * time.Minute
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		pollers  int
		most     float64 // requests per second
		withheld bool
	}{
		{"default", policy.Rule{}, 1, 0.25, false},
		{"default", policy.Rule{}, 10, 0.7, true},
		{"default", policy.Rule{}, 100, 5, true},
		{"no budget", policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}}, 100, 25, false},
	} {
		bubble(t, func(t *testing.T) {
			c := newCrowd(t, row.rule)
			end := time.Now().Add(span)
			var wg sync.WaitGroup
			for range row.pollers {
				wg.Go(func() {
					for time.Now().Before(end) {
						c.call(t)
					}
				})
			}
			time.Sleep(span)
			perSecond := float64(c.sends.Load()) / span.Seconds()
			t.Logf("%s, %d pollers: %.1f requests/s, the budget ended %d of %d calls", row.name, row.pollers, perSecond, c.withheld.Load(), c.calls.Load())
			assert.LessOrEqual(t, perSecond, row.most, row.name)
			assert.Equal(t, row.withheld, c.withheld.Load() > 0, row.name)
			wg.Wait()
		})
	}
}

// Nobody has asked for hedges, so a slow request is sent once, however quick the host is otherwise.
func TestSlowRequestIsSentOnce(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service()} {
		inBubble(t, name, func(t *testing.T) {
			slow := 29 * time.Second
			if rule.AttemptTimeout > 0 {
				slow = rule.AttemptTimeout - time.Millisecond
			}
			var sent atomic.Int32
			tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/" {
					return play(req, status(200).Delay(5*time.Millisecond))
				}
				sent.Add(1)
				return play(req, faults.Status(200).Body("first").Delay(slow))
			}))
			quick := func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) }
			for range 300 {
				quick()
			}
			var beside sync.WaitGroup
			defer beside.Wait()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			beside.Go(func() {
				for ctx.Err() == nil {
					quick()
					time.Sleep(50 * time.Millisecond)
				}
			})
			start := time.Now()
			got := do(tr, newRequest(t, http.MethodGet, "http://h.test/report", nil))
			assert.NoError(t, got.err)
			assert.Equal(t, "first", got.body)
			assert.Equal(t, slow, time.Since(start))
			count(t, 1, sent.Load(), "request sent")
		})
	}
}
