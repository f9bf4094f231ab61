package transport_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// TestHedgeCutsTheTail is the requirement of hedging. Responses take 8 to 12 ms, and
// every hundredth takes a second.
func TestHedgeCutsTheTail(t *testing.T) {
	const warmUp, measured = 500, 3000
	tail := func(t *testing.T, h policy.Hedge, seed uint64) (p99, p995 time.Duration, more float64) {
		bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			server := script()
			server.serve = func(req *http.Request) (*http.Response, error) {
				server.mu.Lock()
				takes := 8*time.Millisecond + time.Duration(rng.Int64N(int64(4*time.Millisecond)))
				if rng.IntN(100) == 0 {
					takes = time.Second
				}
				server.mu.Unlock()
				return play(req, status(200).Delay(takes))
			}
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: h}})
			var took []time.Duration
			warm := 0
			for i := range warmUp + measured {
				if i == warmUp {
					warm = server.attempts()
				}
				start := time.Now()
				require.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				if i >= warmUp {
					took = append(took, time.Since(start))
				}
			}
			slices.Sort(took)
			p99, p995 = took[measured*99/100], took[measured*995/1000]
			more = float64(server.attempts()-warm)/measured - 1
		})
		return p99, p995, more
	}
	for seed := range soak.Size[uint64](2, 5) {
		p99, p995, more := tail(t, policy.Hedge{Percentile: 98}, seed)
		_, without, _ := tail(t, policy.Hedge{Enabled: policy.Off}, seed)
		t.Logf("seed %d: p99 %v, p99.5 %v (%v without) for %.2f %% more attempts", seed, p99, p995, without, 100*more)
		assert.Less(t, p99, 60*time.Millisecond)
		assert.LessOrEqual(t, more, 0.03)
		assert.Equal(t, time.Second, without, "the tail is there")
	}
}

// TestHedge: a second attempt starts after the delay. The first answer counts. The
// other attempt is cancelled and its response closed. The winner's body is whole, even
// if it is read slowly.
func TestHedge(t *testing.T) {
	const after = 50 * time.Millisecond
	rows := map[string]struct {
		takes [2]time.Duration // of each attempt
		deaf  bool             // the server does not hear the client leave
		total time.Duration
		wins  int
	}{
		"the second wins":                       {takes: [2]time.Duration{time.Hour, 10 * time.Millisecond}, total: 60 * time.Millisecond, wins: 2},
		"the second wins, the first comes late": {takes: [2]time.Duration{time.Second, 10 * time.Millisecond}, deaf: true, total: time.Second, wins: 2},
		"the first wins":                        {takes: [2]time.Duration{80 * time.Millisecond, time.Hour}, total: 80 * time.Millisecond, wins: 1},
		"the first wins, the second comes late": {takes: [2]time.Duration{80 * time.Millisecond, time.Second}, deaf: true, total: 80 * time.Millisecond, wins: 1},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			var l ledger
			var contexts [2]context.Context
			server := script()
			server.serve = numbered(func(req *http.Request, n int) (*http.Response, error) {
				contexts[n-1] = req.Context()
				if row.deaf {
					time.Sleep(row.takes[n-1])
				} else if err := pause(req, row.takes[n-1]); err != nil {
					return nil, err
				}
				return newResponse(req, 200, l.body(req.Context(), strings.Repeat("x", n*1000))), nil
			})
			ev := &recorder{}
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: after}}})
			resp := mustGetWith(t, tr, ev.on(t.Context()))
			assert.Equal(t, row.total, time.Since(server.start))
			assert.Equal(t, []time.Duration{0, after}, server.arrivals())

			synctest.Wait()
			winner, loser := contexts[row.wins-1], contexts[2-row.wins]
			assert.NoError(t, winner.Err())
			assert.ErrorIs(t, loser.Err(), context.Canceled)
			// Slowly, and long after the loser has gone.
			n := 0
			for p := make([]byte, 100); ; time.Sleep(time.Second) {
				m, err := resp.Body.Read(p)
				n += m
				if err != nil {
					assert.ErrorIs(t, err, io.EOF)
					break
				}
			}
			assert.Equal(t, row.wins*1000, n)
			_ = resp.Body.Close()
			time.Sleep(time.Minute)
			assert.Error(t, winner.Err(), "ends with its body")
			assert.Zero(t, l.open.Load(), "open bodies")
			assert.Equal(t, []transport.Reason{transport.ReasonOutrun, transport.ReasonFinal}, ev.reasons())
			assert.Equal(t, 3-row.wins, ev.all[0].Number, "the loser's number")
			assert.Equal(t, row.wins, ev.all[1].Number, "the winner's number")
			idle(t, tr)
		})
	}
}

