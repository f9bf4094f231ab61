package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"syscall"
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

// TestLinesSayWhatFailed: the line of a refused retry names the failure before it and says the reason
// once, and a response whose content is an error says so.
func TestLinesSayWhatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		start := time.Now()
		tr := mustNew(t, transport.Config{
			Rule: policy.Rule{Attempts: 3, Budget: policy.Budget{Burst: policy.Off}, Gate: policy.Gate{Start: 10}}.Or(exact), Logger: log.logger(),
			Base: rt(func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}),
		})
		for time.Since(start) < 2*time.Minute {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			go func() {
				defer cancel()
				_, _ = fetch(t, tr, ctx, "http://h.test/")
			}()
			time.Sleep(103 * time.Millisecond)
		}
		found := 0
		for _, r := range log.records() {
			if attr(r, "limit") == "gate" && attr(r, "reason") == "deadline" && attr(r, "attempts") != int64(0) {
				assert.Equal(t, "http://h.test failed (connection refused): no retry, its turn would come after the caller's deadline", r.Message)
				found++
			}
		}
		assert.NotZero(t, found)
	})
	inBubble(t, "an error inside", func(t *testing.T) {
		var log journal
		inside := func(o classify.Outcome) classify.Verdict {
			if o.Response != nil && o.Response.Header.Get("X-Error") != "" {
				return classify.Refused
			}
			return classify.Unknown
		}
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: 2, Classify: inside}.Or(exact), Logger: log.logger(), Base: script(faults.Status(200, "X-Error", "overloaded"))})
		resp, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		assert.Equal(t, "http://h.test failed (200 with an error inside): attempt 2 follows in 1s", log.records()[0].Message)
		assert.Contains(t, transport.Explain(resp, nil), "attempt 1, at 0s: 200 with an error inside, retry after 1s")
	})
	inBubble(t, "a body that cannot go on", func(t *testing.T) {
		var log journal
		step := faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").CutAt(5)
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Resume: policy.Resume{Max: 2}}.Or(exact), Logger: log.logger(), Base: script(step, faults.Status(503))})
		resp, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		time.Sleep(time.Minute)
		var warnings []string
		for _, r := range log.records() {
			if r.Level == slog.LevelWarn {
				warnings = append(warnings, r.Message)
				assert.NotEqual(t, int64(0), attr(r, "attempts"))
			}
		}
		assert.Equal(t, []string{"http://h.test failed in its body (503): the reader gets the error, all attempts are used up"}, warnings)
	})
	for _, code := range []int{403, 404} {
		inBubble(t, fmt.Sprintf("a %d for the rest", code), func(t *testing.T) {
			var log journal
			step := faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").CutAt(5)
			tr := mustNew(t, transport.Config{Rule: exact, Logger: log.logger(), Base: script(step, faults.Status(code))})
			resp, err := tr.RoundTrip(getRequest(t, "http://h.test/"))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err)
			time.Sleep(time.Minute)
			var warnings []string
			for _, r := range log.records() {
				if r.Level == slog.LevelWarn {
					warnings = append(warnings, r.Message)
				}
			}
			assert.Equal(t, []string{"http://h.test failed in its body (unexpected EOF): the reader gets the error, the rest is not of the same body"}, warnings)
		})
	}
}
