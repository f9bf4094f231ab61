package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
)

// A closing base counts how often its idle connections are closed.
type closing struct {
	tripper
	closed atomic.Int32
	slow   time.Duration // how long a Close waits
}

func (c *closing) CloseIdleConnections() { c.closed.Add(1); time.Sleep(c.slow) }

func none(*http.Request) (*http.Response, error) { return nil, errors.New("nothing is sent") }

// A setting is a planner for a request to a host, which may have other requests.
type setting struct {
	plan
	first, lane *closing
	told        []news.Change
}

// A plan is a Planner with its request.
type plan struct {
	*Planner
	*exchange.Request
}

func (p plan) Next(o *attempt.Outcome) http.RoundTripper { return p.Planner.Next(p.Request, o) }
func (p plan) Note(o *attempt.Outcome)                   { p.Planner.Note(p.Request, o) }
func (p plan) Beside(o *attempt.Outcome)                 { p.Planner.Beside(p.Request, o) }
func (p plan) Refresh()                                  { p.Planner.Refresh(p.Request) }
func (p plan) IsStuck(o *attempt.Outcome) bool           { return p.Planner.IsStuck(p.Request, o) }
func (p plan) TakesHTTP1(err error) bool                 { return p.Maker.TakesHTTP1(p.Req, err) }

func (s *setting) Tells(c news.Change) func()         { return func() { s.told = append(s.told, c) } }
func (s *setting) LogsState(l []news.Change) func()   { return func() {} }
func (s *setting) Safe(err error) error               { return err }
func (s *setting) pools() *pool.Pools                 { return s.State.Machines().Pools() }
func (s *setting) now() instant.Instant               { return s.Registry.Now() }
func (s *setting) fails(o attempt.Outcome, err error) { s.ends(o, classify.Ambiguous, nil, err) }
func (s *setting) next() (o attempt.Outcome, t *Trial) {
	o.Kind = attempt.First
	t, _ = s.Next(&o).(*Trial)
	return o, t
}
func (s *setting) ends(o attempt.Outcome, v classify.Class, resp *http.Response, err error) {
	o.Class, o.Resp, o.Err, o.DoneAt = v, resp, err, s.now()
	s.Note(&o)
}

// within bounds the time of the request, unless d is 0.
func (s *setting) within(t *testing.T, d time.Duration) {
	if d > 0 {
		ctx, cancel := context.WithTimeout(s.Ctx, d)
		t.Cleanup(cancel)
		s.Ctx = ctx
	}
}

func set(t *testing.T, rule policy.Rule, requests int, lanes bool) *setting {
	t.Helper()
	s := &setting{first: &closing{tripper: none}, lane: &closing{tripper: none}}
	registry := &exchange.Registry{Watched: true}
	registry.Prepare(func(*host.State[rules.Resolved]) {})
	made, faults := rules.NewRuleset(rule, nil, new(rules.Owner))
	require.Empty(t, faults)
	req := getRequest(t, "http://h.test/")
	r := &exchange.Request{Observer: s, Registry: registry, Req: req, Ctx: t.Context()}
	for range requests {
		r.State = registry.Hosts.Acquire(req.URL)
	}
	r.Rule, _ = made.ForHost(host.KeyOf(req.URL))
	var lane func(string) http.RoundTripper
	if lanes {
		lane = func(string) http.RoundTripper { return s.lane }
	}
	s.plan = plan{&Planner{Maker: NewMaker(s.first, lane, func(f func(*pool.Pools)) { f(s.pools()) })}, r}
	return s
}

func response(code, major int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, ProtoMajor: major, Header: http.Header{}}
	for range header {
		resp.Header.Set("Retry-After", "1")
	}
	return resp
}

// unsent returns the Link of an attempt that asked for a connection and never got it.
func unsent(t *testing.T) *attempt.Link {
	a := attempt.Attempt{Base: tripper(func(req *http.Request) (*http.Response, error) {
		httptrace.ContextClientTrace(req.Context()).GetConn("h.test:443")
		return nil, syscall.ECONNRESET
	})}
	a.Req, a.Ctx, a.Linked = getRequest(t, "https://h.test/"), t.Context(), true
	a.Clock, a.Timeouts = new(instant.Clock), new(attempt.Timeouts)
	a.Prepare(nil)
	a.SendCopy()
	require.True(t, a.Link.Unsent())
	return a.Link
}