// TestWhatIsNotHedged: a request is not hedged if it must not be sent twice or if a
// limit forbids the hedge.
func TestWhatIsNotHedged(t *testing.T) {
	const put, post, del = http.MethodPut, http.MethodPost, http.MethodDelete
	inMemory := func() io.Reader { return strings.NewReader("text") }
	rate := func(burst int) policy.Rule {
		return policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.1, Burst: burst}}
	}
	spend := func(t *testing.T, tr *transport.Transport) { responds(t, tr, http.MethodGet, "http://h.test/fails") }
	hold := func(header ...string) func(*testing.T, *transport.Transport) {
		return func(t *testing.T, tr *transport.Transport) {
			time.AfterFunc(20*time.Millisecond, func() { _, _ = send(t, tr, post, "http://h.test/told", header...) })
		}
	}
	for name, row := range map[string]struct {
		method  string           // GET if empty
		body    func() io.Reader // nil: none
		change  func(*http.Request)
		ctx     func(context.Context) context.Context
		rule    policy.Rule
		prepare func(*testing.T, *transport.Transport)
		hedged  bool
	}{
		"GET":              {hedged: true},
		"HEAD":             {method: http.MethodHead, hedged: true},
		"GET with GetBody": {body: inMemory, hedged: true},
		"GET with a GetBody of its own": {body: func() io.Reader { return oneShot("text") }, change: func(req *http.Request) {
			req.GetBody = func() (io.ReadCloser, error) { return oneShot("text"), nil }
		}},
		"GET with one reader in memory": {hedged: true, change: func(req *http.Request) {
			r := strings.NewReader("text")
			req.Body, req.ContentLength, req.GetBody = io.NopCloser(r), 4, seeksBack(r, io.NopCloser(r))
		}},
		"PUT with GetBody":                   {method: put, body: inMemory},
		"PUT that is read once":              {method: put, body: func() io.Reader { return oneShot("text") }},
		"PUT that can be sought":             {method: put, body: func() io.Reader { return seekable("text") }},
		"DELETE":                             {method: del},
		"repeatable PUT":                     {method: put, body: inMemory, ctx: transport.WithIdempotent, hedged: true},
		"PUT, idempotent by the rule's word": {method: put, body: inMemory, rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}},
		"GET, against the rule's word":       {rule: policy.Rule{Idempotent: func(*http.Request) bool { return false }}},
		"POST":                               {method: post},
		"POST with GetBody":                  {method: post, body: inMemory},
		"POST with a key":                    {method: post, body: inMemory, change: func(req *http.Request) { req.Header.Set("Idempotency-Key", "k") }},
		"repeatable POST":                    {method: post, body: inMemory, ctx: transport.WithIdempotent, hedged: true},
		"repeatable POST with a trailer": {method: post, body: inMemory, ctx: transport.WithIdempotent, change: func(req *http.Request) {
			req.Trailer = http.Header{"X-Sum": nil}
		}},
		"once":                           {ctx: transport.WithoutRetries},
		"one attempt":                    {rule: policy.Rule{MaxAttempts: 1}},
		"budget spent":                   {rule: policy.Rule{RetryBudget: one}, prepare: spend},
		"budget spent, behind a limiter": {rule: policy.Rule{RetryBudget: one, Concurrency: policy.Concurrency{Max: 5}}, prepare: spend},
		"limiter full":                   {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1}}},
		"limiter with room":              {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 2}}, hedged: true},
		"rate used":                      {rule: rate(1)},
		"rate left":                      {rule: rate(2), hedged: true},
		"during a hold":                  {rule: sharing, prepare: hold()},
		"during another scope's hold":    {rule: sharing, prepare: hold("Authorization: Bearer x"), hedged: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			slow := script(status(200).Delay(time.Second))
			base := rt(func(req *http.Request) (*http.Response, error) {
				switch req.URL.Path {
				case "/told":
					return play(req, status(429, "Retry-After: 1"))
				case "/fails":
					return play(req, status(503))
				}
				return slow.RoundTrip(req)
			})
			rule := row.rule
			rule.Hedge, rule.Backoff = policy.Hedge{Delay: 50 * time.Millisecond}, backoff.Constant(time.Millisecond)
			tr := mustNew(t, transport.Config{Base: base, Rule: rule})
			if row.prepare != nil {
				row.prepare(t, tr)
			}
			var body io.Reader
			if row.body != nil {
				body = row.body()
			}
			req := newRequest(t, cmp.Or(row.method, http.MethodGet), "http://h.test/", body)
			if row.change != nil {
				row.change(req)
			}
			if row.ctx != nil {
				req = req.WithContext(row.ctx(req.Context()))
			}
			hasBody := req.Body != nil
			_ = mustRoundTrip(t, tr, req).Body.Close()
			slow.sent(t, map[bool]int{false: 1, true: 2}[row.hedged])
			for _, text := range slow.bodies {
				assert.Equal(t, hasBody, text == "text")
			}
			synctest.Wait()
			idle(t, tr)
		})
	}
}

