// Package outage knows whether a host is down, and when a request that waits may find out whether the host is back.
package outage

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// make outages chose these figures.
const (
	// Row is how many failures in a row mean that a host is down, if they last for leastTime. A broken
	// connection of HTTP/2 fails all its requests at once, and is no outage.
	Row       = 10
	leastTime = time.Second

	// The gaps between the probes begin with leastTime and double, up to LongestGap. With twice that, the end of an outage
	// is found so late that the first workers take 15 s to come back.
	LongestGap = 5 * time.Second

	// A request that waits sees a probe in each quarter of its time, or in a second after the first probe, so that none gives up
	// beside a host that is back, however large the fleet. If none waits, the members share the probes within so many of the
	// longest gaps.
	quarters = 4
)

// A State says whether a host is down.
type State struct {
	Down     bool
	Failures int             // in a row
	Since    instant.Instant // when the first of them began
	Ended    instant.Instant // when the last outage ended; 0: there was none
}

// An Outage is the failures of a host since its last success, and the outage that comes of them. Its owner guards it with
// a lock, and only reads its State. The zero Outage is ready.
//
// While a host is down, every attempt to it is a probe: its success ends the outage. New requests
// make their first attempt anyway. So a request that waits has to probe only if no attempt was made for a gap.
type Outage struct {
	State
	last instant.Instant // while down: when an attempt failed last, or a probe went
	gap  time.Duration   // while down: from then to the next probe
}

// Failed notes the failure of an attempt that began at a time, and reports whether an outage begins. wait is how long the
// server asked to wait: a host that asks ten times in a row is down for so long.
func (o *Outage) Failed(now, began instant.Instant, wait time.Duration) (begins bool) {
	if o.Failures++; o.Failures == 1 {
		o.Since = began
	}
	o.last = max(o.last, now)
	if begins = !o.Down && o.Failures >= Row && now.Sub(o.Since)+wait >= leastTime; begins {
		o.Down, o.gap = true, leastTime
	}
	return begins
}

// Succeeded notes the success of an attempt, and reports whether it ends an outage.
func (o *Outage) Succeeded(now instant.Instant) (ends bool) {
	if ends = o.Down; ends {
		o.Ended = now
	}
	o.Failures, o.Down = 0, false
	return ends
}

// NextProbe returns when a request that waits may probe a host that is down. patience is how long the first of
// them waits in all, and probers is how many members of a fleet share the probes, or 1.
func (o *Outage) NextProbe(patience time.Duration, probers int) instant.Instant {
	gap := min(o.gap*time.Duration(probers), quarters*LongestGap)
	most := patience / quarters
	if o.gap > leastTime { // somebody has probed already
		most = max(most, leastTime)
	}
	return instant.After(o.last, min(gap, most))
}

// Probe notes that a request that waited probes now.
func (o *Outage) Probe(now instant.Instant) {
	o.last, o.gap = now, min(max(2*o.gap, leastTime), LongestGap)
}

// Hear is told by a fleet that the host is down since a time, and when the next probe goes: a gap after an attempt or a probe at
// the time last.
func (o *Outage) Hear(since, last instant.Instant, gap time.Duration) {
	if !o.Down && o.Failures == 0 {
		o.Since = since
	}
	o.Down, o.last, o.gap = true, last, gap
}
