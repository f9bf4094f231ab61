package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/policy"
)

// slotOf returns a slot at a concurrency limit, or at a new limiter if it is nil.
func slotOf(t *testing.T, g *concurrency.Limiter) Slot {
	if g == nil {
		g = new(concurrency.Limiter)
	}
	clock := instant.NewClock()
	s := Slot{Clock: &clock, Limiter: g}
	a := g.Enter(clock.Now(), &s.At, nil, concurrency.Config{Max: 4})
	if t != nil {
		require.Equal(t, queue.Go, a.Verb)
	}
	return s
}

func TestResultOfAnOutcome(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	why := errors.New("why")
	late, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(-second), why)
	defer cancel()
	for _, row := range []struct {
		ctx    context.Context
		status int
		err    error
		want   Result
	}{
		{status: 200, want: Success}, {status: 302, want: Success}, {status: 404, want: Success}, {status: 499, want: Success},
		{status: 501, want: Success}, {status: 505, want: Success}, {status: 511, want: Success},
		{status: 408, want: Neutral}, {status: 429, want: Neutral},
		{status: 500, want: Failed}, {status: 503, want: Failed}, {status: 599, want: Failed},
		{ctx: ended, status: 200, want: Success}, {ctx: ended, err: syscall.ECONNRESET, want: Neutral},
		{ctx: late, err: why, want: Lost}, {ctx: late, err: syscall.ECONNRESET, want: Failed},
		{err: why, want: Neutral}, {err: os.ErrDeadlineExceeded, want: Lost},
		{err: syscall.ECONNRESET, want: Failed},
		{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, want: Failed},
		{err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}, want: Failed},
	} {
		ctx, resp := row.ctx, (*http.Response)(nil)
		if ctx == nil {
			ctx = t.Context()
		}
		if row.status != 0 {
			resp = &http.Response{StatusCode: row.status}
		}
		assert.Equal(t, row.want, ResultOf(ctx, resp, row.err), "%v", row)
	}
}

// The slot ends with the attempt, or stays with the body of a success, or with a failure until the limits
// know of it.
func TestWhoHasTheSlotAfterwards(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		status int
		kind   string
		body   io.ReadCloser
		err    error
		keeps  bool // the body does
		stays  bool // it is that of a failure
	}{
		"a success":       {status: 200, body: body("x"), keeps: true},
		"a 499":           {status: 499, body: body("x"), keeps: true},
		"no body":         {status: 200, body: http.NoBody},
		"nil":             {status: 204},
		"events":          {status: 200, body: body("x"), kind: " Text/Event-Stream ; charset=utf-8"},
		"no events":       {status: 200, body: body("x"), kind: "text/plain", keeps: true},
		"a tunnel":        {method: "CONNECT", status: 200, body: body("x")},
		"a 501":           {status: 501, body: body("x")},
		"a 503":           {status: 503, body: body("x"), stays: true},
		"a 429":           {status: 429, body: http.NoBody, stays: true},
		"an error":        {err: syscall.ECONNRESET},
		"a panic":         {},
		"in the response": {status: 200, body: body("x"), keeps: true},
	} {
		for _, room := range []bool{false, true} {
			t.Run(fmt.Sprint(name, room), func(t *testing.T) {
				g := new(concurrency.Limiter)
				var b *slotBody
				s := slotOf(t, g)
				if room {
					b = &slotBody{slot: s}
				}
				slot := &s
				if room {
					slot = &b.slot
				}
				f := flightOf(&http.Request{Method: row.method}, 1, policy.Rule{}, nil)
				f.Ctx = context.Background() // it never ends
				if row.status != 0 {
					f.Resp = &http.Response{StatusCode: row.status, Header: http.Header{"Content-Type": {row.kind}}, Body: row.body}
				}
				f.Err = row.err
				slot.Landed(f, f.Req, b)
				kept, _ := typeOrNil(f.Resp)
				assert.Equal(t, row.keeps, kept)
				assert.Equal(t, row.stays, slot.refused)
				assert.Equal(t, row.keeps || row.stays, g.State().InFlight == 1)
				assert.NotZero(t, f.DoneAt)
				if row.keeps {
					assert.NoError(t, f.Resp.Body.Close())
					assert.Zero(t, g.State().InFlight, "requests in flight after Close")
				}
				if row.stays {
					slot.Release()
					assert.Zero(t, g.State().InFlight, "requests in flight")
					slot.Release()
				}
			})
		}
	}
	f := flightOf(&http.Request{}, 1, policy.Rule{}, nil)
	new(Slot).Landed(f, f.Req, nil)
	assert.Zero(t, f.DoneAt, "nobody has asked for the time")
}

func typeOrNil(resp *http.Response) (kept bool, b *slotBody) {
	if resp != nil {
		b, kept = resp.Body.(*slotBody)
	}
	return kept, b
}

