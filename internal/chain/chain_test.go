package chain

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
)

// The functions are asked in the order of the chains, each once, and nothing behind the default.
func TestComposed(t *testing.T) {
	var asked string
	classifier := func(name string) classify.Func {
		return func(classify.Outcome) classify.Class { asked += name; return classify.Unknown }
	}
	reader := func(name string) classify.RetryAfterFunc {
		return func(classify.Outcome) (time.Duration, bool) { asked += name; return 0, false }
	}
	composed(t, &asked, classifier, Classify, classify.Default, Classifiers,
		func(f classify.Func) bool { return f(classify.Outcome{}) == classify.Unknown })
	composed(t, &asked, reader, RetryAfter, classify.RetryAfter, Readers,
		func(f classify.RetryAfterFunc) bool { wait, ok := f(classify.Outcome{}); return !ok && wait == 0 })
}

func composed[F any](t *testing.T, asked *string, make func(string) F, or func(F, F) F, end F, parts func(F) []F, ask func(F) bool) {
	a, b, c := make("a"), make("b"), make("c")
	var none F
	for want, some := range map[string][]F{
		"ab":  {or(a, b), or(or(a, b), b), or(a, or(b, b)), or(or(a, b), a), or(or(a, none), b), or(or(or(a, b), end), c)},
		"abc": {or(or(a, b), c), or(a, or(b, c)), or(or(a, b), or(a, c)), or(or(or(a, b), or(b, c)), a)},
		"a":   {a, or(none, a), or(a, none), or(or(a, end), b)},
		"":    {end, or(end, a)},
	} {
		for i, f := range some {
			*asked = ""
			ask(f)
			assert.Equal(t, want, *asked, "%T %d of %q", f, i, want)
		}
	}
	assert.True(t, ask(or(a, b)))
	assert.Nil(t, or(none, none))
	assert.Empty(t, parts(none))
	assert.Len(t, parts(a), 1)
	assert.Len(t, parts(or(a, b)), 2)
	assert.True(t, isSame(a, or(a, none)), "a chain of one function is the function")
	assert.False(t, isSame(a, b))
	assert.True(t, SameCode(end, or(end, a)))
	assert.False(t, SameCode(a, end))
}

func TestClassify(t *testing.T) {
	known := Classify(classify.OnStatus(classify.Final, 404), classify.OnStatus(classify.Refused, 423))
	locked := classify.Outcome{Response: &http.Response{StatusCode: 423}}
	assert.Equal(t, classify.Refused, known(locked), "functions with the same code are different")
	assert.Zero(t, testing.AllocsPerRun(100, func() { known(locked) }))
	all := Classify(known, classify.Default)
	timeout := classify.Outcome{Response: &http.Response{StatusCode: 408}}
	assert.NotZero(t, all(timeout))
	assert.Zero(t, WithoutDefault(all)(timeout))
	assert.Equal(t, classify.Refused, WithoutDefault(all)(locked))
	assert.NotZero(t, all(timeout), "it is another function")
	assert.Nil(t, WithoutDefault(classify.Default))
	assert.Nil(t, WithoutDefault(nil))
}

func TestFirstRetryAfter(t *testing.T) {
	none := func(classify.Outcome) (time.Duration, bool) { return 0, false }
	is := func(d time.Duration) classify.RetryAfterFunc {
		return func(classify.Outcome) (time.Duration, bool) { return d, true }
	}
	for name, tt := range map[string]struct {
		h    classify.RetryAfterFunc
		want time.Duration
		ok   bool
	}{
		"a chain":              {RetryAfter(none, RetryAfter(is(2), is(1))), 2, true},
		"no function is asked": {FirstRetryAfter(), 0, false},
		"nil":                  {FirstRetryAfter(nil), 0, false},
		"no response":          {FirstRetryAfter(none, nil), 0, false},
		"the first":            {FirstRetryAfter(nil, none, is(2), is(1)), 2, true},
		"at once counts":       {FirstRetryAfter(is(0), is(1)), 0, true},
	} {
		wait, ok := tt.h(classify.Outcome{})
		assert.Equal(t, tt.ok, ok, name)
		assert.Equal(t, tt.want, wait, name)
	}
}
