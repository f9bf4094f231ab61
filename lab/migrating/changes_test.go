// The behaviours that change, measured in virtual time.

package migrating

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

const url = "http://shop.example.com/orders"

// measure runs a program in virtual time over a server that plays a plan.
func measure(t *testing.T, of build, plan faults.Plan, use func(*testing.T, program, *faults.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := faults.New(nil, plan)
		use(t, of(t, server), server)
	})
}

// A build makes a program over a base.
type build = func(*testing.T, http.RoundTripper) program

// changes are the columns of the table of the document. Each measures a program. That with aplomb keeps
// the promise.
var changes = []struct {
	head    string
	promise string // the cell of aplomb
	of      func(*testing.T, build) string
}{
	{"POST, 503", "1", sentOf},
	{"back after", "10 s", waitOf},
	{"told 1 h", "response", hourOf},
	{"gives up with", "response", gaveUpOf},
	{"100 requests", "at most 156", outageOf},
}

func sentOf(t *testing.T, of build) (sent string) {
	measure(t, of, faults.Script(faults.Status(503)), func(t *testing.T, send program, server *faults.Transport) {
		send(t.Context(), http.MethodPost, url, []byte("an order"))
		sent = strconv.Itoa(len(server.Records()))
	})
	return sent
}

// told returns the times of a request that is told to come back in 10 s, and of a second
// request that begins a second later.
func told(t *testing.T, of build) (back, other time.Duration) {
	plan := faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass(), faults.Pass())
	measure(t, of, plan, func(t *testing.T, send program, server *faults.Transport) {
		start := time.Now()
		testkit.Together(2, func(i int) {
			time.Sleep(time.Duration(i) * time.Second)
			send(t.Context(), http.MethodGet, url+"/"+strconv.Itoa(i+1), nil)
		})
		for i, r := range server.Records() {
			switch at := r.Time.Sub(start); {
			case strings.HasSuffix(r.URL, "/2"):
				other = at
			case i > 0:
				back = at
			}
		}
	})
	return back, other
}

func waitOf(t *testing.T, of build) string {
	earliest, latest := time.Hour, time.Duration(0)
	for range 30 { // because of jitter
		back, _ := told(t, of)
		earliest, latest = min(earliest, back), max(latest, back)
	}
	switch {
	case earliest < 3*time.Second:
		return "3 s or less"
	case earliest < 10*time.Second:
		return "8 to 12 s"
	case latest > 11*time.Second:
		return "10 s to " + latest.String()
	}
	return "10 s"
}

// hour returns how long a request takes that is told to come back in an hour.
func hour(t *testing.T, of build) (took time.Duration, r result) {
	plan := faults.Script(faults.Status(503).RetryAfter(time.Hour), faults.Pass())
	measure(t, of, plan, func(t *testing.T, send program, _ *faults.Transport) {
		start := time.Now()
		r = send(t.Context(), http.MethodGet, url, nil)
		took = time.Since(start)
	})
	return took, r
}

func hourOf(t *testing.T, of build) string {
	switch took, r := hour(t, of); {
	case took > 45*time.Minute: // less an hour's jitter of failsafe-go
		return "1 h"
	case took > 0 || r.err == nil && r.status != 503:
		return "back in 3 s"
	case r.resp != nil && reasonOf(r) != transport.ReasonThrottled:
		return "response, because of " + string(reasonOf(r))
	}
	return "response"
}

// down returns what a request gets from a host that is down.
func down(t *testing.T, of build) (r result) {
	measure(t, of, faults.Script(faults.Status(503).Body("sorry")), func(t *testing.T, send program, _ *faults.Transport) {
		r = send(t.Context(), http.MethodGet, url, nil)
	})
	return r
}

func gaveUpOf(t *testing.T, of build) string {
	if r := down(t, of); r.err != nil || r.status != 503 || r.body != "sorry" {
		return "error"
	}
	return "response"
}

// outage returns how many attempts arrive of 100 requests that begin together, and how
// long the last of them takes.
func outage(t *testing.T, of build) (sent int, took time.Duration) {
	measure(t, of, faults.Script(faults.Status(503)), func(t *testing.T, send program, server *faults.Transport) {
		start := time.Now()
		testkit.Together(100, func(int) { send(t.Context(), http.MethodGet, url, nil) })
		sent, took = len(server.Records()), time.Since(start)
	})
	return sent, took
}

