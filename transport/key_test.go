package transport_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A keeper is a server that honours keys. It acts once for each key. It plays its steps in
// order, and then responds.
type keeper struct {
	steps []string
	acted map[string]bool
	sent  []*http.Request
}

func (k *keeper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	k.sent = append(k.sent, req)
	step := "respond"
	if len(k.steps) > 0 {
		step, k.steps = k.steps[0], k.steps[1:]
	}
	key := req.Header.Get("Idempotency-Key")
	switch step {
	case "busy":
		return play(req, status(409, "Retry-After: 1"))
	case "lost before":
		return nil, syscall.ECONNRESET
	case "unavailable":
		return play(req, status(503))
	}
	replayed := fmt.Sprint(k.acted[key])
	k.acted[key] = true
	if step == "lost after" {
		return nil, syscall.ECONNRESET
	}
	return play(req, status(201, "Replayed: "+replayed))
}

// The server acts, loses the response, responds 409 twice and then sends the first answer
// again. In any order there is one action and one 201.
func TestOneActionAndOneResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for seed := range uint64(soak.Size(1000, 20_000)) {
			r := rand.New(rand.NewPCG(seed, seed))
			steps := []string{"lost after", "busy", "busy", []string{"lost before", "unavailable", "lost after"}[r.IntN(3)]}
			r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
			server := &keeper{steps: steps, acted: map[string]bool{}}
			tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{IdempotencyKey: policy.UUIDKey, RetryBudget: policy.RetryBudget{Enabled: policy.Off}}})
			resp, err := tr.RoundTrip(newRequest(t, http.MethodPost, "http://h.test/charges", strings.NewReader("9")))
			require.NoError(t, err, "seed %d: %v", seed, steps)
			require.Equal(t, 201, resp.StatusCode, "seed %d: %v", seed, steps)
			require.Len(t, server.acted, 1, "seed %d: %v", seed, steps)
			require.Equal(t, "true", resp.Header.Get("Replayed"), "seed %d: %v", seed, steps)
			finish(resp, nil)
		}
	})
}

// A key is added once, and only where there is none. The caller's request stays as it is.
func TestIdempotencyKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		calls := 0
		rule := quick
		rule.MaxAttempts = 3
		rule.IdempotencyKey = func(req *http.Request) string {
			calls++
			if req.Method == http.MethodGet {
				return ""
			}
			return fmt.Sprint("key ", calls)
		}
		for _, row := range []struct {
			name, method string
			header       http.Header
			want         string // the key of every attempt
			calls, sent  int
		}{
			{"none", "POST", http.Header{"A": {"b"}}, "key 1", 1, 3},
			{"another method", "PUT", http.Header{}, "key 1", 1, 3},
			{"empty", "GET", http.Header{}, "", 1, 3},
			{"the caller's", "POST", http.Header{"Idempotency-Key": {"mine"}}, "mine", 0, 3},
			{"the caller's other", "POST", http.Header{"X-Idempotency-Key": {"mine"}}, "", 0, 3},
			{"the caller's spelling", "POST", http.Header{"idempotency-key": {"mine"}}, "", 0, 1},
		} {
			calls = 0
			base := script(status(500))
			req := newRequest(t, row.method, "http://h.test/", nil)
			req.Header = row.header.Clone()
			var heard []*http.Request
			hears := &transport.Trace{
				RequestStart: func(ctx context.Context, req *http.Request) context.Context { heard = append(heard, req); return ctx },
				AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
					heard = append(heard, a.Request)
					return ctx
				},
				AttemptEnd: func(_ context.Context, a transport.AttemptEnd) { heard = append(heard, a.Request) },
				RequestEnd: func(_ context.Context, r transport.RequestEnd) { heard = append(heard, r.Request) },
			}
			resp, err := mustNew(t, transport.Config{Base: base, Rule: rule, Traces: []*transport.Trace{hears}}).RoundTrip(req)
			require.NoError(t, err, row.name)
			assert.Equal(t, row.want, resp.Request.Header.Get("Idempotency-Key"), row.name)
			finish(resp, nil)
			assert.Len(t, heard, 2+2*row.sent, row.name)
			for _, r := range heard {
				assert.Equal(t, row.want, r.Header.Get("Idempotency-Key"), "hooks see the request that is sent: %s", row.name)
				assert.Equal(t, row.want != "" && row.calls > 0, r != req, row.name)
			}
			assert.Equal(t, row.header, req.Header, row.name)
			count(t, row.calls, calls, "IdempotencyKey called", row.name)
			base.sent(t, row.sent, row.name)
			for _, sent := range base.reqs {
				assert.Equal(t, row.want, sent.Header.Get("Idempotency-Key"), row.name)
			}
		}
	})
}

