// The errors that a Transport returns.

package transport

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/trait"
)

// ErrNotSent is in the [Error] of a request that was not sent: a limit of its host withheld
// it, or its context ended while it waited at a limit. Its Reason says which.
var ErrNotSent = errors.New("transport: not sent")

var (
	errLate    error = &attempt.TimeoutError{Text: "transport: its turn would come after the deadline"}
	errOverdue       = errors.New("transport: its turn would come later than the rule allows")
)

// A bodyError says why the body of a request could not be sent again, or why that of a response that
// was cut did not go on. errors.Is and errors.As see the error of the last attempt or of the cut first.
type bodyError struct {
	last       error // of the last attempt or of the cut; nil after a response
	why        error
	ofResponse bool
	url        string // of the request, whose secrets are hidden in both texts; "": not known
}

func (e *bodyError) Error() string {
	text := "the request's body cannot be sent again: "
	if e.ofResponse {
		text = "not resumed: "
	}
	if text += partText(e.why, e.url); e.last != nil {
		text = partText(e.last, e.url) + "; " + text
	}
	return text
}

// GoString returns the text of the error for %#v, which would print secrets otherwise.
func (e *bodyError) GoString() string { return goString(e) }

func goString(e error) string { return fmt.Sprintf("%T(%q)", e, e.Error()) }

func (e *bodyError) Unwrap() []error {
	if e.last == nil {
		return []error{e.why}
	}
	return []error{e.last, e.why}
}

func (e *bodyError) Timeout() bool { return trait.Timeout(e.last) || trait.Timeout(e.why) }

func (e *bodyError) Temporary() bool { return trait.Temporary(e.last) || trait.Temporary(e.why) }

// An Error tells more than the error of the base transport. A Transport returns it
// after several attempts, if a retry was due and there was none, and for a request that it
// refused to send. The Reason says why. errors.Is and errors.As see Err in it, and Timeout reports the
// same as Err does, but a comparison by == does not hold. The error of a single attempt is returned as
// it is if no retry was due: if it is final, and if the caller's context has ended. So are
// tls.RecordHeaderError, of which http.Client asserts the type, and http.ErrSkipAltProtocol. The error
// of a context that ended before the request was sent is returned as it is as well, unless a limit
// made the request wait.
//
// It also ends the body of a response that was cut, and that could not be continued to its end.
// Every byte before the error is good. errors.Is and errors.As then see the error of the cut and
// the cause that prevented the continuation. As long as no byte came from a second response, the reader
// gets the error of the cut instead, as the base transport gave it. So a caller may compare it with
// io.ErrUnexpectedEOF. Only if the caller's context has ended meanwhile, the reader gets an Error
// all the same.
//
// When http.Client.Timeout fires, net/http replaces this error by a text of its own.
// Only a [Trace] then has the history. http.Client wraps any error into a *url.Error
// that prints the whole URL. If queries are secret, log the Error that errors.As finds
// inside.
type Error struct {
	// History has the attempts of the call, and says why there was no further attempt. Attempts
	// is empty if the request was refused without being sent.
	History
	// Offset is the number of good bytes of a body that was cut, counted from the beginning of the
	// representation. A new request for the rest begins there. It is 0 for other errors.
	Offset int64
	// Header is that of the last response, if the request waited in vain for its next attempt and the body of the response was
	// too long to be kept meanwhile. Otherwise it is nil.
	Header http.Header
	// Err is the error of the last attempt or of the body. It is nil if the Reason says everything.
	Err error

	request string // method and URL, without secrets, for Explain
	url     string // with its secrets, which Error hides in other texts
	down    string // why the host is down, or ""
	ended   error  // the end of the caller's context; nil: it has not ended
	ofBody  bool   // a body was cut, and this or the request for its rest failed
	single  bool   // it adds a reason to the outcome of a single attempt, and changes no decision of a layer above
}

// errorBelow returns the Error in the tree of err by which a layer above decides, or nil. An Error that
// only adds a reason is as good as the error in it.
func errorBelow(err error) *Error {
	for e := range trait.Tree(err) {
		if e, ok := e.(*Error); ok && !e.single {
			return e
		}
	}
	return nil
}

// isAsserted reports whether net/http looks at the type or at the value of an error, and not at the errors
// in it. http.Client says more about the first, and http.Transport goes on after the second.
func isAsserted(err error) bool {
	_, noTLS := err.(tls.RecordHeaderError)
	return noTLS || err == http.ErrSkipAltProtocol
}

// GoString returns the text of Error for %#v, because the fields have secrets. Both have no pointer
// as receiver, so that a copy of an Error prints the same.
func (e Error) GoString() string { return goString(&e) }

// Error names the number of attempts, a wait in vain, the status of the last response, the reason and the
// last error, or the offset of the cut of a body and why it was not continued. http.Client puts the method and the
// URL before it. Error hides userinfo, query values and fragments in the URL of the request and in all
// other URLs that it finds in the texts of the errors. Other secrets that a base transport writes into
// its errors stay as they are.
func (e Error) Error() string {
	var b redact.Sentence
	b.WriteString("transport: ")
	if cut, ok := e.Err.(*bodyError); ok && cut.ofResponse {
		fmt.Fprintf(&b, "body cut at byte %d: %s", e.Offset, cut.Error())
		return b.String()
	}
	n := len(e.Attempts)
	switch n {
	case 0:
		b.WriteString("not sent: " + e.whyText())
	case 1:
		b.WriteString("not retried")
	default:
		fmt.Fprintf(&b, "gave up after %d attempts", n)
	}
	b.Add(e.leftOut > 0, ", %d left out", e.leftOut)
	b.WriteString(e.held.text(", waited ") + e.lastOutcome())
	toldBefore := n == 0 || n > 1 && e.Reason == ReasonMaxAttempts || e.Reason == ReasonFinal
	b.Add(!toldBefore, " (%s)", e.Reason.words())
	b.WriteString(e.untilText())
	if e.Err != nil {
		b.WriteString(": " + partText(e.Err, e.url))
	}
	return b.String()
}

