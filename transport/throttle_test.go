// Waits that the requests of a scope share, and those that none shares.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// A strict server responds with a status and a wait until a time, and with 200 after it.
type strict struct {
	*origin
	takes time.Duration // the time for each answer
}

func newStrict(code int, until, takes time.Duration) *strict {
	s := &strict{takes: takes}
	begun := time.Now()
	s.origin = script(func(req *http.Request) (*http.Response, error) {
		left := until - time.Since(begun)
		if err := pause(req, takes); err != nil {
			return nil, err
		}
		if left > 0 {
			seconds := int((left + time.Second - 1) / time.Second)
			return play(req, status(code, fmt.Sprintf("Retry-After: %d", seconds), "Date: "))
		}
		return play(req, status(200))
	})
	return s
}

// followRamp fails if the arrivals are ahead of the documented ramp. The ramp lets a
// request go when the hold opens, another every 100 ms, and two for each response.
func followRamp(t *testing.T, arrivals []time.Duration, opens, takes time.Duration) {
	t.Helper()
	slices.Sort(arrivals)
	for k, at := range arrivals {
		responded := 0
		for _, a := range arrivals[:k] {
			if a+takes <= at {
				responded++
			}
		}
		most := 1 + int((at-opens)/(100*time.Millisecond)) + 2*responded
		assert.LessOrEqual(t, k+1, most, "arrival %d at %v, %d responses after the hold's end at %v: at most", k+1, at, responded, opens)
	}
}

// TestOneIsToldAndAllWait is the requirement of the throttle. It also shows the
// fault without the throttle.
func TestOneIsToldAndAllWait(t *testing.T) {
	const others = 49
	for _, code := range []int{429, 503} {
		for _, mode := range []policy.Switch{policy.On, policy.Off} {
			inBubble(t, fmt.Sprintf("%d with the throttle %v", code, mode), func(t *testing.T) {
				server := newStrict(code, time.Second, 20*time.Millisecond)
				tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
					ShareRetryAfter: mode, Backoff: backoff.Constant(10 * time.Millisecond), RetryBudget: policy.RetryBudget{Enabled: policy.Off},
				}})
				opened := make(chan time.Duration, 1)
				time.AfterFunc(500*time.Millisecond, func() {
					var at time.Duration
					if s := stateOf(t, tr); s.ThrottledKeys > 0 {
						at = s.ThrottledUntil.Sub(server.start)
					}
					opened <- at
				})
				together(others+1, func(i int) {
					if i > 0 { // when the first request has its answer
						time.Sleep(25*time.Millisecond + time.Duration(i)*10*time.Millisecond)
					}
					assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				})
				all := server.arrivals()
				inTheSecond := server.between(25*time.Millisecond, time.Second+20*time.Millisecond)
				t.Logf("%d further arrivals within the second, %d attempts in all, the last at %v", inTheSecond, len(all), slices.Max(all))
				if mode == policy.Off {
					assert.GreaterOrEqual(t, inTheSecond, others)
					assert.Zero(t, <-opened, "nothing is held")
					return
				}
				opens := <-opened
				assert.LessOrEqual(t, inTheSecond, 2)
				assert.Len(t, all, others+2)
				// The server asks for a second at 20 ms.
				assert.GreaterOrEqual(t, opens, 1020*time.Millisecond)
				assert.GreaterOrEqual(t, all[1], opens)
				assert.LessOrEqual(t, opens, 1520*time.Millisecond, "jitter is at most half the wait")
				followRamp(t, all[1:], opens, 20*time.Millisecond)
				assert.Less(t, slices.Max(all), opens+time.Second)
			})
		}
	}
}

// TestRampWithoutResponses: a server that hangs after the hold does not stop the waiting
// requests, and does not get all of them at once.
func TestRampWithoutResponses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told time.Time
		server := script(func(req *http.Request) (*http.Response, error) {
			if told.IsZero() {
				told = time.Now()
				return play(req, status(429, "Retry-After: 1"))
			}
			return nil, pause(req, time.Hour)
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: sharing})
		responds(t, tr, http.MethodPost, "http://h.test/")
		opens := stateOf(t, tr).ThrottledUntil.Sub(server.start)
		ctx := expires(t, opens+30*time.Second)
		together(200, func(int) { _, _ = get(t, tr, ctx) })
		all := server.arrivals()[1:]
		assert.Len(t, all, 200)
		followRamp(t, all, opens, time.Hour*2)
		assert.Equal(t, 100, server.between(opens, opens+10*time.Second), "one every 100 ms")
	})
}

