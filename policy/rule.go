// How are requests to a host sent and sent again? Rule, the unit of
// configuration: its defaults, how one is laid over another, and what is wrong
// with it.

package policy

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/textproto"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// Bounds beyond which a value is taken for a slip of the pen.
const (
	maxAttempts   = 1000
	maxRate       = 1e9 // one send per nanosecond; keeps intervals and bursts in range
	maxBufferBody = 64 << 20
	maxSpoolBody  = 1 << 40
	maxResumes    = 1000

	// No network answers within minTime, so a shorter time is a number without
	// its unit. A time beyond maxTime is one with its unit twice.
	minTime = time.Microsecond
	maxTime = 10 * 365 * 24 * time.Hour
)

// A Rule says how requests to a host are sent and sent again.
//
// Zero inherits, negative turns off: a zero field takes the value of the rule
// that this one is merged over ([Rule.Or]), at last that of [Defaults]. There
// are no booleans; a mode is an enumeration whose zero value inherits.
type Rule struct {
	// Attempts is the number of sends in all, the first included. Default 6.
	// 1 or a negative number turns retries off.
	Attempts int

	// Backoff computes the waits between attempts. Default Google{}: 1 s, 2 s,
	// 4 s … plus up to 1 s at random, at most 32 s. Constant(0) turns waiting
	// off, except for what a server asks.
	Backoff Backoff

	// Classify is asked first about each outcome; where it answers
	// classify.Unknown, classify.Default decides. classify.None turns an
	// inherited one off.
	Classify classify.Func

	// Hint reads how long the server asked to wait. Default
	// classify.DefaultHint. classify.NoHint turns it off.
	Hint classify.Hint

	// Idempotent says whether a request may be sent again although the server
	// may have acted on it. Default classify.Idempotent (RFC 9110 §9.2.2 and
	// Idempotency-Key). With another function, requests of which it says so may
	// also be hedged, whatever their method.
	Idempotent func(*http.Request) bool

	// AttemptTimeout bounds one attempt: the time from its start to the first
	// read of the request's body, and from the body's end to the response's
	// headers. It does not run while the body is sent, except for a body in
	// memory of at most 64 KiB, and never cuts a response's body. Default off.
	AttemptTimeout time.Duration

	// StallTimeout bounds the time without progress while somebody waits for the
	// server: for the response's headers, for the server to take more of the
	// request's body, and in a Read of the response's body, whatever its method
	// and status. What stalls counts as a lost connection: it is sent again, or
	// resumed, where that is possible, and fails with a timeout error where
	// not. Default off.
	StallTimeout time.Duration

	// MinThroughput is the least bytes per second that a response's body has to
	// bring while it is being read, averaged over StallTimeout, or over 30 s
	// where that is off; less is a stall. Default off.
	MinThroughput int64

	// Elapsed bounds the time from the first send to the start of the last
	// retry: no retry starts later. Default off.
	Elapsed time.Duration

	// MaxRetryAfter is the longest wait that a server may ask for; Excess says
	// what happens beyond it. Default 1 min. Negative: no bound.
	MaxRetryAfter time.Duration

	// Excess says what to do when a server asks for more than MaxRetryAfter.
	// Default ExcessStop.
	Excess Excess

	// Rate is the highest number of sends per second to one host, retries
	// included. Default off.
	Rate float64

	// Burst is how many sends may come at once under Rate. Default: Rate
	// rounded up. It has no effect without Rate.
	Burst int

	// RateMode says whether Rate is fixed or adapts to the server's 429s.
	// Default RateFixed.
	RateMode RateMode

	// Budget bounds retries and hedges to one host over time. Default on: a
	// fifth of the requests plus 3 per second; see [Budget].
	Budget Budget

	// Cooldown shares what a server asked: after a 429 or 503 that names a wait
	// all requests of the same Scope wait, not only the one that was told, at
	// most MaxRetryAfter for one answer. So they do after another 4xx that
	// Classify has sent again, but for 408, 421 and 425, which are about one
	// request or its connection and bind this request alone.
	//
	// Requests that were held back are then spread out by some jitter and a
	// ramp. A request that comes by itself after the time that the server named
	// goes at once, and none is refused for a deadline that lies behind that
	// time.
	//
	// A success that arrives after a 503 ends its hold: the 503 was about one
	// request. Of a server that refuses at random the same is found out by
	// probes: while successes outweigh refusals two to one, up to two requests
	// are sent during a hold, one after the other, and if one succeeds the hold
	// ends. A quota that really is used up thus sees at most two requests before
	// the time that was named. In simulations with four workers and 15 % of
	// requests refused at random, with a wait of 1 s, everything takes 1.0 to
	// 1.1 times as long as without the cooldown, and without the probes it would
	// be 1.5 to 2.1 times.
	//
	// If the wait is longer than MaxRetryAfter and Excess is ExcessStop,
	// requests of the scope fail at once, with transport.ErrCooldown, for
	// MaxRetryAfter. If very many scopes of a host are held, further ones share
	// one hold. Default On.
	Cooldown Switch

	// Scope names what a hold and a quota are about, within a host, such as a
	// route or a tenant. Default: the credentials in Authorization, or else in
	// a header such as X-Api-Key, X-Goog-Api-Key, X-Auth-Token or
	// Private-Token, of which only a hash is kept. Of signatures, whose value
	// changes with every request, only the part that stays the same counts,
	// which may be the scheme's name alone. Set Scope if clients are told apart
	// by a cookie, by a key in the URL, by a signature, or by credentials that
	// a transport below adds: the default does not see these. It is asked only
	// while something is held or known.
	Scope func(*http.Request) string

	// Pacing spreads requests over the rest of a quota's window when the
	// server's own RateLimit fields (or x-ratelimit-remaining and -reset) say
	// that less than a fifth is left. No request waits longer than
	// MaxRetryAfter for the one before it, and the answer to the latest request
	// is believed, so a wrong field slows a host down until the next answer.
	// Default Off.
	Pacing Switch

	// Gate bounds the requests in flight to one host, and adapts. Default off.
	Gate Gate

	// Hedge sends slow requests a second time. Default off.
	Hedge Hedge

	// BufferBody is how many bytes of a request's body are kept for a resend
	// when the body can neither be made anew (GetBody) nor sought. Default
	// 1 MiB, at most 64 MiB, which is also the bound for all such bodies of a
	// Transport together; the first 64 KiB of each body do not count, and are
	// always kept. Negative turns buffering off.
	BufferBody int64

	// SpoolBody is how many bytes of such a body may go to a temporary file once
	// BufferBody is full, so that uploads from a pipe can be sent again. The
	// file, in plain, goes when the request is over. If the disk has no room, or
	// all files together reach transport.Config.SpoolTotal, the request is
	// committed to the attempt under way. Default off; at most 1 TiB.
	SpoolBody int64

	// Resumes is how often in a row, without 64 KiB of progress in between, a
	// response's body that is cut is continued by a further request. That is
	// done for a GET without a body of its own whose answer has a strong ETag
	// or, without any ETag, a Last-Modified a minute or more before its Date
	// (RFC 9110 §8.8.2.2, §13.1.5, §14.2), and not where Attempts is 1 or off.
	// A reconnect after progress is a new request; one without is a retry, for
	// which everything here applies. Default 5. Negative turns resuming off.
	//
	// Reconnects after progress are spaced out while parts are shorter than
	// 1 MiB: the first comes at once, and from then on the time between two of
	// them is 1 s, 2 s, 4 s, and at most 8 s. A longer part starts that anew, and
	// the time that a part took counts. Each send of a reconnect has 30 s for the
	// headers of its answer, unless AttemptTimeout or StallTimeout says otherwise.
	//
	// A body that net/http decompressed itself is not resumed. A base transport
	// that delivers other bytes than the server's, decrypted ones for instance,
	// has to set Response.Uncompressed or remove the validator.
	Resumes int

	// ResumeSkip allows a server that answers a reconnect with everything again,
	// under the same validator, and is how many bytes may be read and thrown
	// away to get to where the body was cut. Default off.
	ResumeSkip int64

	// AttemptHeader names a request header that tells the server which resend
	// this is: "1" on the second send, absent on the first. Default none; "-"
	// turns an inherited one off.
	AttemptHeader string
}

