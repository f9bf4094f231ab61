// Rule: its fields, its defaults, how it is laid over another rule, and the errors of its timeouts.

package policy

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// ErrAttemptTimeout is in the error of an attempt that [Rule].AttemptTimeout ended, of a
// Transport and of package retry. errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as
// for the timeouts of net/http. It is also the context.Cause of the attempt. With it a function that
// package retry calls can tell the end of the attempt from the end of the caller's context, because
// context.Err is DeadlineExceeded for both.
var ErrAttemptTimeout = fmt.Errorf("policy: attempt timeout: %w", context.DeadlineExceeded)

// ErrStallTimeout is in the error of an attempt or of a response's body that made no progress for
// [Rule].StallTimeout. errors.Is(err, context.DeadlineExceeded) and Timeout() hold, as for the
// timeouts of net/http.
var ErrStallTimeout = fmt.Errorf("policy: stall timeout: %w", context.DeadlineExceeded)

// A Rule says how requests to a host are sent and retried.
//
// A zero field inherits. It takes the value of the rule that this one is merged
// over ([Rule.Or]), and at last the value of [Defaults]. The fields of a group,
// such as RateLimit, inherit one by one. Classify and RetryAfter are asked before those
// that the rule inherits. [Off] turns a setting off.
type Rule struct {
	// MaxAttempts is the highest number of attempts for one request, the first
	// included. Default 6. 1 turns retries off.
	MaxAttempts int

	// Backoff computes the waits between attempts. Package backoff has formulas.
	// Default backoff.Exponential{}: 1 s, 2 s, 4 s … plus up to 1 s at random, at
	// most 32 s. With backoff.Constant(0) there is no wait unless the server asks
	// for one. After an attempt that timed out, a Transport waits for a random time
	// between this wait and the wait before the fourth retry, because a silent
	// server piles up what it is sent. The time is random even if the formula has
	// no jitter, unless its waits are all the same. The attempt keeps half of the
	// time that MaxElapsedTime and the deadline leave after the wait of the formula.
	Backoff backoff.Backoff

	// Classify is asked first about each outcome. If it answers classify.Unknown, the
	// Classify that the rule inherits is asked. classify.Default always answers, so a rule
	// with it inherits none. Default classify.Default.
	Classify classify.Func

	// RetryAfter reads how long the server asked to wait (RFC 9110 §10.2.3). A random
	// time of up to 1 s comes on top of such a wait. It is never longer than the wait
	// itself, and never passes the deadline of the request. A first retry comes
	// after this wait, and after at least 100 ms, also if the Backoff is longer. Later retries come after the
	// longer of both. If it finds no wait, the RetryAfter that the rule inherits is asked, and at last
	// classify.RetryAfter. Default classify.RetryAfter.
	RetryAfter classify.RetryAfterFunc

	// MaxRetryAfter is the longest wait that a server may ask for. If it asks for more, the
	// caller gets the response at once, because a client that comes back earlier than told
	// makes an outage worse. Default 1 min. Off: no bound.
	MaxRetryAfter time.Duration

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
	// body is in memory and has at most 64 KiB, and not while the base transport waits for a
	// response to Expect: 100-continue, if its hooks say so. It never cuts a response's body.
	// Default off. Without it, an attempt after the first has 2 min if the caller has no
	// deadline. Set it for polls that take longer.
	//
	// An attempt after the first also ends if the server takes nothing of the request's
	// body for as long, but not before 10 s, and without an AttemptTimeout after 30 s. A
	// StallTimeout takes the place of these.
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

	// MaxElapsedTime bounds the time from the first attempt to the start of the last
	// retry. Default off.
	MaxElapsedTime time.Duration

	// StallTimeout bounds the time without progress while the caller waits for the server:
	// for the headers of the response, for the server to take more of the request's body,
	// and in a Read of the response's body. An interim response (RFC 9110 §15.2) is progress
	// if the base transport tells it by the hook Got1xxResponse of net/http/httptrace. Then the request is retried or the body resumed,
	// if that is possible. If not, the request fails with a timeout error. Default off.
	StallTimeout time.Duration

	// RateLimit limits the attempts per second to one host, retries included. Default
	// off.
	RateLimit RateLimit

	// RetryBudget bounds the retries and hedges to one host over time. Default on: a
	// fifth of the requests plus 3 per second.
	RetryBudget RetryBudget

	// ShareRetryAfter shares the waits that servers ask for. After a 429 or a 503 that
	// names a wait, all requests of the same scope (ThrottleKey) wait, not only the request that
	// was refused. Turn it on if they share one limit, so that they would be refused as
	// well. Default Off: a request obeys only the waits that it was told itself.
	//
	// Another 4xx that names a wait counts as well, if Classify lets it be retried. A 408,
	// 409, 413, 421 or 425 is about one request or its connection, so only that request waits.
	//
	// A response holds the scope for MaxRetryAfter at most, and nothing ends a hold early.
	// After it, jitter and a ramp spread the requests that waited. A request waits for the
	// holds of others for MaxRetryAfter in all, and then it goes. If its deadline comes
	// first, it fails at once with transport.ErrNotSent.
	ShareRetryAfter Switch

	// ThrottleKey returns the name of a scope, which has the requests to a host that share a
	// quota or a wait, such as those of a route or a tenant. It is only called while the host
	// has a wait or a quota. It must be safe for concurrent use.
	//
	// Default: the credentials in Authorization, or else in a header such as
	// X-Api-Key, X-Goog-Api-Key, X-Auth-Token or Private-Token. Only a hash of them
	// is kept. The value of a signature changes with every request, so only the part
	// that stays the same counts. That may be the name of the scheme alone.
	//
	// Set it if clients differ by a cookie, by a key in the URL, by a signature, or
	// by credentials that a transport below adds. The default does not see these.
	// [KeyByRoute] tells routes apart as well, and [KeyByHost] nothing. [KeyByCredentials] is the
	// default, for a rule that would inherit another.
	ThrottleKey func(*http.Request) string

	// QuotaPacing spreads requests over the rest of a quota's window when the server's
	// own RateLimit fields (or x-ratelimit-remaining and -reset) say that less
	// than a fifth is left. No request waits longer than MaxRetryAfter for the
	// request before it. The response to the latest request counts, so a wrong field
	// slows a host down only until the next response. Default Off.
	QuotaPacing Switch

	// Cost returns how much a request takes from RateLimit, and from the quotas of QuotaPacing whose unit
	// is not requests, such as tokens or points. A retry and a hedge take as much again.
	// Default: each request costs 1.
	//
	// Cost is called once per request, before its first attempt, if RateLimit or QuotaPacing is on. It
	// must not read the body, because the attempt sends it. So the caller estimates the cost
	// from a header, the length or a value of the context. What the server says about its quota
	// corrects the estimate. Below 1 counts as 1, and above 2^31-1 as 2^31-1. A cost above
	// RateLimit.Burst takes a full bucket, so set RateLimit.Burst to the greatest usual cost at least. A
	// cost above a quota takes all of it. Cost must be safe for concurrent use.
	Cost func(*http.Request) int

	// CircuitBreaker withholds first attempts from a host that is down.
	// Default: off.
	CircuitBreaker CircuitBreaker
	// Concurrency limits the requests in flight to one host.
	// Default off.
	Concurrency Concurrency

	// Hedge sends slow requests a second time. Default off.
	Hedge Hedge

	// ReplayBuffer is how many bytes of the body of a request are kept in memory for a
	// retry, if the body can neither be made anew (GetBody) nor be rewound (Seek). Default
	// 1 MiB, at most 64 MiB. All such bodies of a Transport together may take 64 MiB. The
	// first 64 KiB of each body do not count. A body larger than ReplayBuffer is sent
	// once. Write it to a file first, which can be rewound, or send it in parts.
	ReplayBuffer int64

	// Resume continues the body of a response when its connection is cut. It is off if
	// MaxAttempts is 1. Default On.
	//
	// The rest of a GET without a body of its own is asked for with Range and If-Range (RFC
	// 9110 §13.1.5, §14.2). For that the response needs a strong ETag. If it has no ETag at
	// all, it needs a Last-Modified that is a minute or more before its Date (§8.8.2.2). A
	// reconnect after 64 KiB of progress counts as a request. One without is a retry, for
	// which the whole rule applies, and MaxAttempts bounds how many of these follow one
	// another. Between two reconnects after less than 1 MiB there is at least 1 s, including
	// the time that the part took.
	//
	// If there is no rest to ask for, or if a signature of the request covers its range, the
	// request is sent again as a retry. Then the bytes that the reader has are compared with
	// those of the second response, and dropped. The headers are compared as well, but for
	// fields such as Date and X-Request-Id. The reader gets exactly the body of the second
	// response. If the two differ, the body ends with the error of the cut. This also serves requests that transport.WithIdempotent allows to be
	// sent again and that have no body or one in memory. It never serves a response that may
	// be a stream.
	//
	// From the first cut on, a Read takes at most 10 s, however many reconnects it needs.
	// Then, or if no attempt can come in that time, the body ends with the error of the cut.
	//
	// A base transport that delivers other bytes than the server's, decrypted ones for
	// instance, has to set Response.Uncompressed or remove the validator. Otherwise the rest
	// would not fit.
	Resume Switch

	// MaxRefetch is how many bytes of a body may be fetched a second time to be compared, by
	// all requests for this body together, as the reader gets them. The hash of what the
	// reader has stops there. Default 1 MiB, at most 1 GiB. Off: bodies are continued by Range
	// only.
	MaxRefetch int64

	complete bool // over Defaults: inherits nothing more
}

