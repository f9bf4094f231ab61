// The promises. No check asks the code under test whether it kept them.

package simulate

// An Oracle is a promise that a story can prove broken.
type Oracle string

// The promises, with the numbers of CONTRIBUTING.md.
const (
	Request   Oracle = "request is not changed"                 // 1
	Closed    Oracle = "request body is closed"                 // 1
	Outcome   Oracle = "last response or error"                 // 2
	ActedOnce Oracle = "acted upon once"                        // 3
	Stored    Oracle = "uploads are whole"                      // 3
	TooOften  Oracle = "no more attempts than the rule allows"  // 3
	Early     Oracle = "not earlier than told"                  // 4
	Hold      Oracle = "a wait holds the other requests"        // 4
	Futile    Oracle = "no sleep that cannot end in an attempt" // 5
	Prompt    Oracle = "waits end with the context"             // 6
	OneReader Oracle = "one attempt reads the body"             // 7
	Discarded Oracle = "responses are discarded within bounds"  // 8
	Writer    Oracle = "a tunnel can be written to"             // 9
	HeldBack  Oracle = "a response is held back"                // 9
	Spliced   Oracle = "one representation, whole"              // 10
	Budget    Oracle = "retries keep to the budget"             // 11
	Leak      Oracle = "nothing is left behind"                 // 12
	Nested    Oracle = "retries are not multiplied"             // 14
	Secret    Oracle = "no secrets in logs and errors"          // 15
	Told      Oracle = "each attempt is told once"
	Patience  Oracle = "the caller's own time does not count"
	Room      Oracle = "nobody waits for a host that has nothing to do"
	Beside    Oracle = "a hedge goes only where hedges may"
	Asked     Oracle = "a host that is well asks no fleet"                // 16
	Answered  Oracle = "an answer of the fleet is awaited for a moment"   // 16
	Hearsay   Oracle = "what others were told fails no request"           // 16
	Stopped   Oracle = "nobody is stopped while its own requests succeed" // 16
	Longer    Oracle = "no hold lasts longer than told"                   // 16
	Rated     Oracle = "all members together keep to the rate"            // 16
	Returned  Oracle = "the members return after an outage"               // 16
	Costs     Oracle = "costs keep to the rate"
	Panics    Oracle = "no panic of our own"
)

// oracles lists all promises.
var oracles = []Oracle{
	Request, Closed, Outcome, ActedOnce, Stored, TooOften, Early, Hold, Futile, Prompt,
	OneReader, Discarded, Writer, HeldBack, Spliced, Budget, Leak, Nested, Secret, Told, Patience, Room, Beside,
	Asked, Answered, Hearsay, Stopped, Longer, Rated, Returned, Costs, Panics,
}