// Defaults returns the full default rule, which every other is merged over at
// last. Its zero fields (AttemptTimeout, StallTimeout, MinThroughput, Elapsed,
// Rate, Burst, SpoolBody, ResumeSkip, AttemptHeader) are off; Scope is the transport's own.
func Defaults() Rule {
	return Rule{
		Attempts:      6,
		Backoff:       backoff.Exponential{},
		Classify:      classify.Default,
		Hint:          classify.DefaultHint,
		Idempotent:    classify.Idempotent,
		MaxRetryAfter: time.Minute,
		Excess:        ExcessStop,
		RateMode:      RateFixed,
		Budget:        Budget{Ratio: 0.2, PerSecond: 3, Window: 10 * time.Second, Burst: 30},
		Cooldown:      On,
		Pacing:        Off,
		Gate:          Gate{Mode: GateOff},
		Hedge:         NoHedge(),
		BufferBody:    1 << 20,
		Resumes:       5,
	}
}

// Or returns r with each of its zero fields replaced by base's: a nil function
// or interface inherits, and a field is inherited or replaced as a whole, never
// mixed. Neither r nor base is changed. Or looks at the fields by reflection,
// so that none is forgotten; call it when a rule is made, not per request.
func (r Rule) Or(base Rule) Rule {
	out, from := reflect.ValueOf(&r).Elem(), reflect.ValueOf(base)
	for i := range out.NumField() {
		if out.Field(i).IsZero() {
			out.Field(i).Set(from.Field(i))
		}
	}
	return r
}

