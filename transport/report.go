// The history of a call, and what the observers and the log are told.

package transport

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// A report is what a retrier will tell of its attempts.
type report struct {
	history []Attempt       // empty after a success on the first attempt
	mark    *mark           // with room for the history, which callers get without the call; nil: there is none
	reason  Reason          // of the last decision
	began   instant.Instant // when the call did; 0: not known
	until   time.Time       // before which a new request would meet the same reason; zero: not known
	ofBody  bool            // the call continues a body
	offset  int64           // where the body was cut that the call continues, else 0
	leftOut int             // attempts whose time passed in a line
	held    held            // before a further attempt, in vain
}

// record adds the attempt that ended with o to the history, and tells the hooks and the log of it.
// told is the context of the hooks; nil: they were told, or there are none. A success on the first
// attempt that did not wait is not in the history, because nobody will ask how it came.
func (x *retrier) record(told *context.Context, o *attempt.Outcome, d *decision) {
	x.reason = d.reason
	keeps := len(x.history) > 0 || o.Number > 1 || d.err != nil || d.reason != ReasonFinal || o.Queued != (attempt.Queued{})
	logs := x.t.logger != nil && x.logsAttempts()
	if o.Kind == attempt.Cut || !keeps && !logs && *told == nil {
		return
	}
	a := x.attemptOf(o, d)
	if keeps {
		if x.mark == nil {
			x.mark = new(mark)
			x.history = x.mark.few[:0]
		}
		x.history = append(x.history, a)
	}
	if *told != nil {
		x.tellEnd(told, o.Resp, a)
	}
	if logs {
		x.logAttempt(a)
	}
}

// holdInVain notes how long limits have held the request for an attempt that is not sent.
func (x *retrier) holdInVain() {
	x.held = heldBy(x.permit.Queued)
	x.waited += x.held.waited
}

// endsWith notes that no attempt follows after all, although the hooks were told that there would be a retry.
func (x *retrier) endsWith(reason Reason, err error) {
	if x.reason = reason; len(x.history) > 0 { // else a body was cut
		last := &x.history[len(x.history)-1]
		last.Err, last.Delay, last.Reason = err, 0, reason
	}
	x.logNotSent(History{Reason: reason, held: x.held}, err)
}

// A held is how long limits held a request, and the limit that took longest.
type held struct {
	waited time.Duration
	by     Reason
}

// attemptOf returns an attempt as others see it.
func (x *retrier) attemptOf(o *attempt.Outcome, d *decision) Attempt {
	a := Attempt{
		Number: o.Number, Kind: AttemptKind(o.Kind), Offset: x.offset, Status: o.Status(), Err: d.err, Class: o.Class, Addr: o.Link.Addr(),
		Pool: o.PoolNumber(), RetryAfter: d.retryAfter, Delay: d.delay, Duration: o.Took(), Reason: d.reason, at: d.at,
	}
	if o.Err != nil {
		a.unsent = o.Link.Unsent()
	}
	if o.SentAt != 0 {
		a.Start = x.Registry.TimeOf(o.SentAt)
	}
	if o.Queued != (attempt.Queued{}) {
		at := heldBy(o.Queued)
		a.Waited, a.WaitedFor = at.waited, at.by
	}
	return a
}

// logsAttempts reports whether the logger takes a line for each attempt.
func (c *call) logsAttempts() bool { return c.t.logger.Enabled(c.Ctx, slog.LevelDebug) }

// heldBy returns how long an attempt was queued.
func heldBy(q attempt.Queued) (h held) {
	var most time.Duration
	for _, at := range [...]struct {
		limit Reason
		took  time.Duration
	}{{ReasonRetryBudget, q.Line}, {ReasonCircuitOpen, q.Outage}, {ReasonThrottled, q.Throttle}, {ReasonQuota, q.Pacing}, {ReasonRateLimit, q.Rate}, {ReasonConcurrency, q.Concurrency}} {
		if h.waited += at.took; at.took > most {
			most, h.by = at.took, at.limit
		}
	}
	return h
}

