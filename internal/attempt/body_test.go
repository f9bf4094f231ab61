package attempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

var hourly = policy.Rule{AttemptTimeout: time.Hour}

// stalling returns a body that may stall for a second, over another.
func stalling(t *testing.T, ctx context.Context, src io.ReadCloser) *watchedBody {
	timeouts := TimeoutsOf(&policy.Rule{StallTimeout: second})
	o := &Outgoing{more: new(more)}
	o.Ctx.Context = ctx
	o.Ctx.start(&timeouts, false)
	resp, err, _ := o.end(&http.Response{StatusCode: 200, Body: src}, nil)
	require.NoError(t, err)
	return resp.Body.(*watchedBody)
}

// reads returns a body each of whose Reads takes a time, and returns so many bytes. It ends after them.
func reads(each time.Duration, counts ...int) *scripted {
	return &scripted{read: func([]byte) (int, error) {
		if len(counts) == 0 {
			return 0, io.EOF
		}
		time.Sleep(each)
		n := counts[0]
		counts = counts[1:]
		return n, nil
	}}
}

// A body stalls if no byte comes for a second in which somebody reads.
func TestStall(t *testing.T) {
	for name, row := range map[string]struct {
		each   time.Duration // a Read takes
		counts []int         // bytes
		pause  time.Duration // between Reads
		stalls int           // the Read that is cut; 0: none
	}{
		"it is quick":                    {each: second - 1, counts: []int{1, 1, 1}},
		"the reader is slow":             {each: second - 1, counts: []int{1, 1, 1}, pause: time.Hour},
		"a Read is slow":                 {each: second, counts: []int{1, 1}, stalls: 1},
		"empty Reads count":              {each: 400 * time.Millisecond, counts: []int{0, 0, 0, 0}, pause: time.Hour, stalls: 3},
		"a byte begins the time anew":    {each: 400 * time.Millisecond, counts: []int{0, 1, 0, 0, 0}, stalls: 5},
		"two empty Reads are not enough": {each: 499 * time.Millisecond, counts: []int{0, 0}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var err error
			src, calls := reads(row.each, row.counts...), 0
			b := stalling(t, t.Context(), src)
			for err == nil {
				require.LessOrEqual(t, calls, len(row.counts), "calls")
				_, err = b.Read(make([]byte, 10))
				calls++
				time.Sleep(row.pause)
			}
			synctest.Wait()
			if row.stalls > 0 {
				assert.ErrorIs(t, err, policy.ErrStallTimeout)
				assert.Equal(t, row.stalls+1, calls, "the Read that was cut has returned its bytes")
				assert.EqualValues(t, 1, src.closes.Load(), "the timer closes the body")
				assert.ErrorIs(t, context.Cause(b.ctx), policy.ErrStallTimeout)
			} else {
				assert.Equal(t, io.EOF, err)
				assert.Zero(t, src.closes.Load(), "times closed")
			}
			assert.NoError(t, b.Close())
			assert.EqualValues(t, 1, src.closes.Load(), "times closed")
			assert.Error(t, b.ctx.Err())
			assert.False(t, b.ctx.timer.Stop(), "the timer runs on")
		})
	}
}