// waiting counts the next requests that wait for another pool.
func waiting(p *pool.Pool) (n int) {
	for p.TakesWait() {
		n++
	}
	return n
}

// What a failure weighs for its pool, and whether the next attempt leaves the pool in any case.
func TestWeigh(t *testing.T) {
	late := context.DeadlineExceeded
	timedOut := attempt.Outcome{Err: late, Class: classify.Ambiguous, Kind: attempt.First, SentAt: 1, DoneAt: instant.At(10 * time.Second)}
	at := func(o attempt.Outcome, change func(*attempt.Outcome)) attempt.Outcome { change(&o); return o }
	heard := func(d time.Duration) func(*setting) {
		return func(s *setting) { s.pools().Current().Hear(instant.At(d)) }
	}
	failed := func(err error, v classify.Class) attempt.Outcome { return attempt.Outcome{Err: err, Class: v} }
	answered := func(code int, v classify.Class, header ...string) attempt.Outcome {
		return attempt.Outcome{Resp: response(code, 1, header...), Class: v}
	}
	for name, row := range map[string]struct {
		o        attempt.Outcome
		requests int
		before   func(*setting)
		weight   int32
		leaves   bool
	}{
		"a success":                         {answered(200, classify.Final), 1, nil, 0, false},
		"a final error":                     {failed(syscall.ECONNRESET, classify.Final), 1, nil, 0, false},
		"a 500":                             {answered(500, classify.Ambiguous), 1, nil, pool.Weak, false},
		"a 503 with a wait":                 {answered(503, classify.Refused, "1"), 1, nil, 0, false},
		"a 429":                             {answered(429, classify.Refused), 1, nil, 0, false},
		"a 421":                             {answered(421, classify.Refused), 1, nil, pool.Proof, true},
		"a reset":                           {failed(syscall.ECONNRESET, classify.Ambiguous), 1, nil, pool.Half, false},
		"a stream error":                    {failed(errors.New("stream error: stream ID 5; CANCEL"), classify.Ambiguous), 1, nil, pool.Half, true},
		"a failed dial":                     {failed(syscall.ECONNREFUSED, classify.Refused), 1, nil, 0, false},
		"HTTP/1.1 required":                 {failed(errors.New("stream error: HTTP_1_1_REQUIRED"), classify.Refused), 1, nil, pool.Proof, true},
		"of a Transport below":              {at(timedOut, func(o *attempt.Outcome) { o.Below = true }), 1, nil, 0, false},
		"of the body":                       {at(timedOut, func(o *attempt.Outcome) { o.BodyBroke = true }), 1, nil, 0, false},
		"the caller left":                   {timedOut, 1, func(s *setting) { ctx, cancel := context.WithCancel(s.Ctx); cancel(); s.Ctx = ctx }, 0, false},
		"silence, alone":                    {timedOut, 1, nil, pool.Alone, true},
		"silence, nobody listened":          {timedOut, 5, nil, pool.Weak, true},
		"a reset in the handshake":          {attempt.Outcome{Err: syscall.ECONNRESET, Class: classify.Refused, Link: unsent(t)}, 1, nil, pool.Half, false},
		"a failed dial, watched":            {attempt.Outcome{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Class: classify.Refused, Link: unsent(t)}, 1, nil, 0, false},
		"silence, beside others, listening": {at(timedOut, func(o *attempt.Outcome) { o.Pool = new(pool.Pool) }), 2, func(s *setting) { s.pools() }, pool.Proof, true},
		"silence of a cut body":             {at(timedOut, func(o *attempt.Outcome) { o.Kind = attempt.Cut }), 1, nil, pool.Weak, true},
		"another was answered early":        {timedOut, 1, heard(4 * time.Second), pool.Alone, true},
		"another was answered late":         {timedOut, 1, heard(6 * time.Second), pool.Weak, true},
		"another was answered before":       {at(timedOut, func(o *attempt.Outcome) { o.Heard = instant.At(6 * time.Second) }), 1, heard(6 * time.Second), pool.Alone, true},
		"the start is not known":            {at(timedOut, func(o *attempt.Outcome) { o.SentAt = 0 }), 1, heard(time.Second), pool.Weak, true},
	} {
		s := set(t, policy.Rule{}, row.requests, true)
		if row.before != nil {
			row.before(s)
		}
		weight, leaves := weigh(s.Request, &row.o)
		assert.Equal(t, row.weight, weight, name)
		assert.Equal(t, row.leaves, leaves, name)
	}
	s := set(t, policy.Rule{}, 2, true)
	timedOut.Pool = s.pools().Current()
	weight, _ := weigh(s.Request, &timedOut)
	assert.EqualValues(t, pool.Proof, weight, "silence of the current pool, beside another request")
	testkit.Count(t, 2, waiting(timedOut.Pool), "request that waits for another pool")
	weigh(s.Request, &timedOut)
	s.pools().Failed(timedOut.Pool, pool.Proof, nil)
	s.pools().Good(timedOut.Pool, false)
	assert.Zero(t, waiting(timedOut.Pool), "requests that wait after a good response")
}

