package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/policy"
)

const second = time.Second

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// attemptOf starts an attempt.
func attemptOf(ctx context.Context, rule policy.Rule) *attemptContext {
	return linkOf(ctx, rule).ctx
}

// linkOf starts an attempt, and returns its connection.
func linkOf(ctx context.Context, rule policy.Rule) *Link {
	timeouts, l := TimeoutsOf(&rule), new(Link)
	l.ctx = &attemptContext{Context: ctx}
	l.ctx.start(&timeouts, false)
	return l
}

// phaseOf returns the phase of an attempt when its timer has nothing more to do.
func phaseOf(a *attemptContext) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return phases[a.phase]
}

// wantPhase checks the phase of an attempt, and whether its timer runs.
func wantPhase(t *testing.T, a *attemptContext, phase string, runs bool) {
	t.Helper()
	assert.Equal(t, phase, phaseOf(a), "phase")
	assert.Equal(t, runs, a.timer != nil && a.timer.Stop(), "the timer runs")
}

// TestTimerThatFiresAsThePhaseChanges lets the timer fire just as the attempt gets its connection, or
// ends, or has more time. The call that comes too late changes nothing.
func TestTimerThatFiresAsThePhaseChanges(t *testing.T) {
	for name, row := range map[string]struct {
		rule  policy.Rule
		event func(*attemptContext)
		phase string
		after string // a second later
	}{
		"it is connected":     {policy.Rule{ConnectTimeout: second}, func(a *attemptContext) { a.on(hasConnection, nil) }, "waiting", "waiting"},
		"it ends":             {policy.Rule{AttemptTimeout: second}, func(a *attemptContext) { a.on(leaves, nil) }, "over", "over"},
		"its time begins":     {policy.Rule{AttemptTimeout: second}, func(a *attemptContext) { a.limit(time.Since(a.began), a.After) }, "waiting", "late"},
		"it has its response": {policy.Rule{AttemptTimeout: second}, func(a *attemptContext) { a.on(responds, nil) }, "answered", "answered"},
	} {
		inBubble(t, name, func(t *testing.T) {
			for range 100 {
				l := linkOf(t.Context(), row.rule)
				a := l.ctx
				l.getConn("")
				a.Done()
				a.mu.Lock()
				time.Sleep(second)
				row.event(a)
				a.mu.Unlock()
				assert.Equal(t, row.phase, phaseOf(a), "phase")
				time.Sleep(second - 1)
				assert.Equal(t, row.phase, phaseOf(a), "phase before the end of the next second")
				time.Sleep(time.Nanosecond)
				assert.Equal(t, row.after, phaseOf(a), "phase after another second")
			}
		})
	}
}

// TestAttemptNeedsATimerOnlyIfSomebodyWaits has an attempt that is too late although nobody has asked
// for its end. Whoever asks learns it.
func TestAttemptNeedsATimerOnlyIfSomebodyWaits(t *testing.T) {
	for name, ask := range map[string]func(a *attemptContext) error{
		"error": func(a *attemptContext) error {
			if a.Err() != context.Canceled {
				return a.Err()
			}
			return context.Cause(a)
		},
		"cause":    func(a *attemptContext) error { return context.Cause(a) },
		"end":      func(a *attemptContext) error { <-a.Done(); return context.Cause(a) },
		"response": func(a *attemptContext) error { return a.outcome(&http.Response{}) },
		"child": func(a *attemptContext) error {
			ctx, cancel := context.WithCancel(a)
			defer cancel()
			return context.Cause(ctx)
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			a := attemptOf(t.Context(), policy.Rule{AttemptTimeout: second})
			time.Sleep(second - 1)
			assert.NoError(t, context.Cause(a))
			assert.Nil(t, a.timer)
			time.Sleep(time.Nanosecond)
			assert.ErrorIs(t, ask(a), policy.ErrAttemptTimeout)
			wantPhase(t, a, "late", false)
		})
	}
}

