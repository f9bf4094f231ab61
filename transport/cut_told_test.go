package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// TestEveryBadEndOfABodyIsTold: a body that ends badly for its reader is one event, whatever the
// request was. The log has no line, because the reader gets the error.
func TestEveryBadEndOfABodyIsTold(t *testing.T) {
	cut := faults.Status(200).Body("twelve bytes").CutAt(5)
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	hangUp := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for _, row := range []struct {
		name    string
		method  string
		rule    policy.Rule
		step    faults.Step
		begin   func(context.Context) (context.Context, context.CancelFunc)
		reason  transport.Reason
		noEvent bool
	}{
		{name: "a POST", method: "POST", step: cut, reason: transport.ReasonNotResumable},
		{name: "a POST, reset", method: "POST", step: faults.Status(200).Body("twelve bytes").ResetAt(5), reason: transport.ReasonNotResumable},
		{name: "a POST of a rule with limits", method: "POST", rule: policy.API(), step: cut, reason: transport.ReasonNotResumable},
		{name: "a PUT", method: "PUT", step: cut, reason: transport.ReasonNotResumable},
		{name: "the page of an error", method: "GET", step: faults.Status(404).Body("twelve bytes").CutAt(5), reason: transport.ReasonNotResumable},
		{name: "a stream", method: "GET", step: cut.Header("Content-Type", "text/event-stream"), reason: transport.ReasonNotResumable},
		{name: "one attempt", method: "GET", rule: policy.Rule{Attempts: -1}, step: cut, reason: transport.ReasonNotResumable},
		{name: "resumes are off", method: "GET", rule: policy.Rule{Resume: policy.Resume{Max: -1}}, step: cut, reason: transport.ReasonNotResumable},
		{name: "an error that is no cut", method: "GET", step: cut.Header("ETag", `"v1"`),
			rule: policy.Rule{Classify: func(classify.Outcome) classify.Verdict { return classify.Final }}, reason: transport.ReasonNotResumable},
		{name: "the deadline of a POST", method: "POST", step: faults.Status(200).Body("twelve bytes").StallAt(5), begin: short, reason: transport.ReasonTimeout},
		{name: "the deadline of a GET", method: "GET", step: faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").StallAt(5), begin: short, reason: transport.ReasonTimeout},
		{name: "the caller of a POST hangs up", method: "POST", step: faults.Status(200).Body("twelve bytes").StallAt(5), begin: hangUp, reason: transport.ReasonCanceled},
		{name: "the caller of a GET hangs up", method: "GET", step: faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").StallAt(5), begin: hangUp, reason: transport.ReasonCanceled},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			var log journal
			var seen recorder
			ctx := t.Context()
			if row.begin != nil {
				var cancel context.CancelFunc
				ctx, cancel = row.begin(ctx)
				defer cancel()
			}
			tr := mustNew(t, transport.Config{Logger: log.logger(), Trace: seen.trace(), Rule: row.rule, Base: script(row.step)})
			resp, err := tr.RoundTrip(newRequest(t, row.method, "http://h.test/p?key=SECRET", nil).WithContext(ctx))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err)
			require.NoError(t, resp.Body.Close())
			var about []transport.Event
			for _, e := range seen.events() {
				if e.Kind == transport.KindNone {
					about = append(about, e)
				}
			}
			require.Len(t, about, 1)
			assert.Equal(t, row.reason, about[0].Reason)
			assert.Equal(t, 1, about[0].Number)
			e := errorAs[*transport.ResumeError](t, about[0].Err)
			assert.Equal(t, row.reason, e.Reason)
			assert.ErrorIs(t, e, err)
			assert.EqualValues(t, 5, e.Offset)
			assert.EqualValues(t, 5, about[0].Offset)
			for _, r := range log.records() {
				assert.NotContains(t, r.Message, "body")
			}
		})
	}
}

// The Trace of a request hears of it as well.
func TestWhoHearsOfABadEndOfABody(t *testing.T) {
	base := func() http.RoundTripper { return script(faults.Status(200).Body("twelve bytes").CutAt(5)) }
	inBubble(t, "a trace of the request", func(t *testing.T) {
		var seen recorder
		req := postRequest(t, "http://h.test/")
		resp, err := mustNew(t, transport.Config{Base: base()}).RoundTrip(req.WithContext(seen.on(req.Context())))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.True(t, err == io.ErrUnexpectedEOF, "the error is the base's own")
		assert.Equal(t, transport.ReasonNotResumable, seen.last())
	})
	inBubble(t, "a caller who closes the body", func(t *testing.T) {
		var seen recorder
		step := faults.Status(200).Body("twelve bytes").StallAt(5)
		resp, err := mustNew(t, transport.Config{Trace: seen.trace(), Base: script(step)}).RoundTrip(postRequest(t, "http://h.test/"))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		_, err = io.ReadAll(resp.Body) // Close ends it
		require.Error(t, err)
		assert.Len(t, seen.events(), 1)
	})
}

// TestExplainTellsOfABodyThatWasCut: the story says that there was a response, and why nothing
// continues its body. It does so without a Logger and a Trace, too.
func TestExplainTellsOfABodyThatWasCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		step := faults.Status(200).Body("twelve bytes").CutAt(5)
		resp, err := mustNew(t, transport.Config{Base: script(step)}).RoundTrip(postRequest(t, "http://h.test/?key=SECRET"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.Equal(t, "POST http://h.test/?key=xxxxx\n"+
			"  status 200 at the first attempt, and its body failed (unexpected EOF): only a GET, or a request that may be repeated, is sent again for it",
			transport.Explain(resp, err))
		resp, err = mustNew(t, transport.Config{Base: script(faults.Status(503), step), Rule: exact}).RoundTrip(postRequest(t, "http://h.test/").WithContext(transport.Repeatable(t.Context())))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		story := transport.Explain(resp, err)
		assert.Contains(t, story, "attempt 1, at 0s: 503")
		assert.Contains(t, story, "\n  status 200, and its body failed (")
		resp, err = mustNew(t, transport.Config{Base: script(step)}).RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		story = transport.Explain(resp, errors.New("limit of the base"))
		assert.Equal(t, "GET http://h.test/\n  status 200 at the first attempt, and its body failed (limit of the base)", story)
	})
}
