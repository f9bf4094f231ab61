package rulefile

import (
	"errors"
	"io"
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/rulejson"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// Names are the functions, back-offs and profiles of the program to which a file refers by
// name. All maps may be nil. A name in Names takes precedence over the built-in name, which the
// package comment lists.
type Names struct {
	Classify       map[string]classify.Func              // for the key classify
	RetryAfter     map[string]classify.RetryAfterFunc    // for the key retry_after
	Idempotent     map[string]func(*http.Request) bool   // for the key idempotent
	Backoff        map[string]backoff.Backoff            // for the key backoff
	ThrottleKey    map[string]func(*http.Request) string // for the key throttle_key
	IdempotencyKey map[string]func(*http.Request) string // for the key idempotency_key
	Cost           map[string]func(*http.Request) int    // for the key cost
	Profile        map[string]policy.Rule                // for the key profile
}

// Load reads a default rule and the rules of hosts and paths, as transport.Config and
// Transport.Update take them. The package comment describes the format.
//
// If the input has faults, the error joins an [*Error] for each of them, or for the first 100 and
// one that says how many more there are. If the input is not JSON, it is one Error. These are
// faults: unknown keys, a key that is there twice, values of the wrong type, unknown names,
// everything that [policy.Rule.Validate] finds, and limits of a host in the rule of a path. Load
// checks the patterns of hosts and paths only if there is another fault, because transport.New
// checks them. If r returns an error, Load returns that error wrapped. Input longer than 1 MiB is
// an error as well. With an error, Load returns no rules.
func Load(r io.Reader, names Names) (rule policy.Rule, hosts map[string]policy.Rule, err error) {
	f, err := rulejson.Parse(r, rulejson.Names(names))
	if err != nil {
		return rule, nil, joined(err)
	}
	rule, hosts = f.Rules()
	return rule, hosts, nil
}

// An Error is one fault of the input of [Load], or of the file of a [Watcher].
type Error struct {
	// Line and Column are the place of the fault, counted from 1. A column is a
	// character, not a byte.
	Line, Column int
	// Key is the path of the value, such as `hosts["*.example.com"].max_attempts`. It is
	// empty if the fault is about the input as a whole.
	Key string
	// Err says what is wrong and, if Load knows it, what to write instead. It wraps a
	// *policy.FieldError if policy.Rule.Validate found the fault, and a *json.SyntaxError if
	// the input is not JSON.
	Err error
}

// Error returns "line 7, column 15: key: what is wrong".
func (e *Error) Error() string { return (*rulejson.Error)(e).Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// joined returns the faults that package rulejson found, and any other error as it is.
func joined(err error) error {
	all, ok := errors.AsType[rulejson.Errors](err)
	if !ok {
		return err
	}
	list := make([]error, len(all))
	for i, fault := range all {
		list[i] = (*Error)(fault)
	}
	return errors.Join(list...)
}
