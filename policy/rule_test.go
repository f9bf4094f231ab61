package policy

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// fill returns a value of the type that is not zero, and another one for every
// seed. A new kind of field has to be taught here.
func fill(t *testing.T, typ reflect.Type, seed int) reflect.Value {
	t.Helper()
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(seed))
	case reflect.Int8:
		v.SetInt(int64(seed))
	case reflect.Uint8:
		v.SetUint(uint64(seed))
	case reflect.Float64:
		v.SetFloat(float64(seed))
	case reflect.String:
		v.SetString(fmt.Sprint("x", seed))
	case reflect.Bool: // only as a function's result
		v.SetBool(seed%2 == 1)
	case reflect.Func:
		return reflect.MakeFunc(typ, func([]reflect.Value) (out []reflect.Value) {
			for i := range typ.NumOut() {
				out = append(out, fill(t, typ.Out(i), seed))
			}
			return out
		}).Convert(typ)
	case reflect.Struct:
		for i := range typ.NumField() {
			if !typ.Field(i).IsExported() {
				continue
			}
			v.Field(i).Set(fill(t, typ.Field(i).Type, seed))
		}
	case reflect.Interface:
		require.True(t, reflect.TypeFor[backoff.Constant]().Implements(typ), "fill does not know %v", typ)
		v.Set(reflect.ValueOf(backoff.Constant(seed)))
	default:
		require.Fail(t, "fill does not know", "%v", typ)
	}
	return v
}

// same reports whether two values made by fill are of the same seed.
func same(a, b reflect.Value) bool {
	if a.Kind() != reflect.Func {
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
	if a.IsNil() || b.IsNil() {
		return a.IsNil() && b.IsNil()
	}
	args := make([]reflect.Value, a.Type().NumIn())
	for i := range args {
		args[i] = reflect.Zero(a.Type().In(i))
	}
	for i, out := range a.Call(args) {
		if !reflect.DeepEqual(out.Interface(), b.Call(args)[i].Interface()) {
			return false
		}
	}
	return true
}

// exported returns the number of exported fields, which are the first.
func exported(typ reflect.Type) int {
	return slices.IndexFunc(append(reflect.VisibleFields(typ), reflect.StructField{PkgPath: "end"}), func(f reflect.StructField) bool { return !f.IsExported() })
}

// Whatever a rule over Defaults is laid over, it takes nothing from it.
func TestNothingIsInheritedBehindDefaults(t *testing.T) {
	typ := reflect.TypeFor[Rule]()
	base := fill(t, typ, 2).Interface().(Rule)
	for name, rule := range map[string]Rule{"zero": {}, "full": fill(t, typ, 1).Interface().(Rule), "groups": {RateLimit: RateLimit{Burst: 3}}} {
		want := rule.Or(Defaults())
		for _, got := range []Rule{want.Or(base), rule.Or(Defaults().Or(base)), want.Or(Rule{}).Or(base)} {
			for i := range exported(typ) {
				assert.True(t, same(reflect.ValueOf(want).Field(i), reflect.ValueOf(got).Field(i)), "%s: %s", name, typ.Field(i).Name)
			}
		}
	}
	again := Defaults()
	again.MaxAttempts = 0
	assert.Equal(t, 6, again.Or(base).MaxAttempts, "a field that was emptied has its default")
}

func TestOrForgetsNoField(t *testing.T) {
	typ := reflect.TypeFor[Rule]()
	mine := fill(t, typ, 1).Interface().(Rule)
	base := fill(t, typ, 2).Interface().(Rule)
	for i := range exported(typ) {
		t.Run(typ.Field(i).Name, func(t *testing.T) {
			var one Rule
			reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(mine).Field(i))
			missing := mine
			reflect.ValueOf(&missing).Elem().Field(i).SetZero()

			got, rest := reflect.ValueOf(one.Or(base)), reflect.ValueOf(missing.Or(base))
			for j := range exported(typ) {
				from := reflect.ValueOf(base)
				if j == i {
					from = reflect.ValueOf(mine)
				}
				assert.True(t, same(from.Field(j), got.Field(j)), "%s of a rule that sets only this one", typ.Field(j).Name)
				from = reflect.ValueOf(mine)
				if j == i {
					from = reflect.ValueOf(base)
				}
				assert.True(t, same(from.Field(j), rest.Field(j)), "%s of a rule that lacks only this one", typ.Field(j).Name)
			}
		})
	}
}

