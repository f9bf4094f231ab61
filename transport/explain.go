// The story of a request, as text.

package transport

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/resume"
)

// Explain tells the story of a request in a few lines of plain text. It has the method and the URL,
// the attempts with their times since the start, their outcomes and waits, and the limits that held
// the request. It says why the request ended, and how long it took. resp and err are the results of a
// Transport, of an http.Client above it, or of reading a body. Either may be nil. The text has no
// userinfo, query values and fragments of URLs, and no line feed at its end. It is for people, and
// may change between versions.
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
		s.known = *e
	case isURL:
		s.known.url = whole.URL
		s.known.request = strings.ToUpper(whole.Op) + " " + redact.Hidden // any part of a text that is no URL may be secret
		if u, err := url.Parse(whole.URL); err == nil {
			s.known.request = strings.ToUpper(whole.Op) + " " + redact.URL(u)
		}
	}
	if resp != nil {
		s.resp = resp
		h := HistoryOf(resp, nil)
		s.known.History, s.status = h, resp.StatusCode
		if req := resp.Request; req != nil && req.URL != nil {
			s.known.request, s.known.url = method(req)+" "+redact.URL(req.URL), req.URL.String()
		}
	}
	return s.String()
}

// An account has the known facts of a request that has ended.
type account struct {
	known  Error          // from an Error, a History or a URL
	resp   *http.Response // nil: none
	status int            // of the response, or 0
	err    error          // that the caller got, or nil
}

func (s *account) String() string {
	var b redact.Sentence
	b.WriteString(cmp.Or(s.known.request, "a request"))
	start := s.known.began
	for i := range s.known.Attempts {
		a := &s.known.Attempts[i]
		if start.IsZero() {
			start = a.sentAt()
		}
		fmt.Fprintf(&b, "\n  attempt %d, at %v: %s", a.Number, redact.Rough(a.sentAt().Sub(start)), s.outcomeText(a))
	}
	b.WriteString(s.known.held.text("\n  waited ") + "\n  " + s.lastSentence())
	b.Add(s.known.leftOut == 1, ", 1 attempt left out")
	b.Add(s.known.leftOut > 1, ", %d attempts left out", s.known.leftOut)
	took := redact.Rough(s.known.took)
	b.Add(!s.known.began.IsZero() && took > 0, ", after %v in all", took)
	return b.String()
}

// sentAt returns when the attempt was sent, or when it had ended if that is not known.
func (a *Attempt) sentAt() time.Time { return cmp.Or(a.Start, a.at) }

// outcomeText tells the outcome of an attempt, and the wait that followed.
func (s *account) outcomeText(a *Attempt) string {
	var b redact.Sentence
	b.WriteString(a.outcome(s.known.url))
	took := redact.Rough(a.Duration)
	b.Add(took > 0, " after %v", took)
	b.Add(a.Addr != "", " from %s", a.Addr)
	b.WriteString(held{a.Waited, a.WaitedFor}.text(", had waited "))
	b.Add(a.Kind == AttemptHedge, ", a hedge")
	b.Add(a.RetryAfter > 0, ", asks to wait %v", redact.Rough(a.RetryAfter))
	b.Add(a.Delay > 0, ", retry after %v", redact.Rough(a.Delay))
	return b.String()
}

// text says behind some words for how long a limit held a request, and which. It is "" if none did.
func (h held) text(words string) string {
	took := redact.Rough(h.waited)
	if took == 0 {
		return ""
	}
	why := cmp.Or(map[Reason]string{
		ReasonCircuitOpen: "in line while the host was down",
		ReasonRetryBudget: "in line for a retry",
		ReasonThrottled:   "for the server",
		ReasonQuota:       "for the quota",
		ReasonRateLimit:   "for the rate limit",
	}[h.by], "for the concurrency limit")
	return fmt.Sprintf("%s%v %s", words, took, why)
}

// lastSentence tells the caller's result, and why there was no further attempt.
func (s *account) lastSentence() string {
	n := len(s.known.Attempts)
	var b redact.Sentence
	switch {
	case s.bodyFailed():
		return s.bodyText()
	case s.err == nil && n == 0:
		return fmt.Sprintf("status %d at the first attempt%s", s.status, s.continuedText())
	case s.err == nil && s.known.Reason == ReasonFinal:
		return fmt.Sprintf("status %d, the caller has it%s", s.status, s.continuedText())
	case s.err == nil:
		fmt.Fprintf(&b, "status %d", s.status)
	case n == 0 && s.known.Reason != "" && s.known.Reason != ReasonFinal:
		b.WriteString("not sent")
	default:
		return "failed: " + s.failure()
	}
	b.WriteString(": " + s.known.whyText() + s.known.untilText())
	return b.String()
}

// bodyFailed reports whether the error is that of the body of a response.
func (s *account) bodyFailed() bool {
	_, isURL := s.err.(*url.Error) // an http.Client returns it beside a response that it did not follow
	return s.resp != nil && s.err != nil && !isURL
}

// continuedText says how often the body of a response was continued so far.
func (s *account) continuedText() string {
	switch n := downloadOf(s.resp).countResumes(); n {
	case 0:
		return ""
	case 1:
		return ", its body was cut and went on"
	default:
		return fmt.Sprintf(", its body was cut and went on %d times", n)
	}
}

// bodyText says how the body of a response failed, and why nothing continued it.
func (s *account) bodyText() string {
	cut, why := s.err, error(nil)
	end, ended := errors.AsType[*cutError](downloadOf(s.resp).endOf(nil))
	switch e, ok := errors.AsType[*cutError](s.err); {
	case ok:
		cut, why = e.cut, e.cause
	case ended:
		why = end.cause
	case s.resp.Request != nil && s.resp.Body != http.NoBody && s.resp.ContentLength != 0:
		o := optionsOf(s.resp.Request.Context())
		_, why = resume.Check(s.resp.Request, s.resp, &resume.Terms{Again: 1, Repeatable: o != nil && o.sending == sendRepeatable})
	}
	var b redact.Sentence
	fmt.Fprintf(&b, "status %d", s.status)
	b.Add(len(s.known.Attempts) == 0, " at the first attempt")
	fmt.Fprintf(&b, ", and its body failed (%s)", causeOf(cut, s.known.url))
	if why != nil {
		b.WriteString(": " + causeOf(why, s.known.url))
	}
	return b.String()
}

// failure says why the request ended with an error.
func (s *account) failure() string {
	err := s.err
	if e, ok := errors.AsType[*Error](err); ok {
		if err = e.Err; s.known.Reason != ReasonFinal || err == nil {
			return s.known.whyText()
		}
	}
	return causeOf(err, s.known.url)
}
