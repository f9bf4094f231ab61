// The groups of a Rule's fields, and the modes.

package policy

import (
	"fmt"
	"math"
	"time"
)

// Off turns a setting off. It is a value for numbers, durations, sizes and modes:
//
//	policy.Rule{MaxAttempts: policy.Off, Lanes: policy.Off, RetryRetryBudget: policy.RetryBudget{Burst: policy.Off}}
const Off = -1

// A Switch is [On] or [Off]. The zero Switch inherits.
type Switch int8

// On turns a setting on.
const On Switch = 1

// RetryAfter bounds the waits that servers ask for (RFC 9110 §10.2.3). A random time of up
// to 1 s comes on top of such a wait. It is never longer than the wait itself, and never
// passes the deadline of the request.
type RetryAfter struct {
	// Max is the longest wait that a server may ask for. Default 1 min. Off: no
	// bound.
	Max time.Duration
	// Beyond says what to do when a server asks for more than Max. Default
	// BeyondStop.
	Beyond Beyond
}

// Beyond says what to do when a server asks for a wait longer than
// RetryAfter.Max. The zero Beyond inherits.
type Beyond int8

const (
	// BeyondStop gives up at once and returns the response. A client that comes
	// back earlier than told makes an outage worse.
	BeyondStop Beyond = iota + 1
	// BeyondCap waits for Max and then tries, which is earlier than told.
	BeyondCap
	// BeyondWait waits as long as the server asked.
	BeyondWait
)

// Stall says when a connection that stands still counts as lost. The request is
// then retried or the body resumed, if that is possible. If not, the request
// fails with a timeout error.
type Stall struct {
	// Timeout bounds the time without progress while the caller waits for the
	// server: for the headers of the response, for the server to take more of the
	// request's body, and in a Read of the response's body. Default off.
	Timeout time.Duration
}

// RateLimit limits the attempts per second to one host, retries included. With
// transport.Config.Fleet the limit is for all processes of the fleet together.
type RateLimit struct {
	// PerSecond is the highest number of attempts per second. Default off.
	PerSecond float64
	// Burst is how many attempts may go at once. Default PerSecond rounded up. It
	// has no effect without PerSecond.
	Burst int
}

// Upload bounds what is kept of the body of a request for a retry, if the body can
// neither be made anew (GetBody) nor be rewound (Seek).
type Upload struct {
	// Memory is how many bytes of such a body are kept in memory. Default 1 MiB, at
	// most 64 MiB. All such bodies of a Transport together may take 64 MiB. The first
	// 64 KiB of each body do not count, and are always kept. A larger body is sent
	// once. Write it to a file first, which can be rewound, or send it in parts.
	Memory int64
}

// Resume continues the body of a response when its connection is cut. It is off if
// MaxAttempts is 1 or Off.
//
// The rest of a GET without a body of its own is asked for with Range and If-Range (RFC
// 9110 §13.1.5, §14.2). For that the response needs a strong ETag. If it has no ETag at
// all, it needs a Last-Modified that is a minute or more before its Date (§8.8.2.2). A
// reconnect after progress counts as a request. A reconnect without progress is a retry,
// for which the whole rule applies. Between two reconnects after less than 1 MiB there is
// at least 1 s, including the time that the part took.
//
// If there is no rest to ask for, the request is sent again as a retry. Then the bytes
// that the reader has are compared with those of the second response, and dropped. The
// headers are compared as well, but for fields such as Date and X-Request-Id. The reader
// gets exactly the body of the second response. If the two differ, the body ends with the
// error of the cut. This also serves requests that transport.WithIdempotent allows to be sent
// again and that have no body or one in memory. It never serves a response that may be a
// stream.
//
// From the first cut on, a Read takes at most 10 s, however many reconnects it needs. Then,
// or if no attempt can come in that time, the body ends with the error of the cut.
//
// A base transport that delivers other bytes than the server's, decrypted ones for
// instance, has to set Response.Uncompressed or remove the validator. Otherwise the rest
// would not fit.
type Resume struct {
	// Max is how many reconnects in a row may fail to bring 64 KiB of progress.
	// Default 5. Off turns resuming off.
	Max int
	// Again is how many bytes of a body may be fetched a second time, by all requests
	// for this body together, as the reader gets them. The hash of what the reader has
	// stops there. Default 1 MiB, at most 1 GiB. Off leaves only the rest by Range.
	Again int64
}

// A RetryBudget bounds the retries and hedges to one host over time:
//
//	retries in a window ≤ Ratio × requests in it + PerSecond × its length + Burst
//
// Without a budget, a client that sends everything up to six times makes an outage
// six times worse. The budget is asked last, for a retry that would otherwise
// happen.
//
// If 20 retries in a row have failed and no attempt has succeeded meanwhile, retries do not
// help, and the budget rests. Then 50 requests earn a retry, and so does a minute, and one can
// be saved up. If Ratio or PerSecond is less than that, it stays. The first success of any
// attempt ends the rest. A 429, or a 503 that names a wait, is no success. To a first attempt it
// is no failure either.
//
// A retry after a wait that the server named belongs to the window in which it will be sent. If the
// budget has nothing left then, the caller gets the refusal at once.
//
// A zero field inherits. [Off] in Burst turns the whole budget off.
type RetryBudget struct {
	// Ratio is how many retries each request earns, at most 1. Default 0.2. Off:
	// none.
	Ratio float64
	// PerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. Default 3. Off: none.
	MinPerSecond float64
	// Window is the time within which PerSecond earns a whole Burst. Default
	// 10 s.
	Window time.Duration
	// Burst is how many retries can be saved up, and so go at once. Default
	// PerSecond × Window, or 10 if PerSecond is off, and at least 1. Off: no bound
	// for retries at all.
	Burst float64
}

