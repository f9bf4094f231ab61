package attempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/policy"
)

var gateOfOne = concurrency.Config{Start: 1, Max: 1}

// An observer notes each end of a body.
type observer struct {
	bytes []int64
	errs  []error
}

func (o *observer) BodyEnded(bytes int64, err error) {
	o.bytes, o.errs = append(o.bytes, bytes), append(o.errs, err)
}

func TestObservedBody(t *testing.T) {
	failed := errors.New("failed")
	for name, row := range map[string]struct {
		src   io.ReadCloser
		do    func(b io.ReadCloser)
		bytes []int64
		errs  []error
	}{
		"it is read":            {body("news"), func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, []int64{4}, []error{io.EOF}},
		"it is read and closed": {body("news"), func(b io.ReadCloser) { _, _ = io.ReadAll(b); _ = b.Close() }, []int64{4}, []error{io.EOF}},
		"it is closed":          {body("news"), func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 3)); _ = b.Close(); _ = b.Close() }, []int64{3}, []error{nil}},
		"it fails":              {failing{failed}, func(b io.ReadCloser) { _, _ = io.ReadAll(b); _, _ = b.Read(nil) }, []int64{0}, []error{failed}},
		"nothing is done":       {body("news"), func(io.ReadCloser) {}, nil, nil},
		"its Close panics":      {&scripted{close: func() { panic("close") }}, func(b io.ReadCloser) { defer func() { _ = recover() }(); _ = b.Close() }, []int64{0}, []error{nil}},
		"a bad count":           {&scripted{read: func([]byte) (int, error) { return -1, io.EOF }}, func(b io.ReadCloser) { _, _ = b.Read(nil) }, []int64{0}, []error{io.EOF}},
	} {
		var o observer
		resp := &http.Response{Body: row.src}
		new(ObservedBody).Wrap(resp, &o)
		row.do(resp.Body)
		assert.Equal(t, row.bytes, o.bytes, name)
		assert.Equal(t, row.errs, o.errs, name)
	}
	// A Read that Close ends is no error of the body. One that was at the end is whole.
	for read, want := range map[error]error{http.ErrBodyReadAfterClose: nil, io.EOF: io.EOF} {
		var o observer
		resp, b := &http.Response{}, new(ObservedBody)
		resp.Body = &scripted{close: func() { _, _ = b.Read(nil) }, read: func([]byte) (int, error) { return 0, read }}
		b.Wrap(resp, &o)
		_ = b.Close()
		assert.Equal(t, []error{want}, o.errs, read)
	}
}

func TestErrors(t *testing.T) {
	rule := policy.Rule{AttemptTimeout: second, ConnectTimeout: 2 * second, StallTimeout: 3 * second, FirstEventTimeout: 4 * second}
	timeouts := TimeoutsOf(&rule)
	for text, row := range map[string]struct{ err, is error }{
		"transport: no response within the attempt's 1s":     {timeouts.late, policy.ErrAttemptTimeout},
		"dial tcp: no connection within 2s":                  {timeouts.unconnected, errUnconnected},
		"transport: no progress for 3s":                      {timeouts.silent, policy.ErrStallTimeout},
		"transport: no event within 4s after the headers":    {timeouts.eventless, policy.ErrAttemptTimeout},
		"net/http: request canceled":                         {ErrRequestCanceled, ErrRequestCanceled},
		"late":                                               {&HeldBelow{Late: errors.New("late")}, nil},
		"context deadline exceeded: the user went for lunch": {&ContextError{context.DeadlineExceeded, errors.New("the user went for lunch")}, context.DeadlineExceeded},
	} {
		assert.EqualError(t, row.err, text)
		if row.is != nil {
			assert.ErrorIs(t, row.err, row.is, text)
		}
		assert.NotErrorIs(t, row.err, context.Canceled, text)
		timeout, ok := row.err.(interface{ Timeout() bool })
		assert.Equal(t, row.err != ErrRequestCanceled, ok && timeout.Timeout(), text)
		if temporary, ok := row.err.(interface{ Temporary() bool }); ok {
			assert.True(t, temporary.Temporary(), text)
		}
	}
	assert.ErrorIs(t, timeouts.silent, context.DeadlineExceeded)
	late := errors.New("late")
	assert.ErrorIs(t, &HeldBelow{Late: late}, late)
	assert.ErrorIs(t, &ContextError{context.Canceled, late}, late)
	assert.False(t, (&ContextError{context.Canceled, late}).Timeout())
}

