package limit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/host/throttle"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// A site is a host with the requests to it, who watches it, and its fleet.
type site struct {
	registry Registry
	set      *rules.Ruleset
	told     []string // changes
	last     news.Change
	state    []news.Change // that the log was told
	sent     []fleetmsg.Message
	hear     func(fleetmsg.Message)
}

func (s *site) Tells(c news.Change) func() {
	return func() {
		s.told = append(s.told, fmt.Sprintf("%d %v %d %v", c.Condition, c.Over, c.Cause.Status, c.Fleet))
		s.last = c
	}
}
func (s *site) LogsState(all []news.Change) func() { return func() { s.state = all } }
func (s *site) Safe(err error) error               { return err }
func (s *site) tell(m fleetmsg.Message)            { s.sent = append(s.sent, m) }
func (s *site) scope(text string) uint64           { return uint64(len(text)) }

// join makes the site the fleet of its host.
func (s *site) join() {
	joins := func(hear func(fleetmsg.Message)) error { s.hear = hear; return nil }
	s.registry.Fleet = (&member.Backend{Join: joins, Tell: s.tell, Scope: s.scope}).Link()
	_ = s.registry.Fleet.Join(s.registry.Clock)
}

func newSite(t *testing.T, rule policy.Rule) *site {
	t.Helper()
	s := &site{}
	s.registry.Prepare(func(*host.State[rules.Resolved]) {})
	s.registry.Watched = true
	s.update(t, rule)
	time.Sleep(time.Minute)
	synctest.Wait()
	return s
}

func (s *site) update(t *testing.T, rule policy.Rule) {
	t.Helper()
	set, faults := rules.NewRuleset(rule, nil, new(rules.Owner))
	require.Empty(t, faults)
	s.set = set
	s.registry.Rules.Store(set)
}

// request begins a request that has some time, or any if that is 0.
func (s *site) request(t *testing.T, d time.Duration) *Request {
	t.Helper()
	ctx := t.Context()
	if d > 0 {
		until, cancel := context.WithTimeout(ctx, d)
		t.Cleanup(cancel)
		ctx = until
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://h.test/", nil)
	require.NoError(t, err)
	state := s.registry.Hosts.Acquire(req.URL)
	return &Request{Observer: s, Registry: &s.registry, Req: req, Ctx: ctx, State: state, Rule: s.registry.HostRule(state, s.set)}
}

// ends notes the response to a request.
func (s *site) ends(t *testing.T, code int, v classify.Class, header ...string) (hint time.Duration) {
	t.Helper()
	r, p := s.request(t, 0), new(Permit)
	o := attempt.Outcome{Kind: attempt.First, Resp: answer(code, header...), Class: v, SentAt: s.registry.Now()}
	p.Headers(r, &o)
	hint, _ = p.Done(r, &o)
	return hint
}

func answer(code int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{}, Body: http.NoBody}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Set(name, value)
	}
	return resp
}

var (
	holding = policy.Rule{ShareRetryAfter: policy.On}
	rated   = policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.25, Burst: 1}}
	limited = policy.Rule{Concurrency: policy.Concurrency{Max: 1}}
	paced   = policy.Rule{QuotaPacing: policy.On}
)

