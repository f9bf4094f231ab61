// Checks during a call and at its return, and that of hedges.

package simulate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// checkArrival judges an attempt when it arrives at the server; the lock is held.
func (w *world) checkArrival(s *attempt) {
	c := s.call
	if u, own := s.req.URL, c.req.URL; u.String() != own.String() || s.req.Host != c.req.Host {
		w.complain(Request, c, "attempt %d asks for %s of %q, the caller wants %s", s.number, u, s.req.Host, own)
	}
	if s.number == 1 {
		return
	}
	if s.late {
		w.complain(Prompt, c, "attempt %d after the end of the context at %v", s.number, c.ends)
	}
	if c.plan.sending == 2 {
		w.complain(TooOften, c, "attempt %d of a request that is to be sent once", s.number)
	}
	for _, earlier := range c.attempts[:s.number-1] {
		answered := slices.ContainsFunc(c.attempts[:s.number-1], func(other *attempt) bool { // the hedge was told to wait, and not the attempt that won
			return other.succeeded() && other.ended > earlier.ended && other.ended < s.began
		})
		if wait := earlier.mustWait(); s.began < earlier.ended+wait && wait > 0 && !s.besides(earlier) && !answered {
			w.complain(Early, c, "attempt %d came %v after a response that asked for %v", s.number, s.began-earlier.ended, wait)
		}
	}
	w.checkHedge(s)
	if c.returned < never {
		w.checkReconnect(s)
		return
	}
	if c.actsAnew() && slices.ContainsFunc(c.attempts[:s.number-1], func(earlier *attempt) bool { return earlier.succeeded() && earlier.ended < s.began }) {
		w.complain(TooOften, c, "attempt %d of a %s after its response", s.number, c.plan.method)
	}
	if most := max(1, c.rule.MaxAttempts); s.number > most {
		o := TooOften
		if w.plan.nested {
			o = Nested
		}
		if o == TooOften || c.plan.shape == noBody && c.idempotent() {
			w.complain(o, c, "attempt %d; the rule allows %d", s.number, most)
		}
	}
	// In a pair, the outer Transport may start a retry in time that then waits
	// in the inner Transport.
	if limit := c.rule.MaxElapsedTime; limit > 0 && !w.plan.nested && !s.hedge && s.began-c.attempts[0].began > limit+1 { // the timer may wait until the time is over
		w.complain(Futile, c, "a retry %v after the first attempt; the rule allows %v", s.began-c.attempts[0].began, limit)
	}
}

// besides reports whether an attempt began in the instant in which the other
// attempt got its response. It cannot have known of that response.
func (s *attempt) besides(other *attempt) bool {
	return s.began == other.ended && s.number == 2
}

// mustWait returns for how long after the attempt's response no other attempt
// may follow.
func (s *attempt) mustWait() time.Duration {
	if s.ended == never || s.dead { // no response, or nobody got it
		return 0
	}
	return s.told
}

// checkReconnect limits the number of reconnects without progress. The number
// of reconnects with progress is not limited.
func (w *world) checkReconnect(s *attempt) {
	c := s.call
	again := s.rng == c.plan.rng // the whole, which is compared with what the reader has
	if c.resp.Uncompressed && !again {
		w.complain(Spliced, c, "the rest of a body was asked for that was decompressed on the way")
	}
	if again && !c.idempotent() {
		w.complain(TooOften, c, "the response to a %s was cut, and it was sent again", c.plan.method)
	}
	if most := max(1, c.rule.MaxAttempts); again && !w.plan.nested && s.number > most {
		w.complain(TooOften, c, "attempt %d for the whole of a cut body, the rule allows %d", s.number, most)
	}
	offset, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(strings.Split(s.rng+"-", "-")[0], "bytes="), "-"), 10, 64)
	if err != nil {
		return
	}
	if offset-c.progress >= 64<<10 {
		c.progress, c.dry = offset, 0
	}
	c.dry++
	if most := 2*max(c.rule.MaxAttempts, 1) - 1; c.dry > most {
		w.complain(TooOften, c, "%d reconnects without 64 KiB of progress; the rule allows %d attempts", c.dry, c.rule.MaxAttempts)
	}
}

