package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// steady sends requests at a steady rate, each in a goroutine of its own.
func steady(t *testing.T, rt http.RoundTripper, every, during time.Duration, uri string) {
	var all sync.WaitGroup
	for range int(during / every) {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, uri, nil)
			if assert.NoError(t, err) {
				if resp, err := rt.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
		})
		time.Sleep(every)
	}
	all.Wait()
}

// TestLastingOutage: while nothing succeeds, retries stop. From the second minute on the host gets
// hardly more than was asked of it, whatever fails and whatever the rate. The first success brings
// the retries back.
func TestLastingOutage(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, fault := range []struct {
		name string
		step faults.Step
	}{{"503", faults.Status(503)}, {"refused", faults.Fail(syscall.ECONNREFUSED)}, {"reset", faults.ConnReset()}} {
		for _, row := range []struct {
			every time.Duration
			bound float64
		}{{10 * time.Second, 1.25}, {time.Second, 1.05}, {100 * time.Millisecond, 1.05}, {10 * time.Millisecond, 1.05}} {
			t.Run(fmt.Sprintf("%s every %v", fault.name, row.every), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var sent, retried atomic.Int64
					var up atomic.Bool
					start := time.Now()
					base := faults.New(nil, func(*http.Request) faults.Step {
						if up.Load() {
							return faults.Pass()
						}
						if time.Since(start) > time.Minute {
							sent.Add(1)
						}
						return fault.step
					})
					tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 6}, Traces: []*transport.Trace{&transport.Trace{
						AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
							if e.Kind == transport.AttemptRetry && e.Status == http.StatusOK {
								retried.Add(1)
							}
						},
					}}})
					steady(t, tr, row.every, time.Minute, "http://api.test")
					sent.Store(0)
					steady(t, tr, row.every, lasts, "http://api.test")
					asked := float64(lasts / row.every)
					t.Logf("%.3f times the load", float64(sent.Load())/asked)
					assert.LessOrEqual(t, float64(sent.Load())/asked, row.bound, "load of the outage")

					up.Store(true)
					steady(t, tr, row.every, 2*row.every, "http://api.test")
					up.Store(false)
					done := make(chan struct{})
					go func() {
						defer close(done)
						steady(t, tr, time.Second, time.Second, "http://api.test")
					}()
					time.Sleep(time.Millisecond)
					up.Store(true)
					<-done
					assert.EqualValues(t, 1, retried.Load(), "requests that a retry healed after the outage")
				})
			})
		}
	}
}

// TestOtherPathsPreventARest: a path that always fails does not stop the retries of a host whose
// other paths succeed.
func TestOtherPathsPreventARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken, single atomic.Int64
		base := faults.New(nil, func(req *http.Request) faults.Step {
			switch {
			case req.URL.Path == "/broken":
				broken.Add(1)
				return faults.Status(503)
			case single.Add(1)%5 == 0:
				return faults.ConnReset()
			}
			return faults.Pass()
		})
		tr := mustNew(t, transport.Config{Base: base})
		var failed atomic.Int64
		var all sync.WaitGroup
		for i := range 300 {
			if i%5 == 0 { // a fifth, so that the usual budget suffices
				all.Go(func() { steady(t, tr, time.Second, time.Second, "http://api.test/broken") })
			}
			all.Go(func() {
				resp, err := (&http.Client{Transport: tr}).Get("http://api.test/works")
				if err != nil {
					failed.Add(1)
					return
				}
				_ = resp.Body.Close()
			})
			time.Sleep(time.Second)
		}
		all.Wait()
		require.Positive(t, single.Load())
		assert.Zero(t, failed.Load(), "requests that a retry would have healed")
		assert.Greater(t, broken.Load(), int64(200), "the broken path keeps its retries")
	})
}

// TestAnswersThatAskToWait: a server that asks for a wait is alive, so a first such answer counts for
// nothing. A retry with such an answer has failed, and none of them ends a rest.
func TestAnswersThatAskToWait(t *testing.T) {
	rule := policy.Rule{MaxAttempts: 2, Backoff: backoff.Constant(0), RetryBudget: policy.RetryBudget{}}
	for name, told := range map[string]faults.Step{"429": status(429), "503 that names a wait": status(503, "Retry-After: 1")} {
		inBubble(t, name, func(t *testing.T) {
			var answer faults.Step
			var sent int
			tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
				sent++
				return play(req, answer)
			}))
			sends := func(n int, step faults.Step) int {
				answer, sent = step, 0
				for range n {
					_ = responds(t, tr, http.MethodGet, "http://api.test/")
				}
				return sent
			}
			assert.Equal(t, 50, sends(30, told), "a rest after 20 retries")
			assert.Equal(t, 1, sends(1, status(200)), "requests sent")
			assert.Equal(t, 50, sends(30, status(500)), "a rest")
			assert.Equal(t, 1, sends(1, told), "requests sent")
			assert.Equal(t, 1, sends(1, status(500)), "the rest lasts")
		})
	}
}