// The error of a body that is cut says that it stalled, or that the caller has gone.
func TestErrorOfAStall(t *testing.T) {
	for name, row := range map[string]struct {
		deaf   bool  // the base ignores its context
		err    error // of the Read
		caller time.Duration
		want   error
		took   time.Duration
	}{
		"its context":                {err: context.Canceled, want: policy.ErrStallTimeout, took: second},
		"the end":                    {err: io.EOF, want: io.EOF, took: second},
		"the caller left":            {err: context.Canceled, caller: second / 2, want: context.Canceled, took: second / 2},
		"the caller left, it stalls": {deaf: true, err: http.ErrBodyReadAfterClose, caller: second / 2, want: context.DeadlineExceeded, took: second},
		"it stalls":                  {deaf: true, err: http.ErrBodyReadAfterClose, want: policy.ErrStallTimeout, took: second},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx := t.Context()
			if row.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.caller)
				defer cancel()
			}
			var b *watchedBody
			closed := make(chan struct{})
			b = stalling(t, ctx, &scripted{read: func([]byte) (int, error) {
				if row.deaf {
					<-closed
				} else {
					<-b.ctx.Done()
				}
				return 0, row.err
			}, close: func() { close(closed) }})
			began := time.Now()
			_, err := b.Read(nil)
			assert.ErrorIs(t, err, row.want)
			assert.Equal(t, row.want == policy.ErrStallTimeout, errors.Is(err, policy.ErrStallTimeout))
			assert.Equal(t, row.took, time.Since(began))
			_ = b.Close()
		})
	}
}

// Close ends a Read without a stall. A panic of the base's Close reaches the caller, unless the timer
// called it.
func TestCloseOfABodyThatMayStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		src := &scripted{read: func([]byte) (int, error) { <-ended; return 0, http.ErrBodyReadAfterClose }, close: func() {
			time.Sleep(time.Minute)
			close(ended)
		}}
		b := stalling(t, t.Context(), src)
		go func() {
			time.Sleep(second / 2)
			assert.NoError(t, b.Close())
		}()
		_, err := b.Read(nil)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
		assert.NoError(t, b.Close())
		assert.EqualValues(t, 1, src.closes.Load(), "times closed")

		for _, stalls := range []bool{false, true} {
			src := &scripted{read: func([]byte) (int, error) { time.Sleep(second); return 0, io.EOF }, close: func() { panic("close") }}
			if b := stalling(t, t.Context(), src); true {
				if stalls {
					_, _ = b.Read(nil)
					synctest.Wait()
				} else {
					assert.PanicsWithValue(t, "close", func() { _ = b.Close() })
				}
				assert.NoError(t, b.Close())
				assert.EqualValues(t, 1, src.closes.Load(), "times closed")
				assert.Error(t, b.ctx.Err())
			}
		}
		failed := errors.New("failed")
		b = stalling(t, t.Context(), failing{failed})
		assert.Equal(t, failed, b.Close())
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
func (f failing) Close() error             { return f.err }

// The body of a timed attempt ends its context, and tells the pool what comes.
func TestBodyOfAnAttempt(t *testing.T) {
	for name, row := range map[string]struct {
		do    func(b *attemptBody)
		ends  bool
		hears bool
	}{
		"a Read":       {func(b *attemptBody) { _, _ = b.Read(make([]byte, 1)) }, false, true},
		"an empty one": {func(b *attemptBody) { _, _ = b.Read(nil) }, false, false},
		"all":          {func(b *attemptBody) { _, _ = io.ReadAll(b) }, true, true},
		"Close":        {func(b *attemptBody) { _ = b.Close() }, true, false},
	} {
		a, p := attemptOf(t.Context(), hourly), new(pool.Pool)
		assert.NoError(t, a.outcome(&http.Response{Body: body("x")}))
		clock := instant.NewClock()
		a.pool, a.clock = p, &clock
		row.do(&attemptBody{io.NopCloser(strings.NewReader("news")), a})
		assert.Equal(t, row.ends, a.Err() != nil, name)
		assert.Equal(t, row.hears, p.Heard() != 0, name)
	}
	a := attemptOf(t.Context(), hourly)
	src := body("news")
	_, _ = io.ReadAll(&attemptBody{src, a}) // nobody listens
	assert.Zero(t, src.closes, "times closed")
	b := &attemptBody{&scripted{close: func() { panic("close") }}, attemptOf(t.Context(), hourly)}
	assert.Panics(t, func() { _ = b.Close() })
	assert.Error(t, b.ctx.Err())
}

