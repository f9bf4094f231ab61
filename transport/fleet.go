// The seam to a fleet: what Transports of several processes tell each other.

package transport

import (
	"github.com/aplomb-go/aplomb/fleetmsg"
)

// A Fleet lets the Transports of several processes share what servers tell them, so
// that the processes behave like one client. Each such Transport is a member. The
// module fleet has a Fleet over Redis. This interface is for other backends, and package
// fleettest has the tests that a backend should pass: Run and Hang.
//
// A Transport calls a Fleet only in these cases: a host is used for the first time, a
// server asked to wait, named a quota or failed, or the rule has a RateLimit. The first try
// at a healthy host without a RateLimit never calls it.
//
// A Fleet need not report its own errors to a Transport. A Transport waits for an answer
// for 10 ms at most, in the 250 ms after its first question for tokens until their end, or in
// the first second if it has heard how many members there are, and for a permit to probe a host
// that is down for 250 ms. Then it goes on with its own
// knowledge. So a Fleet that is slow or away costs no request. A Fleet may also drop news
// that comes too often.
//
// A Fleet may also have a method FleetState() [FleetState], for [Transport.FleetState].
//
// The methods are safe for concurrent use.
type Fleet interface {
	// Join sets the one member of the Fleet. [New] calls it once, after it has found no
	// fault in its Config. From then on the Fleet calls hear with news of the other
	// members and with answers, never with the member's own news. It does so in goroutines
	// of its own, never within a call of Join. Within a call of Tell it may only answer a
	// Meet. Hear returns at once, is safe for concurrent use, and may call Tell. It drops
	// what it cannot use, such as news of a host that this Transport does not know. Join
	// returns an error if there is a member already.
	Join(hear func(fleetmsg.Message)) error

	// Tell takes a piece of news or a question. It does not wait for a network. A Fleet
	// ignores kinds that it does not know.
	Tell(m fleetmsg.Message)

	// Scope returns a number for the credentials of a request, or for the value of the
	// rule's Scope. Members that get the same text must get the same number. The number
	// leaves the process, so it must not help to guess the text. A keyed hash such as
	// HMAC-SHA256 does that.
	Scope(text string) uint64
}
