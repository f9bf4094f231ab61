// Who is told what came of an attempt?

package transport

import (
	"log/slog"
	"net/http"
	"time"
)

// observed reports whether anybody listens.
func (x *exchange) observed() bool {
	return x.t.trace != nil || x.t.logger != nil || x.options != nil && x.options.trace != nil
}

// observe records an attempt and tells the traces and the log. A success on
// the first try is not recorded: nobody will ask how it came.
func (x *exchange) observe(resp *http.Response, d *decision) {
	if x.sent > 1 || d.Err != nil || d.reason != ReasonFinal {
		x.history = append(x.history, d.Attempt)
	}
	x.tell(resp, d)
}

// tell reports to the traces and the log.
func (x *exchange) tell(resp *http.Response, d *decision) {
	if x.observed() {
		x.trace(resp, d)
		x.log(d)
	}
}

func (x *exchange) trace(resp *http.Response, d *decision) {
	own := x.t.trace
	var asked *Trace
	if x.options != nil {
		asked = x.options.trace
	}
	if (own == nil || own.Event == nil) && (asked == nil || asked.Event == nil) {
		return
	}
	e := Event{
		Attempt:  d.Attempt,
		Request:  x.req,
		Host:     safeKey(x.state.Key()),
		Response: resp,
		Offset:   x.offset,
		Reason:   d.reason,
	}
	for _, t := range [...]*Trace{own, asked} {
		if t != nil && t.Event != nil {
			t.Event(e)
		}
	}
}

// line returns what the log calls an event; an empty message is not logged. A
// success on the first try is what everybody expects.
func (x *exchange) line(d *decision) (slog.Level, string) {
	switch {
	case d.reason == ReasonRetry:
		return slog.LevelInfo, "retry"
	case d.reason == ReasonResume:
		return slog.LevelInfo, "resume"
	case d.reason == ReasonResumeMax, d.reason == ReasonMismatch:
		return slog.LevelWarn, "not resumed"
	case d.reason == ReasonHedged:
		return slog.LevelInfo, "hedged"
	case d.reason == ReasonOutrun:
		return slog.LevelDebug, "outrun"
	case d.reason == ReasonFinal && d.Err == nil && x.sent > 1:
		return slog.LevelInfo, "answered after retries"
	case d.reason == ReasonFinal && d.Err == nil:
		return 0, ""
	case d.reason == ReasonFinal, d.reason == ReasonCanceled, d.reason == ReasonSentOnce, d.reason == ReasonRetriesOff:
		return slog.LevelInfo, "failed"
	}
	return slog.LevelWarn, "gave up"
}

func (x *exchange) log(d *decision) {
	if x.t.logger == nil {
		return
	}
	level, msg := x.line(d)
	if msg == "" {
		return
	}
	if !x.t.logger.Enabled(x.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method(x.req)),
		slog.String("url", safeURL(x.req.URL)),
		slog.Int("attempt", d.Number),
		slog.String("reason", d.reason.String()),
	}
	if d.Status != 0 {
		attrs = append(attrs, slog.Int("status", d.Status))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.String("error", safeText(d.Err, x.req.URL.String())))
	}
	if x.offset > 0 {
		attrs = append(attrs, slog.Int64("offset", x.offset))
	}
	if d.reason == ReasonRetry || d.reason == ReasonResume {
		attrs = append(attrs, slog.Duration("wait", d.Wait.Round(time.Millisecond)))
	}
	x.t.logger.LogAttrs(x.ctx, level, msg, attrs...)
}
