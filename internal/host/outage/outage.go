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

	// A fleet is told of the failures every reportEvery at most, so that Redis bears a thousand members that fail.
	reportEvery = 250 * time.Millisecond
)

// An Outage is the failures of a host since its last success, and the outage that comes of them. Its owner guards it with
// a lock. The zero Outage is ready.
//
// While a host is down, every attempt to it is a probe: its success ends the outage. New requests
// make their first attempt anyway. So a request that waits has to probe only if no attempt was made for a gap.
type Outage struct {
	failures int             // in a row
	since    instant.Instant // when the first of them began
	down     bool
	shared   bool            // the fleet says that the host is down
	last     instant.Instant // while down: when an attempt failed last, or a probe went
	gap      time.Duration   // while down: from then to the next probe
	ended    instant.Instant // when the last outage ended
	told     instant.Instant // when the fleet was told of the failures last
}

// Failed notes the failure of an attempt that began at a time, and reports whether an outage begins. wait is how long the
// server asked to wait: a host that asks ten times in a row is down for so long.
func (o *Outage) Failed(now, began instant.Instant, wait time.Duration) (begins bool) {
	if o.failures++; o.failures == 1 {
		o.since = began
	}
	o.last = max(o.last, now)
	if begins = !o.down && o.failures >= Row && now.Sub(o.since)+wait >= leastTime; begins {
		o.down, o.gap = true, leastTime
	}
	return begins
}

// Succeeded notes the success of an attempt, and reports whether it ends an outage.
func (o *Outage) Succeeded(now instant.Instant) (ends bool) {
	if ends = o.down; ends {
		o.ended = now
	}
	o.failures, o.down, o.shared = 0, false, false
	return ends
}

// Down reports whether the host is down.
func (o *Outage) Down() bool { return o.down }

// Since returns when the first failure in a row began, and how many there were.
func (o *Outage) Since() (since instant.Instant, failures int) { return o.since, o.failures }

// Ended returns when the last outage ended, or 0 if there was none.
func (o *Outage) Ended() instant.Instant { return o.ended }

// NextProbe returns when a request that waits may probe a host that is down. patience is how long the first of
// them waits in all, and members is the size of the fleet, whose members share the probes.
func (o *Outage) NextProbe(patience time.Duration, members int) instant.Instant {
	gap := o.gap
	if o.shared {
		gap = min(gap*time.Duration(members), quarters*LongestGap)
	}
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

// Report returns the failures in a row and when the first of them began, if the fleet has to hear of them now. It hears of an
// outage, and of its failures as long as it lasts. Otherwise Report returns 0.
func (o *Outage) Report(now instant.Instant) (failures int, since instant.Instant) {
	if !o.down || o.failures == 0 || o.told != 0 && now.Sub(o.told) < reportEvery {
		return 0, 0
	}
	o.told = now
	return o.failures, o.since
}

// Begin is told that the host has been down for the fleet since a time. A member whose own requests have not failed may find
// out at once: the others may fail for reasons of their own.
func (o *Outage) Begin(now, since instant.Instant) {
	if o.shared = true; !o.down {
		o.down, o.last, o.gap = true, now, leastTime
		if o.failures == 0 {
			o.since, o.gap = since, 0
		}
	}
}

// Return is told that the host is back for the fleet. The next probe goes at a time, at which each member comes back.
func (o *Outage) Return(at instant.Instant) {
	if o.down {
		o.shared, o.last, o.gap = false, at, 0
	}
}
