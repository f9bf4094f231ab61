package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// TestErrorsInEventsHaveNoSecrets: the Err of an Event and of a HostChange prints without the
// secrets of URLs, errors.Is and errors.As see what is inside, and the caller of a single
// attempt gets the base's own error.
func TestErrorsInEventsHaveNoSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		own := &url.Error{Op: "Get", URL: "http://u:" + marker + "@h.test/p?key=" + marker + "#" + marker, Err: io.ErrUnexpectedEOF}
		var seen recorder
		var changed changes
		tr := mustNew(t, transport.Config{
			Base: script(faults.Fail(own)), Rule: policy.Rule{Attempts: -1, Gate: policy.Gate{Start: 10}},
			Trace: transport.JoinTraces(seen.trace(), changed.trace()),
		})
		_, err := tr.RoundTrip(getRequest(t, "http://h.test/p?key="+marker))
		assert.True(t, err == error(own), "the error of a single attempt is untouched: %T", err)
		events := seen.events()
		require.Len(t, events, 1)
		assert.Equal(t, `Get "http://xxxxx@h.test/p?key=xxxxx": unexpected EOF`, events[0].Err.Error())
		assert.ErrorIs(t, events[0].Err, io.ErrUnexpectedEOF)
		assert.Same(t, own, errorAs[*url.Error](t, events[0].Err))
		for _, text := range []string{fmt.Sprint(events[0]), fmt.Sprintf("%+v", events[0].Attempt), fmt.Sprintf("%#v", events[0].Err)} {
			assert.NotContains(t, text, marker)
		}
		for range 100 {
			_, _ = tr.RoundTrip(getRequest(t, "http://h.test/p?key="+marker))
		}
		require.NotEmpty(t, changed.all)
		assert.ErrorIs(t, changed.all[0].Err, io.ErrUnexpectedEOF)
		assert.NotContains(t, changed.all[0].Err.Error(), marker)
	})
}

// An error without secrets is the base's own.
func TestErrorsInEventsAreTheirOwn(t *testing.T) {
	var seen recorder
	own := errors.New("reset by the base")
	_, err := mustNew(t, transport.Config{Base: script(faults.Fail(own)), Trace: seen.trace()}).RoundTrip(getRequest(t, "http://h.test/?q="+marker))
	require.Error(t, err)
	assert.True(t, seen.events()[0].Err == own)
}

// TestTextsOfEvents: an Event prints what happened, and what follows.
func TestTextsOfEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var texts []string
		tr := mustNew(t, transport.Config{
			Base: script(faults.Status(503).Delay(20*time.Millisecond), faults.Fail(errors.New("no http://h.test/?key="+marker)), status(200)),
			Rule: policy.Rule{Classify: always}.Or(exact), Trace: &transport.Trace{Event: func(e transport.Event) { texts = append(texts, e.String()) }},
		})
		_, err := tr.RoundTrip(getRequest(t, "http://u:p@h.test/?key="+marker))
		require.NoError(t, err)
		resp, err := mustNew(t, transport.Config{Base: script(faults.Status(200).Body("twelve bytes").CutAt(5)),
			Trace: &transport.Trace{Event: func(e transport.Event) { texts = append(texts, fmt.Sprint(e)) }}}).RoundTrip(newRequest(t, http.MethodPost, "http://h.test/", nil))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		assert.Equal(t, []string{
			"GET to http://h.test, attempt 1: 503 after 20ms, retry after 1s",
			"GET to http://h.test, attempt 2: no http://h.test/?key=xxxxx, retry after 2s",
			"GET to http://h.test, attempt 3: 200, the caller gets it",
			"POST to http://h.test, attempt 1: 200, the caller gets it",
			"POST to http://h.test: unexpected EOF at byte 5 of the body, nothing can continue its body",
		}, texts)
	})
}

// An event names a failure inside a good response, and the events of a body that cannot go on say
// why.
func TestEventsSayWhatFailed(t *testing.T) {
	texts := func(t *testing.T, c transport.Config) (all []string) {
		c.Trace = &transport.Trace{Event: func(e transport.Event) { all = append(all, e.String()) }}
		resp, err := mustNew(t, c).RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		_, _ = io.ReadAll(resp.Body)
		return all
	}
	inBubble(t, "an error inside", func(t *testing.T) {
		inside := func(o classify.Outcome) classify.Verdict {
			if o.Response != nil && o.Response.Header.Get("X-Error") != "" {
				return classify.Refused
			}
			return classify.Unknown
		}
		all := texts(t, transport.Config{Rule: policy.Rule{Attempts: 2, Classify: inside}.Or(exact), Base: script(faults.Status(200, "X-Error", "overloaded"))})
		assert.Equal(t, "GET to http://h.test, attempt 1: 200 with an error inside, retry after 1s", all[0])
	})
	cut := faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").CutAt(5)
	for status, last := range map[int]string{
		503: "GET to http://h.test, attempt 6, a reconnect: 503 at byte 5 of the body, all attempts are used up",
		403: "GET to http://h.test: unexpected EOF at byte 5 of the body, the rest is not of the same body",
		404: "GET to http://h.test: unexpected EOF at byte 5 of the body, the rest is not of the same body",
	} {
		inBubble(t, fmt.Sprintf("a %d for the rest", status), func(t *testing.T) {
			all := texts(t, transport.Config{Rule: policy.Rule{Resume: policy.Resume{Max: 2}}.Or(exact), Base: script(cut, faults.Status(status))})
			assert.Equal(t, last, all[len(all)-1])
		})
	}
}
