// The history of a call, its events and its log lines.

package transport

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// A report records the attempts of a call and tells the traces and the log about
// them.
type report struct {
	*call
	history []Attempt       // empty after a success on the first attempt
	mark    *mark           // with room for the history, which callers get without the call; nil: there is none
	reason  Reason          // of the last decision
	began   instant.Instant // when the call did; 0: not known
	until   time.Time       // before which a new request would meet the same reason; zero: not known
	ofBody  bool            // the call continues a body
	offset  int64           // where the body was cut that the call continues, else 0
}

// record adds an attempt to the history and tells the observers. A success on the
// first attempt that did not wait is not recorded, because nobody will ask how it came.
func (r *report) record(e *Event) {
	if len(r.history) > 0 || e.Number > 1 || e.Err != nil || e.Reason != ReasonFinal || e.Queued != (Queued{}) {
		if r.mark == nil {
			r.mark = new(mark)
			r.history = r.mark.few[:0]
		}
		r.history = append(r.history, e.Attempt)
	}
	r.tellObservers(e)
}

// tellObservers tells the traces and the log.
func (r *report) tellObservers(e *Event) {
	r.reason = e.Reason
	for _, t := range r.traces() {
		if t != nil && t.Event != nil {
			t.Event(r.completed(e))
		}
	}
	if r.t.logger != nil && e.Kind != "" && r.logsAttempts() {
		r.logAttempt(e)
	}
}

// completed returns an event as others see it.
func (r *report) completed(e *Event) Event {
	all := *e
	if all.Err != nil {
		all.Err = withoutSecrets(all.Err, r.Req.URL.String())
	}
	all.Context, all.Request, all.Host, all.Offset = r.parentContext(), r.Req, r.HostName(), r.offset
	return all
}

// logsAttempts reports whether the logger takes a line for each attempt.
func (c *call) logsAttempts() bool { return c.t.logger.Enabled(c.Ctx, slog.LevelDebug) }

// logAttempt writes the line of an attempt.
func (r *report) logAttempt(d *Event) {
	e := r.completed(d)
	url := e.Request.URL.String()
	addr := cmp.Or(d.Addr, redact.Addr(d.Err))
	all := attrs{
		slog.String("host", e.Host),
		slog.String("method", method(e.Request)),
		slog.String("url", redact.URL(e.Request.URL)),
		slog.Int("attempt", d.Number),
		slog.String("kind", string(d.Kind)),
		slog.String("reason", string(d.Reason)),
	}
	all.add(d.Status != 0, slog.Int("status", d.Status))
	if d.Err != nil {
		all.add(true, slog.String("error", causeOf(d.Err, url)))
	}
	all.add(addr != "", slog.String("addr", addr))
	all.add(d.Pool > 0, slog.Int("lane", d.Pool))
	all.add(r.offset > 0, slog.Int64("offset", r.offset))
	all.addTime("hint", d.RetryAfter)
	all.addTime("wait", d.Delay)
	all.addTime("duration", d.Duration)
	all.addTime("queued.cooldown", d.Queued.Cooldown)
	all.addTime("queued.pacing", d.Queued.Pacing)
	all.addTime("queued.rate", d.Queued.Rate)
	all.addTime("queued.gate", d.Queued.Gate)
	r.t.logger.LogAttrs(r.Ctx, slog.LevelDebug, e.String(), all...)
}

// logContinued writes the line of a body that a reconnect continues. took is the time since the cut.
func (r *report) logContinued(try int, took time.Duration) {
	if r.t.logger == nil || !r.logsAttempts() {
		return
	}
	host := r.HostName()
	r.t.logger.LogAttrs(r.Ctx, slog.LevelDebug, redact.Printable(fmt.Sprintf("%s to %s: the body goes on at byte %d", method(r.Req), host, r.offset)),
		slog.String("host", host),
		slog.String("method", method(r.Req)),
		slog.String("url", redact.URL(r.Req.URL)),
		slog.Int("attempt", try),
		slog.Int64("offset", r.offset),
		slog.Duration("duration", took.Round(time.Millisecond)),
	)
}

// attrs are the attributes of a log line.
type attrs []slog.Attr

// add adds an attribute if it is set.
func (all *attrs) add(set bool, attr slog.Attr) {
	if set {
		*all = append(*all, attr)
	}
}

// addTime adds a time, unless it is not known or zero.
func (all *attrs) addTime(key string, d time.Duration) {
	d = d.Round(time.Millisecond)
	all.add(d > 0, slog.Duration(key, d))
}

