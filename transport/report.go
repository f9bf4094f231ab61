// The history of a call, and its reports to the observers and the log.

package transport

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
)

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
	if keeps && x.mark == nil {
		x.mark = new(mark)
		x.history = x.mark.few[:0]
	}
	if keeps {
		x.history = append(x.history, a)
	}
	if *told != nil {
		x.tellEnd(told, o.Resp, a)
	}
	if logs {
		logAttempt(&x.call, a)
	}
}

// tellUndecided calls the hooks AttemptEnd for an attempt about which nothing was decided, because
// the base transport or a function of the user's panicked.
func (x *retrier) tellUndecided(told *context.Context, o *attempt.Outcome) {
	if *told == nil {
		return
	}
	d := decision{err: o.Err, at: time.Now()}
	if o.Err == attempt.ErrOutrun {
		d.reason = ReasonOutrun
	}
	x.tellEnd(told, o.Resp, x.attemptOf(o, &d))
}

// holdInVain notes how long limits have held the request for an attempt that is not sent.
func (x *retrier) holdInVain() {
	x.held = heldBy(x.queued)
	x.waited += x.held.waited
}

// attemptOf returns an attempt as others see it.
func (x *retrier) attemptOf(o *attempt.Outcome, d *decision) Attempt {
	a := Attempt{
		Number: o.Number, Kind: AttemptKind(o.Kind), Offset: x.offset, Status: o.Status(), Err: d.err, Class: o.Class, Addr: o.Link.Addr(),
		RetryAfter: d.retryAfter, Delay: d.delay, Duration: o.Took(), Reason: d.reason, at: d.at,
	}
	if a.unsent = o.Err != nil && o.Link.Unsent(); o.Pool != nil {
		a.Pool = o.Pool.Number
	}
	if o.SentAt != 0 {
		a.Start = d.at.Add(o.SentAt.Sub(x.Registry.InstantOf(d.at)))
	}
	if o.Queued != (attempt.Queued{}) {
		at := heldBy(o.Queued)
		a.Waited, a.WaitedFor = at.waited, at.by
	}
	return a
}

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
func attrsOf(c *call) attrs {
	return attrs{
		slog.String("host", c.HostName()),
		slog.String("method", method(c.Req)),
		slog.String("url", redact.URL(c.Req.URL)),
	}
}

// logAttempt writes the line of an attempt.
func logAttempt(c *call, a Attempt) {
	all, addr := attrsOf(c), cmp.Or(a.Addr, redact.Addr(a.Err))
	all = append(all, slog.Int("number", a.Number), slog.String("kind", string(a.Kind)))
	all.add(a.Status != 0, slog.Int("status", a.Status))
	all.add(a.Err != nil, slog.String("error", a.outcome(c.Req.URL.String())))
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
	c.t.logger.LogAttrs(c.Ctx, slog.LevelDebug, "attempt", all...)
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
		h.began = cmp.Or(h.Attempts[0].Start, h.Attempts[0].at)
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
		ofBody:  x.download != nil,
	}
}

// markResponse returns resp with its history. Its Request becomes
// a copy whose context carries the mark, for [HistoryOf]. If the reason is a
// limit, an outer Transport that sees the mark does not start again.
func (x *retrier) markResponse(resp *http.Response, reason Reason) *http.Response {
	req := resp.Request
	if req == nil {
		req = x.Req
	}
	m := x.mark
	if m == nil {
		m = new(mark)
	}
	m.Context, m.resp, m.history, m.gaveUp = req.Context(), resp, x.historyFor(reason), reason != ReasonFinal && x.gaveUp(reason)
	m.req = *req.WithContext(m)
	resp.Request = &m.req
	return resp
}

// An observer tells of the changes of a host that a call has noticed.
type observer struct{ *call }

// Tells returns a function that tells the Trace and the log about a change. No lock is held
// meanwhile, because a hook or a log handler may block, or send a request over the same
// Transport. If the change came with a response, the request still has its slot of the limiter.
func (c observer) Tells(v news.Change) func() {
	h, t, all, ctx := c.hostChange(v), c.t, c.State.Machines().News(), c.parentContext()
	level, line := lineOf(h, v)
	told := t.hostChanged
	if v.Condition == news.Pool {
		told = nil
	}
	return func() {
		for _, hook := range told {
			hook(ctx, h)
		}
		if t.logger != nil && t.logger.Enabled(ctx, level) && all.TakeLine(t.registry.Now(), v) {
			t.logger.LogAttrs(ctx, level, h.message(), line...)
		}
	}
}

// lineOf returns the level and the attributes of the line about a change.
func lineOf(h HostChange, v news.Change) (slog.Level, attrs) {
	switch {
	case v.Condition == news.Pool:
		line := attrs{slog.String("host", h.Host), slog.Int("pool", v.Pool)}
		line.add(v.Status != 0, slog.Int("status", v.Status))
		line.addError(v.Err)
		line.add(v.Addr != "", slog.String("addr", v.Addr))
		return slog.LevelInfo, line
	case h.Over:
		return slog.LevelInfo, h.attrs()
	}
	return slog.LevelWarn, h.attrs()
}

// LogsState returns a function that tells the log the lasting conditions, after more changes than it has
// lines for. If nothing lasts, it tells the last change.
func (c observer) LogsState(lasting []news.Change) func() {
	logger, ctx := c.t.logger, c.parentContext()
	var level slog.Level
	var all attrs
	var also []Reason
	for i, v := range lasting {
		switch h := c.hostChange(v); {
		case i == 0:
			level, all = lineOf(h, v)
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
		Host: c.HostName(), Reason: conditions[v.Condition].reason, Over: v.Over, Status: v.Status, Err: v.Err, FromFleet: v.Fleet,
		Waiting: v.Waiting, Limit: v.Room, at: time.Now(), breaker: c.Rule.Breaker,
	}
	if h.Since = h.at; v.Since > 0 {
		h.Since = c.Registry.TimeOf(v.Since)
	}
	if v.Until > 0 {
		h.Until = c.Registry.TimeOf(v.Until)
	}
	return h
}
