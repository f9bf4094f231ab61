// Options that look alike and differ, measured in virtual time.

package migrating

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func retryable(set func(*retryablehttp.Client)) func(*testing.T, http.RoundTripper) program {
	return made(ofClient, func(base http.RoundTripper) *http.Client {
		client := retryablehttp.NewClient()
		client.HTTPClient.Transport = base
		client.Logger = nil
		client.RetryMax = 4
		set(client)
		return client.StandardClient()
	})
}

func aplomb(rule policy.Rule, set func(*http.Client)) func(*testing.T, http.RoundTripper) program {
	return made(ofClient, func(base http.RoundTripper) *http.Client {
		client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: rule})}
		if set != nil {
			set(client)
		}
		return client
	})
}

func checkBefore(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if resp != nil && resp.Header.Get("X-Shop") == "closed" {
		return false, errClosed
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

func handlerBefore(resp *http.Response, err error, attempts int) (*http.Response, error) {
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err == nil {
		err = errors.New(resp.Status)
	}
	return nil, fmt.Errorf("no order after %d attempts: %w", attempts, err)
}

var errClosed = errors.New("the shop is closed")

// handled goes around a transport.Transport.
type handled struct{ next http.RoundTripper }

func isClosed(o classify.Outcome) classify.Class {
	if o.Response != nil && o.Response.Header.Get("X-Shop") == "closed" {
		return classify.Final
	}
	return classify.Unknown
}

func (h handled) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.next.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("no order: %w", err)
	}
	past := transport.HistoryOf(resp, nil)
	switch {
	case isClosed(classify.Outcome{Response: resp}) == classify.Final:
		err = errClosed
	case past.Reason != "" && past.Reason != transport.ReasonFinal: // it gave up
		err = fmt.Errorf("no order after %d attempts: %s, %v", len(past.Attempts), resp.Status, past.Reason)
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// An ErrorHandler and a CheckRetry with an error of its own, and the RoundTripper in their
// place, make the same errors. The RoundTripper sees every reason to give up.
func TestHandler(t *testing.T) {
	before := retryable(func(c *retryablehttp.Client) { c.ErrorHandler, c.CheckRetry = handlerBefore, checkBefore })
	after := func(rule policy.Rule) func(*testing.T, http.RoundTripper) program {
		rule.Classify = isClosed
		return aplomb(rule.Or(policy.Rule{MaxAttempts: 5}), func(c *http.Client) { c.Transport = handled{c.Transport} })
	}
	down := faults.Script(faults.Status(503))
	for _, row := range []struct {
		name     string
		build    func(*testing.T, http.RoundTripper) program
		plan     faults.Plan
		method   string
		deadline time.Duration
		attempts int
		text     string // in the error; "": there is none
		closed   bool
	}{
		{"before: closed", before, faults.Script(faults.Status(503).Header("X-Shop", "closed")), "GET", 0, 1, "the shop is closed", true},
		{"before: responses", before, down, "GET", 0, 5, "no order after 5 attempts: 503", false},
		{"before: errors", before, faults.Script(faults.ConnRefused()), "GET", 0, 5, "no order after 5 attempts: Get", false},
		{"before: not found", before, faults.Script(faults.Status(404)), "GET", 0, 1, "", false},
		{"closed", after(policy.Rule{}), faults.Script(faults.Status(503).Header("X-Shop", "closed")), "GET", 0, 1, "the shop is closed", true},
		{"closed later", after(policy.Rule{}), faults.Script(faults.Status(503), faults.Status(503).Header("X-Shop", "closed")), "GET", 0, 2, "the shop is closed", true},
		{"max_attempts", after(policy.Rule{}), down, "GET", 0, 5, "no order after 5 attempts: 503 Service Unavailable, max_attempts", false},
		{"errors", after(policy.Rule{}), faults.Script(faults.ConnRefused()), "GET", 0, 5, "no order: ", false},
		{"retry_budget", after(policy.Rule{RetryBudget: policy.RetryBudget{MinPerSecond: policy.Off}}), down, "GET", 0, 2, "after 2 attempts: 503 Service Unavailable, retry_budget", false},
		{"deadline", after(policy.Rule{}), faults.Script(faults.Status(503).RetryAfter(10 * time.Second)), "GET", 5 * time.Second, 1, "after 1 attempts: 503 Service Unavailable, deadline", false},
		{"long wait", after(policy.Rule{}), faults.Script(faults.Status(429).RetryAfter(time.Hour)), "GET", 0, 1, "429 Too Many Requests, throttled", false},
		{"time in all", after(policy.Rule{MaxElapsedTime: 500 * time.Millisecond}), down, "GET", 0, 1, "503 Service Unavailable, max_elapsed_time", false},
		{"POST", after(policy.Rule{}), down, "POST", 0, 1, "503 Service Unavailable, not_idempotent", false},
		{"not found", after(policy.Rule{}), faults.Script(faults.Status(404)), "GET", 0, 1, "", false},
		{"success", after(policy.Rule{}), faults.Script(faults.Status(503), faults.Status(200)), "GET", 0, 2, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			measure(t, row.build, row.plan, func(t *testing.T, send program, server *faults.Transport) {
				ctx := t.Context()
				if row.deadline > 0 {
					c, cancel := context.WithTimeout(ctx, row.deadline)
					defer cancel()
					ctx = c
				}
				r := send(ctx, row.method, url, nil)
				assert.Len(t, server.Records(), row.attempts, "requests that arrived")
				assert.Equal(t, row.closed, errors.Is(r.err, errClosed))
				if row.text == "" {
					assert.NoError(t, r.err)
					return
				}
				assert.ErrorContains(t, r.err, row.text)
			})
		})
	}
}

// HTTPClient.Timeout of retryablehttp is for an attempt, the Timeout around aplomb for all.
func TestTimeoutOfTheClient(t *testing.T) {
	for _, row := range []struct {
		name     string
		build    func(*testing.T, http.RoundTripper) program
		attempts int
		fails    bool
	}{
		{"HTTPClient.Timeout", retryable(func(c *retryablehttp.Client) { c.HTTPClient.Timeout = time.Second }), 2, false},
		{"Timeout of http.Client", aplomb(policy.Rule{}, func(c *http.Client) { c.Timeout = time.Second }), 1, true},
		{"AttemptTimeout", aplomb(policy.Rule{AttemptTimeout: time.Second}, nil), 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			measure(t, row.build, faults.Script(faults.Hang(), faults.Status(200)), func(t *testing.T, send program, server *faults.Transport) {
				r := send(t.Context(), http.MethodGet, url, nil)
				assert.Len(t, server.Records(), row.attempts, "attempts")
				assert.Equal(t, row.fails, r.err != nil, "%+v", r)
			})
		})
	}
}

