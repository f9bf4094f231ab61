// Constant: always the same wait.

package backoff

import "time"

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

// Validate returns nil, because every value is valid.
func (c Constant) Validate() error { return nil }

func (c Constant) at(int, time.Duration, float64) time.Duration { return time.Duration(c) }