func TestOrChangesNeither(t *testing.T) {
	mine, base := Rule{MaxAttempts: 2}, Rule{MaxAttempts: 3, RateLimit: RateLimit{PerSecond: 5}}
	assert.Equal(t, Rule{MaxAttempts: 2, RateLimit: RateLimit{PerSecond: 5}}, mine.Or(base))
	assert.Equal(t, Rule{MaxAttempts: 2}, mine)
	assert.Equal(t, Rule{MaxAttempts: 3, RateLimit: RateLimit{PerSecond: 5}}, base)
	assert.Equal(t, Rule{AttemptTimeout: -1}, Rule{AttemptTimeout: -1}.Or(Rule{AttemptTimeout: 3}), "negative turns off and does not inherit")
}

// The fields of a group inherit one by one.
func TestGroupsInheritByField(t *testing.T) {
	base := Rule{RateLimit: RateLimit{PerSecond: 5, Burst: 2}, Hedge: Hedge{Percentile: 98}, CircuitBreaker: CircuitBreaker{Enabled: On}, Concurrency: Concurrency{Enabled: Off, Max: 9}}
	rule := Rule{RateLimit: RateLimit{PerSecond: 7}, Hedge: Hedge{Enabled: Off}, CircuitBreaker: CircuitBreaker{FailFast: On}, Concurrency: Concurrency{Max: 5}}.Or(base)
	assert.Equal(t, RateLimit{PerSecond: 7, Burst: 2}, rule.RateLimit)
	assert.Equal(t, Hedge{Enabled: Off, Percentile: 98}, rule.Hedge)
	assert.Equal(t, CircuitBreaker{Enabled: On, FailFast: On}, rule.CircuitBreaker)
	assert.Equal(t, Concurrency{Enabled: Off, Max: 5}, rule.Concurrency, "an inherited Off stays")
	assert.Equal(t, Concurrency{Enabled: On, Max: 9}, Rule{Concurrency: Concurrency{Enabled: On}}.Or(base).Concurrency)
}

// A boolean cannot tell "off" from "nothing said".
func TestRuleHasNoFieldThatCannotInherit(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Rule]())[:exported(reflect.TypeFor[Rule]())] {
		assert.NotEqual(t, reflect.Bool, field.Type.Kind(), field.Name)
	}
}

func TestDefaults(t *testing.T) {
	d := Defaults()
	require.NoError(t, d.Validate())
	assert.Equal(t,
		"{MaxAttempts: 6, Backoff: backoff.Exponential{}, Classify: func, RetryAfter: func, MaxRetryAfter: 1m0s, Idempotent: func, "+
			"RetryBudget: RetryBudget{Ratio: 0.2, MinPerSecond: 3}, ShareRetryAfter: off, QuotaPacing: off, "+
			"ReplayBuffer: 1048576, Resume: on, MaxRefetch: 1048576}",
		d.String())
	get, _ := http.NewRequest(http.MethodGet, "http://a.test/", nil)
	post, _ := http.NewRequest(http.MethodPost, "http://a.test/", strings.NewReader("x"))
	assert.True(t, d.Idempotent(get))
	assert.False(t, d.Idempotent(post))
}

// A faulty back-off for each way of saying so.
type (
	numberedBackoff  int
	functionBackoff  func(n int) time.Duration
	complainsBackoff struct{ err error }
)

func (b *numberedBackoff) Delay(int, time.Duration) time.Duration    { return time.Duration(*b) }
func (b functionBackoff) Delay(n int, _ time.Duration) time.Duration { return b(n) }
func (complainsBackoff) Delay(int, time.Duration) time.Duration      { return 0 }
func (b complainsBackoff) Validate() error                           { return b.err }

