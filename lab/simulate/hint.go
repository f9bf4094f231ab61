// The waits that servers ask for, in every form that servers use.

package simulate

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A told is a wait that a server asks for. The wait is drawn first and then
// written into the header, so the oracles know it without parsing.
type told struct {
	wait time.Duration
	form hintForm
}

// A hintForm is a form of a wait. The forms from badHints on ask for no wait.
type hintForm int

const (
	noHint hintForm = iota
	plainSeconds
	withDate
	againstDate // a date, measured from a Date field of a clock that is wrong
	millis
	joined // several values; the longest counts
	rateLimit
	xRateLimit
	garbage
	past
	negative
	empty
	hintForms
	badHints = garbage
)

func (f hintForm) String() string {
	return [...]string{"none", "seconds", "date", "date of a wrong clock", "milliseconds", "several", "RateLimit", "X-RateLimit",
		"garbage", "a past date", "negative", "empty"}[f]
}

// newTold draws a wait, or a malformed hint.
func newTold(d dice.Dice) told {
	if d.Chance(20) {
		return told{form: badHints + hintForm(d.IntN(int(hintForms-badHints)))}
	}
	t := told{form: 1 + hintForm(d.IntN(int(badHints-1)))}
	t.wait = d.Between(time.Second, 90*time.Second)
	if d.Chance(10) {
		t.wait = d.Between(time.Minute, 3*time.Hour)
	}
	t.wait = t.wait.Truncate(time.Second) // as most forms do
	return t
}

// write puts the wait into a response's header.
func (t told) write(h http.Header) {
	seconds := strconv.FormatInt(int64(t.wait/time.Second), 10)
	// The bubble's clock starts at a whole second and Date has whole seconds,
	// so the wait is exact if it is counted from the Date.
	date := time.Now().UTC().Truncate(time.Second)
	switch t.form {
	case plainSeconds:
		h.Set("Retry-After", seconds)
	case withDate:
		h.Set("Date", date.Format(http.TimeFormat))
		h.Set("Retry-After", date.Add(t.wait).Format(http.TimeFormat))
	case againstDate:
		date = date.Add(-37 * time.Hour)
		h.Set("Date", date.Format(http.TimeFormat))
		h.Set("Retry-After", strings.Replace(date.Add(t.wait).Format(time.RFC850), "UTC", "GMT", 1))
	case millis:
		h.Set("Retry-After-Ms", strconv.FormatInt(t.wait.Milliseconds(), 10))
	case joined:
		h["Retry-After"] = []string{"0", seconds, "garbage"}
	case rateLimit:
		h.Set("RateLimit", fmt.Sprintf(`"q";r=0;t=%s`, seconds))
		h.Set("RateLimit-Policy", `"q";q=100;w=60`)
	case xRateLimit:
		h.Set("X-Ratelimit-Remaining", "0")
		h.Set("X-Ratelimit-Reset", seconds)
	case garbage:
		h.Set("Retry-After", "soon")
	case past:
		h.Set("Retry-After", date.Add(-time.Hour).Format(http.TimeFormat))
	case negative:
		h.Set("Retry-After", "-5")
	case empty:
		h.Set("Retry-After", "")
	}
}

// holdsFor reports whether a response of a status asks for the wait. The reset
// of a quota counts only if the response turns the client away.
func (t told) holdsFor(status int) bool {
	return t.wait > 0 && (t.form != rateLimit && t.form != xRateLimit || status == http.StatusTooManyRequests)
}