// TestHoldBehindTheOtherLimits: a hold that begins while a request waits for
// the rate, the limiter or a quota holds that request, too.
func TestHoldBehindTheOtherLimits(t *testing.T) {
	rows := map[string]struct {
		rule    policy.Rule
		release time.Duration
	}{
		"rate":             {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 2}}},
		"limiter":          {rule: policy.Rule{Concurrency: policy.Concurrency{Max: 2}}, release: 2 * time.Second},
		"limiter and rate": {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 2}, Concurrency: policy.Concurrency{Max: 5}}},
		"pacing":           {rule: policy.Rule{QuotaPacing: policy.On}},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			server := script(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPost {
					time.Sleep(time.Second)
					return play(req, status(429, "Retry-After: 20"))
				}
				return play(req, status(200, "X-RateLimit-Remaining: 1", "X-RateLimit-Limit: 100", "X-RateLimit-Reset: 9"))
			})
			tr := mustNew(t, transport.Config{Base: server, Rule: sharing.Or(row.rule)})
			var other sync.WaitGroup
			other.Go(func() { _, _ = send(t, tr, http.MethodPost, "http://h.test/") })
			time.Sleep(100 * time.Millisecond)
			resp, err := get(t, tr, t.Context()) // fills the limiter, or uses the rate
			require.NoError(t, err)
			time.AfterFunc(row.release, func() { _ = resp.Body.Close() })
			if name == "pacing" {
				responds(t, tr, http.MethodGet, "http://h.test/")
			}
			before := server.attempts()
			code, err := send(t, tr, http.MethodGet, "http://h.test/") // waits for its turn, and then for the hold
			require.NoError(t, err)
			assert.Equal(t, 200, code)
			other.Wait()
			require.Equal(t, before+1, server.attempts(), "requests sent")
			assert.GreaterOrEqual(t, server.arrivals()[before], 21*time.Second)
			idle(t, tr)
		})
	}
}

// TestSlotOfARefusal: the slot of a response that asks to wait is free only when the hold is known, so
// that no request gets it in between, however long a hint of the user's takes.
func TestSlotOfARefusal(t *testing.T) {
	slow := func(o classify.Outcome) (time.Duration, bool) {
		time.Sleep(time.Millisecond) // every other goroutine runs meanwhile
		return classify.RetryAfter(o)
	}
	rows := map[string]struct {
		rule policy.Rule
		body io.Reader // of the request that is refused
	}{
		"untouched": {rule: policy.Rule{MaxAttempts: 1}},
		"copied":    {rule: policy.Rule{MaxAttempts: 1, AttemptTimeout: time.Minute}},
		"upload":    {rule: policy.Rule{MaxAttempts: 1}, body: io.MultiReader(strings.NewReader("a body that is no small one in memory"))},
		"hedged":    {rule: policy.Rule{Hedge: policy.Hedge{Delay: time.Hour}}},
	}
	for name, row := range rows {
		for _, code := range []int{429, 503} {
			inBubble(t, fmt.Sprint(name, " ", code), func(t *testing.T) {
				server := script(func(req *http.Request) (*http.Response, error) {
					if req.Header.Get("Refuse") == "" {
						return play(req, status(200))
					}
					time.Sleep(time.Second)
					return play(req, status(code, "Retry-After: 20"))
				})
				row.rule.RetryAfter, row.rule.Concurrency = slow, policy.Concurrency{Max: 1}
				tr := mustNew(t, transport.Config{Base: server, Rule: sharing.Or(row.rule)})
				var other sync.WaitGroup
				other.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // no retry
					defer cancel()
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", row.body)
					req.Header.Set("Refuse", "yes")
					if resp, err := tr.RoundTrip(req); err == nil {
						_ = resp.Body.Close()
					}
				})
				time.Sleep(100 * time.Millisecond)
				responds(t, tr, http.MethodGet, "http://h.test/")
				other.Wait()
				server.sent(t, 2)
				assert.GreaterOrEqual(t, server.arrivals()[1], 21*time.Second)
				idle(t, tr)
			})
		}
	}
}