// idempotent reports whether the request may be sent twice, by RFC 9110 §9.2.2
// or because the caller says so.
func (c *call) idempotent() bool {
	switch c.plan.method {
	case http.MethodPost, http.MethodPatch:
		return c.plan.sending == 1 || c.plan.key
	}
	return true
}

// written returns the rule without the defaults.
func (c *call) written() policy.Rule { return c.world.plan.rawRuleOf(c.plan.host, c.plan.at) }

// actsAnew reports whether a second request may have another response than the first, and nobody
// vouches for it. Then a response is the caller's, whether its body is cut or not.
func (c *call) actsAnew() bool {
	return c.idempotent() && c.plan.method != "" && c.plan.method != http.MethodGet && c.plan.method != http.MethodHead &&
		!c.plan.key && c.plan.sending != 1 && c.written().Idempotent == nil
}

// succeeded reports whether the attempt has a response that is a success; the lock is held.
func (s *attempt) succeeded() bool {
	return s.script.outcome == responds && !s.dead && s.ended < never && s.status/100 == 2
}

// checkReturn judges the result of RoundTrip and its time.
func (c *call) checkReturn() {
	c.checkRequest()
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.checkPrompt(c.returned, "RoundTrip")
	switch {
	case c.panicked != nil:
	case c.exited:
		if !c.anyAttempt(func(s *attempt) bool { return s.script.outcome == exits }) {
			c.complain(Panics, "the goroutine ended")
		}
	case (c.resp == nil) == (c.err == nil):
		c.complain(Outcome, "a response %v and an error %v", c.resp != nil, c.err)
	case c.resp != nil:
		c.checkResponse()
	default:
		c.checkSecret(c.err.Error())
		c.checkError()
		c.checkFutile()
	}
}

func (c *call) complain(o Oracle, format string, args ...any) {
	c.world.complain(o, c, format, args...)
}

func (c *call) anyAttempt(f func(*attempt) bool) bool {
	for _, s := range c.attempts {
		if f(s) {
			return true
		}
	}
	return false
}

// checkRequest compares the request with its copy.
func (c *call) checkRequest() {
	now, old := c.req, c.before
	same := now.Method == old.Method && reflect.DeepEqual(now.URL, old.URL) && reflect.DeepEqual(now.Header, old.Header) &&
		now.Host == old.Host && now.ContentLength == old.ContentLength && reflect.DeepEqual(now.TransferEncoding, old.TransferEncoding) &&
		now.Close == old.Close && now.Body == old.Body && (now.GetBody == nil) == (old.GetBody == nil) &&
		len(now.Trailer) == len(old.Trailer) && now.Context() == old.Context()
	if !same {
		c.violate(Request, "the caller's request was changed")
	}
}

// checkPrompt checks that an operation that ends after the caller's patience
// waited for nothing but the base transport; the lock is held, here and in all functions below.
func (c *call) checkPrompt(at time.Duration, what string) {
	if at <= c.ends {
		return
	}
	allowed := c.ends
	for _, s := range c.attempts {
		if s.began <= c.ends && s.ended < never {
			allowed = max(allowed, s.ended)
		}
		if s.body != nil && what != "RoundTrip" {
			allowed = max(allowed, s.body.lastRead())
		}
	}
	if at > allowed {
		c.complain(Prompt, "%s returned %v after the end of the context", what, at-c.ends)
	}
}

// lastRead returns when the last Read of the base's body returned.
func (b *respBody) lastRead() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch sc := b.attempt.script; {
	case b.readEnd != never:
		return b.readEnd
	case sc.deaf > 0 || sc.blocks > 0: // a Close from another goroutine may end the caller's Read earlier
		return never
	}
	return 0
}

// isRead reports whether a Read of the response was in progress when the caller's patience ended.
// Before RoundTrip returns, only a classifier reads.
func (s *attempt) isRead() bool {
	b := s.body
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readEnd >= s.call.ends
}

