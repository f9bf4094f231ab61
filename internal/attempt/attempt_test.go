package attempt

import (
	"bytes"
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

	"github.com/aplomb-go/aplomb/internal/host/concurrency"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/policy"
)

// rt is a base transport made of a function.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A tracked body counts its Closes. It is not known to be in memory.
type tracked struct {
	io.Reader
	closes int
}

func body(text string) *tracked {
	return &tracked{Reader: struct{ io.Reader }{strings.NewReader(text)}}
}

func (b *tracked) Close() error { b.closes++; return nil }

// requestOf returns a request.
func requestOf(t *testing.T, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://h.test/", body)
	require.NoError(t, err)
	return req
}

// flightOf returns an attempt over a base.
func flightOf(req *http.Request, number int, rule policy.Rule, base rt) *Attempt {
	timeouts := TimeoutsOf(&rule)
	return &Attempt{Outcome: Outcome{Number: number}, Base: base, Req: req, Ctx: req.Context(), Timeouts: &timeouts, Timed: timeouts.On()}
}

// send sends a copy.
func send(f *Attempt) *Outgoing {
	f.Prepare(nil)
	f.SendCopy()
	return f.Out
}

func TestLight(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Attempt)
		want   bool
	}{
		"a plain first attempt":         {func(*Attempt) {}, true},
		"a retry":                       {func(f *Attempt) { f.Number = 2 }, false},
		"its body is lent":              {func(f *Attempt) { f.Body = http.NoBody }, false},
		"timeouts":                      {func(f *Attempt) { f.Timed = true }, false},
		"a hook":                        {func(f *Attempt) { f.Watched = true }, false},
		"a link":                        {func(f *Attempt) { f.Linked = true }, false},
		"a limiter":                     {func(f *Attempt) { f.Slot.Limiter = new(concurrency.Limiter) }, true},
		"a limiter and an empty body":   {func(f *Attempt) { f.Slot.Limiter, f.Req.Body = new(concurrency.Limiter), http.NoBody }, true},
		"a limiter and an upload":       {func(f *Attempt) { f.Slot.Limiter, f.Req.Body = new(concurrency.Limiter), body("x") }, false},
		"an upload without any limiter": {func(f *Attempt) { f.Req.Body = body("x") }, true},
	} {
		f := flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, nil)
		row.change(f)
		assert.Equal(t, row.want, f.Light(), name)
	}
}

// The copy shares the caller's header unless that could be seen.
func TestHeaderOfACopy(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Attempt)
		own    bool
		expect bool
	}{
		"a first attempt":            {func(*Attempt) {}, false, true},
		"a header of its own":        {func(f *Attempt) { f.Own = true }, true, true},
		"a hook":                     {func(f *Attempt) { f.Watched = true }, true, true},
		"a retry":                    {func(f *Attempt) { f.Number = 2 }, false, true},
		"a first one without Expect": {func(f *Attempt) { f.Plain = true }, false, true},
		"a retry without Expect":     {func(f *Attempt) { f.Number, f.Plain = 2, true }, true, false},
		"beside another":             {func(f *Attempt) { f.Beside = true }, true, true},
		"a limiter":                  {func(f *Attempt) { f.Own, f.Slot = true, slotOf(nil, nil) }, true, true},
		"a link":                     {func(f *Attempt) { f.Own, f.Linked = true, true }, true, true},
		"a link and a limiter":       {func(f *Attempt) { f.Own, f.Linked, f.Slot = true, true, slotOf(nil, nil) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			req := requestOf(t, "POST", strings.NewReader("news"))
			req.Header = http.Header{"Expect": {"100-continue"}, "X": {"1", "2"}, "Y": {"3"}, "User-Agent": nil}
			f := flightOf(req, 1, policy.Rule{}, nil)
			row.change(f)
			f.Prepare(nil)
			out := f.Out
			own := out.Req.Header
			assert.Equal(t, row.expect, own.Get("Expect") != "")
			assert.Equal(t, []string{"1", "2"}, own["X"])
			agent, ok := own["User-Agent"]
			assert.True(t, ok && agent == nil, "a nil value means that the field is left out")
			own["X"] = append(own["X"], "more")
			own["X"][0] = "changed"
			own.Set("Z", "new")
			assert.Equal(t, []string{"3"}, own["Y"])
			assert.Equal(t, !row.own, req.Header.Get("Z") == "new")
			assert.Equal(t, !row.own, req.Header["X"][0] == "changed")
			assert.Equal(t, "100-continue", req.Header.Get("Expect"), "the caller's header")
			assert.Equal(t, !f.Beside, out.Req.URL == req.URL)
			assert.Equal(t, f.Linked, f.Link != nil && f.Link.ctx == &out.Ctx)
			assert.True(t, f.Slot.Limiter == nil || out.more != nil)
		})
	}
}