// What makes an attempt wait, and which waits are refused. The first request takes what there is.
func TestAcquire(t *testing.T) {
	hold := func(t *testing.T, s *site) { s.ends(t, 429, classify.Ambiguous, "Retry-After: 4") }
	take := func(t *testing.T, s *site) {
		r, p, f := s.request(t, 0), new(Permit), new(attempt.Attempt)
		require.Nil(t, p.Acquire(r, 0))
		p.Start(f)
		time.AfterFunc(4*time.Second, f.Slot.Release)
	}
	quota := func(t *testing.T, s *site) {
		s.ends(t, 200, classify.Final, `Ratelimit: "d";r=0;t=4`, `Ratelimit-Policy: "d";q=100;w=60`)
	}
	later := func(what func(*testing.T, *site)) func(*testing.T, *site) {
		return func(t *testing.T, s *site) { take(t, s); time.AfterFunc(3*time.Second, func() { what(t, s) }) }
	}
	both, refusing, costly := limited, limited, policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1, Burst: 3}, Cost: func(*http.Request) int { return 2 }}
	both.RateLimit, refusing.Concurrency.FailFast = policy.RateLimit{PerSecond: 0.5, Burst: 1}, policy.On
	for name, row := range map[string]struct {
		rule             policy.Rule
		before           func(*testing.T, *site)
		deadline, latest time.Duration
		why              why
		limit            string // empty: it goes
		wait             time.Duration
		queued           string // where it has waited
	}{
		"nothing":                 {policy.Rule{}, take, 0, 0, 0, "", 0, ""},
		"another hold":            {policy.Rule{}, hold, 0, 0, 0, "", 0, ""},
		"hold":                    {holding, hold, 0, 0, 0, "", 4 * time.Second, "throttle"},
		"hold and deadline":       {holding, hold, 3 * time.Second, 0, WhyLate, LimitThrottle, 0, ""},
		"hold of a retry":         {holding, hold, 0, 3 * time.Second, WhyOverdue, LimitThrottle, 0, ""},
		"hold beyond the bound":   {holding.Or(policy.Rule{MaxRetryAfter: 2 * time.Second}), hold, 0, 0, 0, "", 2 * time.Second, "throttle"},
		"rate":                    {rated, take, 0, 0, 0, "", 4 * time.Second, "rate"},
		"rate and deadline":       {rated, take, 3 * time.Second, 0, WhyLate, LimitRate, 0, ""},
		"rate of a retry":         {rated, take, 0, 3 * time.Second, WhyOverdue, LimitRate, 0, ""},
		"rate of costs":           {costly, take, 0, 0, 0, "", time.Second, "rate"},
		"limiter":                 {limited, take, 0, 0, 0, "", 4 * time.Second, "limiter"},
		"limiter and deadline":    {limited, take, 3 * time.Second, 0, 0, LimitConcurrency, 3 * time.Second, "limiter"},
		"limiter after its time":  {limited, take, 0, -time.Second, WhyOverdue, LimitConcurrency, 0, ""},
		"limiter that refuses":    {refusing, take, 0, 0, WhyFull, LimitConcurrency, 0, ""},
		"limiter and rate":        {both, take, 0, 0, 0, "", 4 * time.Second, "limiter rate"},
		"limiter, rate, deadline": {limited.Or(rated), take, 3 * time.Second, 0, WhyLate, LimitRate, 0, ""},
		"hold at the limiter":     {holding.Or(limited), later(hold), 0, 0, 0, "", 7 * time.Second, "throttle limiter"},
		"quota at the limiter":    {paced.Or(limited), later(quota), 0, 0, 0, "", 7 * time.Second, "pacing limiter"},
		"quota":                   {paced, quota, 0, 0, 0, "", 4 * time.Second, "pacing"},
		"quota and deadline":      {paced, quota, 3 * time.Second, 0, WhyLate, LimitPacing, 0, ""},
		"quota without a limit":   {holding, quota, 0, 0, 0, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, row.rule)
				row.before(t, s)
				r, p, start := s.request(t, row.deadline), new(Permit), time.Now()
				at := new(Permit)
				assert.Equal(t, row.wait == 0 && row.limit == "", at.TryAcquire(r, s.registry.Now()), "at once")
				at.Cancel(r)
				var latest instant.Instant
				if row.latest != 0 {
					latest = s.registry.Now().Add(row.latest)
				}
				if row.wait > 0 { // one comes before and leaves
					left := s.request(t, 0)
					ctx, cancel := context.WithCancel(left.Ctx)
					left.Ctx = ctx
					go new(Permit).Acquire(left, 0)
					synctest.Wait()
					cancel()
					synctest.Wait()
				}
				no := p.Acquire(r, latest)
				took := time.Since(start)
				assert.GreaterOrEqual(t, took, row.wait)
				assert.LessOrEqual(t, took, row.wait+time.Second, "with the jitter of a hold")
				if row.limit != "" {
					require.NotNil(t, no)
					assert.Equal(t, []any{row.why, row.limit, no.Why == whyGone}, []any{no.Why, no.Limit, no.Err != nil})
					if (no.Why == WhyLate || no.Why == WhyOverdue) && row.latest >= 0 {
						assert.WithinRange(t, no.Until, start.Add(4*time.Second), start.Add(8*time.Second))
						held := s.registry.TimeOf(r.State.Machines().Throttle.Held(s.registry.Now(), r.scopeKey()))
						assert.Equal(t, row.limit == LimitThrottle, no.Until.Equal(held), "a hold with its jitter")
					}
				} else {
					assert.Nil(t, no)
				}
				var queued []string
				for _, q := range []struct {
					name string
					d    time.Duration
				}{{"throttle", p.Queued.Throttle}, {"pacing", p.Queued.Pacing}, {"limiter", p.Queued.Concurrency}, {"rate", p.Queued.Rate}} {
					if q.d > 0 {
						queued = append(queued, q.name)
					}
				}
				full := no != nil && no.Why == WhyFull || p.Queued.Concurrency > time.Second
				late := no != nil && no.Limit == LimitRate || p.Queued.Rate > time.Second
				over := p.Queued.Throttle > 0 && no == nil // told before there is a slot
				for change, want := range map[string]bool{change(news.Crowded, false, 0): full, change(news.RateLimited, false, 0): late, change(news.Held, true, 0): over} {
					assert.Equal(t, want, slices.Contains(s.told, change), change)
				}
				assert.Equal(t, row.queued, strings.Join(queued, " "))
				assert.False(t, p.crowded || p.rated, "told")
				assert.Equal(t, no == nil && r.Rule.Concurrency, p.slot.Limiter != nil, "it has a slot")
				p.Cancel(r)
				p.Cancel(r)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				again := new(Permit)
				assert.Nil(t, again.Acquire(s.request(t, 0), 0), "what it held is free again")
				again.Cancel(r)
			})
		})
	}
}