// TestHedgeAndRetry: a response that would be retried waits for the other attempt. If
// both would be retried, the loop goes on.
func TestHedgeAndRetry(t *testing.T) {
	rows := map[string]struct {
		responses []answer
		want      int
		at        []time.Duration
		reasons   []transport.Reason
		numbers   []int
	}{
		"the second fails, the first comes": {
			responses: []answer{deaf(300 * time.Millisecond), status(503)}, want: 200,
			at: []time.Duration{0, 50 * time.Millisecond}, reasons: []transport.Reason{transport.ReasonOutrun, transport.ReasonFinal},
		},
		"the first fails, the second comes": {
			responses: []answer{deafly(100*time.Millisecond, faults.Fail(syscall.ECONNRESET)), deaf(300 * time.Millisecond)}, want: 200,
			at: []time.Duration{0, 50 * time.Millisecond}, reasons: []transport.Reason{transport.ReasonOutrun, transport.ReasonFinal},
		},
		"both attempts fail": {
			responses: []answer{deafly(100*time.Millisecond, faults.Fail(syscall.ECONNRESET)), deafly(100*time.Millisecond, status(503)), status(200)}, want: 200,
			at: []time.Duration{0, 50 * time.Millisecond, 1150 * time.Millisecond}, reasons: []transport.Reason{transport.ReasonOutrun, transport.ReasonRetry, transport.ReasonFinal},
		},
		"both attempts fail, and no attempt is left": {
			responses: []answer{deafly(100*time.Millisecond, status(503)), deafly(100*time.Millisecond, status(503)), status(503)}, want: 503,
			at: []time.Duration{0, 50 * time.Millisecond, 1150 * time.Millisecond}, reasons: []transport.Reason{transport.ReasonOutrun, transport.ReasonRetry, transport.ReasonMaxAttempts},
		},
		"the second is told to wait, and so is the retry": {
			responses: []answer{deafly(200*time.Millisecond, faults.Fail(syscall.ECONNRESET)), status(429, "Retry-After: 3"), status(200)}, want: 200,
			at: []time.Duration{0, 50 * time.Millisecond, 3050 * time.Millisecond}, reasons: []transport.Reason{transport.ReasonOutrun, transport.ReasonRetry, transport.ReasonFinal},
		},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			server := script(row.responses...)
			ev := &recorder{}
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
				MaxAttempts: 3, Hedge: policy.Hedge{Delay: 50 * time.Millisecond}, Backoff: backoff.Constant(time.Second),
			}})
			resp := mustGetWith(t, tr, ev.on(t.Context()))
			assert.Equal(t, row.want, resp.StatusCode)
			assert.NotEmpty(t, mustRead(t, resp))
			_ = resp.Body.Close()
			all := server.arrivals()
			if assert.Len(t, all, len(row.at)) {
				for i := range all {
					assert.GreaterOrEqual(t, all[i], row.at[i])
				}
			}
			assert.Equal(t, row.reasons, ev.reasons())
			synctest.Wait()
		})
	}
}

// TestBothRespondAtOnce: exactly one response is delivered. The other is closed.
func TestBothRespondAtOnce(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T) {
			var l ledger
			server := script()
			server.serve = numbered(func(req *http.Request, n int) (*http.Response, error) {
				time.Sleep(100*time.Millisecond - time.Duration(n-1)*50*time.Millisecond)
				return newResponse(req, 200, l.body(req.Context(), "text")), nil
			})
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}, Concurrency: policy.Concurrency{Max: 5}}})
			resp := mustGet(t, tr)
			synctest.Wait()
			count(t, 2, l.made.Load(), "body made")
			assert.EqualValues(t, 1, l.open.Load(), "open bodies")
			assert.Equal(t, 1, stateOf(t, tr).ConcurrencyInUse, "slots in use")
			assert.Equal(t, "text", mustRead(t, resp))
			_ = resp.Body.Close()
			assert.Zero(t, l.open.Load(), "open bodies")
			assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
		})
	}
}