// The copy has the context, the body and the GetBody of its attempt.
func TestArm(t *testing.T) {
	type key struct{}
	for _, lent := range []bool{false, true} {
		for _, timed := range []bool{false, true} {
			req := requestOf(t, "POST", body("news"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the caller's") }
			f := flightOf(req, 2, policy.Rule{AttemptTimeout: time.Hour}, nil)
			f.Timed, f.Pool, f.Ctx = timed, new(pool.Pool), context.WithValue(f.Ctx, key{}, "value")
			if lent {
				f.Body, f.GetBody = body("lent"), func() (io.ReadCloser, error) { return nil, errors.New("lent") }
			}
			f.Prepare(nil)
			out := f.Out
			assert.Equal(t, "value", out.Req.Context().Value(key{}))
			assert.Same(t, f.Pool, out.Over())
			assert.Equal(t, timed, out.Ctx.Timeouts != nil)
			_, err := out.Req.GetBody()
			text, _ := io.ReadAll(out.Req.Body)
			if lent {
				assert.EqualError(t, err, "lent")
				assert.Equal(t, "lent", string(text))
			} else {
				assert.EqualError(t, err, "the caller's")
				assert.Equal(t, "news", string(text))
			}
		}
	}
	f := flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, nil)
	f.Beside = true
	f.Prepare(nil)
	out := f.Out
	out.Ctx.Abandon()
	assert.Equal(t, ErrOutrun, context.Cause(out.Req.Context()), "an attempt beside another can be abandoned")
}

// Whoever looks at the request of the response finds the caller's own, unless the base put another there.
func TestRequestOfTheResponse(t *testing.T) {
	other := requestOf(t, "GET", nil)
	for _, base := range []string{"it", "another", "a clone", "a copy", "none"} {
		f := flightOf(requestOf(t, "GET", nil), 1, hourly, func(req *http.Request) (*http.Response, error) {
			req = map[string]*http.Request{"it": req, "another": other, "a clone": req.Clone(req.Context()), "a copy": req.Clone(context.WithValue(req.Context(), other, 1))}[base]
			return &http.Response{StatusCode: 200, Request: req, Body: body("x")}, nil
		})
		assert.NoError(t, send(f).Ctx.Err(), "its body can be read")
		require.NoError(t, f.Err)
		switch base {
		case "it":
			assert.Same(t, f.Req, f.Resp.Request)
		case "another":
			assert.Same(t, other, f.Resp.Request)
		case "a clone":
			assert.Equal(t, f.Req.Context(), f.Resp.Request.Context())
		case "a copy":
			assert.Equal(t, f.Req.Context().Done(), f.Resp.Request.Context().Done(), "it does not end with the attempt")
			_ = f.Resp.Body.Close()
			assert.NoError(t, context.Cause(f.Resp.Request.Context()))
			assert.Equal(t, 1, f.Resp.Request.Context().Value(other), "its values stay")
		}
	}
}

// A base sees the small body in memory of a request as it is. Any other body is watched by a timer or a
// limiter, and so is that of net/http's own resend.
func TestWhoseUploadIsWatched(t *testing.T) {
	again := func() (io.ReadCloser, error) { return body("news"), nil }
	for name, row := range map[string]struct {
		rule    policy.Rule
		limiter bool
		body    io.Reader
		getBody func() (io.ReadCloser, error)
		watched bool
		resend  string // the type of the body
	}{
		"nothing looks":        {body: body("news"), getBody: again, resend: "*attempt.tracked"},
		"a timeout":            {rule: policy.Rule{AttemptTimeout: time.Hour}, body: body("news"), getBody: again, watched: true, resend: "*attempt.timedBody"},
		"a limiter":            {limiter: true, body: body("news"), getBody: again, watched: true, resend: "*attempt.timedBody"},
		"in memory":            {limiter: true, body: strings.NewReader("news"), resend: "io.nopCloserWriterTo"},
		"no longer in memory":  {limiter: true, body: strings.NewReader("news"), getBody: again, resend: "*attempt.timedBody"},
		"large":                {limiter: true, body: bytes.NewReader(make([]byte, replay.Small+1)), watched: true, resend: "*attempt.timedBody"},
		"in memory afterwards": {limiter: true, body: body("news"), getBody: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }, watched: true, resend: "io.nopCloserWriterTo"},
		"empty afterwards":     {limiter: true, body: body("news"), getBody: func() (io.ReadCloser, error) { return http.NoBody, nil }, watched: true, resend: "http.noBody"},
		"nil afterwards":       {limiter: true, body: body("news"), getBody: func() (io.ReadCloser, error) { return nil, nil }, watched: true},
		"no resend":            {limiter: true, body: body("news"), watched: true},
		"empty":                {limiter: true, body: http.NoBody},
		"none":                 {limiter: true},
	} {
		t.Run(name, func(t *testing.T) {
			req := requestOf(t, "POST", row.body)
			if row.getBody != nil {
				req.GetBody = row.getBody
			}
			f := flightOf(req, 1, row.rule, func(req *http.Request) (*http.Response, error) {
				_, watched := req.Body.(*timedBody)
				assert.Equal(t, row.watched, watched)
				if req.GetBody != nil {
					got, err := req.GetBody()
					assert.NoError(t, err)
					assert.Equal(t, row.resend, typeOf(&http.Response{Body: got}))
				} else {
					assert.Empty(t, row.resend)
				}
				return &http.Response{StatusCode: 200}, nil
			})
			if row.limiter {
				f.Slot = slotOf(t, new(concurrency.Limiter))
			}
			send(f)
			assert.NoError(t, f.Err)
		})
	}
	failed := errors.New("no body")
	req := requestOf(t, "POST", body("news"))
	req.GetBody = func() (io.ReadCloser, error) { return nil, failed }
	send(flightOf(req, 1, policy.Rule{AttemptTimeout: time.Hour}, func(req *http.Request) (*http.Response, error) {
		got, err := req.GetBody()
		assert.Nil(t, got)
		assert.Equal(t, failed, err)
		return &http.Response{StatusCode: 204}, nil
	}))
}