// Defaults returns the full default rule. The settings that are zero in it are
// off. A zero ThrottleKey means the credentials of the request. A rule over it, as
// rule.Or(policy.Defaults()), inherits nothing more.
func Defaults() Rule {
	return Rule{
		MaxAttempts:     6,
		Backoff:         backoff.Exponential{},
		Classify:        classify.Default,
		RetryAfter:      classify.RetryAfter,
		Idempotent:      classify.Idempotent,
		MaxRetryAfter:   time.Minute,
		RetryBudget:     RetryBudget{Ratio: 0.2, MinPerSecond: 3},
		ShareRetryAfter: Off,
		QuotaPacing:     Off,
		ReplayBuffer:    1 << 20,
		Resume:          On,
		MaxRefetch:      1 << 20,
		complete:        true,
	}
}

// Or returns r with each of its zero fields replaced by base's. The fields of a
// group, such as RateLimit, are replaced one by one. The Classify and the RetryAfter of r are
// asked first, and then those of base, each once:
//
//	policy.Rule{Classify: own}.Or(profile.GitHub()) // own, and then what the profile knows
//
// To assign to the field of a rule replaces what was there.
//
// r.Or(a).Or(b) is the same as r.Or(a.Or(b)). Neither r nor base is changed. Or looks at the fields
// by reflection, so that none is forgotten. Call it when a rule is made, not for each request.
func (r Rule) Or(base Rule) Rule {
	if r.complete {
		base = Defaults()
	}
	r.Classify = chain.Classify(r.Classify, base.Classify)
	r.RetryAfter = chain.RetryAfter(r.RetryAfter, base.RetryAfter)
	inherit(reflect.ValueOf(&r).Elem(), reflect.ValueOf(base))
	r.complete = r.complete || base.complete
	return r
}

