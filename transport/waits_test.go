// Waits before a retry: after silence, up to MaxElapsedTime, and what a hook hears of the deadline.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// No retry starts later than MaxElapsedTime after the first attempt, although the GetBody of the
// caller takes the time that the decision had left.
func TestNoRetryStartsAfterMaxElapsed(t *testing.T) {
	for takes, attempts := range map[time.Duration]int{49 * time.Millisecond: 2, 51 * time.Millisecond: 1} {
		inBubble(t, takes.String(), func(t *testing.T) {
			base := script(faults.Fail(errRefused))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Body = oneShot("text")
			req.GetBody = func() (io.ReadCloser, error) {
				time.Sleep(takes)
				return oneShot("text"), nil
			}
			rule := policy.Rule{MaxElapsedTime: 100 * time.Millisecond, MaxAttempts: 2, Backoff: backoff.Constant(50 * time.Millisecond)}
			_, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(req)
			if e := errorAs[*transport.Error](t, err); attempts == 1 {
				assert.Equal(t, transport.ReasonMaxElapsedTime, e.Reason)
			}
			base.sent(t, attempts)
		})
	}
}

// The same holds if the retry waits for the idle connections of a silent base to be closed.
func TestNoRetryOverASilentBaseStartsAfterMaxElapsed(t *testing.T) {
	for most, attempts := range map[time.Duration]int{52 * time.Millisecond: 2, 50500 * time.Microsecond: 1} {
		inBubble(t, most.String(), func(t *testing.T) {
			var start time.Time
			base := rt(func(req *http.Request) (*http.Response, error) {
				switch {
				case req.URL.Path == "/well":
					return &http.Response{StatusCode: 200, ProtoMajor: 2, Body: http.NoBody, Request: req}, nil
				case start.IsZero():
					start = time.Now()
				default:
					assert.LessOrEqual(t, time.Since(start), most)
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			rule := policy.Rule{MaxElapsedTime: most, MaxAttempts: 2, AttemptTimeout: 50 * time.Millisecond, Backoff: backoff.Constant(0)}
			tr := over(t, transport.Config{Rule: rule}, brittle{rt: base})
			assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/well"))
			_, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
			assert.Len(t, errorAs[*transport.Error](t, err).Attempts, attempts, "attempts")
		})
	}
}

// TestWaitAfterSilence: after a timeout the retry comes at a random time up to the wait before the
// fourth retry. After anything else it comes as soon as the back-off says.
func TestWaitAfterSilence(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: 2 * time.Second}.Or(exact) // 1 s before the second attempt
	for _, row := range []struct {
		name   string
		step   faults.Step
		took   time.Duration // by the first attempt
		longer bool
	}{
		{"no answer", faults.Hang(), 2 * time.Second, true},
		{"the base's own timeout", faults.Fail(os.ErrDeadlineExceeded), 0, true},
		{"503", faults.Status(503), 0, false},
		{"a late 504", faults.Status(504).Delay(time.Second), time.Second, false},
		{"a reset", faults.ConnReset(), 0, false},
		{"refused", faults.Fail(syscall.ECONNREFUSED), 0, false},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var least, most time.Duration = time.Hour, 0
			for range 50 {
				server := script(row.step, faults.Status(200))
				resp := mustGet(t, over(t, transport.Config{Rule: rule}, server))
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				at := server.arrivals()
				require.Len(t, at, 2)
				wait := at[1] - at[0] - row.took
				least, most = min(least, wait), max(most, wait)
			}
			assert.GreaterOrEqual(t, least, time.Second)
			assert.LessOrEqual(t, most, 8*time.Second)
			if row.longer {
				assert.Less(t, least, 3*time.Second, "the times are spread")
				assert.Greater(t, most, 6*time.Second, "the times are spread")
			} else {
				assert.Equal(t, time.Second, most)
			}
		})
	}
}

