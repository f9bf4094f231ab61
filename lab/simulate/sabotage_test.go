package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// An rt is a RoundTripper that calls a function.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A saboteur is a Transport with a deliberate defect.
type saboteur struct {
	Client
	roundTrip rt
	snapshot  func([]transport.HostState) []transport.HostState
}

func (s *saboteur) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.roundTrip == nil {
		return s.Client.RoundTrip(req)
	}
	return s.roundTrip(req)
}

func (s *saboteur) Snapshot() transport.Snapshot {
	if s.snapshot == nil {
		return s.Client.Snapshot()
	}
	return transport.Snapshot{Hosts: s.snapshot(s.Client.Snapshot().Hosts)}
}

// around breaks the way of a request through the Transport with a Config.
func around(f func(c transport.Config, next Client) rt) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		next, err := aTransport(p, c)
		return &saboteur{Client: next, roundTrip: f(c, next)}, err
	}
}

// above breaks the request that the Transport gets or the response that the
// caller gets.
func above(f func(next http.RoundTripper, req *http.Request) (*http.Response, error)) maker {
	return around(func(_ transport.Config, next Client) rt {
		return func(req *http.Request) (*http.Response, error) { return f(next, req) }
	})
}

// breaksResponses breaks the responses that the caller gets.
func breaksResponses(f func(*http.Response)) maker {
	return above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if resp != nil {
			f(resp)
		}
		return resp, err
	})
}

// breaksBodies breaks the request's body, in a copy of the request.
func breaksBodies(f func(io.ReadCloser) io.ReadCloser) maker {
	return above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.Body == nil {
			return next.RoundTrip(req)
		}
		broken := req.WithContext(req.Context())
		broken.Body, broken.GetBody = f(req.Body), nil
		return next.RoundTrip(broken)
	})
}

// changesRules breaks the rules of all hosts.
func changesRules(f func(*policy.Rule)) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		for name, rule := range c.Hosts {
			f(&rule)
			c.Hosts[name] = rule
		}
		return aTransport(p, c)
	}
}

// below breaks the responses of the base transport.
func below(f func(*http.Response)) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		base := c.Base
		c.Base = rt(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if resp != nil {
				f(resp)
			}
			return resp, err
		})
		return aTransport(p, c)
	}
}

// A body is a request or response body made of parts.
type body struct {
	io.Reader
	io.Closer
}

// twice reads in two goroutines at the same time.
type twice struct{ io.ReadCloser }

func (t twice) Read(p []byte) (int, error) {
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = t.ReadCloser.Read(make([]byte, 1))
	}()
	n, err := t.ReadCloser.Read(p)
	<-first
	return n, err
}

// always ends properly, even after an error.
type always struct{ io.ReadCloser }

func (a always) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// other returns wrong bytes.
type other struct{ io.ReadCloser }

func (o other) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	for i := range p[:n] {
		p[i]++
	}
	return n, err
}

// forgetful removes the mark by which a Transport below says that it gave up.
func forgetful(next http.RoundTripper) http.RoundTripper {
	return rt(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if resp != nil {
			clean := *resp
			clean.Header, clean.Request = resp.Header.Clone(), req
			return &clean, nil
		}
		var e *transport.Error
		if errors.As(err, &e) {
			return nil, e.Err
		}
		return nil, err
	})
}

// A defect is one that somebody should complain of.
type defect struct {
	name   string
	breaks Oracle
	client maker
}

