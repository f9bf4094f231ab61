// The history of a call, its events and its log lines.

package transport

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/logbook"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/visit"
)

// A report records the attempts of a call and tells the traces and the log about
// them.
type report struct {
	*call
	history []Attempt // empty after a success on the first attempt
	mark    *mark     // with room for the history, which callers get without the exchange; nil: there is none
	began   time.Time // of the call; zero if the light path was taken and nobody observes
	reason  Reason    // of the last decision
	limit   string    // that it names
	queued  Queued    // before the request was refused
	offset  int64     // where the body was cut that the call continues, else 0
}

// record adds an attempt to the history and tells the observers. A success on the
// first attempt that did not wait is not recorded, because nobody will ask how it came.
func (r *report) record(resp *http.Response, d *entry) {
	if d.sent > 1 || d.Err != nil || d.reason != ReasonFinal || d.Queued != (Queued{}) {
		if r.mark == nil {
			r.mark = new(mark)
			r.history = r.mark.few[:0]
		}
		r.history = append(r.history, d.Attempt)
	}
	r.tellObservers(resp, d)
}

// tellObservers tells the traces and the log.
func (r *report) tellObservers(resp *http.Response, d *entry) {
	r.reason, r.limit, r.queued = d.reason, d.limit, Queued{}
	if d.Kind == KindNone {
		r.queued = d.Queued
	}
	for _, t := range r.traces() {
		if t != nil && t.Event != nil {
			t.Event(r.eventOf(resp, d))
		}
	}
	if r.t.lines != nil {
		r.logEntry(d)
	}
}

func (r *report) eventOf(resp *http.Response, d *entry) Event {
	a := d.Attempt
	if a.Err != nil {
		a.Err = withoutSecrets(a.Err, r.Req.URL.String())
	}
	return Event{
		Attempt:  a,
		Context:  r.parentContext(),
		Request:  r.Req,
		Host:     r.HostName(),
		Response: resp,
		Offset:   r.offset,
		Reason:   d.reason,
		Limit:    d.limit,
	}
}

// logLevelOf returns the level of an event's log line, and a word for what happened. Events with
// an empty word are not logged. A success on the first attempt is such an event.
func logLevelOf(d *entry) (slog.Level, string) {
	switch d.reason {
	case ReasonRetry:
		return slog.LevelInfo, "retry"
	case ReasonResume:
		return slog.LevelInfo, "resume"
	case ReasonHedged:
		return slog.LevelInfo, "hedge"
	case ReasonOutrun:
		return slog.LevelDebug, "outrun"
	case ReasonCanceled:
		return slog.LevelDebug, "canceled"
	case ReasonFinal:
		switch {
		case d.Kind == KindReconnect && (d.Err != nil || d.Status/100 != 2):
			return 0, "" // the end of the body is told
		case d.Err != nil || deniesAccess(d.Status):
			return slog.LevelWarn, "failed"
		case d.sent > 1:
			return slog.LevelInfo, "answered"
		}
		return 0, ""
	}
	return slog.LevelWarn, "failed"
}

