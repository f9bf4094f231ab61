// Rule: its fields, its defaults, how it is laid over another rule, and its faults.

package policy

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A value beyond these bounds can only be a mistake.
const (
	maxAttempts = 1000
	maxRate     = 1e9 // one attempt per nanosecond
	maxMemory   = 64 << 20
	maxResumes  = 1000
	maxAgain    = 1 << 30

	// No network answers within minTime, so a shorter time is a number without
	// its unit. A time beyond maxTime was multiplied by its unit twice.
	minTime = time.Microsecond
	maxTime = 10 * 365 * 24 * time.Hour
)

// A Rule says how requests to a host are sent and retried.
//
// A zero field inherits. It takes the value of the rule that this one is merged
// over ([Rule.Or]), and at last the value of [Defaults]. The fields of a group,
// such as Rate, inherit one by one. [Off] turns a setting off.
type Rule struct {
	// Attempts is the highest number of attempts for one request, the first
	// included. Default 6. 1 or Off turns retries off.
	Attempts int

	// Backoff computes the waits between attempts. Package backoff has formulas.
	// Default backoff.Exponential{}: 1 s, 2 s, 4 s … plus up to 1 s at random, at
	// most 32 s. With backoff.Constant(0) there is no wait unless the server asks
	// for one. After an attempt that timed out, a Transport waits for a random time
	// between this wait and the wait before the fourth retry, because a silent
	// server piles up what it is sent. The time is random even if the formula has
	// no jitter, unless its waits are all the same. The attempt keeps half of the
	// time that MaxElapsed and the deadline leave.
	Backoff Backoff

	// Classify is asked first about each outcome. If it answers
	// classify.Unknown, classify.Default decides. Default classify.Default.
	Classify classify.Func

	// Hint reads how long the server asked to wait. Default
	// classify.DefaultHint. classify.NoHint turns it off.
	Hint classify.Hint

	// Idempotent reports whether a request may be sent again although the server
	// may have acted on it. Default classify.Idempotent (RFC 9110 §9.2.2 and
	// Idempotency-Key).
	Idempotent func(*http.Request) bool

	// IdempotencyKey returns the value of an Idempotency-Key field for a request
	// (draft-ietf-httpapi-idempotency-key-header), or "" for none. It is called once for
	// each request, so all its attempts have the same key. A request that has such a field
	// keeps it. The request of the caller is not changed, and Response.Request has the key.
	//
	// To set it says that the host honours keys. A request with a key may be sent again
	// although the server may have acted on it (see Idempotent). If the server responds 409
	// because it still works on the same key, the request is retried if the response has
	// Retry-After, if an earlier attempt may have reached the server and had a key of this
	// function, or if Classify recognises it. A 422 is final. [UUIDKey] gives POST and
	// PATCH a random key. Default none.
	IdempotencyKey func(*http.Request) string

	// AttemptTimeout bounds one attempt. It covers the time from the start of the
	// attempt to the first read of the request's body, and from the body's end to
	// the response's headers. It does not run while the body is sent, unless the
	// body is in memory and has at most 64 KiB. It never cuts a response's body.
	// Default off. Without it, an attempt after the first has 2 min if the caller has no
	// deadline. Set it for polls that take longer.
	AttemptTimeout time.Duration

	// ConnectTimeout bounds the time in which an attempt gets a connection. It covers
	// the name's address, connecting, the TLS handshake, and the wait for a connection
	// that is in use. It is a part of the AttemptTimeout. An attempt that it ends did
	// nothing, so any request may be sent again.
	//
	// It needs a base transport that calls the hooks GetConn and GotConn of
	// net/http/httptrace, as http.Transport does. Otherwise it does nothing. Default
	// off.
	ConnectTimeout time.Duration

	// FirstEventTimeout bounds the time from the headers of an event stream
	// (text/event-stream) to its first event. If it is set, the response is returned with
	// that event. A comment is no event. A stream that fails or takes too long before its
	// first event is the outcome of the attempt, as a lost response is. A stream that ends
	// without an event is returned. An event of more than 64 KiB is not awaited to its end.
	// Default off.
	FirstEventTimeout time.Duration

	// Lanes lets a host have more than one pool of connections. If a connection dies
	// without a word, an HTTP/2 pool keeps it, and every attempt would go over it. So if
	// the connections have proven bad, as by silence or by several failures in a row, the
	// next attempts try new ones, and the host moves to them if they do better. If attempts
	// get no connection, they go over the old ones. A retry of a single request takes other
	// connections after a timeout, after a stream error, or after two failures. So does a
	// hedge over HTTP/2. What is under way on the old connections goes on.
	//
	// The pools are copies of an *http.Transport without MaxConnsPerHost, or come from
	// Config.Lane. Requests with a protocol that was registered with the base transport
	// (RegisterProtocol) have one pool, because a copy does not have the protocol. Default On.
	Lanes Switch

	// MaxElapsed bounds the time from the first attempt to the start of the last
	// retry. Default off.
	MaxElapsed time.Duration

	// RetryAfter bounds the waits that servers ask for.
	RetryAfter RetryAfter

	// Stall detects connections that stand still. Default off.
	Stall Stall

	// Rate limits the attempts per second to one host, retries included. Default
	// off.
	Rate Rate

	// Budget bounds the retries and hedges to one host over time. Default on: a
	// fifth of the requests plus 3 per second.
	Budget Budget

	// Cooldown shares the waits that servers ask for. After a 429 or a 503 that
	// names a wait, all requests of the same Scope wait, not only the request that
	// was refused. Turn it on if they share one limit, so that they would be refused as
	// well. Default Off: a request obeys only the waits that it was told itself.
	//
	// Another 4xx that names a wait counts as well, if Classify lets it be retried. A 408,
	// 409, 413, 421 or 425 is about one request or its connection, so only that request waits.
	//
	// A response holds the scope for RetryAfter.Max at most, and nothing ends a hold early.
	// After it, jitter and a ramp spread the requests that waited. A request waits for the
	// holds of others for RetryAfter.Max in all, and then it goes. If its deadline comes
	// first, it fails at once with transport.ErrOverDeadline.
	Cooldown Switch

	// Scope returns a name for the requests to a host that share a quota or a wait,
	// such as a route or a tenant. Scope is only called while the host has a wait or
	// a quota. It must be safe for concurrent use.
	//
	// Default: the credentials in Authorization, or else in a header such as
	// X-Api-Key, X-Goog-Api-Key, X-Auth-Token or Private-Token. Only a hash of them
	// is kept. The value of a signature changes with every request, so only the part
	// that stays the same counts. That may be the name of the scheme alone.
	//
	// Set Scope if clients differ by a cookie, by a key in the URL, by a signature, or
	// by credentials that a transport below adds. The default does not see these.
	// [RouteScope] tells routes apart as well.
	Scope func(*http.Request) string

	// Pacing spreads requests over the rest of a quota's window when the server's
	// own RateLimit fields (or x-ratelimit-remaining and -reset) say that less
	// than a fifth is left. No request waits longer than RetryAfter.Max for the
	// request before it. The response to the latest request counts, so a wrong field
	// slows a host down only until the next response. Default Off.
	Pacing Switch

	// Cost returns how much a request takes from Rate, and from the quotas of Pacing whose unit
	// is not requests, such as tokens or points. A retry and a hedge take as much again.
	// Default: each request costs 1.
	//
	// Cost is called once per request, before its first attempt, if Rate or Pacing is on. It
	// must not read the body, because the attempt sends it. So the caller estimates the cost
	// from a header, the length or a value of the context. What the server says about its quota
	// corrects the estimate. Below 1 counts as 1, and above 2^31-1 as 2^31-1. A cost above
	// Rate.Burst takes a full bucket, so set Rate.Burst to the greatest usual cost at least. A
	// cost above a quota takes all of it. Cost must be safe for concurrent use.
	Cost func(*http.Request) int

	// Gate limits the requests in flight to one host, and adapts the limit.
	// Default off.
	Gate Gate

	// Hedge sends slow requests a second time. Default off.
	Hedge Hedge

	// Upload bounds what is kept of the body of a request for a retry, if the body can
	// neither be made anew (GetBody) nor be rewound.
	Upload Upload

	// Resume continues the body of a response when its connection is cut. Default
	// on.
	Resume Resume
}