// A base that panics leaves neither a context, nor a slot, nor an open body behind.
func TestPanicOfTheBase(t *testing.T) {
	g, lent := new(concurrency.Limiter), body("lent")
	f := flightOf(requestOf(t, "POST", body("news")), 1, policy.Rule{AttemptTimeout: time.Hour}, func(*http.Request) (*http.Response, error) { panic("base") })
	f.Slot, f.Body = slotOf(t, g), lent
	f.Prepare(nil)
	out := f.Out
	assert.PanicsWithValue(t, "base", func() { f.SendCopy() })
	assert.Equal(t, context.Canceled, out.Ctx.Err())
	assert.Zero(t, g.State().InFlight, "requests in flight")
	assert.Equal(t, 1, lent.closes, "times closed")

	f = flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, func(*http.Request) (*http.Response, error) { panic("base") })
	f.Slot = slotOf(t, g)
	assert.PanicsWithValue(t, "base", f.SendLight)
	assert.Zero(t, g.State().InFlight, "requests in flight")
	assert.Nil(t, f.Slot.Limiter)
}

// The slot of a failure stays with the attempt until the limits know what it means. That of a success goes
// over to the body.
func TestSlotAfterASend(t *testing.T) {
	for _, status := range []int{200, 503} {
		base := func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: body("x"), Request: req}, nil
		}
		g := new(concurrency.Limiter)
		f := flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, base)
		f.Slot = slotOf(t, g)
		f.SendLight()
		assert.Equal(t, status == 503, f.Slot.Limiter != nil)
		assert.Equal(t, 1, g.State().InFlight, "requests in flight")

		f = flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, base)
		f.Slot = slotOf(t, g)
		send(f)
		assert.Nil(t, f.Slot.Limiter, "the copy has it")
		assert.Equal(t, status == 503, f.Refused != nil)
		assert.Equal(t, 2, g.State().InFlight, "requests in flight")
		f.Refused.Release()
		_ = f.Resp.Body.Close()
		assert.Equal(t, 1, g.State().InFlight, "requests in flight")
	}
}