// The stall bounds the wait for the headers, too, if it is shorter than the timeout of the attempt.
func TestTimeoutsOfARule(t *testing.T) {
	for _, row := range []struct {
		attempt, stall, want time.Duration
		is                   error
	}{
		{second, 0, second, policy.ErrAttemptTimeout},
		{second, 2 * second, second, policy.ErrAttemptTimeout},
		{second, second, second, policy.ErrAttemptTimeout},
		{2 * second, second, second, policy.ErrStallTimeout},
		{0, second, second, policy.ErrStallTimeout},
		{policy.Off, second, second, policy.ErrStallTimeout},
		{policy.Off, policy.Off, policy.Off, policy.ErrAttemptTimeout},
	} {
		timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: row.attempt, StallTimeout: row.stall})
		assert.Equal(t, row.want, timeouts.After, row)
		assert.ErrorIs(t, timeouts.late, row.is, row)
	}
	for _, row := range []struct {
		rule policy.Rule
		on   bool
	}{
		{policy.Rule{}, false},
		{policy.Rule{AttemptTimeout: policy.Off, ConnectTimeout: policy.Off, FirstEventTimeout: policy.Off}, false},
		{policy.Rule{AttemptTimeout: 1}, true},
		{policy.Rule{ConnectTimeout: 1}, true},
		{policy.Rule{FirstEventTimeout: 1}, true},
		{policy.Rule{StallTimeout: 1}, true},
	} {
		timeouts := TimeoutsOf(&row.rule)
		assert.Equal(t, row.on, timeouts.On(), row.rule)
	}
}

func TestContextErr(t *testing.T) {
	why := errors.New("why")
	for _, row := range []struct {
		cause error
		want  string
		same  bool
	}{{nil, "context canceled", true}, {why, "context canceled: why", false}, {ErrRequestCanceled, "net/http: request canceled", false}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		assert.NoError(t, ContextErr(ctx))
		cancel(row.cause)
		err := ContextErr(ctx)
		assert.EqualError(t, err, row.want)
		assert.Equal(t, row.same, err == context.Canceled)
	}
}

func TestOutcome(t *testing.T) {
	link, p := new(Link), &pool.Pool{Number: 3}
	o := Outcome{Number: 2, Kind: Hedge, SentAt: 5, Queued: Queued{Gate: 1}, Pool: p, Heard: 4, Link: link,
		Resp: &http.Response{StatusCode: 503, Body: io.NopCloser(strings.NewReader(""))}, Err: io.EOF, DoneAt: 12, Class: classify.Refused}
	assert.Equal(t, 503, o.Status())
	assert.Equal(t, 7*time.Nanosecond, o.Took())
	assert.Equal(t, 3, o.PoolNumber())
	assert.Equal(t, Outcome{Number: 2, Kind: Hedge, SentAt: 5, Queued: Queued{Gate: 1}, Pool: p, Heard: 4, Link: link}, o.AsSent())
	assert.Zero(t, (&Outcome{}).Status())
	assert.Zero(t, (&Outcome{}).PoolNumber())
	assert.Zero(t, (&Outcome{SentAt: 5}).Took(), "it is not known")
	assert.Zero(t, (&Outcome{DoneAt: 5}).Took(), "it is not known")
	for verdict, failed := range map[classify.Class]bool{classify.Unknown: false, classify.Final: false, classify.Refused: true, classify.Ambiguous: true} {
		assert.Equal(t, failed, (&Outcome{Class: verdict}).Failed(), verdict)
	}
}
