package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The section on streams and long polls in docs/network.md says what these tests show.

// poll is the response to a long poll, which comes after 55 s.
var poll = faults.Status(200).Body("news").Delay(55 * time.Second)

// eventStream is a stream of an hour with an event every 20 s.
var eventStream = faults.Status(200, "Content-Type", "text/event-stream").Body(strings.Repeat("e", 180)).Drip(1, 20*time.Second)

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
		{"API", policy.API(), poll, 6, [2]time.Duration{211 * time.Second, (180 + 3*9 + 9 + 17) * time.Second}, policy.ErrAttemptTimeout},
		{"API with a longer timeout", policy.Rule{AttemptTimeout: 90 * time.Second}.Or(policy.API()), poll, 1, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
		{"Service", policy.Service(), poll, 3, [2]time.Duration{3150 * time.Millisecond, 3900 * time.Millisecond}, policy.ErrAttemptTimeout},
		{"Stall", policy.Rule{Stall: policy.Stall{Timeout: 30 * time.Second}}, poll, 6, [2]time.Duration{211 * time.Second, (180 + 3*9 + 9 + 17) * time.Second}, transport.ErrStalled},
		{"MaxElapsed", policy.Rule{MaxElapsed: 50 * time.Second}, faults.Status(503).Delay(55 * time.Second), 1, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
		{"Hedge", policy.Rule{Hedge: policy.Hedge{After: 10 * time.Second}}, poll, 2, [2]time.Duration{55 * time.Second, 55 * time.Second}, nil},
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
			assert.Len(t, server.arrivals(), row.attempts)
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
		{"API", 0, policy.API(), time.Hour, nil},
		{"MaxElapsed", 0, policy.Rule{MaxElapsed: time.Minute}, time.Hour, nil},
		{"Stall that is longer than the pauses", 0, policy.Rule{Stall: policy.Stall{Timeout: 30 * time.Second}}, time.Hour, nil},
		{"Stall that is shorter", 0, policy.Rule{Stall: policy.Stall{Timeout: 15 * time.Second}}, 15 * time.Second, transport.ErrStalled},
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
			assert.Len(t, server.arrivals(), 1, "an event stream is not asked for again")
			_ = resp.Body.Close()
		})
	}
}

// Long polls hold slots of the gate as long as they wait for their headers. Polls through a
// Transport of their own hold up nobody.
func TestLongPollsAtTheGate(t *testing.T) {
	for name, own := range map[string]bool{"same Transport": false, "a Transport of their own": true} {
		inBubble(t, name, func(t *testing.T) {
			server := faults.New(nil, func(req *http.Request) faults.Step {
				if req.Method == http.MethodOptions {
					return poll
				}
				return faults.Status(200)
			})
			plain := over(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Max: 50}}}, server)
			polls := http.RoundTripper(plain)
			if own {
				polls = over(t, transport.Config{}, server)
			}
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { _, _ = send(t, polls, http.MethodOptions, "http://h.test/") })
			}
			time.Sleep(time.Second)
			start := time.Now()
			responds(t, plain, http.MethodGet, "http://h.test/")
			if own {
				assert.Zero(t, time.Since(start))
			} else {
				assert.GreaterOrEqual(t, time.Since(start), 54*time.Second)
			}
			all.Wait()
		})
	}
}