// A request leaves a pool after two failures, and the host moves with a good response.
func TestPlanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, policy.Rule{}, 2, true)
		o, trial := s.next()
		assert.Nil(t, trial)
		s.ends(o, classify.Refused, nil, syscall.ECONNREFUSED)
		assert.Nil(t, s.State.PoolsMade(), "it says nothing about connections")
		s.fails(o, syscall.ECONNRESET)
		assert.False(t, s.pools().HTTP1.Load())
		assert.Zero(t, s.State.Protocol.Load(), "a failure tells no protocol")
		o, trial = s.next()
		assert.Nil(t, trial, "after one reset")
		s.fails(o, syscall.ECONNRESET)
		o, trial = s.next()
		require.NotNil(t, trial, "after two")
		assert.Equal(t, 1, o.Pool.Number, "number of the pool")
		assert.Equal(t, time.Second, trial.patience)
		assert.True(t, trial.waits)
		assert.Same(t, s.lane, trial.maker.open(s.Req, netip.Addr{}, false))
		o.Pool.Make(s.lane)
		s.ends(o, classify.Final, response(200, 2), nil)
		assert.Same(t, o.Pool, s.pools().Current(), "the host moves")
		assert.EqualValues(t, 2, s.State.Protocol.Load())
		require.Len(t, s.told, 1, "changes told")
		assert.Equal(t, news.Change{Key: news.Key{Condition: news.Pool}, Cause: news.Cause{Err: syscall.ECONNRESET}, Pool: 1}, s.told[0])
		fresh := plan{&Planner{Maker: s.Maker}, s.Request}
		assert.Same(t, s.lane, fresh.Next(&o))
		assert.Same(t, o.Pool, s.pools().Current())

		fresh.Note(&attempt.Outcome{Pool: o.Pool, Class: classify.Refused, Resp: response(421, 2), DoneAt: s.now()})
		again := attempt.Outcome{Pool: o.Pool, Resp: response(421, 2)}
		assert.False(t, fresh.IsStuck(&again), "there is another pool")
		assert.True(t, fresh.IsStuck(&again), "two servers want that")
		o, trial = attempt.Outcome{}, nil
		trial, _ = fresh.Next(&o).(*Trial)
		require.NotNil(t, trial)
		assert.Equal(t, 2, o.Pool.Number, "number of the pool")
		o.Pool.Make(s.lane)
		fresh.Note(&attempt.Outcome{Pool: o.Pool, Class: classify.Ambiguous, Err: errors.New("HTTP_1_1_REQUIRED"), DoneAt: s.now()})
		assert.True(t, s.pools().HTTP1.Load())
		assert.Same(t, o.Pool, fresh.leaves)
		assert.False(t, plan{&Planner{Maker: s.Maker}, s.Request}.IsStuck(&attempt.Outcome{Resp: response(421, 1)}))
		assert.True(t, plan{&Planner{Maker: s.Maker}, s.Request}.IsStuck(&attempt.Outcome{Resp: response(421, 2)}))
		s.lane.closed.Store(0)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, s.first.closed.Load(), "the base is shared")
		assert.EqualValues(t, 3, s.lane.closed.Load(), "the pool that is given up is closed three times")

		other := set(t, policy.Rule{}, 2, true)
		other.ends(attempt.Outcome{}, classify.Ambiguous, response(500, 2), nil)
		assert.EqualValues(t, 2, other.State.Protocol.Load(), "a 500 tells the protocol")

		for want := range 2 { // leaves the base, which keeps its connections, and then a pool
			bad := other.pools().Current()
			other.pools().Failed(bad, pool.Proof, nil)
			o.Pool = other.pools().Other(other.now(), bad)
			o.Pool.Make(other.lane)
			other.ends(o, classify.Final, response(200, 2), nil)
			assert.Same(t, o.Pool, other.pools().Current())
			time.Sleep(2 * time.Minute)
			assert.EqualValues(t, 3*want, other.lane.closed.Load(), "closed")
		}
		assert.Empty(t, other.told, "nobody said why")
		other.pools().Failed(other.pools().Current(), pool.Proof, nil)
		time.Sleep(time.Minute) // there may be a new pool again
		o, trial = other.next()
		require.NotNil(t, trial)
		other.fails(o, syscall.ECONNRESET)
		again, _ = other.next()
		assert.Same(t, o.Pool, again.Pool, "after one reset")
		other.ends(again, classify.Ambiguous, response(500, 2), nil)
		assert.Equal(t, other.now(), again.Pool.Heard())
		after, _ := other.next()
		assert.Equal(t, after.Pool.Heard(), after.Heard)

		assert.True(t, s.MayLeave())
		assert.False(t, set(t, policy.Rule{}, 1, false).MayLeave(), "the base is no *http.Transport")
	})
}

