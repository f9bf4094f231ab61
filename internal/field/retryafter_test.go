package field

import (
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const longestWait = time.Duration(math.MaxInt64)

// sent is the Date of the responses in these tests: years from the clocks of
// those who run them.
var sent = time.Date(2031, time.May, 6, 8, 49, 30, 0, time.UTC)

func dated(code int, header ...string) *http.Response {
	return response(code, append([]string{"Date", sent.Format(http.TimeFormat)}, header...)...)
}

// TestRetryAfter is the table of what Retry-After may hold.
func TestRetryAfter(t *testing.T) {
	const none = time.Duration(-1)
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"seconds", "120", 2 * time.Minute},
		{"leading zeros", "007", 7 * time.Second},
		{"white space around", " \t7 ", 7 * time.Second},
		{"pitfall 43: zero is a valid wait", "0", 0},

		{"pitfall 1: seconds that overflow as nanoseconds", "100000000000000000", longestWait},
		{"pitfall 1: seconds that overflow an int64", "99999999999999999999999999", longestWait},
		{"pitfall 1: the last that fits as seconds", "499999999", 499999999 * time.Second},
		{"pitfall 2: negative", "-1", none},
		{"pitfall 2: a plus sign", "+1", none},
		{"pitfall 2: NaN", "NaN", none},
		{"pitfall 2: Inf", "Inf", none},
		{"pitfall 2: an exponent", "1e300", none},
		{"pitfall 2: a point and no digits", "1.", none},
		{"pitfall 2: two points", "1.5.5", none},
		{"a decimal: Shopify", "2.0", 2 * time.Second},
		{"a fraction", "1.5", 1500 * time.Millisecond},
		{"pitfall 44: fields joined by a gateway", "5, 30 ,7", 30 * time.Second},
		{"joined with nonsense", "5, soon", 5 * time.Second},
		{"joined with nothing", "5,", 5 * time.Second},
		{"pitfall 2: hexadecimal", "0x10", none},
		{"pitfall 2: an underscore", "1_000", none},
		{"pitfall 2: digits of another script", "१२", none},
		{"empty", "", none},
		{"words", "soon", none},
		{"a unit", "5s", 5 * time.Second},
		{"several units", "1m30s", 90 * time.Second},
		{"a unit as a word", "30 seconds", 30 * time.Second},
		{"a unit as a word, in capitals", "1 Second", time.Second},
		{"a unit without a number", "seconds", none},
		{"a negative number with a unit", "-5s", none},
		{"in quotes", `"30"`, 30 * time.Second},
		{"a date in quotes", `"Tue, 06 May 2031 08:49:37 GMT"`, 7 * time.Second},
		{"half a pair of quotes", `"30`, none},
		{"a quote", `"`, none},
		{"milliseconds in short", "30msec", none},

		{"pitfall 3: epoch seconds", "1935823777", 1935823777*time.Second - time.Duration(sent.Unix())*time.Second},
		{"pitfall 3: epoch seconds just past", "1935823000", 0},
		{"pitfall 3: no instant, though large enough", "1000000000", 1000000000 * time.Second},
		{"pitfall 3: epoch seconds of a day ago", "1935737370", 0},
		{"pitfall 3: epoch seconds of more than a day ago are seconds", "1935737369", 1935737369 * time.Second},
		{"epoch milliseconds in ten years", "2251183770000", 3650 * 24 * time.Hour},
		{"epoch milliseconds in more than ten years are seconds", "2251183770001", longestWait},
		{"epoch milliseconds", "1935823777250", 1935823777*time.Second + 250*time.Millisecond - time.Duration(sent.Unix())*time.Second},
		{"epoch milliseconds just past", "1935823760000", 0},
		{"pitfall 3: epoch milliseconds of a later decade are seconds", "2535823777000", longestWait},
		{"pitfall 3: epoch milliseconds of an earlier day are seconds", "1835823777000", longestWait},

		{"pitfall 7: IMF-fixdate", "Tue, 06 May 2031 08:49:37 GMT", 7 * time.Second},
		{"pitfall 7: RFC 850", "Tuesday, 06-May-31 08:49:37 GMT", 7 * time.Second},
		{"pitfall 7: asctime", "Tue May  6 08:49:37 2031", 7 * time.Second},
		{"pitfall 7: asctime, two digits of a day", "Fri May 16 08:49:30 2031", 240 * time.Hour},
		{"a past date", "Tue, 06 May 2031 08:49:29 GMT", 0},
		{"the same second", "Tue, 06 May 2031 08:49:30 GMT", 0},
		{"a date too far for a Duration", "Sun, 06 Nov 9994 08:49:37 GMT", longestWait},
		{"a date too long ago for a Duration", "Sun, 06 Nov 0001 08:49:37 GMT", 0},
		{"another zone", "Tuesday, 06-May-31 08:49:37 EST", none},
		{"another zone's name", "Tue, 06 May 2031 08:49:37 PST", none},
		{"one digit of a day", "Tue, 6 May 2031 08:49:37 GMT", 7 * time.Second},
		{"one digit of a day, RFC 850", "Tuesday, 6-May-31 08:49:37 GMT", 7 * time.Second},
		{"the zone UTC", "Tue, 06 May 2031 08:49:37 UTC", 7 * time.Second},
		{"the zone UTC, RFC 850", "Tuesday, 06-May-31 08:49:37 UTC", 7 * time.Second},
		{"both, in small letters", "tue, 6 may 2031 08:49:37 utc", 7 * time.Second},
		{"an offset of zero", "Tue, 06 May 2031 08:49:37 +0000", 7 * time.Second},
		{"an offset", "Tue, 06 May 2031 10:49:37 +0200", 7 * time.Second},
		{"RFC 3339", "2031-05-06T08:49:37Z", 7 * time.Second},
		{"RFC 3339 with a fraction", "2031-05-06T08:49:37.25Z", 7250 * time.Millisecond},
		{"RFC 3339 with an offset", "2031-05-06T10:49:37+02:00", 7 * time.Second},
		{"RFC 3339 in small letters", "2031-05-06t08:49:37z", 7 * time.Second},
		{"RFC 3339 with a blank", "2031-05-06 08:49:37Z", 7 * time.Second},
		{"RFC 3339 with a blank and a name", "2031-05-06 08:49:37 UTC", 7 * time.Second},
		{"RFC 3339, past", "2031-05-06T08:49:29Z", 0},
		{"ISO 8601 without a zone", "2031-05-06T08:49:37", 7 * time.Second},
		{"ISO 8601 without seconds", "2031-05-06T08:50Z", 30 * time.Second},
		{"ISO 8601 without seconds and zone", "2031-05-06 08:50", 30 * time.Second},
		{"ISO 8601 with an offset without a colon", "2031-05-06T10:49:37+0200", 7 * time.Second},
		{"ISO 8601 with an offset of hours", "2031-05-06 10:49:37.25 +02", 7250 * time.Millisecond},
		{"ISO 8601 in its basic form", "20310506T084937Z", 7 * time.Second},
		{"a date without a time", "2031-05-06", none},
		{"a month that does not exist", "2031-13-06T08:49:37Z", none},
		{"a day that does not exist", "Tue, 31 Feb 2031 08:49:37 GMT", none},

		{"pitfall 42: this century", "Sunday, 06-May-79 08:49:30 GMT", 17532 * 24 * time.Hour},
		{"pitfall 42: fifty years ahead is the future", "Tuesday, 06-May-81 08:49:30 GMT", 18263 * 24 * time.Hour},
		{"pitfall 42: a second more is the past", "Tuesday, 06-May-81 08:49:31 GMT", 0},
		{"pitfall 42: last century", "Thursday, 06-May-99 08:49:37 GMT", 0},
	} {
		wait, ok := RetryAfter(dated(503, "Retry-After", tt.value))
		assert.Equal(t, []any{tt.want != none, max(tt.want, 0)}, []any{ok, wait}, tt.name)
	}
}

