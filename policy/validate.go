// The faults of a rule.

package policy

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/aplomb-go/aplomb/internal/formula"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A value beyond these bounds can only be a mistake. The texts of the faults name the bounds, too.
const (
	maxAttempts = 1000
	maxRate     = 1e9 // one attempt per nanosecond
	maxMemory   = 64 << 20
	maxAgain    = 1 << 30

	// No network answers within minTime, so a shorter time is a number without
	// its unit. A time beyond maxTime was multiplied by its unit twice.
	minTime = time.Microsecond
	maxTime = 10 * 365 * 24 * time.Hour
)

// Validate reports everything that is wrong with the rule at once, as *FieldErrors that
// are joined, and nil if nothing is wrong. A zero field is never wrong, because it inherits.
// Validate the result of [Rule.Or] as well, because two rules can each be right
// and be wrong together. Values that can only be mistakes are wrong, too, such as
// a time below a microsecond, which is a number without its unit, and a negative
// number that is not [Off]. If the Backoff
// has a method Validate() error, its faults are reported under "Backoff".
func (r Rule) Validate() error {
	var bad faults
	add(&bad, r.MaxAttempts > maxAttempts, "MaxAttempts", r.MaxAttempts, "is more than 1000 attempts")
	add(&bad, r.MaxAttempts < 0, "MaxAttempts", r.MaxAttempts, "is not a number of attempts; 1 turns retries off")
	bad.checkBackoff(r.Backoff)
	bad.checkTime("AttemptTimeout", r.AttemptTimeout)
	bad.checkTime("ConnectTimeout", r.ConnectTimeout)
	bad.checkTime("FirstEventTimeout", r.FirstEventTimeout)
	bad.checkTime("StallTimeout", r.StallTimeout)
	bad.checkTime("MaxElapsedTime", r.MaxElapsedTime)
	bad.checkTime("MaxRetryAfter", r.MaxRetryAfter)
	r.RateLimit.check(&bad)
	r.RetryBudget.check(&bad)
	bad.checkSwitch("ShareRetryAfter", r.ShareRetryAfter)
	bad.checkSwitch("QuotaPacing", r.QuotaPacing)
	r.CircuitBreaker.check(&bad)
	r.Concurrency.check(&bad)
	r.Hedge.check(&bad)
	checkOff(&bad, "ReplayBuffer", r.ReplayBuffer)
	add(&bad, r.ReplayBuffer > maxMemory, "ReplayBuffer", r.ReplayBuffer, "is more than 64 MiB (67108864 bytes)")
	bad.checkSwitch("Resume", r.Resume)
	checkOff(&bad, "MaxRefetch", r.MaxRefetch)
	add(&bad, r.MaxRefetch > maxAgain, "MaxRefetch", r.MaxRefetch, "is more than 1 GiB (1073741824 bytes)")
	return errors.Join(bad...)
}

// checkOff refuses a negative value that is not Off, because it can only be a mistake.
func checkOff[T ~int64 | float64](bad *faults, field string, value T) {
	add(bad, value < 0 && value != Off, field, value, "is negative; policy.Off turns the setting off")
}

// checkSwitch refuses a value that a Switch does not have.
func (f *faults) checkSwitch(field string, s Switch) {
	add(f, s < Off || s > On, field, s, "is none of off and on")
}

// checkTime refuses a time that can only be a mistake. A number without its unit
// counts nanoseconds, and a time.Duration can be multiplied by its unit again. Go
// allows both, and both are easily overlooked.
func (f *faults) checkTime(field string, d time.Duration) {
	checkOff(f, field, d)
	if d > 0 && d < minTime {
		meant, unit := d*time.Millisecond, "time.Millisecond"
		if d < 100 {
			meant, unit = d*time.Second, "time.Second"
		}
		f.note(field, d, fmt.Sprintf("is less than a microsecond; did you mean %v (%d * %s)?", meant, d, unit))
	}
	add(f, d > maxTime && d != math.MaxInt64, field, d,
		"is more than ten years; was it multiplied by its unit twice?")
}

// checkBackoff checks a back-off.
func (f *faults) checkBackoff(b backoff.Backoff) {
	v := reflect.ValueOf(b)
	switch kind := v.Kind(); {
	case kind == reflect.Invalid: // nil inherits
		return
	case (kind == reflect.Pointer || kind == reflect.Func) && v.IsNil(): // its Validate would panic
		f.note("Backoff", b, "is nil behind an interface that is not; leave the field nil to inherit")
		return
	}
	if own, ok := b.(interface{ Validate() error }); ok {
		f.addOwn(own.Validate())
	}
	f.checkTimes(reflect.Indirect(v))
}

// addOwn adds the faults that a Backoff's own Validate found, under
// "Backoff". Each error of errors.Join becomes a fault. Errors that were joined
// with a text of their own stay together.
func (f *faults) addOwn(err error) {
	switch err := err.(type) {
	case nil:
		return
	case *formula.Fault:
		f.note("Backoff."+err.Field, err.Value, err.Reason)
		return
	case *FieldError:
		*f = append(*f, &FieldError{"Backoff." + err.Field, err.Err})
		return
	case interface{ Unwrap() []error }:
		parts := err.Unwrap()
		if joined := errors.Join(parts...); joined == nil || joined.Error() != err.(error).Error() {
			break
		}
		for _, part := range parts {
			f.addOwn(part)
		}
		return
	}
	*f = append(*f, &FieldError{"Backoff", err})
}

// checkTimes is checkTime for the fields of a formula of package backoff. A single
// nanosecond is legal there. It is how to write the shortest wait, because zero
// stands for the default.
func (f *faults) checkTimes(v reflect.Value) {
	if v.Type().PkgPath() != reflect.TypeFor[backoff.Constant]().PkgPath() {
		return
	}
	check := func(field string, d time.Duration) {
		if d > time.Nanosecond {
			f.checkTime(field, d)
		}
	}
	if c, ok := v.Interface().(backoff.Constant); ok {
		check("Backoff", time.Duration(c))
		return
	}
	for i := range v.NumField() {
		if d, ok := v.Field(i).Interface().(time.Duration); ok {
			check("Backoff."+v.Type().Field(i).Name, d)
		}
	}
}

// A FieldError is one fault of a configuration. Several are joined ([errors.Join]), so
// errors.As finds the first, and a method Unwrap() []error lists all.
type FieldError struct {
	// Field is the name of the field. If the field is part of something larger, a
	// path comes first, as in "Backoff.Max" or `Hosts["*.example.com"].MaxAttempts`.
	Field string
	// Err says what is wrong, with the value if there is a single one, as in "5000 is
	// more than 1000 attempts". It is the error of a Backoff's own Validate, if that
	// found the fault.
	Err error
}

// Error returns "Field: " and the text of Err.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// faults are the faults of a rule, in the order of its fields.
type faults []error

// add notes a fault if the value is wrong. Rules may be made for each request, so a value that is right is not
// put into an interface.
func add[T any](bad *faults, wrong bool, field string, value T, reason string) {
	if wrong {
		bad.note(field, value, reason)
	}
}

// note appends a fault. A value that is nil is left out of its text.
func (f *faults) note(field string, value any, reason string) {
	if value != nil {
		reason = show(reflect.ValueOf(value)) + " " + reason
	}
	*f = append(*f, &FieldError{field, errors.New(reason)})
}