func outageOf(t *testing.T, of build) string {
	sent, took := outage(t, of)
	// The budget has 30 retries, a fifth of the requests, and 3 for each second.
	if most := 100 + 30 + 100/5 + int(3*took.Seconds()); 100 < sent && sent <= min(most, 156) {
		return "at most 156"
	}
	return strconv.Itoa(sent)
}

// TestChanges: the second program of each pair behaves as promised.
func TestChanges(t *testing.T) {
	for _, change := range changes {
		for _, p := range pairs {
			t.Run(change.head+"/"+p.name, func(t *testing.T) {
				want := change.promise
				if p.name == "cenkalti/backoff" && change.head == "gives up with" {
					want = "error" // which the program makes of the response
				}
				assert.Equal(t, want, change.of(t, p.after))
			})
		}
	}
	for _, p := range pairs {
		r := down(t, p.after)
		assert.True(t, r.err != nil || reasonOf(r) == transport.ReasonMaxAttempts, "%s: %v", p.name, reasonOf(r))
	}
}

// changesTable measures the table of the document.
func changesTable(t *testing.T) string {
	heads, rule, ours := "| |", "|---|", "| aplomb |"
	for _, change := range changes {
		heads += " " + change.head + " |"
		rule += "---|"
		ours += " " + change.promise + " |"
	}
	rows := []string{heads, rule}
	for _, p := range pairs {
		row := "| " + p.name + " |"
		for _, change := range changes {
			row += " " + change.of(t, p.before) + " |"
		}
		rows = append(rows, row)
	}
	return strings.Join(append(rows, ours), "\n") + "\n"
}

// keyed sets the header of requests that may be repeated.
type keyed struct{ http.RoundTripper }

func (k keyed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Idempotency-Key", "order 17")
	return k.RoundTripper.RoundTrip(req)
}

// TestWaysBack: what the document names brings the old behaviour back.
func TestWaysBack(t *testing.T) {
	always := faults.Script(faults.Status(503))
	busy := faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass(), faults.Pass())
	with := func(rule policy.Rule) build {
		return made(ofClient, func(base http.RoundTripper) *http.Client {
			return &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: rule})}
		})
	}
	withKey := made(ofClient, func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: keyed{transport.MustNew(transport.Config{Base: base})}}
	})
	same := func(ctx context.Context) context.Context { return ctx }
	for _, row := range []struct {
		name   string
		of     build
		plan   faults.Plan
		ctx    func(context.Context) context.Context
		sent   int
		status int
	}{
		{"Repeatable", with(policy.Rule{}), always, transport.WithIdempotent, 6, 503},
		{"Idempotency-Key", withKey, always, same, 6, 503},
		{"no connection", with(policy.Rule{}), faults.Script(faults.ConnRefused(), faults.Pass()), same, 2, 200},
		{"Idempotent", with(policy.Rule{Idempotent: func(*http.Request) bool { return true }}), always, same, 6, 503},
		{"API", with(profile.API()), busy, same, 2, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			measure(t, row.of, row.plan, func(t *testing.T, send program, server *faults.Transport) {
				r := send(row.ctx(t.Context()), http.MethodPost, url, []byte("an order"))
				assert.Len(t, server.Records(), row.sent, "requests sent")
				assert.Equal(t, row.status, r.status)
			})
		})
	}
	t.Run("ShareRetryAfter", func(t *testing.T) {
		back, other := told(t, with(policy.Rule{ShareRetryAfter: policy.On}))
		assert.GreaterOrEqual(t, min(back, other), 10*time.Second, "back after %v, the other request after %v", back, other)
	})
	t.Run("RetryAfter.Beyond", func(t *testing.T) {
		rule := policy.Rule{MaxRetryAfter: policy.Off}
		took, r := hour(t, with(rule))
		assert.True(t, took >= time.Hour && r.status == 200, "%d after %v", r.status, took)
	})
	t.Run("RetryBudget", func(t *testing.T) {
		sent, _ := outage(t, with(policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}}))
		assert.Equal(t, 600, sent, "requests sent")
	})
	t.Run("Error", func(t *testing.T) {
		// The last attempts fail without a response.
		measure(t, with(policy.Rule{}), faults.Script(faults.ConnReset()), func(t *testing.T, send program, _ *faults.Transport) {
			r := send(t.Context(), http.MethodGet, url, nil)
			e, ok := errors.AsType[*transport.Error](r.err)
			assert.True(t, ok && e.Reason == transport.ReasonMaxAttempts && len(e.Attempts) == 6, "%v", r.err)
		})
	})
}