func TestValidate(t *testing.T) {
	plain := errors.New("policy: the moon is full")
	for _, tt := range []struct {
		name string
		rule Rule
		want string // "" where nothing is wrong
	}{
		{"zero", Rule{}, ""},
		{"off", Rule{AttemptTimeout: -1, MaxElapsedTime: -1, MaxRetryAfter: -1, RateLimit: RateLimit{Enabled: -1}, ReplayBuffer: -1, Resume: -1, MaxRefetch: -1}, ""},
		{"at the bounds", Rule{MaxAttempts: 1000, RateLimit: RateLimit{PerSecond: 1e9}, ReplayBuffer: 64 << 20, MaxRefetch: 1 << 30, MaxRetryAfter: Off}, ""},
		{"burst of one", Rule{RateLimit: RateLimit{PerSecond: 1, Burst: 1}}, ""},
		{"burst without rate", Rule{RateLimit: RateLimit{Burst: -1}}, ""},

		{"no attempts", Rule{MaxAttempts: Off}, "MaxAttempts: -1 is not a number of attempts; 1 turns retries off"},
		{"attempts", Rule{MaxAttempts: 1001}, "MaxAttempts: 1001 is more than 1000 attempts"},
		{"rate NaN", Rule{RateLimit: RateLimit{PerSecond: math.NaN()}}, "RateLimit.PerSecond: NaN is not a number of requests per second"},
		{"rate -Inf", Rule{RateLimit: RateLimit{PerSecond: math.Inf(-1)}}, "RateLimit.PerSecond: -Inf is negative; Enabled: policy.Off turns the limit off"},
		{"rate huge", Rule{RateLimit: RateLimit{PerSecond: 1e300}}, "RateLimit.PerSecond: 1e+300 is more than 1e+09 requests per second"},
		{"burst", Rule{RateLimit: RateLimit{PerSecond: 1, Burst: -1}}, "RateLimit.Burst: -1 would let nothing through; leave Burst at 0 for PerSecond rounded up"},
		{"buffer", Rule{ReplayBuffer: 64<<20 + 1, MaxRefetch: 1<<30 + 1}, "ReplayBuffer: 67108865 is more than 64 MiB (67108864 bytes)\nMaxRefetch: 1073741825 is more than 1 GiB (1073741824 bytes)"},
		{"switch", Rule{RateLimit: RateLimit{Enabled: 4}, Resume: 4}, "RateLimit.Enabled: Switch(4) is none of off and on\nResume: Switch(4) is none of off and on"},

		{"back-off", Rule{Backoff: new(numberedBackoff)}, ""},
		{"nil pointer", Rule{Backoff: (*numberedBackoff)(nil)},
			"Backoff: (*policy.numberedBackoff)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"nil pointer to one of ours", Rule{Backoff: (*backoff.Exponential)(nil)},
			"Backoff: (*backoff.Exponential)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"nil function", Rule{Backoff: functionBackoff(nil)},
			"Backoff: (functionBackoff)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"back-off of ours", Rule{Backoff: backoff.Exponential{Base: -1}}, "Backoff.Base: -1ns is negative"},
		{"back-off at peace", Rule{Backoff: complainsBackoff{}}, ""},
		{"back-off with FieldErrors", Rule{Backoff: complainsBackoff{errors.Join(&FieldError{"A", errors.New("1 is odd")}, &FieldError{"B", errors.New("missing")})}},
			"Backoff.A: 1 is odd\nBackoff.B: missing"},
		{"back-off with a FieldError", Rule{Backoff: complainsBackoff{&FieldError{"A", errors.New(`"x" is odd`)}}}, `Backoff.A: "x" is odd`},
		{"back-off with another error", Rule{Backoff: complainsBackoff{plain}}, "Backoff: policy: the moon is full"},
		{"back-off with joined errors", Rule{Backoff: complainsBackoff{errors.Join(plain, &FieldError{"A", errors.New("missing")})}},
			"Backoff: policy: the moon is full\nBackoff.A: missing"},
		{"back-off with words around errors", Rule{Backoff: complainsBackoff{fmt.Errorf("both %w and %w", plain, plain)}},
			"Backoff: both policy: the moon is full and policy: the moon is full"},

		{"everything", Rule{MaxAttempts: 5000, Backoff: backoff.Exponential{Base: -1, Max: -1}, ShareRetryAfter: 9, RateLimit: RateLimit{PerSecond: math.NaN()}, ReplayBuffer: 1 << 40},
			`MaxAttempts: 5000 is more than 1000 attempts
Backoff.Base: -1ns is negative
Backoff.Max: -1ns is negative
RateLimit.PerSecond: NaN is not a number of requests per second
ShareRetryAfter: Switch(9) is none of off and on
ReplayBuffer: 1099511627776 is more than 64 MiB (67108864 bytes)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.rule.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
			joined, ok := err.(interface{ Unwrap() []error })
			require.True(t, ok)
			assert.Len(t, joined.Unwrap(), strings.Count(tt.want, "\n")+1)
		})
	}
}

func TestValidateKeepsABackoffsOwnError(t *testing.T) {
	own := errors.New("the moon is full")
	err := Rule{Backoff: complainsBackoff{own}}.Validate()
	require.ErrorIs(t, err, own)
	field, ok := errors.AsType[*FieldError](err)
	require.True(t, ok)
	assert.Equal(t, "Backoff", field.Field)
}

// wordyBackoff prints by itself.
type wordyBackoff struct{ backoff.Exponential }

func (wordyBackoff) String() string { return "as I please" }

func TestRuleString(t *testing.T) {
	for want, rule := range map[string]Rule{
		"{}": {},
		"{AttemptTimeout: -5s, MaxElapsedTime: off}":                                         {AttemptTimeout: -5 * time.Second, MaxElapsedTime: Off}, // a fault shows the value
		"{AttemptTimeout: off, RateLimit: RateLimit{Enabled: off}, ReplayBuffer: off}":       {AttemptTimeout: -1, RateLimit: RateLimit{Enabled: -1}, ReplayBuffer: -1},
		"{Backoff: backoff.Exponential{Base: 250ms, Jitter: \"none\"}}":                      {Backoff: backoff.Exponential{Base: 250 * time.Millisecond, Jitter: backoff.JitterNone}},
		"{Backoff: backoff.Constant(5s)}":                                                    {Backoff: backoff.Constant(5 * time.Second)},
		"{Backoff: backoff.Constant(0s), MaxElapsedTime: 1m30s}":                             {Backoff: backoff.Constant(0), MaxElapsedTime: 90 * time.Second},
		"{Backoff: *backoff.Exponential}":                                                    {Backoff: &backoff.Exponential{}},
		"{Backoff: (*backoff.Exponential)(nil)}":                                             {Backoff: (*backoff.Exponential)(nil)},
		"{Backoff: func}":                                                                    {Backoff: functionBackoff(func(int) time.Duration { return 0 })},
		"{Backoff: as I please}":                                                             {Backoff: wordyBackoff{}},
		"{Backoff: complainsBackoff{}}":                                                      {Backoff: complainsBackoff{errors.New("x")}},
		"{Classify: func, RetryAfter: func, RateLimit: RateLimit{PerSecond: 0.5, Burst: 2}}": {Classify: classify.Default, RetryAfter: classify.RetryAfter, RateLimit: RateLimit{PerSecond: 0.5, Burst: 2}},
		"{RateLimit: RateLimit{PerSecond: NaN}, ShareRetryAfter: Switch(9)}":                 {ShareRetryAfter: 9, RateLimit: RateLimit{PerSecond: math.NaN()}},
	} {
		assert.Equal(t, want, rule.String())
		assert.Equal(t, want, fmt.Sprint(rule))
	}
}

// Whatever a rule holds, it can be merged, checked and printed.
func TestEveryFieldCanBePrinted(t *testing.T) {
	text := fill(t, reflect.TypeFor[Rule](), 3).Interface().(Rule).String()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Rule]())[:exported(reflect.TypeFor[Rule]())] {
		assert.Contains(t, text, field.Name+": ")
	}
}

func TestUUIDKey(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			key := UUIDKey(&http.Request{Method: method})
			assert.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), key)
			seen[key] = true
		}
	}
	assert.Len(t, seen, 200)
	for _, method := range []string{"", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		assert.Empty(t, UUIDKey(&http.Request{Method: method}), method)
	}
}

// A key per request makes a POST repeatable at a host that honours keys.
func ExampleUUIDKey() {
	rule := Rule{IdempotencyKey: UUIDKey}
	fmt.Println(len(rule.IdempotencyKey(&http.Request{Method: "POST"})))
	fmt.Println(len(rule.IdempotencyKey(&http.Request{Method: "PUT"})), "because PUT is idempotent")
	// Output:
	// 36
	// 0 because PUT is idempotent
}

func TestLimitsAreChecked(t *testing.T) {
	for _, row := range []struct {
		rule Rule
		want string
	}{
		{Rule{RetryBudget: RetryBudget{Ratio: math.NaN()}}, "RetryBudget.Ratio: NaN is not a number of retries"},
		{Rule{RetryBudget: RetryBudget{MinPerSecond: math.Inf(1)}}, "RetryBudget.MinPerSecond: +Inf is more than a million retries"},
		{Rule{RetryBudget: RetryBudget{MinPerSecond: 2e6}}, "RetryBudget.MinPerSecond: 2e+06 is more than a million retries"},
		{Rule{RetryBudget: RetryBudget{Ratio: Off, MinPerSecond: Off}}, "RetryBudget: would earn no retries at all; Enabled: policy.Off turns the budget off, MaxAttempts: 1 the retries"},
		{Rule{CircuitBreaker: CircuitBreaker{Enabled: 2, FailFast: -2}}, "CircuitBreaker.Enabled: Switch(2) is none of off and on\n" +
			"CircuitBreaker.FailFast: Switch(-2) is none of off and on"},
		{Rule{RateLimit: RateLimit{PerSecond: -2, Burst: -1}}, "RateLimit.PerSecond: -2 is negative; Enabled: policy.Off turns the limit off\n" +
			"RateLimit.Burst: -1 would let nothing through; leave Burst at 0 for PerSecond rounded up"},
		{Rule{Concurrency: Concurrency{Max: -1}}, "Concurrency.Max: -1 is negative; Enabled: policy.Off turns the limit off"},
		{Rule{MaxAttempts: -1, Concurrency: Concurrency{Enabled: On}}, "MaxAttempts: -1 is not a number of attempts; 1 turns retries off\n" +
			"Concurrency.Enabled: on needs a Max, the most requests that the host takes at a time"},
		{Rule{Hedge: Hedge{Percentile: 100}}, "Hedge.Percentile: 100 is not above 1 and at most 99.9; 98 sends 2 % more"},
		{Rule{Hedge: Hedge{Percentile: math.NaN()}}, "Hedge.Percentile: NaN is not above 1 and at most 99.9; 98 sends 2 % more"},

		// Values that can only be mistakes.
		{Rule{AttemptTimeout: -5 * time.Second}, "AttemptTimeout: -5s is negative; policy.Off turns the setting off"},
		{Rule{ReplayBuffer: -4096}, "ReplayBuffer: -4096 is negative; policy.Off turns the setting off"},
		{Rule{RetryBudget: RetryBudget{Ratio: -0.2, MinPerSecond: Off}}, "RetryBudget.Ratio: -0.2 is negative; policy.Off turns the setting off"},
		{Rule{Hedge: Hedge{Delay: -2 * time.Second}}, "Hedge.Delay: -2s is negative; Enabled: policy.Off turns hedging off"},
		{Rule{Backoff: &backoff.Exponential{Base: 100}}, "Backoff.Base: 100ns is less than a microsecond; did you mean 100ms (100 * time.Millisecond)?"},
		{Rule{Hedge: Hedge{Percentile: 0.98}}, "Hedge.Percentile: 0.98 is not above 1 and at most 99.9; 98 sends 2 % more"},
		{Rule{Hedge: Hedge{Delay: 50}}, "Hedge.Delay: 50ns is less than a microsecond; did you mean 50s (50 * time.Second)?"},
		{Rule{RetryBudget: RetryBudget{Ratio: 20}}, "RetryBudget.Ratio: 20 is more than one retry for each request; 0.2 is 20 %, and Enabled: policy.Off turns the budget off"},
		{Rule{AttemptTimeout: 5}, "AttemptTimeout: 5ns is less than a microsecond; did you mean 5s (5 * time.Second)?"},
		{Rule{AttemptTimeout: 100}, "AttemptTimeout: 100ns is less than a microsecond; did you mean 100ms (100 * time.Millisecond)?"},
		{Rule{AttemptTimeout: 3651 * 24 * time.Hour}, "AttemptTimeout: 87624h0m0s is more than ten years; was it multiplied by its unit twice?"},
		{Rule{MaxRetryAfter: 60}, "MaxRetryAfter: 60ns is less than a microsecond; did you mean 1m0s (60 * time.Second)?"},
		{Rule{AttemptTimeout: 5 * time.Second * time.Second}, "AttemptTimeout: 1388888h53m20s is more than ten years; was it multiplied by its unit twice?"},
		{Rule{Backoff: backoff.Constant(5)}, "Backoff: 5ns is less than a microsecond; did you mean 5s (5 * time.Second)?"},
		{Rule{Backoff: backoff.Exponential{Base: 2, Max: 32 * time.Second}}, "Backoff.Base: 2ns is less than a microsecond; did you mean 2s (2 * time.Second)?"},
		{Rule{Backoff: backoff.Normal{MinDelay: 200}}, "Backoff.MinDelay: 200ns is less than a microsecond; did you mean 200ms (200 * time.Millisecond)?"},
	} {
		assert.EqualError(t, row.rule.Validate(), row.want)
	}
	for _, good := range []Rule{
		{RetryBudget: RetryBudget{Enabled: Off}}, {AttemptTimeout: 3650 * 24 * time.Hour}, {Hedge: Hedge{Enabled: Off}}, {Hedge: Hedge{Percentile: 98}}, {Hedge: Hedge{Delay: time.Second}},
		{Concurrency: Concurrency{Enabled: On, Max: 100}}, {Concurrency: Concurrency{Max: 5}}, {ShareRetryAfter: Off, QuotaPacing: On}, {CircuitBreaker: CircuitBreaker{Enabled: On, FailFast: On}},
		{RetryBudget: RetryBudget{Ratio: 1}}, {Hedge: Hedge{Percentile: 1.5}}, {Hedge: Hedge{Percentile: 99.9}},
		{AttemptTimeout: time.Microsecond, StallTimeout: -1, MaxElapsedTime: math.MaxInt64, MaxRetryAfter: math.MaxInt64},
		{Backoff: backoff.Constant(0)}, {Backoff: backoff.Constant(time.Microsecond)}, {Backoff: backoff.Constant(time.Nanosecond)},
	} {
		assert.NoError(t, good.Validate(), good)
	}
}

// Each number of a rule and of its groups is checked.
func TestValidateForgetsNoField(t *testing.T) {
	var names []string
	for _, err := range fill(t, reflect.TypeFor[Rule](), -2).Interface().(Rule).Validate().(interface{ Unwrap() []error }).Unwrap() {
		names = append(names, err.(*FieldError).Field)
	}
	assert.Equal(t, strings.Fields(`MaxAttempts AttemptTimeout ConnectTimeout FirstEventTimeout StallTimeout MaxElapsedTime MaxRetryAfter
		RateLimit.Enabled RateLimit.PerSecond RateLimit.Burst RetryBudget.Ratio RetryBudget.MinPerSecond RetryBudget.Enabled
		ShareRetryAfter QuotaPacing CircuitBreaker.Enabled CircuitBreaker.FailFast Concurrency.Enabled Concurrency.FailFast Concurrency.Max
		Hedge.Enabled Hedge.UnsafeMethods Hedge.Delay Hedge.Percentile ReplayBuffer Resume MaxRefetch`), names)
}

func TestSwitchIsPrinted(t *testing.T) {
	assert.Equal(t, "off inherit on Switch(9)", fmt.Sprint(Switch(Off), " ", Switch(0), " ", On, " ", Switch(9)))
}

func TestRouteScope(t *testing.T) {
	scopeOf := func(method, path, token string) string {
		req := httptest.NewRequest(method, "http://h.test"+path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		return KeyByRoute(req)
	}
	same := scopeOf("GET", "/v1/users/17/orders", "a")
	assert.Equal(t, same, scopeOf("GET", "/v1/users/18/orders?page=2", "a"))
	assert.Equal(t, same, scopeOf("", "/v1/users/0b6e2c1a-44a5-4d0e-9d4b-3a1f0c1f2d3e/orders", "a"), "no method is GET")
	for name, other := range map[string]string{
		"method":  scopeOf("PUT", "/v1/users/17/orders", "a"),
		"route":   scopeOf("GET", "/v1/users/17/export", "a"),
		"version": scopeOf("GET", "/v2/users/17/orders", "a"),
		"token":   scopeOf("GET", "/v1/users/17/orders", "b"),
	} {
		assert.NotEqual(t, same, other, name)
	}
	assert.NotContains(t, same, "17")
}
