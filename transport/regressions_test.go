// What holds where one limit meets another, a hedge meets a limit, or a
// function of the caller's panics?

package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// takes is a server that answers 200 after a time, and stops working when the
// client leaves.
func takes(d time.Duration) answer {
	return func(req *http.Request) (*http.Response, error) {
		if err := pause(req, d); err != nil {
			return nil, err
		}
		return status(200)(req)
	}
}

// An answer without a body makes the gate grow as one with a body does.
func TestGateGrowsWithAndWithoutBodies(t *testing.T) {
	for name, a := range map[string]answer{"without": empty(200), "with": status(200)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tr := over(t, Config{Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Attempts: 1}},
					newOrigin(deafly(10*time.Millisecond, a)))
				together(50, func(int) {
					for range 20 {
						_, err := send(t, tr, http.MethodGet, "http://h.test/")
						assert.NoError(t, err)
					}
				})
				assert.Greater(t, stateOf(t, tr).GateLimit, 20)
			})
		})
	}
}

// When a function of the caller's panics, the answer at hand is closed and its place is free.
func TestFunctionThatPanicsClosesTheAnswer(t *testing.T) {
	gate := policy.Gate{Mode: policy.GateRefuse, Start: 1, Max: 1}
	rows := map[string]Config{
		"classifier": {Rule: policy.Rule{Classify: func(classify.Outcome) classify.Verdict { panic("own") }}},
		"hint":       {Rule: policy.Rule{Hint: func(classify.Outcome) (time.Duration, bool) { panic("own") }}},
		"idempotent": {Rule: policy.Rule{Idempotent: func(*http.Request) bool { panic("own") }}},
		"trace":      {Trace: &Trace{Event: func(Event) { panic("own") }}},
	}
	for name, c := range rows {
		for limits, rule := range map[string]policy.Rule{"plain": {}, "behind a gate": {Gate: gate}} {
			t.Run(name+", "+limits, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					own, b := c, oneShot("answer")
					own.Rule = rule.Or(c.Rule)
					tr := over(t, own, rt(func(req *http.Request) (*http.Response, error) {
						return response(req, 503, b), nil
					}))
					assert.PanicsWithValue(t, "own", func() { _, _ = get(t, tr, t.Context()) })
					assert.Equal(t, 1, b.closed())
					s := stateOf(t, tr)
					assert.Zero(t, s.GateSlots)
					assert.Zero(t, s.InFlight)
				})
			})
		}
	}
}

// A panic of the base transport in a hedged request is the caller's, as it would be without a hedge.
func TestBaseThatPanicsInARace(t *testing.T) {
	panics := func(*http.Request) (*http.Response, error) { panic("base") }
	rows := map[string][]answer{
		"the first, alone":            {panics},
		"the first, beside a second":  {deafly(2*time.Second, panics), hangs},
		"the second":                  {hangs, panics},
		"the second, after a failure": {deafly(2*time.Second, status(503)), deafly(2*time.Second, panics)},
	}
	for name, answers := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tr := over(t, Config{Rule: policy.Rule{
					Hedge: policy.Hedge{After: time.Second}, Gate: policy.Gate{Start: 5},
				}}, script(answers...))
				assert.PanicsWithValue(t, "base", func() { _, _ = get(t, tr, t.Context()) })
				synctest.Wait()
				assert.Zero(t, stateOf(t, tr).GateSlots)
			})
		})
	}
}

// A trace that panics when a request is hedged ends both sends, and no place is held.
func TestTraceThatPanicsAtAHedgeEndsBothSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var contexts []context.Context
		tr := over(t, Config{
			Rule:  policy.Rule{Hedge: policy.Hedge{After: time.Second}, Gate: policy.Gate{Start: 5}},
			Trace: &Trace{Event: func(Event) { panic("hook") }},
		}, rt(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			contexts = append(contexts, req.Context())
			mu.Unlock()
			return takes(10 * time.Second)(req)
		}))
		assert.PanicsWithValue(t, "hook", func() { _, _ = get(t, tr, t.Context()) })
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, contexts, 2)
		for _, ctx := range contexts {
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
		}
		s := stateOf(t, tr)
		assert.Zero(t, s.GateSlots)
		assert.Zero(t, s.InFlight)
	})
}

