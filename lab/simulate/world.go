// A story from its beginning to its end, the record of it, and a log that is searched for secrets.

package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A Client is the RoundTripper under test. It is a Transport or something
// broken.
type Client interface {
	http.RoundTripper
	Update(policy.Rule, map[string]policy.Rule) error
	Snapshot() transport.Snapshot
}

// A maker makes the client of a story. It is called within the synctest bubble.
type maker func(p *plan, c transport.Config) (Client, error)

// aTransport makes a Transport, or a Transport around another if the plan says
// so.
func aTransport(p *plan, c transport.Config) (Client, error) {
	if !p.nested {
		return transport.New(c)
	}
	return nest(c, nil)
}

// A pair is a Transport around another Transport, which has no observers.
type pair struct {
	*transport.Transport
	inner *transport.Transport
}

// nest puts a Transport around another. If between is not nil, it stands
// between the two.
func nest(c transport.Config, between func(http.RoundTripper) http.RoundTripper) (Client, error) {
	inner := c
	inner.Traces, inner.Logger = nil, nil
	t, err := transport.New(inner)
	if err != nil {
		return nil, err
	}
	c.NewPool = nil // the inner Transport has the connections
	if c.Base = t; between != nil {
		c.Base = between(t)
	}
	outer, err := transport.New(c)
	return &pair{outer, t}, err
}

func (p *pair) Update(r policy.Rule, hosts map[string]policy.Rule) error {
	return errors.Join(p.inner.Update(r, hosts), p.Transport.Update(r, hosts))
}

func (p *pair) Snapshot() transport.Snapshot {
	return transport.Snapshot{Hosts: append(p.inner.Snapshot().Hosts, p.Transport.Snapshot().Hosts...)}
}

// A world is a running story. It lives in a bubble of testing/synctest.
type world struct {
	plan    *plan
	clients []Client // one, or one for each member of the fleet; a member that is not born yet has none
	links   []*link  // of the members
	start   time.Time
	over    chan struct{} // closed when the patience of all callers has ended
	secret  string

	mu         sync.Mutex // guards the fields below
	calls      []*call
	attempts   []*attempt
	story      []entry
	violations []Violation
	backend    *fleettest.Memory // of the fleet
	said       []said            // by and to members
}

// An entry is one event of the story.
type entry struct {
	at     time.Duration
	call   int // negative: nobody's, or news
	format string
	args   []any
}

// news is the call of the entries about what the members of a fleet tell and hear.
const news = -2

// A Violation is a broken promise.
type Violation struct {
	Oracle Oracle
	Call   int // negative: nobody's
	At     time.Duration
	Text   string
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// tell adds an entry to the story. The arguments must not change afterwards.
func (w *world) tell(call int, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, entry{w.now(), call, format, args})
}

// violate notes a broken promise. If it belongs to no call, the call is nil.
func (w *world) violate(o Oracle, c *call, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complain(o, c, format, args...)
}

// complain is violate; the lock is held.
func (w *world) complain(o Oracle, c *call, format string, args ...any) {
	v := Violation{o, -1, w.now(), fmt.Sprintf(format, args...)}
	if c != nil {
		v.Call = c.plan.id
	}
	w.violations = append(w.violations, v)
	w.story = append(w.story, entry{v.At, v.Call, "✗ %s: %s", []any{v.Oracle, v.Text}})
}