// TestTimerEndsAnAttempt has somebody who waits for the end. There is no timer any more when the attempt
// ends earlier.
func TestTimerEndsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := attemptOf(t.Context(), policy.Rule{AttemptTimeout: second})
		time.Sleep(second / 2)
		<-a.Done()
		assert.Equal(t, second, time.Since(began), "time of the attempt")
		assert.ErrorIs(t, context.Cause(a), policy.ErrAttemptTimeout)
		assert.True(t, a.Began().Equal(began), "%v is its beginning", a.Began())
		for phase, e := range map[string]event{"over": leaves, "answered": responds, "reading": readsUpload} {
			a = attemptOf(t.Context(), policy.Rule{AttemptTimeout: second})
			a.Done()
			a.happens(e, nil)
			wantPhase(t, a, phase, false)
		}
		a = attemptOf(t.Context(), policy.Rule{ConnectTimeout: second})
		a.Done()
		wantPhase(t, a, "waiting", false)
	})
}

// TestDoneOfAnAttempt asks for the end twice, and after it.
func TestDoneOfAnAttempt(t *testing.T) {
	a := attemptOf(t.Context(), policy.Rule{AttemptTimeout: time.Hour})
	done := a.Done()
	assert.Equal(t, done, a.Done(), "the channel of the end")
	a.Abandon()
	assert.Equal(t, []error{context.Canceled, ErrOutrun}, []error{a.Err(), context.Cause(a)}, "error and cause")
	<-done
	a = attemptOf(t.Context(), policy.Rule{AttemptTimeout: time.Hour})
	a.happens(leaves, nil)
	<-a.Done()
}

// TestUntimedAttempt is the caller's context in everything.
func TestUntimedAttempt(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	a := &attemptContext{Context: ctx}
	if a.Done() != ctx.Done() || a.Value(key{}) != "value" || a.Err() != nil {
		t.Error("it is not the caller's context")
	}
	cancel()
	assert.Equal(t, context.Canceled, a.Err())
	assert.Equal(t, "transport.Attempt", a.String())
}

// TestAttemptKeepsItsError has a caller whose deadline passes before and after the attempt ends.
func TestAttemptKeepsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, detached := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), second)
			defer cancel()
			timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Hour})
			before, after := &attemptContext{Context: ctx}, &attemptContext{Context: ctx}
			before.start(&timeouts, detached)
			after.start(&timeouts, detached)
			before.happens(leaves, nil)
			assert.Equal(t, context.Canceled, before.Err())
			time.Sleep(second)
			synctest.Wait()
			assert.Equal(t, context.Canceled, before.Err())
			assert.Equal(t, context.Canceled, context.Cause(before))
			assert.Equal(t, context.DeadlineExceeded, context.Cause(after))
			after.happens(leaves, nil)
			assert.Equal(t, context.DeadlineExceeded, context.Cause(after))
		}
	})
}

// TestRestartGivesAllOfTheTime restarts an attempt in each phase. Once the base transport reads the
// request's body or has a response, it is too late for that.
func TestRestartGivesAllOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			rule   policy.Rule
			events []event
			left   time.Duration // 0: there is no bound
		}{
			{policy.Rule{AttemptTimeout: 5 * second}, nil, 5 * second},
			{policy.Rule{AttemptTimeout: 5 * second, ConnectTimeout: 2 * second}, []event{seeksConnection}, 5 * second},
			{policy.Rule{ConnectTimeout: 2 * second}, []event{seeksConnection}, 0},
			{policy.Rule{AttemptTimeout: 5 * second}, []event{readsUpload}, 0},
			{policy.Rule{AttemptTimeout: 5 * second, StallTimeout: 5 * second}, []event{readsUpload, hasPiece}, 4 * second},
			{policy.Rule{AttemptTimeout: 5 * second}, []event{responds}, 0},
		} {
			timeouts, other := TimeoutsOf(&row.rule), new(pool.Pool)
			o := &Outgoing{Ctx: attemptContext{Context: t.Context()}}
			o.Ctx.start(&timeouts, false)
			o.Ctx.Done()
			for _, e := range row.events {
				o.Ctx.happens(e, nil)
			}
			time.Sleep(second)
			o.Restart(other)
			assert.Same(t, other, o.Over(), "the attempt's pool")
			if row.left == 0 {
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.NoError(t, context.Cause(&o.Ctx), row.events)
				continue
			}
			time.Sleep(row.left - 1)
			synctest.Wait()
			assert.NoError(t, o.Ctx.Err(), "%v: before its time", row.events)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.Error(t, o.Ctx.Err(), "%v: when its time is over", row.events)
		}
	})
}