// The timer of an upload runs while the base has to come back for the next piece, and after the end. The
// limiter does not count the time in which the caller reads.
func TestUpload(t *testing.T) {
	for name, row := range map[string]struct {
		rule  policy.Rule
		read  func(b *timedBody)
		phase string
	}{
		"no piece":        {policy.Rule{AttemptTimeout: second}, func(*timedBody) {}, "waiting"},
		"a piece":         {policy.Rule{AttemptTimeout: second}, func(b *timedBody) { _, _ = b.Read(make([]byte, 1)) }, "reading"},
		"a piece, stall":  {policy.Rule{StallTimeout: second}, func(b *timedBody) { _, _ = b.Read(make([]byte, 1)) }, "sending"},
		"all":             {policy.Rule{AttemptTimeout: second}, func(b *timedBody) { _, _ = io.ReadAll(b) }, "waiting"},
		"all, stall":      {policy.Rule{StallTimeout: second}, func(b *timedBody) { _, _ = io.ReadAll(b) }, "waiting"},
		"it is closed":    {policy.Rule{AttemptTimeout: second}, func(b *timedBody) { _, _ = b.Read(make([]byte, 1)); _ = b.Close() }, "waiting"},
		"it is not begun": {policy.Rule{AttemptTimeout: second}, func(b *timedBody) { _ = b.Close() }, "waiting"},
		"another is read": {policy.Rule{AttemptTimeout: second}, func(b *timedBody) {
			_, _ = b.Read(make([]byte, 1))
			_ = (&timedBody{ReadCloser: body(""), ctx: b.ctx}).Close()
		}, "reading"},
		"the second count": {policy.Rule{AttemptTimeout: second}, func(b *timedBody) {
			_, _ = b.Read(make([]byte, 1))
			_, _ = (&timedBody{ReadCloser: body("x"), ctx: b.ctx}).Read(make([]byte, 1))
			_ = b.Close()
		}, "reading"},
		"read twice": {policy.Rule{AttemptTimeout: second}, func(b *timedBody) { _, _ = b.Read(make([]byte, 1)); b.ctx.upload = nil; _, _ = b.Read(make([]byte, 1)) }, "reading"},
	} {
		t.Run(name, func(t *testing.T) {
			a := attemptOf(t.Context(), row.rule)
			src := body("news")
			b := &timedBody{ReadCloser: src, ctx: a}
			row.read(b)
			assert.Equal(t, row.phase, phases[a.phase])
			if row.phase == "waiting" {
				assert.Nil(t, a.upload)
			}
		})
	}
	untimed := &timedBody{ReadCloser: body("news"), ctx: &attemptContext{Context: t.Context()}}
	text, err := io.ReadAll(untimed)
	assert.NoError(t, err)
	assert.NoError(t, untimed.Close())
	assert.Equal(t, "news", string(text))
	assert.Equal(t, 1, untimed.ReadCloser.(*tracked).closes, "times closed")
}

// While the caller reads, its attempt has no slot.
func TestSlotOfAnUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slotOf(t, nil)
		b := &timedBody{ReadCloser: &scripted{read: func([]byte) (int, error) {
			time.Sleep(time.Minute)
			return 1, nil
		}}, ctx: &attemptContext{Context: t.Context()}, slot: &s}
		free := func() bool {
			other := Slot{Clock: s.Clock, Limiter: s.Limiter}
			goes := s.Limiter.Enter(s.Clock.Now(), &other.At, nil, limitOfOne).Verb == queue.Go
			other.Release()
			return goes
		}
		assert.False(t, free())
		go func() { _, _ = b.Read(make([]byte, 1)) }()
		time.Sleep(second)
		assert.True(t, free(), "the caller reads")
		time.Sleep(time.Minute)
		assert.False(t, free(), "the server has a piece")
	})
}

var limitOfOne = concurrency.Config{Max: 1}

