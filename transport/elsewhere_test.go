package transport_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var refusedDial = faults.Fail(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})

// What happened at one server decides, with the method, the key and the context of the request.
// A plain transport and a Transport of ours with one attempt say the same.
func TestMayGoElsewhere(t *testing.T) {
	type ctx = func(context.Context) context.Context
	const get, put, post = http.MethodGet, http.MethodPut, http.MethodPost
	for _, row := range []struct {
		method string
		what   answer
		key    string // the field of an Idempotency-Key
		ctx    ctx
		want   bool // if the servers do not share their keys
		shared bool // if they do
	}{
		{method: get, what: status(200)},
		{method: get, what: status(302, "Location: /")},
		{method: get, what: status(404)},
		{method: get, what: status(429)},
		{method: get, what: status(421)},
		{method: get, what: status(501)},
		{method: get, what: status(500), want: true, shared: true},
		{method: get, what: status(503), want: true, shared: true},
		{method: get, what: faults.ConnReset(), want: true, shared: true},
		{method: get, what: faults.ResponseTimeout(), want: true, shared: true},
		{method: get, what: refusedDial, want: true, shared: true},
		{method: get, what: faults.Fail(&net.DNSError{Err: "no such host", IsNotFound: true}), want: true, shared: true},
		{method: get, what: faults.Fail(errors.New("x509: unknown authority")), want: true, shared: true},
		{method: get, what: faults.Fail(errors.New(`net/http: invalid header field name "a b"`))},
		{method: get, what: status(503), ctx: transport.WithoutRetries},
		{method: get, what: refusedDial, ctx: transport.WithoutRetries},
		{method: get, what: status(503), ctx: canceled},
		{method: get, what: faults.ConnReset(), ctx: canceled},

		{method: post, what: status(503)},
		{method: post, what: faults.ConnReset()},
		{method: post, what: faults.ResponseTimeout()},
		{method: post, what: faults.Fail(errors.New("boom"))},
		{method: post, what: refusedDial, want: true, shared: true},
		{method: post, what: faults.Fail(&net.DNSError{Err: "no such host", IsNotFound: true}), want: true, shared: true},
		{method: post, what: faults.Fail(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "missing port"}}), want: true, shared: true},
		{method: post, what: status(503), ctx: transport.WithIdempotent, want: true, shared: true},
		{method: post, what: refusedDial, ctx: transport.WithoutRetries},

		{method: post, what: status(503), key: "Idempotency-Key", shared: true},
		{method: post, what: refusedDial, key: "Idempotency-Key", shared: true},
		{method: post, what: refusedDial, key: "idempotency-key", shared: true},
		{method: post, what: status(503), key: "X-Idempotency-Key", shared: true},
		{method: post, what: status(503), key: "Idempotency-Key", ctx: transport.WithIdempotent, want: true, shared: true},
		{method: put, what: status(503), key: "Idempotency-Key", want: true, shared: true},
	} {
		bubble(t, func(t *testing.T) {
			for name, by := range map[string]http.RoundTripper{
				"plain": script(row.what),
				"ours":  mustNew(t, transport.Config{Base: script(row.what), Rule: policy.Rule{MaxAttempts: 1}}),
				"six":   mustNew(t, transport.Config{Base: script(row.what)}),
			} {
				req := newRequest(t, row.method, "http://a.test/", nil)
				if row.key != "" {
					req.Header[row.key] = []string{"1"}
				}
				if row.ctx != nil {
					req = req.WithContext(row.ctx(req.Context()))
				}
				resp, err := by.RoundTrip(req)
				assert.Equal(t, row.want, transport.MayGoElsewhere(by, req, resp, err, false), "%s: %+v", name, row)
				assert.Equal(t, row.shared, transport.MayGoElsewhere(by, req, resp, err, true), "%s, shared: %+v", name, row)
				_ = closing(resp, err)
			}
		})
	}
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A request of which one attempt may have been acted upon stays, even if the last was refused.
// So it is with the attempts of a Transport below.
func TestMayGoElsewhereAfterSeveralAttempts(t *testing.T) {
	refuses := classify.OnStatus(classify.Refused, 503)
	withKey := policy.Rule{IdempotencyKey: policy.UUIDKey, Backoff: backoff.Constant(0), MaxAttempts: 2}
	for name, row := range map[string]struct {
		rule    policy.Rule
		answers []answer
		want    bool
	}{
		"all refused":              {policy.Rule{MaxAttempts: 3}, []answer{refusedDial, refusedDial}, true},
		"all refused, by the rule": {policy.Rule{MaxAttempts: 3, Classify: refuses}, []answer{refusedDial, status(503)}, true},
		"first lost":               {withKey, []answer{faults.ConnReset(), refusedDial}, false},
		"first lost, then 503":     {withKey, []answer{faults.ConnReset(), status(503)}, false},
		"first lost, then unsent":  {withKey, []answer{faults.ConnReset(), faults.Fail(&transport.Error{History: transport.History{Reason: transport.ReasonThrottled}})}, false},
		"last lost":                {policy.Rule{MaxAttempts: 3}, []answer{refusedDial, faults.ConnReset()}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			ours := func() *transport.Transport {
				return mustNew(t, transport.Config{Base: script(row.answers...), Rule: row.rule})
			}
			outer := mustNew(t, transport.Config{Base: ours(), Rule: policy.Rule{MaxAttempts: 2}})
			for _, by := range []http.RoundTripper{ours(), outer, rt(ours().RoundTrip)} {
				req := newRequest(t, http.MethodPost, "http://a.test/", nil)
				resp, err := by.RoundTrip(req)
				assert.Equal(t, row.want, transport.MayGoElsewhere(by, req, resp, err, true), "%T", by)
				_ = closing(resp, err)
			}
		})
	}
}