// whyText says as the end of a sentence why there was no further attempt.
func (e *Error) whyText() string {
	if e.down != "" {
		return e.Reason.text() + " (" + e.down + ")"
	}
	return e.Reason.text()
}

// untilText says when a new request makes sense.
func (e *Error) untilText() string {
	if e.Until.IsZero() {
		return ""
	}
	return ", next try at " + e.Until.UTC().Format(time.RFC3339)
}

// Is reports whether target is [ErrNotSent], and nothing was sent.
func (e *Error) Is(target error) bool {
	return target == ErrNotSent && len(e.Attempts) == 0 && !e.ofBody
}

// lastOutcome names the status of the last response. If there was no response and Err
// is not the error of the last attempt, lastOutcome names that error.
func (e *Error) lastOutcome() string {
	var last error
	for _, a := range slices.Backward(e.Attempts) {
		if a.Status != 0 {
			return ", last status " + strconv.Itoa(a.Status)
		}
		last = cmp.Or(last, a.Err)
	}
	if last != nil && !errors.Is(e.Err, last) {
		return ", last error " + partText(last, e.url)
	}
	return ""
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout. The end of a body is a timeout as well if the
// deadline has passed.
func (e *Error) Timeout() bool {
	return trait.Timeout(e.Err) || e.ofBody && e.Reason == ReasonDeadline && e.ended != nil
}

// GaveUp reports whether a limit withheld a retry that was otherwise due. Code that
// retries around a Transport should not retry such an error, because retries would be
// multiplied. retry.Do does not retry it. It is false if the request or its rule does not allow
// the retry ([ReasonNotIdempotent], [ReasonNotReplayable], [ReasonRetriesOff]), which does not mean
// that a repeat is safe.
func (e *Error) GaveUp() bool {
	return e.Reason == ReasonNested || e.Reason.isLimit() && e.ended == nil
}

// Temporary reports whether Err has a method Temporary that returns true. It makes
// Error a net.Error.
func (e *Error) Temporary() bool { return trait.Temporary(e.Err) }

// A shaken error arose after the handshake of its connection. So a TLS alert in it ended a
// connection that had been made (RFC 8446 §6.2). Only classifiers see it, with
// classify.ErrorTypeOf.
type shaken struct{ error }

func (shaken) HandshakeDone() bool { return true }

func (e shaken) Unwrap() error { return e.error }

// An unanswered error came before any response, and classify does not know it. The dialer of a
// tunnel has errors of its own, for example. Only classifiers see it.
type unanswered struct{ error }

func (unanswered) Unanswered() {}

func (e unanswered) Unwrap() error { return e.error }

// SafeError returns the text of an error without userinfo, query values and fragments of
// the URLs in it. u is the URL of the request, or nil.
func SafeError(err error, u *url.URL) string {
	if err == nil {
		return ""
	}
	return safeText(err, cmp.Or(u, new(url.URL)).String())
}

// A safeErr is another error whose text has secrets. It prints the text without them.
type safeErr struct {
	err  error
	text string
}

func (e *safeErr) Error() string { return e.text }

func (e *safeErr) Unwrap() error { return e.err }

// withoutSecrets returns err if its text has no secrets, and otherwise an error that wraps it and
// prints the text without them.
func withoutSecrets(err error, known *url.URL) error {
	if err == nil {
		return nil
	}
	if text := safeText(err, known.String()); text != err.Error() {
		return &safeErr{err, text}
	}
	return err
}

// safeText returns the text of an error without the secrets of URLs. The caller knows
// that the text may contain the URLs in known.
func safeText(err error, known ...string) string { return redact.Text(err, ownURLs(err, known)...) }

// causeOf returns the cause of err in a few words, without secrets.
func causeOf(err error, known ...string) string { return redact.Cause(err, ownURLs(err, known)...) }

// ownURLs adds the URLs of this package's errors in the tree of err. A base between two Transports may
// have changed the URL, and write a part of its own into the text.
func ownURLs(err error, known []string) []string {
	for e := range trait.Tree(err) {
		if e, ok := e.(*Error); ok {
			known = append(known, e.url)
		}
	}
	return known
}

// partText returns the text of an error as a part of another text.
func partText(err error, known ...string) string {
	return strings.TrimPrefix(safeText(err, known...), "transport: ")
}

// connects are the types of errors whose texts say that there was no connection.
var connects = [...]classify.ErrorType{classify.ErrorDNS, classify.ErrorDial, classify.ErrorTLS}

// outcome tells the outcome of an attempt in a few words.
func (a *Attempt) outcome(known ...string) string {
	err, also := a.Err, ""
	if body, ok := errors.AsType[*bodyError](err); ok && !body.ofResponse && (a.Status != 0 || body.last != nil) {
		err, also = body.last, ", and the request's body cannot be sent again ("+causeOf(body.why, known...)+")"
	}
	switch {
	case err == nil && a.Status/100 == 2 && retryable(a.Class):
		return strconv.Itoa(a.Status) + " with an error inside" + also
	case err == nil:
		return strconv.Itoa(a.Status) + also
	case a.unsent && !slices.Contains(connects[:], classify.ErrorTypeOf(err)):
		return "no connection: " + causeOf(err, known...) + also
	}
	return causeOf(err, known...) + also
}