// A request that was slow over one pool and is answered over another has shown that the first is bad.
func TestSilenceOfOnePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, policy.Rule{}, 1, true)
		o, _ := s.next()
		s.fails(o, context.DeadlineExceeded)
		o, trial := s.next()
		require.NotNil(t, trial)
		s.ends(o, classify.Final, response(200, 2), nil)
		assert.True(t, s.pools().Calm(), "half of a proof")
		s.fails(attempt.Outcome{Kind: attempt.First, Pool: s.pools().Current()}, context.DeadlineExceeded)
		assert.True(t, s.pools().Calm())
		o, _ = s.next()
		s.ends(o, classify.Final, response(200, 2), nil)
		assert.False(t, s.pools().Calm(), "the second time is a proof")
		s.ends(o, classify.Final, response(200, 2), nil)
		assert.Same(t, o.Pool, s.pools().Current())
		assert.Len(t, s.told, 1, "changes told")
	})
}

// How long an attempt waits for the first connection of a pool.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			rule             policy.Rule
			deadline, latest time.Duration
			want             time.Duration
		}{
			{policy.Rule{}, 0, 0, time.Second},
			{policy.Rule{}, 2 * time.Second, 0, 500 * time.Millisecond},
			{policy.Rule{AttemptTimeout: 600 * time.Millisecond}, 0, 0, 300 * time.Millisecond},
			{policy.Rule{ConnectTimeout: 400 * time.Millisecond}, 0, 0, 200 * time.Millisecond},
			{policy.Rule{}, 0, 100 * time.Millisecond, 100 * time.Millisecond},
			{policy.Rule{}, 0, -time.Second, 0},
		} {
			s := set(t, row.rule, 1, true)
			time.Sleep(time.Minute)
			s.within(t, row.deadline)
			if row.latest != 0 {
				s.Latest = s.now().Add(row.latest)
			}
			assert.Equal(t, row.want, s.patience(s.Request), "%+v", row)
		}
	})
}

// A hedge leaves the pool of the first attempt unless that is HTTP/1.1.
func TestBeside(t *testing.T) {
	for protocol, leaves := range map[int32]bool{0: true, 1: false, 2: true} {
		s := set(t, policy.Rule{}, 1, true)
		s.State.Protocol.Store(protocol)
		s.Beside(&attempt.Outcome{})
		_, trial := s.next()
		assert.Equal(t, leaves, trial != nil, protocol)
	}
}