func TestRetryAfterStatuses(t *testing.T) {
	for code, want := range map[int]bool{
		101: false, 200: false, 201: false, 202: false, 301: false, 304: false, 399: false,
		400: true, 403: true, 404: true, 413: true, 429: true, 500: true, 503: true, 599: true,
	} {
		for _, f := range []read{RetryAfter, in("Retry-After-Ms"), Wait} {
			wait, ok := f(dated(code, "Retry-After-Ms", "1", "Retry-After", "1"))
			assert.Equal(t, []bool{want, want}, []bool{ok, wait != 0}, "pitfall 8: status %d", code)
		}
	}
}

func TestSeveralRetryAfter(t *testing.T) {
	run(t, RetryAfter, []waitTest{
		{"pitfall 44: the longest of several", dated(429, "Retry-After", "1", "Retry-After", "30", "Retry-After", "2"), 30 * time.Second, true},
		{"pitfall 44: seconds and a date", dated(429, "Retry-After", "1", "Retry-After", "Tue, 06 May 2031 08:49:37 GMT"), 7 * time.Second, true},
		{"pitfall 44: a malformed one beside", dated(429, "Retry-After", "soon", "Retry-After", "5", "Retry-After", "-9"), 5 * time.Second, true},
		{"pitfall 44: a date past beside a zero", dated(429, "Retry-After", "0", "Retry-After", "Tue, 06 May 2031 08:49:00 GMT"), 0, true},
		{"pitfall 44: an overflow is the longest", dated(429, "Retry-After", "99999999999999999999", "Retry-After", "5"), longestWait, true},
	})
}