// attrsOf begins the attributes of a log line about a request.
func (x *retrier) attrsOf() attrs {
	return attrs{
		slog.String("host", x.HostName()),
		slog.String("method", method(x.Req)),
		slog.String("url", redact.URL(x.Req.URL)),
	}
}

// logAttempt writes the line of an attempt.
func (x *retrier) logAttempt(a Attempt) {
	all, addr := x.attrsOf(), cmp.Or(a.Addr, redact.Addr(a.Err))
	all.add(true, slog.Int("number", a.Number))
	all.add(true, slog.String("kind", string(a.Kind)))
	all.add(a.Status != 0, slog.Int("status", a.Status))
	all.add(a.Err != nil, slog.String("error", a.outcome(x.Req.URL.String())))
	all.add(a.Class != classify.Unknown, slog.String("class", string(a.Class)))
	all.add(true, slog.String("reason", string(a.Reason)))
	all.addTime("retry_after", a.RetryAfter)
	all.addTime("delay", a.Delay)
	all.addTime("waited", a.Waited)
	all.add(a.WaitedFor != "", slog.String("waited_for", string(a.WaitedFor)))
	all.addTime("duration", a.Duration)
	all.add(addr != "", slog.String("addr", addr))
	all.add(a.Pool > 0, slog.Int("pool", a.Pool))
	all.add(a.Offset > 0, slog.Int64("offset", a.Offset))
	x.t.logger.LogAttrs(x.Ctx, slog.LevelDebug, "attempt", all...)
}

// logNotSent writes the line of a request that is not sent, or not again. why may be nil.
func (x *retrier) logNotSent(h History, why error) {
	if x.t.logger == nil || !x.logsAttempts() {
		return
	}
	all, text := x.attrsOf(), "request not sent"
	if len(x.history) > 0 {
		text = "retry not sent"
	}
	all.addError(why, x.Req.URL.String())
	all.add(true, slog.String("reason", string(h.Reason)))
	all.add(!h.Until.IsZero(), slog.Time("until", h.Until.Round(time.Second)))
	all.addTime("waited", h.held.waited)
	x.t.logger.LogAttrs(x.Ctx, slog.LevelDebug, text, all...)
}

// attrs are the attributes of a log line.
type attrs []slog.Attr

// add adds an attribute if it is set.
func (all *attrs) add(set bool, attr slog.Attr) {
	if set {
		*all = append(*all, attr)
	}
}

// addError says in a few words what is wrong, unless there is nothing.
func (all *attrs) addError(err error, known ...string) {
	if err != nil {
		all.add(true, slog.String("error", causeOf(err, known...)))
	}
}

// addTime adds a time, unless it is not known or zero.
func (all *attrs) addTime(key string, d time.Duration) {
	d = d.Round(time.Millisecond)
	all.add(d > 0, slog.Duration(key, d))
}

// historyFor returns the history of a call that ends for a reason.
func (x *retrier) historyFor(reason Reason) History {
	h := History{Reason: reason, Attempts: slices.Clip(x.history), held: x.held, leftOut: x.leftOut}
	if reason == x.reason {
		h.Until = x.until
	}
	switch {
	case x.began != 0:
		h.began = x.Registry.TimeOf(x.began)
	case len(h.Attempts) > 0:
		h.began = h.Attempts[0].sentAt()
	}
	h.took = time.Since(h.began)
	return h
}

// newError returns the error of a call that ends without a response.
func (x *retrier) newError(reason Reason, err error) *Error {
	return &Error{
		History: x.historyFor(reason),
		Err:     err,
		request: method(x.Req) + " " + redact.URL(x.Req.URL),
		url:     x.Req.URL.String(),
		ended:   x.Ctx.Err(),
		ofBody:  x.ofBody,
	}
}

// An observer tells of the changes of a host that a call has noticed.
type observer struct{ *call }