// Validate reports everything that is wrong with the rule at once, as [Errors];
// nil when nothing is. A zero field is never wrong, since it inherits. What a
// rule becomes by [Rule.Or] is worth a second look: each of two rules can be
// right and what they make together wrong. Values that can only be mistakes are
// wrong, too, such as a time below a microsecond, which is a number without its
// unit. A Backoff that has a method
// Validate() error is asked, too; its faults are reported under "Backoff".
func (r Rule) Validate() error {
	var bad Errors
	if r.Attempts > maxAttempts {
		bad.add("Attempts", r.Attempts, "is more than %d sends", maxAttempts)
	}
	bad = append(bad, checkBackoff(r.Backoff)...)
	bad.checkTime("AttemptTimeout", r.AttemptTimeout)
	bad.checkTime("StallTimeout", r.StallTimeout)
	bad.checkTime("Elapsed", r.Elapsed)
	bad.checkTime("MaxRetryAfter", r.MaxRetryAfter)
	if r.Excess > ExcessWait {
		bad.add("Excess", r.Excess, "is none of stop, cap and wait")
	}
	r.checkRate(&bad)
	r.Budget.check(&bad)
	if r.Cooldown > On {
		bad.add("Cooldown", r.Cooldown, "is none of on and off")
	}
	if r.Pacing > On {
		bad.add("Pacing", r.Pacing, "is none of on and off")
	}
	r.Gate.check(&bad)
	r.Hedge.check(&bad)
	if r.BufferBody > maxBufferBody {
		bad.add("BufferBody", r.BufferBody, "is more than 64 MiB (%d bytes)", maxBufferBody)
	}
	if r.SpoolBody > maxSpoolBody {
		bad.add("SpoolBody", r.SpoolBody, "is more than 1 TiB (%d bytes)", int64(maxSpoolBody))
	}
	if r.Resumes > maxResumes {
		bad.add("Resumes", r.Resumes, "is more than %d reconnects", maxResumes)
	}
	if reason := badAttemptHeader(r.AttemptHeader); reason != "" {
		bad.add("AttemptHeader", r.AttemptHeader, "%s", reason)
	}
	if bad == nil {
		return nil // an empty Errors in the interface would not be nil
	}
	return bad
}

func (r *Rule) checkRate(bad *Errors) {
	switch {
	case math.IsNaN(r.Rate), math.IsInf(r.Rate, 0):
		bad.add("Rate", r.Rate, "is not a number of requests per second")
	case r.Rate > maxRate:
		bad.add("Rate", r.Rate, "is more than %g requests per second", float64(maxRate))
	case r.Rate > 0 && r.Burst < 0:
		bad.add("Burst", r.Burst, "would let nothing through; turn Rate off, or leave Burst at 0 for Rate rounded up")
	}
	if r.RateMode > RateAdaptive {
		bad.add("RateMode", r.RateMode, "is none of fixed and adaptive")
	}
}

