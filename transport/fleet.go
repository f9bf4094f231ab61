// The seam to a fleet: what Transports of several processes tell each other.

package transport

import "github.com/aplomb-go/aplomb/internal/fleetlink"

// A Fleet lets the Transports of several processes share what servers tell them, so
// that the processes behave like one client. Each such Transport is a member. The
// module fleet has a Fleet over Redis. There is no other, because a Link is internal.
//
// The first try at a healthy host without a RateLimit asks no Fleet. A Fleet that is
// slow or away fails no request: the Transport then goes on with its own knowledge.
type Fleet interface {
	// Link connects a Transport. [New] calls it.
	Link() *fleetlink.Link
}
