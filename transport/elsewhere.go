// Whether a request may go to another server.

package transport

import (
	"net/http"
	"slices"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// MayGoElsewhere reports whether a request that failed at one server may be sent to another
// server that serves the same. resp and err are the outcome that by returned for req. If by is
// a *Transport, its rule says which responses are failures and which requests are idempotent,
// and each of its attempts counts. Otherwise classify.Default and classify.Idempotent say so.
//
// It returns true if the outcome is an error or a failure of the server, and in one of these
// cases:
//
//   - Nobody can have acted on the request: each attempt was refused, or never left.
//   - The request may be acted on twice, by [WithIdempotent] or because it is idempotent.
//
// A 4xx is about the request or its client, so it is no failure of the server. After [WithoutRetries] a
// request may go elsewhere only if by did not send it at all. It may go nowhere if its context
// has ended or its Cancel is closed, or if it is no HTTP request. A request counts as not sent
// if err is an [Error] without Attempts.
//
// An Idempotency-Key makes a request idempotent only for servers that know the key. So if
// keysShared is false, it does not count. A request that only its key makes idempotent then
// stays also if it was refused, because its caller may have sent it before. keysShared says that
// both servers know the keys that either has seen.
//
// Whether the body of the request can be made again, and whether the other server may see its
// credentials, is for the caller to find out. MayGoElsewhere may read the beginning of the body
// of a response, as the Classify of a rule does, and the body can still be read whole.
func MayGoElsewhere(by http.RoundTripper, req *http.Request, resp *http.Response, err error, keysShared bool) bool {
	ctx := req.Context()
	c := call{Request: exchange.Request{Req: req, Ctx: ctx}, options: optionsOf(ctx)}
	c.Rule = &rules.Resolved{Policy: policy.Rule{Idempotent: classify.Idempotent}, Classify: classify.Default}
	if t, ok := by.(*Transport); ok && t != nil && req.URL != nil {
		if set := t.registry.Rules.Load(); set != nil {
			if c.Rule, _ = set.ForHost(host.KeyOf(req.URL)); c.findRule() != nil {
				return false // it has a rule with faults, so it was not sent
			}
		}
	}
	if ctx.Err() != nil || attempt.IsCanceled(req) {
		return false
	}
	sent, acted, failed := c.whatHappened(resp, err)
	if !failed || sent && c.options != nil && c.options.sending == sendOnce {
		return false
	}
	bare := rules.Keyless(req)
	if !keysShared {
		c.Req = bare
	}
	return c.isIdempotent() || !acted && (keysShared || bare == req)
}

// whatHappened reports whether the request of an outcome was sent, whether a server may have
// acted on it, and whether the server has failed.
func (c *call) whatHappened(resp *http.Response, err error) (sent, acted, failed bool) {
	if err == nil {
		if resp == nil || resp.StatusCode/100 == 4 {
			return true, true, false
		}
		if h := HistoryOf(resp, nil); len(h.Attempts) > 0 {
			return true, mayHaveActed(h.Attempts), h.Reason != ReasonFinal
		}
		if !c.isSingle() {
			return true, true, false // it is final, because others have a history
		}
		v := c.Rule.Classify(c.OutcomeOf(resp, nil))
		return true, v != classify.Refused || c.isSpent(), retryable(v)
	}
	e := errorBelow(err)
	if e != nil && e.Is(ErrNotSent) { // not one of a Transport below
		return false, false, true
	}
	o := c.OutcomeOf(nil, err)
	v := c.Rule.Classify(o)
	// An error that is final for one server, such as a wrong certificate, says nothing of
	// another. Only the rule's own word that it is final counts, and a request that is not HTTP.
	failed = retryable(v) || !retryable(classify.Default(o)) && classify.ErrorTypeOf(err) != classify.ErrorProtocol
	if e != nil {
		return true, mayHaveActed(e.Attempts), failed
	}
	return true, isActed(v, err), failed
}

// mayHaveActed reports whether a server may have acted on any of the attempts.
func mayHaveActed(attempts []Attempt) bool {
	return slices.ContainsFunc(attempts, func(a Attempt) bool { return isActed(a.Class, a.Err) })
}

// isActed reports whether a server may have acted on an attempt. It looks at each attempt of a
// Transport below.
func isActed(v classify.Class, err error) bool {
	if below := errorBelow(err); below != nil {
		return mayHaveActed(below.Attempts)
	}
	if v != classify.Final {
		return v != classify.Refused
	}
	kind := classify.ErrorTypeOf(err) // of these two it says that the name or the address is wrong
	return kind != classify.ErrorDNS && kind != classify.ErrorDial
}
