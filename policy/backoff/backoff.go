// A back-off, and one without randomness.

package backoff

import "time"

// A Backoff computes the wait before a retry.
//
// n counts the retries from 0, so it is 0 before the first retry. prev is the
// value that the Backoff returned before the previous retry. It is 0 at n == 0,
// and it is never the wait that a server asked for. If the result is negative, such as
// [Stop], there is no further retry.
//
// Delay must be a pure function of n, prev and a random number. It must be safe
// for concurrent use, because one Backoff serves all requests.
type Backoff interface {
	Delay(n int, prev time.Duration) time.Duration
}

// Stop is the Delay after which there is no retry.
const Stop time.Duration = -1

// Constant always waits the same time. Constant(0) does not wait at all. With a
// negative Constant there is no retry. Constant(2 * time.Second) waits
//
//	retry  lowest  mean  highest
//	1      2s      2s    2s
//	2      2s      2s    2s
//
// After a failure of the server, all clients with a fixed interval come back at the
// same moments, and their load can keep the server down. So use Constant for tests,
// or if something else makes the waits random.
type Constant time.Duration

// Delay returns the wait. It depends neither on n nor on prev.
func (c Constant) Delay(n int, prev time.Duration) time.Duration { return time.Duration(c) }