// The body keeps the slot until it has ended, is closed, or nobody can read it any more.
func TestHowLongABodyKeepsItsSlot(t *testing.T) {
	for name, row := range map[string]struct {
		length int64
		do     func(resp *http.Response, end context.CancelFunc)
		after  time.Duration
		freed  bool
	}{
		"nothing happens":            {length: 4, do: func(*http.Response, context.CancelFunc) {}},
		"it is read in part":         {length: 4, do: func(resp *http.Response, _ context.CancelFunc) { _, _ = resp.Body.Read(make([]byte, 1)) }},
		"it is read to its end":      {length: 4, do: func(resp *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(resp.Body) }, freed: true},
		"it is closed":               {length: 4, do: func(resp *http.Response, _ context.CancelFunc) { _ = resp.Body.Close() }, freed: true},
		"it is closed after its end": {length: 4, do: func(resp *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(resp.Body); _ = resp.Body.Close() }, freed: true},
		"the context ends":           {length: 4, do: func(_ *http.Response, end context.CancelFunc) { end() }, freed: true},
		"nobody reads it":            {length: 4, do: func(*http.Response, context.CancelFunc) {}, after: 11 * second, freed: true},
		"nobody reads any more":      {length: 4, do: func(resp *http.Response, _ context.CancelFunc) { _, _ = resp.Body.Read(make([]byte, 1)) }, after: 11 * second, freed: true},
		"nobody reads on": {length: 4, do: func(resp *http.Response, _ context.CancelFunc) {
			time.Sleep(9 * second)
			_, _ = resp.Body.Read(make([]byte, 1))
		}, after: 9 * second},
		"a Read waits":                 {length: 6, do: func(resp *http.Response, _ context.CancelFunc) { go func() { _, _ = resp.Body.Read(nil) }() }, after: 20 * second},
		"a Read waits, not for long":   {length: -1, do: func(resp *http.Response, _ context.CancelFunc) { go func() { _, _ = resp.Body.Read(nil) }() }, after: second / 3},
		"a Read waits, without length": {length: -1, do: func(resp *http.Response, _ context.CancelFunc) { go func() { _, _ = resp.Body.Read(nil) }() }, after: second, freed: true},
		"its Read hangs, and its Close": {length: 6, do: func(resp *http.Response, _ context.CancelFunc) {
			go func() { _, _ = resp.Body.Read(nil) }()
			time.Sleep(second)
			go func() { _ = resp.Body.Close() }()
		}, after: 11 * second, freed: true},
		"its Close hangs": {length: 6, do: func(resp *http.Response, _ context.CancelFunc) { go func() { _ = resp.Body.Close() }() }, after: 11 * second, freed: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			g := new(concurrency.Limiter)
			s := slotOf(t, g)
			f := flightOf(&http.Request{}, 1, policy.Rule{}, nil)
			src := &oddBody{Reader: strings.NewReader("news")}
			if row.length == 6 || row.length < 0 {
				src.hangs = time.Minute
			}
			f.Ctx, f.Resp = ctx, &http.Response{StatusCode: 200, Body: src, ContentLength: row.length}
			s.Landed(f, f.Req, nil)
			require.Equal(t, 1, g.State().InFlight, "requests in flight")
			row.do(f.Resp, end)
			synctest.Wait()
			time.Sleep(row.after)
			probe := Slot{Clock: s.Clock, Limiter: g}
			a := g.Enter(probe.Clock.Now(), &probe.At, nil, limitOfOne)
			assert.Equal(t, row.freed, a.Verb == queue.Go, "another request may go: %v", a.Verb)
			time.Sleep(time.Hour)
		})
	}
}

// An oddBody hangs in its methods.
type oddBody struct {
	io.Reader
	hangs time.Duration
	tried bool
}

func (b *oddBody) Read(p []byte) (int, error) {
	time.Sleep(b.hangs)
	return b.Reader.Read(p)
}
func (b *oddBody) Close() error      { time.Sleep(b.hangs); return nil }
func (b *oddBody) ResumeTried() bool { return b.tried }

// The bodies tell whether a Transport below has asked for the rest.
func TestBodiesTellOfAResume(t *testing.T) {
	for _, tried := range []bool{false, true} {
		src := &oddBody{tried: tried}
		assert.Equal(t, tried, (&slotBody{ReadCloser: src}).ResumeTried())
		assert.Equal(t, tried, (&attemptBody{ReadCloser: src}).ResumeTried())
	}
	brief := &attemptBody{ReadCloser: body("x"), ctx: attemptOf(t.Context(), policy.Rule{AttemptTimeout: second / 2})}
	assert.Equal(t, second/2, (&slotBody{ReadCloser: brief}).PeekWait(), "and how long a Peek may wait")
}

// A second Release gives nothing back, and so do those of no slot.
func TestRelease(t *testing.T) {
	g := new(concurrency.Limiter)
	a, b := slotOf(t, g), slotOf(t, g)
	a.Release()
	a.Release()
	assert.Nil(t, a.Limiter)
	assert.Equal(t, 1, g.State().InFlight, "requests in flight")
	b.Release()
	assert.Zero(t, g.State().InFlight, "requests in flight")
	(*Slot)(nil).Release()
	new(Slot).Release()
}

// A body that panics has no more to give, so it keeps no slot, also if nobody closes it.
func TestSlotOfABodyThatPanics(t *testing.T) {
	g := new(concurrency.Limiter)
	b := &slotBody{slot: slotOf(t, g)} // without a body, so that a Read panics
	require.Equal(t, 1, g.State().InFlight)
	assert.Panics(t, func() { _, _ = b.Read(make([]byte, 1)) })
	assert.Zero(t, g.State().InFlight)
}