func TestScopes(t *testing.T) {
	byPath := func(req *http.Request) string { return req.URL.Path }
	rows := map[string]struct {
		rule        policy.Rule
		told, other string // headers, or paths
		held        bool
	}{
		"two tokens":                   {told: "Authorization: Bearer a", other: "Authorization: Bearer b"},
		"one token":                    {told: "Authorization: Bearer a", other: "Authorization: Bearer a", held: true},
		"a token and none":             {told: "Authorization: Bearer a", other: "X-Other: 1"},
		"two keys":                     {told: "X-Api-Key: a", other: "X-Api-Key: b"},
		"a user, another password":     {told: "Authorization: Basic YTpi", other: "Authorization: Basic YTpj"},
		"one access key, two requests": {told: aws("AKIA1", "s1"), other: aws("AKIA1", "s2"), held: true},
		"two access keys":              {told: aws("AKIA1", "s1"), other: aws("AKIA2", "s2")},
		"two routes":                   {rule: policy.Rule{ThrottleKey: byPath}, told: "/a", other: "/b"},
		"one route, two tokens":        {rule: policy.Rule{ThrottleKey: byPath}, told: "Authorization: Bearer a", other: "Authorization: Bearer b", held: true},
		"two routes without a Scope":   {told: "/a", other: "/b", held: true},
	}
	for name, row := range rows {
		inBubble(t, name, func(t *testing.T) {
			server := script(status(429, "Retry-After: 10"), status(200))
			tr := mustNew(t, transport.Config{Base: server, Rule: sharing.Or(row.rule)})
			for _, what := range []string{row.told, row.other} {
				url, header := "http://h.test/", what
				if what[0] == '/' {
					url, header = "http://h.test"+what, "X-None: 1"
				}
				responds(t, tr, http.MethodPost, url, header)
			}
			if row.held {
				assert.GreaterOrEqual(t, server.arrivals()[1], 10*time.Second)
			} else {
				assert.Zero(t, server.arrivals()[1])
			}
		})
	}
}

func aws(id, signature string) string {
	return "Authorization: AWS4-HMAC-SHA256 Credential=" + id + "/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=" + signature
}

// TestHoldByAnotherStatus: a 4xx that a classifier has sent again holds its scope
// as well, if it names a wait; any other does not.
func TestHoldByAnotherStatus(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		held bool
	}{
		"GitHub's 403":           {policy.Rule{Classify: classify.First(classify.Signals, classify.Default)}, true},
		"a 403 that means a 403": {policy.Rule{}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			server := script(status(403, "X-Github-Request-Id: 1", "Retry-After: 10"), status(200))
			row.rule.MaxAttempts = 1
			tr := mustNew(t, transport.Config{Base: server, Rule: sharing.Or(row.rule)})
			for range 2 {
				responds(t, tr, http.MethodGet, "http://h.test/")
			}
			assert.Equal(t, row.held, server.arrivals()[1] >= 10*time.Second)
		})
	}
}

// TestNoHoldByTheConnectionsStatus: 408, 413, 421 and 425 are about this request or
// its connection. The wait that they name binds only the request.
func TestNoHoldByTheConnectionsStatus(t *testing.T) {
	for _, code := range []int{408, 413, 421, 425} {
		for _, wait := range []string{"10", "31536000"} {
			inBubble(t, fmt.Sprint(code, " for ", wait), func(t *testing.T) {
				server := script(status(code, "Retry-After: "+wait), status(200))
				tr := mustNew(t, transport.Config{Base: server, Rule: sharing})
				var own int
				var other sync.WaitGroup
				other.Go(func() { own, _ = send(t, tr, http.MethodGet, "http://h.test/") })
				time.Sleep(time.Millisecond)
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				assert.Equal(t, time.Millisecond, server.arrivals()[1])
				other.Wait()
				if wait == "10" {
					require.Equal(t, 200, own)
					assert.GreaterOrEqual(t, server.arrivals()[2], 10*time.Second)
				} else {
					assert.Equal(t, code, own, "it is not waited for")
				}
			})
		}
	}
}

