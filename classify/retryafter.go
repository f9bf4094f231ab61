// What does Retry-After say, in all its forms?

package classify

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// RetryAfter reads the Retry-After field (RFC 9110 §10.2.3) of an answer of
// status 400 or above: a number of seconds in plain decimal digits, or a date in
// any of the three forms of §5.6.7, measured from the response's Date field,
// plus its Age if it comes from a cache (without a Date, from the local clock).
// A date in the past means "at once". Of several fields the longest wait counts,
// also where a gateway has joined numbers by commas. A fraction ("2.0", which
// Shopify sends) is accepted, although the RFC has whole seconds only: to ignore
// it would be to come back too early.
//
// Some servers send the time at which to come back as a Unix time. A number of
// 500,000,000 or more, which would be a wait of sixteen years, is taken for
// such an instant, unless it lies more than a day before the Date: then it is
// no instant either, and stays a number of seconds.
func RetryAfter(o Outcome) (time.Duration, bool) {
	if !o.failed() {
		return 0, false
	}
	values := o.Response.Header["Retry-After"]
	if len(values) == 0 {
		return 0, false
	}
	ref := received(o.Response.Header)
	return longest(values, func(v string) (time.Duration, bool) { return retryAfter(v, ref) })
}

// RetryAfterMillis reads the fields that give the wait in milliseconds:
// retry-after-ms, else x-ms-retry-after-ms (both Azure and OpenAI, in their
// order), else x-amz-retry-after (AWS), of an answer of status 400 or above.
func RetryAfterMillis(o Outcome) (time.Duration, bool) {
	if !o.failed() {
		return 0, false
	}
	for _, key := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After"} {
		if wait, ok := longest(o.Response.Header[key], millis); ok {
			return wait, true
		}
	}
	return 0, false
}

func retryAfter(s string, ref time.Time) (time.Duration, bool) {
	s = trim(s)
	if wait, ok := secondsOrInstant(s, ref); ok {
		return wait, true
	}
	if at, ok := httpDate(s, ref); ok {
		return max(at.Sub(ref), 0), true // Sub stops at the longest Duration
	}
	// Several fields joined to one. A date has a comma of its own.
	var wait time.Duration
	for part := range strings.SplitSeq(s, ",") {
		d, ok := secondsOrInstant(part, ref)
		if !ok {
			return 0, false
		}
		wait = max(wait, d)
	}
	return wait, true
}

func millis(s string) (time.Duration, bool) { return decimal(trim(s), time.Millisecond) }

func seconds(s string) (time.Duration, bool) { return decimal(trim(s), time.Second) }

const (
	// oldestInstant is the number from which on seconds are taken for a Unix
	// time: November 1985, or a wait of sixteen years.
	oldestInstant = 500_000_000
	// latestInstant is the end of the year 9999.
	latestInstant = 253_402_300_799
	// oldestMilli and latestMilli bound a Unix time in milliseconds: 2001 to
	// 2286, far beyond latestInstant.
	oldestMilli = 1_000_000_000_000
	latestMilli = 9_999_999_999_999
	// stale is how far in the past an instant may lie and still be one.
	stale = 24 * time.Hour
)

// secondsOrInstant reads seconds from now, or a Unix time: see RetryAfter.
func secondsOrInstant(s string, ref time.Time) (time.Duration, bool) {
	s = trim(s)
	whole, nanos, ok := number(s)
	if !ok {
		return 0, false
	}
	if wait, ok := untilInstant(whole, nanos, ref); ok {
		return wait, true
	}
	return scale(whole, nanos, time.Second), true
}

// untilInstant takes a number for a Unix time, if it can be one.
func untilInstant(whole, nanos int64, ref time.Time) (time.Duration, bool) {
	if whole < oldestInstant || whole > latestInstant {
		return 0, false
	}
	wait := time.Unix(whole, nanos).Sub(ref)
	return max(wait, 0), wait >= -stale
}

// decimal reads digits, with a fraction or without, as a number of units. Signs,
// exponents, spaces and names of numbers are not accepted. The unit is at most
// a second.
func decimal(s string, unit time.Duration) (time.Duration, bool) {
	whole, nanos, ok := number(s)
	return scale(whole, nanos, unit), ok
}

// scale multiplies, and stops at the longest Duration instead of overflowing.
// The fraction is in billionths, up to and including one whole.
func scale(whole, billionths int64, unit time.Duration) time.Duration {
	rest := (billionths*int64(unit) + 999_999_999) / 1_000_000_000
	if whole > (math.MaxInt64-rest)/int64(unit) {
		return math.MaxInt64
	}
	return time.Duration(whole*int64(unit) + rest)
}

// number reads digits, and after a point further digits, as a whole number that
// stops at MaxInt64 and a fraction in billionths, rounded up.
func number(s string) (whole, billionths int64, ok bool) {
	head, tail, point := strings.Cut(s, ".")
	if !digits(head) || point && !digits(tail) {
		return 0, 0, false
	}
	for i := range len(head) {
		d := int64(head[i] - '0')
		if whole > (math.MaxInt64-d)/10 {
			whole = math.MaxInt64
			break
		}
		whole = whole*10 + d
	}
	unit := int64(100_000_000)
	for i := range len(tail) {
		if unit == 0 {
			if tail[i] != '0' {
				billionths++
				break
			}
			continue
		}
		billionths += unit * int64(tail[i]-'0')
		unit /= 10
	}
	return whole, billionths, true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// trim takes off the white space that may stand around a field's value
// (RFC 9110 §5.6.3). A value longer than fieldLimit comes back empty, which is
// no value in any of the forms read here: net/http lets ten megabytes of header
// through, and reading them for every answer would cost a second each.
func trim(s string) string {
	if len(s) > fieldLimit {
		return ""
	}
	return strings.Trim(s, " \t")
}

// The two obsolete forms of a date, which a recipient must accept (RFC 9110
// §5.6.7). The preferred one is http.TimeFormat. All are in GMT, and say so;
// asctime does by leaving it out.
const (
	rfc850  = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime = "Mon Jan _2 15:04:05 2006"
)

// httpDate reads a date in any of the three forms. ref is where a year of two
// digits is sought.
func httpDate(s string, ref time.Time) (time.Time, bool) {
	s = trim(s)
	if s == "" {
		return time.Time{}, false
	}
	for _, form := range [...]string{http.TimeFormat, asctime} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	t, err := time.Parse(rfc850, s)
	if err != nil {
		return time.Time{}, false
	}
	return nearCentury(t, ref)
}

// nearCentury moves a date whose year had two digits to the latest such year
// that is not more than 50 years after ref (RFC 9110 §5.6.7). The time package
// has a fixed pivot instead: 69 to 99 mean the last century for ever. ok is
// false for a 29 February that the year found does not have.
func nearCentury(t, ref time.Time) (_ time.Time, ok bool) {
	ref = ref.UTC()
	limit := ref.AddDate(50, 0, 0)
	year := limit.Year() - ((limit.Year()-t.Year())%100+100)%100
	at := inYear(t, year)
	if at.After(limit) {
		year -= 100
		at = inYear(t, year)
	}
	return at, at.Day() == t.Day()
}

func inYear(t time.Time, year int) time.Time {
	return time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