// sabotage breaks each promise at least once.
var sabotage = []defect{
	{"a header is added to the caller's request", Request, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		req.Header.Set("X-Mine", "1")
		return next.RoundTrip(req)
	})},
	{"the context's values are lost", Request, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		return next.RoundTrip(req.WithContext(context.Background()))
	})},
	{"bodies are not closed", Closed, breaksBodies(func(b io.ReadCloser) io.ReadCloser { return io.NopCloser(b) })},
	{"errors get another type", Outcome, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			err = errors.New(err.Error())
		}
		return resp, err
	})},
	{"errors lose their reason", Outcome, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if e, ok := errors.AsType[*transport.Error](err); ok && ofRequest(e.Reason) {
			err = e.Err
		}
		return resp, err
	})},
	{"failures are made errors", Outcome, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if resp != nil && resp.StatusCode >= 500 {
			_ = resp.Body.Close()
			return nil, errors.New(resp.Status)
		}
		return resp, err
	})},
	{"the last response is closed", Outcome, breaksResponses(func(resp *http.Response) { _ = resp.Body.Close() })},
	{"every request is repeated", ActedOnce, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil || req.GetBody == nil {
			return resp, err
		}
		again := req.Clone(req.Context())
		again.Body, _ = req.GetBody()
		return next.RoundTrip(again)
	})},
	{"half of each body is sent", Stored, breaksBodies(func(b io.ReadCloser) io.ReadCloser { return body{io.LimitReader(b, 10), b} })},
	{"another body is sent", Stored, breaksBodies(func(b io.ReadCloser) io.ReadCloser { return other{b} })},
	{"failures are sent again", TooOften, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil || req.Body != nil {
			return resp, err
		}
		return next.RoundTrip(req)
	})},
	{"what is asked for is overheard", Early, below(func(resp *http.Response) {
		resp.Header.Del("Retry-After")
		resp.Header.Del("Retry-After-Ms")
		resp.Header.Del("RateLimit")
	})},
	{"each has a throttle of its own", Hold, changesRules(func(r *policy.Rule) { r.ShareRetryAfter = policy.Off })},
	{"a sleep up to the deadline", Futile, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if _, ok := req.Context().Deadline(); !ok || err == nil {
			return resp, err
		}
		<-req.Context().Done()
		return nil, req.Context().Err()
	})},
	{"a sleep that sees no context", Prompt, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			time.Sleep(time.Second)
		}
		return resp, err
	})},
	{"two goroutines read the body", OneReader, breaksBodies(func(b io.ReadCloser) io.ReadCloser { return twice{b} })},
	{"responses are not closed", Discarded, below(func(resp *http.Response) { resp.Body = body{resp.Body, io.NopCloser(nil)} })},
	{"responses are read without a bound", Discarded, below(func(resp *http.Response) {
		if resp.StatusCode >= 500 {
			inner := resp.Body
			all, _ := io.ReadAll(inner)
			resp.Body = body{bytes.NewReader(all), inner}
		}
	})},
	{"a PUT is sent again after its response", TooOften, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusOK || req.Method != http.MethodPut || req.GetBody == nil {
			return resp, err
		}
		again := req.Clone(req.Context())
		again.Body, _ = req.GetBody()
		_ = resp.Body.Close()
		return next.RoundTrip(again)
	})},
	{"responses are held back", HeldBack, breaksResponses(func(*http.Response) { time.Sleep(3 * time.Second) })},
	{"a tunnel is wrapped", Writer, breaksResponses(func(resp *http.Response) { resp.Body = body{resp.Body, resp.Body} })},
	{"a cut is an end", Spliced, breaksResponses(func(resp *http.Response) { resp.Body = always{resp.Body} })},
	{"other bytes", Spliced, breaksResponses(func(resp *http.Response) { resp.Body = other{resp.Body} })},
	{"no budget", Budget, changesRules(func(r *policy.Rule) { r.RetryBudget = policy.RetryBudget{Enabled: policy.Off} })},
	{"an attempt is told twice", Told, func(p *plan, c transport.Config) (Client, error) {
		if c.Traces != nil {
			again := c.Traces[0].AttemptEnd
			c.Traces[0].AttemptEnd = func(ctx context.Context, a transport.AttemptEnd) { again(ctx, a); again(ctx, a) }
		}
		return aTransport(p, c)
	}},
	{"a goroutine is left", Leak, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		go func() { select {} }()
		return next.RoundTrip(req)
	})},
	{"a slot is lost", Leak, func(p *plan, c transport.Config) (Client, error) {
		next, err := aTransport(p, c)
		return &saboteur{Client: next, snapshot: func(all []transport.HostState) []transport.HostState {
			if len(all) > 0 {
				all[0].ConcurrencyInUse++
			}
			return all
		}}, err
	}},
	{"a request waits without need", Leak, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		time.Sleep(time.Millisecond)
		return next.RoundTrip(req)
	})},
	{"marks are lost", Nested, func(p *plan, c transport.Config) (Client, error) {
		if !p.nested {
			return aTransport(p, c)
		}
		return nest(c, forgetful)
	}},
	{"the URL is logged", Secret, around(func(c transport.Config, next Client) rt {
		return func(req *http.Request) (*http.Response, error) {
			if c.Logger != nil {
				c.Logger.Info("sent", "url", req.URL.String())
			}
			return next.RoundTrip(req)
		}
	})},
	{"the URL is in the error", Secret, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			err = fmt.Errorf("%s: %w", req.URL, err)
		}
		return resp, err
	})},
	{"a timer that runs while the caller is slow", Patience, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		ctx, stop := context.WithTimeoutCause(req.Context(), 10*time.Millisecond, policy.ErrAttemptTimeout)
		defer stop()
		return next.RoundTrip(req.WithContext(ctx))
	})},
	{"requests wait at a limiter without need", Room, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		time.Sleep(fleetIdle + time.Second)
		return next.RoundTrip(req)
	})},
	{"attempts are sent twice at once", Beside, func(p *plan, c transport.Config) (Client, error) {
		base := c.Base
		c.Base = rt(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				return base.RoundTrip(req)
			}
			var other sync.WaitGroup
			defer other.Wait()
			other.Go(func() {
				defer func() { _ = recover() }() // the base panics twice
				if resp, _ := base.RoundTrip(req); resp != nil {
					_ = resp.Body.Close()
				}
			})
			return base.RoundTrip(req)
		})
		return aTransport(p, c)
	}},
	{"a member tells of each request", Asked, inFleet(func(f *broken, c transport.Config, next Client) rt {
		return func(req *http.Request) (*http.Response, error) {
			f.fleet.Tell(fleetmsg.Message{Kind: fleetmsg.Working, Host: req.URL.Scheme + "://" + req.URL.Host})
			return next.RoundTrip(req)
		}
	})},
	{"a member waits for the fleet", Answered, inFleet(func(f *broken, _ transport.Config, _ Client) rt {
		f.tell = func() { time.Sleep(20 * time.Millisecond) }
		return nil
	})},
	{"members refuse what others were told to wait for", Hearsay, inFleet(func(f *broken, _ transport.Config, next Client) rt {
		return func(req *http.Request) (*http.Response, error) {
			if f.held() > 0 {
				return nil, &transport.Error{History: transport.History{Reason: transport.ReasonThrottled}, Err: context.DeadlineExceeded}
			}
			return next.RoundTrip(req)
		}
	})},
	{"members obey all that others were told", Stopped, inFleet(func(f *broken, _ transport.Config, next Client) rt {
		return func(req *http.Request) (*http.Response, error) {
			time.Sleep(f.held())
			return next.RoundTrip(req)
		}
	})},
	{"holds become longer on the way", Longer, inFleet(func(f *broken, _ transport.Config, _ Client) rt {
		f.heard = func(m *fleetmsg.Message) {
			if m.Wait > 0 {
				m.Wait += 40 * time.Second
			}
		}
		return nil
	})},
	{"each member is alone with its rate", Rated, func(p *plan, c transport.Config) (Client, error) {
		c.Fleet = nil
		return aTransport(p, c)
	}},
	{"a member stays away after an outage", Returned, inFleet(func(f *broken, _ transport.Config, next Client) rt {
		var down atomic.Bool
		f.heard = func(m *fleetmsg.Message) { down.Store(down.Load() || m.Kind == fleetmsg.Down) }
		return func(req *http.Request) (*http.Response, error) {
			if down.Load() {
				time.Sleep(2 * time.Second)
			}
			return next.RoundTrip(req)
		}
	})},
	{"each request costs the same", Costs, changesRules(func(r *policy.Rule) { r.Cost = nil })},
	{"Cost is asked again", Costs, changesRules(func(r *policy.Rule) {
		if own := r.Cost; own != nil {
			r.Cost = func(req *http.Request) int { return max(own(req), own(req)) }
		}
	})},
	{"a panic", Panics, above(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		_ = resp.Status
		return resp, err
	})},
}