// A base transport that panics before it has closed a body that is kept for resends leaves none open.
func TestBaseThatPanicsWithALentBody(t *testing.T) {
	b := oneShot("text")
	tr := over(t, Config{Rule: quick}, rt(func(*http.Request) (*http.Response, error) { panic("base") }))
	req := newRequest(t, http.MethodPut, "http://h.test/", b)
	assert.PanicsWithValue(t, "base", func() { _, _ = tr.RoundTrip(req) })
	assert.Equal(t, 1, b.closed())
}

// A 429 to a hedge whose answer does not count holds the scope all the same.
func TestHedgeThatIsToldToWaitHoldsTheScope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Second}}},
			script(takes(3*time.Second), status(429, "Retry-After: 30")))
		done := make(chan struct{})
		go func() {
			defer close(done)
			code, err := send(t, tr, http.MethodGet, "http://h.test/")
			assert.NoError(t, err)
			assert.Equal(t, 200, code)
		}()
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, stateOf(t, tr).HeldScopes)
		<-done
	})
}

// A send that another one outran is not logged as giving up.
func TestLogOfAHedge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		tr := over(t, Config{
			Rule:   policy.Rule{Hedge: policy.Hedge{After: time.Second}},
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}, script(hangs, status(200)))
		_, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		assert.Contains(t, out.String(), "msg=hedged")
		assert.Contains(t, out.String(), "msg=outrun")
		assert.NotContains(t, out.String(), "level=WARN")
	})
}

// The longest wait that can be asked for is waited for: jitter does not make it overflow.
func TestEndlessHint(t *testing.T) {
	for _, u := range []float64{0, 0.5, 0.999} {
		reason, wait := decide(facts{
			verdict: classify.Refused, replayable: true, sent: 1, attempts: 6,
			hint: math.MaxInt64, hinted: true, maxRetryAfter: -1, u: u,
		})
		assert.Equal(t, ReasonRetry, reason)
		assert.EqualValues(t, math.MaxInt64, wait)
	}
	bubble(t, func(t *testing.T) {
		base := script(status(429))
		tr := over(t, Config{Rule: policy.Rule{
			RetryAfter: policy.RetryAfter{Beyond: policy.BeyondWait}, Cooldown: policy.Off,
			Hint: func(classify.Outcome) (time.Duration, bool) { return math.MaxInt64, true },
		}}, base)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Hour, time.Since(start))
		assert.Equal(t, 1, base.sends())
	})
}

// Elapsed counts from the first send, and not from a wait before it.
func TestElapsedCountsFromTheFirstSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(status(429, "Retry-After: 10"), status(503), status(200))
		tr := over(t, Config{Rule: policy.Rule{MaxElapsed: 5 * time.Second}.Or(exact)}, base)
		resp, err := get(t, tr, Once(t.Context())) // begins a hold
		require.NoError(t, err)
		_ = resp.Body.Close()
		start := time.Now()
		code, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		assert.Equal(t, 200, code)
		assert.Greater(t, time.Since(start), 10*time.Second)
		assert.Equal(t, 3, base.sends())
	})
}

// Elapsed bounds a retry's wait at the gate, too.
func TestElapsedAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := newOrigin(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/long" {
				return takes(time.Minute)(req)
			}
			return status(503)(req)
		})
		rule := policy.Rule{MaxElapsed: 5 * time.Second, Gate: policy.Gate{Mode: policy.GateWait, Start: 1, Max: 1}}
		tr := over(t, Config{Rule: rule.Or(exact)}, base)
		done := make(chan struct{})
		time.AfterFunc(500*time.Millisecond, func() { // takes the place during the back-off
			defer close(done)
			_, err := send(t, tr, http.MethodGet, "http://h.test/long")
			assert.NoError(t, err)
		})
		_, err := get(t, tr, t.Context())
		assert.LessOrEqual(t, time.Since(base.start), 5*time.Second+time.Millisecond)
		e, ok := errors.AsType[*Error](err)
		require.True(t, ok)
		assert.Equal(t, ReasonMaxElapsed, e.Reason)
		<-done
		time.Sleep(time.Minute)
		assert.Equal(t, 2, base.sends())
		assert.Zero(t, stateOf(t, tr).GateQueue)
	})
}