// A silent base without further pools closes its idle connections once, over HTTP/2.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			protocol int32
			failures int
			deadline time.Duration
			class    classify.Class
			err      error
			want     int
		}{
			{2, 4, 0, classify.Ambiguous, context.DeadlineExceeded, 1}, {2, 1, 0, classify.Ambiguous, context.DeadlineExceeded, 1},
			{1, 4, 0, classify.Ambiguous, context.DeadlineExceeded, 0}, {0, 4, 0, classify.Ambiguous, context.DeadlineExceeded, 0},
			{2, 4, time.Nanosecond, classify.Ambiguous, context.DeadlineExceeded, 0},
			{2, 4, 0, classify.Ambiguous, syscall.ECONNRESET, 0}, {2, 4, 0, classify.Refused, context.DeadlineExceeded, 0},
		} {
			s := set(t, policy.Rule{}, 1, false)
			s.State.Protocol.Store(row.protocol)
			s.within(t, row.deadline)
			var slept time.Duration
			for range row.failures {
				s.ends(attempt.Outcome{Kind: attempt.First}, row.class, nil, row.err)
				start := time.Now()
				s.Refresh()
				slept += time.Since(start)
			}
			assert.Equal(t, time.Duration(row.want)*time.Millisecond, slept, "%+v", row)
			assert.EqualValues(t, row.want, s.first.closed.Load(), "%+v", row)
			assert.Zero(t, s.stale)
		}
		s := set(t, policy.Rule{}, 1, false)
		s.State.Protocol.Store(2)
		s.Registry.Hosts.Acquire(&url.URL{Scheme: "http", Host: "other.test"}).Release()
		s.ends(attempt.Outcome{Kind: attempt.First}, classify.Ambiguous, nil, context.DeadlineExceeded)
		s.Refresh()
		assert.Zero(t, s.first.closed.Load(), "another host was asked lately, which may have idle connections")

		s, start := set(t, policy.Rule{}, 1, false), time.Now()
		s.State.Protocol.Store(2)
		s.first.slow = time.Hour
		s.ends(attempt.Outcome{Kind: attempt.First}, classify.Ambiguous, nil, context.DeadlineExceeded)
		s.Refresh()
		assert.Equal(t, time.Millisecond+attempt.DrainTime, time.Since(start), "the base waits for its requests")
		time.Sleep(time.Hour)
	})
}

// A pool that is left closes its idle connections soon, and when most of what was under way has ended.
func TestMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, policy.Rule{}, 1, true)
		other := s.pools().Other(s.now(), nil)
		other.Make(s.lane)
		s.Maker.LeaveAll(s.pools())
		s.Maker.LeaveAll(nil)
		for _, row := range []struct {
			after time.Duration
			want  int
		}{{149 * time.Millisecond, 0}, {2 * time.Millisecond, 1}, {time.Second, 2}, {88 * time.Second, 2}, {2 * time.Second, 3}} {
			time.Sleep(row.after)
			synctest.Wait()
			assert.EqualValues(t, row.want, s.lane.closed.Load(), "closed")
		}
		assert.Zero(t, s.first.closed.Load(), "closed")
		s.Maker.CloseAll()
		assert.EqualValues(t, []int32{1, 4}, []int32{s.first.closed.Load(), s.lane.closed.Load()}, "closed")
		assert.NotPanics(t, func() { closeIdle(nil) })

		for lane, want := range map[http.RoundTripper]bool{nil: false, (*closing)(nil): false, s.lane: true} {
			m := NewMaker(s.first, func(host string) http.RoundTripper {
				assert.Equal(t, "h.test", host)
				return lane
			}, nil)
			assert.Equal(t, want, m.open(s.Req, other.Doubtful(), false) != nil)
			assert.True(t, m.can(s.Req))
			assert.False(t, m.canHTTP1(s.Req))
		}
		m := NewMaker(new(http.Transport), nil, nil)
		assert.Equal(t, idle, m.open(s.Req, other.Doubtful(), false).(*http.Transport).IdleConnTimeout)
	})
}

// The base is shared. A host of HTTP/1.1 that leaves it closes its idle connections only if no other host
// was asked lately.
func TestLeavingTheBase(t *testing.T) {
	for _, row := range []struct {
		protocol int32
		asked    int           // requests to another host
		ago      time.Duration // when
		want     int32
	}{
		{1, 0, 0, 3}, {2, 0, 0, 0},
		{1, 1, time.Minute, 1}, {1, 1, 2 * time.Minute, 3},
		{1, 2, time.Minute, 0}, {1, 2, 2 * time.Minute, 0}, // nobody knows when the second came
	} {
		synctest.Test(t, func(t *testing.T) {
			s := set(t, policy.Rule{}, 1, true)
			s.State.Protocol.Store(row.protocol)
			for range row.asked {
				s.Registry.Hosts.Acquire(getRequest(t, "http://other.test/").URL).Release()
			}
			time.Sleep(row.ago)
			s.leave(s.Request, s.pools().Current())
			time.Sleep(time.Hour)
			assert.Equal(t, row.want, s.first.closed.Load(), "%+v: closed", row)
			assert.Zero(t, s.lane.closed.Load(), "closed")
		})
	}
}

