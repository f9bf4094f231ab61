package policy

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
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

func TestOrForgetsNoField(t *testing.T) {
	typ := reflect.TypeFor[Rule]()
	mine := fill(t, typ, 1).Interface().(Rule)
	base := fill(t, typ, 2).Interface().(Rule)
	for i := range typ.NumField() {
		t.Run(typ.Field(i).Name, func(t *testing.T) {
			var one Rule
			reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(mine).Field(i))
			missing := mine
			reflect.ValueOf(&missing).Elem().Field(i).SetZero()

			got, rest := reflect.ValueOf(one.Or(base)), reflect.ValueOf(missing.Or(base))
			for j := range typ.NumField() {
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
	mine, base := Rule{Attempts: 2}, Rule{Attempts: 3, Rate: 5}
	assert.Equal(t, Rule{Attempts: 2, Rate: 5}, mine.Or(base))
	assert.Equal(t, Rule{Attempts: 2}, mine)
	assert.Equal(t, Rule{Attempts: 3, Rate: 5}, base)
	assert.Equal(t, Rule{Attempts: -1}, Rule{Attempts: -1}.Or(mine), "negative turns off and does not inherit")
}

// A boolean cannot tell "off" from "nothing said", and Or cannot set what is
// not exported.
func TestRuleHasNoFieldThatCannotInherit(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Rule]()) {
		assert.True(t, field.IsExported(), field.Name)
		assert.NotEqual(t, reflect.Bool, field.Type.Kind(), field.Name)
	}
}

func TestDefaults(t *testing.T) {
	d := Defaults()
	require.NoError(t, d.Validate())
	assert.Equal(t,
		"{Attempts: 6, Backoff: backoff.Exponential{}, Classify: func, Hint: func, Idempotent: func, "+
			"MaxRetryAfter: 1m0s, Excess: stop, RateMode: fixed, "+
			"Budget: Budget{Ratio: 0.2, PerSecond: 3, Window: 10s, Burst: 30}, Cooldown: on, Pacing: off, "+
			"Gate: Gate{Mode: off}, Hedge: Hedge{After: off}, BufferBody: 1048576, Resumes: 5}",
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
		{"off", Rule{Attempts: -1, AttemptTimeout: -1, Elapsed: -1, MaxRetryAfter: -1, Rate: -1, BufferBody: -1, AttemptHeader: "-"}, ""},
		{"at the bounds", Rule{Attempts: 1000, Rate: 1e9, BufferBody: 64 << 20, Excess: ExcessWait}, ""},
		{"burst of one", Rule{Rate: 1, Burst: 1}, ""},
		{"burst without rate", Rule{Burst: -1}, ""},

		{"attempts", Rule{Attempts: 1001}, "Attempts: 1001 is more than 1000 sends"},
		{"rate NaN", Rule{Rate: math.NaN()}, "Rate: NaN is not a number of requests per second"},
		{"rate +Inf", Rule{Rate: math.Inf(1)}, "Rate: +Inf is not a number of requests per second"},
		{"rate -Inf", Rule{Rate: math.Inf(-1)}, "Rate: -Inf is not a number of requests per second"},
		{"rate huge", Rule{Rate: 1e300}, "Rate: 1e+300 is more than 1e+09 requests per second"},
		{"burst", Rule{Rate: 1, Burst: -1}, "Burst: -1 would let nothing through; turn Rate off, or leave Burst at 0 for Rate rounded up"},
		{"buffer", Rule{BufferBody: 64<<20 + 1}, "BufferBody: 67108865 is more than 64 MiB (67108864 bytes)"},
		{"excess", Rule{Excess: 4}, "Excess: Excess(4) is none of stop, cap and wait"},
		{"header with space", Rule{AttemptHeader: "X Retry"}, `AttemptHeader: "X Retry" is not a header field name (RFC 9110 §5.1)`},
		{"header of HTTP/2", Rule{AttemptHeader: ":path"}, `AttemptHeader: ":path" is not a header field name (RFC 9110 §5.1)`},
		{"header with umlaut", Rule{AttemptHeader: "X-Zähler"}, `AttemptHeader: "X-Zähler" is not a header field name (RFC 9110 §5.1)`},
		{"header with newline", Rule{AttemptHeader: "X\r\nHost"}, `AttemptHeader: "X\r\nHost" is not a header field name (RFC 9110 §5.1)`},
		{"header of the connection", Rule{AttemptHeader: "transfer-ENCODING"},
			`AttemptHeader: "transfer-ENCODING" has a meaning of its own; a resend's number must not replace it`},

		{"back-off", Rule{Backoff: new(numberedBackoff)}, ""},
		{"nil pointer", Rule{Backoff: (*numberedBackoff)(nil)},
			"Backoff: (*policy.numberedBackoff)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"nil pointer to one of ours", Rule{Backoff: (*backoff.Exponential)(nil)},
			"Backoff: (*backoff.Exponential)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"nil function", Rule{Backoff: functionBackoff(nil)},
			"Backoff: (functionBackoff)(nil) is nil behind an interface that is not; leave the field nil to inherit"},
		{"back-off of ours", Rule{Backoff: backoff.Exponential{Base: -1}}, "Backoff.Base: -1ns is negative"},
		{"back-off at peace", Rule{Backoff: complainsBackoff{}}, ""},
		{"back-off with Errors", Rule{Backoff: complainsBackoff{Errors{{Field: "A", Value: 1, Reason: "is odd"}, {Field: "B", Reason: "missing"}}}},
			"Backoff.A: 1 is odd\nBackoff.B: missing"},
		{"back-off with a FieldError", Rule{Backoff: complainsBackoff{&FieldError{Field: "A", Value: "x", Reason: "is odd"}}}, `Backoff.A: "x" is odd`},
		{"back-off with another error", Rule{Backoff: complainsBackoff{plain}}, "Backoff: the moon is full"},
		{"back-off with joined errors", Rule{Backoff: complainsBackoff{errors.Join(plain, &FieldError{Field: "A", Reason: "missing"})}},
			"Backoff: the moon is full\nBackoff.A: missing"},
		{"back-off with words around errors", Rule{Backoff: complainsBackoff{fmt.Errorf("both %w and %w", plain, plain)}},
			"Backoff: both policy: the moon is full and policy: the moon is full"},

		{"everything", Rule{Attempts: 5000, Backoff: backoff.Exponential{Base: -1, Max: -1}, Excess: 9, Rate: math.NaN(), BufferBody: 1 << 40, AttemptHeader: "host"},
			`Attempts: 5000 is more than 1000 sends
Backoff.Base: -1ns is negative
Backoff.Max: -1ns is negative
Excess: Excess(9) is none of stop, cap and wait
Rate: NaN is not a number of requests per second
BufferBody: 1099511627776 is more than 64 MiB (67108864 bytes)
AttemptHeader: "host" has a meaning of its own; a resend's number must not replace it`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.rule.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
			_, ok := errors.AsType[Errors](err)
			assert.True(t, ok, "the error is Errors")
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

func TestErrorsAt(t *testing.T) {
	err := Rule{Attempts: 5000, Excess: 9}.Validate()
	bad, ok := errors.AsType[Errors](err)
	require.True(t, ok)
	moved := bad.At(`Hosts["*.x"].`)
	assert.EqualError(t, moved,
		"Hosts[\"*.x\"].Attempts: 5000 is more than 1000 sends\nHosts[\"*.x\"].Excess: Excess(9) is none of stop, cap and wait")
	assert.Equal(t, "Attempts", bad[0].Field, "At copies")
}

func TestReservedHeadersInAnyCase(t *testing.T) {
	for name := range reservedHeaders {
		for _, spelt := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			assert.Error(t, Rule{AttemptHeader: spelt}.Validate(), spelt)
		}
	}
	for _, name := range []string{"X-Retry", "grpc-previous-rpc-attempts", "x-stainless-retry-count", "!#$%&'*+-.^_`|~0"} {
		assert.NoError(t, Rule{AttemptHeader: name}.Validate(), name)
	}
}

func TestExcessText(t *testing.T) {
	for mode, text := range map[Excess]string{ExcessInherit: "inherit", ExcessStop: "stop", ExcessCap: "cap", ExcessWait: "wait"} {
		assert.Equal(t, text, mode.String())
		written, err := mode.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(written))
		var read Excess
		require.NoError(t, read.UnmarshalText(written))
		assert.Equal(t, mode, read)
	}
	assert.Equal(t, "Excess(9)", Excess(9).String())
	_, err := Excess(9).MarshalText()
	require.EqualError(t, err, "policy: Excess(9) is none of stop, cap and wait")
	kept := ExcessCap
	require.EqualError(t, kept.UnmarshalText([]byte("Stop")), `policy: "Stop" is none of stop, cap and wait`)
	assert.Equal(t, ExcessCap, kept)
}

// wordyBackoff prints by itself.
type wordyBackoff struct{ backoff.Exponential }

func (wordyBackoff) String() string { return "as I please" }

func TestRuleString(t *testing.T) {
	for want, rule := range map[string]Rule{
		"{}": {},
		"{Attempts: off, AttemptTimeout: off, Rate: off, BufferBody: off}":         {Attempts: -1, AttemptTimeout: -1, Rate: -1, BufferBody: -1},
		"{Backoff: backoff.Exponential{Base: 250ms, Jitter: off, Literal: true}}":  {Backoff: backoff.Exponential{Base: 250 * time.Millisecond, Jitter: -1, Literal: true}},
		"{Backoff: backoff.Constant(5s)}":                                          {Backoff: backoff.Constant(5 * time.Second)},
		"{Backoff: backoff.Constant(0s), Elapsed: 1m30s}":                          {Backoff: backoff.Constant(0), Elapsed: 90 * time.Second},
		"{Backoff: *backoff.Exponential}":                                          {Backoff: &backoff.Exponential{}},
		"{Backoff: (*backoff.Exponential)(nil)}":                                   {Backoff: (*backoff.Exponential)(nil)},
		"{Backoff: func}":                                                          {Backoff: functionBackoff(func(int) time.Duration { return 0 })},
		"{Backoff: as I please}":                                                   {Backoff: wordyBackoff{}},
		"{Backoff: complainsBackoff{}}":                                            {Backoff: complainsBackoff{errors.New("x")}},
		"{Classify: func, Excess: cap, Rate: 0.5, Burst: 2, AttemptHeader: \"A\"}": {Classify: classify.Default, Excess: ExcessCap, Rate: 0.5, Burst: 2, AttemptHeader: "A"},
		"{Excess: Excess(9), Rate: NaN}":                                           {Excess: 9, Rate: math.NaN()},
	} {
		assert.Equal(t, want, rule.String())
		assert.Equal(t, want, fmt.Sprint(rule))
	}
}

// Whatever a rule holds, it can be merged, checked and printed.
func TestEveryFieldCanBePrinted(t *testing.T) {
	text := fill(t, reflect.TypeFor[Rule](), 3).Interface().(Rule).String()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Rule]()) {
		assert.Contains(t, text, field.Name+": ")
	}
}