// TestEndOfAnAttempt tells what becomes of the response and the error of the base transport.
func TestEndOfAnAttempt(t *testing.T) {
	below := errors.New("below")
	body := func() io.ReadCloser { return io.NopCloser(io.LimitReader(strings.NewReader("news"), 4)) }
	type writer struct {
		io.ReadCloser
		io.Writer
	}
	tooLate := &tracked{Reader: strings.NewReader("news")}
	for name, row := range map[string]struct {
		rule    policy.Rule
		method  string
		upgrade string
		resp    *http.Response
		err     error
		after   time.Duration
		caller  time.Duration // its deadline
		want    error
		phase   string
		body    string // its type
	}{
		"a response":          {resp: &http.Response{StatusCode: 200, Body: body()}, phase: "answered", body: "*attempt.attemptBody"},
		"one that may stall":  {rule: policy.Rule{StallTimeout: second}, resp: &http.Response{StatusCode: 200, Body: body()}, phase: "answered", body: "*attempt.watchedBody"},
		"one in memory":       {rule: policy.Rule{StallTimeout: second}, resp: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x"))}, phase: "answered", body: "*attempt.attemptBody"},
		"no body":             {resp: &http.Response{StatusCode: 204, Body: http.NoBody}, phase: "over", body: "http.noBody"},
		"nil":                 {resp: &http.Response{StatusCode: 204}, phase: "over"},
		"an upgrade":          {upgrade: "websocket", resp: &http.Response{StatusCode: 101, Body: body()}, phase: "answered", body: "io.nopCloser"},
		"a tunnel":            {method: http.MethodConnect, resp: &http.Response{StatusCode: 200, Body: body()}, phase: "answered", body: "*attempt.attemptBody"},
		"a tunnel to write":   {method: http.MethodConnect, resp: &http.Response{StatusCode: 200, Body: writer{body(), io.Discard}}, phase: "answered", body: "attempt.writer"},
		"an error":            {err: below, want: below, phase: "over"},
		"a response too late": {after: second, resp: &http.Response{StatusCode: 200, Body: tooLate}, want: policy.ErrAttemptTimeout, phase: "late"},
		"one of an upgrade":   {upgrade: "websocket", err: below, want: below, phase: "over"},
		"an error too late":   {after: second, err: below, want: policy.ErrAttemptTimeout, phase: "late"},
		"the caller has gone": {after: second, caller: second / 2, err: below, want: context.DeadlineExceeded, phase: "late"},
		"the caller of an upgrade has gone": {upgrade: "websocket", after: second / 2, caller: second / 2, err: below,
			want: context.DeadlineExceeded, phase: "over"},
	} {
		inBubble(t, name, func(t *testing.T) {
			if row.caller == 0 {
				row.caller = time.Hour
			}
			ctx, end := context.WithTimeout(t.Context(), row.caller)
			rule := policy.Rule{AttemptTimeout: second}.Or(row.rule)
			timeouts := TimeoutsOf(&rule)
			o := &Outgoing{Req: http.Request{Method: row.method, Header: http.Header{"Upgrade": {row.upgrade}}}, more: new(more)}
			o.Ctx.Context = ctx
			o.Ctx.start(&timeouts, Upgrades(&o.Req))
			time.Sleep(row.after)
			synctest.Wait()
			resp, err, hidden := o.end(row.resp, row.err)
			assert.ErrorIs(t, err, row.want)
			assert.Equal(t, err == nil, resp != nil, "%v, %v", resp, err)
			assert.Equal(t, map[bool]error{true: row.err}[row.want == policy.ErrAttemptTimeout], hidden, "what the timeout hides")
			wantPhase(t, &o.Ctx, row.phase, false)
			assert.Equal(t, row.body, typeOf(resp), "the type of the body")
			defer func() {
				if resp != nil && resp.Body != nil && resp.Body != http.NoBody {
					text, err := io.ReadAll(resp.Body)
					assert.True(t, err == nil && len(text) > 0, "the body is %q, %v", text, err)
				}
			}()
			cancelled := o.Ctx.Err() != nil
			assert.Equal(t, row.phase == "over" || row.phase == "late", cancelled, "the context has ended")
			end()
			synctest.Wait()
			assert.Equal(t, name != "an upgrade", o.Ctx.Err() != nil, "it ends with the caller's context")
		})
	}
	assert.Equal(t, 1, tooLate.closes, "times closed")
}

func typeOf(resp *http.Response) string {
	if resp == nil || resp.Body == nil {
		return ""
	}
	return fmt.Sprintf("%T", resp.Body)
}

// connTo is a connection to an address.
type connTo struct {
	net.Conn
	addr string
}

func (c connTo) RemoteAddr() net.Addr {
	if c.addr == "" {
		panic("no address")
	}
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr))
}

