package backoff_test

import (
	"fmt"
	"time"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

// table prints the waits of b to the millisecond.
func table(b backoff.Delayer, n int) {
	for i, wait := range backoff.Bounds(b, n) {
		fmt.Printf("%d  %-6v  %v\n", i+1, wait.Lowest.Round(time.Millisecond), wait.Highest.Round(time.Millisecond))
	}
}

// Each wait is 2^n s plus up to one second, and at most 32 s.
func ExampleExponential() {
	table(backoff.Exponential{}, 7)
	// Output:
	// 1  1s      2s
	// 2  2s      3s
	// 3  4s      5s
	// 4  8s      9s
	// 5  16s     17s
	// 6  31s     32s
	// 7  31s     32s
}

// With Google's own formula all clients wait the same time at the cap.
func ExampleExponential_literal() {
	table(backoff.Exponential{Max: 64 * time.Second, Literal: true}, 8)
	// Output:
	// 1  1s      2s
	// 2  2s      3s
	// 3  4s      5s
	// 4  8s      9s
	// 5  16s     17s
	// 6  32s     33s
	// 7  1m4s    1m4s
	// 8  1m4s    1m4s
}

func ExampleFullJitter() {
	table(backoff.FullJitter{Base: 50 * time.Millisecond, Max: time.Second}, 6)
	// Output:
	// 1  0s      50ms
	// 2  0s      100ms
	// 3  0s      200ms
	// 4  0s      400ms
	// 5  0s      800ms
	// 6  0s      1s
}

func ExampleEqualJitter() {
	table(backoff.EqualJitter{Base: 50 * time.Millisecond, Max: time.Second}, 6)
	// Output:
	// 1  25ms    50ms
	// 2  50ms    100ms
	// 3  100ms   200ms
	// 4  200ms   400ms
	// 5  400ms   800ms
	// 6  500ms   1s
}

func ExampleDecorrelated() {
	table(backoff.Decorrelated{Base: 50 * time.Millisecond, Max: time.Second}, 4)
	// Output:
	// 1  50ms    150ms
	// 2  50ms    450ms
	// 3  50ms    1s
	// 4  50ms    1s
}

// The table of cenkalti/backoff, without its rounding from row to row.
func ExampleRandomized() {
	for i, wait := range backoff.Bounds(backoff.Randomized{Literal: true}, 9) {
		fmt.Printf("%d %10.4f  [%.4f, %.4f]\n", i+1, wait.Mean.Seconds(), wait.Lowest.Seconds(), wait.Highest.Seconds())
	}
	// Output:
	// 1     0.5000  [0.2500, 0.7500]
	// 2     0.7500  [0.3750, 1.1250]
	// 3     1.1250  [0.5625, 1.6875]
	// 4     1.6875  [0.8438, 2.5312]
	// 5     2.5312  [1.2656, 3.7969]
	// 6     3.7969  [1.8984, 5.6953]
	// 7     5.6953  [2.8477, 8.5430]
	// 8     8.5430  [4.2715, 12.8145]
	// 9    12.8145  [6.4072, 19.2217]
}

func ExampleNormal() {
	table(backoff.Normal{MinDelay: time.Second, Factor: 1.5, MaxDelay: 3 * time.Second}, 5)
	// Output:
	// 1  700ms   1.3s
	// 2  1.05s   1.95s
	// 3  1.575s  2.925s
	// 4  1.615s  3s
	// 5  1.615s  3s
}

// Like the macro, Literal stops when the wait would reach Max.
func ExampleGeometric() {
	table(backoff.Geometric{Literal: true}, 10)
	// Output:
	// 1  1s      1s
	// 2  2s      2s
	// 3  4s      4s
	// 4  8s      8s
}

func ExampleConstant() {
	fmt.Println(backoff.Constant(2*time.Second).Delay(0, 0), backoff.Constant(2*time.Second).Delay(99, 0))
	// Output: 2s 2s
}

func ExampleBounds() {
	fmt.Println("retry  lowest  mean   highest  in all")
	for i, wait := range backoff.Bounds(backoff.EqualJitter{Base: time.Second}, 5) {
		fmt.Printf("%5d  %-6v  %-5v  %-7v  %v\n", i+1, wait.Lowest, wait.Mean.Round(time.Millisecond),
			wait.Highest, wait.Cumulated.Round(time.Millisecond))
	}
	// Output:
	// retry  lowest  mean   highest  in all
	//     1  500ms   750ms  1s       750ms
	//     2  1s      1.5s   2s       2.25s
	//     3  2s      3s     4s       5.25s
	//     4  4s      6s     8s       11.25s
	//     5  8s      12s    16s      23.25s
}
