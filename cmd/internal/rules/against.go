// One request, and how its outcome is judged.

package rules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/cmd/internal/waits"
	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/rulejson"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// patience is how long a request may take if neither the rule nor the command line
// bounds its time.
const patience = time.Minute

var (
	errDone     = errors.New("the outcome is judged")
	errPatience = fmt.Errorf("no response within %v", waits.Short(patience))
)

// A judgement says how an outcome would be judged.
type judgement struct {
	Method  string         `json:"method"`
	URL     string         `json:"url"`
	Pattern string         `json:"pattern"`
	Applies []string       `json:"patterns"`
	Status  int            `json:"status,omitzero"`
	Error   string         `json:"error,omitzero"`
	Kind    string         `json:"kind,omitzero"`
	Took    waits.Seconds  `json:"took"`
	Verdict string         `json:"class"`
	Hint    *waits.Seconds `json:"hint"`
	Retry   bool           `json:"retry"`
	Reason  string         `json:"reason"`
	Wait    waits.Seconds  `json:"wait"`
	Quota   *quota         `json:"quota"`
}

// A quota is what the response said about the rest of its first quota.
type quota struct {
	Remaining int64         `json:"remaining"`
	Limit     int64         `json:"limit,omitzero"`
	Reset     waits.Seconds `json:"reset"`
}

// against sends one request through a Transport with the rules of the file. The
// Transport decides as in a program. When it has told its decision, the context ends
// its wait, and the base refuses further attempts.
func against(ctx context.Context, o options, f *rulejson.File, base http.RoundTripper) (*judgement, error) {
	if base == nil {
		real := http.DefaultTransport.(*http.Transport).Clone()
		defer real.CloseIdleConnections()
		base = real
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errDone)
	if o.deadline > 0 {
		bounded, stop := context.WithTimeout(ctx, o.deadline)
		defer stop()
		ctx = bounded
	} else {
		defer time.AfterFunc(patience, func() { cancel(errPatience) }).Stop()
	}
	var end *transport.AttemptEnd
	trace := &transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
		if end == nil {
			end = &e
			cancel(errDone)
		}
	}}
	t, err := newTransport(f, transport.Config{Base: &single{base: base}, Traces: []*transport.Trace{trace}})
	if err != nil {
		return nil, err
	}
	rule, patterns := t.RuleFor(&http.Request{Method: o.method, URL: o.url})
	rule.Hedge = policy.Hedge{Enabled: policy.Off} // a hedge would be a second request
	if err := t.Update(rule, nil); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, o.method, o.url.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = o.header
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	start := time.Now()
	resp, err := t.RoundTrip(req)
	took := time.Since(start)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if end == nil {
		return nil, errors.New("the request was not sent: " + transport.SafeError(err, o.url))
	}
	if errors.Is(context.Cause(ctx), errPatience) {
		end.Err = errPatience
	}
	return judge(o, patterns, end, took), nil
}

// A single is a base that sends one request.
type single struct {
	base http.RoundTripper
	sent atomic.Bool
}

func (s *single) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.sent.Swap(true) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errDone
	}
	return s.base.RoundTrip(req)
}

func judge(o options, patterns []string, e *transport.AttemptEnd, took time.Duration) *judgement {
	j := &judgement{
		Method: o.method, URL: safe(o.url), Applies: append([]string{}, patterns...), Status: e.Status, Took: waits.Seconds(took),
		Verdict: string(e.Class), Retry: e.Reason == transport.ReasonRetry, Reason: string(e.Reason), Wait: waits.Seconds(e.Delay),
	}
	if len(patterns) > 0 {
		j.Pattern = patterns[0]
	}
	if e.Err != nil {
		j.Error, j.Kind = transport.SafeError(e.Err, e.Request.URL), string(classify.ErrorTypeOf(e.Err))
	}
	if e.RetryAfter > 0 {
		hint := waits.Seconds(e.RetryAfter)
		j.Hint = &hint
	}
	if e.Response != nil {
		if all := field.Quotas(e.Response.Header); len(all) > 0 {
			j.Quota = &quota{all[0].Remaining, all[0].Limit, waits.Seconds(all[0].Reset)}
		}
	}
	return j
}

// meanings say what a verdict means.
var meanings = map[string]string{
	"final":     "another attempt would not change it",
	"refused":   "the server did not act, so any request may be sent again",
	"ambiguous": "the server may have acted, so only an idempotent request may be sent again",
}

// reasons say why there is no retry.
var reasons = map[string]string{
	"final":            "the caller gets the outcome",
	"not_idempotent":   "it could do harm to send the request twice",
	"retries_off":      "the rule allows one attempt only",
	"max_elapsed_time": "the retry would start later than max_elapsed_time allows",
	"deadline":         "the wait would pass the deadline",
	"throttled":        "the server asks for a longer wait than retry_after.max",
	"canceled":         "the request was ended before it had an outcome",
}

func why(reason string) string {
	if text := reasons[reason]; text != "" {
		return fmt.Sprintf("%s (%s)", text, reason)
	}
	return reason
}

func (j *judgement) print(w io.Writer) {
	wrap(w, "", fmt.Sprintf("%s %s: %s applies.", j.Method, j.URL, applies(j.Applies)))
	line(w)
	item := func(name, value string) { row(w, name, 7, value, columns-11, "") }
	if j.Status != 0 {
		item("outcome", fmt.Sprintf("%d %s after %v", j.Status, http.StatusText(j.Status), j.Took))
	} else {
		item("outcome", fmt.Sprintf("%s (kind %s) after %v", j.Error, j.Kind, j.Took))
	}
	verdict := j.Verdict
	if means := meanings[verdict]; means != "" {
		verdict += ": " + means
	}
	item("class", verdict)
	switch {
	case j.Hint != nil:
		item("hint", fmt.Sprintf("the server asks to wait %v", *j.Hint))
	case j.Verdict == "final" && j.Status >= http.StatusBadRequest:
		item("hint", "none for an outcome that is final")
	default:
		item("hint", "none; the server does not ask to wait")
	}
	if j.Retry {
		item("retry", fmt.Sprintf("yes, after %v", j.Wait))
	} else {
		item("retry", "no: "+why(j.Reason))
	}
	if q := j.Quota; q != nil {
		of := ""
		if q.Limit > 0 {
			of = fmt.Sprintf(" of %d", q.Limit)
		}
		item("quota", fmt.Sprintf("%d%s left, new in %v", q.Remaining, of, q.Reset))
	} else {
		item("quota", "the response names none")
	}
}