func TestErrors(t *testing.T) {
	timeouts := Timeouts{attempt: second, Connect: 2 * second, quiet: 3 * second}
	in := func(p phase) error { return (&attemptContext{Timeouts: &timeouts, phase: p}).tooLate() }
	for text, row := range map[string]struct{ err, is error }{
		"transport: no response within the attempt's 1s":     {in(waiting), policy.ErrAttemptTimeout},
		"dial tcp: no connection within 2s":                  {in(connecting), errUnconnected},
		"transport: no progress for 3s":                      {in(answered), policy.ErrStallTimeout},
		"net/http: request canceled":                         {ErrRequestCanceled, ErrRequestCanceled},
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
	assert.ErrorIs(t, in(answered), context.DeadlineExceeded)
	late := errors.New("late")
	assert.ErrorIs(t, &ContextError{context.Canceled, late}, late)
	assert.False(t, (&ContextError{context.Canceled, late}).Timeout())
}

// The stall bounds the wait for the headers, too, if it is shorter than the timeout of the attempt.
func TestTimeoutsOfARule(t *testing.T) {
	for _, row := range []struct {
		attempt, stall, want time.Duration
		is                   error
	}{
		{second, 0, second, policy.ErrAttemptTimeout}, {second, 2 * second, second, policy.ErrAttemptTimeout},
		{second, second, second, policy.ErrAttemptTimeout}, {2 * second, second, second, policy.ErrStallTimeout},
		{0, second, second, policy.ErrStallTimeout}, {policy.Off, second, second, policy.ErrStallTimeout},
		{policy.Off, policy.Off, policy.Off, policy.ErrStallTimeout}, // which never comes
	} {
		timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: row.attempt, StallTimeout: row.stall})
		assert.Equal(t, row.want, timeouts.After, row)
		a := attemptContext{Context: t.Context()}
		a.start(&timeouts, false)
		assert.ErrorIs(t, a.tooLate(), row.is, row)
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
	for attempt, want := range map[time.Duration]time.Duration{0: 30 * second, second: 10 * second, time.Minute: time.Minute} {
		bounded, stalls := Timeouts{}, Timeouts{quiet: second}
		bounded.BoundUpload(attempt)
		stalls.BoundUpload(attempt)
		assert.Equal(t, []time.Duration{want, 0}, []time.Duration{bounded.idle, stalls.idle})
		b := timedBody{ReadCloser: body(strings.Repeat("x", 2*piece)), ctx: &attemptContext{Context: t.Context(), Timeouts: &bounded}}
		n, _ := b.Read(make([]byte, 2*piece))
		assert.Equal(t, piece, n, "how fast it goes can be seen")
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
	o := Outcome{Number: 2, Kind: Hedge, SentAt: 5, Queued: Queued{Concurrency: 1}, Pool: p, Heard: 4, Link: link,
		Resp: &http.Response{StatusCode: 503, Body: io.NopCloser(strings.NewReader(""))}, Err: io.EOF, DoneAt: 12, Class: classify.Refused}
	assert.Equal(t, 503, o.Status())
	assert.Equal(t, 7*time.Nanosecond, o.Took())
	f := Attempt{Outcome: o, Clock: new(instant.Clock), Out: new(Outgoing)}
	f.Out.Ctx.pool = p
	outrun := f.Outrun()
	outrun.DoneAt = 0
	assert.Equal(t, Outcome{Number: 2, Kind: Hedge, SentAt: 5, Queued: Queued{Concurrency: 1}, Pool: p, Heard: 4, Link: link, Err: ErrOutrun}, outrun)
	assert.Zero(t, (&Outcome{}).Status())
	assert.Zero(t, (&Outcome{SentAt: 5}).Took(), "it is not known")
	assert.Zero(t, (&Outcome{DoneAt: 5}).Took(), "it is not known")
	for verdict, failed := range map[classify.Class]bool{classify.Unknown: false, classify.Final: false, classify.Refused: true, classify.Ambiguous: true} {
		assert.Equal(t, failed, (&Outcome{Class: verdict}).Failed(), verdict)
	}
}
