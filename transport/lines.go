// The log lines of requests that failed, or that wait for long.

package transport

import (
	"log/slog"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
)

// longLine is the shortest wait of a request that has a line of its own.
const longLine = 10 * time.Second

// A requestLog writes the lines of a request that are no lines of its attempts.
type requestLog struct{ *retrier }

// failed writes the line of a request that ends without success after more than one attempt, or although a retry was
// due that was not turned off. An SDK puts an error of its own in the place of ours, so the line may be all that is left of
// the story. err is nil if the outcome of the last attempt says everything. There is no line if the caller left, for an answer
// that is final, such as a 404, and for a request that was not sent. A limit that keeps requests from the host has a line of
// its own.
func (x requestLog) failed(err error) {
	if x.t.logger == nil {
		return
	}
	tried := x.sent > 1 || x.sent > 0 && (x.gaveUp(x.reason) || x.reason.isOfRequest() && x.reason != ReasonRetriesOff)
	status := x.lastAttempt().Status
	answered := x.reason == ReasonFinal && status > 0 && status < 500
	if !tried || answered || x.reason == ReasonCanceled {
		return
	}
	var delays time.Duration
	for i := range x.history {
		delays += x.history[i].Delay
	}
	var more attrs
	more.add(!x.until.IsZero(), slog.Time("until", x.until.Round(time.Second)))
	more.addTime("waited", x.waited)
	more.add(x.offset > 0, slog.Int64("offset", x.offset))
	x.write("request failed", x.reason, err, delays, more)
}

// waits writes the line of a request that begins a long wait, unless a line about the host told it already.
func (x requestLog) waits(reason Reason, d time.Duration) {
	if d < longLine {
		return
	}
	told := map[Reason]news.Condition{ReasonRetry: news.Down, ReasonThrottled: news.Held, ReasonRateLimit: news.RateLimited}
	if x.State.Machines().News().LastsAnywhere(told[reason]) {
		return
	}
	x.write("request waits", reason, nil, d, nil)
}

// turn writes the line of a request whose turn at a limit comes late, as far as is known. It does not wait if that is later
// than its deadline, or than latest.
func (x requestLog) turn(latest instant.Instant) {
	now := time.Now()
	turn, limit := x.next.permit.Forecast(&x.Request, now)
	until, ok := x.Ctx.Deadline()
	if at := now.Add(turn); ok && !at.Before(until) || latest != 0 && x.Registry.InstantOf(at) > latest {
		return
	}
	x.waits(Reason(limit), turn)
}

// write writes a line about the request, unless the log takes no more of them. It says how many were left out before.
// The line has the status of the last attempt, or an error: err, or else that of the attempt.
func (x requestLog) write(text string, reason Reason, err error, delay time.Duration, more attrs) {
	ctx := x.parentContext()
	if !x.t.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	leftOut, ok := x.State.Machines().News().TakeRequestLine(x.t.registry.Now())
	if !ok {
		return
	}
	all, last, known := attrsOf(&x.call), x.lastAttempt(), x.Req.URL.String()
	all.add(x.sent > 0, slog.Int("attempts", x.sent))
	all.add(true, slog.String("reason", string(reason)))
	all.add(last.Status != 0, slog.Int("status", last.Status))
	switch {
	case err != nil:
		all.addError(err, known)
	case x.sent > 0 && last.Status == 0:
		all.add(true, slog.String("error", last.outcome(known)))
	}
	all.addTime("delay", delay)
	all = append(all, more...)
	all.add(leftOut > 0, slog.Int("lines_left_out", leftOut))
	x.t.logger.LogAttrs(ctx, slog.LevelInfo, text, all...)
}

// waitedFor returns why a retry waits: because the server asked for it, or for the back-off. The time added to a server's
// wait is at most as long.
func (d *decision) waitedFor() Reason {
	if d.retryAfter > 0 && 2*d.retryAfter >= d.delay {
		return ReasonThrottled
	}
	return ReasonRetry
}

// lastAttempt returns the last attempt, or the cut of a body as an attempt.
func (x requestLog) lastAttempt() Attempt {
	if n := len(x.history); n > 0 {
		return x.history[n-1]
	}
	return Attempt{Err: x.last.Err}
}

// notSent writes the line of a request that is not sent, or not again. why may be nil.
func (x requestLog) notSent(h History, why error) {
	if x.t.logger == nil || !x.logsAttempts() {
		return
	}
	all, text := attrsOf(&x.call), "request not sent"
	if len(x.history) > 0 {
		text = "retry not sent"
	}
	all.addError(why, x.Req.URL.String())
	all.add(true, slog.String("reason", string(h.Reason)))
	all.add(!h.Until.IsZero(), slog.Time("until", h.Until.Round(time.Second)))
	all.addTime("waited", h.held.waited)
	x.t.logger.LogAttrs(x.Ctx, slog.LevelDebug, text, all...)
}