// historyFor returns the history of a call that ends for a reason.
func (r *report) historyFor(reason Reason) History {
	h := History{Reason: reason, Attempts: slices.Clip(r.history)}
	if reason == r.reason {
		h.Until = r.until
	}
	switch {
	case r.began != 0:
		h.began = r.Registry.TimeOf(r.began)
	case len(h.Attempts) > 0:
		h.began = h.Attempts[0].sentAt()
	}
	h.took = time.Since(h.began)
	return h
}

// newError returns the error of a call that ends without a response.
func (r *report) newError(reason Reason, err error) *Error {
	return &Error{
		History: r.historyFor(reason),
		Err:     err,
		request: method(r.Req) + " " + redact.URL(r.Req.URL),
		url:     r.Req.URL.String(),
		ended:   r.Ctx.Err(),
		ofBody:  r.ofBody,
	}
}

// An observer tells of the changes of a host that a call has noticed.
type observer struct{ *call }

// Tells returns a function that tells the Trace and the log about a change. No lock is held
// meanwhile, because a hook or a log handler may block, or send a request over the same
// Transport. If the change came with a response, the request still has its slot of the limiter.
func (c observer) Tells(v news.Change) func() {
	h, t, all, ctx := c.hostChange(v), c.t, c.State.Machines().News(), c.parentContext()
	if v.Condition == news.Pool {
		return func() {
			if t.logger != nil && t.logger.Enabled(ctx, slog.LevelInfo) && all.TakeLine(t.registry.Now()) {
				t.logger.LogAttrs(ctx, slog.LevelInfo, redact.Printable(h.Host+poolText(v)), poolAttrs(h.Host, v)...)
			}
		}
	}
	return func() {
		if t.hostChanged != nil {
			t.hostChanged(ctx, h)
		}
		if level := h.level(); t.logger != nil && t.logger.Enabled(ctx, level) && all.TakeLine(t.registry.Now()) {
			t.logger.LogAttrs(ctx, level, h.String(), h.attrs()...)
		}
	}
}

// poolText says that requests take other connections.
func poolText(v news.Change) string {
	if v.Over {
		return ": its requests take other connections, which do better"
	}
	return ": its requests take other connections (" + HostChange{Status: v.Status, Err: v.Err}.causeText() + ")"
}

// poolAttrs returns the attributes of the log line about other connections.
func poolAttrs(host string, v news.Change) (all attrs) {
	all = attrs{slog.String("host", host), slog.Int("pool", v.Pool)}
	all.add(v.Status != 0, slog.Int("status", v.Status))
	if v.Err != nil {
		all.add(true, slog.String("error", causeOf(v.Err)))
	}
	all.add(v.Addr != "", slog.String("addr", v.Addr))
	return all
}

// LogsState returns a function that tells the log what lasts, after more changes than it has lines
// for.
func (c observer) LogsState(lasting []news.Change) func() {
	logger, ctx, host := c.t.logger, c.parentContext(), c.HostName()
	level, text, all := slog.LevelInfo, " changed often: nothing is wrong with it now", attrs{slog.String("host", host)}
	for i, v := range lasting {
		h := c.hostChange(v)
		switch {
		case i == 0:
			level, text, all = slog.LevelWarn, " changed often: now it"+h.beginning(), h.attrs()
		case v.Condition != lasting[i-1].Condition: // several scopes may be held
			text += "; it" + h.beginning()
		}
	}
	all.add(true, slog.Bool("unlogged", true))
	return func() { logger.LogAttrs(ctx, level, redact.Printable(host+text), all...) }
}

// Safe returns an error that prints without the secrets of URLs.
func (c observer) Safe(err error) error { return withoutSecrets(err, c.Req.URL.String()) }

// hostChange returns a change as others see it.
func (c observer) hostChange(v news.Change) HostChange {
	h := HostChange{
		Host: c.HostName(), Reason: reasonOfHost(v.Condition), Over: v.Over, Status: v.Status, Err: v.Err, FromFleet: v.Fleet,
		Waiting: v.Waiting, Limit: v.Room, at: time.Now(),
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

// attrs returns the attributes of the log line about a change.
func (c HostChange) attrs() (all attrs) {
	all = attrs{slog.String("host", c.Host), slog.String("reason", string(c.Reason)), slog.Time("since", c.Since.Round(time.Second))}
	all.add(c.Over, slog.Bool("over", true))
	all.add(c.Status != 0, slog.Int("status", c.Status))
	all.add(c.Err != nil, slog.String("error", c.causeText()))
	all.add(c.FromFleet, slog.Bool("from_fleet", true))
	all.add(!c.Until.IsZero(), slog.Time("until", c.Until.Round(time.Second)))
	all.add(c.Waiting > 0, slog.Int("waiting", c.Waiting))
	all.add(c.Limit > 0, slog.Int("limit", c.Limit))
	return all
}