// TestClockSkew: dates are measured from the response's Date, and from our own
// clock where there is none.
func TestClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
		for name, tt := range map[string]struct {
			date  []string
			until string
			want  time.Duration
		}{
			"pitfall 35: a server ahead of us":     {[]string{"Date", at(time.Hour)}, at(time.Hour + time.Minute), time.Minute},
			"pitfall 35: a server behind us":       {[]string{"Date", at(-time.Hour)}, at(time.Minute - time.Hour), time.Minute},
			"pitfall 35: no Date":                  {nil, at(time.Minute), time.Minute},
			"pitfall 35: a malformed Date":         {[]string{"Date", "now"}, at(time.Minute), time.Minute},
			"pitfall 35: a response from a cache":  {[]string{"Date", at(-100 * time.Second), "Age", "100"}, at(time.Minute), time.Minute},
			"pitfall 35: a malformed Age":          {[]string{"Date", at(0), "Age", "-5"}, at(time.Minute), time.Minute},
			"pitfall 35: an Age without end":       {[]string{"Date", at(0), "Age", "2147483649"}, at(time.Minute), time.Minute},
			"pitfall 35: the longest Age":          {[]string{"Date", at(-1 << 31 * time.Second), "Age", "2147483648"}, at(time.Minute), time.Minute},
			"pitfall 35: an Age without a Date":    {[]string{"Age", "100"}, at(time.Minute), time.Minute},
			"pitfall 35: Date in an obsolete form": {[]string{"Date", time.Now().UTC().Add(time.Hour).Format(rfc850)}, at(time.Hour + time.Minute), time.Minute},
		} {
			wait, ok := RetryAfter(response(503, append(tt.date, "Retry-After", tt.until)...))
			assert.True(t, ok, name)
			assert.Equal(t, tt.want, wait, name)
		}
		skewed := []string{
			"Date", at(time.Hour), "X-RateLimit-Remaining", "0",
			"X-RateLimit-Reset", big.NewInt(time.Now().Add(time.Hour + time.Minute).Unix()).String(),
		}
		wait, ok := Wait(response(429, skewed...))
		assert.True(t, ok)
		assert.Equal(t, time.Minute, wait, "pitfall 35: epoch fields")
	})
}

func TestMillis(t *testing.T) {
	run(t, Wait, []waitTest{
		{"the order", dated(503, "X-Amz-Retry-After", "3", "X-Ms-Retry-After-Ms", "2", "Retry-After-Ms", "1"), time.Millisecond, true},
		{"a malformed one is passed", dated(503, "X-Amz-Retry-After", "3", "Retry-After-Ms", "x"), 3 * time.Millisecond, true},
		{"zero", dated(503, "Retry-After-Ms", "0"), 0, true},
		{"decimals", dated(503, "Retry-After-Ms", "0.5"), 500 * time.Microsecond, true},
		{"several", dated(503, "Retry-After-Ms", "1", "Retry-After-Ms", "9"), 9 * time.Millisecond, true},
		{"pitfall 1: overflow", dated(503, "Retry-After-Ms", "9223372036855"), longestWait, true},
		{"pitfall 2: negative", dated(503, "Retry-After-Ms", "-5"), 0, false},
		{"pitfall 2: NaN", dated(503, "Retry-After-Ms", "nan"), 0, false},
		{"a date is no number", dated(503, "Retry-After-Ms", "Tue, 06 May 2031 08:49:37 GMT"), 0, false},
	})
}