// A hook knows the deadline of each attempt.
func TestDeadlineOfAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, row := range []struct {
			name            string
			attempt, caller time.Duration // 0: none
			stall           time.Duration // 0: none
			body            io.Reader
			want            []time.Duration // from the start of each attempt; -1: none
		}{
			{"none", 0, 0, 0, nil, []time.Duration{-1, transport.LaterTimeout}},
			{"attempt", time.Second, 0, 0, nil, []time.Duration{time.Second, time.Second}},
			{"caller", 0, 5 * time.Second, 0, nil, []time.Duration{5 * time.Second, 4 * time.Second}},
			{"the earlier", 3 * time.Second, 3500 * time.Millisecond, 0, nil, []time.Duration{3 * time.Second, 2500 * time.Millisecond}},
			{"a stall", 0, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall before the attempt's end", 1200 * time.Millisecond, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall after the attempt's end", time.Second, 0, time.Minute, nil, []time.Duration{time.Second, time.Second}},
			{"a stall and a streamed body", 0, 0, 200 * time.Millisecond, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"small body", time.Second, 0, 0, strings.NewReader("x"), []time.Duration{time.Second, time.Second}},
			{"large body", time.Second, 0, 0, strings.NewReader(strings.Repeat("x", 65<<10)), []time.Duration{-1, -1}},
			{"streamed body", time.Second, 0, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"streamed body with a caller", time.Second, 5 * time.Second, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{5 * time.Second, 4 * time.Second}},
		} {
			var got []time.Duration
			trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
				left := time.Duration(-1)
				if !a.Deadline.IsZero() {
					left = a.Deadline.Sub(a.Start)
				}
				got = append(got, left)
				return ctx
			}}
			tr := mustNew(t, transport.Config{Base: script(status(503), status(200)), Traces: []*transport.Trace{trace}, Rule: policy.Rule{AttemptTimeout: row.attempt, StallTimeout: row.stall, Backoff: backoff.Constant(time.Second)}})
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.caller > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.caller)
			}
			finish(tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", row.body).WithContext(ctx)))
			cancel()
			assert.Equal(t, row.want, got, row.name)
		}
	})
}

// TestTimeAtADeadHost pins for how long a request to a dead host takes until it fails, alone and among others, as README.md
// and docs/settings.md say.
func TestTimeAtADeadHost(t *testing.T) {
	for name, row := range map[string]struct {
		rule        policy.Rule
		step        faults.Step
		least, most time.Duration // alone
		mostInLine  time.Duration
		others      int // per second
	}{
		"default":         {policy.Rule{}, faults.ConnRefused(), 31 * time.Second, 36 * time.Second, time.Minute, 20},
		"Service":         {profile.Service(), faults.ConnRefused(), 150 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 20},
		"Service, silent": {profile.Service(), faults.Hang(), 3 * time.Second, 4 * time.Second, 4 * time.Second, 20},
		"API":             {profile.API(), faults.ConnRefused(), 31 * time.Second, 36 * time.Second, 3 * time.Minute, 5},
	} {
		for _, alone := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("%s/alone=%v", name, alone), func(t *testing.T) {
				base, most := faults.New(nil, faults.Script(row.step)), row.mostInLine
				c, every := transport.Config{Base: base, Rule: row.rule}, time.Second/time.Duration(row.others)
				shared := mustNew(t, c)
				requests := int(2 * time.Minute / every)
				if alone {
					requests, most = 50, row.most
				}
				var all sync.WaitGroup
				for range requests {
					tr := shared
					if alone {
						tr = mustNew(t, c)
					}
					all.Go(func() {
						start := time.Now()
						_, _ = fetch(t, tr, t.Context(), "http://h.test/")
						assert.LessOrEqual(t, time.Since(start), most)
						assert.True(t, !alone || time.Since(start) >= row.least, time.Since(start))
					})
					if !alone {
						time.Sleep(every)
					}
				}
				all.Wait()
			})
		}
	}
}
