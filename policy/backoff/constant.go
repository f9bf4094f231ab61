// How long does a fixed interval wait?

package backoff

import "time"

// Constant always waits the same time. Constant(0) does not wait at all, a
// negative one stops: no retry.
//
//	retry  lowest  mean  highest
//	1      2s      2s    2s
//	2      2s      2s    2s
//
// is Constant(2 * time.Second). Fixed intervals keep the clients of a server
// that failed in step, and keep it from coming back under their load; they are
// for tests, and for waits that something else has made random.
type Constant time.Duration

// Delay returns the wait itself. Neither n nor prev has any influence.
func (c Constant) Delay(n int, prev time.Duration) time.Duration { return c.at(n, prev, 0) }

// Validate returns nil: every value means something.
func (c Constant) Validate() error { return nil }

func (c Constant) at(int, time.Duration, float64) time.Duration { return time.Duration(c) }
