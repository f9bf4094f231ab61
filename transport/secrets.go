// Texts without secrets, of what only this package knows.

package transport

import (
	"errors"
	"net/url"
	"slices"
	"strconv"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// SafeError returns the text of an error without userinfo, query values and fragments of
// the URLs in it. u is the URL of the request, or nil.
func SafeError(err error, u *url.URL) string {
	switch {
	case err == nil:
		return ""
	case u == nil:
		return safeText(err)
	}
	return safeText(err, u.String())
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
func withoutSecrets(err error, known string) error {
	if err == nil {
		return nil
	}
	if text := safeText(err, known); text != err.Error() {
		return &safeErr{err, text}
	}
	return err
}

// safeText returns the text of an error without the secrets of URLs. The caller knows
// that the text may contain the URLs in known.
func safeText(err error, known ...string) string { return redact.Text(err, ownURLs(err, known)...) }

// causeOf says in a few words what is wrong, without secrets.
func causeOf(err error, known ...string) string { return redact.Cause(err, ownURLs(err, known)...) }

// ownURLs adds the URLs of this package's errors in the tree of err.
func ownURLs(err error, known []string) []string {
	for e := range redact.Tree(err) {
		if e, ok := e.(*Error); ok {
			known = append(known, e.url)
		}
	}
	return known
}

// connects are the types of errors whose texts say that there was no connection.
var connects = [...]classify.ErrorType{classify.ErrorDNS, classify.ErrorDial, classify.ErrorTLS}

// outcome says in a few words what came of an attempt.
func (a *Attempt) outcome(known ...string) string {
	body, ofBody := errors.AsType[*bodyError](a.Err)
	switch {
	case ofBody && a.Status != 0:
		return strconv.Itoa(a.Status) + ", and the request's body cannot be sent again (" + causeOf(body.why, known...) + ")"
	case ofBody && body.last != nil:
		return causeOf(body.last, known...) + ", and the request's body cannot be sent again (" + causeOf(body.why, known...) + ")"
	case a.Err != nil && a.unsent && !slices.Contains(connects[:], classify.ErrorTypeOf(a.Err)):
		return "no connection: " + causeOf(a.Err, known...)
	case a.Err != nil:
		return causeOf(a.Err, known...)
	case a.Status/100 == 2 && retryable(a.Class):
		return strconv.Itoa(a.Status) + " with an error inside"
	}
	return strconv.Itoa(a.Status)
}
