// Package exchangetest has a host with requests to it, for the tests of package exchange and of the limits.
package exchangetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// Name is the host of a Site.
const Name = "http://h.test"

// A Site is a host with the requests to it, who watches it, and its fleet.
type Site struct {
	Registry exchange.Registry
	Told     []string // changes
	Last     news.Change
	State    []news.Change // that the log was told
	Sent     []fleetmsg.Message
	Hear     func(fleetmsg.Message)
	set      *rules.Ruleset
}

// A Permit is that of an attempt whose rule needs a permit.
type Permit interface {
	Headers(*exchange.Request, *attempt.Outcome)
	Done(r *exchange.Request, o *attempt.Outcome, retryAfter time.Duration, u float64) float64
}

// New returns a host with a rule, whose clock has run for a minute.
func New(t *testing.T, rule policy.Rule) *Site {
	t.Helper()
	s := &Site{}
	s.Registry.Prepare(func(*host.State[rules.Resolved]) {})
	s.Registry.Watched = true
	s.Update(t, rule)
	time.Sleep(time.Minute)
	synctest.Wait()
	return s
}

// Play runs a test in virtual time with a host with a rule. With a name it is a subtest.
func Play(t *testing.T, name string, rule policy.Rule, play func(*testing.T, *Site)) {
	t.Helper()
	bubble := func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(t, New(t, rule)) }) }
	if name == "" {
		bubble(t)
	} else {
		t.Run(name, bubble)
	}
}

// Update gives the requests that begin from now on another rule.
func (s *Site) Update(t *testing.T, rule policy.Rule) {
	t.Helper()
	set, faults := rules.NewRuleset(rule, nil, new(rules.Owner))
	require.Empty(t, faults)
	s.set = set
	s.Registry.Rules.Store(set)
}

// Join makes the site the fleet of its host. The number of a scope is the length of its text.
func (s *Site) Join() {
	s.Registry.Fleet = (&member.Backend{
		Join:  func(hear func(fleetmsg.Message)) error { s.Hear = hear; return nil },
		Tell:  func(m fleetmsg.Message) { s.Sent = append(s.Sent, m) },
		Scope: func(text string) uint64 { return uint64(len(text)) },
	}).Link()
	_ = s.Registry.Fleet.Join(s.Registry.Clock)
}

// Request begins a request that has some time, or any if that is 0.
func (s *Site) Request(t *testing.T, d time.Duration) *exchange.Request {
	t.Helper()
	ctx := t.Context()
	if d > 0 {
		until, cancel := context.WithTimeout(ctx, d)
		t.Cleanup(cancel)
		ctx = until
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, Name+"/", nil)
	require.NoError(t, err)
	state := s.Registry.Hosts.Acquire(req.URL)
	return &exchange.Request{Observer: s, Registry: &s.Registry, Req: req, Ctx: ctx, State: state, Rule: s.Registry.HostRule(state, s.set)}
}

// Done tells the line, the limits and the observer the outcome of an attempt, in the order in which transport does it. A nil
// permit is that of a rule that needs none.
func (s *Site) Done(r *exchange.Request, p Permit, o *attempt.Outcome) (retryAfter time.Duration, u float64) {
	retryAfter, u = new(exchange.Turn).Done(r, o), rand.Float64()
	if p != nil {
		u = p.Done(r, o, retryAfter, u)
	}
	r.Review()
	return retryAfter, u
}

// Ends notes the response to a request, and returns how long it asks to wait.
func (s *Site) Ends(t *testing.T, p Permit, code int, v classify.Class, header ...string) (retryAfter time.Duration) {
	t.Helper()
	r := s.Request(t, 0)
	o := attempt.Outcome{Kind: attempt.First, Resp: Answer(code, header...), Class: v, SentAt: s.Registry.Now()}
	if p != nil {
		p.Headers(r, &o)
	}
	retryAfter, _ = s.Done(r, p, &o)
	return retryAfter
}

// Answer returns a response without a body. A header is a line such as "Retry-After: 4".
func Answer(code int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{}, Body: http.NoBody}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Set(name, value)
	}
	return resp
}

// Change returns the text by which Told has a change.
func Change(c news.Condition, over bool, status int, fleet bool) string {
	return fmt.Sprint(c, over, status, fleet)
}

// Tells is that of an exchange.Observer.
func (s *Site) Tells(c news.Change) func() {
	return func() {
		s.Told = append(s.Told, Change(c.Condition, c.Over, c.Cause.Status, c.Fleet))
		s.Last = c
	}
}

// LogsState is that of an exchange.Observer.
func (s *Site) LogsState(all []news.Change) func() { return func() { s.State = all } }

// Safe is that of an exchange.Observer.
func (s *Site) Safe(err error) error { return err }