// TestHedgeUnderAnAttemptTimeout: each attempt has a timeout of its own.
func TestHedgeUnderAnAttemptTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(faults.Hang(), faults.Hang(), status(200))
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
			Hedge: policy.Hedge{Delay: 500 * time.Millisecond}, AttemptTimeout: time.Second, Backoff: backoff.Constant(time.Second),
		}})
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond, 2500 * time.Millisecond}, server.arrivals())
	})
}

// Given an attempt that lost its race, and a base that ignores the context, when the
// response arrives and the Close of its body panics or blocks, then neither the process
// nor the caller notices.
func TestLateResponseWithABadBody(t *testing.T) {
	server := make(chan struct{})
	for name, closing := range map[string]func(){
		"Close panics": func() { panic("bad close") },
		"Close blocks": func() { <-server },
	} {
		for _, late := range []time.Duration{2 * time.Second, 3 * time.Second} {
			inBubble(t, name, func(t *testing.T) {
				server = make(chan struct{})
				closed := false
				base := script(func(req *http.Request) (*http.Response, error) {
					time.Sleep(2 * time.Second)
					return play(req, status(200))
				}, func(req *http.Request) (*http.Response, error) {
					time.Sleep(late - time.Second)
					return newResponse(req, 200, badBody{func([]byte) (int, error) { return 0, io.EOF }, func() {
						closed = true
						closing()
					}}), nil
				})
				start := time.Now()
				resp := mustGet(t, over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}.Or(quick)}, base))
				assert.Equal(t, 200, resp.StatusCode)
				assert.LessOrEqual(t, time.Since(start), 2*time.Second+transport.CloseTime)
				time.Sleep(time.Minute)
				synctest.Wait()
				if late > 2*time.Second { // otherwise it may have won
					assert.True(t, closed)
				}
				close(server)
			})
		}
	}
}

// TestVerdictOnAHedge: a response with the status of a success that a classifier wants to be retried
// does not end the first attempt.
func TestVerdictOnAHedge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(200).Delay(time.Second), status(200, "X-Failed: yes"))
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
			Hedge: policy.Hedge{Delay: 50 * time.Millisecond}, Concurrency: policy.Concurrency{Max: 5},
			Classify: func(o classify.Outcome) classify.Class {
				if o.Response != nil && o.Response.Header.Get("X-Failed") != "" {
					return classify.Ambiguous
				}
				return classify.Unknown
			},
		}})
		resp := mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Empty(t, resp.Header.Get("X-Failed"), "the caller has the response of the first")
		assert.Equal(t, time.Second, time.Since(server.start))
		synctest.Wait()
		assert.Equal(t, 2, server.attempts(), "attempts")
		idle(t, tr)
	})
}

// TestVerdictOnAHedgeThatTakesTime: the first attempt ends while a classifier looks into the response
// of the hedge. A response to the first goes to the caller at once. If the first has failed, the caller
// gets what the verdict allows.
func TestVerdictOnAHedgeThatTakesTime(t *testing.T) {
	for name, row := range map[string]struct {
		first, second, got int
		took               time.Duration
	}{
		"a good response":           {204, 200, 204, 100 * time.Millisecond},
		"a failure":                 {204, 503, 204, 100 * time.Millisecond},
		"after the first failed":    {503, 200, 200, 1050 * time.Millisecond},
		"the first is final, a 404": {404, 200, 404, 100 * time.Millisecond},
	} {
		inBubble(t, name, func(t *testing.T) {
			server := script(status(row.first).Delay(100*time.Millisecond), status(row.second))
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
				Hedge: policy.Hedge{Delay: 50 * time.Millisecond},
				Classify: func(o classify.Outcome) classify.Class {
					if o.Response.StatusCode == row.second {
						time.Sleep(time.Second)
					}
					return classify.Unknown
				},
			}})
			resp := mustFetch(t, tr, t.Context(), "http://h.test/")
			assert.Equal(t, row.took, time.Since(server.start))
			assert.Equal(t, row.got, resp.StatusCode)
			time.Sleep(time.Second) // until the classifier returns
		})
	}
}