// TestRedirectHoldsNothing: an http.Client follows a redirect at once, also if it names a wait, as over
// net/http alone. A proxy may add Retry-After to each response.
func TestRedirectHoldsNothing(t *testing.T) {
	for _, rule := range []policy.Rule{{}, sharing} {
		bubble(t, func(t *testing.T) {
			server := script(status(302, "Location: /there", "Retry-After: 30"), status(200))
			client := &http.Client{Transport: mustNew(t, transport.Config{Base: server, Rule: rule})}
			resp, err := client.Get("http://h.test/")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []time.Duration{0, 0}, server.arrivals())
		})
	}
}

// TestHoldBeforeTheBody: a classifier that waits for the body of a 429 does not
// delay the hold. If the body asks for a longer wait than the headers, that wait counts
// from the arrival of the headers.
func TestHoldBeforeTheBody(t *testing.T) {
	fromBody := func(o classify.Outcome) (time.Duration, bool) {
		if wait := classify.RetryAfter; len(o.Peek(100)) == 0 {
			return wait(o)
		}
		return 10 * time.Second, true
	}
	for name, row := range map[string]struct {
		rule  policy.Rule
		takes time.Duration // the first bytes of the body
		holds time.Duration
	}{
		"a body that stalls": {policy.Rule{Classify: classify.Signals}, time.Hour, 5 * time.Second},
		"a slow body":        {policy.Rule{Classify: classify.Signals}, 500 * time.Millisecond, 5 * time.Second},
		"a hint in the body": {policy.Rule{RetryAfter: fromBody}, 500 * time.Millisecond, 10 * time.Second},
		"a hedge":            {policy.Rule{Classify: classify.Signals, Hedge: policy.Hedge{Delay: time.Millisecond}}, time.Hour, 5 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			var refuse sync.Once
			server := script(func(req *http.Request) (resp *http.Response, err error) {
				if err := pause(req, 10*time.Millisecond); err != nil {
					return nil, err
				}
				resp, err = play(req, status(200))
				refuse.Do(func() {
					r, w := io.Pipe()
					resp = newResponse(req, 429, r, "Retry-After: 5", "Date: ")
					time.AfterFunc(row.takes, func() { _, _ = w.Write([]byte("slow down")); _ = w.Close() })
				})
				return resp, err
			})
			tr := mustNew(t, transport.Config{Base: server, Rule: sharing.Or(row.rule)})
			together(20, func(i int) {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
			})
			heard := 10 * time.Millisecond
			assert.Zero(t, server.between(heard+1, heard+5*time.Second))
			assert.Zero(t, server.between(heard+1, heard+row.holds))
			assert.NotZero(t, server.between(heard+row.holds, heard+row.holds+2*time.Second), "and no longer than that")
		})
	}
}

var sharing = policy.Rule{ShareRetryAfter: policy.On}

// By default, and for APIs and services, a request obeys only the wait that it was told itself. The requests
// beside it are as fast as without a Transport.
func TestNobodyWaitsForAnother(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "Service": profile.Service()} {
		for _, code := range []int{429, 503} {
			for _, wait := range []int{1, 30, 3600} {
				inBubble(t, fmt.Sprint(name, code, wait), func(t *testing.T) {
					const takes = 20 * time.Millisecond
					tr := mustNew(t, transport.Config{Rule: rule, Base: rt(func(req *http.Request) (*http.Response, error) {
						if err := pause(req, takes); err != nil {
							return nil, err
						}
						if req.URL.Path == "/search" {
							return play(req, status(code, "Retry-After: "+strconv.Itoa(wait), "Date: "))
						}
						return play(req, status(200))
					})})
					together(600, func(i int) {
						time.Sleep(time.Duration(i) * 50 * time.Millisecond)
						ctx := expires(t, 2*time.Second)
						path := "checkout"
						if i%5 == 0 {
							path = "search"
						}
						begin := time.Now()
						err := closing(tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/"+path, nil).WithContext(ctx)))
						if path == "checkout" {
							assert.NoError(t, err)
							assert.Equal(t, takes, time.Since(begin))
						}
					})
				})
			}
		}
	}
}