// A hold that is over makes nobody wait for another limit again.
func TestAcquireAfterAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, holding.Or(rated))
		require.Nil(t, new(Permit).Acquire(s.request(t, 0), 0))
		r, start := s.request(t, 0), time.Now()
		r.State.Machines().Throttle.Hold(s.registry.Now(), r.scopeKey(), time.Second, throttle.Config{Jitter: -1}, 0)
		p := new(Permit)
		require.Nil(t, p.Acquire(r, 0))
		assert.Equal(t, 4*time.Second, time.Since(start))
		assert.Equal(t, attempt.Queued{Throttle: time.Second, Rate: 3 * time.Second}, p.Queued)

		s = newSite(t, holding)
		s.ends(t, 429, classify.Final, "Retry-After: 30")
		r, start = s.request(t, 0), time.Now()
		r.held = 59 * time.Second // of the minute that a request waits
		require.Nil(t, new(Permit).Acquire(r, 0))
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// What the outcome of an attempt tells the limits.
func TestDone(t *testing.T) {
	const again, refused, final = classify.Ambiguous, classify.Refused, classify.Final
	for name, row := range map[string]struct {
		code    int
		verdict classify.Class
		wait    string
		err     error
		hint    time.Duration
		held    bool
	}{
		"success":               {code: 200, verdict: final, wait: "4"},
		"400":                   {400, again, "4", nil, 4 * time.Second, true},
		"503 at once":           {code: 503, verdict: again, wait: "0"},
		"429":                   {429, again, "4", nil, 4 * time.Second, true},
		"final 429":             {429, final, "4", nil, 4 * time.Second, true},
		"503":                   {503, refused, "4", nil, 4 * time.Second, true},
		"503 without a wait":    {code: 503, verdict: again},
		"500":                   {500, again, "4", nil, 4 * time.Second, false},
		"403":                   {403, again, "4", nil, 4 * time.Second, true},
		"final 403":             {code: 403, verdict: final, wait: "4"},
		"409":                   {409, again, "4", nil, 4 * time.Second, false},
		"425":                   {425, refused, "4", nil, 4 * time.Second, false},
		"an error":              {verdict: again, err: syscall.ECONNRESET},
		"a proxy that is tired": {verdict: refused, err: &ProxyAnswer{answer(503, "Retry-After: 4")}, hint: 4 * time.Second},
	} {
		for _, peeks := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				rule := holding
				if peeks {
					rule.Classify = classify.Refusals
				}
				s := newSite(t, rule)
				s.join()
				r, p, o := s.request(t, 0), new(Permit), attempt.Outcome{Kind: attempt.First, Class: row.verdict, Err: row.err}
				s.sent = nil
				if row.code > 0 {
					o.Resp = answer(row.code, "Retry-After: "+row.wait)
				}
				p.Headers(r, &o)
				early := r.State.Quiet()
				assert.Equal(t, peeks && row.held && TellsToWait(row.code), !early, name)
				if proxy, ok := row.err.(*ProxyAnswer); ok {
					assert.Equal(t, proxy.Resp.Status, proxy.Error())
				}
				hint, u := p.Done(r, &o)
				assert.Equal(t, row.hint, hint, name)
				assert.True(t, 0 <= u && u < 1)
				assert.Equal(t, row.held, len(s.sent) == 1, "%s: the fleet was told %d holds", name, len(s.sent))
				until := r.State.Machines().Throttle.Held(s.registry.Now(), r.scopeKey())
				assert.Equal(t, row.held, until > 0, name)
				if row.held {
					assert.Contains(t, s.told[0], fmt.Sprint(news.Held, " false ", row.code), name)
					turn, limit := s.request(t, 0).Forecast(time.Now())
					assert.Equal(t, []any{4 * time.Second, LimitThrottle}, []any{turn, limit})
					r.held = 59 * time.Second // of the minute that a request waits
					turn, _ = r.Forecast(time.Now())
					assert.Equal(t, time.Second, turn)
					time.Sleep(16 * time.Second)
					synctest.Wait()
					s.ends(t, 200, classify.Final)
					assert.Equal(t, fmt.Sprint(news.Held, " true 0 false"), s.told[len(s.told)-1], name)
				}
			})
		}
	}
}

