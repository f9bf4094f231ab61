// The bounds of a hold, and how the members of a fleet return from it.

package cooldown

import (
	"math"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Config bounds holds. Zero fields take the defaults.
type Config struct {
	// Max is the longest time for which a single response can hold a scope. The
	// default is 1 min. A negative Max means no bound.
	Max time.Duration
	// Stop matters for a scope that was told to wait for longer than Max. With
	// Stop the scope refuses requests while the hold lasts. Without it the
	// requests wait.
	Stop bool
	// Jitter is the width of the jitter at the end of a hold. The jitter keeps
	// members that were told the same time from coming back in the same
	// instant. It only ever makes a hold longer. The default is half the wait,
	// at most 1 s. A negative Jitter means no jitter.
	Jitter time.Duration
	// Members is the size of the fleet. Probes is the time within which its members
	// send probes of a hold that they only heard of.
	Members int
	Probes  time.Duration
}

func (c Config) withDefaults() Config {
	switch {
	case c.Max == 0:
		c.Max = time.Minute
	case c.Max < 0:
		c.Max = instant.Forever
	}
	return c
}

// memberGap is the mean time between two members of a fleet that come back after a hold.
const memberGap = 20 * time.Millisecond

// ForMember returns the config for a hold in each of so many members of a fleet. The jitter
// spreads them 20 ms apart, over at most the time of the wait and Max, so that a size that is
// not true holds nobody for hours. The probes are spread as well, over at most half of the
// wait.
func (c Config) ForMember(members int, wait time.Duration) Config {
	if members <= 1 {
		return c
	}
	if c.Jitter == 0 {
		c.Jitter = min(max(time.Duration(members)*memberGap, c.jitter(wait)), wait, c.withDefaults().Max)
	}
	c.Members = members
	c.Probes = min(max(ReturnTime(members), 4*testimony), wait/2)
	return c
}

// turn returns when a member sends its probe, within Probes. u in [0,1) draws it. Few
// members are early, and each is more likely to be late than early. So one of them mostly
// sends its probe and tells of it before the next is due, however many there are (RFC 4654
// §2.5 spreads the feedback of receivers in this way).
func (c Config) turn(u float64) time.Duration {
	if c.Members <= 1 || u <= 0 {
		return 0
	}
	part := 1 + math.Log(u)/math.Log(8*float64(c.Members))
	return time.Duration(max(0, part) * float64(c.Probes))
}

// ReturnTime returns the time within which so many members of a fleet come back when a
// hold is over before its time: 20 ms apart, but 5 s at most.
func ReturnTime(members int) time.Duration {
	return min(time.Duration(members-1)*memberGap, 5*time.Second)
}

// jitter returns the width of the jitter after a wait.
func (c Config) jitter(wait time.Duration) time.Duration {
	if c.Jitter == 0 {
		return min(wait/2, time.Second)
	}
	return max(0, c.Jitter)
}

// A Code tells apart the two kinds of response that hold a scope.
type Code uint8

const (
	// TooMany is 429 and everything else that says "you send too much". Its hold
	// stands until its time is over.
	TooMany Code = iota
	// Unavailable is 503. Its hold ends when the server shows that it is back.
	Unavailable
	codes
)

// A Refusal is a response that asked to wait.
type Refusal struct {
	Code Code
	Wait time.Duration
	// Sent is when its request was sent. It is zero if that is not known.
	Sent instant.Instant
	// Again says that the request was a probe of another member of the fleet.
	Again bool
	// Ended is how many requests to the host have ended until now.
	Ended uint64
}