// A trial that gets a connection opens the pool, whose idle connections are closed when it rests.
func TestTrialWithConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, policy.Rule{}, 1, true)
		s.Beside(&attempt.Outcome{})
		o, trial := s.next()
		over := []*pool.Pool{}
		trial.Restart = func(p *pool.Pool) { over = append(over, p) }
		s.first.tripper = func(req *http.Request) (*http.Response, error) { return response(500, 1), nil }
		s.lane.tripper = func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GetConn("h.test:80")
			trace.GotConn(httptrace.GotConnInfo{})
			assert.Equal(t, len(over) == 2, o.Pool.IsOpen())
			trace.WroteHeaders()
			return &http.Response{StatusCode: 200, Request: req}, nil
		}
		resp, err := trial.RoundTrip(s.Req)
		require.NoError(t, err)
		assert.Same(t, s.Req, resp.Request)
		assert.True(t, o.Pool.IsOpen())
		time.Sleep(pool.Rest - 1)
		_, _ = trial.RoundTrip(s.Req)
		time.Sleep(2 * time.Nanosecond)
		assert.Zero(t, s.lane.closed.Load(), "closed")
		time.Sleep(pool.Rest)
		assert.EqualValues(t, 1, s.lane.closed.Load(), "closed")
		assert.False(t, o.Pool.IsOpen())
		trial.http1 = true
		_, _ = trial.RoundTrip(s.Req)
		time.Sleep(workerTime + 1)
		assert.EqualValues(t, 2, s.lane.closed.Load(), "another request may wait for the worker")

		trial = &Trial{registry: trial.registry, maker: makerOf(nil), base: trial.base, pools: trial.pools, to: new(pool.Pool), back: trial.back, Restart: trial.Restart}
		resp, err = trial.RoundTrip(s.Req)
		require.NoError(t, err)
		assert.Equal(t, 500, resp.StatusCode, "there is no lane")
		assert.False(t, trial.to.IsDue(s.now().Add(time.Second)))
		assert.Equal(t, []*pool.Pool{o.Pool, o.Pool, o.Pool, trial.to, trial.back}, over)
	})
}

func TestNoteGood(t *testing.T) {
	s := set(t, policy.Rule{}, 2, true)
	NoteGood(s.Request, &attempt.Outcome{Resp: response(200, 2)})
	assert.Nil(t, s.State.PoolsMade(), "the time of the request is not bounded")
	s.within(t, time.Hour)
	NoteGood(s.Request, &attempt.Outcome{Resp: response(200, 1)})
	assert.Nil(t, s.State.PoolsMade(), "HTTP/1.1")
	NoteGood(s.Request, &attempt.Outcome{Resp: response(200, 2)})
	require.NotNil(t, s.State.PoolsMade())
	other := set(t, policy.Rule{AttemptTimeout: time.Second}, 2, true)
	NoteGood(other.Request, &attempt.Outcome{Resp: response(200, 2)})
	require.NotNil(t, other.State.PoolsMade())
	s.pools().Failed(s.pools().Current(), pool.Proof, nil)
	NoteGood(s.Request, &attempt.Outcome{DoneAt: 7})
	assert.True(t, s.pools().Calm())
	assert.EqualValues(t, 7, s.pools().Current().Heard())
	assert.False(t, s.TakesHTTP1(errors.New("HTTP_1_1_REQUIRED")), "Config.NewPool decides")
	own := plan{&Planner{Maker: NewMaker(new(http.Transport), nil, nil)}, s.Request}
	assert.True(t, own.TakesHTTP1(errors.New("HTTP_1_1_REQUIRED")))
	assert.False(t, own.TakesHTTP1(errors.New("odd")))
}