// checkResponse checks that the response is that of the last attempt,
// unchanged.
func (c *call) checkResponse() {
	id, err := strconv.Atoi(c.resp.Header.Get("X-Sim-Attempt"))
	if err != nil || id >= len(c.world.attempts) || c.world.attempts[id].call != c {
		c.complain(Outcome, "a response that the server did not send for this request")
		return
	}
	s := c.world.attempts[id]
	c.served = s
	switch {
	case c.resp.StatusCode != s.status:
		c.complain(Outcome, "status %d instead of %d", c.resp.StatusCode, s.status)
	case c.resp.Body == nil, c.resp.Request == nil:
		c.complain(Outcome, "a response without a body or a request")
	case c.anyAttempt(func(later *attempt) bool { return later.began > s.ended && !later.besides(s) }):
		c.complain(Outcome, "the response of attempt %d of %d", s.number, len(c.attempts))
	}
	outran := func(first *attempt) bool { // the response of a hedge waits for a base that ignores the context of the first
		return first != s && first.script.deaf > 0 && first.began < s.ended && first.ended == c.returned
	}
	if s.succeeded() && c.written().Classify == nil && c.returned > s.ended && !c.anyAttempt(outran) { // a classifier may read the body
		c.complain(HeldBack, "the response came %v after its headers", c.returned-s.ended)
	}
	_, writes := c.resp.Body.(io.Writer)
	if s.status == http.StatusSwitchingProtocols && !writes {
		c.complain(Writer, "the body of a 101 is no io.Writer: %T", c.resp.Body)
	}
}

// mayStall reports whether a body may be cut because it stalls. That includes a
// body that a classifier reads.
func (c *call) mayStall() bool { return c.rule.StallTimeout > 0 }

// checkError checks that the error is that of the last attempt, or says why
// there was no attempt.
func (c *call) checkError() {
	var own *transport.Error
	isOwn := errors.As(c.err, &own)
	for isOwn && (own.Reason == transport.ReasonNested || own.Reason == transport.ReasonFinal) && errors.As(own.Err, &own) {
		// The Transport below says why.
	}
	switch last := c.lastFault(); {
	case last != nil && errors.Is(c.err, last):
		due := c.plan.fault == sound && c.written().Classify == nil && classify.ErrorTypeOf(last) == classify.ErrorReset
		switch bare := c.err == error(last); {
		case len(c.attempts) != 1, c.gone():
		case bare && due:
			c.complain(Outcome, "the error of a single attempt has no reason: %v", c.err)
		case !bare && !(isOwn && (own.GaveUp() || ofRequest(own.Reason))):
			c.complain(Outcome, "the error of a single attempt is wrapped: %v", c.err)
		}
		if timeout(c.err) != timeout(last) && !c.gone() {
			c.complain(Outcome, "Timeout() is %v and was %v: %v", timeout(c.err), timeout(last), c.err)
		}
	case c.anyAttempt(func(s *attempt) bool { return s.script.outcome == says0 }): // an error of the Transport itself
	case errors.Is(c.err, policy.ErrAttemptTimeout) && c.anyAttempt((*attempt).isRead): // it heard only now how another attempt had ended
	case c.gone() && !(isOwn && refusedByLimit(own) && c.returned == c.ends): // both came in the same instant
		c.checkContextError()
	case (c.rule.AttemptTimeout > 0 || c.retried()) && errors.Is(c.err, policy.ErrAttemptTimeout): // an attempt after the first always has a timeout
	case c.mayStall() && errors.Is(c.err, policy.ErrStallTimeout):
	case c.plan.shape == noGetBody && isOwn && own.Reason == transport.ReasonNotReplayable && errors.Is(c.err, errBody):
	case isOwn && refusedByLimit(own):
	default:
		c.complain(Outcome, "an error from nowhere: %v", c.err)
	}
}

// retried reports whether there was an attempt after the first. That of a Transport around another may end before the other sends it.
func (c *call) retried() bool {
	return len(c.attempts) > 1 || c.world.plan.nested && len(c.attempts) > 0
}