// TestHedgeWithASilentBody: the response to the hedge is an event stream without an event, for which
// the rule of a profile waits. The first response goes to the caller at once, and the hedge ends.
func TestHedgeWithASilentBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		event := status(200).Header("Content-Type", "text/event-stream").Body("data: {}\n\n")
		server := script(event.Delay(300*time.Millisecond), event.StallAt(0))
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 100 * time.Millisecond}}.Or(profile.OpenAI())})
		resp := mustGet(t, tr)
		assert.Equal(t, 300*time.Millisecond, time.Since(server.start))
		_ = resp.Body.Close()
	})
}

// TestCallerLeavesWhileAStallIsClassified: the caller gets the error of its own time.
func TestCallerLeavesWhileAStallIsClassified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: script(faults.Hang()), Rule: policy.Rule{
			StallTimeout: 100 * time.Millisecond,
			Classify: func(classify.Outcome) classify.Class {
				time.Sleep(time.Second)
				return classify.Unknown
			},
		}})
		why := errors.New("the caller's time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, why)
		defer cancel()
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, why)
	})
}

// TestFirstAttemptRunsInTheCallersGoroutine: a request whose response comes before the hedge is due
// costs no goroutine. Those of earlier tests may end meanwhile.
func TestFirstAttemptRunsInTheCallersGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Minute}}, Base: rt(func(req *http.Request) (*http.Response, error) {
			assert.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines during the first attempt")
			return play(req, status(200))
		})})
		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, runtime.NumGoroutine(), before, "goroutines after the request")
	})
}

// TestCancelAtTheInstantOfTheHedge: the caller goes as the hedge starts, or as its response comes.
func TestCancelAtTheInstantOfTheHedge(t *testing.T) {
	for _, after := range []time.Duration{50 * time.Millisecond, 60 * time.Millisecond} {
		for range 100 {
			bubble(t, func(t *testing.T) {
				var l ledger
				server := script(faults.Hang(), func(req *http.Request) (*http.Response, error) {
					if err := pause(req, 10*time.Millisecond); err != nil {
						return nil, err
					}
					return newResponse(req, 200, l.body(req.Context(), "text")), nil
				})
				tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}, Concurrency: policy.Concurrency{Max: 5}}})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(after, cancel)
				if resp, err := get(t, tr, ctx); err != nil {
					assert.ErrorIs(t, err, context.Canceled)
				} else {
					_ = resp.Body.Close()
				}
				synctest.Wait()
				assert.Zero(t, l.open.Load(), "bodies")
				assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots")
			})
		}
	}
}

// TestHedgeIsNotTraced: the hooks of the caller's ClientTrace hear of one attempt, and those that a
// Trace gives the hedge hear of the hedge.
func TestHedgeIsNotTraced(t *testing.T) {
	for name, own := range map[string]bool{"no trace of its own": false, "a trace of its own": true} {
		t.Run(name, func(t *testing.T) {
			var served, gets, conns, dials, ownDials atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if served.Add(1) == 1 {
					<-req.Context().Done()
				}
			}))
			defer server.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 10 * time.Millisecond}}, Traces: []*transport.Trace{&transport.Trace{
				AttemptEnd: map[bool]func(context.Context, transport.AttemptEnd){true: func(context.Context, transport.AttemptEnd) {}}[own],
				AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
					if !own || a.Kind != transport.AttemptHedge {
						return ctx
					}
					return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(string, string) { ownDials.Add(1) }})
				},
			}}})
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GetConn:      func(string) { gets.Add(1) },
				GotConn:      func(httptrace.GotConnInfo) { conns.Add(1) },
				ConnectStart: func(string, string) { dials.Add(1) },
			})
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, server.URL, nil).WithContext(ctx))
			_ = resp.Body.Close()
			require.EqualValues(t, 2, served.Load(), "requests at the server")
			assert.EqualValues(t, 1, gets.Load(), "GetConn")
			assert.EqualValues(t, 1, conns.Load(), "GotConn")
			assert.EqualValues(t, 1, dials.Load(), "ConnectStart")
			assert.Equal(t, own, ownDials.Load() == 1, "ConnectStart of the hedge's own trace")
		})
	}
}