// Every body that GetBody made is closed. A body that may share its reader with
// the others is not hedged.
func TestBodiesOfHedgesAreClosed(t *testing.T) {
	rows := map[string]struct {
		rule   policy.Rule
		hedged bool
	}{
		"may go":    {},
		"gate full": {rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateWait, Start: 1, Max: 1}}},
		"rate used": {rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.1, Burst: 1}}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Second}}.Or(row.rule).Or(exact)},
					script(deafly(3*time.Second, status(503)), status(200)))
				first, made := oneShot("text"), []*body(nil)
				req := newRequest(t, http.MethodGet, "http://h.test/", first)
				req.GetBody = func() (io.ReadCloser, error) {
					b := oneShot("text")
					made = append(made, b)
					return b, nil
				}
				ev := &events{}
				resp, err := tr.RoundTrip(req.WithContext(ev.on(t.Context())))
				require.NoError(t, err)
				_ = resp.Body.Close()
				time.Sleep(time.Minute) // the first send, where it was outrun, does not hear that
				assert.Equal(t, row.hedged, slices.Contains(ev.reasons(), ReasonHedged))
				assert.Equal(t, 1, first.closed())
				for i, b := range made {
					assert.Equal(t, 1, b.closed(), "body %d of %d", i+1, len(made))
				}
			})
		})
	}
}

// A send that was outrun shares nothing with the caller's request, which may change once the answer is closed.
func TestOutrunSendSharesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gone := make(chan struct{})
		tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Second}}},
			rt(func(req *http.Request) (*http.Response, error) {
				if AttemptNumber(req.Context()) > 1 {
					return status(200)(req)
				}
				defer close(gone)
				<-req.Context().Done()
				for range 1000 {
					_, _ = req.Header.Get("X-Test"), req.URL.Path
				}
				return nil, req.Context().Err()
			}))
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		_, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		for range 1000 {
			req.Header.Set("X-Test", "next")
			req.URL.Path = "/next"
		}
		<-gone
	})
}

// The caller's deadline shows as such also where the request asks for an upgrade.
func TestDeadlineOfAnUpgrade(t *testing.T) {
	for name, rule := range map[string]policy.Rule{
		"plain":           {},
		"attempt timeout": {AttemptTimeout: time.Hour},
		"hedge":           {Hedge: policy.Hedge{After: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tr := over(t, Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, req.Context().Err()
				}))
				_, err := tr.RoundTrip(headed(t, http.MethodGet, "http://h.test/", "Upgrade: websocket").WithContext(ctx))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

// Failures say nothing about how long answers take: after an outage of quick ones few requests are hedged.
func TestFailuresAreNoLatencies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var up atomic.Bool
		base := newOrigin(func(req *http.Request) (*http.Response, error) {
			if up.Load() {
				return takes(10 * time.Millisecond)(req)
			}
			return nil, syscall.ECONNREFUSED
		})
		tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{Percentile: 95}, Attempts: 2}.Or(quick)}, base)
		for range 1000 {
			_, err := get(t, tr, t.Context())
			require.Error(t, err)
		}
		up.Store(true)
		before := base.sends()
		for range 50 {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			require.NoError(t, err)
		}
		assert.Less(t, base.sends()-before, 60)
	})
}

// A percentile as high as 99.9 is reached once enough answers were seen.
func TestHedgeAfterAHighPercentile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slow atomic.Bool
		tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{Percentile: 99.9}}},
			rt(func(req *http.Request) (*http.Response, error) {
				if slow.Swap(false) {
					return takes(10 * time.Second)(req)
				}
				return takes(10 * time.Millisecond)(req)
			}))
		for range 3000 {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			require.NoError(t, err)
		}
		slow.Store(true)
		start := time.Now()
		_, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		assert.Less(t, time.Since(start), time.Second)
	})
}

// What the gate refuses takes no token of the rate, and is refused at once.
func TestRefusedByTheGateTakesNoTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		block := make(chan struct{})
		tr := over(t, Config{Rule: policy.Rule{
			Rate: policy.Rate{PerSecond: 0.01, Burst: 5}, Gate: policy.Gate{Mode: policy.GateRefuse, Start: 1, Max: 1},
		}}, script(func(req *http.Request) (*http.Response, error) {
			<-block
			return empty(200)(req)
		}, empty(200)))
		go func() {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			assert.NoError(t, err)
		}()
		synctest.Wait()
		start := time.Now()
		for range 10 {
			_, err := get(t, tr, t.Context())
			assert.ErrorIs(t, err, ErrGateFull)
		}
		close(block)
		synctest.Wait()
		for range 4 { // the tokens that the first left
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			require.NoError(t, err)
		}
		assert.Equal(t, start, time.Now())
	})
}

