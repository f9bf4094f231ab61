// Package fleetlink connects a Transport with its fleet.
//
// The modules are released together, and a program may still update the root and not the
// module fleet. So until v1.0.0 a Link and a State may only get more fields, and a Transport
// works without those that v0.1.0 does not have.
package fleetlink

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
)

// A Link is a fleet as the Transport of one member sees it. Its functions are safe for
// concurrent use.
//
// A Transport calls them only in these cases: a host is used for the first time, a server
// asked to wait, named a quota or failed, or the rule has a RateLimit. The first try at a
// healthy host without a RateLimit calls none.
//
// A fleet need not report its own errors to a Transport. A Transport waits for an answer for
// 10 ms at most, in the 250 ms after its first question for tokens until their end, or in the
// first second if it has heard how many members there are. Then it goes on with its own knowledge. So a fleet that is slow or
// away costs no request. It may also drop news that comes too often.
type Link struct {
	// Join sets the one member. New of package transport calls it once, after it has found
	// no fault in its Config. From then on the fleet calls hear with news of the other
	// members and with answers, never with the member's own news. It does so in goroutines
	// of its own, never within a call of Join. Within a call of Tell it may only answer a
	// Meet. Hear returns at once, is safe for concurrent use, and may call Tell. It drops
	// what it cannot use, such as news of a host that this Transport does not know. Join
	// returns an error if there is a member already.
	Join func(hear func(fleetmsg.Message)) error

	// Tell takes a piece of news or a question. It does not wait for a network. A fleet
	// ignores kinds that it does not know.
	Tell func(fleetmsg.Message)

	// Scope returns a number for the credentials of a request, or for the ThrottleKey of
	// the rule. Members that get the same text get the same number. The number leaves the
	// process, so it must not help to guess the text. A keyed hash such as HMAC-SHA256 does
	// that.
	Scope func(text string) uint64

	// State returns how the fleet is at this moment.
	State func() State
}

// Link returns l, so that a Link is a transport.Fleet.
func (l *Link) Link() *Link { return l }

// A State is how a fleet is. transport.FleetState shows it to users, apart from Err, which package fleet prints.
type State struct {
	Connected    bool          // the backend answers
	Err          string        // why it does not, without secrets
	Members      int           // as far as is known
	HeartbeatAge time.Duration // since the last heartbeat that succeeded. Negative: none yet
	Commands     uint64        // to the backend
	Dropped      uint64        // news and questions that were not sent, or not answered in time
}