// inherit sets the zero fields of a struct to those of another.
func inherit(to, from reflect.Value) {
	for i := range to.NumField() {
		switch field := to.Field(i); {
		case !field.CanSet():
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
		// The types with words of their own are smaller, and a back-off that is a number is in an interface.
		if at.CanFloat() && at.Float() == Off || at.CanInt() && at.Kind() != reflect.Int8 && at.Int() == Off {
			text = "off"
		}
		list = append(list, field.Name+": "+text)
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// show prints a value on one line. It does not follow pointers. So it ends even if
// pointers form a cycle, and it does not race with writers of the values behind
// them.
func show(v reflect.Value) string {
	name := strings.TrimPrefix(v.Type().String(), "policy.")
	wait, isConstant := v.Interface().(backoff.Constant)
	_, prints := v.Interface().(fmt.Stringer)
	switch kind := v.Kind(); {
	case kind == reflect.Interface:
		return show(v.Elem())
	case (kind == reflect.Pointer || kind == reflect.Func) && v.IsNil():
		return "(" + name + ")(nil)"
	case isConstant:
		return name + "(" + time.Duration(wait).String() + ")"
	case prints:
	case kind == reflect.Func:
		return "func"
	case kind == reflect.Pointer:
		return name
	case kind == reflect.Struct:
		return name + showFields(v)
	case kind == reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v)
}