// A broken is the Fleet of a member with a deliberate defect. A nil func breaks nothing.
type broken struct {
	fleet *member.Backend
	tell  func()
	heard func(*fleetmsg.Message)

	mu    sync.Mutex // guards until
	until time.Time  // of the longest hold that the member has heard of
}

func (f *broken) join(hear func(fleetmsg.Message)) error {
	return f.fleet.Join(func(m fleetmsg.Message) {
		if m.Kind == fleetmsg.Hold {
			f.mu.Lock()
			f.until = time.Now().Add(m.Wait)
			f.mu.Unlock()
		}
		if f.heard != nil {
			f.heard(&m)
		}
		hear(m)
	})
}

func (f *broken) says(m fleetmsg.Message) {
	if f.tell != nil {
		f.tell()
	}
	f.fleet.Tell(m)
}

// held returns how long the last hold lasts that the member has heard of.
func (f *broken) held() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.until)
}

// inFleet breaks a member or its fleet. breaks returns how the member sends requests, or nil.
func inFleet(breaks func(f *broken, c transport.Config, next Client) rt) maker {
	return func(p *plan, c transport.Config) (Client, error) {
		if c.Fleet == nil {
			return aTransport(p, c)
		}
		f := &broken{fleet: member.BackendOf(c.Fleet)}
		c.Fleet = &member.Backend{Join: f.join, Tell: f.says, Scope: f.fleet.Scope, State: f.fleet.State}
		next, err := aTransport(p, c)
		return &saboteur{Client: next, roundTrip: breaks(f, c, next)}, err
	}
}