// Whose turn by the rate comes after its deadline is refused at once, with a gate as without.
func TestLateTurnsAreRefusedAtOnce(t *testing.T) {
	for name, mode := range map[string]policy.GateMode{"rate": policy.Off, "rate and gate": policy.GateWait} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				base := newOrigin(empty(200))
				tr := over(t, Config{Rule: policy.Rule{Rate: policy.Rate{PerSecond: 1, Burst: 1}, Gate: policy.Gate{Mode: mode}}}, base)
				ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
				defer cancel()
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						if _, err := get(t, tr, ctx); err != nil {
							assert.ErrorIs(t, err, ErrOverDeadline)
							assert.Zero(t, time.Since(base.start))
						}
					})
					synctest.Wait() // each finds the one before it in line
				}
				wg.Wait()
				assert.Equal(t, 6, base.sends(), "one per second")
			})
		})
	}
}

// Update turns off in a Snapshot what it turns off for requests.
func TestSnapshotAfterUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, Config{Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Rate: policy.Rate{PerSecond: 10}}}, script(empty(200)))
		_, err := get(t, tr, t.Context())
		require.NoError(t, err)
		s := stateOf(t, tr)
		assert.NotZero(t, s.GateLimit)
		assert.Equal(t, 10., s.RatePerSecond)
		require.NoError(t, tr.Update(policy.Rule{}, nil))
		_, err = get(t, tr, t.Context())
		require.NoError(t, err)
		s = stateOf(t, tr)
		assert.Zero(t, s.GateLimit)
		assert.Zero(t, s.RatePerSecond)
	})
}

// Update does not make a Transport that make one with New or Default.
func TestUpdateOfTheZeroTransport(t *testing.T) {
	var tr Transport
	assert.ErrorContains(t, tr.Update(policy.Rule{}, nil), "make one with New or Default")
	_, err := get(t, &tr, t.Context())
	assert.ErrorContains(t, err, "make one with New or Default")
}

// An empty method means GET, in errors and for what is sent again.
func TestEmptyMethodIsGET(t *testing.T) {
	base := script(fails(syscall.ECONNRESET))
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Method = ""
	_, err := over(t, Config{Rule: quick}, base).RoundTrip(req)
	assert.ErrorContains(t, err, "GET http://h.test/")
	assert.Greater(t, base.sends(), 1)
}

// An adaptive rate that is set too high finds the server's, and its burst does not bring it to the floor.
func TestAdaptiveRateFindsTheServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const burst, perSecond = 5., 50.
		served, refused := 0, 0
		tokens, last := burst, time.Now()
		tr := over(t, Config{Rule: policy.Rule{Rate: policy.Rate{PerSecond: 200, Mode: policy.RateAdaptive}, Attempts: 1}},
			rt(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Millisecond)
				tokens = min(burst, tokens+perSecond*time.Since(last).Seconds())
				last = time.Now()
				if tokens < 1 {
					refused++
					return empty(429)(req)
				}
				tokens--
				served++
				return empty(200)(req)
			}))
		for start := time.Now(); time.Since(start) < 3*time.Second; {
			_, err := get(t, tr, t.Context())
			require.NoError(t, err)
		}
		t.Logf("served %d, refused %d, the rate is %.1f/s", served, refused, stateOf(t, tr).RatePerSecond)
		assert.Greater(t, served, 100, "of the 150 that the server would take")
		assert.Less(t, refused, served)
	})
}

// Hedges keep to the ramp after a hold as other sends do.
func TestHedgesKeepToTheRamp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const each = time.Second
		base := newOrigin(script(status(429, "Retry-After: 10"), takes(each)).RoundTrip)
		tr := over(t, Config{Rule: policy.Rule{
			Hedge: policy.Hedge{After: 20 * time.Millisecond}, Budget: policy.Budget{Burst: policy.Off},
		}}, base)
		_, err := send(t, tr, http.MethodPost, "http://h.test/")
		require.NoError(t, err)
		opens := stateOf(t, tr).HeldUntil.Sub(base.start)
		together(20, func(int) {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			assert.NoError(t, err)
		})
		assert.GreaterOrEqual(t, base.sends(), 21)
		followRamp(t, base.arrivals()[1:], opens, each)
	})
}