// TestRefusedHedgeGivesTheBudgetBack: the retry of the budget that a hedge did not use is there for
// another request at once.
func TestRefusedHedgeGivesTheBudgetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := numbered(func(req *http.Request, n int) (*http.Response, error) {
			switch n {
			case 1:
				return play(req, status(200).Delay(time.Hour))
			case 2:
				return play(req, status(503).Delay(2*time.Second))
			}
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{
			RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 2}, RetryBudget: one, Backoff: backoff.Constant(0), Hedge: policy.Hedge{Delay: time.Second},
		}})
		var other sync.WaitGroup
		other.Go(func() { responds(t, tr, http.MethodGet, "http://h.test/") })
		synctest.Wait()
		assert.Equal(t, 200, responds(t, tr, http.MethodPut, "http://h.test/"), "the PUT is retried")
		other.Wait()
	})
}

// TestWhichResponseOfARaceCounts: a final failure does not end the race, because the other attempt may do better. So the caller of
// a request that may act is not told that it failed if the server acted on one attempt and refused the other.
func TestWhichResponseOfARaceCounts(t *testing.T) {
	const later, second = 300 * time.Millisecond, 60 * time.Millisecond
	lost := faults.Fail(io.ErrUnexpectedEOF)
	refused := func(code int) answer { return deafly(10*time.Millisecond, status(code)) }
	for name, row := range map[string]struct {
		method        string
		first, second answer
		want          int
		at            time.Duration
	}{
		"GET: a 404 before a 200":                     {http.MethodGet, status(200).Delay(later), status(404), 200, later},
		"GET: a 501 before a 200":                     {http.MethodGet, status(200).Delay(later), status(501), 200, later},
		"GET: a 404 before a 304":                     {http.MethodGet, status(304).Delay(later), status(404), 304, later},
		"GET: a 404 before a 403":                     {http.MethodGet, status(403).Delay(later), status(404), 404, later},
		"GET: a 404 before a 503":                     {http.MethodGet, status(503).Delay(later), status(404), 404, later},
		"GET: a 404 before an error":                  {http.MethodGet, deafly(later, lost), status(404), 404, later},
		"GET: a 304 ends the first":                   {http.MethodGet, status(200).Delay(later), status(304), 304, 50 * time.Millisecond},
		"GET: a 404 of the first counts":              {http.MethodGet, status(404).Delay(later), faults.Hang(), 404, later},
		"DELETE: a 4xx waits for a success":           {http.MethodDelete, deafly(later, status(202)), refused(404), 202, later},
		"PUT: a 412 waits for a success":              {http.MethodPut, deafly(later, status(201)), refused(412), 201, later},
		"POST: the first attempt's 4xx waits as well": {http.MethodPost, deafly(later, status(400)), deafly(later, status(200)), 200, later + 50*time.Millisecond},
		"DELETE: both attempts get a 4xx":             {http.MethodDelete, deafly(later, status(404)), refused(410), 410, later},
		"DELETE: the other attempt fails":             {http.MethodDelete, deafly(later, lost), refused(404), 404, later},
		"DELETE: the other would be retried":          {http.MethodDelete, deafly(later, status(503)), refused(404), 404, later},
		"DELETE: a success does not wait":             {http.MethodDelete, status(404).Delay(later), refused(202), 202, second},
	} {
		inBubble(t, name, func(t *testing.T) {
			server, ev := script(row.first, row.second), &recorder{}
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}, Concurrency: policy.Concurrency{Max: 5}}})
			ctx := ev.on(t.Context())
			if row.method != http.MethodGet {
				ctx = transport.WithIdempotent(ctx)
			}
			resp := mustRoundTrip(t, tr, newRequest(t, row.method, "http://h.test/", nil).WithContext(ctx))
			assert.Equal(t, row.want, resp.StatusCode)
			assert.Equal(t, row.at, time.Since(server.start))
			assert.Equal(t, row.want != 304, mustRead(t, resp) == "body of "+http.StatusText(row.want))
			_ = resp.Body.Close()
			assert.Equal(t, []transport.Reason{transport.ReasonOutrun, transport.ReasonFinal}, ev.reasons())
			time.Sleep(time.Second) // for a loser that ignores its context
			server.sent(t, 2)
			idle(t, tr)
		})
	}
}