// A 409 to the first attempt is retried only if it names a wait or if the rule knows it, and only for a request
// with a key to a host that honours keys. A 422 is final.
func TestStatusesOfAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		keyed := policy.Rule{Backoff: quick.Backoff, MaxAttempts: 2, IdempotencyKey: policy.UUIDKey}
		known, last := keyed, keyed
		last.MaxAttempts = 1
		known.Classify = func(o classify.Outcome) classify.Class {
			if o.Response != nil && o.Response.StatusCode == 409 {
				return classify.Ambiguous
			}
			return classify.Unknown
		}
		for _, row := range []struct {
			name   string
			rule   policy.Rule
			method string
			code   int
			header string
			sent   int
		}{
			{"409 with a wait", keyed, "POST", 409, "Retry-After: 1", 2},
			{"409 without", keyed, "POST", 409, "A: b", 1},
			{"409 at the last attempt", last, "POST", 409, "Retry-After: 1", 1},
			{"409 that the rule knows", known, "POST", 409, "A: b", 2},
			{"409 without a key", keyed, "PUT", 409, "Retry-After: 1", 1},
			{"409 of another host", policy.Rule{Backoff: quick.Backoff}, "POST", 409, "Retry-After: 1", 1},
			{"422", keyed, "POST", 422, "Retry-After: 1", 1},
			{"422 beside a classifier", known, "POST", 422, "Retry-After: 1", 1},
			{"503", keyed, "POST", 503, "A: b", 2},
		} {
			base := script(status(row.code, row.header), status(201))
			tr := mustNew(t, transport.Config{Base: base, Rule: row.rule})
			start := time.Now()
			finish(tr.RoundTrip(newRequest(t, row.method, "http://h.test/", nil)))
			base.sent(t, row.sent, row.name)
			if row.name == "409 with a wait" {
				assert.GreaterOrEqual(t, time.Since(start), time.Second)
			}
			state := stateOf(t, tr)
			assert.Zero(t, state.ThrottledKeys, "%s: no other request waits", row.name)
		}
	})
}

// A 409 to the retry of a lost attempt says that the server still works on it under the same key,
// if the key is the rule's. So the first response can be had. If the caller made the key, it may
// have been used before, and a rule that knows the status is asked first.
func TestConflictAfterALostAttempt(t *testing.T) {
	lost := faults.ConnReset()
	keyed := policy.Rule{IdempotencyKey: policy.UUIDKey}.Or(quick)
	knows := keyed
	knows.Classify = classify.OnStatus(classify.Final, 409)
	for name, row := range map[string]struct {
		rule   policy.Rule
		method string
		key    string // the caller's
		steps  []answer
		status int
		sent   int
	}{
		"after a lost attempt":      {keyed, "POST", "", []answer{lost, status(409), status(201)}, 201, 3},
		"twice":                     {keyed, "POST", "", []answer{lost, status(409), status(409), status(201)}, 201, 4},
		"after a 500":               {keyed, "POST", "", []answer{status(500), status(409), status(201)}, 201, 3},
		"after a refusal":           {keyed, "POST", "", []answer{faults.Fail(syscall.ECONNREFUSED), status(409), status(201)}, 409, 2},
		"to the first attempt":      {keyed, "POST", "", []answer{status(409), status(201)}, 409, 1},
		"under the caller's key":    {keyed, "POST", "mine", []answer{lost, status(409), status(201)}, 409, 2},
		"without a key":             {keyed, "PUT", "", []answer{lost, status(409), status(201)}, 409, 2},
		"that the rule calls final": {knows, "POST", "", []answer{lost, status(409), status(201)}, 409, 2},
		"another status":            {keyed, "POST", "", []answer{lost, status(422), status(201)}, 422, 2},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := script(row.steps...)
			req := newRequest(t, row.method, "http://h.test/", strings.NewReader("9"))
			if row.key != "" {
				req.Header.Set("Idempotency-Key", row.key)
			}
			resp := mustRoundTrip(t, over(t, transport.Config{Rule: row.rule}, base), req)
			assert.Equal(t, row.status, resp.StatusCode)
			base.sent(t, row.sent)
			finish(resp, nil)
		})
	}
}

// A redirect is another request. Its key is another one.
func TestKeyOfARedirect(t *testing.T) {
	base := script(status(307, "Location: /there"), status(200))
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{IdempotencyKey: policy.UUIDKey}})
	finish((&http.Client{Transport: tr}).Post("http://h.test/", "text/plain", strings.NewReader("x")))
	require.Len(t, base.reqs, 2, "requests sent")
	first, second := base.reqs[0].Header.Get("Idempotency-Key"), base.reqs[1].Header.Get("Idempotency-Key")
	assert.NotEmpty(t, first)
	assert.NotEmpty(t, second)
	assert.NotEqual(t, first, second)
}

// A function of the user's that panics leaves no body of a request open.
func TestPanicClosesTheRequest(t *testing.T) {
	for name, row := range map[string]struct {
		c   transport.Config
		ctx context.Context
	}{
		"IdempotencyKey": {transport.Config{Rule: policy.Rule{IdempotencyKey: func(*http.Request) string { panic("own") }}}, t.Context()},
		"Enabled":        {transport.Config{Logger: slog.New(panics{slog.DiscardHandler})}, t.Context()},
		"Validate":       {transport.Config{}, transport.WithRule(t.Context(), policy.Rule{Backoff: panics{}})},
		"Idempotent": {transport.Config{Rule: policy.Rule{AttemptTimeout: time.Second, Idempotent: func(*http.Request) bool { panic("own") }}},
			transport.WithoutRetries(t.Context())},
		"the base": {transport.Config{Rule: quick}, t.Context()},
	} {
		body := oneShot("text")
		tr := over(t, row.c, rt(func(*http.Request) (*http.Response, error) { panic("own") }))
		req := newRequest(t, http.MethodPut, "http://h.test/", body).WithContext(row.ctx)
		assert.PanicsWithValue(t, "own", func() { _, _ = tr.RoundTrip(req) }, name)
		count(t, 1, body.closed(), name)
	}
}

// panics is a handler of logs and a back-off.
type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool { panic("own") }
func (panics) Validate() error                          { panic("own") }
func (panics) Delay(int, time.Duration) time.Duration   { return 0 }