func TestLink(t *testing.T) {
	for _, row := range []struct {
		addr            string
		asks, has, late bool
		connected       bool
		unsent          bool
	}{
		{unsent: false},
		{asks: true, unsent: true},
		{asks: true, has: true, connected: true},
		{has: true, connected: true},
		{asks: true, has: true, addr: "192.0.2.1:80", connected: true},
	} {
		l := linkOf(t.Context(), policy.Rule{ConnectTimeout: time.Hour})
		if row.asks {
			l.getConn("h.test:80")
		}
		if row.has {
			l.gotConn(httptrace.GotConnInfo{Conn: connTo{addr: row.addr}})
		}
		assert.Equal(t, row.connected, l.Connected(), row)
		assert.Equal(t, row.unsent, l.Unsent(), row)
		assert.Equal(t, row.connected, l.ConnectedLate(&TimeoutError{Same: errUnconnected}), row)
		assert.False(t, l.ConnectedLate(errors.New("another")), row)
		assert.Equal(t, row.asks && row.has, l.ctx.linked, row)
		assert.Equal(t, row.addr != "", l.Addr() != "", row)
	}
	l := &Link{ctx: new(attemptContext)}
	l.getConn("")
	l.gotConn(httptrace.GotConnInfo{}) // a base may tell of no connection
	assert.True(t, l.Connected())
	assert.Zero(t, l.ctx.phase, "it is not timed")

	var none *Link
	assert.False(t, none.Connected() || none.Unsent() || none.ConnectedLate(nil))
	assert.Empty(t, none.Addr())

	ctx := httptrace.WithClientTrace(context.WithValue(t.Context(), none, 1), &httptrace.ClientTrace{GotConn: l.gotConn})
	assert.Nil(t, httptrace.ContextClientTrace(Untraced(ctx)).GotConn, "the caller's trace")
	assert.Equal(t, 1, Untraced(ctx).Value(none), "the caller's value")
}

// While the base waits for a 100, the time of an attempt stands still. For a StallTimeout each interim response is progress.
func TestInterimResponses(t *testing.T) {
	whole, stall := policy.Rule{AttemptTimeout: 3 * second}, policy.Rule{StallTimeout: 3 * second}
	for name, row := range map[string]struct {
		rule   policy.Rule
		expect bool
		base   *http.Transport
		events string        // one in each second
		ends   time.Duration // the attempt
		large  bool          // the last one is too much
	}{
		"no hooks":               {rule: whole, ends: 3 * second},
		"nothing comes":          {rule: stall, ends: 3 * second},
		"progress":               {rule: stall, events: "got got", ends: 5 * second},
		"the whole time goes on": {rule: policy.Rule{AttemptTimeout: 4 * second}.Or(stall), events: "got got got", ends: 4 * second},
		"no 100 comes":           {rule: whole, expect: true, events: "wait", ends: 4 * second}, // net/http waits for a second
		"a 100 comes":            {whole, true, &http.Transport{ExpectContinueTimeout: 5 * second}, "wait got got", 4 * second, false},
		"a 100 without a wait":   {rule: whole, expect: true, events: "got", ends: 3 * second},
		"as large as may be":     {stall, false, &http.Transport{MaxResponseHeaderBytes: 66}, "got got", 5 * second, false},
		"too large":              {stall, false, &http.Transport{MaxResponseHeaderBytes: 65}, "got got", 5 * second, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			var err error
			req := requestOf(t, "POST", body("x"))
			if row.expect {
				req.Header.Set("Expect", "100-continue")
			}
			var f *Attempt
			f = flightOf(req, 1, row.rule, func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				assert.Same(t, trace, httptrace.ContextClientTrace(req.Context()))
				trace.GetConn("h.test:80")
				assert.False(t, f.Link.AskedOthers())
				trace.GetConn("other.test:80")
				trace.GotConn(httptrace.GotConnInfo{})
				assert.Equal(t, row.expect, trace.Wait100Continue != nil)
				assert.Equal(t, row.expect || row.rule.StallTimeout > 0, trace.Got1xxResponse != nil)
				for _, e := range strings.Fields(row.events) {
					if time.Sleep(second); e == "wait" {
						trace.Wait100Continue()
					} else {
						assert.NoError(t, err)
						err = trace.Got1xxResponse(102, textproto.MIMEHeader{"X": {"y"}})
					}
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})
			f.First, f.Linked = row.base, true
			began := time.Now()
			send(f)
			assert.True(t, f.Link.AskedOthers())
			assert.Equal(t, row.ends, time.Since(began))
			assert.Equal(t, row.large, err != nil, err)
		})
	}
}

