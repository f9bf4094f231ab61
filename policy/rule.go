// Rule: its fields, its defaults, and how it is laid over another rule.

package policy

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Rule says how requests to a host are sent and retried.
//
// A zero field inherits. It takes the value of the rule that this one is merged
// over ([Rule.Or]), and at last the value of [Defaults]. The fields of a group,
// such as RateLimit, inherit one by one. [Off] turns a setting off.
type Rule struct {
	// MaxAttempts is the highest number of attempts for one request, the first
	// included. Default 6. 1 or Off turns retries off.
	MaxAttempts int

	// Backoff computes the waits between attempts. Package backoff has formulas.
	// Default backoff.Exponential{}: 1 s, 2 s, 4 s … plus up to 1 s at random, at
	// most 32 s. With backoff.Constant(0) there is no wait unless the server asks
	// for one. After an attempt that timed out, a Transport waits for a random time
	// between this wait and the wait before the fourth retry, because a silent
	// server piles up what it is sent. The time is random even if the formula has
	// no jitter, unless its waits are all the same. The attempt keeps half of the
	// time that MaxElapsedTime and the deadline leave.
	Backoff backoff.Backoff

	// Classify is asked first about each outcome. If it answers
	// classify.Unknown, classify.Default decides. Default classify.Default.
	Classify classify.Func

	// Hint reads how long the server asked to wait. Default
	// classify.DefaultHint. classify.NoHint turns it off.
	Hint classify.RetryAfterFunc

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
	// Config.NewPool. Requests with a protocol that was registered with the base transport
	// (RegisterProtocol) have one pool, because a copy does not have the protocol. Default On.
	Lanes Switch

	// MaxElapsedTime bounds the time from the first attempt to the start of the last
	// retry. Default off.
	MaxElapsedTime time.Duration

	// RetryAfter bounds the waits that servers ask for.
	RetryAfter RetryAfter

	// Stall detects connections that stand still. Default off.
	Stall Stall

	// RateLimit limits the attempts per second to one host, retries included. Default
	// off.
	RateLimit RateLimit

	// RetryBudget bounds the retries and hedges to one host over time. Default on: a
	// fifth of the requests plus 3 per second.
	RetryBudget RetryBudget

	// ShareRetryAfter shares the waits that servers ask for. After a 429 or a 503 that
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
	ShareRetryAfter Switch

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
	// [KeyByRoute] tells routes apart as well.
	ThrottleKey func(*http.Request) string

	// QuotaPacing spreads requests over the rest of a quota's window when the server's
	// own RateLimit fields (or x-ratelimit-remaining and -reset) say that less
	// than a fifth is left. No request waits longer than RetryAfter.Max for the
	// request before it. The response to the latest request counts, so a wrong field
	// slows a host down only until the next response. Default Off.
	QuotaPacing Switch

	// Cost returns how much a request takes from RateLimit, and from the quotas of QuotaPacing whose unit
	// is not requests, such as tokens or points. A retry and a hedge take as much again.
	// Default: each request costs 1.
	//
	// Cost is called once per request, before its first attempt, if Rate or QuotaPacing is on. It
	// must not read the body, because the attempt sends it. So the caller estimates the cost
	// from a header, the length or a value of the context. What the server says about its quota
	// corrects the estimate. Below 1 counts as 1, and above 2^31-1 as 2^31-1. A cost above
	// RateLimit.Burst takes a full bucket, so set RateLimit.Burst to the greatest usual cost at least. A
	// cost above a quota takes all of it. Cost must be safe for concurrent use.
	Cost func(*http.Request) int

	// Concurrency limits the requests in flight to one host, and adapts the limit.
	// Default off.
	Concurrency Concurrency

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
		MaxAttempts:     6,
		Backoff:         backoff.Exponential{},
		Classify:        classify.Default,
		Hint:            classify.DefaultHint,
		Idempotent:      classify.Idempotent,
		RetryAfter:      RetryAfter{Max: time.Minute, Beyond: BeyondStop},
		RetryBudget:     RetryBudget{Ratio: 0.2, MinPerSecond: 3, Window: 10 * time.Second},
		Lanes:           On,
		ShareRetryAfter: Off,
		QuotaPacing:     Off,
		Upload:          Upload{Memory: 1 << 20},
		Resume:          Resume{Max: 5, Again: 1 << 20},
	}
}

// Or returns r with each of its zero fields replaced by base's. The fields of a
// group, such as RateLimit, are replaced one by one. Neither r nor base is changed. Or
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