// Requests that were told the same end of their waits come back gradually, even if the first of them gets its answer before
// another has come. None of them is lost.
func TestRetriesAtAReset(t *testing.T) {
	for _, code := range []int{429, 503} {
		inBubble(t, strconv.Itoa(code), func(t *testing.T) {
			const reset = 50 * time.Second
			server := newStrict(code, reset, 20*time.Millisecond)
			tr := mustNew(t, transport.Config{Base: server})
			together(700, func(i int) {
				time.Sleep(time.Duration(i) * 70 * time.Millisecond)
				assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
				assert.LessOrEqual(t, time.Since(server.start), reset+15*time.Second)
			})
			for from := reset; from < reset+15*time.Second; from += 50 * time.Millisecond {
				assert.LessOrEqual(t, server.between(from, from+time.Second), 100, "from %v", from)
			}
		})
	}
}

// Each request that is told to wait again and again has two attempts at most, because the host is down.
func TestRefusedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(status(429, "Retry-After: 1", "Date: "))
		tr := mustNew(t, transport.Config{Base: server})
		together(100, func(i int) {
			time.Sleep(time.Duration(i) * 2 * time.Second)
			responds(t, tr, http.MethodGet, "http://h.test/")
		})
		t.Logf("%d attempts", server.attempts())
		assert.LessOrEqual(t, server.attempts(), 202, "attempts")
	})
}

// With Throttle on and a limit that is really shared, hardly a request is sent during a wait, and all
// are served soon after it.
func TestSharedLimit(t *testing.T) {
	const from, until = 10 * time.Second, 60 * time.Second
	for name, row := range map[string]struct {
		most int // arrivals during the wait
		run  func(one func(), ends func() bool)
	}{
		"an open loop": {5, func(one func(), _ func() bool) {
			together(50*60, func(i int) {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				one()
			})
		}},
		"100 goroutines": {110, func(one func(), ends func() bool) {
			together(100, func(int) {
				for !ends() {
					one()
					time.Sleep(100 * time.Millisecond)
				}
			})
		}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var mu sync.Mutex
			var last time.Duration // when the last request ended that began before the end of the wait
			var server *origin
			server = script(func(req *http.Request) (*http.Response, error) {
				at := time.Since(server.start)
				if err := pause(req, 20*time.Millisecond); err != nil {
					return nil, err
				}
				if from <= at && at < until {
					return play(req, status(429, fmt.Sprint("Retry-After: ", int((until-at+time.Second-1)/time.Second)), "Date: "))
				}
				return play(req, status(200))
			})
			tr := mustNew(t, transport.Config{Base: server, Rule: sharing})
			row.run(func() {
				begin := time.Since(server.start)
				responds(t, tr, http.MethodGet, "http://h.test/")
				mu.Lock()
				defer mu.Unlock()
				if begin < until {
					last = max(last, time.Since(server.start))
				}
			}, func() bool { return time.Since(server.start) > until })
			during := server.between(from, until)
			t.Logf("%d arrivals during the wait, and all served %v after it", during, last-until)
			assert.LessOrEqual(t, during, row.most)
			assert.LessOrEqual(t, last-until, 2500*time.Millisecond)
		})
	}
}

// A request waits for the holds of others for MaxRetryAfter in all, however often they are renewed.
// Then it goes. With a deadline before that it fails at once, and the error says until when.
func TestPatienceWithOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(func(req *http.Request) (*http.Response, error) {
			if seconds, err := strconv.Atoi(req.URL.Path[1:]); err == nil {
				time.Sleep(time.Duration(seconds) * time.Second)
				return play(req, status(429, "Retry-After: 3600"))
			}
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: sharing})
		for _, after := range []string{"1", "30", "60", "90", "120"} { // all are sent before the first hold
			go responds(t, tr, http.MethodPost, "http://h.test/"+after)
		}
		time.Sleep(2 * time.Second)
		ctx := expires(t, 30*time.Second)
		_, err := get(t, tr, ctx)
		e := errorAs[*transport.Error](t, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, stateOf(t, tr).ThrottledUntil, e.Until)
		assert.Equal(t, 2*time.Second, time.Since(server.start), "at once")

		assert.Equal(t, 200, responds(t, tr, http.MethodGet, "http://h.test/"))
		assert.Equal(t, 2*time.Second+time.Minute, time.Since(server.start))
		time.Sleep(3 * time.Minute)
	})
}
