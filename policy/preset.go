// Which limits suit a service that answers in 30, 100 or 300 ms?

package policy

import "time"

// For30ms returns the rule for a service that answers in some 30 ms and a caller
// that waits for 250 ms: intervals of 50, 100 and 150 ms, up to 4 retries, the
// last within 250 ms.
//
// This and the two rules beside it are the settings that the article
// "Exponential Backoff In Go" gives for github.com/cenkalti/backoff. Their
// back-offs are Literal, so that the intervals are the article's own; Attempts is
// its highest number of retries and the first send. Elapsed is exact here, where
// the library of that time only asked whether it had passed already: no retry
// starts after it, and the whole takes Elapsed and one answer at most.
func For30ms() Rule {
	return Rule{
		Attempts: 5,
		Backoff: Randomized{
			Interval:            50 * time.Millisecond,
			RandomizationFactor: 0.5,
			Multiplier:          2,
			MaxInterval:         150 * time.Millisecond,
			Literal:             true,
		},
		Elapsed: 250 * time.Millisecond,
	}
}

// For100ms returns the rule for a service that answers in some 100 ms and a
// caller that waits for a second: intervals of 100, 150, 225 ms … up to 500 ms,
// up to 5 retries, the last within 1 s.
func For100ms() Rule {
	return Rule{
		Attempts: 6,
		Backoff: Randomized{
			Interval:            100 * time.Millisecond,
			RandomizationFactor: 0.5,
			Multiplier:          1.5,
			MaxInterval:         500 * time.Millisecond,
			Literal:             true,
		},
		Elapsed: time.Second,
	}
}

// For300ms returns the rule for a service that answers in some 300 ms and a
// caller that waits for ten seconds: intervals of 100, 200, 400 ms … up to 3 s,
// up to 9 retries, the last within 10 s.
func For300ms() Rule {
	return Rule{
		Attempts: 10,
		Backoff: Randomized{
			Interval:            100 * time.Millisecond,
			RandomizationFactor: 0.5,
			Multiplier:          2,
			MaxInterval:         3 * time.Second,
			Literal:             true,
		},
		Elapsed: 10 * time.Second,
	}
}