// A host is down after ten failures in a row, over a second or more, until it answers.
func TestDownAndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, policy.Rule{})
		fail := func(o attempt.Outcome) {
			r, p := s.request(t, 0), new(Permit)
			o.Class, o.SentAt = classify.Ambiguous, s.registry.Now()
			p.Done(r, &o)
		}
		for range 9 {
			time.Sleep(200 * time.Millisecond)
			fail(attempt.Outcome{Kind: attempt.First, Err: os.ErrDeadlineExceeded})
			fail(attempt.Outcome{Kind: attempt.Cut, Err: syscall.ECONNRESET})
			fail(attempt.Outcome{Kind: attempt.First, Err: syscall.ECONNRESET, BodyBroke: true})
		}
		for range 5 {
			fail(attempt.Outcome{Kind: attempt.First, Resp: answer(429)})
		}
		assert.Empty(t, s.told)
		fail(attempt.Outcome{Kind: attempt.Retry, Resp: answer(500)})
		assert.Equal(t, []string{"0 false 500 false"}, s.told)
		s.ends(t, 429, classify.Final)
		assert.Len(t, s.told, 1, "a refusal is no success")
		s.ends(t, 503, classify.Final)
		assert.Len(t, s.told, 1, "a failure that is final is no success")
		s.ends(t, 404, classify.Final)
		assert.Equal(t, "0 true 0 false", s.told[1])
		assert.Equal(t, 503, s.request(t, 0).State.Machines().News().Failure().Status, "the last failure")
	})
}

// A retry takes what the budget has, and gives it back if no attempt goes. Without a wait it gets nothing else, and with a
// wait what time earns.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.1}})
		try := func() (*Permit, bool) {
			p := new(Permit)
			return p, p.TryLine(s.request(t, 0), line.Place{Sent: 1})
		}
		p, ok := try()
		assert.True(t, ok)
		_, ok = try()
		assert.False(t, ok, "it has one")
		p.Cancel(s.request(t, 0))
		p.Cancel(s.request(t, 0))
		p, ok = try()
		assert.True(t, ok, "it is given back, once")
		_, ok = try()
		assert.False(t, ok)
		p.Start(new(attempt.Attempt))
		p.Cancel(s.request(t, 0))
		_, ok = try()
		assert.False(t, ok, "an attempt has used it")

		await := func(d time.Duration) (*Permit, *Rejection, time.Duration) {
			r, p, begin := s.request(t, 0), new(Permit), time.Now()
			no := p.AwaitLine(r, line.Place{Sent: 1, Failed: s.registry.Now()}, s.registry.Now().Add(d))
			p.Start(new(attempt.Attempt))
			p.Cancel(r)
			return p, no, time.Since(begin)
		}
		_, no, took := await(0)
		assert.Equal(t, []any{WhyOverdue, LimitLine, time.Duration(0)}, []any{no.Why, no.Limit, took})
		assert.Empty(t, s.told)
		_, no, took = await(5 * time.Second)
		assert.Equal(t, []any{WhyOverdue, LimitLine, 5 * time.Second}, []any{no.Why, no.Limit, took.Round(time.Millisecond)})
		assert.Equal(t, []string{fmt.Sprint(news.NoRetries, " false 0 false")}, s.told)
		p, no, took = await(time.Minute)
		assert.Nil(t, no)
		assert.Equal(t, 5*time.Second, took.Round(time.Millisecond), "time has earned one")
		assert.Equal(t, took, p.Queued.Line)

		r := s.request(t, time.Second)
		no = new(Permit).AwaitLine(r, line.Place{Sent: 1}, s.registry.Now().Add(time.Minute))
		assert.ErrorIs(t, no.Err, context.DeadlineExceeded)
		assert.Zero(t, r.State.Machines().Line.State().Waiting, "all have left")

		alone := s.request(t, 0).lineConfig().Budget.PerSecond
		s = newSite(t, s.request(t, 0).Rule.Policy)
		s.join()
		s.hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: 2})
		assert.Equal(t, []float64{0.1, 0.05}, []float64{alone, s.request(t, 0).lineConfig().Budget.PerSecond}, "a member's part")
	})
}