// Defaults returns the full default rule. The settings that are zero in it are
// off. A zero Scope means the credentials of the request.
func Defaults() Rule {
	return Rule{
		Attempts:   6,
		Backoff:    backoff.Exponential{},
		Classify:   classify.Default,
		Hint:       classify.DefaultHint,
		Idempotent: classify.Idempotent,
		RetryAfter: RetryAfter{Max: time.Minute, Beyond: BeyondStop},
		Budget:     Budget{Ratio: 0.2, PerSecond: 3, Window: 10 * time.Second},
		Lanes:      On,
		Cooldown:   Off,
		Pacing:     Off,
		Upload:     Upload{Memory: 1 << 20},
		Resume:     Resume{Max: 5, Again: 1 << 20},
	}
}

// Or returns r with each of its zero fields replaced by base's. The fields of a
// group, such as Rate, are replaced one by one. Neither r nor base is changed. Or
// looks at the fields by reflection, so that none is forgotten. Call it when a
// rule is made, not for each request.
func (r Rule) Or(base Rule) Rule {
	inherit(reflect.ValueOf(&r).Elem(), reflect.ValueOf(base))
	return r
}

// inherit sets the zero fields of a struct to those of another.
func inherit(to, from reflect.Value) {
	for i := range to.NumField() {
		switch field := to.Field(i); {
		case field.Kind() == reflect.Struct:
			inherit(field, from.Field(i))
		case field.IsZero():
			field.Set(from.Field(i))
		}
	}
}