// A 429 that the rule calls final is no sign that the host takes more: the ramp grows with time alone.
func TestFinal429DoesNotRaiseTheRamp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := newOrigin(script(status(429, "Retry-After: 10"), deafly(20*time.Millisecond, status(429))).RoundTrip)
		tr := over(t, Config{Rule: policy.Rule{Classify: classify.OnStatus(classify.Final, 429)}}, base)
		_, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		opens := stateOf(t, tr).HeldUntil.Sub(base.start)
		together(50, func(int) {
			_, err := send(t, tr, http.MethodGet, "http://h.test/")
			assert.NoError(t, err)
		})
		assert.Equal(t, 51, base.sends())
		followRamp(t, base.arrivals()[1:], opens, time.Hour) // as if none were answered
	})
}

// An answer of a race that would be retried is closed and gives its place back at once, however long the other send takes.
func TestAnswerGivenUpInARaceIsClosedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := oneShot("x")
		tr := over(t, Config{Rule: policy.Rule{
			Hedge: policy.Hedge{After: time.Second}, Gate: policy.Gate{Start: 5},
		}}, script(deaf(time.Hour), func(req *http.Request) (*http.Response, error) { return response(req, 503, b), nil }))
		done := make(chan struct{})
		go func() {
			defer close(done)
			code, err := send(t, tr, http.MethodGet, "http://h.test/")
			assert.NoError(t, err)
			assert.Equal(t, 200, code)
		}()
		time.Sleep(time.Minute)
		assert.Equal(t, 1, b.closed())
		assert.Equal(t, 1, stateOf(t, tr).GateSlots)
		<-done
		assert.Zero(t, stateOf(t, tr).GateSlots)
	})
}

// When a success ends the hold of a 503, and that of a 429 is left, those who
// wait learn that it is shorter.
func TestShorterHoldIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, Config{}, rt(func(req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/429":
				return deafly(10*time.Millisecond, status(429, "Retry-After: 2"))(req)
			case "/503":
				return deafly(20*time.Millisecond, status(503, "Retry-After: 50"))(req)
			case "/slow":
				return deaf(time.Second)(req)
			}
			return status(200)(req)
		}))
		start := time.Now()
		for _, path := range []string{"slow", "429", "503"} {
			go func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/"+path) }()
		}
		time.Sleep(100 * time.Millisecond)
		_, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 5*time.Second)
	})
}

// A hedge's leg that has not run yet has its copy of the request already: the
// caller may use its own again as soon as it has an answer (seen with -race).
func TestRequestIsTheCallersAfterTheAnswer(t *testing.T) {
	tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Millisecond}}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
		if AttemptNumber(req.Context()) == 1 {
			time.Sleep(3 * time.Millisecond)
			return status(200)(req)
		}
		time.Sleep(6 * time.Millisecond)
		return nil, errors.New("late")
	}))
	for range 20 {
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		req.Method = http.MethodHead
		req.Header.Set("X-Reused", "1")
	}
}

// A trailer is filled in by the caller's body, in the caller's request.
func TestTrailerWhereHedgingIsOn(t *testing.T) {
	for name, hedge := range map[string]policy.Hedge{"off": policy.Hedge{After: policy.Off}, "on": {After: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			var sum string
			tr := over(t, Config{Rule: policy.Rule{Hedge: hedge}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				sum = req.Trailer.Get("X-Sum") // as net/http does, after the body
				return status(200)(req)
			}))
			req := newRequest(t, http.MethodPut, "http://h.test/", nil)
			req.Trailer = http.Header{"X-Sum": nil}
			req.ContentLength = -1
			req.GetBody = func() (io.ReadCloser, error) {
				text := strings.NewReader("text")
				return io.NopCloser(readFunc(func(p []byte) (int, error) {
					n, err := text.Read(p)
					if err == io.EOF {
						req.Trailer.Set("X-Sum", "42")
					}
					return n, err
				})), nil
			}
			req.Body, _ = req.GetBody()
			_, err := tr.RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, "42", sum)
		})
	}
}