// What a request tells of itself, and what a fleet changes.
func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := 0
		s := newSite(t, policy.Rule{Cost: func(*http.Request) int { return 0 }, ThrottleKey: func(*http.Request) string { keys++; return "ab" }}.Or(rated))
		r := s.request(t, 0)
		assert.Equal(t, 1, r.askCost())
		assert.Equal(t, 1, (&Request{Rule: new(rules.Resolved)}).askCost(), "without a Cost")
		assert.Equal(t, []any{r.scopeKey(), 1}, []any{r.scopeKey(), keys}, "asked once")
		turn, limit := r.Forecast(time.Now())
		assert.Equal(t, []any{time.Duration(0), LimitRate}, []any{turn, limit})
		assert.True(t, new(Permit).TryAcquire(r, s.registry.Now()))
		turn, _ = r.Forecast(time.Now())
		assert.Equal(t, 4*time.Second, turn)
		r.Req.Header.Set("Expect", "100-continue")
		assert.Same(t, r.Req, r.OutcomeOf(nil, nil).Request)
		r.DropExpect()
		assert.Empty(t, r.OutcomeOf(nil, nil).Request.Header)
		assert.Len(t, r.Req.Header, 1)
		assert.Equal(t, "http://h.test", r.HostName())
		assert.Equal(t, "http://xxxxx@h.test", SafeName(s.registry.Hosts.Acquire(&url.URL{Scheme: "http", Host: "u@h.test"})))
		assert.Equal(t, s.registry.Now(), s.registry.Hosts.Now())
		bare := &Request{Req: r.Req}
		assert.Equal(t, "http://h.test", bare.HostName())
		canceled := make(chan struct{})
		//lint:ignore SA1019 old callers still set Request.Cancel
		r.Req.Cancel = canceled
		stop := r.ObeyCancel()
		defer stop()
		assert.True(t, r.Linked)
		assert.Same(t, r.Ctx, (&Request{Req: r.Req, Ctx: r.Ctx, Rule: r.Rule, Linked: true}).OutcomeOf(nil, nil).Request.Context())
		time.AfterFunc(time.Second, func() { close(canceled) })
		assert.ErrorIs(t, r.Sleep(time.Hour, nil), attempt.ErrRequestCanceled)
		defer s.request(t, 0).ObeyCancel()()

		s = newSite(t, r.Rule.Policy)
		s.join()
		own := s.request(t, 0)
		assert.EqualValues(t, len("scope\x00ab"), own.scopeKey())
		own.Req.Header.Set("Authorization", "x")
		assert.NotZero(t, (&Request{Req: own.Req, Registry: own.Registry, Rule: new(rules.Resolved)}).scopeKey(), "credentials")
		own.latest = 7
		assert.EqualValues(t, 7, own.sendAtLatest())
		own.latest = 0
		assert.Zero(t, own.sendAtLatest())
		timed := s.request(t, time.Second)
		assert.Equal(t, s.registry.Now().Add(time.Second), timed.sendAtLatest())
		timed.latest = s.registry.Now().Add(time.Minute)
		assert.Equal(t, s.registry.Now().Add(time.Second), timed.sendAtLatest(), "the deadline is sooner")

		s.sent = nil
		went := false
		go func() { went = new(Permit).Acquire(own, 0) == nil }()
		synctest.Wait()
		require.Len(t, s.sent, 1, "messages")
		assert.Equal(t, []any{fleetmsg.AskTokens, "cost", 0.25, 1.0, 1.0}, []any{s.sent[0].Kind, s.sent[0].Unit, s.sent[0].PerSecond, s.sent[0].Burst, s.sent[0].Amount})
		for _, unit := range []string{"", "cost"} {
			assert.False(t, went)
			s.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: "http://h.test", Amount: 1, Unit: unit, Wait: time.Minute})
			synctest.Wait()
		}
		assert.True(t, went, "with tokens of its own unit")
		assert.Len(t, s.sent, 1, "messages")
	})
}

func change(k news.Condition, over bool, status int) string {
	return fmt.Sprint(k, over, status, " false")
}

// removed plays that an Update removes the rate for which requests wait. All of them go when the next request begins.
func removed(t *testing.T, s *site) {
	s.registry.Fleet = nil
	rule := s.request(t, 0).Rule.Policy
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		r, p := s.request(t, 0), new(Permit)
		all.Go(func() {
			assert.Nil(t, p.Acquire(r, 0))
			p.Cancel(r)
		})
	}
	time.Sleep(time.Second)
	rule.RateLimit = policy.RateLimit{}
	s.update(t, rule)
	r, p := s.request(t, 0), new(Permit)
	assert.Nil(t, p.Acquire(r, 0))
	p.Cancel(r)
	all.Wait()
	assert.Equal(t, time.Second, time.Since(began))
}

