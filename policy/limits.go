// The groups of a Rule's fields, and the modes.

package policy

import (
	"math"
	"strconv"
	"time"
)

// Off turns a setting off. It is a value for numbers, durations, sizes and switches. A group
// of settings, such as [RateLimit], is turned off by its field Enabled:
//
//	policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}, MaxRefetch: policy.Off}
const Off = -1

// A Switch is [On] or [Off]. The zero Switch inherits.
type Switch int8

// On turns a setting on.
const On Switch = 1

// RateLimit limits the attempts per second to one host, retries included. With
// transport.Config.Fleet the limit is for all processes of the fleet together.
type RateLimit struct {
	// Enabled turns the limit off and, below a rule that turned it off, on again.
	Enabled Switch
	// PerSecond is the highest number of attempts per second. Default: no limit.
	PerSecond float64
	// Burst is how many attempts may go at once. Default PerSecond rounded up. It
	// has no effect without PerSecond.
	Burst int
}

// A RetryBudget bounds the retries and hedges to one host over time:
//
//	retries in a window ≤ Ratio × requests in it + MinPerSecond × its length
//		+ 3 × retries that succeed in it, while others wait + 10 s of MinPerSecond, at least 1
//
// Those whose attempts failed before the end of an outage do not count. Without a budget, a client that sends everything up to six
// times makes an outage six times worse.
//
// The budget withholds attempts, and not requests. A retry that may not go yet waits for as long as its own schedule
// would have gone on: for the back-offs of its remaining attempts, and for the time that these would have taken. It ends a little
// before its deadline and MaxElapsedTime. Then its caller gets what the last attempt got.
//
// While the host is down, as [CircuitBreaker] defines it, new requests make their first attempt and find out whether it is
// back. If there are none, one of the retries that wait goes now and then. After the first success those who wait come back gradually.
//
// A 429 is no failure of the host. It counts for the requests with the same ThrottleKey, which have a line of their own. So have
// the requests to a path that always fails.
//
// A zero field inherits.
type RetryBudget struct {
	// Enabled is on by default. Off: no bound for retries at all.
	Enabled Switch
	// Ratio is how many retries each request earns, at most 1. Default 0.2. Off:
	// none.
	Ratio float64
	// MinPerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. Default 3. Off: none.
	MinPerSecond float64
}

// A CircuitBreaker withholds first attempts from a host that is down, as the RetryBudget withholds retries. A host is
// down after ten failures in a row, over a second or more: responses of 500 and above but 501, 505 and 511, and errors
// of the network. While it is down, one request at a time finds out whether it is back, first after a second, and later
// every five seconds. The others wait for as long as the rule's back-offs would take, and at most until their deadline. After the
// first success they come back gradually. A zero field inherits.
type CircuitBreaker struct {
	// Enabled turns the circuit breaker on, or off below a rule that turned it on.
	Enabled Switch
	// FailFast makes requests fail at once while the host is down, their retries included. By default they wait.
	// It has no effect while the circuit breaker is off.
	FailFast Switch
}

// A Concurrency limits the requests in flight to one host, from the
// start of an attempt to the end of the response's body. It is a bulkhead: a host that is slow
// gets at most Max of the program's requests at a time. The others wait in the order in which they
// came. Each process of a fleet has a Max of its own. A zero field inherits.
//
// A failure counts as in flight until its headers or its error arrive. A success
// counts until its body has ended or is closed, or the request's context has
// ended. If nobody reads from a body for ten seconds, because its caller has
// forgotten it, it no longer counts. An attempt without a response counts until
// it ends, so set AttemptTimeout together with this limit.
type Concurrency struct {
	// Enabled turns the limit off and, below a rule that turned it off, on again. On needs a Max.
	Enabled Switch
	// Max is how many requests may be in flight at the same time. It bounds neither streams nor uploads
	// that wait for their callers. Default: no limit.
	Max int
	// FailFast makes a request fail when Max are in flight. By default it waits for its turn,
	// in order, until its deadline. It has no effect without Max.
	FailFast Switch
}

