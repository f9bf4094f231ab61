// A call, its attempts, and their common state.

package transport

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/auth"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// A call is a request with its host, its rule, and the options of its caller. RoundTrip fills it in. Once attempts go,
// packages exchange and limit note their findings in Request, and the loop drops an Expect after a 417. Nobody else writes
// it. So a hedge, which goes beside the first attempt, has a call of its own.
type call struct {
	exchange.Request
	t       *Transport
	base    http.RoundTripper
	options *options        // nil: none
	spanned context.Context // that RequestStart returned; nil: no hook
	traces  []Trace         // that observe the call
	keyed   bool            // the rule made the request's Idempotency-Key
}

// A retrier is the common state of a call's attempts. The goroutine of the request owns it, and nobody else reads or
// writes it. There is one exception: while that goroutine is in the base transport with a first attempt, it lends the
// retrier to the goroutine of a hedge (see race).
type retrier struct {
	call
	series
	schedule
	report

	last     *try            // the attempt at hand, which owns its permit
	room     try             // for it, if it is none of a race
	next     admission       // of the next attempt, until that has it
	queued   attempt.Queued  // before the next attempt, until that has it
	planner  route.Planner   // of the routes to the host
	start    instant.Instant // of the first attempt of the series; of no meaning if the rule does not need it
	wait     time.Time       // until then a response has asked to wait, or one of a Transport below
	body     replay.Body     // nil: none
	waited   time.Duration   // at the limits, by all attempts
	retried  bool            // the loop has retried; a hedge is no retry
	broke    bool            // an attempt ended with an error
	download *download       // the body that this continues, or that the response got; nil: it does not resume
}

// A series are the attempts of a call. For the body of a response these are the attempts since the last progress.
type series struct {
	sent int           // attempts so far
	prev time.Duration // the previous value of the back-off
}

// A schedule is the rest of the attempts of a request, from the first time on that it stands in a line.
type schedule struct {
	ends  instant.Instant // when the last of them would begin; 0: the request has not stood in a line
	steps []time.Duration // from each attempt to the next
}

// A report keeps the facts that a retrier will tell of its attempts.
type report struct {
	history []Attempt       // empty after a success on the first attempt
	mark    *mark           // with room for the history, which callers get without the call; nil: there is none
	reason  Reason          // of the last decision
	began   instant.Instant // when the call did; 0: not known
	until   time.Time       // before which a new request would meet the same reason; zero: not known
	offset  int64           // where the body was cut that the call continues, else 0
	leftOut int             // attempts whose time passed in a line
	held    held            // before a further attempt, in vain
}

// A try is an attempt of a call: its request, its admission, and the hooks that hear of its end. The goroutine that sends
// it owns it, and then the retrier whose attempt at hand it is.
type try struct {
	attempt.Attempt
	admission
	body   replay.Body     // whose bytes it sends; nil: none
	told   context.Context // of the hooks AttemptEnd; nil: they were told, or there are none
	trial  *route.Trial    // its base, if that is a Trial; it may go over another pool
	offset int64           // where it continues a body
}

// An admission lets an attempt go to its host.
type admission struct {
	turn   exchange.Turn // in the line of the host
	permit *limit.Permit // of its limits; nil: the rule turns none on
}

// A decision is the result of judging one attempt.
type decision struct {
	reason     Reason
	delay      time.Duration // until the next attempt
	retryAfter time.Duration // that was asked for
	at         time.Time     // when the outcome was known
	err        error         // of the attempt, with the reason why the request's body cannot be sent again
	drain      time.Duration // how long after at the response may be drained before the retry
	ended      error         // the end of the caller's context, if it ended a wait for the body
	u          float64       // random, in [0,1): for the jitter of a server's wait, here and in its hold
	why        error         // why the request's body cannot be sent again, if the body itself does not say so
	stuck      bool          // the server wants the request over another connection, and there is none
}

// isSpent reports whether a response has used up the request, even if it says that the server did not act.
func (c *call) isSpent() bool { return auth.SingleUse(c.Req) && !c.isIdempotent() }

// gaveUp reports whether a reason is a limit that withheld a retry that was otherwise due. A deadline that
// has passed is none.
func (c *call) gaveUp(r Reason) bool {
	return r.isLimit() && (r != ReasonDeadline || c.Ctx.Err() == nil)
}

// reasonGone returns why the caller's context ended. Request.Cancel and the deadline of
// http.Client.Timeout come at the same time, so a deadline that has passed counts.
func (c *call) reasonGone() Reason {
	if until, ok := c.Ctx.Deadline(); ok && !time.Now().Before(until) || errors.Is(c.Ctx.Err(), context.DeadlineExceeded) {
		return ReasonDeadline
	}
	return ReasonCanceled
}

// findRule finds the rule of the request, if its path or its context has one besides that of
// the host.
func (c *call) findRule() error {
	if c.Rule.Paths != nil {
		if p := c.Rule.Paths.Find(method(c.Req), c.Req.URL); p != nil {
			c.Rule = p.Rule
		}
	}
	if c.options == nil || c.options.rule == nil {
		return nil
	}
	r, err := c.options.rule.CompleteOver(c.Rule)
	c.Rule = r
	return err
}

// addKey gives the request the Idempotency-Key of its rule, unless the caller set one. The
// request becomes a copy, with which all attempts are made.
func (c *call) addKey() {
	if rules.HasKey(c.Req.Header) {
		return
	}
	if key := c.Rule.Policy.IdempotencyKey(c.Req); key != "" {
		c.Req, c.keyed = rules.WithKey(c.Req, key), true
	}
}

// RuleFor returns the complete rule of a request by its method and its URL, and the keys of
// Config.Hosts whose rules are in it. The key of the path comes first, and then those of the
// host, the most specific first. Without a key, Config.Rule applies alone. In the complete rule
// a zero field is off, or has the default that its comment names. RuleFor does not see the rules
// of [WithRule]. A CONNECT without a path has the rule of the host, because no path matches it.
// A request without a URL has that of policy.Defaults.
func (t *Transport) RuleFor(req *http.Request) (rule policy.Rule, patterns []string) {
	set := t.registry.Rules.Load()
	if set == nil || req == nil || req.URL == nil {
		return policy.Defaults(), nil
	}
	r, keys := set.ForHost(host.KeyOf(req.URL))
	if r.Paths != nil {
		if p := r.Paths.Find(method(req), req.URL); p != nil {
			r, patterns = p.Rule, append(patterns, p.Key)
		}
	}
	return r.Policy, append(patterns, keys...)
}

// logsAttempts reports whether the logger takes a line for each attempt.
func (c *call) logsAttempts() bool { return c.t.logger.Enabled(c.Ctx, slog.LevelDebug) }

// done tells the line and the limits of the host the outcome of the attempt, and those who watch the host. It returns how long
// the server asked to wait, and a random number in [0,1) for the jitter of that wait.
func (a *admission) done(r *exchange.Request, o *attempt.Outcome) (retryAfter time.Duration, u float64) {
	retryAfter, u = a.turn.Done(r, o), rand.Float64()
	if a.permit != nil {
		u = a.permit.Done(r, o, retryAfter, u)
	}
	r.Review()
	return retryAfter, u
}

// cancel gives back the parts that the attempt has not used.
func (a *admission) cancel(r *exchange.Request) {
	if a.turn.Over(r); a.permit != nil {
		a.permit.Cancel()
	}
}
