package transport_test

import (
	"context"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// succeeds sends a request without a body, and reports whether it got a 200.
func succeeds(t testing.TB, tr http.RoundTripper, method, url string) bool {
	resp, err := tr.RoundTrip(newRequest(t, method, url, nil))
	_ = closing(resp, err)
	return err == nil && resp.StatusCode == http.StatusOK
}

// isDown reports whether a.test is down.
func isDown(tr *transport.Transport) bool {
	s, _ := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "a.test"})
	return s.Down || s.GateClosed
}

// While a host is down, requests that may be repeated find out when it is back. A POST that
// tried it would fail.
func TestNoPostTriesAHostThatIsDown(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		down answer
	}{
		"503":       {policy.Rule{}, status(503)},
		"reset":     {policy.Rule{}, faults.Fail(syscall.ECONNRESET)},
		"gate":      {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503)},
		"gate full": {policy.Rule{Gate: policy.Gate{Mode: policy.GateRefuse}}, status(503)},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, row.rule)
			r.set("a.test", row.down)
			for !isDown(tr) {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
				time.Sleep(10 * time.Millisecond)
			}
			sent, failed := 0, 0
			for range 278 {
				if sent++; !succeeds(t, tr, http.MethodPost, "http://a.test/") {
					failed++
				}
				time.Sleep(100 * time.Millisecond)
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
				time.Sleep(100 * time.Millisecond)
			}
			assert.Zero(t, failed, "of %d POSTs", sent)

			r.set("a.test", nil)
			for range 30 {
				succeeds(t, tr, http.MethodPost, "http://a.test/")
				succeeds(t, tr, http.MethodGet, "http://a.test/")
				time.Sleep(100 * time.Millisecond)
			}
			assert.False(t, isDown(tr), "after 3 s")
		})
	}
}

// If nobody sends requests that may be repeated, one POST per 30 s tries the host.
func TestPostsTryAHostIfNobodyElseDoes(t *testing.T) {
	for name, row := range map[string]struct {
		rule policy.Rule
		down answer
		ctx  func(context.Context) context.Context
	}{
		"POST":            {policy.Rule{}, status(503), nil},
		"POST with a key": {policy.Rule{IdempotencyKey: policy.UUIDKey}, status(503), nil},
		"GET, once":       {policy.Rule{}, status(503), transport.Once},
		"gate":            {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503), nil},
		"gate and a wait": {policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}, status(503, "Retry-After: 1"), nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, row.rule)
			r.set("a.test", row.down)
			for !isDown(tr) {
				succeeds(t, tr, http.MethodGet, "http://a.test/")
				time.Sleep(10 * time.Millisecond)
			}
			method, ctx := http.MethodPost, t.Context()
			if row.ctx != nil {
				method, ctx = http.MethodGet, row.ctx(ctx)
			}
			from := r.now()
			for r.now() < from+5*time.Minute {
				_ = closing(tr.RoundTrip(newRequest(t, method, "http://a.test/", nil).WithContext(ctx)))
				time.Sleep(100 * time.Millisecond)
			}
			tries := 0
			for _, a := range r.at("a.test", from) {
				if transport.AttemptNumber(a.req.Context()) == 1 {
					tries++
				}
			}
			assert.LessOrEqual(t, tries, 10, "in 5 min")
			assert.GreaterOrEqual(t, tries, 6, "the retries of a try take a while")
			r.set("a.test", nil)
			for range 310 {
				_ = closing(tr.RoundTrip(newRequest(t, method, "http://a.test/", nil).WithContext(ctx)))
				time.Sleep(100 * time.Millisecond)
			}
			assert.False(t, isDown(tr), "after 31 s")
		})
	}
}

// A caller who has little time says nothing about the host. One who leaves it as much time as
// it usually needs does.
func TestDeadlineIsAFailureIfTheHostHadItsTime(t *testing.T) {
	for name, row := range map[string]struct {
		successes int
		timeout   time.Duration
		silent    bool
		down      bool
	}{
		"less than usual":      {5, 3 * time.Millisecond, false, false},
		"one success":          {1, 3 * time.Millisecond, false, false},
		"more than usual":      {5, 60 * time.Millisecond, true, true},
		"less, and it is down": {5, 3 * time.Millisecond, true, false},
		"nothing is usual":     {0, 3 * time.Millisecond, false, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRegions()
			tr := r.transport(t, policy.Rule{Attempts: 2, Backoff: backoff.Constant(0)})
			slow := rt(func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 25*time.Millisecond); err != nil {
					return nil, err
				}
				return play(req, status(200))
			})
			r.set("a.test", answer(slow)) // 30 ms in all
			for range row.successes {
				assert.True(t, succeeds(t, tr, http.MethodGet, "http://a.test/"))
			}
			if row.silent {
				r.set("a.test", faults.Hang())
			}
			for range 6 {
				ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
				_ = closing(tr.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil).WithContext(ctx)))
				cancel()
			}
			assert.Equal(t, row.down, isDown(tr))
		})
	}
}