// Only an attempt that does not go has to close the body that it has, and the first has the caller's.
func TestAbort(t *testing.T) {
	for _, row := range []struct {
		number       int
		lent         bool
		body, caller int // Closes
	}{{1, false, 0, 1}, {2, false, 0, 0}, {1, true, 1, 0}, {2, true, 1, 0}} {
		g, own, lent := new(concurrency.Limiter), body("own"), body("lent")
		f := flightOf(requestOf(t, "POST", own), row.number, policy.Rule{}, nil)
		if f.Slot = slotOf(t, g); row.lent {
			f.Body = lent
		}
		f.Abort()
		assert.Equal(t, []int{row.body, row.caller}, []int{lent.closes, own.closes}, row)
		assert.Zero(t, g.State().InFlight, "requests in flight")
	}
	flightOf(requestOf(t, "GET", nil), 1, policy.Rule{}, nil).Abort()
}

// An event stream has to bring its first event in time. A stream that ends before is the caller's.
func TestFirstEvent(t *testing.T) {
	for name, row := range map[string]struct {
		rule   policy.Rule
		kind   string
		after  time.Duration // until the event
		text   string
		caller time.Duration
		want   error
	}{
		"in time":             {after: second - 1, text: "data: x\n\n"},
		"too late":            {after: second + 1, text: "data: x\n\n", want: policy.ErrAttemptTimeout},
		"the stream ends":     {after: second / 2, text: ""},
		"the caller has gone": {after: time.Hour, caller: second / 2, want: context.DeadlineExceeded},
		"another type":        {kind: "text/plain", after: time.Hour},
		"another timeout":     {rule: policy.Rule{FirstEventTimeout: policy.Off, AttemptTimeout: time.Hour}, after: second + 1, text: "data: x\n\n"},
		"no stream":           {kind: "error", want: io.ErrUnexpectedEOF},
	} {
		inBubble(t, name, func(t *testing.T) {
			req := requestOf(t, "GET", nil)
			if row.caller > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), row.caller)
				defer cancel()
				req = req.WithContext(ctx)
			}
			f := flightOf(req, 1, row.rule.Or(policy.Rule{FirstEventTimeout: second}), func(req *http.Request) (*http.Response, error) {
				if row.kind == "error" {
					return nil, io.ErrUnexpectedEOF
				}
				r, w := io.Pipe()
				go func() {
					time.Sleep(row.after)
					_, err := io.WriteString(w, row.text)
					assert.Equal(t, row.want != nil, err != nil, "the body is closed")
					_ = w.Close()
				}()
				kind := row.kind
				if kind == "" {
					kind = "text/event-stream"
				}
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: r, Request: req}, nil
			})
			defer time.Sleep(2 * time.Hour) // the server goes on
			send(f)
			if row.want != nil {
				assert.ErrorIs(t, f.Err, row.want)
				assert.Nil(t, f.Resp)
				return
			}
			require.NoError(t, f.Err)
			got, err := io.ReadAll(f.Resp.Body)
			assert.NoError(t, err)
			assert.Equal(t, row.text, string(got))
		})
	}
}