// checkTime refuses a time that can only be a mistake: a number without its
// unit, which counts nanoseconds, or a time.Duration that was multiplied by its
// unit again. Both are legal Go and easily overlooked.
func (e *Errors) checkTime(field string, d time.Duration) {
	switch {
	case d > 0 && d < minTime:
		meant := d * time.Millisecond
		unit := "time.Millisecond"
		if d < 100 {
			meant, unit = d*time.Second, "time.Second"
		}
		e.add(field, d, "is less than a microsecond; did you mean %v (%d * %s)?", meant, int64(d), unit)
	case d > maxTime && d != math.MaxInt64:
		e.add(field, d, "is more than ten years; was it multiplied by its unit twice?")
	}
}

// checkTimes is checkTime for the fields of a formula of package backoff. A single
// nanosecond is legal there. It is how to write the shortest wait, because zero
// stands for the default.
func checkTimes(b Backoff) (bad Errors) {
	if b == nil || reflect.TypeOf(b).PkgPath() != reflect.TypeFor[backoff.Constant]().PkgPath() {
		return nil
	}
	check := func(field string, d time.Duration) {
		if d != time.Nanosecond {
			bad.checkTime(field, d)
		}
	}
	if c, ok := b.(backoff.Constant); ok {
		check("Backoff", time.Duration(c))
		return bad
	}
	v := reflect.ValueOf(b)
	for i := range v.NumField() {
		if d, ok := v.Field(i).Interface().(time.Duration); ok {
			check("Backoff."+v.Type().Field(i).Name, d)
		}
	}
	return bad
}

// checkBackoff returns what is wrong with b.
func checkBackoff(b Backoff) Errors {
	var bad Errors
	switch v := reflect.ValueOf(b); v.Kind() {
	case reflect.Invalid: // nil inherits
		return nil
	case reflect.Pointer, reflect.Func:
		if v.IsNil() {
			bad.add("Backoff", b, "is nil behind an interface that is not; leave the field nil to inherit")
			return bad // asking it would panic
		}
	}
	if own, ok := b.(interface{ Validate() error }); ok {
		bad = backoffErrors(b, own.Validate())
	}
	return append(bad, checkTimes(b)...)
}

// backoffErrors puts what a Backoff's own Validate said under "Backoff". Joined
// errors become one fault each, unless they were joined with words of their own.
func backoffErrors(b Backoff, err error) Errors {
	switch err := err.(type) {
	case nil:
		return nil
	case *backoff.Invalid:
		return Errors{{Field: "Backoff." + err.Field, Value: err.Value, Reason: err.Reason}}
	case *FieldError:
		return Errors{err}.At("Backoff.")
	case interface{ Unwrap() []error }:
		parts := err.Unwrap()
		if joined := errors.Join(parts...); joined == nil || joined.Error() != err.(error).Error() {
			break
		}
		var all Errors
		for _, part := range parts {
			all = append(all, backoffErrors(b, part)...)
		}
		return all
	}
	return Errors{{Field: "Backoff", Value: b, Reason: strings.TrimPrefix(err.Error(), "policy: "), Err: err}}
}

// reservedHeaders are request headers that an attempt's number must not
// overwrite: those that frame the message or belong to the connection, and
// those without whose own value the request is another one.
var reservedHeaders = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true,
	"Te": true, "Trailer": true, "Upgrade": true, "Expect": true,
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true,
	"Content-Type": true, "Content-Encoding": true, "Content-Range": true,
	"Range": true, "Idempotency-Key": true,
}