// A Hedge sends a request a second time when its response takes long. The first
// response that is no failure counts, and ends the other attempt. A 4xx or 5xx of
// the second attempt is kept until the first has ended. Each hedge counts against
// the RetryBudget, and no hedge is sent while the host asked to wait. A zero field
// inherits.
//
// RoundTrip returns when the base transport has ended the first attempt. net/http
// does so at once. A base that ignores the context of a request holds up the
// response of the second attempt.
//
// Only safe methods are hedged, such as GET. The effect of PUT and DELETE is
// idempotent but their status is not (RFC 9110 §9.2.2). The second attempt finds
// the work done and gets 404 or 412. Other methods are hedged if UnsafeMethods is on,
// or if the caller allows it with transport.WithIdempotent. A request with a body is
// hedged only if the body is in memory, as are the bodies for which net/http sets
// GetBody. A request with a trailer is not hedged.
//
// The hooks of an httptrace.ClientTrace do not hear of the second attempt.
type Hedge struct {
	// Enabled turns hedging off and, below a rule that turned it off, on again.
	Enabled Switch
	// Delay is how long to wait for the first response. If Percentile is set, Delay counts
	// until enough responses were seen, and zero means that nothing is hedged until then.
	Delay time.Duration
	// Percentile, above 1 and at most 99.9, hedges requests that take longer than
	// so many percent of the host's own recent responses. 98 sends about 2 % more.
	Percentile float64
	// UnsafeMethods hedges all requests that Rule.Idempotent allows to be sent again, such
	// as PUT. A request with an Idempotency-Key is one of them, and many servers refuse a key
	// that is in use. Default Off.
	UnsafeMethods Switch
}

func (l RateLimit) check(bad *faults) {
	bad.checkSwitch("RateLimit.Enabled", l.Enabled)
	rate := l.PerSecond
	add(bad, math.IsNaN(rate), "RateLimit.PerSecond", rate, "is not a number of requests per second")
	add(bad, rate < 0, "RateLimit.PerSecond", rate, "is negative; Enabled: policy.Off turns the limit off")
	add(bad, rate > maxRate, "RateLimit.PerSecond", rate, "is more than 1e+09 requests per second")
	add(bad, rate != 0 && l.Burst < 0, "RateLimit.Burst", l.Burst,
		"would let nothing through; leave Burst at 0 for PerSecond rounded up")
}

func (b RetryBudget) check(bad *faults) {
	checkOff(bad, "RetryBudget.Ratio", b.Ratio)
	checkOff(bad, "RetryBudget.MinPerSecond", b.MinPerSecond)
	add(bad, math.IsNaN(b.Ratio), "RetryBudget.Ratio", b.Ratio, "is not a number of retries")
	add(bad, math.IsNaN(b.MinPerSecond), "RetryBudget.MinPerSecond", b.MinPerSecond, "is not a number of retries")
	add(bad, b.Ratio > 1, "RetryBudget.Ratio", b.Ratio,
		"is more than one retry for each request; 0.2 is 20 %, and Enabled: policy.Off turns the budget off")
	add(bad, b.MinPerSecond > 1e6, "RetryBudget.MinPerSecond", b.MinPerSecond, "is more than a million retries")
	add(bad, b.Ratio == Off && b.MinPerSecond == Off && b.Enabled != Off, "RetryBudget", any(nil),
		"would earn no retries at all; Enabled: policy.Off turns the budget off, MaxAttempts: 1 the retries")
	bad.checkSwitch("RetryBudget.Enabled", b.Enabled)
}

func (g CircuitBreaker) check(bad *faults) {
	bad.checkSwitch("CircuitBreaker.Enabled", g.Enabled)
	bad.checkSwitch("CircuitBreaker.FailFast", g.FailFast)
}

func (g Concurrency) check(bad *faults) {
	bad.checkSwitch("Concurrency.Enabled", g.Enabled)
	bad.checkSwitch("Concurrency.FailFast", g.FailFast)
	add(bad, g.Max < 0, "Concurrency.Max", g.Max, "is negative; Enabled: policy.Off turns the limit off")
	add(bad, g.Max == 0 && g.Enabled == On, "Concurrency.Enabled", g.Enabled,
		"needs a Max, the most requests that the host takes at a time")
}

func (h Hedge) check(bad *faults) {
	bad.checkSwitch("Hedge.Enabled", h.Enabled)
	bad.checkSwitch("Hedge.UnsafeMethods", h.UnsafeMethods)
	add(bad, h.Delay < 0, "Hedge.Delay", h.Delay, "is negative; Enabled: policy.Off turns hedging off")
	bad.checkTime("Hedge.Delay", max(h.Delay, 0))
	inRange := h.Percentile > 1 && h.Percentile <= 99.9
	add(bad, h.Percentile != 0 && !inRange, "Hedge.Percentile", h.Percentile,
		"is not above 1 and at most 99.9; 98 sends 2 % more")
}

// String returns "on", "off", or "inherit" for the zero value.
func (s Switch) String() string {
	if s < Off || s > On {
		return "Switch(" + strconv.Itoa(int(s)) + ")"
	}
	return [...]string{"off", "inherit", "on"}[s-Off]
}
