// How long is the wait before the next attempt?

package policy

import "time"

// A Backoff computes the wait before a retry. Package backoff has the common
// formulas.
//
// n counts the retries from 0, so it is 0 before the first retry. prev is the
// value that the Backoff returned before the previous retry. It is 0 at n == 0,
// and it is never the wait that a server asked for. If the result is negative,
// there is no further retry.
//
// Delay must be a pure function of n, prev and a random number. It must be safe
// for concurrent use, because one Backoff serves all requests.
type Backoff interface {
	Delay(n int, prev time.Duration) time.Duration
}
