package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

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
