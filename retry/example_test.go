package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/retry"
)

// Do connects to a database that is still starting. It retries only while the
// database says that it is starting.
func ExampleDo() {
	calls := 0
	connect := func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("the database system is starting up")
		}
		return nil
	}
	starting := func(err error) bool { return strings.Contains(err.Error(), "starting up") }

	rule := policy.Rule{MaxAttempts: 5, Backoff: backoff.Exponential{Base: time.Millisecond, Jitter: backoff.JitterFull}}
	err := retry.Do(context.Background(), rule, starting, connect)
	fmt.Println("calls:", calls, "error:", err)
	// Output: calls: 3 error: <nil>
}

// A conditional write reads a value, changes it, and writes it only if nobody else
// has written in the meantime.
func ExampleDoValue() {
	conflict := errors.New("the condition failed")
	stored, version := 40, 7
	reads := 0
	increment := func(context.Context) (int, error) {
		value, seen := stored, version
		if reads++; reads == 1 { // somebody else is faster
			stored, version = stored+1, version+1
		}
		if version != seen {
			return 0, conflict
		}
		stored, version = value+1, version+1
		return stored, nil
	}

	value, err := retry.DoValue(context.Background(), policy.Rule{MaxAttempts: 5, Backoff: backoff.Constant(time.Millisecond)},
		func(err error) bool { return errors.Is(err, conflict) }, increment)
	fmt.Println(value, err)
	// Output: 42 <nil>
}

// Another attempt cannot change this error, so the function marks it. Do returns it
// without the mark.
func ExamplePermanent() {
	calls := 0
	err := retry.Do(context.Background(), policy.Rule{}, nil, func(context.Context) error {
		calls++
		return retry.Permanent(fs.ErrNotExist)
	})
	fmt.Println("calls:", calls, "error:", err, err == fs.ErrNotExist)
	// Output: calls: 1 error: file does not exist true
}

func ExampleLimitError() {
	busy := errors.New("busy")
	rule := policy.Rule{MaxAttempts: 3, Backoff: backoff.Constant(0)}
	err := retry.Do(context.Background(), rule, nil, func(context.Context) error { return busy })

	fmt.Println(err)
	if gaveUp, ok := errors.AsType[*retry.LimitError](err); ok {
		fmt.Println(gaveUp.Attempts)
	}
	fmt.Println(errors.Is(err, busy))
	// Output:
	// retry: gave up after attempt 3: no attempts left: busy
	// 3
	// true
}