// What is told of the limits while they hold requests, and what the fleet is told.
func TestTold(t *testing.T) {
	in := func(t *testing.T, name string, rule policy.Rule, play func(*testing.T, *site)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, rule)
				s.join()
				play(t, s)
			})
		})
	}
	quota := func(r, q int) string { return fmt.Sprintf(`"%d";r=%d;t=30`, q, r) }
	in(t, "quota", paced, func(t *testing.T, s *site) {
		s.ends(t, 200, classify.Final, "Ratelimit-Remaining: 1", "Ratelimit-Limit: 100", "Ratelimit-Reset: 0")
		assert.Empty(t, s.told, "the window is over")
		left := func(n []int) {
			s.ends(t, 200, classify.Final, "Ratelimit: "+quota(n[0], 100)+", "+quota(n[1], 10), `Ratelimit-Policy: "100";q=100;w=60, "10";q=10;w=60;qu="tokens"`)
		}
		for _, row := range []struct {
			left    []int // of 100, and of 10
			message float64
			room    int
			lasts   bool
		}{{[]int{51, 10}, 0, 0, false}, {[]int{50, 10}, 50, 0, false}, {[]int{15, 1}, 15, 1, true}, {[]int{5, 1}, 5, 5, true}, {[]int{90, 9}, 0, 0, false}} {
			s.sent = nil
			left(row.left)
			c, lasts := s.request(t, 0).State.Machines().News().Lasts(news.Key{Condition: news.LowQuota})
			assert.Equal(t, []any{row.lasts, row.room}, []any{lasts, c.Room}, row)
			var amounts []float64
			for _, m := range s.sent {
				if m.Kind == fleetmsg.Quota && m.Limit == 100 {
					assert.Equal(t, 30*time.Second, m.Wait)
					amounts = append(amounts, m.Amount)
				}
			}
			if row.message > 0 {
				assert.Equal(t, []float64{row.message}, amounts, row)
			} else {
				assert.Empty(t, amounts, row)
			}
		}
		assert.Equal(t, []string{change(news.LowQuota, false, 200), change(news.LowQuota, true, 0)}, s.told)
		more := func(p *Permit, header ...string) bool {
			return p.HasMore(s.request(t, 0), &attempt.Outcome{Resp: answer(200, header...)})
		}
		assert.True(t, more(new(Permit), "Ratelimit: "+quota(5, 100)) && more(&Permit{refused: new(attempt.Slot)}) && !more(new(Permit)))
		left([]int{5, 1})
		s.ends(t, 200, classify.Final, "Ratelimit-Remaining: 90", "Ratelimit-Limit: 100", "Ratelimit-Reset: 0")
		assert.Len(t, s.told, 3, "the window is over")
		s.update(t, policy.Rule{})
		s.ends(t, 200, classify.Final)
		assert.Equal(t, []string{change(news.LowQuota, false, 200), change(news.LowQuota, true, 0)}, s.told[2:], "an Update turned the pacing off")
	})
	in(t, "wait in the body", policy.Rule{ShareRetryAfter: policy.On, Classify: classify.Refusals, RetryAfter: func(o classify.Outcome) (time.Duration, bool) {
		if o.Response.Body == http.NoBody {
			return 4 * time.Second, true
		}
		return 8 * time.Second, true
	}}, func(t *testing.T, s *site) {
		r, p, o := s.request(t, 0), new(Permit), attempt.Outcome{Kind: attempt.First, Class: classify.Ambiguous, Resp: answer(503)}
		o.Resp.Body, o.DoneAt = io.NopCloser(strings.NewReader("8 s")), s.registry.Now()
		end := o.DoneAt.Add(8 * time.Second)
		time.Sleep(time.Second)
		p.Headers(r, &o)
		assert.Equal(t, end.Add(-3*time.Second), s.last.Until)
		time.Sleep(time.Second)
		p.Headers(r, &o) // again
		p.Done(r, &o)
		assert.Equal(t, end, r.State.Machines().Throttle.Named(s.registry.Now(), r.scopeKey()), "since the headers")
		go new(Permit).Acquire(r, 0)
		synctest.Wait()
		assert.Equal(t, 1, conditions{r}.present(news.Change{Key: s.last.Key}).Waiting, "requests that wait")
	})
	in(t, "hold", holding, func(t *testing.T, s *site) {
		s.ends(t, 503, classify.Ambiguous, "Retry-After: 4")
		assert.Equal(t, s.registry.Now().Add(4*time.Second), s.last.Until, "without jitter")
		assert.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Meet, Host: "http://h.test"}, {Kind: fleetmsg.Hold, Host: "http://h.test", Status: 503, Wait: 4 * time.Second}}, s.sent)
		s.ends(t, 503, classify.Ambiguous, "Retry-After: 8")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		s.ends(t, 200, classify.Final)
		assert.Len(t, s.told, 1, "it is held still")
	})
	in(t, "ramp", holding, func(t *testing.T, s *site) {
		s.ends(t, 503, classify.Ambiguous, "Retry-After: 4")
		var went atomic.Int32
		for range 5 {
			go func() { new(Permit).Acquire(s.request(t, 0), 0); went.Add(1) }()
		}
		r := s.request(t, 0)
		time.Sleep(r.State.Machines().Throttle.Held(s.registry.Now(), 0).Sub(s.registry.Now()))
		for _, row := range []struct {
			o    attempt.Outcome
			want int32
		}{{attempt.Outcome{Err: syscall.ECONNRESET, Class: classify.Ambiguous}, 1}, {attempt.Outcome{Err: syscall.ECONNRESET}, 1},
			{attempt.Outcome{Resp: answer(500), Class: classify.Ambiguous}, 1}, {attempt.Outcome{Resp: answer(404), Class: classify.Final}, 3}} {
			row.o.SentAt = s.registry.Now()
			synctest.Wait()
			new(Permit).Done(r, &row.o)
			synctest.Wait()
			assert.Equal(t, row.want, went.Load(), "requests that went after %d %v", row.o.Status(), row.o.Err)
		}
	})
	in(t, "hold of the fleet", holding, func(t *testing.T, s *site) {
		s.request(t, 0)
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: 4 * time.Second})
		assert.Empty(t, s.told)
		assert.Nil(t, new(Permit).Acquire(s.request(t, 0), 0))
		assert.Equal(t, fmt.Sprint(news.Held, " false 429 true"), s.told[0], "by the next request")
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 500, Scope: 2})
		new(Permit).review(s.request(t, 0), nil)
		assert.NotContains(t, fmt.Sprint(s.told), "500", "it holds nothing")
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Status: 429, Wait: 4 * time.Second})
		s.update(t, policy.Rule{})
		s.hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "http://h.test", Scope: 1, Wait: 4 * time.Second})
		r := s.request(t, 0)
		assert.True(t, new(Permit).TryAcquire(r, s.registry.Now()), "an Update turned holds off")
	})
	for name, row := range map[string]struct {
		rule policy.Rule
		of   news.Condition
		room int
	}{
		"rate": {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5, Burst: 1}}, news.RateLimited, 0}, "limiter": {limited, news.Crowded, 1},
	} {
		in(t, name, row.rule, func(t *testing.T, s *site) {
			s.registry.Fleet = nil
			for i := range 3 {
				go func() {
					f, p := new(attempt.Attempt), new(Permit)
					assert.Nil(t, p.Acquire(s.request(t, 0), 0))
					p.Start(f)
					time.AfterFunc(2*time.Second, f.Slot.Release)
				}()
				time.Sleep(time.Duration(i) * time.Millisecond)
				synctest.Wait()
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			assert.Equal(t, []string{change(row.of, false, 0)}, s.told)
			assert.Equal(t, []any{1, row.room, instant.Instant(0)}, []any{s.last.Waiting, s.last.Room, s.last.Until})
			time.Sleep(10*time.Second + 996*time.Millisecond) // the last has gone 9.999 s ago
			s.update(t, limited.Or(row.rule))                 // the limiter may be new
			for n := range 2 {
				new(Permit).review(s.request(t, 0), nil)
				assert.Len(t, s.told, 1+n, "attempts told")
				time.Sleep(time.Millisecond)
			}
			assert.Equal(t, []any{change(row.of, true, 0), instant.Instant(0)}, []any{s.told[1], s.last.Until})
		})
	}
	in(t, "slot", limited, func(t *testing.T, s *site) {
		r, p, f := s.request(t, 0), new(Permit), new(attempt.Attempt)
		require.Nil(t, p.Acquire(r, 0))
		p.Start(f)
		p.Landed(f)
		assert.True(t, p.HasMore(r, &attempt.Outcome{Resp: answer(200)}))
		o := attempt.Outcome{Kind: attempt.First, Resp: answer(503), Class: classify.Ambiguous}
		p.Done(r, &o)
		assert.True(t, p.TryAcquire(r, s.registry.Now()), "Done frees the slot")
		(&Permit{refused: &p.slot}).Cancel(r)
		assert.True(t, new(Permit).TryAcquire(r, s.registry.Now()), "so does Cancel")
	})
	in(t, "a share of a quota, and then a slot", paced.Or(limited), func(t *testing.T, s *site) {
		r, p, start := s.request(t, 0), new(Permit), time.Now()
		require.Nil(t, p.Acquire(r, 0))
		s.ends(t, 200, classify.Final, `Ratelimit: "d";r=3;t=40`, `Ratelimit-Policy: "d";q=100;w=60`) // one in 10 s
		time.AfterFunc(4*time.Second, func() { p.Cancel(r) })
		require.Nil(t, new(Permit).Acquire(s.request(t, 0), 0))
		assert.Equal(t, 4*time.Second, time.Since(start), "it takes one share")
	})
	in(t, "little time", limited, func(t *testing.T, s *site) {
		for range 2 {
			p := new(Permit)
			require.Nil(t, p.Acquire(s.request(t, 1005*time.Millisecond), 0), "however long a response takes")
			time.AfterFunc(time.Second, p.slot.Release)
		}
	})
	in(t, "a token that comes soon", rated, func(t *testing.T, s *site) {
		s.registry.Fleet = nil
		for _, deadline := range []time.Duration{0, 0, 2 * time.Millisecond} {
			p := new(Permit)
			no := p.Acquire(s.request(t, deadline), 0)
			assert.Equal(t, deadline > 0, no != nil)
			if no != nil {
				assert.Equal(t, []any{WhyLate, LimitRate}, []any{no.Why, no.Limit})
			} else {
				assert.Less(t, p.Queued.Rate, 6*time.Millisecond)
			}
			time.Sleep(3995 * time.Millisecond)
		}
	})
	in(t, "a new rate", limited.Or(rated), func(t *testing.T, s *site) {
		s.registry.Fleet = nil
		p, start := new(Permit), time.Now()
		require.Nil(t, p.Acquire(s.request(t, 0), 0))
		p.Cancel(s.request(t, 0))
		r, went := s.request(t, 0), make(chan *Rejection)
		go func() { went <- p.Acquire(r, 0) }()
		time.Sleep(time.Second)
		s.update(t, limited.Or(policy.Rule{RateLimit: policy.RateLimit{PerSecond: 100}}))
		s.request(t, 0)
		assert.Nil(t, <-went)
		p.Cancel(r)
		next := new(Permit)
		assert.Nil(t, next.Acquire(s.request(t, 0), 0))
		assert.Equal(t, attempt.Queued{Rate: 10 * time.Millisecond}, next.Queued)
		assert.Equal(t, 1017500*time.Microsecond, time.Since(start), "seven quarters of a token at the new rate")
	})
	in(t, "tokens at the limiter", limited.Or(rated), func(t *testing.T, s *site) {
		var went atomic.Int32
		go func() { new(Permit).Acquire(s.request(t, 0), 0); went.Add(1) }()
		time.Sleep(time.Millisecond)
		s.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: "http://h.test", Wait: 50 * time.Millisecond})
		time.Sleep(64 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, went.Load(), "permits")
		assert.Equal(t, []any{3, fleetmsg.AskTokens}, []any{len(s.sent), s.sent[2].Kind}, "it asks again, although it waits in the queue of the limiter")
		s.hear(fleetmsg.Message{Kind: fleetmsg.Tokens, Host: "http://h.test", Amount: 1, Wait: time.Minute})
		synctest.Wait()
		assert.EqualValues(t, 1, went.Load(), "permits")
	})
	in(t, "tokens that a refused request needs", rated, func(t *testing.T, s *site) {
		require.Nil(t, new(Permit).Acquire(s.request(t, 0), 0))
		for range 2 {
			time.Sleep(300 * time.Millisecond)
			assert.NotNil(t, new(Permit).Acquire(s.request(t, time.Second), 0))
		}
		last := s.sent[len(s.sent)-1]
		assert.Equal(t, []any{fleetmsg.AskTokens, 1.0}, []any{last.Kind, last.Amount})
	})
	in(t, "a wait below zero", policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { return -time.Second, true }}, func(t *testing.T, s *site) {
		assert.Zero(t, s.ends(t, 503, classify.Ambiguous))
	})
	in(t, "a rate that is removed", limited.Or(rated), removed)
	in(t, "a rate that is removed, without a limiter", rated, removed)
	in(t, "log", policy.Rule{}, func(t *testing.T, s *site) {
		s.request(t, 0)
		m := s.request(t, 0).State.Machines()
		for range 7 {
			m.News().TakeLine(s.registry.Now(), news.Change{})
		}
		for range 10 {
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			s.ends(t, 500, classify.Ambiguous)
		}
		assert.Empty(t, s.state)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.ends(t, 500, classify.Ambiguous)
		require.Len(t, s.state, 1, "conditions that last")
		assert.EqualValues(t, news.Down, s.state[0].Condition)
	})
	in(t, "rest of the news", policy.Rule{}, func(t *testing.T, s *site) {
		n, told := s.request(t, 0).State.Machines().News(), false
		assert.Panics(t, func() { n.Tell(func() { n.Tell(func() { told = true }); panic("hook") }) })
		new(Permit).review(s.request(t, 0), nil)
		assert.True(t, told, "by the next request")
	})
}
