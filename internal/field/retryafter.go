// Retry-After in all its forms, and the numbers and dates in header fields.

package field

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads the Retry-After field (RFC 9110 §10.2.3) of
// responses of status 400 or above. The field holds one of these:
//
//   - A number of seconds. A fraction such as "2.0" is accepted, because Shopify
//     sends it, although the RFC allows whole seconds only. If it were ignored,
//     the request would come back too early.
//   - A time with a unit, such as "30s", "1m30s" or "30 seconds". Some servers send
//     it, although the RFC does not allow it. Quotes around any value are ignored.
//   - A date in any of the three forms of RFC 9110 §5.6.7, or in a form of RFC
//     3339 or ISO 8601, which some servers send. The day may have one digit, the
//     seconds may be missing, and the zone may be GMT, UTC, an offset, or missing,
//     which means UTC. The wait is measured from the response's Date field plus its
//     Age, or from the local clock if there is no Date. A date in the past is a wait
//     of zero.
//   - A Unix time. Some servers send it, although the RFC does not allow it. A
//     number of 500,000,000 or more is taken for a Unix time, because as a
//     number of seconds it would be a wait of sixteen years. If that time is
//     more than a day before the Date, the number is taken for seconds after all.
//     A Unix time in milliseconds counts if it is within the next ten years.
//
// If there are several fields, or several numbers that a gateway has joined by
// commas, the longest wait counts.
func RetryAfter(resp *http.Response) (time.Duration, bool) { return retryAfterField.in(resp) }

func retryAfter(s string, ref time.Time) (time.Duration, bool) {
	s = unquote(s)
	if wait, ok := instantOrSpan(s, ref); ok {
		return wait, true
	}
	// A gateway may have joined several fields. A date, which contains a comma
	// itself, was tried before.
	return Longest(strings.Split(s, ","), func(v string) (time.Duration, bool) { return instantOrSpan(unquote(v), ref) })
}

// unquote removes the quotes around a value.
func unquote(s string) string {
	rest, opened := strings.CutPrefix(s, `"`)
	if inner, closed := strings.CutSuffix(rest, `"`); opened && closed {
		return trim(inner)
	}
	return s
}

func millis(s string, _ time.Time) (time.Duration, bool) { return Decimal(s, time.Millisecond) }

func seconds(s string, _ time.Time) (time.Duration, bool) { return Decimal(s, time.Second) }

const (
	// oldestInstant is the smallest number of seconds that is taken for a Unix
	// time. It is November 1985, or a wait of sixteen years.
	oldestInstant = 500_000_000
	// latestInstant is the end of the year 9999. A larger number is a Unix time in
	// milliseconds, or no Unix time.
	latestInstant = 253_402_300_799
	// farthest is how far in the future a Unix time in milliseconds may lie.
	farthest = 10 * 365 * 24 * time.Hour
	// stale is how far in the past an instant may lie and still be taken for a
	// Unix time.
	stale = 24 * time.Hour
)

// instantOrSpan reads an instant or a time from now, as [RetryAfter] describes.
func instantOrSpan(s string, ref time.Time) (time.Duration, bool) {
	if wait, ok := instant(s, ref); ok {
		return wait, true
	}
	return span(s)
}

// instant reads a Unix time or a date. The wait is negative if it is past.
func instant(s string, ref time.Time) (time.Duration, bool) {
	whole, billionths, ok := number(s)
	switch {
	case !ok:
		at, ok := httpDate(s, ref)
		return at.Sub(ref), ok
	case whole > latestInstant: // in milliseconds
		wait := time.UnixMilli(whole).Add(scale(0, billionths, time.Millisecond)).Sub(ref)
		return wait, wait >= -stale && wait <= farthest
	}
	wait := time.Unix(whole, billionths).Sub(ref) // Sub stops at the longest Duration
	return wait, wait >= -stale && whole >= oldestInstant
}