// Validate reports everything that is wrong with the rule at once, as [Errors],
// and nil if nothing is wrong. A zero field is never wrong, because it inherits.
// Validate the result of [Rule.Or] as well, because two rules can each be right
// and be wrong together. Values that can only be mistakes are wrong, too, such as
// a time below a microsecond, which is a number without its unit. If the Backoff
// has a method Validate() error, its faults are reported under "Backoff".
func (r Rule) Validate() error {
	var bad Errors
	checkMost(&bad, "Attempts", r.Attempts, maxAttempts, "%d attempts")
	bad = append(bad, checkBackoff(r.Backoff)...)
	bad.checkTime("AttemptTimeout", r.AttemptTimeout)
	bad.checkTime("ConnectTimeout", r.ConnectTimeout)
	bad.checkTime("FirstEventTimeout", r.FirstEventTimeout)
	checkMode(&bad, "Lanes", r.Lanes, switchWords)
	bad.checkTime("Stall.Timeout", r.Stall.Timeout)
	bad.checkTime("MaxElapsed", r.MaxElapsed)
	bad.checkTime("RetryAfter.Max", r.RetryAfter.Max)
	checkMode(&bad, "RetryAfter.Beyond", r.RetryAfter.Beyond, beyondWords)
	r.checkRate(&bad)
	r.Budget.check(&bad)
	checkMode(&bad, "Cooldown", r.Cooldown, switchWords)
	checkMode(&bad, "Pacing", r.Pacing, switchWords)
	r.Gate.check(&bad)
	r.Hedge.check(&bad)
	checkMost(&bad, "Upload.Memory", r.Upload.Memory, maxMemory, "64 MiB (%d bytes)")
	checkMost(&bad, "Resume.Max", r.Resume.Max, maxResumes, "%d reconnects")
	checkMost(&bad, "Resume.Again", r.Resume.Again, maxAgain, "1 GiB (%d bytes)")
	if bad == nil {
		return nil // an empty Errors in the interface would not be nil
	}
	return bad
}