// A Backoff of retryablehttp that looks at the response can make a wait shorter. So can a RetryAfter, before
// the first retry. It holds other requests if the rule shares waits.
func TestRetryAfterIsNoBackoff(t *testing.T) {
	const wait = 2 * time.Second
	hint := func(classify.Outcome) (time.Duration, bool) { return wait, true }
	for _, row := range []struct {
		name        string
		build       func(*testing.T, http.RoundTripper) program
		least, most time.Duration // until the retry
		holds       bool
	}{
		{"Backoff of retryablehttp", retryable(func(c *retryablehttp.Client) {
			c.Backoff = func(time.Duration, time.Duration, int, *http.Response) time.Duration { return wait }
		}), wait, wait, false},
		{"RetryAfter that is shorter than the back-off", aplomb(policy.Rule{RetryAfter: hint, Backoff: backoff.Constant(10 * time.Second)}, nil), wait, wait + time.Second, false},
		{"RetryAfter without a back-off", aplomb(policy.Rule{RetryAfter: hint, Backoff: backoff.Constant(0)}, nil), wait, wait + time.Second, false},
		{"RetryAfter with a cooldown", aplomb(policy.Rule{RetryAfter: hint, Backoff: backoff.Constant(0), ShareRetryAfter: policy.On}, nil), wait, wait + time.Second, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := faults.Script(faults.Status(503), faults.Pass())
			measure(t, row.build, plan, func(t *testing.T, send program, server *faults.Transport) {
				start := time.Now()
				send(t.Context(), http.MethodGet, url, nil)
				took := server.Records()[1].Time.Sub(start)
				assert.True(t, row.least <= took && took <= row.most, "came back after %v", took)
			})
			plan = faults.Script(faults.Status(503), faults.Pass(), faults.Pass())
			measure(t, row.build, plan, func(t *testing.T, send program, server *faults.Transport) {
				start := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					send(t.Context(), http.MethodGet, url, nil)
				}()
				time.Sleep(time.Second)
				send(t.Context(), http.MethodHead, url, nil)
				<-done
				for _, r := range server.Records() {
					assert.True(t, r.Method != http.MethodHead || (r.Time.Sub(start) > time.Second) == row.holds, "the other request was sent after %v", r.Time.Sub(start))
				}
			})
		})
	}
}
