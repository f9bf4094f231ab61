// The rule of a request, and the faults of rules.

package rules

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/aplomb-go/aplomb/policy"
)

// MaxCompleted is how many complete rules a context keeps. It needs a rule for each Transport
// and each entry of Config.Hosts that its requests meet.
const MaxCompleted = 64

// A RequestRule is a rule that WithRule has put into a context. It keeps the complete rules
// that it has led to. So they live as long as the context, and each is made once.
type RequestRule struct {
	Policy policy.Rule
	Made   atomic.Pointer[[]completed] // the list never changes, but may be replaced
	mu     sync.Mutex                  // held while Made is replaced
}

// A completed is a RequestRule over the rule of a host or of a path, or why that is wrong.
type completed struct {
	base *Resolved
	rule *Resolved
	err  error
}

// CompleteOver returns the complete rule over the rule of a host or of a path.
func (r *RequestRule) CompleteOver(base *Resolved) (*Resolved, error) {
	all, c := r.find(base)
	if c == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		all, c = r.find(base)
	}
	if c != nil {
		return c.rule, c.err
	}
	c = &completed{base: base, rule: base}
	if faults := ValidateRequest(r.Policy, "WithRule."); len(faults) > 0 {
		c.err = fmt.Errorf("transport: %w", Join(faults))
	} else {
		c.rule = base.Set.resolve(r.Policy.Or(base.Policy)) // only limits of hosts can be wrong together
	}
	kept := slices.DeleteFunc(append([]completed{*c}, all...), func(c completed) bool {
		return c.base.Set.Owner == base.Set.Owner && c.base.Set != base.Set // it was replaced by Update
	})
	kept = kept[:min(len(kept), MaxCompleted)]
	r.Made.Store(&kept)
	return c.rule, c.err
}

// find returns the rules that CompleteOver has made, and that over base, or nil.
func (r *RequestRule) find(base *Resolved) (all []completed, over *completed) {
	if made := r.Made.Load(); made != nil {
		all = *made
	}
	if i := slices.IndexFunc(all, func(c completed) bool { return c.base == base }); i >= 0 {
		over = &all[i]
	}
	return all, over
}

var errOfHost = errors.New("this is a limit of the host, which all its requests share; set it in the rule of the host or in the rule for all hosts")

// ValidateRequest returns the faults of a rule that applies to some of the requests to a host: the rule of a
// path or of a request. A limit that all requests to a host share is a fault there. path stands in front of the field
// of each fault.
func ValidateRequest(r policy.Rule, path string) []*policy.FieldError {
	faults := ValidatePart(r, path)
	for _, limit := range []struct {
		field string
		value any
	}{
		{"MaxRetryAfter", r.MaxRetryAfter}, // bounds the holds and the pacing of all requests
		{"RateLimit", r.RateLimit},
		{"RetryBudget", r.RetryBudget},
		{"ShareRetryAfter", r.ShareRetryAfter},
		{"ThrottleKey", r.ThrottleKey},
		{"QuotaPacing", r.QuotaPacing},
		{"CircuitBreaker", r.CircuitBreaker},
		{"Concurrency", r.Concurrency},
		{"Hedge.Percentile", r.Hedge.Percentile}, // of all responses of the host
	} {
		if !reflect.ValueOf(limit.value).IsZero() {
			faults = append(faults, &policy.FieldError{Field: path + limit.field, Err: errOfHost})
		}
	}
	return faults
}

// ValidatePart returns the faults of a rule that may inherit, with path in front of the field of each. A limit that it turns
// on may inherit its Max. If it does not, the rule is wrong together with those from which it inherits.
func ValidatePart(r policy.Rule, path string) []*policy.FieldError {
	if r.Concurrency.Max == 0 && r.Concurrency.Enabled == policy.On {
		r.Concurrency.Enabled = 0
	}
	return FaultsOf(r.Validate(), path)
}

// FaultsOf returns the faults that an error joins, such as that of policy.Rule.Validate, with path in front of
// the field of each.
func FaultsOf(err error, path string) (all []*policy.FieldError) {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	for _, e := range joined.Unwrap() {
		if fault, ok := errors.AsType[*policy.FieldError](e); ok {
			all = append(all, &policy.FieldError{Field: path + fault.Field, Err: fault.Err})
		}
	}
	return all
}

// Join returns an error that joins the faults, or nil if there are none.
func Join(faults []*policy.FieldError) error {
	list := make([]error, len(faults))
	for i, fault := range faults {
		list[i] = fault
	}
	return errors.Join(list...)
}