// TestFinalErrorAfterAHedge: a hedge is not a retry, so the error of the attempt that
// counts is returned as it is.
func TestFinalErrorAfterAHedge(t *testing.T) {
	final := errors.New("malformed response")
	for name, responses := range map[string][]answer{
		"of the first":  {deafly(100*time.Millisecond, faults.Fail(final)), faults.Hang()},
		"of the second": {faults.Hang(), faults.Fail(final)},
		"of the second, after one that would be retried": {deafly(60*time.Millisecond, status(503)), deafly(60*time.Millisecond, faults.Fail(final))},
	} {
		inBubble(t, name, func(t *testing.T) {
			server := script(responses...)
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{Hedge: policy.Hedge{Delay: 50 * time.Millisecond}}})
			_, err := get(t, tr, t.Context())
			assert.True(t, err == final, "%T: %v", err, err)
			server.sent(t, 2)
			time.Sleep(time.Second) // for a loser that ignores its context
		})
	}
}

// A panic in a hedged request reaches the caller, as it would without a hedge. If a base ends its goroutine, as FailNow of a test
// does, that of the caller ends. All attempts end, and no slot stays in use.
func TestPanicsInARace(t *testing.T) {
	panics := func(*http.Request) (*http.Response, error) { panic("mine") }
	exits := func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }
	trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
		if a.Kind == transport.AttemptHedge {
			panic("mine")
		}
		return ctx
	}}
	classifies := policy.Rule{Classify: func(o classify.Outcome) classify.Class {
		if o.Response != nil && o.Response.StatusCode == 418 {
			panic("mine")
		}
		return classify.Unknown
	}}
	for name, row := range map[string]struct {
		responses []answer
		config    transport.Config
		exits     bool // nothing panics
	}{
		"the first, alone":                  {responses: []answer{panics}},
		"the first, beside a second":        {responses: []answer{deafly(2*time.Second, panics), faults.Hang()}},
		"the second":                        {responses: []answer{faults.Hang(), panics}},
		"the second, after a failure":       {responses: []answer{deafly(2*time.Second, status(503)), deafly(2*time.Second, panics)}},
		"the first exits, alone":            {responses: []answer{exits}, exits: true},
		"the first exits, beside a second":  {responses: []answer{deafly(2*time.Second, exits), faults.Hang()}, exits: true},
		"the second exits":                  {responses: []answer{faults.Hang(), exits}, exits: true},
		"the second exits, after a failure": {responses: []answer{deafly(2*time.Second, status(503)), deafly(2*time.Second, exits)}, exits: true},
		"a trace":                           {responses: []answer{faults.Hang()}, config: transport.Config{Traces: []*transport.Trace{trace}}},
		"a classifier":                      {responses: []answer{faults.Hang(), status(418)}, config: transport.Config{Rule: classifies}},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := script(row.responses...)
			row.config.Rule = row.config.Rule.Or(policy.Rule{Hedge: policy.Hedge{Delay: time.Second}, Concurrency: policy.Concurrency{Max: 5}})
			tr := over(t, row.config, base)
			returned, panicked := false, any(nil)
			var caller sync.WaitGroup
			caller.Go(func() {
				defer func() { panicked = recover() }()
				_, _ = get(t, tr, t.Context())
				returned = true
			})
			caller.Wait()
			assert.False(t, returned, "RoundTrip must not return without a response")
			assert.Equal(t, map[bool]any{false: "mine", true: nil}[row.exits], panicked)
			synctest.Wait()
			assert.NotEmpty(t, base.reqs)
			for _, sent := range base.reqs {
				assert.Error(t, sent.Context().Err())
			}
			idle(t, tr)
		})
	}
}

// A panic in an attempt that nobody waits for any more ends neither the process nor the response that
// the caller reads.
func TestHedgeThatPanicsAfterTheRace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(200).Delay(2*time.Second), deafly(3*time.Second, func(*http.Request) (*http.Response, error) { panic("late") }))
		first := make(chan context.Context, 2)
		tr := over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Second}, Concurrency: policy.Concurrency{Max: 5}}}, rt(func(req *http.Request) (*http.Response, error) {
			first <- req.Context()
			return server.RoundTrip(req)
		}))
		resp := mustGet(t, tr)
		time.Sleep(time.Minute)
		assert.NoError(t, (<-first).Err())
		assert.NotEmpty(t, mustRead(t, resp))
		_ = resp.Body.Close()
		assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
	})
}

// A 429 to a hedge holds the scope, even if the response of the hedge does not count.
func TestHedgeThatIsToldToWaitHoldsTheScope(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{ShareRetryAfter: policy.On, Hedge: policy.Hedge{Delay: time.Second}}},
			script(status(200).Delay(3*time.Second), status(429, "Retry-After: 30")))
		var other sync.WaitGroup
		other.Go(func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) })
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, stateOf(t, tr).ThrottledKeys, "throttled keys")
		other.Wait()
	})
}