// arrive notes an attempt and draws its script.
func (w *world) arrive(req *http.Request) *attempt {
	c := callOf(req.Context())
	if c == nil {
		w.violate(Request, nil, "an attempt without the values of its caller's context")
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.plan.hosts[c.plan.host]
	s := &attempt{
		world: w, call: c, host: h, id: len(w.attempts), number: len(c.attempts) + 1,
		hedge: c.anyAttempt(func(s *attempt) bool { return s.ended >= w.now() }),
		req:   req, rng: req.Header.Get("Range"), began: w.now(), ended: never, cut: never,
	}
	c.attempts = append(c.attempts, s)
	mood, until := h.moodAt(s.began)
	if h.scene == nil {
		s.script = newScript(w.plan.seed, h, mood, c.plan.id, s.number)
	} else {
		s.script = h.scene.script(c.plan, s.began)
	}
	if c.last {
		s.script = &script{outcome: responds, status: 200, takes: time.Millisecond, piece: 1 << 10, quota: -1}
	}
	if c.mayStall() {
		// A Close that waits in a sync.Once for another Close would stop
		// virtual time.
		s.script.blocks = 0
	}
	if mood == exhausted {
		s.script.told.wait = (until - s.began + time.Second - 1).Truncate(time.Second)
	}
	s.late = c.ends < s.began
	w.attempts = append(w.attempts, s)
	w.story = append(w.story, entry{s.began, c.plan.id, "  attempt %d at %s: the server %v", []any{s.number, h.name, *s.script}})
	w.checkArrival(s)
	return s
}

// moodAt returns the host's mood and when it ends. After the last phase the
// host is well.
func (h *host) moodAt(now time.Duration) (mood, time.Duration) {
	for _, p := range h.weather {
		if now < p.until {
			return p.mood, p.until
		}
	}
	return fine, never
}

// leave notes the result of the base transport.
func (s *attempt) leave(err error) {
	w := s.world
	dead := s.req.Context().Err() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	s.ended, s.err, s.dead = w.now(), err, dead
	if err != nil {
		s.told = 0 // a response beside an error says nothing
	}
	w.story = append(w.story, entry{s.ended, s.call.plan.id, "  attempt %d: status %d, wait %v, error %v", []any{s.number, s.status, s.told, err}})
}

// act notes that the server acted on the request.
func (s *attempt) act() {
	w := s.world
	w.mu.Lock()
	defer w.mu.Unlock()
	s.call.acts = append(s.call.acts, s)
	w.story = append(w.story, entry{w.now(), s.call.plan.id, "  attempt %d: the server acts", []any{s.number}})
}

// A Report is the result of a story.
type Report struct {
	Seed       uint64
	Calls      int
	Attempts   int
	Violations []Violation
	cast       string
	story      []entry
}

// run plays a story with the calls that keep allows. A nil keep allows all
// calls. run must be called in a bubble. It is a defect if anything of the
// story is left when run returns.
func run(p *plan, client maker, keep func(call int) bool) (r Report) {
	w := &world{plan: p, start: time.Now(), over: make(chan struct{}), secret: fmt.Sprintf("SECRET%d", p.seed)}
	if !w.people(client) {
		return w.report()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	for _, plan := range p.calls {
		if keep == nil || keep(plan.id) {
			w.begin(ctx, plan)
		}
	}
	go w.update(ctx)
	time.Sleep(p.horizon - time.Minute)
	w.checkBack()
	time.Sleep(p.horizon - w.now())
	cancel(errHorizon)
	close(w.over)
	time.Sleep(time.Minute) // late goroutines end in this time
	w.finish()
	return w.report()
}

// people makes the clients of the story, and reports whether that worked.
func (w *world) people(client maker) bool {
	f := w.plan.fleet
	if f == nil {
		c, err := client(w.plan, w.config(nil))
		if err != nil {
			w.violate(Panics, nil, "the configuration is refused: %v", err)
			return false
		}
		w.clients = []Client{c}
		return true
	}
	w.backend, w.clients = fleettest.NewMemory(), make([]Client, len(f.members))
	for i, p := range f.members {
		w.links = append(w.links, &link{world: w, id: i, process: p})
	}
	for _, l := range w.links {
		if !w.bear(l, client) {
			return false
		}
	}
	w.liveFleet()
	return true
}

// bear makes the client of a member when it is born.
func (w *world) bear(l *link, client maker) bool {
	c := w.config(l)
	make := func() bool {
		member, err := client(w.plan, c)
		if err != nil {
			w.violate(Panics, nil, "the configuration is refused: %v", err)
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clients[l.id] = member
		return true
	}
	if l.process.born == 0 {
		return make()
	}
	time.AfterFunc(l.process.born, func() {
		c.Hosts = w.plan.rules(func(h *host) policy.Rule { return w.plan.rawRuleOf(h.id, w.now()) })
		make()
	})
	return true
}

// client returns the client of a member.
func (w *world) client(member int) Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clients[member]
}

// A memberState is what a member knows of a host.
type memberState struct {
	member int
	transport.HostState
}

// states returns what all clients know.
func (w *world) states() (all []memberState) {
	for i := range w.clients {
		if c := w.client(i); c != nil {
			for _, s := range c.Snapshot().Hosts {
				all = append(all, memberState{i, s})
			}
		}
	}
	return all
}

// config returns the Config of the story, or of a member of its fleet.
func (w *world) config(l *link) transport.Config {
	p := w.plan
	c := transport.Config{
		Base:  &base{world: w},
		Hosts: p.rules(func(h *host) policy.Rule { return h.rule }),
	}
	if l != nil {
		c.Base, c.Fleet = &base{world: w, process: l.process}, l.link()
	}
	if p.traced {
		c.Traces = []*transport.Trace{{
			AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
				w.told(a.Request, func(c *call) {
					if c.begun++; a.Kind == transport.AttemptHedge {
						c.hedged = append(c.hedged, w.now())
					}
				})
				return ctx
			},
			AttemptEnd: w.attemptEnd,
		}}
	}
	if p.logged {
		c.Logger = newLogger(w)
	}
	return c
}

// told counts a call of a hook.
func (w *world) told(req *http.Request, count func(*call)) {
	if c := callOf(req.Context()); c != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		count(c)
	}
}