// matters reports whether a plan has what the oracle judges. The others are not played, which takes
// most of the time off TestOracles.
func (o Oracle) matters(p *plan) bool {
	scene := func(kind sceneKind) bool {
		return slices.ContainsFunc(p.hosts, func(h *host) bool { return h.scene != nil && h.scene.kind == kind })
	}
	switch o {
	case Nested:
		return p.nested
	case Room:
		return slices.ContainsFunc(p.hosts, func(h *host) bool { return gated(h.rule) && h.rule.Concurrency.FailFast != policy.On })
	case Asked:
		return scene(peace)
	case Answered:
		return scene(plenty)
	case Rated:
		return scene(rated)
	case Returned:
		return scene(blackout)
	case Stopped:
		return scene(neighbour)
	case Hearsay, Longer:
		return scene(refusedAll)
	case Costs:
		return slices.ContainsFunc(p.hosts, func(h *host) bool { return h.rule.Cost != nil })
	}
	return true
}

// TestOracles breaks each promise and checks that its oracle complains.
func TestOracles(t *testing.T) {
	const most = 300
	broken := make(map[Oracle]bool)
	for _, s := range sabotage {
		broken[s.breaks] = true
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for seed, played := uint64(0), 0; played < most; seed++ {
				p := newPlan(seed)
				if !s.breaks.matters(p) {
					continue
				}
				played++
				for _, v := range play(t, p, s.client, nil).Violations {
					if v.Oracle == s.breaks {
						t.Logf("seed %d: %s", seed, strings.SplitN(v.Text, "\n", 2)[0])
						return
					}
				}
			}
			t.Errorf("%d stories, and nobody complained of: %s", most, s.breaks)
		})
	}
	for _, o := range oracles {
		assert.True(t, broken[o], "nothing breaks: %s", o)
	}
}