// ofRequest reports whether a retry was due that the request or its rule does not allow.
func ofRequest(r transport.Reason) bool {
	return r == transport.ReasonNotIdempotent || r == transport.ReasonNotReplayable || r == transport.ReasonRetriesOff
}

// refusedByLimit reports whether a limit refused the next attempt.
func refusedByLimit(e *transport.Error) bool {
	switch e.Reason {
	case transport.ReasonDeadline, transport.ReasonMaxElapsedTime, transport.ReasonThrottled, transport.ReasonQuota, transport.ReasonRateLimit,
		transport.ReasonConcurrency, transport.ReasonCircuitOpen, transport.ReasonRetryBudget:
		return true
	}
	return false
}

// gone reports whether the caller's patience has ended.
func (c *call) gone() bool { return c.ends <= c.world.now() }

// checkContextError checks that a wait that the context ends returns the
// context's error and cause.
func (c *call) checkContextError() {
	ctx := c.req.Context()
	if c.plan.oldStyle && (ctx.Err() == nil || errors.Is(c.err, context.Canceled) || strings.Contains(c.err.Error(), "net/http: request canceled")) {
		return // the channel was closed first
	}
	if !errors.Is(c.err, ctx.Err()) && !errors.Is(c.err, context.Cause(ctx)) {
		c.complain(Outcome, "after the end of the context the error is %v", c.err)
	}
	inFlight := c.anyAttempt(func(s *attempt) bool { return s.ended >= c.ends })
	if !inFlight && (!errors.Is(c.err, ctx.Err()) || !errors.Is(c.err, context.Cause(ctx))) {
		c.complain(Outcome, "a wait that the context ended gives %v", c.err)
	}
}

// lastFault returns the error of the last attempt that got no response before
// another attempt began.
func (c *call) lastFault() *fault {
	for i := len(c.attempts) - 1; i >= 0; i-- {
		s := c.attempts[i]
		if f, ok := s.err.(*fault); ok && errors.Is(c.err, f) && !c.anyAttempt(func(later *attempt) bool { return later.began > s.ended }) {
			return f
		}
	}
	return nil
}

// hasCompany reports whether another call to the same host was under way since a time.
func (c *call) hasCompany(since time.Duration) bool {
	return slices.ContainsFunc(c.world.calls, func(other *call) bool {
		return other != c && other.plan.host == c.plan.host && other.plan.at < c.returned && other.returned > since
	})
}

func timeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// checkFutile checks that no request sleeps up to a known deadline, if only the
// sleep stands between the last response and the next attempt.
func (c *call) checkFutile() {
	if c.plan.deadline == 0 || c.returned != c.plan.at+c.plan.deadline || len(c.attempts) == 0 {
		return
	}
	rule, h := c.rule, c.world.plan.hosts[c.plan.host]
	if f := c.world.plan.fleet; f != nil && !f.members[c.plan.member].awake(c.plan.at, c.returned) {
		return // the process stood still when the next attempt was due
	}
	if c.plan.shape > inMemory || c.world.plan.nested {
		return
	}
	if gated(rule) || rule.RateLimit.PerSecond > 0 || rule.QuotaPacing == policy.On {
		return
	}
	if c.written().Classify != nil && c.anyAttempt(func(s *attempt) bool { return s.status >= http.StatusBadRequest }) {
		return // the classifier may wait for the body, while a hedge fails beside it
	}
	for _, s := range c.world.attempts {
		if s.host == h && s.told > 0 && rule.ShareRetryAfter == policy.On && (s.call != c || c.hasCompany(s.ended)) {
			return // there may be a hold, or a ramp after it, in which the requests that came before go first
		}
	}
	if !c.anyAttempt(func(s *attempt) bool { return s.ended >= c.returned }) {
		c.complain(Futile, "a sleep up to the deadline")
	}
}

// checkSecret looks for secrets in a text.
func (c *call) checkSecret(text string) {
	if strings.Contains(text, c.world.secret) {
		c.complain(Secret, "in the error: %s", text)
	}
}