// What the default base sets, and what it leaves as it is.
func TestDefaultBase(t *testing.T) {
	b := improved(new(http.Transport))
	assert.Equal(t, []any{4, 30 * time.Second, time.Minute}, []any{b.MaxIdleConnsPerHost, b.HTTP2.SendPingTimeout, b.HTTP2.PingTimeout})
	b = improved(&http.Transport{MaxIdleConnsPerHost: 7, HTTP2: &http.HTTP2Config{SendPingTimeout: 1}})
	assert.Equal(t, []any{7, time.Duration(1), time.Duration(0)}, []any{b.MaxIdleConnsPerHost, b.HTTP2.SendPingTimeout, b.HTTP2.PingTimeout})
	req := getRequest(t, "https://h.test/")
	for code, refused := range map[int]bool{503: true, 407: false, 200: false} {
		err := b.OnProxyConnectResponse(t.Context(), nil, req, response(code, 1))
		proxy, ok := errors.AsType[*exchange.ProxyAnswer](err)
		assert.Equal(t, refused, ok && proxy.Resp.Body == http.NoBody, code)
	}
	refusal, proxied := errors.New("Service Unavailable"), &http.Transport{Proxy: http.ProxyFromEnvironment}
	assert.True(t, RefusedByProxy(proxied, req, refusal))
	assert.False(t, RefusedByProxy(new(http.Transport), req, refusal) || RefusedByProxy(&closing{}, req, refusal) ||
		RefusedByProxy(proxied, getRequest(t, "http://h.test/"), refusal) || RefusedByProxy(proxied, req, fmt.Errorf("x: %w", refusal)) ||
		RefusedByProxy(proxied, req, errors.New("odd")))
}

// The base is found at the first request. One that leads back to the Transport is refused.
func TestResolve(t *testing.T) {
	defer func(old http.RoundTripper) { http.DefaultTransport = old }(http.DefaultTransport)
	loops, uncopied := &closing{}, &http.Transport{TLSNextProto: nextProtos{"h2": nil}}
	registers := new(http.Transport)
	registers.RegisterProtocol("file", loops)
	for _, of := range []http.RoundTripper{nil, (*http.Transport)(nil), new(http.Transport), uncopied, registers, loops} {
		m := NewMaker(nil, nil, nil)
		m.CloseAll() // finds nothing yet
		http.DefaultTransport = of
		base := m.Resolve()
		assert.True(t, base == m.Resolve())
		switch of {
		default:
			assert.NotNil(t, base.(*http.Transport).DialContext, "it knows the addresses")
			assert.Equal(t, 4, base.(*http.Transport).MaxIdleConnsPerHost, "on every machine")
			assert.Equal(t, PingAfter, base.(*http.Transport).HTTP2.SendPingTimeout)
			assert.False(t, of == base)
		case uncopied, registers:
			assert.True(t, of == base)
		case loops:
			loops.tripper = base.RoundTrip
			body := &upload{Reader: strings.NewReader("text")}
			req := getRequest(t, "http://h.test/")
			req.Body = body
			_, err := base.RoundTrip(req)
			assert.ErrorIs(t, err, errSelf)
			assert.True(t, body.closed)
			loops.tripper = func(req *http.Request) (*http.Response, error) { return &http.Response{Request: req}, nil }
			resp, err := base.RoundTrip(req)
			require.NoError(t, err)
			assert.Same(t, req, resp.Request)
			loops.tripper = func(req *http.Request) (*http.Response, error) {
				return &http.Response{Request: req.WithContext(req.Context())}, nil
			}
			resp, err = base.RoundTrip(req)
			require.NoError(t, err)
			_, err = base.RoundTrip(req.WithContext(resp.Request.Context()))
			assert.NoError(t, err, "the next request may have its context")
			m.first.(*foreign).CloseIdleConnections()
			assert.EqualValues(t, 1, loops.closed.Load(), "closed")
		}
	}
	http.DefaultTransport = &http.Transport{MaxIdleConnsPerHost: 9}
	assert.Equal(t, 9, NewBase().MaxIdleConnsPerHost)
}

func getRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// While the server answers that it cannot, a first attempt that is retried makes no connection anew: the server may answer it well.
func TestFirstAttemptsMakeNoConnectionAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, policy.Rule{}, 1, true)
		for range pool.Proof / pool.Weak {
			s.ends(attempt.Outcome{Kind: attempt.First}, classify.Ambiguous, &http.Response{StatusCode: 503}, nil)
		}
		for _, row := range []struct {
			retried, heard, open, trial bool
		}{{true, false, false, true}, {true, true, false, false}, {true, true, true, true}, {false, true, false, true}} {
			other := s.pools().Other(s.now(), nil)
			if s.Retried = row.retried; row.heard {
				other.Hear(s.now())
			}
			if row.open {
				other.Connected()
			} else {
				s.pools().Rests(other, s.now(), 0)
			}
			_, trial := s.next()
			assert.Equal(t, row.trial, trial != nil, "%+v", row)
		}
	})
}