// The hooks of the caller are called as long as the attempt has time.
func TestHooksOfTheCaller(t *testing.T) {
	for _, row := range []struct {
		rule  policy.Rule
		after bool // they are called when the time is over
	}{{policy.Rule{}, true}, {policy.Rule{AttemptTimeout: second}, false}} {
		synctest.Test(t, func(t *testing.T) {
			odd, called := errors.New("odd"), 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn:        func(httptrace.GotConnInfo) { called++ },
				Got1xxResponse: func(int, textproto.MIMEHeader) error { called++; return odd },
			})
			f := flightOf(requestOf(t, "GET", nil).WithContext(ctx), 1, row.rule, func(req *http.Request) (*http.Response, error) {
				trace := httptrace.ContextClientTrace(req.Context())
				for _, calls := range []bool{true, row.after} {
					called = 0
					trace.GotConn(httptrace.GotConnInfo{})
					assert.Equal(t, calls, trace.Got1xxResponse(102, nil) == odd)
					assert.Equal(t, map[bool]int{true: 2}[calls], called)
					time.Sleep(second)
				}
				assert.Nil(t, trace.GetConn, "nobody asks")
				return nil, odd
			})
			send(f)
		})
	}
}

// phases and events name what the table of transitions has.
var (
	phases = strings.Fields("untimed waiting connecting reading sending early answered lingering late over")
	events = strings.Fields("seeksConnection hasConnection readsUpload hasPiece uploadEnds responds bodyEnds timeIsUp leaves")
)

// TestEachEventInEachPhase compares all cells of the table with what they have to be, and looks
// at what each change of the phase does. A dot is an event that changes nothing.
func TestEachEventInEachPhase(t *testing.T) {
	want := map[string]string{ // in the order of events
		"untimed":    ".          .       .       .       .       .        .         .    .",
		"waiting":    "connecting .       reading .       .       answered .         late over",
		"connecting": ".          waiting reading .       .       answered .         late over",
		"reading":    ".          .       reading sending waiting early    .         .    over",
		"sending":    ".          .       reading .       waiting early    .         late over",
		"early":      ".          .       .       .       answered .       lingering late over",
		"answered":   ".          .       early   .       .       .        over      late over",
		"lingering":  ".          .       .       .       over    .        .         .    over",
		"late":       ".          .       .       .       .       .        .         .    .",
		"over":       ".          .       .       .       .       .        .         .    .",
	}
	for p, from := range phases {
		for e, to := range strings.Fields(want[from]) {
			inBubble(t, from+"/"+events[e], func(t *testing.T) { checkCell(t, phase(p), event(e), to) })
		}
	}
}

