// What keeps a client from making an outage worse: the values behind Rule's
// Budget, Cooldown, Gate, Hedge, Pacing and RateMode.

package policy

import (
	"fmt"
	"math"
	"time"
)

// A Switch turns something on or off. The zero Switch inherits.
type Switch uint8

const (
	// Inherit takes the setting of the rule below.
	Inherit Switch = iota
	// Off turns it off.
	Off
	// On turns it on.
	On
)

var switchNames = []string{"inherit", "off", "on"}

// String returns "on", "off", or "inherit" for the zero value.
func (s Switch) String() string { return nameOf("Switch", int(s), switchNames) }

// A RateMode says whether [Rule.Rate] stays what it is. The zero RateMode
// inherits.
type RateMode uint8

const (
	// RateInherit takes the mode of the rule below.
	RateInherit RateMode = iota
	// RateFixed keeps the rate as it is.
	RateFixed
	// RateAdaptive lowers the rate on a 429 (to 0.7 of it, at most once per round
	// trip and per 100 ms) and raises it again with successes, back to Rate within
	// 30 s.
	RateAdaptive
)

var rateModeNames = []string{"inherit", "fixed", "adaptive"}

// String returns "fixed", "adaptive", or "inherit" for the zero value.
func (m RateMode) String() string { return nameOf("RateMode", int(m), rateModeNames) }

// A Budget bounds the retries and hedges to one host over time:
//
//	retries in a window ≤ Ratio × requests in it + PerSecond × its length + Burst
//
// Without one, a client that sends everything up to six times makes an outage
// six times worse. It is asked last, for a retry that would otherwise happen.
// The zero Budget inherits; in any other, a zero field takes its default.
// [NoBudget] turns it off.
type Budget struct {
	// Ratio is how many retries each request earns, at most 1. Default 0.2.
	// Negative: none.
	Ratio float64
	// PerSecond is how many retries each second earns, so that a quiet client
	// keeps all of its retries. Default 3. Negative: none.
	PerSecond float64
	// Window is the time within which PerSecond earns a whole Burst. Default
	// 10 s.
	Window time.Duration
	// Burst is how many retries can be saved up, and so sent at once. Default
	// PerSecond × Window, or 10 where PerSecond is off; at least 1.
	Burst float64
}

// NoBudget returns the Budget that lets every retry through.
func NoBudget() Budget { return Budget{Ratio: -1, PerSecond: -1} }

// A GateMode says what a [Gate] does with a request that finds it full. The
// zero GateMode is GateWait in a Gate with another field set.
type GateMode uint8

const (
	gateInherit GateMode = iota
	// GateOff leaves the gate open.
	GateOff
	// GateWait makes requests wait for their turn, in order, until their
	// deadline.
	GateWait
	// GateRefuse refuses at once what cannot go at once.
	GateRefuse
)

var gateModeNames = []string{"inherit", "off", "wait", "refuse"}

// String returns "off", "wait" or "refuse".
func (m GateMode) String() string { return nameOf("GateMode", int(m), gateModeNames) }

// A Gate is an adaptive limit of the requests in flight to one host, from the
// send to the end of the answer's body: circuit breaker, bulkhead and slow
// start in one. It grows only while it is used up, so in health it stays near
// the real concurrency; when the host fails wholesale it closes, and one probe
// at a time looks whether the host is back. A probe without an answer makes room
// for the next one after 10 s. The zero Gate inherits.
//
// A failure counts until its headers or its error arrive. A success counts until
// its body has ended or is closed, or the request's context has ended. A body
// that nobody reads from for a minute, because its caller has forgotten it,
// counts no longer. A request without an answer counts until it ends, so set
// AttemptTimeout together with a gate.
type Gate struct {
	// Mode turns the gate on. Default, where another field is set, GateWait.
	Mode GateMode
	// Start is the limit at first, and the one below which an unused limit does
	// not go. Default 10.
	Start int
	// Max is the highest limit. Default none.
	Max int
}

// A Hedge sends a request a second time when its answer takes long, and takes
// whichever answer comes first. Each hedge counts against the Budget, and none is
// sent while the host asked to wait. The zero Hedge inherits; [NoHedge] turns it
// off.
//
// By default only GET, HEAD, OPTIONS and TRACE are hedged. The effect of PUT and
// DELETE is idempotent but their status is not (RFC 9110 §9.2.2): the second send
// finds the work done and answers 404 or 412. Other methods are hedged if the
// caller says so by transport.Repeatable, or if Rule.Idempotent is set to a
// function other than the default, which says so. Then a 4xx never beats a send
// that is still under way. An Idempotency-Key alone does not suffice, since
// servers refuse a key that is in use. A request with a body is hedged only if
// the body is in memory, as those are for which net/http sets GetBody.
type Hedge struct {
	// After is how long to wait for the first answer. With Percentile, it
	// counts until enough answers were seen; zero then means that nothing is
	// hedged until then.
	After time.Duration
	// Percentile, above 1 and at most 99.9, hedges what takes longer than so many
	// percent of the host's own recent answers: 98 sends about 2 % more.
	Percentile float64
}

// NoHedge returns the Hedge that is off.
func NoHedge() Hedge { return Hedge{After: -1} }

// Enabled reports whether the Hedge does anything.
func (h Hedge) Enabled() bool { return h.After > 0 || h.Percentile > 0 }

// Enabled reports whether the Gate does anything.
func (g Gate) Enabled() bool { return g != (Gate{}) && g.Mode != GateOff }

func (b Budget) check(bad *Errors) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"Budget.Ratio", b.Ratio}, {"Budget.PerSecond", b.PerSecond}, {"Budget.Burst", b.Burst}} {
		switch {
		case math.IsNaN(f.value) || math.IsInf(f.value, 0):
			bad.add(f.name, f.value, "is not a number of retries")
		case f.value > 1e6:
			bad.add(f.name, f.value, "is more than a million retries")
		}
	}
	if b.Ratio > 1 && b.Ratio <= 1e6 {
		meant := "NoBudget() turns the budget off"
		if b.Ratio <= 100 {
			meant = fmt.Sprintf("did you mean %.4g, which is %[2]g %%? %[3]s", b.Ratio/100, b.Ratio, meant)
		}
		bad.add("Budget.Ratio", b.Ratio, "is more than one retry for each request; %s", meant)
	}
	if b.Burst < 0 {
		bad.add("Budget.Burst", b.Burst, "is negative; turn the parts off by Ratio and PerSecond")
	}
	if b.Window < 0 {
		bad.add("Budget.Window", b.Window, "is negative")
	}
	bad.checkTime("Budget.Window", b.Window)
}

func (g Gate) check(bad *Errors) {
	switch {
	case int(g.Mode) >= len(gateModeNames):
		bad.add("Gate.Mode", g.Mode, "is none of off, wait and refuse")
	case g.Start < 0:
		bad.add("Gate.Start", g.Start, "is negative; GateOff turns the gate off")
	case g.Max < 0:
		bad.add("Gate.Max", g.Max, "is negative; GateOff turns the gate off")
	case g.Max > 0 && g.Start > g.Max:
		bad.add("Gate.Start", g.Start, "is more than Max (%d)", g.Max)
	}
}

func (h Hedge) check(bad *Errors) {
	bad.checkTime("Hedge.After", h.After)
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
