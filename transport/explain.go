// The story of one request, as text.

package transport

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// reasonTexts say why there is no further attempt, as the end of a sentence.
var reasonTexts = [...]string{
	ReasonFinal:         "another attempt would not change it",
	ReasonRetry:         "it is retried",
	ReasonNotIdempotent: "the server may have acted, and it could do harm to act twice",
	ReasonNotReplayable: "the request's body cannot be sent again",
	ReasonBodyBusy:      "the request's body is still being read",
	ReasonSentOnce:      "the caller allows one attempt",
	ReasonRetriesOff:    "the rule allows one attempt",
	ReasonNested:        "a Transport below gave up",
	ReasonCanceled:      "the caller hung up",
	ReasonTimeout:       "the caller's time is up",
	ReasonAttempts:      "all attempts are used up",
	ReasonMaxElapsed:    "the rule's time for retries is over",
	ReasonDeadline:      "its turn would come after the caller's deadline",
	ReasonMaxRetryAfter: "the wait is longer than the rule allows",
	ReasonBackoffStop:   "the back-off ends here",
	ReasonCooldown:      "the host asked for a longer wait than the rule allows",
	ReasonBudget:        "the host's retry budget is used up",
	ReasonGateFull:      "too many requests are in flight",
	ReasonHedged:        "a second attempt goes beside it",
	ReasonOutrun:        "another attempt was faster",
	ReasonResume:        "the rest of its body is asked for",
	ReasonResumeMax:     "too many reconnects brought no progress",
	ReasonMismatch:      "the rest is not of the same body",
	ReasonNotResumable:  "nothing can continue its body",
}

// textOf returns the text of a reason.
func textOf(r Reason) string {
	if r < reasons {
		return reasonTexts[r]
	}
	return r.String()
}

// Explain tells the story of one request in a few lines of plain text: its method and URL,
// its attempts with their times, outcomes and waits, the limits that held it, and why it
// ended. resp and err are the results of a Transport, of an http.Client above it, or of
// reading a body. Either may be nil. The text has no userinfo, query values and fragments of
// URLs, and no line feed at its end. It is for people, and may change between versions.
//
// A response that came at the first attempt without a wait has no story (see [HistoryOf]).
// Neither has an error if http.Client.Timeout fired, which net/http replaces by its own.
func Explain(resp *http.Response, err error) string {
	s := account{err: err}
	e, isOurs := errors.AsType[*Error](err)
	whole, isURL := errors.AsType[*url.Error](err)
	switch {
	case resp == nil && err == nil:
		return "no request"
	case isOurs:
		s.request, s.url, s.reason, s.limit, s.attempts, s.until, s.queued = e.request, e.url, e.Reason, e.Limit, e.Attempts, e.Until, e.queued
	case isURL:
		s.url = whole.URL
		s.request = strings.ToUpper(whole.Op) + " " + hidden // nobody knows what is secret in a text that is no URL
		if u, err := url.Parse(whole.URL); err == nil {
			s.request = strings.ToUpper(whole.Op) + " " + safeURL(u)
		}
	}
	if resp != nil {
		h := HistoryOf(resp)
		s.reason, s.attempts, s.status = h.Reason, h.Attempts, resp.StatusCode
		if resp.Request != nil {
			s.request, s.url = method(resp.Request)+" "+safeURL(resp.Request.URL), resp.Request.URL.String()
		}
	}
	return s.String()
}

// An account is what is known of a request that has ended.
type account struct {
	request  string // method and URL, without secrets
	url      string // with its secrets
	attempts []Attempt
	status   int   // of the response, or 0
	err      error // that the caller got, or nil
	reason   Reason
	limit    string
	queued   Queued // before the request was refused
	until    time.Time
}

func (s *account) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(s.request, "a request"))
	var start time.Time
	for i := range s.attempts {
		a := &s.attempts[i]
		if i == 0 {
			start = a.began()
		}
		fmt.Fprintf(&b, "\n  attempt %d, at %v: %s", a.Number, rough(a.began().Sub(start)), s.outcome(a))
	}
	if held := s.queued.text(); held != "" {
		b.WriteString("\n  waited " + held)
	}
	b.WriteString("\n  " + s.end())
	return b.String()
}

// began returns when the attempt was sent, or when it had ended if that is not known.
func (a *Attempt) began() time.Time {
	if a.Start.IsZero() {
		return a.Time
	}
	return a.Start
}

// outcome says what came of an attempt, and what followed.
func (s *account) outcome(a *Attempt) string {
	var b strings.Builder
	switch {
	case a.Err != nil:
		b.WriteString(causeOf(a.Err, s.url))
	default:
		b.WriteString(strconv.Itoa(a.Status))
	}
	if took := rough(a.Duration); took > 0 {
		fmt.Fprintf(&b, " after %v", took)
	}
	if a.Addr != "" {
		b.WriteString(" from " + a.Addr)
	}
	if held := a.Queued.text(); held != "" {
		b.WriteString(", had waited " + held)
	}
	if a.Kind == KindHedge {
		b.WriteString(", a hedge")
	}
	if a.Hint > 0 {
		fmt.Fprintf(&b, ", asks to wait %v", rough(a.Hint))
	}
	if a.Wait > 0 {
		fmt.Fprintf(&b, ", retry after %v", rough(a.Wait))
	}
	return b.String()
}

// text names the limits that held a request, and for how long.
func (q Queued) text() string {
	var all []string
	for _, part := range [...]struct {
		limit string
		took  time.Duration
	}{{limitCooldown, q.Cooldown}, {limitPacing, q.Pacing}, {limitRate, q.Rate}, {limitGate, q.Gate}} {
		if took := rough(part.took); took > 0 {
			all = append(all, fmt.Sprintf("%v for the %s", took, part.limit))
		}
	}
	return strings.Join(all, " and ")
}

// end says what the caller got, and why there was nothing more.
func (s *account) end() string {
	n := len(s.attempts)
	var b strings.Builder
	switch {
	case s.err == nil && n == 0:
		return fmt.Sprintf("status %d at the first attempt", s.status)
	case s.err == nil && s.reason == ReasonFinal:
		return fmt.Sprintf("status %d, the caller has it", s.status)
	case s.err == nil:
		fmt.Fprintf(&b, "status %d", s.status)
	case n == 0 && s.reason != ReasonFinal:
		b.WriteString("not sent")
	default:
		return "failed: " + s.failure()
	}
	b.WriteString(": " + textOf(s.reason))
	if s.limit != "" {
		b.WriteString(" (" + s.limit + ")")
	}
	if !s.until.IsZero() {
		b.WriteString(", try again at " + s.until.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// failure says why the request ended with an error.
func (s *account) failure() string {
	err := s.err
	if e, ok := errors.AsType[*Error](err); ok {
		if err = e.Err; s.reason != ReasonFinal || err == nil {
			return textOf(s.reason)
		}
	}
	return causeOf(err, s.url)
}
