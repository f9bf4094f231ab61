// Package fleetlink is all that a Transport and its fleet know of each other. A Transport without a fleet has a nil [Fleet],
// and its hosts a nil [Host].
//
// The machines of a host know no other members. The packages exchange and limit ask the fleet after a machine, and tell it
// after a machine was told. So the word of a fleet only adds to a member's own knowledge: it makes attempts wait, and refuses none.
// The rate is an exception. In a fleet its tokens come from the [Host].
//
// Everything else is behind these interfaces, in package member: which news the members tell each other, when, and how they
// divide shared limits.
package fleetlink

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/host/rate"
	"github.com/aplomb-go/aplomb/policy"
)

// A Fleet is a fleet as the Transport of a member sees it. All methods here and of a Host are safe for concurrent use, and wait
// for no network.
type Fleet interface {
	// Join makes a Transport with this clock the member. It returns an error if there is a member already.
	Join(instant.Clock) error
	// Host returns the fleet's view of a host. It may change the outage of the host, and wake who waits for its rate. The fleet
	// forgets the host when the Transport does.
	Host(name string, l *line.Line, made func() *concurrency.Limiter) Host
	// Scope returns a number for the credentials of a request, or for the ThrottleKey of its rule. It is the same in all members.
	Scope(req *http.Request, key func(*http.Request) string) uint64
	State() State
}

// A Host is a host as the other members see it. The first try at a healthy host without a RateLimit calls Quiet only.
type Host interface {
	// Obey is told the rule of the host, before the first request under it. It may ask the other members for their knowledge.
	Obey(*policy.Rule)
	// Divide returns this member's part of the settings of the line.
	Divide(line.Config) line.Config

	// Held is told of a response that asked a scope to wait.
	Held(now instant.Instant, scope uint64, status int, wait time.Duration)
	// Answered is told of a response that did not, while the host is not Quiet. sent is as for a throttle.
	Answered(now instant.Instant, scope uint64, sent instant.Instant)
	// Named is told the quotas that a response names, and whether it is a success.
	Named(now instant.Instant, scope uint64, sent instant.Instant, all []field.Quota, success bool)
	// Changed is told of the line after a failure, and after the end of an outage.
	Changed(now instant.Instant, s line.State)

	// Quiet reports whether all requests may go, as far as the other members know.
	Quiet() bool
	// Enter and Leave are as for a throttle. They make a request wait for three quarters of its time at most.
	Enter(now instant.Instant, scope uint64, w *queue.Waiter) queue.Answer
	Leave(scope uint64, w *queue.Waiter)
	// Heard returns the changes of the host that the other members told since the last call.
	Heard(now instant.Instant) []news.Change

	// The tokens of the rate come from the fleet.
	rate.Tokens
	// Ask may ask the fleet for the tokens of requests that wait. If by is not 0, one of them has to go by then. It may be
	// alone, and in no queue.
	Ask(now, by instant.Instant, alone bool)
}

// A State is how a fleet is, as a transport.FleetState says.
type State struct {
	Connected     bool
	Members       int
	Commands      uint64
	Dropped       uint64
	LastHeartbeat time.Time
}