// A POST whose own body could not connect to where it comes from has left, though
// its error is one of a dial; and is not sent twice.
func TestBodyThatCannotConnect(t *testing.T) {
	refused := errRefused
	for name, row := range map[string]struct {
		method string
		wrap   func(io.Reader) io.ReadCloser
		body   error // of the first body, nil: it ends well
		sends  int
		closed bool // the base closes the body before it fails
	}{
		"POST":                       {method: http.MethodPost, wrap: custom, body: refused, sends: 1},
		"POST, in a NopCloser":       {method: http.MethodPost, wrap: io.NopCloser, body: refused, sends: 1},
		"POST, with WriteTo":         {method: http.MethodPost, wrap: buffered, body: refused, sends: 1},
		"PUT":                        {method: http.MethodPut, wrap: custom, body: refused, sends: 2},
		"POST that never left":       {method: http.MethodPost, wrap: custom, sends: 2},
		"POST, closed before a Read": {method: http.MethodPost, wrap: custom, body: refused, sends: 2, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			sends := 0
			tr := over(t, Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
				sends++
				if sends > 1 {
					_, _ = io.Copy(io.Discard, req.Body)
					_ = req.Body.Close()
					return status(200)(req)
				}
				if row.closed {
					_ = req.Body.Close()
				}
				_, err := io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				if err == nil {
					err = refused
				}
				return nil, err // as net/http returns what the body returned
			}))
			req := newRequest(t, row.method, "http://h.test/", nil)
			made := 0
			req.GetBody = func() (io.ReadCloser, error) {
				made++
				if text := strings.NewReader("text"); made > 1 || row.body == nil {
					return row.wrap(text), nil
				}
				return row.wrap(io.MultiReader(strings.NewReader("te"), iotest.ErrReader(row.body))), nil
			}
			req.Body, _ = req.GetBody()
			req.ContentLength = -1
			resp, err := tr.RoundTrip(req)
			assert.Equal(t, row.sends, sends)
			if row.sends == 1 {
				assert.ErrorIs(t, err, syscall.ECONNREFUSED)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
		})
	}
}

type customBody struct{ io.Reader }

func (customBody) Close() error { return nil }

func custom(r io.Reader) io.ReadCloser   { return customBody{r} }
func buffered(r io.Reader) io.ReadCloser { return io.NopCloser(bufio.NewReader(r)) }

// A caller who sends the request of a given-up response again hands its mark
// down; it says nothing of the new answer.
func TestMarkOfAnEarlierResponse(t *testing.T) {
	const text = "0123456789"
	tr := over(t, Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}, script(status(503), status(503),
		func(req *http.Request) (*http.Response, error) {
			cut := io.MultiReader(strings.NewReader(text[:5]), iotest.ErrReader(io.ErrUnexpectedEOF))
			return response(req, 200, io.NopCloser(cut), `Etag: "a"`), nil
		},
		func(req *http.Request) (*http.Response, error) {
			return response(req, 206, io.NopCloser(strings.NewReader(text[5:])), `Etag: "a"`, "Content-Range: bytes 5-9/10"), nil
		}))
	failed, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/", nil))
	require.NoError(t, err)
	_, _, gaveUp := unretried(failed)
	require.True(t, gaveUp)
	resp, err := tr.RoundTrip(failed.Request.Clone(failed.Request.Context()))
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
	_, _, gaveUp = unretried(resp)
	assert.False(t, gaveUp)
}

// A GetBody that panics during a race gives the hedge's place at the gate back.
func TestGetBodyThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, Config{Rule: policy.Rule{
			Hedge: policy.Hedge{After: time.Second}, Gate: policy.Gate{Start: 2, Max: 2},
		}}, rt(takes(time.Minute)))
		req := newRequest(t, http.MethodGet, "http://h.test/", strings.NewReader("text"))
		req.GetBody = func() (io.ReadCloser, error) { panic("mine") }
		assert.PanicsWithValue(t, "mine", func() { _, _ = tr.RoundTrip(req) })
		synctest.Wait()
		assert.Zero(t, stateOf(t, tr).GateSlots)
	})
}

// What the send that lost a race was told binds the retry.
func TestLosersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newOrigin(script(
			deafly(2*time.Second, status(500, "Retry-After: 20")),
			deafly(3*time.Second, fails(io.ErrUnexpectedEOF)),
			status(200)).RoundTrip)
		tr := over(t, Config{Rule: policy.Rule{Hedge: policy.Hedge{After: time.Second}}.Or(quick)}, server)
		_, err := send(t, tr, http.MethodGet, "http://h.test/")
		require.NoError(t, err)
		require.Len(t, server.arrivals(), 3)
		assert.GreaterOrEqual(t, server.arrivals()[2], 22*time.Second)
	})
}