// An attempt may be all attempts of a Transport below, of which the last was refused.
func TestMayGoElsewhereAfterAttemptsBelow(t *testing.T) {
	for name, row := range map[string]struct {
		below []answer
		want  bool
	}{
		"lost":    {[]answer{faults.ConnReset(), refusedDial}, false},
		"refused": {[]answer{refusedDial, refusedDial}, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			below := mustNew(t, transport.Config{Base: script(row.below...), Rule: policy.Rule{IdempotencyKey: policy.UUIDKey, MaxAttempts: 2}})
			by := mustNew(t, transport.Config{Base: script(refusedDial, below)})
			req := newRequest(t, http.MethodPost, "http://a.test/", nil)
			resp, err := by.RoundTrip(req)
			assert.Error(t, err)
			assert.Equal(t, row.want, transport.MayGoElsewhere(by, req, resp, err, false))
		})
	}
}

// The rule of a Transport says which outcomes are failures, and which requests are idempotent.
func TestMayGoElsewhereByTheRule(t *testing.T) {
	never := func(*http.Request) bool { return false }
	always := func(*http.Request) bool { return true }
	final := classify.First(classify.OnStatus(classify.Final, 503), classify.OnError(classify.Final, classify.ErrorReset))
	for name, row := range map[string]struct {
		rule, own policy.Rule // of the host, and of the request
		method    string      // GET if empty
		key       string
		proof     string
		what      answer
		want      bool
	}{
		"not idempotent, reset":        {rule: policy.Rule{Idempotent: never}, what: faults.ConnReset()},
		"not idempotent, 503":          {rule: policy.Rule{Idempotent: never}, what: status(503)},
		"not idempotent, refused":      {rule: policy.Rule{Idempotent: never}, what: refusedDial, want: true},
		"not idempotent, for once":     {own: policy.Rule{Idempotent: never}, what: faults.ConnReset()},
		"idempotent":                   {rule: policy.Rule{Idempotent: always}, method: http.MethodPost, what: faults.ConnReset(), want: true},
		"idempotent without the key":   {rule: policy.Rule{Idempotent: always}, method: http.MethodPost, key: "1", what: refusedDial, want: true},
		"final 503":                    {rule: policy.Rule{Classify: final}, what: status(503)},
		"final reset":                  {rule: policy.Rule{Classify: final}, what: faults.ConnReset()},
		"a failure with 200":           {rule: policy.Rule{Classify: classify.OnStatus(classify.Ambiguous, 200)}, what: status(200), want: true},
		"a refusal with 200":           {rule: policy.Rule{Classify: classify.OnStatus(classify.Refused, 200)}, method: http.MethodPost, what: status(200), want: true},
		"a spent proof":                {rule: policy.Rule{Classify: classify.Refusals}, proof: "1", what: status(503, "Retry-After: 0")},
		"a proof that never left":      {proof: "1", what: refusedDial, want: true},
		"a proof that counts again":    {rule: policy.Rule{Idempotent: always}, proof: "1", what: status(503), want: true},
		"a 429 is about the client":    {rule: policy.Rule{Classify: classify.Refusals}, what: status(429)},
		"a key of the rule is unknown": {rule: policy.Rule{IdempotencyKey: policy.UUIDKey}, method: http.MethodPost, what: status(503)},
		"a rule with a fault":          {own: policy.Rule{MaxAttempts: 5000}, what: status(503)},
	} {
		for _, attempts := range []int{1, 2} {
			inBubble(t, name, func(t *testing.T) {
				row.rule.MaxAttempts = attempts
				by := mustNew(t, transport.Config{Base: script(row.what), Hosts: map[string]policy.Rule{"a.test": row.rule}})
				req := newRequest(t, cmp.Or(row.method, http.MethodGet), "http://a.test/", nil)
				if row.key != "" {
					req.Header.Set("Idempotency-Key", row.key)
				}
				if row.proof != "" {
					req.Header.Set("DPoP", row.proof)
				}
				if row.own.Idempotent != nil || row.own.MaxAttempts > 0 {
					req = req.WithContext(transport.WithRule(req.Context(), row.own))
				}
				resp, err := by.RoundTrip(req)
				assert.Equal(t, row.want, transport.MayGoElsewhere(by, req, resp, err, false), "%d attempts", attempts)
				_ = closing(resp, err)
			})
		}
	}
}