func TestCheckRequest(t *testing.T) {
	var gone *tracked
	for want, change := range map[string]func(req *http.Request) *http.Request{
		"transport: nil request":        func(*http.Request) *http.Request { return nil },
		"transport: nil Request.URL":    func(req *http.Request) *http.Request { req.URL = nil; return req },
		"transport: nil Request.Header": func(req *http.Request) *http.Request { req.Header = nil; return req },
		"transport: Request.Body is a nil *attempt.tracked; leave Body nil for a request without a body": func(req *http.Request) *http.Request {
			req.Body = gone
			return req
		},
	} {
		assert.EqualError(t, CheckRequest(change(requestOf(t, "GET", nil))), want)
	}
	assert.NoError(t, CheckRequest(requestOf(t, "GET", nil)))
	assert.NoError(t, CheckRequest(requestOf(t, "POST", body("x"))))
}

func TestCheckResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, b := errors.New("failed"), body("x")
		resp, err := CheckResponse(&http.Response{Body: b}, failed)
		assert.Nil(t, resp)
		assert.Equal(t, failed, err)
		assert.Equal(t, 1, b.closes, "times closed")
		_, err = CheckResponse(nil, nil)
		assert.EqualError(t, err, "transport: the base transport returned neither a response nor an error")
		good := &http.Response{}
		resp, err = CheckResponse(good, nil)
		assert.Same(t, good, resp)
		assert.NoError(t, err)
		_, err = CheckResponse(nil, failed)
		assert.Equal(t, failed, err)
		_, err = CheckResponse(nil, (*http.MaxBytesError)(nil))
		assert.EqualError(t, err, "transport: the base transport returned a nil *http.MaxBytesError as its error")
	})
}

func TestWhatARequestMayDo(t *testing.T) {
	for method, want := range map[string]bool{"": true, "GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "QUERY": true,
		"SEARCH": true, "REPORT": true, "PROPFIND": true, "POST": false, "PUT": false, "DELETE": false, "PATCH": false, "CONNECT": false, "get": false} {
		assert.Equal(t, want, IsSafe(&http.Request{Method: method}), method)
	}
	for _, row := range []struct {
		method   string
		upgrade  []string
		status   int
		upgrades bool
		hands    bool
	}{
		{"GET", nil, 200, false, false}, {"GET", nil, 101, false, true}, {"GET", []string{""}, 200, false, false},
		{"GET", []string{"websocket"}, 200, true, false}, {"GET", []string{"websocket"}, 101, true, true},
		{"CONNECT", nil, 200, true, true}, {"CONNECT", nil, 299, true, true}, {"CONNECT", nil, 503, true, false},
	} {
		req := &http.Request{Method: row.method, Header: http.Header{"Upgrade": row.upgrade}}
		assert.Equal(t, row.upgrades, Upgrades(req), row)
		assert.Equal(t, row.hands, HandsOver(req, &http.Response{StatusCode: row.status}), row)
	}
	canceled := make(chan struct{})
	//lint:ignore SA1019 old callers still set Request.Cancel
	req := &http.Request{Cancel: canceled}
	assert.False(t, IsCanceled(req))
	close(canceled)
	assert.True(t, IsCanceled(req))
	assert.False(t, IsCanceled(&http.Request{}))
}