// take compares the bytes that the caller got with the bytes of the server.
func (c *call) take(p []byte) {
	s := c.served
	if s == nil || len(p) == 0 {
		c.read += int64(len(p))
		return
	}
	at := s.page.first + c.read
	if i := s.page.text.differs(p, at); i >= 0 {
		if !c.follow(p) {
			c.violate(Spliced, "byte %d is another one's", i)
		}
		s = c.served
	}
	if at+int64(len(p)) > s.page.until {
		c.violate(Spliced, "bytes up to %d of %d", at+int64(len(p)), s.page.until)
	}
	c.read += int64(len(p))
}

// follow looks for a later response from which the bytes come that the reader got after a cut.
// It was fetched whole and compared, so it has all that the reader had before.
func (c *call) follow(p []byte) bool {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	page := c.served.page
	for _, s := range c.attempts {
		if s.began < c.returned || s.body == nil || s.page.first != page.first {
			continue
		}
		had := make([]byte, c.read)
		page.text.fill(had, page.first)
		if s.page.text.differs(had, page.first) < 0 && s.page.text.differs(p, page.first+c.read) < 0 {
			c.replaced, c.served = append(c.replaced, c.served), s
			return true
		}
	}
	return false
}

// explains reports whether the error of a response's body comes from this
// attempt. It may be the attempt's own error, or the Transport's error for an
// invalid Read.
func (s *attempt) explains(err error) bool {
	var failed error // of the body's last Read
	if s.body != nil {
		failed = s.body.failure()
	}
	return s.err != nil && errors.Is(err, s.err) || failed != nil && errors.Is(err, failed) || s.script.end == overcounts
}

// readEnded judges the end of a response's body. A nil error means a proper
// end.
func (c *call) readEnded(err error) error {
	s := c.served
	if s == nil || s.body == nil {
		return err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if c.reading < c.ends {
		c.checkPrompt(c.world.now(), "a Read of the body")
	}
	if err == nil {
		if got := s.page.first + c.read; got != s.page.until {
			c.complain(Spliced, "a proper end at %d of %d", got, s.page.until)
		}
		if want := c.resp.ContentLength; want >= 0 && c.read != want {
			c.complain(Spliced, "a proper end after %d bytes of %d", c.read, want)
		}
		return nil
	}
	c.checkSecret(err.Error())
	known := c.anyAttempt(func(s *attempt) bool { return s.explains(err) })
	if known || c.closed || c.gone() || errors.Is(err, policy.ErrStallTimeout) {
		return err
	}
	c.complain(Outcome, "the body ends with an error from nowhere: %v", err)
	return err
}

// checkHedge judges an attempt that arrives while another of its call is under way; the lock is held.
func (w *world) checkHedge(s *attempt) {
	c := s.call
	beside := false
	for _, other := range c.attempts[:s.number-1] {
		beside = beside || other.ended == never && other.req.Context().Err() == nil
	}
	if !beside || w.plan.nested {
		return
	}
	switch {
	case s.number != 2 && c.returned == never: // a request for the rest of a body has hedges of its own
		w.complain(Beside, c, "attempt %d began beside another; a hedge is the second attempt", s.number)
	case !hedges(c.rule) && !hedges(w.plan.ruleOf(s.host.id, c.plan.at)):
		w.complain(Beside, c, "a hedge, and no rule has hedges")
	case c.plan.sending == 2, c.plan.upgrade, c.plan.shape > inMemory:
		w.complain(Beside, c, "a hedge of a request that cannot be sent twice at once")
	case c.plan.method != "" && c.plan.method != http.MethodGet && c.plan.method != http.MethodHead && c.plan.sending != 1, !c.idempotent():
		w.complain(Beside, c, "a hedge of a %s that its caller has not allowed", c.plan.method)
	}
}

// hedges reports whether a rule has hedges. A Percentile is drawn only with an After.
func hedges(r policy.Rule) bool { return r.Hedge.Delay > 0 }
