// The story of a request, as text.

package transport

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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
	s := account{resp: resp, err: err}
	e, isOurs := errors.AsType[*Error](err)
	whole, isURL := errors.AsType[*url.Error](err)
	switch {
	case resp == nil && err == nil:
		return "no request"
	case isOurs:
		s.known = *e
	case isURL:
		shown := redact.Hidden // any part of a text that is no URL may be secret
		if u, err := url.Parse(whole.URL); err == nil {
			shown = redact.URL(u)
		}
		s.known.request, s.known.url = strings.ToUpper(whole.Op)+" "+shown, whole.URL
	}
	if resp != nil {
		s.known.History = HistoryOf(resp, nil)
		if req := resp.Request; req != nil && req.URL != nil {
			s.known.request, s.known.url = method(req)+" "+redact.URL(req.URL), req.URL.String()
		}
	}
	var b redact.Sentence
	b.WriteString(cmp.Or(s.known.request, "a request"))
	for i := range s.known.Attempts {
		a := &s.known.Attempts[i]
		at := cmp.Or(a.Start, a.at).Sub(s.known.began)
		fmt.Fprintf(&b, "\n  attempt %d, at %v: %s", a.Number, redact.Rough(at), s.outcomeText(a))
	}
	b.WriteString(s.known.held.text("\n  waited ") + "\n  " + s.lastSentence())
	b.Add(s.known.leftOut > 0, ", attempts left out: %d", s.known.leftOut)
	took := redact.Rough(s.known.took)
	b.Add(!s.known.began.IsZero() && took > 0, ", after %v in all", took)
	return b.String()
}

// An account has the known facts of a request that has ended.
type account struct {
	known Error          // from an Error, a History or a URL
	resp  *http.Response // nil: none
	err   error          // that the caller got, or nil
}

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
	_, isURL := s.err.(*url.Error) // an http.Client returns it beside a response that it did not follow
	final := s.known.Reason == "" || s.known.Reason == ReasonFinal
	why := ": " + s.known.whyText() + s.known.untilText()
	n := len(s.known.Attempts)
	var b redact.Sentence
	switch failed := s.resp == nil || isURL; {
	case failed && final:
		return "failed: " + causeOf(cmp.Or(s.known.Err, s.err), s.known.url)
	case failed && n == 0 && !s.known.ofBody:
		return "not sent" + why
	case failed:
		return "failed" + why
	}
	fmt.Fprintf(&b, "status %d", s.resp.StatusCode)
	b.Add(n == 0, " at the first attempt")
	switch {
	case s.err != nil:
		return b.String() + s.bodyText()
	case !final:
		return b.String() + why
	}
	resumes := downloadOf(s.resp).countResumes()
	b.Add(n > 0, ", the caller has it")
	b.Add(resumes > 0, ", its body was cut and went on")
	b.Add(resumes > 1, " %d times", resumes)
	return b.String()
}

// bodyText says how the body of a response failed, and why nothing continued it.
func (s *account) bodyText() string {
	cut, why := s.err, error(nil)
	if end, ok := errors.AsType[*bodyError](downloadOf(s.resp).endOf(s.err)); ok {
		cut, why = end.last, end.why
	} else if s.resp.Request != nil && s.resp.Body != http.NoBody && s.resp.ContentLength != 0 {
		o := optionsOf(s.resp.Request.Context())
		_, why = resume.Check(s.resp.Request, s.resp, &resume.Terms{Again: 1, Repeatable: o != nil && o.sending == sendRepeatable})
	}
	text := fmt.Sprintf(", and its body failed (%s)", causeOf(cut, s.known.url))
	if why != nil {
		text += ": " + causeOf(why, s.known.url)
	}
	return text
}