// deniesAccess reports whether a status is logged although it is final. It mostly means
// that credentials have expired, which is about all requests.
func deniesAccess(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

func (r *report) logEntry(d *entry) {
	level, what := logLevelOf(d)
	if what == "" || !r.t.lines.Enabled(r.Ctx, level) {
		return
	}
	req, host := r.Req, r.HostName()
	why, cause := r.causesOf(d, req.URL.String())
	addr := cmp.Or(d.Addr, redact.Addr(d.Err))
	all := logbook.Attrs{
		slog.String("host", host),
		slog.String("method", method(req)),
		slog.String("url", redact.URL(req.URL)),
		slog.String("reason", d.reason.String()),
	}
	goes := d.reason == ReasonRetry || d.reason == ReasonResume
	aside := d.reason == ReasonHedged || d.reason == ReasonOutrun
	all.Add(goes || aside, slog.Int("attempt", d.Number))
	sent := d.sent
	if d.body {
		sent = max(sent, 1) // a reconnect after progress counts from 1 again
	}
	all.Add(!goes && !aside, slog.Int("attempts", sent))
	all.Add(d.limit != "", slog.String("limit", d.limit))
	all.Add(d.Status != 0, slog.Int("status", d.Status))
	all.Add(d.Err != nil, slog.String("error", cause))
	all.Add(addr != "", slog.String("addr", addr))
	all.Add(r.offset > 0, slog.Int64("offset", r.offset))
	switch {
	case goes:
		all.Add(true, slog.Duration("wait", d.Wait.Round(time.Millisecond)))
	case d.Hint > 0 && d.reason != ReasonOutrun:
		all.Add(true, slog.Time("until", d.Time.Add(d.Hint).Round(time.Second)))
	default:
		all.Add(!d.until.IsZero(), slog.Time("until", d.until.Round(time.Second)))
	}
	all.AddTime("duration", d.Duration)
	all.AddTime("queued.cooldown", d.Queued.Cooldown)
	all.AddTime("queued.pacing", d.Queued.Pacing)
	all.AddTime("queued.rate", d.Queued.Rate)
	all.AddTime("queued.gate", d.Queued.Gate)
	if !goes && !aside && !r.began.IsZero() { // the call has ended
		all.AddTime("elapsed", d.Time.Sub(r.began))
	}
	r.t.lines.Write(logbook.Line[lineKey]{
		Ctx: r.Ctx, Level: level, Host: host,
		Key:   lineKey{what, d.reason, d.Status, classify.KindOf(d.Err)},
		Text:  redact.Fit(host, why, func(host, why string) string { return r.message(d, what, host, why) }),
		Attrs: all,
	})
}

// message names the host, the cause and what happens next.
func (r *report) message(d *entry, what, host, why string) string {
	switch {
	case what == "retry":
		return fmt.Sprintf("%s failed (%s): attempt %d follows in %v", host, why, d.sent+1, redact.Rough(d.Wait))
	case what == "resume":
		return fmt.Sprintf("%s cut a body (%s): the rest is asked for in %v", host, why, redact.Rough(d.Wait))
	case what == "hedge":
		return host + " is slow: a second attempt goes beside the first"
	case what == "outrun":
		return host + " was slow: another attempt has the response"
	case what == "answered" && r.offset > 0:
		return fmt.Sprintf("%s answered after %d attempts (%s): the body goes on", host, d.sent, why)
	case what == "answered":
		return fmt.Sprintf("%s answered after %d attempts (%s): the caller gets it", host, d.sent, why)
	case d.body && what == "canceled":
		return host + " has not sent its body yet: the caller hung up"
	case d.body:
		return fmt.Sprintf("%s failed in its body (%s): the reader gets the error, %s", host, why, textOf(d.reason))
	case what == "canceled":
		return host + " has not answered yet: the caller hung up"
	case deniesAccess(d.Status) && d.reason == ReasonFinal:
		return fmt.Sprintf("%s denies access (%s): the caller gets it, no retry helps", host, why)
	case d.sent == 0:
		return fmt.Sprintf("%s gets no request (%s): %s", host, cmp.Or(d.limit, why), textOf(d.reason))
	case d.reason == ReasonMaxRetryAfter:
		return fmt.Sprintf("%s asks to wait %v (%s): no retry, that is more than the rule allows", host, redact.Rough(d.Hint), why)
	}
	return fmt.Sprintf("%s failed (%s): no retry, %s", host, why, textOf(d.reason))
}

// causesOf says in a few words what failed, for the message, and what the error of an entry is.
func (r *report) causesOf(d *entry, url string) (why, cause string) {
	why = causeOfAttempt(&d.Attempt, url)
	if d.Err != nil {
		cause = why
	}
	if e, ok := d.Err.(*ResumeError); ok {
		why = causeOf(e.Err, url)
	}
	if n := len(r.history); d.limit != "" && d.Kind == KindNone && n > 0 {
		why = causeOfAttempt(&r.history[n-1], url) // the error names the limit, as the reason does
	}
	return why, cause
}

// logChange writes a line about a change of a host's state.
func (t *Transport) logChange(h HostChange) {
	level := slog.LevelWarn
	if h.Over || h.Condition == ConditionLane { // other connections are a remedy
		level = slog.LevelInfo
	}
	if !t.lines.Enabled(h.Context, level) {
		return
	}
	all := logbook.Attrs{slog.String("host", h.Host), slog.String("condition", h.Condition.String())}
	all.Add(h.Over, slog.Bool("over", true))
	all.Add(h.limit() != "", slog.String("limit", h.limit()))
	all.Add(h.Scope != 0, slog.String("scope", strconv.FormatUint(h.Scope, 16)))
	all.Add(h.Status != 0, slog.Int("status", h.Status))
	all.Add(h.Err != nil, slog.String("error", h.causeText()))
	all.Add(h.Addr != "", slog.String("addr", h.Addr))
	all.Add(h.Fleet, slog.Bool("fleet", true))
	all.Add(!h.Until.IsZero(), slog.Time("until", h.Until.Round(time.Second)))
	all.Add(h.Waiting > 0, slog.Int("waiting", h.Waiting))
	all.Add(h.Room > 0, slog.Int("room", h.Room))
	all.Add(h.Lane > 0, slog.Int("lane", h.Lane))
	t.lines.WriteChange(logbook.Line[lineKey]{Ctx: h.Context, Level: level, Host: h.Host, Rank: h.Condition.rank(), Text: h.String(), Attrs: all})
}

// newError returns the error of a call that ends without a response.
func (r *report) newError(reason Reason, err error) *Error {
	return &Error{
		Reason:   reason,
		Limit:    r.limit,
		Attempts: slices.Clip(r.history),
		Err:      err,
		request:  method(r.Req) + " " + redact.URL(r.Req.URL),
		queued:   r.queued,
		url:      r.Req.URL.String(),
		ended:    r.Ctx.Err(),
	}
}

// resumed logs that a reconnect continues a body. took is the time since the cut.
func (r *report) resumed(attempt int, took time.Duration) {
	if !r.t.lines.Enabled(r.Ctx, slog.LevelInfo) {
		return
	}
	host := r.HostName()
	r.t.lines.Write(logbook.Line[lineKey]{
		Ctx: r.Ctx, Level: slog.LevelInfo, Host: host, Key: lineKey{what: "resumed"},
		Text: redact.Fit(host, "", func(host, _ string) string {
			return fmt.Sprintf("%s goes on with a body at byte %d: its reader notices nothing", host, r.offset)
		}),
		Attrs: []slog.Attr{
			slog.String("host", host),
			slog.String("method", method(r.Req)),
			slog.String("url", redact.URL(r.Req.URL)),
			slog.Int("attempt", attempt),
			slog.Int64("offset", r.offset),
			slog.Duration("duration", took.Round(time.Millisecond)),
		},
	})
}

// Tells returns a function that tells the Trace and the log about a change. No lock is held
// meanwhile, because a hook or a log handler may block, or send a request over the same
// Transport. If the change came with a response, the request still has its slot of the gate.
func (c *call) Tells(v visit.Change) func() {
	h := HostChange{
		Condition: Condition(v.Condition), Over: v.Over, Scope: v.Scope, Status: v.Status, Err: v.Err, Addr: v.Addr,
		Fleet: v.Fleet, Since: v.Since, Until: v.Until, Waiting: v.Waiting, Refused: v.Refused, Room: v.Room, Lane: v.Lane,
	}
	h.Context, h.Host, h.url = c.parentContext(), c.HostName(), c.Req.URL.String()
	h.Err, h.Time = withoutSecrets(h.Err, h.url), time.Now()
	h.Since = cmp.Or(h.Since, h.Time)
	t := c.t
	return func() {
		if t.hostChanged != nil {
			t.hostChanged(h)
		}
		t.logChange(h)
	}
}
