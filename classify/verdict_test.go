package classify

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func withBody(code int, text string, header ...string) Outcome {
	o := response(code, header...)
	o.Response.Body = io.NopCloser(strings.NewReader(text))
	return o
}

func TestVerdictText(t *testing.T) {
	for v, want := range []string{"unknown", "final", "refused", "ambiguous"} {
		assert.Equal(t, want, Verdict(v).String())
	}
	assert.Equal(t, "Verdict(9)", Verdict(9).String())
	var zero Verdict
	assert.Equal(t, Unknown, zero)
}

func TestFirst(t *testing.T) {
	is := func(v Verdict) Func { return func(Outcome) Verdict { return v } }
	for name, tt := range map[string]struct {
		f    Func
		want Verdict
	}{
		"no function is asked": {First(), Unknown},
		"nil":                  {First(nil, nil), Unknown},
		"no opinion":           {First(is(Unknown), nil, is(Unknown)), Unknown},
		"the first opinion":    {First(is(Unknown), nil, is(Refused), is(Final)), Refused},
		"one within another":   {First(First(nil), First(is(Ambiguous))), Ambiguous},
	} {
		assert.Equal(t, tt.want, tt.f(Outcome{}), name)
	}

	funcs := []Func{is(Final)}
	f := First(funcs...)
	funcs[0] = is(Refused)
	assert.Equal(t, Final, f(Outcome{}), "the caller's slice is the caller's")
}

func TestStatus(t *testing.T) {
	codes := []int{409, 503}
	f := OnStatus(Refused, codes...)
	codes[0] = 200
	assert.Equal(t, Refused, f(response(409)))
	assert.Equal(t, Refused, f(response(503)))
	assert.Equal(t, Unknown, f(response(200)))
	assert.Equal(t, Unknown, f(Outcome{}))
	assert.Equal(t, Unknown, f(Outcome{Err: io.EOF}))
	assert.Equal(t, Unknown, OnStatus(Final)(response(200)))
}

func TestError(t *testing.T) {
	f := OnError(Final, Reset, Dial)
	assert.Equal(t, Final, f(Outcome{Err: io.EOF}))
	assert.Equal(t, Unknown, f(Outcome{Err: http.ErrSchemeMismatch}))
	assert.Equal(t, Unknown, f(response(500)))
	assert.Equal(t, Unknown, f(Outcome{}))
	assert.Equal(t, Unknown, OnError(Final, NoError)(response(200)), "no error is of no kind")
	assert.Equal(t, Unknown, OnError(Final)(Outcome{Err: io.EOF}))
}

func TestBody(t *testing.T) {
	const text = `{"reason":"queue capacity reached"}`
	for name, tt := range map[string]struct {
		f    Func
		o    Outcome
		want Verdict
	}{
		"found":                       {OnBodyText(Refused, "queue capacity"), withBody(500, text), Refused},
		"found at 400":                {OnBodyText(Refused, "queue capacity"), withBody(400, text), Refused},
		"the text is not in the body": {OnBodyText(Refused, "Queue Capacity"), withBody(500, text), Unknown},
		"success is not looked at":    {OnBodyText(Refused, "queue capacity"), withBody(200, text), Unknown},
		"success is looked at if its code is asked for":   {OnBodyText(Refused, "queue capacity", 200), withBody(200, text), Refused},
		"only the codes that are asked for are looked at": {OnBodyText(Refused, "queue capacity", 200), withBody(500, text), Unknown},
		"an empty text":           {OnBodyText(Refused, ""), withBody(500, text), Unknown},
		"beyond 64 KiB":           {OnBodyText(Refused, "END"), withBody(500, strings.Repeat("x", 64<<10)+"END"), Unknown},
		"just within 64 KiB":      {OnBodyText(Refused, "END"), withBody(500, strings.Repeat("x", 64<<10-3)+"END"), Refused},
		"beyond a limit":          {OnBody(Refused, 10, contains("queue")), withBody(500, text+text), Unknown},
		"within a limit":          {OnBody(Refused, 17, contains("queue")), withBody(500, text), Refused},
		"no limit means 64 KiB":   {OnBody(Refused, 0, contains("queue")), withBody(500, text), Refused},
		"no match function":       {OnBody(Refused, 10, nil), withBody(500, text), Unknown},
		"an empty body is a body": {OnBody(Refused, 10, func(b []byte) bool { return len(b) == 0 }), withBody(500, ""), Refused},
		"a response without a body has none to look at": {OnBody(Refused, 10, func(b []byte) bool { return len(b) == 0 }), response(500), Unknown},
		"an error":                   {OnBodyText(Refused, "EOF"), Outcome{Err: io.EOF}, Unknown},
		"neither response nor error": {OnBodyText(Refused, "EOF"), Outcome{}, Unknown},
		"a body that was looked at":  {First(OnBodyText(Final, "nothing"), OnBodyText(Refused, "queue")), withBody(500, text), Refused},
	} {
		t.Run(name, func(t *testing.T) {
			var whole []byte
			if tt.o.Response != nil && tt.o.Response.Body != nil {
				whole, _ = io.ReadAll(tt.o.Response.Body)
				tt.o.Response.Body = io.NopCloser(bytes.NewReader(whole))
			}
			assert.Equal(t, tt.want, tt.f(tt.o))
			if whole != nil {
				after, err := io.ReadAll(tt.o.Response.Body)
				require.NoError(t, err)
				assert.Equal(t, whole, after, "pitfall 32: the body is there for the caller")
			}
		})
	}
}

func contains(s string) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(s)) }
}