// attemptEnd notes the end of an attempt, and the decision about it.
func (w *world) attemptEnd(_ context.Context, e transport.AttemptEnd) {
	c := callOf(e.Request.Context())
	if c == nil {
		return // an attempt of nobody is noticed as it arrives
	}
	w.mu.Lock()
	c.ended++
	c.events = append(c.events, event{w.now(), e})
	w.story = append(w.story, entry{w.now(), c.plan.id, "  %v after attempt %d, wait %v, verdict %v", []any{e.Reason, e.Number, e.Delay, e.Class}})
	w.mu.Unlock()
	c.hook("trace")
}

// update changes the rules at the planned times.
func (w *world) update(ctx context.Context) {
	for _, u := range w.plan.updates {
		timer := time.NewTimer(u.at - w.now())
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		w.tell(-1, "other rules")
		for i := range w.clients {
			if c := w.client(i); c != nil {
				if err := c.Update(policy.Rule{}, w.plan.rules(func(h *host) policy.Rule { return u.rules[h.id] })); err != nil {
					w.violate(Panics, nil, "the update is refused: %v", err)
				}
			}
		}
	}
}

func (w *world) report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Report{w.plan.seed, len(w.calls), len(w.attempts), slices.Clone(w.violations), w.plan.String(), w.story}
}

// fewCalls is how many calls a printed story may have in full.
const fewCalls = 10

// Story returns the rules and the entries of the calls that broke a promise. If
// there are few calls, or no call broke a promise, it returns the entries of all
// calls.
func (r Report) Story() string {
	of := map[int]bool{-1: true}
	for _, v := range r.Violations {
		of[v.Call] = true
	}
	var b strings.Builder
	b.WriteString(r.cast)
	from, until := r.newsTime()
	for _, l := range r.story {
		if l.call == news && (l.at < from || l.at > until) {
			continue
		}
		if l.call == news || of[l.call] || len(of) == 1 || r.Calls <= fewCalls {
			who := ""
			if l.call >= 0 {
				who = fmt.Sprintf("call %d", l.call)
			}
			fmt.Fprintf(&b, "%14v  %-8s  %s\n", l.at, who, fmt.Sprintf(l.format, l.args...))
		}
	}
	return b.String()
}

// manyNews is how much news of a fleet a printed story may have in full.
const manyNews = 500

// newsTime returns the time whose news are printed. If there are many, that is the time
// before the first broken promise.
func (r Report) newsTime() (from, until time.Duration) {
	n, first := 0, never
	for _, l := range r.story {
		if l.call == news {
			n++
		}
	}
	for _, v := range r.Violations {
		if v.Call >= 0 {
			first = min(first, v.At)
		}
	}
	if n <= manyNews || first == never {
		return 0, never
	}
	return first - 30*time.Second, first + time.Second
}

// timeOf returns a time of a Transport as a time of the story. The zero time is the end.
func (w *world) timeOf(t time.Time) time.Duration {
	if t.IsZero() {
		return never
	}
	return t.Sub(w.start)
}

// A searcher is a slog.Handler that reads every log line.
type searcher struct {
	slog.Handler
	world *world
}

func newLogger(w *world) *slog.Logger {
	s := &searcher{world: w}
	s.Handler = slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(s.Handler)
}

// Write gets one log line at a time.
func (s *searcher) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.world.secret) {
		s.world.violate(Secret, nil, "in the log: %s", p)
	}
	return len(p), nil
}

func (s *searcher) Enabled(context.Context, slog.Level) bool { return true }