// Tells returns a function that tells the Trace and the log about a change. No lock is held
// meanwhile, because a hook or a log handler may block, or send a request over the same
// Transport. If the change came with a response, the request still has its slot of the limiter.
func (c observer) Tells(v news.Change) func() {
	h, t, all, ctx := c.hostChange(v), c.t, c.State.Machines().News(), c.parentContext()
	level, line, told := h.level(), h.attrs(), t.hostChanged
	if v.Condition == news.Pool {
		told, level, line = nil, slog.LevelInfo, attrs{slog.String("host", h.Host), slog.Int("pool", v.Pool)}
		line.add(v.Status != 0, slog.Int("status", v.Status))
		line.addError(v.Err)
		line.add(v.Addr != "", slog.String("addr", v.Addr))
	}
	return func() {
		for _, hook := range told {
			hook(ctx, h)
		}
		if t.logger != nil && t.logger.Enabled(ctx, level) && all.TakeLine(t.registry.Now()) {
			t.logger.LogAttrs(ctx, level, h.message(), line...)
		}
	}
}

// LogsState returns a function that tells the log what lasts, after more changes than it has lines
// for.
func (c observer) LogsState(lasting []news.Change) func() {
	logger, ctx := c.t.logger, c.parentContext()
	level, all, also := slog.LevelInfo, attrs{slog.String("host", c.HostName())}, []Reason{}
	for i, v := range lasting {
		switch h := c.hostChange(v); {
		case i == 0:
			level, all = slog.LevelWarn, h.attrs()
		case v.Condition != lasting[i-1].Condition: // several scopes may be held
			also = append(also, h.Reason)
		}
	}
	all.add(len(also) > 0, slog.Any("also", also))
	return func() { logger.LogAttrs(ctx, level, "changed often", all...) }
}

// Safe returns an error that prints without the secrets of URLs.
func (c observer) Safe(err error) error { return withoutSecrets(err, c.Req.URL) }

// hostChange returns a change as others see it.
func (c observer) hostChange(v news.Change) HostChange {
	h := HostChange{
		Host: c.HostName(), Reason: reasonsOfHosts[v.Condition], Over: v.Over, Status: v.Status, Err: v.Err, FromFleet: v.Fleet,
		Waiting: v.Waiting, Limit: v.Room, at: time.Now(), breaker: c.Rule.Breaker, failFast: c.Rule.FailsFast(),
	}
	if h.Since = h.at; v.Since > 0 {
		h.Since = c.Registry.TimeOf(v.Since)
	}
	if v.Until > 0 {
		h.Until = c.Registry.TimeOf(v.Until)
	}
	return h
}

// level returns the level of the log line about a change.
func (c HostChange) level() slog.Level {
	if c.Over {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// message returns the text of the log line about a change.
func (c HostChange) message() string {
	texts := [2]string{"new connection pool", "new connection pool"}
	switch c.Reason {
	case ReasonCircuitOpen:
		if texts = [2]string{"host down", "host back"}; c.breaker {
			texts = [2]string{"circuit open", "circuit closed"}
		}
	case ReasonThrottled:
		texts = [2]string{"throttled", "no longer throttled"}
	case ReasonQuota:
		texts = [2]string{"quota low", "quota restored"}
	case ReasonConcurrency:
		texts = [2]string{"concurrency limit reached", "concurrency limit no longer reached"}
	case ReasonRateLimit:
		texts = [2]string{"rate limit reached", "rate limit no longer reached"}
	case ReasonRetryBudget:
		texts = [2]string{"retry budget used up", "retry budget restored"}
	}
	if c.Over {
		return texts[1]
	}
	return texts[0]
}

// attrs returns the attributes of the log line about a change.
func (c HostChange) attrs() (all attrs) {
	all = attrs{slog.String("host", c.Host), slog.String("reason", string(c.Reason)), slog.Time("since", c.Since.Round(time.Second))}
	all.add(c.Status != 0, slog.Int("status", c.Status))
	all.addError(c.Err)
	all.add(c.FromFleet, slog.Bool("from_fleet", true))
	all.add(!c.Until.IsZero(), slog.Time("until", c.Until.Round(time.Second)))
	all.add(c.Waiting > 0, slog.Int("waiting", c.Waiting))
	all.add(c.Limit > 0, slog.Int("limit", c.Limit))
	return all
}
