// A caller with one request and its response.

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	errHorizon  = errors.New("simulate: the end of the story")
	errPatience = errors.New("simulate: the caller has waited for long enough")
)

// An event is the end of an attempt, with the time when the Trace was told.
type event struct {
	at time.Duration
	transport.AttemptEnd
}

// A call is one request of a caller.
type call struct {
	world   *world
	plan    *callPlan
	rule    policy.Rule // complete
	last    bool        // sent at the end of the story, when the server is well
	content text
	req     *http.Request
	before  *http.Request // a copy of it, to compare
	bodies  []*reqBody

	// Only the caller writes these, until done is closed.
	done     chan struct{}
	resp     *http.Response
	err      error
	panicked any
	exited   bool
	served   *attempt   // the attempt that returned resp, or from which its body comes
	replaced []*attempt // the attempts before it, whose bodies were cut
	read     int64
	readErr  error
	reading  time.Duration // when the last Read began
	closed   bool

	// These are guarded by world.mu.
	returned time.Duration // from RoundTrip; never, while it has not
	attempts []*attempt
	acts     []*attempt
	events   []event
	hedged   []time.Duration // when a hedge went
	begun    int             // attempts that a Trace was told to begin
	ended    int             // attempts that a Trace was told to end
	progress int64           // bytes that the reconnects brought
	dry      int

	ends time.Duration // when the caller's patience does

	mu     sync.Mutex // guards hooked, and bodies once the request is sent
	hooked map[string]int
}

func (c *call) violate(o Oracle, format string, args ...any) {
	c.world.violate(o, c, format, args...)
}

// hook is called in each callback. It panics if the plan says so.
func (c *call) hook(where string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.hooked[where]++
	n := c.hooked[where]
	c.mu.Unlock()
	if c.plan.hook == where && c.plan.hookAt == n {
		panic(&scripted{where})
	}
}