func TestNumber(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0.0": 0, "1.5": 1500 * time.Millisecond, "0.000000001": 1, "0.0000000001": 1, "0.9999999999": time.Second,
		"0.0000000000": 0, "9223372036.854775807": longestWait, "9223372036.854775808": longestWait,
		"9223372036.854775806": longestWait - 1,
	} {
		got, ok := Decimal(s, time.Second)
		assert.True(t, ok, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{"", ".", "1.", ".5", "1.5.", "1.-5", " 1", "1 ", "١"} {
		_, ok := Decimal(s, time.Second)
		assert.False(t, ok, "%q", s)
	}
}

// FuzzRetryAfter: never negative, never a panic, and digits agree with
// arithmetic that cannot overflow.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{
		"0", "120", "10000000000", "1935823777", "99999999999999999999", "-1", "1e9", "NaN", "1.5",
		"Tue, 06 May 2031 08:49:37 GMT", "Tuesday, 06-May-31 08:49:37 GMT", "Tue May  6 08:49:37 2031",
	} {
		f.Add(s, "")
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		o := response(503)
		o.Header["Retry-After"] = []string{value}
		o.Header["Date"] = []string{date}
		wait, ok := RetryAfter(o)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		if !ok {
			require.Zero(t, wait)
		}
		if _, _, isNumber := number(trim(value)); isNumber {
			require.True(t, ok, "a number is a wait")
		} else if ok && !strings.Contains(value, ":") {
			require.Contains(t, value, ",", "all else is a date, or several numbers")
		}
		if n, isNumber := new(big.Int).SetString(value, 10); isNumber && digits(value) && n.Cmp(big.NewInt(oldestInstant)) < 0 {
			require.Equal(t, n.Int64()*int64(time.Second), int64(wait))
		}
	})
}

// FuzzDecimal: agrees with rational arithmetic, rounded up and cut at the
// longest Duration.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0", "1.5", "9223372036.854775807", "0.0000000001", "1.", ".1", "1e5", "64.57"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, unit := range []time.Duration{time.Millisecond, time.Second} {
			got, ok := Decimal(s, unit)
			head, tail, point := strings.Cut(s, ".")
			require.Equal(t, digits(head) && (!point || digits(tail)), ok)
			if !ok {
				continue
			}
			exact, _ := new(big.Rat).SetString(s)
			exact.Mul(exact, new(big.Rat).SetInt64(int64(unit)))
			low := new(big.Rat).SetInt64(int64(got))
			if got == longestWait {
				require.GreaterOrEqual(t, exact.Cmp(new(big.Rat).Sub(low, big.NewRat(1, 1))), 0)
				continue
			}
			require.LessOrEqual(t, exact.Cmp(low), 0, "never earlier than told")
			require.Positive(t, exact.Cmp(low.Sub(low, big.NewRat(2, 1))), "nor much later")
		}
	})
}

// FuzzTwoDigitYear: the year found is the only one with these two digits that
// lies within the fifty years before and after.
func FuzzTwoDigitYear(f *testing.F) {
	f.Add(int64(1935823777), uint8(31))
	f.Add(int64(0), uint8(69))
	f.Add(int64(4102444800), uint8(0))
	f.Fuzz(func(t *testing.T, now int64, yy uint8) {
		ref := time.Unix(now%(1<<36), 0).UTC()
		if ref.Year() < 100 {
			return
		}
		yy %= 100
		s := time.Date(1900+int(yy), time.May, 6, 8, 49, 37, 0, time.UTC).Format(rfc850)
		at, ok := httpDate(s, ref)
		require.True(t, ok, s)
		require.Equal(t, int(yy), at.Year()%100)
		require.False(t, at.After(ref.AddDate(50, 0, 0)), "%v is more than 50 years after %v", at, ref)
		require.True(t, at.AddDate(100, 0, 0).After(ref.AddDate(50, 0, 0)), "a later year would do for %v from %v", at, ref)
	})
}