// span reads a time from now: a number of seconds, or numbers with units.
func span(s string) (time.Duration, bool) {
	count := strings.ToLower(s)
	for _, unit := range [...]string{"seconds", "second", "secs", "sec"} {
		count = strings.TrimSuffix(count, unit)
	}
	if wait, ok := Decimal(trim(count), time.Second); ok {
		return wait, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && strings.Trim(s, "+-") == s // without a sign
}

// Decimal reads digits, with or without a fraction, as a number of units. It
// does not accept signs, exponents, spaces or names of numbers. The unit is at
// most a second.
func Decimal(s string, unit time.Duration) (time.Duration, bool) {
	whole, nanos, ok := number(s)
	return scale(whole, nanos, unit), ok
}

// scale multiplies a number by the unit. It returns the longest Duration
// instead of overflowing. The fraction is in billionths, up to and including
// one whole.
func scale(whole, billionths int64, unit time.Duration) time.Duration {
	rest := (billionths*int64(unit) + 999_999_999) / 1_000_000_000
	if whole > (math.MaxInt64-rest)/int64(unit) {
		return math.MaxInt64
	}
	return time.Duration(whole*int64(unit) + rest)
}

// number reads digits, and further digits after a point. whole stops at
// MaxInt64 instead of overflowing. The fraction is in billionths and rounded
// up.
func number(s string) (whole, billionths int64, ok bool) {
	head, tail, point := strings.Cut(s, ".")
	if !digits(head) || point && !digits(tail) {
		return 0, 0, false
	}
	whole, _ = strconv.ParseInt(head, 10, 64)
	tail += "000000000"
	billionths, _ = strconv.ParseInt(tail[:9], 10, 64)
	if strings.Trim(tail[9:], "0") != "" {
		billionths++
	}
	return whole, billionths, true
}

func digits(s string) bool { return s != "" && strings.TrimLeft(s, "0123456789") == "" }

// trim removes the white space around a field's value (RFC 9110 §5.6.3). For a
// value longer than fieldLimit it returns an empty string, which is not valid
// in any form that is read here. net/http accepts ten megabytes of header, and
// reading that much would cost a second of CPU time per response.
func trim(s string) string {
	if len(s) > fieldLimit {
		return ""
	}
	return strings.Trim(s, " \t")
}

// dateForms are the forms of a date. The first two and the last are
// in RFC 9110 §5.6.7. The second of them, asctime, is in GMT without saying so.
// The others are those of RFC 3339 and ISO 8601, which RFC 9110 does not allow. Their
// T may be a space, their seconds and their zone may be missing, and no zone means UTC.
// In all of them the day may have one digit and the zone may be an offset. If such a
// date was ignored, the request would come back too early.
var dateForms = [...]string{
	"Mon, 2 Jan 2006 15:04:05 -0700",
	"Mon Jan _2 15:04:05 2006",
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05Z07",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04Z0700",
	"2006-01-02T15:04Z07",
	"2006-01-02T15:04",
	"20060102T150405Z0700",
	"20060102T1504Z0700",
	rfc850,
}

// rfc850 is the obsolete form with a year of two digits.
const rfc850 = "Monday, 2-Jan-06 15:04:05 -0700"

// httpDate reads a date in any of these forms. If the year has two digits, it is
// the year nearest to ref as nearCentury defines it.
func httpDate(s string, ref time.Time) (time.Time, bool) {
	s = trim(s)
	if t, err := time.Parse(http.TimeFormat, s); err == nil || s == "" {
		return t, err == nil // nearly every server writes this form
	}
	s = strings.ToUpper(s) // the time package reads names in any case, but no "t" and "z"
	for _, zone := range [...]string{" GMT", " UTC", " UT", " Z"} {
		if date, ok := strings.CutSuffix(s, zone); ok {
			s = date + " +0000" // the time package takes the name of any zone for GMT
		}
	}
	if len(s) > 10 && s[4] == '-' && s[10] == ' ' { // ISO 8601 with a space instead of a T, and perhaps one before the zone
		s = s[:10] + "T" + strings.Replace(s[11:], " ", "", 1)
	}
	for _, form := range dateForms {
		switch t, err := time.Parse(form, s); {
		case err == nil && form == rfc850:
			return nearCentury(t.UTC(), ref), true
		case err == nil:
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// nearCentury moves a date whose year had two digits to the latest such year
// that is not more than 50 years after ref (RFC 9110 §5.6.7). The time package
// always takes 69 to 99 for the last century.
func nearCentury(t, ref time.Time) time.Time {
	limit := ref.UTC().AddDate(50, 0, 0)
	at := t.AddDate(limit.Year()/100*100-t.Year()/100*100, 0, 0)
	if at.After(limit) {
		at = at.AddDate(-100, 0, 0)
	}
	return at
}