func (w *world) newCall(plan *callPlan) *call {
	c := &call{
		world: w, plan: plan, content: text{key: dice.Mix(w.plan.seed + uint64(plan.id))},
		done: make(chan struct{}), returned: never, hooked: make(map[string]int),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	return c
}

// begin starts a caller.
func (w *world) begin(ctx context.Context, plan *callPlan) {
	c := w.newCall(plan)
	go func() {
		defer close(c.done)
		time.Sleep(plan.at - w.now())
		c.live(ctx, w.plan.horizon)
	}()
}

// live runs the caller from its request to the end of the response's body.
func (c *call) live(ctx context.Context, horizon time.Duration) {
	w := c.world
	c.plan.at = max(c.plan.at, w.now())
	c.rule = w.plan.ruleOf(c.plan.host, c.plan.at)
	ctx, stop := c.patience(ctx, horizon)
	defer stop()
	c.newRequest(ctx)
	w.tell(c.plan.id, "%v", c.plan)
	c.roundTrip()
	w.tell(c.plan.id, "returned %s", c.outcome())
	c.checkReturn()
	if c.resp != nil {
		c.consume()
		w.tell(c.plan.id, "read %d bytes, error %v, closed %v", c.read, c.readErr, c.closed)
	}
}

func (c *call) outcome() string {
	switch {
	case c.panicked != nil:
		return fmt.Sprintf("by a panic: %v", c.panicked)
	case c.exited:
		return "by the end of the goroutine"
	case c.err != nil:
		return "error " + c.err.Error()
	case c.resp == nil:
		return "nothing"
	}
	return c.resp.Status
}

// patience returns the request's context and notes when it ends.
func (c *call) patience(ctx context.Context, horizon time.Duration) (context.Context, func()) {
	c.ends = horizon
	ctx = context.WithValue(ctx, callKey{}, c)
	switch c.plan.sending {
	case 1:
		ctx = transport.WithIdempotent(ctx)
	case 2:
		ctx = transport.WithoutRetries(ctx)
	}
	stop := func() {}
	if c.plan.deadline > 0 {
		ctx, stop = context.WithDeadlineCause(ctx, c.world.start.Add(c.plan.at+c.plan.deadline), errPatience)
		c.ends = min(c.ends, c.plan.at+c.plan.deadline)
	}
	if c.plan.cancel > 0 {
		c.ends = min(c.ends, c.plan.at+c.plan.cancel)
		if !c.plan.oldStyle {
			var cancel context.CancelCauseFunc
			ctx, cancel = context.WithCancelCause(ctx)
			time.AfterFunc(c.plan.cancel, func() { cancel(errPatience) })
		}
	}
	return ctx, stop
}

// newRequest makes the request. Its URL contains secrets.
func (c *call) newRequest(ctx context.Context) {
	p, secret := c.plan, c.world.secret
	u, err := url.Parse(c.world.plan.hosts[p.host].origin + p.path)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword("user", secret)
	u.RawQuery = [...]string{"", "token=" + secret, "a=b&c=" + secret}[p.id%3]
	req := (&http.Request{
		Method: p.method, URL: u, Header: make(http.Header), Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	req.Header.Set("Authorization", "Bearer "+strconv.Itoa(p.user))
	if p.key {
		req.Header.Set("Idempotency-Key", strconv.Itoa(p.id))
	}
	if p.rng != "" {
		req.Header.Set("Range", p.rng)
	}
	if p.upgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "sim")
	}
	c.setBody(req)
	if p.cancel > 0 && p.oldStyle {
		canceled := make(chan struct{})
		//lint:ignore SA1019 old callers still set Request.Cancel
		req.Cancel = canceled
		time.AfterFunc(p.cancel, func() { close(canceled) })
	}
	c.req, c.before = req, req.Clone(ctx)
}

// roundTrip sends the request in a goroutine of its own, because the base
// transport may end that goroutine.
func (c *call) roundTrip() {
	ended := make(chan struct{})
	go func() {
		c.exited = true
		defer close(ended)
		defer func() {
			if c.panicked = recover(); c.panicked != nil {
				c.exited = false
				if _, ok := c.panicked.(*scripted); !ok {
					c.violate(Panics, "%v\n%s", c.panicked, debug.Stack())
				}
			}
		}()
		resp, err := c.world.client(c.plan.member).RoundTrip(c.req)
		c.resp, c.err, c.exited = resp, err, false
	}()
	<-ended
	c.world.mu.Lock()
	c.returned = c.world.now()
	c.world.mu.Unlock()
}

// consume reads the response's body in the way of the caller's appetite.
func (c *call) consume() {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(*scripted); !ok {
				c.violate(Panics, "in a Read of the response: %v\n%s", p, debug.Stack())
			}
		}
	}()
	body, limit := c.resp.Body, int64(1)<<20
	close := func() {
		c.closed = true
		_ = body.Close()
	}
	var pause time.Duration
	switch c.plan.appetite {
	case closesAtOnce:
		close()
		return
	case closesMeanwhile:
		time.AfterFunc(c.plan.pause, func() { _ = body.Close() })
		c.closed = true
	case readsPart, forgets:
		limit = c.plan.part
	case dawdles:
		pause = c.plan.pause / 10
	}
	c.readErr = c.readUpTo(body, limit, pause)
	if c.plan.appetite != forgets {
		close()
	}
}

// isOver reports whether the story is over. That ends even the slowest reader.
func (c *call) isOver() bool { return !c.last && isClosed(c.world.over) }

// readUpTo reads limit bytes, or fewer if the body ends before.
func (c *call) readUpTo(body io.Reader, limit int64, pause time.Duration) error {
	buf := make([]byte, 8<<10)
	for c.read < limit && !c.isOver() {
		piece := buf[:min(limit-c.read, int64(len(buf)))]
		c.reading = c.world.now()
		n, err := body.Read(piece)
		if n > len(piece) {
			return errCount
		}
		c.take(buf[:n])
		switch err {
		case nil:
		case io.EOF:
			return c.readEnded(nil)
		default:
			return c.readEnded(err)
		}
		time.Sleep(pause)
	}
	return nil
}