// Over HTTP/2 the answer may be over before the upload: the attempt's context
// lives until that has ended, and no longer.
func TestUploadOutlivesTheAnswer(t *testing.T) {
	var ctx context.Context
	var body io.ReadCloser
	tr := over(t, Config{Rule: policy.Rule{AttemptTimeout: time.Hour}}, rt(func(req *http.Request) (*http.Response, error) {
		ctx, body = req.Context(), req.Body
		_, _ = body.Read(make([]byte, 1))
		return empty(200)(req)
	}))
	_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(strings.Repeat("x", replay.Small+1))))
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	assert.Error(t, ctx.Err())
}

// A tunnel ends with its request's context, whatever the rule bounds.
func TestTunnelEndsWithItsContext(t *testing.T) {
	for name, d := range map[string]time.Duration{"no timeout": -1, "a timeout": time.Minute} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = ln.Close() }()
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
					_, _ = io.Copy(io.Discard, in)
				}
			}()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr := over(t, Config{Rule: policy.Rule{AttemptTimeout: d}.Or(quick)}, base)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			defer func() { _ = out.Close() }()
			resp, err := tr.RoundTrip(newRequest(t, http.MethodConnect, "http://"+ln.Addr().String(), in).WithContext(ctx))
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { _, err := resp.Body.Read(make([]byte, 1)); ended <- err }()
			cancel()
			select {
			case err := <-ended:
				assert.Error(t, err)
			case <-time.After(30 * time.Second):
				t.Error("the tunnel outlives its context")
			}
		})
	}
}

// TestProxyRefusesConnect: what a proxy answers instead of the server is no word
// of the server's. Over the default base any method is sent again, since nothing
// of the request left; over another one what is idempotent.
func TestProxyRefusesConnect(t *testing.T) {
	for _, row := range []struct {
		code   int
		method string
		own    bool // the default base
		sends  int
	}{
		{503, http.MethodGet, true, 3}, {503, http.MethodPost, true, 3},
		{429, http.MethodPost, true, 3}, {502, http.MethodPost, true, 3},
		{407, http.MethodGet, true, 1}, {403, http.MethodGet, true, 1}, {501, http.MethodGet, true, 1},
		{503, http.MethodGet, false, 3}, {504, http.MethodGet, false, 3}, {503, http.MethodPost, false, 1},
		{407, http.MethodGet, false, 1},
	} {
		t.Run(fmt.Sprint(row.code, " ", row.method, " own base: ", row.own), func(t *testing.T) {
			var sends atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				sends.Add(1)
				w.WriteHeader(row.code)
			}))
			defer proxy.Close()
			u, err := url.Parse(proxy.URL)
			require.NoError(t, err)
			base := &http.Transport{}
			if row.own {
				base = defaultBase()
			}
			base.Proxy = http.ProxyURL(u)
			tr := mustNew(t, Config{Base: base, Rule: policy.Rule{Attempts: 3, Backoff: backoff.Constant(0)}})
			req, err := http.NewRequestWithContext(t.Context(), row.method, "https://host.invalid/", nil)
			require.NoError(t, err)
			_, err = tr.RoundTrip(req)
			require.Error(t, err)
			assert.EqualValues(t, row.sends, sends.Load(), "%v", err)
			assert.ErrorContains(t, err, http.StatusText(row.code))
		})
	}
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// A POST whose body the first try knows nothing of is sent again where it never
// left, whoever watches.
func TestBodyOfManyReaders(t *testing.T) {
	text := func() io.Reader { return io.MultiReader(strings.NewReader("head"), strings.NewReader("tail")) }
	for name, c := range map[string]Config{"default": {Rule: quick}, "with a trace": {Rule: quick, Trace: &Trace{}}} {
		t.Run(name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				return nil, errRefused
			}, status(200))
			req := newRequest(t, http.MethodPost, "http://h.test/", text())
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(text()), nil }
			resp, err := over(t, c, rt(func(req *http.Request) (*http.Response, error) {
				if base.sends() == 0 {
					_ = req.Body.Close() // never read
					req = req.Clone(req.Context())
					req.Body = nil
				}
				return base.RoundTrip(req)
			})).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "headtail", base.bodies[len(base.bodies)-1])
		})
	}
}

type closeFails struct{ io.Reader }

func (closeFails) Close() error { return errRefused }