// A request that its limits refused was not sent, so it may go elsewhere whatever it is, also if
// it is to be sent only once. Whoever gives up a request is not its caller: the time that a
// layer above allowed is over, and the caller still waits.
func TestMayGoElsewhereUnsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		by := mustNew(t, transport.Config{Rule: sharing, Base: script(status(503, "Retry-After: 600"))})
		soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = closing(by.RoundTrip(newRequest(t, http.MethodGet, "http://a.test/", nil))) // begins a hold
		for _, ctx := range []context.Context{soon, transport.WithoutRetries(soon)} {
			req := newRequest(t, http.MethodPost, "http://a.test/", nil).WithContext(ctx)
			resp, err := by.RoundTrip(req)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, transport.MayGoElsewhere(by, req, resp, err, false))
		}
	})
	for _, row := range []struct {
		method string
		base   answer
		want   bool
	}{
		{http.MethodGet, faults.Hang(), true},
		{http.MethodPost, faults.Hang(), false},
		{http.MethodPost, refusedDial, true},
	} {
		bubble(t, func(t *testing.T) {
			by := mustNew(t, transport.Config{Base: script(row.base)})
			req := newRequest(t, row.method, "http://a.test/", nil)
			ctx, cancel := context.WithTimeout(req.Context(), 5*time.Second)
			defer cancel()
			resp, err := by.RoundTrip(req.WithContext(ctx))
			assert.Error(t, err)
			assert.Equal(t, row.want, transport.MayGoElsewhere(by, req, resp, err, false), "%+v", row)
		})
	}
}

// The classifier of a Transport that retries has said that its response is final, so it is not asked again.
func TestMayGoElsewhereAsksOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		by := mustNew(t, transport.Config{Base: script(status(200)), Rule: policy.Rule{Classify: func(classify.Outcome) classify.Class {
			asked++
			return classify.Unknown
		}}})
		req := newRequest(t, http.MethodGet, "http://a.test/", nil)
		resp := mustRoundTrip(t, by, req)
		_ = resp.Body.Close()
		assert.False(t, transport.MayGoElsewhere(by, req, resp, nil, false))
		count(t, 1, asked, "Classify called")
	})
}

// The body of a response can still be read whole.
func TestMayGoElsewhereLeavesTheBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rule := policy.Rule{MaxAttempts: 1, Classify: classify.OnBody(classify.Refused, "body of", 503)}
		by := mustNew(t, transport.Config{Base: script(status(503)), Rule: rule})
		req := newRequest(t, http.MethodPost, "http://a.test/", nil)
		resp := mustRoundTrip(t, by, req)
		assert.True(t, transport.MayGoElsewhere(by, req, resp, nil, false))
		text, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.Equal(t, "body of Service Unavailable", string(text))
	})
}
