// The history of a call, its events and its log lines.

package transport

import (
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// A report records the attempts of a call and tells the traces and the log about
// them.
type report struct {
	*call
	history []Attempt // empty after a success on the first attempt
	began   time.Time // of the call; zero if the light path was taken and nobody observes
	reason  Reason    // of the last decision
	limit   string    // that it names
	offset  int64     // where the body was cut that the call continues, else 0
}

// record adds an attempt to the history and tells the observers. A success on the
// first attempt is not recorded, because nobody will ask how it came.
func (r *report) record(resp *http.Response, d *decision) {
	if d.sent > 1 || d.Err != nil || d.reason != ReasonFinal {
		if r.history == nil {
			r.history = make([]Attempt, 0, 3)
		}
		r.history = append(r.history, d.Attempt)
	}
	r.tell(resp, d)
}

// attempts returns the history for the caller, who may keep it. The copy does not keep
// the exchange in memory.
func (r *report) attempts() []Attempt { return slices.Clone(r.history) }

// replaceLast replaces the last attempt of the history and tells the observers.
func (r *report) replaceLast(resp *http.Response, d *decision) {
	r.history[len(r.history)-1] = d.Attempt
	again := *d
	again.Kind = KindNone // the outcome of the attempt was told before
	r.tell(resp, &again)
}

// tell tells the traces and the log.
func (r *report) tell(resp *http.Response, d *decision) {
	r.reason, r.limit = d.reason, d.limit
	if own := r.t.trace; own != nil && own.Event != nil {
		own.Event(r.event(resp, d))
	}
	if r.options != nil && r.options.trace != nil && r.options.trace.Event != nil {
		r.options.trace.Event(r.event(resp, d))
	}
	if r.t.logger != nil {
		r.log(d)
	}
}

func (r *report) event(resp *http.Response, d *decision) Event {
	return Event{
		Attempt:  d.Attempt,
		Context:  r.parent(),
		Request:  r.req,
		Host:     safeName(r.state),
		Response: resp,
		Offset:   r.offset,
		Reason:   d.reason,
		Limit:    d.limit,
		Queued:   d.queued,
	}
}

// logged returns the level and the message of an event's log line. Events with an
// empty message are not logged. A success on the first attempt is such an event.
func logged(d *decision) (slog.Level, string) {
	switch d.reason {
	case ReasonRetry:
		return slog.LevelInfo, "retry"
	case ReasonResume:
		return slog.LevelInfo, "resume"
	case ReasonResumeMax, ReasonMismatch, ReasonNotResumable:
		return slog.LevelWarn, "not resumed"
	case ReasonHedged:
		return slog.LevelInfo, "hedged"
	case ReasonOutrun:
		return slog.LevelDebug, "outrun"
	case ReasonCanceled, ReasonSentOnce, ReasonRetriesOff:
		return slog.LevelInfo, "failed"
	case ReasonFinal:
		switch {
		case d.Err != nil:
			return slog.LevelInfo, "failed"
		case d.sent > 1:
			return slog.LevelInfo, "response after retries"
		}
		return 0, ""
	}
	return slog.LevelWarn, "gave up"
}

func (r *report) log(d *decision) {
	level, msg := logged(d)
	if msg == "" || !r.t.logger.Enabled(r.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method(r.req)),
		slog.String("url", safeURL(r.req.URL)),
		slog.Int("attempt", d.Number),
		slog.String("reason", d.reason.String()),
	}
	if d.limit != "" {
		attrs = append(attrs, slog.String("limit", d.limit))
	}
	if d.Status != 0 {
		attrs = append(attrs, slog.Int("status", d.Status))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", safeText(d.Err, r.req.URL.String())))
	}
	if r.offset > 0 {
		attrs = append(attrs, slog.Int64("offset", r.offset))
	}
	if d.reason == ReasonRetry || d.reason == ReasonResume {
		attrs = append(attrs, slog.Duration("wait", d.Wait.Round(time.Millisecond)))
	}
	r.t.logger.LogAttrs(r.ctx, level, msg, append(attrs, r.durations(d)...)...)
}

// newError returns the error of a call that ends without a response.
func (r *report) newError(reason Reason, err error) *Error {
	return &Error{
		Reason:   reason,
		Limit:    r.limit,
		Attempts: r.attempts(),
		Err:      err,
		request:  method(r.req) + " " + safeURL(r.req.URL),
		url:      r.req.URL.String(),
		ended:    r.ctx.Err(),
	}
}

// durations returns how long the attempt took, how long it was queued, and how long the
// call has taken. A time that is not known or zero is left out.
func (r *report) durations(d *decision) (attrs []slog.Attr) {
	add := func(key string, took time.Duration) {
		if took = took.Round(time.Millisecond); took > 0 {
			attrs = append(attrs, slog.Duration(key, took))
		}
	}
	add("duration", d.Duration)
	add("queued", d.queued.Total())
	switch d.reason {
	case ReasonRetry, ReasonResume, ReasonHedged, ReasonOutrun: // the call goes on
	default:
		if !r.began.IsZero() {
			add("elapsed", d.Time.Sub(r.began))
		}
	}
	return attrs
}

// resumed logs that a reconnect continues a body. took is the time since the cut.
func (r *report) resumed(attempt int, took time.Duration) {
	if r.t.logger == nil || !r.t.logger.Enabled(r.ctx, slog.LevelInfo) {
		return
	}
	r.t.logger.LogAttrs(r.ctx, slog.LevelInfo, "resumed",
		slog.String("method", method(r.req)),
		slog.String("url", safeURL(r.req.URL)),
		slog.Int("attempt", attempt),
		slog.Int64("offset", r.offset),
		slog.Duration("duration", took.Round(time.Millisecond)),
	)
}