// net/http returns the error of a body's Close, after all of it was sent.
func TestBodyThatCannotBeClosed(t *testing.T) {
	var posts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if got, _ := io.ReadAll(req.Body); string(got) == "text" {
			posts.Add(1)
		}
		<-req.Context().Done() // or the answer comes before the error
	}))
	base := &http.Transport{}
	req := newRequest(t, http.MethodPost, server.URL, nil)
	req.ContentLength = 4
	req.GetBody = func() (io.ReadCloser, error) { return closeFails{strings.NewReader("text")}, nil }
	req.Body, _ = req.GetBody()
	_, err := over(t, Config{Rule: quick}, base).RoundTrip(req)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	base.CloseIdleConnections()
	server.Close() // waits for the handlers
	assert.LessOrEqual(t, posts.Load(), int32(1))
}

// The body that net/http takes for a resend of its own is checked as well.
func TestBodyOfAnInnerResend(t *testing.T) {
	server := testserver.Start(t, testserver.Config{HTTP2: true, TLS: testserver.Trusted}, testserver.RefuseStream(), testserver.OK("ok"))
	tr := over(t, Config{Rule: quick}, server.Transport())
	t.Cleanup(tr.CloseIdleConnections)
	made := 0
	req := newRequest(t, http.MethodPost, server.URL, nil)
	req.GetBody = func() (io.ReadCloser, error) {
		if made++; made == 2 {
			return custom(io.MultiReader(strings.NewReader("te"), iotest.ErrReader(errRefused))), nil
		}
		return custom(strings.NewReader("text")), nil
	}
	req.Body, _ = req.GetBody()
	req.ContentLength = -1
	_, err := tr.RoundTrip(req)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, 2, made)
}

// What a proxy asks for is waited for, by the request that was told.
func TestProxyAsksToWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proxy := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(503).Header("Retry-After", "20"))
		u, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		base := defaultBase()
		base.DialContext, base.Proxy = proxy.Transport().DialContext, http.ProxyURL(u)
		tr := over(t, Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}, base)
		_, err = tr.RoundTrip(newRequest(t, http.MethodPost, "https://host.invalid/", nil))
		require.Error(t, err)
		log := proxy.Log()
		require.Len(t, log, 2)
		assert.GreaterOrEqual(t, log[1].Time.Sub(log[0].Time), 20*time.Second)
		tr.CloseIdleConnections()
	})
}

// A base transport that answers a resend without a look at its body does not use
// up for good what may be kept of all bodies.
func TestKeptBodyThatNobodyCloses(t *testing.T) {
	sends := 0
	tr := over(t, Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
		if sends++; sends%2 == 1 {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
			return status(503)(req)
		}
		return status(200)(req)
	}))
	for range 3 {
		resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", oneShot("text")))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
	}
	require.Eventually(t, func() bool { runtime.GC(); return tr.kept.Memory.Load() == 0 }, waitFor, tick)
}

// A RoundTripper around a Transport may copy the response.
func TestMarkOfACopiedResponse(t *testing.T) {
	inner := over(t, Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}, script(status(503)))
	copies := rt(func(req *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		c := *resp
		return &c, nil
	})
	resp, err := (&http.Client{Transport: copies, Timeout: time.Minute}).Get("http://h.test/")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	reason, _, ok := unretried(resp)
	assert.True(t, ok)
	assert.Equal(t, ReasonAttempts, reason)
}

// A countingCtx counts what waits for its end.
type countingCtx struct {
	context.Context
	n    atomic.Int32
	done chan struct{}
}

func (c *countingCtx) Done() <-chan struct{} { return c.done }
func (c *countingCtx) AfterFunc(func()) func() bool {
	c.n.Add(1)
	return func() bool { c.n.Add(-1); return true }
}

// A tunnel that is over leaves nothing behind in its context, which may live on.
func TestTunnelLeavesNothing(t *testing.T) {
	ctx := &countingCtx{Context: t.Context(), done: make(chan struct{})}
	tr := over(t, Config{Rule: policy.Rule{AttemptTimeout: time.Minute}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
		return response(req, 200, io.NopCloser(strings.NewReader("tunnel"))), nil
	}))
	for range 3 {
		resp, err := tr.RoundTrip(newRequest(t, http.MethodConnect, "http://h.test/", nil).WithContext(ctx))
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	assert.Zero(t, ctx.n.Load())
}
