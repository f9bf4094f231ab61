package backoff_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// waits prints the first four waits of b.
func waits(b backoff.Backoff) {
	var prev time.Duration
	for n := range 4 {
		prev = b.Delay(n, prev)
		fmt.Println(prev)
	}
}

// A service that answers within milliseconds. The waits are 50 to 100 ms, 100 to 150 ms and so on.
func ExampleExponential() {
	rule := policy.Rule{Backoff: backoff.Exponential{Base: 50 * time.Millisecond, Max: time.Second}}
	wait := rule.Backoff.Delay(0, 0)
	fmt.Println(wait >= 50*time.Millisecond, wait <= 100*time.Millisecond)
	fmt.Println(backoff.Exponential{Base: time.Second, Max: time.Millisecond}.Validate())
	// Output:
	// true true
	// Max: 1ms is less than Base (1s)
}

// Many clients compete for one record, and full jitter spreads them best.
func ExampleJitter() {
	b := backoff.Exponential{Base: 10 * time.Millisecond, Jitter: backoff.JitterFull}
	fmt.Println(b.Delay(0, 0) <= 10*time.Millisecond, b.Delay(1, 0) <= 20*time.Millisecond)
	waits(backoff.Exponential{Factor: 3, Max: 20 * time.Second, Jitter: backoff.JitterNone})
	// Output:
	// true true
	// 1s
	// 3s
	// 9s
	// 20s
}

// At the cap all clients wait the same time.
func ExampleGoogle() {
	b := backoff.Google{MaximumBackoff: 64 * time.Second}
	wait := b.Delay(5, 0)
	fmt.Println(wait >= 32*time.Second, wait <= 33*time.Second, b.Delay(6, 0))
	// Output: true true 1m4s
}

// There is no retry once the wait would reach Max.
func ExampleGeometric() {
	waits(backoff.Geometric{Rate: 3})
	// Output:
	// 1s
	// 3s
	// 9s
	// -1ns
}

func ExampleNormal() {
	b := backoff.Normal{MinDelay: time.Second, Factor: 1.5, MaxDelay: 5 * time.Minute}
	first := b.Delay(0, 0)
	second := b.Delay(1, first)
	fmt.Println(first, second >= 1050*time.Millisecond, second <= 1950*time.Millisecond)
	// Output: 1s true true
}

func ExampleRandomized() {
	b := backoff.Randomized{InitialInterval: 2 * time.Second, RandomizationFactor: 0.5, Multiplier: 2}
	fmt.Println(b.Delay(0, 0) >= time.Second, b.Delay(1, 0) <= 6*time.Second)
	// Output: true true
}

func ExampleConstant() {
	fmt.Println(backoff.Constant(2*time.Second).Delay(0, 0), backoff.Constant(2*time.Second).Delay(99, 0))
	// Output: 2s 2s
}

// steps is a back-off of the program itself. It ends after two retries.
type steps struct{}

func (steps) Delay(n int, _ time.Duration) time.Duration {
	if n == 2 {
		return backoff.Stop
	}
	return time.Duration(n+1) * 200 * time.Millisecond
}

// Every type with this method is a Backoff. Clients that all wait for the same time come
// back together, so most back-offs add a random part.
func ExampleBackoff() {
	rule := policy.Rule{Backoff: steps{}}
	fmt.Println(rule.Backoff.Delay(0, 0), rule.Backoff.Delay(1, 0), rule.Backoff.Delay(2, 0) == backoff.Stop)
	// Output: 200ms 400ms true
}

func TestValidate(t *testing.T) {
	for _, b := range []interface{ Validate() error }{
		backoff.Exponential{Base: -1}, backoff.Google{MaximumBackoff: -1}, backoff.Geometric{Time: -1}, backoff.Normal{MinDelay: -1}, backoff.Randomized{InitialInterval: -1},
	} {
		assert.ErrorContains(t, b.Validate(), "negative")
	}
	assert.EqualValues(t, -1, backoff.Stop)
}

// A random number that was kept would make all waits the same.
func TestEachWaitDrawsAnew(t *testing.T) {
	for _, b := range []backoff.Backoff{
		backoff.Exponential{}, backoff.Exponential{Jitter: backoff.JitterFull}, backoff.Exponential{Jitter: backoff.JitterEqual},
		backoff.Exponential{Jitter: backoff.JitterDecorrelated}, backoff.Exponential{Jitter: backoff.JitterProportional},
		backoff.Exponential{Jitter: backoff.JitterNormal}, backoff.Google{}, backoff.Normal{}, backoff.Randomized{},
	} {
		seen := map[time.Duration]bool{}
		for range 200 {
			seen[b.Delay(1, 3*time.Second)] = true
		}
		assert.Greater(t, len(seen), 50, "%+v", b)
	}
}