// Failures do not count as latencies. After an outage with quick failures few requests are hedged.
func TestFailuresAreNoLatenciesForTheHedge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var up atomic.Bool
		base := script(func(req *http.Request) (*http.Response, error) {
			if up.Load() {
				return play(req, status(200).Delay(10*time.Millisecond))
			}
			return nil, syscall.ECONNREFUSED
		})
		tr := over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Percentile: 95}, MaxAttempts: 2}.Or(quick)}, base)
		for range 1000 {
			_, err := get(t, tr, t.Context())
			require.Error(t, err)
		}
		up.Store(true)
		before := base.attempts()
		for range 50 {
			responds(t, tr, http.MethodGet, "http://h.test/")
		}
		assert.Less(t, base.attempts()-before, 60)
	})
}

// A response of a race that would be retried is closed and releases its slot at
// once, however long the other attempt takes.
func TestResponseGivenUpInARaceIsClosedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := oneShot("x")
		tr := over(t, transport.Config{Rule: policy.Rule{
			Hedge: policy.Hedge{Delay: time.Second}, Concurrency: policy.Concurrency{Max: 5},
		}}, script(deaf(time.Hour), func(req *http.Request) (*http.Response, error) { return newResponse(req, 503, b), nil }))
		var other sync.WaitGroup
		other.Go(func() { assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/")) })
		time.Sleep(time.Minute)
		count(t, 1, b.closed(), "body closed")
		assert.Equal(t, 1, stateOf(t, tr).ConcurrencyInUse, "slots in use")
		other.Wait()
		assert.Zero(t, stateOf(t, tr).ConcurrencyInUse, "slots in use")
	})
}

// An attempt of a race that was outrun, or has not run yet, has a copy of the request. The caller may change the request and use it
// again when it has a response (seen with -race).
func TestHedgeLeavesTheRequestAloneAfterTheResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Millisecond}}.Or(quick)}, numbered(func(req *http.Request, n int) (*http.Response, error) {
			if n%4 == 1 || n%4 == 0 { // the first attempt of a request, and the hedge of the next, win
				time.Sleep(3 * time.Millisecond)
				return play(req, status(200))
			}
			<-req.Context().Done()
			for range 1000 {
				_, _ = req.Header.Get("X-Reused"), req.URL.Path
			}
			return nil, errors.New("late")
		}))
		for range 20 {
			req := newRequest(t, http.MethodGet, "http://h.test/", nil)
			resp := mustRoundTrip(t, tr, req)
			_ = resp.Body.Close()
			for range 1000 {
				req.Method, req.URL.Path = http.MethodHead, "/next"
				req.Header.Set("X-Reused", "1")
			}
			time.Sleep(10 * time.Millisecond) // the other attempt ends
		}
	})
}

// The deadline of a hedge is found out while the first attempt reads the body (seen with -race).
func TestHedgeLeavesTheBodyToTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
			assert.Equal(t, time.Second, a.Deadline.Sub(a.Start))
			return ctx
		}}
		rule := policy.Rule{AttemptTimeout: time.Second, Hedge: policy.Hedge{Delay: time.Millisecond}}.Or(quick)
		tr := over(t, transport.Config{Rule: rule, Traces: []*transport.Trace{trace}}, numbered(func(req *http.Request, n int) (*http.Response, error) {
			if n%2 == 1 { // a first attempt
				time.Sleep(time.Millisecond)
			}
			_, _ = io.Copy(io.Discard, req.Body)
			return play(req, status(200).Delay(time.Millisecond))
		}))
		for range 50 {
			assert.Equal(t, 200, do(tr, newRequest(t, http.MethodGet, "http://h.test/", strings.NewReader("x"))).status)
		}
	})
}

// The caller's body fills in a trailer in the caller's request.
func TestTrailerWhenHedgingIsOn(t *testing.T) {
	for name, hedge := range map[string]policy.Hedge{"off": policy.Hedge{Enabled: policy.Off}, "on": {Delay: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			var sum string
			tr := over(t, transport.Config{Rule: policy.Rule{Hedge: hedge}.Or(quick)}, rt(func(req *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				sum = req.Trailer.Get("X-Sum") // as net/http does, after the body
				return play(req, status(200))
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
			mustRoundTrip(t, tr, req)
			assert.Equal(t, "42", sum)
		})
	}
}