// ValidateRequest is like Validate, for a rule that applies to some of the requests to
// a host: the rule of a path in transport.Config.Hosts, and the rule of a request
// (transport.WithRule). A limit that all requests to a host share is a fault there. These
// limits are Lanes, RetryAfter, Rate, Budget, Cooldown, Scope, Pacing, Gate and
// Hedge.Percentile.
func (r Rule) ValidateRequest() error {
	var bad Errors
	if err := r.Validate(); err != nil {
		bad = err.(Errors)
	}
	for _, limit := range []struct {
		field string
		value any
	}{
		{"Lanes", r.Lanes},
		{"RetryAfter", r.RetryAfter}, // bounds the holds and the pacing of all requests
		{"Rate", r.Rate},
		{"Budget", r.Budget},
		{"Cooldown", r.Cooldown},
		{"Scope", r.Scope},
		{"Pacing", r.Pacing},
		{"Gate", r.Gate},
		{"Hedge.Percentile", r.Hedge.Percentile}, // of all responses of the host
	} {
		if !reflect.ValueOf(limit.value).IsZero() {
			bad.add(limit.field, limit.value, "is a limit of the host, which all its requests share; set it in the rule of the host or in the rule for all hosts")
		}
	}
	if bad == nil {
		return nil
	}
	return bad
}

func (r *Rule) checkRate(bad *Errors) {
	switch {
	case math.IsNaN(r.Rate.PerSecond), math.IsInf(r.Rate.PerSecond, 0):
		bad.add("Rate.PerSecond", r.Rate.PerSecond, "is not a number of requests per second")
	case r.Rate.PerSecond > maxRate:
		bad.add("Rate.PerSecond", r.Rate.PerSecond, "is more than %g requests per second", float64(maxRate))
	case r.Rate.PerSecond > 0 && r.Rate.Burst < 0:
		bad.add("Rate.Burst", r.Rate.Burst, "would let nothing through; turn PerSecond off, or leave Burst at 0 for PerSecond rounded up")
	}
}

// checkMost refuses a value above most. text says how much that is.
func checkMost[T int | int64](bad *Errors, field string, value, most T, text string) {
	if value > most {
		bad.add(field, value, "is more than "+text, most)
	}
}

// checkMode refuses a value that the mode does not have.
func checkMode[T ~int8](bad *Errors, field string, value T, w words) {
	if !w.has(int8(value)) {
		bad.add(field, value, "is none of %s", w.list())
	}
}

// checkTime refuses a time that can only be a mistake. A number without its unit
// counts nanoseconds, and a time.Duration can be multiplied by its unit again. Go
// allows both, and both are easily overlooked.
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

// checkBackoff returns the faults of b.
func checkBackoff(b Backoff) Errors {
	var bad Errors
	switch v := reflect.ValueOf(b); v.Kind() {
	case reflect.Invalid: // nil inherits
		return nil
	case reflect.Pointer, reflect.Func:
		if v.IsNil() {
			bad.add("Backoff", b, "is nil behind an interface that is not; leave the field nil to inherit")
			return bad // its Validate would panic
		}
	}
	if own, ok := b.(interface{ Validate() error }); ok {
		bad = backoffErrors(b, own.Validate())
	}
	return append(bad, checkTimes(b)...)
}

// backoffErrors returns the faults that a Backoff's own Validate found, under
// "Backoff". Each error of errors.Join becomes a fault. Errors that were joined
// with a text of their own stay together.
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

// String lists the fields that are not zero on one line, for logs. A setting that
// is off prints as "off", and a function as "func". The text is not meant to be
// parsed.
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

// isOff reports whether v is a negative number or duration. The types with words of their own are
// smaller, and a back-off that is a number is in an interface.
func isOff(v reflect.Value) bool {
	return v.CanFloat() && v.Float() < 0 || v.CanInt() && v.Kind() != reflect.Int8 && v.Int() < 0
}

// show prints a value on one line. It does not follow pointers. So it ends even if
// pointers form a cycle, and it does not race with writers of the values behind
// them.
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