// checkCell lets e happen in a phase.
func checkCell(t *testing.T, from phase, e event, to string) {
	timeouts := TimeoutsOf(&policy.Rule{AttemptTimeout: time.Hour, ConnectTimeout: time.Minute, StallTimeout: time.Minute})
	unlinked, why := false, errors.New("why")
	a := &attemptContext{Context: t.Context(), Timeouts: &timeouts, phase: from,
		unlink: func() bool { unlinked = true; return true }}
	a.began = time.Now()
	a.Done() // somebody waits, so a timer runs
	a.limit(0, a.bound())
	before := a.due
	counts := a.on(e, why)
	switch {
	case to == "." && (counts || a.phase != from || a.due != before):
		t.Fatalf("the event counts, and the phase is %v", phases[a.phase])
	case to == ".":
		return
	case !counts || phases[a.phase] != to:
		t.Fatalf("the event counts: %v; the phase is %v, want %v", counts, phases[a.phase], to)
	}
	ends := a.phase >= late
	assert.Equal(t, [2]bool{ends, ends}, [2]bool{a.Err() != nil, unlinked}, "it has ended; it is unlinked")
	assert.True(t, !ends || context.Cause(a) == why, "the cause is %v", context.Cause(a))
	var want time.Duration
	if from >= early && !ends {
		want = before // that of a Read goes on
	} else if a.phase < early {
		want = a.bound()
	}
	assert.Equal(t, want, a.due, "the end of the time")
	runs := a.timer != nil && a.timer.Stop()
	assert.Equal(t, want != 0 || to == "late", runs, "the timer runs; it fires at once when late")
}

// TestStoriesOfAnAttempt plays events, each a second after the one before, and tells what
// becomes of the attempt. The name of a story is what happens.
func TestStoriesOfAnAttempt(t *testing.T) {
	whole := policy.Rule{AttemptTimeout: 10 * time.Second, ConnectTimeout: 5 * time.Second}
	for _, story := range []struct {
		name   string
		rule   policy.Rule
		events string
		phase  string
		left   time.Duration // of the time of the phase
	}{
		{"it has the rest of its time when it is connected", whole, "seek connect", "waiting", 8 * time.Second},
		{"a connection is sought twice, and found", whole, "seek seek connect", "waiting", 7 * time.Second},
		{"a connection is sought twice, and the first search counts", whole, "seek seek", "connecting", 4 * time.Second},
		{"a connection is sought again later", whole, "seek connect seek", "waiting", 7 * time.Second},
		{"no connection comes", whole, "seek . . . . .", "late", 0},
		{"it would end with its search", policy.Rule{AttemptTimeout: 10 * second, ConnectTimeout: 9 * second}, "seek", "waiting", 9 * second},
		{"it would end later", policy.Rule{AttemptTimeout: 10*second + 1, ConnectTimeout: 9 * second}, "seek", "connecting", 9 * second},
		{"the search has no bound", policy.Rule{AttemptTimeout: 10 * second}, "seek", "waiting", 9 * second},
		{"only the search is bounded", policy.Rule{ConnectTimeout: 5 * time.Second}, "seek connect . . . . .", "waiting", 0},
		{"a reader of the caller's is slow", whole, "read . . . . . . . . . .", "reading", 0},
		{"the body ends, and no response comes", whole, "read . . . . . . . . . . end . . . . . . . . . .", "late", 0},
		{"it comes back for a piece too late", policy.Rule{StallTimeout: 3 * time.Second}, "read piece . . .", "late", 0},
		{"nobody needs the response", whole, "leave", "over", 0},
		{"nobody needs the response, after the end of its time", whole, ". . . . . . . . . . leave", "late", 0},
	} {
		inBubble(t, story.name, func(t *testing.T) { playStory(t, &story.rule, story.events, story.phase, story.left) })
	}
}

func playStory(t *testing.T, rule *policy.Rule, events, phase string, left time.Duration) {
	l, body := linkOf(t.Context(), *rule), &timedBody{ReadCloser: io.NopCloser(strings.NewReader(""))}
	a := l.ctx
	a.Done()
	began := time.Now()
	happen := map[string]func(){
		".":       func() {},
		"seek":    func() { l.getConn("") },
		"connect": func() { l.gotConn(httptrace.GotConnInfo{}) },
		"read":    func() { a.uploads(body, readsUpload) },
		"piece":   func() { a.uploads(body, hasPiece) },
		"end":     func() { a.uploads(body, uploadEnds) },
		"leave":   a.Abandon,
	}
	for _, e := range strings.Fields(events) {
		time.Sleep(time.Second)
		synctest.Wait()
		happen[e]()
	}
	assert.Equal(t, phase, phases[a.phase], "the phase after %v", time.Since(began))
	if left > 0 {
		time.Sleep(left - 1)
		synctest.Wait()
		assert.NoError(t, a.Err(), "after %v", time.Since(began))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, "late", phases[a.phase], "phase after %v", time.Since(began))
	}
	assert.Equal(t, phases[a.phase] == "late", a.outcome(nil) != nil, "there is an error")
}