// badAttemptHeader says why a resend's number cannot go into the header called
// name; "" when it can.
func badAttemptHeader(name string) string {
	switch {
	case name == "", name == "-":
		return ""
	case !isToken(name):
		return "is not a header field name (RFC 9110 §5.1)"
	case reservedHeaders[textproto.CanonicalMIMEHeaderKey(name)]:
		return "has a meaning of its own; a resend's number must not replace it"
	}
	return ""
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// String lists the fields that are not zero on one line, for logs. Negative
// numbers print as "off", functions as "func". It is not meant to be parsed.
func (r Rule) String() string {
	return showFields(reflect.ValueOf(r))
}

// showFields lists the fields of a struct that are not zero.
func showFields(v reflect.Value) string {
	var list []string
	for i := range v.NumField() {
		field, at := v.Type().Field(i), v.Field(i)
		if !field.IsExported() || at.IsZero() {
			continue
		}
		text := show(at)
		if isOff(at) {
			text = "off"
		}
		list = append(list, field.Name+": "+text)
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// isOff reports whether v is a negative plain number or duration. Types of
// their own, such as a back-off that is a number, mean what they say.
func isOff(v reflect.Value) bool {
	switch n := v.Interface().(type) {
	case int:
		return n < 0
	case int64:
		return n < 0
	case float64:
		return n < 0
	case time.Duration:
		return n < 0
	}
	return false
}

// show prints a value on one line. It does not follow pointers, so that it
// ends, and races with nobody who changes what they point at.
func show(v reflect.Value) string {
	name := strings.TrimPrefix(v.Type().String(), "policy.")
	switch v.Kind() {
	case reflect.Interface:
		return show(v.Elem())
	case reflect.Pointer, reflect.Func:
		if v.IsNil() {
			return "(" + name + ")(nil)"
		}
	}
	if c, ok := v.Interface().(backoff.Constant); ok {
		return name + "(" + time.Duration(c).String() + ")"
	}
	switch _, prints := v.Interface().(fmt.Stringer); {
	case prints:
		return fmt.Sprint(v)
	case v.Kind() == reflect.Func:
		return "func"
	case v.Kind() == reflect.Pointer:
		return name
	case v.Kind() == reflect.Struct:
		return name + showFields(v)
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v)
}

// Excess says what to do when a server asks for a wait longer than
// [Rule.MaxRetryAfter].
type Excess uint8

const (
	// ExcessInherit takes the mode of the rule below.
	ExcessInherit Excess = iota
	// ExcessStop gives up at once and returns the response: whoever comes back
	// earlier than told makes an outage worse.
	ExcessStop
	// ExcessCap waits MaxRetryAfter and then tries, earlier than told.
	ExcessCap
	// ExcessWait waits as long as the server asked.
	ExcessWait
)

// excessNames are the modes as they are written, by value.
var excessNames = []string{
	ExcessInherit: "inherit",
	ExcessStop:    "stop",
	ExcessCap:     "cap",
	ExcessWait:    "wait",
}

// String returns "stop", "cap", "wait", or "inherit" for the zero value.
func (e Excess) String() string { return nameOf("Excess", int(e), excessNames) }

// A FieldError says what is wrong with one field of a [Rule] or a [Backoff].
type FieldError struct {
	// Field is the field's name, with a path in front where it is part of
	// something larger: "Backoff.Max", `Hosts["*.example.com"].Rate`.
	Field string
	// Value is what stands there.
	Value any
	// Reason goes on after the value: "is more than 1000 sends".
	Reason string
	// Err is the error of a Backoff's own Validate where that is of another
	// type; Reason is its text. Otherwise nil.
	Err error
}

// Error returns "Field: value reason", or "Field: reason" where there is no
// value or Err speaks for itself.
func (e *FieldError) Error() string {
	if e.Value == nil || e.Err != nil {
		return e.Field + ": " + e.Reason
	}
	return e.Field + ": " + show(reflect.ValueOf(e.Value)) + " " + e.Reason
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Errors is everything that is wrong with a rule, in the order of its fields.
type Errors []*FieldError

// Error returns one line per fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults for errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, fault := range e {
		list[i] = fault
	}
	return list
}

// At returns a copy with prefix put in front of each fault's Field:
// `Hosts["*.example.com"].` tells where the rule stands.
func (e Errors) At(prefix string) Errors {
	moved := make(Errors, len(e))
	for i, fault := range e {
		at := *fault
		at.Field = prefix + at.Field
		moved[i] = &at
	}
	return moved
}

// add appends a fault.
func (e *Errors) add(field string, value any, reason string, args ...any) {
	*e = append(*e, &FieldError{Field: field, Value: value, Reason: fmt.Sprintf(reason, args...)})
}