// A GateMode says what a [Concurrency] does with a request that finds it full. [Off]
// turns the gate off. The zero GateMode means GateWait if another field of the
// Concurrency is set.
type GateMode int8

const (
	// GateWait makes requests wait for their turn, in order, until their
	// deadline.
	GateWait GateMode = iota + 1
	// GateRefuse refuses a request at once if it cannot go at once. In a fleet, a closed
	// gate needs a permit of the fleet for each probe, and a request that has to ask for
	// one is refused. So the first request after an outage in which nobody sent anything
	// fails, although the host is back.
	GateRefuse
)

// A Concurrency is an adaptive limit of the requests in flight to one host, from the
// start of an attempt to the end of the response's body. It is circuit breaker,
// bulkhead and slow start in one. The limit grows only while it is used up, so in
// health it stays near the real concurrency. When the host fails wholesale, the
// gate closes, and one probe at a time finds out whether the host is back. If a
// probe has no response after 10 s, the next one may go. A zero field inherits.
//
// A failure counts as in flight until its headers or its error arrive. A success
// counts until its body has ended or is closed, or the request's context has
// ended. If nobody reads from a body for ten seconds, because its caller has
// forgotten it, it no longer counts. An attempt without a response counts until
// it ends, so set AttemptTimeout together with a gate.
type Concurrency struct {
	// Mode turns the gate on. If another field is set, the default is GateWait.
	Mode GateMode
	// Start is the limit at first, and the value below which an unused limit does
	// not go. Default 10. The processes of a fleet divide it. Each has 2 at least,
	// unless Start is less.
	Initial int
	// Max is the highest limit. It bounds neither streams nor uploads that wait for
	// their callers. Default none.
	Max int
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
// the work done and gets 404 or 412. Other methods are hedged if the caller allows
// it with transport.WithIdempotent. Then a 4xx never beats an attempt that is still
// under way. Rule.Idempotent does not suffice, nor does an Idempotency-Key, because
// servers refuse a key that is in use. A request with a body is hedged only if the
// body is in memory, as are the bodies for which net/http sets GetBody. A request
// with a trailer is not hedged.
//
// The hooks of an httptrace.ClientTrace do not hear of the second attempt.
type Hedge struct {
	// After is how long to wait for the first response. If Percentile is set,
	// After counts until enough responses were seen, and zero means that nothing
	// is hedged until then. Off turns hedging off.
	Delay time.Duration
	// Percentile, above 1 and at most 99.9, hedges requests that take longer than
	// so many percent of the host's own recent responses. 98 sends about 2 % more.
	Percentile float64
}

// Enabled reports whether the Hedge does anything.
func (h Hedge) Enabled() bool { return h.Delay > 0 || h.Delay == 0 && h.Percentile > 0 }

// Enabled reports whether the Concurrency does anything.
func (g Concurrency) Enabled() bool { return g != (Concurrency{}) && g.Mode != Off }

func (b RetryBudget) check(bad *Errors) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"RetryBudget.Ratio", b.Ratio}, {"RetryBudget.MinPerSecond", b.MinPerSecond}, {"RetryBudget.Burst", b.Burst}} {
		switch {
		case math.IsNaN(f.value) || math.IsInf(f.value, 0):
			bad.add(f.name, f.value, "is not a number of retries")
		case f.value > 1e6:
			bad.add(f.name, f.value, "is more than a million retries")
		}
	}
	if b.Ratio > 1 && b.Ratio <= 1e6 {
		meant := "Burst: policy.Off turns the budget off"
		if b.Ratio <= 100 {
			meant = fmt.Sprintf("did you mean %.4g, which is %[2]g %%? %[3]s", b.Ratio/100, b.Ratio, meant)
		}
		bad.add("RetryBudget.Ratio", b.Ratio, "is more than one retry for each request; %s", meant)
	}
	if b.Ratio < 0 && b.MinPerSecond < 0 && b.Burst >= 0 {
		bad.add("RetryBudget", nil, "would earn no retries at all; Burst: policy.Off turns the budget off, MaxAttempts: 1 the retries")
	}
	if b.Window < 0 {
		bad.add("RetryBudget.Window", b.Window, "is negative")
	}
	bad.checkTime("RetryBudget.Window", b.Window)
}

func (g Concurrency) check(bad *Errors) {
	switch {
	case !gateModeWords.has(int8(g.Mode)):
		bad.add("Concurrency.Mode", g.Mode, "is none of off, wait and refuse")
	case g.Initial < 0:
		bad.add("Concurrency.Initial", g.Initial, "is negative; Mode: policy.Off turns the gate off")
	case g.Max < 0:
		bad.add("Concurrency.Max", g.Max, "is negative; Mode: policy.Off turns the gate off")
	case g.Max > 0 && g.Initial > g.Max:
		bad.add("Concurrency.Initial", g.Initial, "is more than Max (%d)", g.Max)
	}
}

func (h Hedge) check(bad *Errors) {
	bad.checkTime("Hedge.Delay", h.Delay)
	switch {
	case h.Percentile == 0:
	case !(h.Percentile > 0 && h.Percentile <= 99.9):
		bad.add("Hedge.Percentile", h.Percentile, "is not above 1 and at most 99.9")
	case h.Percentile <= 0.999:
		bad.add("Hedge.Percentile", h.Percentile, "is a share; did you mean %.4g?", h.Percentile*100)
	case h.Percentile <= 1:
		bad.add("Hedge.Percentile", h.Percentile, "would hedge nearly every request; did you mean 99?")
	}
}
