// No outcome depends on whether somebody observes.

package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

type inContext = func(context.Context) context.Context

// observers are the ways to observe a request: by the Config, or by the context.
var observers = map[string]func(*transport.Config) inContext{
	"Config.Traces": func(c *transport.Config) inContext { c.Traces = []*transport.Trace{allHooks()}; return nil },
	"WithTrace": func(*transport.Config) inContext {
		return func(ctx context.Context) context.Context { return transport.WithTrace(ctx, allHooks()) }
	},
	"AttemptEnd": func(c *transport.Config) inContext {
		c.Traces = []*transport.Trace{&transport.Trace{AttemptEnd: func(context.Context, transport.AttemptEnd) {}}}
		return nil
	},
	"debug log": func(c *transport.Config) inContext {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return nil
	},
	"no log": func(c *transport.Config) inContext { c.Logger = nil; return nil },
	"httptrace": func(*transport.Config) inContext {
		return func(ctx context.Context) context.Context {
			return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {}})
		}
	},
}

// allHooks is a Trace with every hook. Those that return a context return one of their own.
func allHooks() *transport.Trace {
	type key struct{}
	return &transport.Trace{
		RequestStart: func(ctx context.Context, _ *http.Request) context.Context { return context.WithValue(ctx, key{}, 1) },
		AttemptStart: func(ctx context.Context, _ transport.AttemptStart) context.Context {
			return context.WithValue(ctx, key{}, 2)
		},
		AttemptEnd: func(context.Context, transport.AttemptEnd) {},
		RequestEnd: func(context.Context, transport.RequestEnd) {},
		BodyEnd:    func(context.Context, transport.BodyEnd) {},
		HostChange: func(context.Context, transport.HostChange) {},
	}
}

// A scene is some requests to one host, and what the host answers to each.
type scene struct {
	rule     policy.Rule
	text     string // of the rule
	pools    bool
	requests []sceneRequest
	jitter   bool // an answer asks for a wait or is cut, so the time of an attempt is random
}

var sceneOptions = map[string]inContext{
	"once": transport.WithoutRetries, "repeatable": transport.WithIdempotent,
	"rule": func(ctx context.Context) context.Context { return transport.WithRule(ctx, policy.Rule{MaxAttempts: 3}) },
}

type sceneRequest struct {
	method, body, read, option string
	start, deadline, cancel    time.Duration // zero: never
	answers                    []sceneAnswer
}

type sceneAnswer struct {
	kind        string // "", panic, nothing, both
	err         error
	status      int
	header      string
	delay, pace time.Duration // until the headers, and in each Read
	size, cut   int           // the body ends after cut bytes; -1: it does not
	tag         bool
	unknown     bool // the length is unknown
	differs     bool // from the other bodies
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// newScene draws a scene. The timeouts differ, so that no two timers fire at the same moment.
func newScene(seed uint64) *scene {
	r := rand.New(rand.NewPCG(seed, 44))
	s := &scene{rule: policy.Rule{MaxAttempts: 1 + r.IntN(4), Backoff: backoff.Constant(pick(r, 0, 101*time.Millisecond, time.Second))}}
	s.text = fmt.Sprint(s.rule.MaxAttempts, s.rule.Backoff)
	one := func(in int, name string, change func(*policy.Rule)) {
		if r.IntN(in) == 0 {
			change(&s.rule)
			s.text += " " + name
		}
	}
	one(4, "MaxElapsedTime", func(p *policy.Rule) { p.MaxElapsedTime = 2003 * time.Millisecond })
	one(3, "AttemptTimeout", func(p *policy.Rule) { p.AttemptTimeout = 1009 * time.Millisecond })
	one(4, "Stall", func(p *policy.Rule) { p.StallTimeout = 907 * time.Millisecond })
	one(8, "Connect", func(p *policy.Rule) { p.ConnectTimeout = 503 * time.Millisecond })
	one(5, "Refusals", func(p *policy.Rule) { p.Classify = classify.Refusals })
	one(8, "RateLimit", func(p *policy.Rule) { p.RateLimit = policy.RateLimit{PerSecond: 7, Burst: 2} })
	one(6, "Concurrency", func(p *policy.Rule) { p.Concurrency = policy.Concurrency{Enabled: policy.On, Max: 2} })
	one(8, "Refusing", func(p *policy.Rule) { p.Concurrency = policy.Concurrency{FailFast: policy.On, Max: 1} })
	one(8, "QuotaPacing", func(p *policy.Rule) { p.QuotaPacing = policy.On })
	one(3, "ShareRetryAfter", func(p *policy.Rule) { p.ShareRetryAfter = policy.On })
	one(8, "Resume off", func(p *policy.Rule) { p.Resume = policy.Off })
	one(6, "Again off", func(p *policy.Rule) { p.MaxRefetch = policy.Off })
	one(6, "Key", func(p *policy.Rule) { p.IdempotencyKey = func(*http.Request) string { return "k" } })
	one(8, "small Budget", func(p *policy.Rule) {
		p.RetryBudget = policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.01}
	})
	one(4, "Hedge", func(p *policy.Rule) { p.Hedge.Delay = 307 * time.Millisecond })
	one(8, "Upload", func(p *policy.Rule) { p.ReplayBuffer = policy.Off })
	one(4, "Pools", func(*policy.Rule) { s.pools = true })
	for range 1 + r.IntN(4) {
		q := sceneRequest{
			method: pick(r, "GET", "GET", "GET", "POST", "PUT", "HEAD"), body: pick(r, "", "GetBody", "one-shot", "seeks"),
			read: pick(r, "all", "all", "all", "some", "close", "leave"), option: pick(r, "", "", "", "once", "repeatable", "rule"),
			start: time.Duration(r.Int64N(3e9)), deadline: pick(r, 0, 0, 5011*time.Millisecond, 811*time.Millisecond),
		}
		if r.IntN(8) == 0 {
			q.cancel = time.Duration(1 + r.Int64N(4e9))
		}
		for range 1 + r.IntN(8) {
			a := newSceneAnswer(r)
			s.jitter = s.jitter || a.header != "" || a.cut >= 0
			q.answers = append(q.answers, a)
		}
		s.requests = append(s.requests, q)
	}
	return s
}

func newSceneAnswer(r *rand.Rand) sceneAnswer {
	a := sceneAnswer{
		status: 200, cut: -1, size: pick(r, 0, 10, 3000, 100<<10, 300<<10), tag: r.IntN(2) == 0, unknown: r.IntN(4) == 0,
		differs: r.IntN(8) == 0, delay: time.Duration(1 + r.Int64N(1e7)),
	}
	if r.IntN(3) == 0 {
		a.delay = time.Duration(r.Int64N(3e9))
	}
	switch r.IntN(12) {
	case 0, 1:
		a.status = pick(r, 429, 500, 502, 503, 408, 421, 425, 404, 501, 409, 401, 417, 307, 204)
		if r.IntN(3) == 0 {
			a.header = pick(r, "Retry-After: 0", "Retry-After: 1", "Retry-After: 3", "Retry-After: 100", "Retry-After: 3600", "Ratelimit: \"d\";r=1;t=5")
		}
	case 2, 3:
		a.err = pick[error](r, errRefused, syscall.ECONNRESET, io.ErrUnexpectedEOF, errors.New("odd"), context.Canceled)
	case 4:
		a.delay = 24 * time.Hour
	case 5:
		a.kind = pick(r, "panic", "nothing", "both")
	case 6, 7:
		if a.size > 0 {
			a.cut = r.IntN(a.size)
		}
	}
	if r.IntN(6) == 0 {
		a.pace = time.Duration(r.Int64N(4e8))
	}
	return a
}

// A scenePlay is a scene that runs. Each request has its own record of everything that its
// caller and the base see.
type scenePlay struct {
	*scene
	mu      sync.Mutex
	begun   time.Time
	records []strings.Builder
	arrived []int
	bodies  [][]*body // of the responses
	timed   bool      // the records have the times
}

type sceneKey struct{}

func (s *scenePlay) note(i int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timed {
		fmt.Fprint(&s.records[i], time.Since(s.begun), " ")
	}
	fmt.Fprintf(&s.records[i], format+"\n", args...)
}

func (s *scenePlay) noteCall(name string, o classify.Outcome) {
	s.note(o.Request.Context().Value(sceneKey{}).(int), "%s %v %v", name, o.Response != nil, o.Err)
}

func (s *scenePlay) RoundTrip(req *http.Request) (*http.Response, error) { return s.answer(req, "") }

func (s *scenePlay) answer(req *http.Request, pool string) (*http.Response, error) {
	i := req.Context().Value(sceneKey{}).(int)
	var sent []byte
	if req.Body != nil {
		sent, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	s.note(i, "arrival: %s %v %q %s", req.Method, req.Header, sent, pool)
	s.mu.Lock()
	answers := s.requests[i].answers
	a := answers[min(s.arrived[i], len(answers)-1)]
	s.arrived[i]++
	s.mu.Unlock()
	trace := httptrace.ContextClientTrace(req.Context())
	if trace != nil && trace.GetConn != nil {
		trace.GetConn("h.test:80")
	}
	if err := pause(req, a.delay); err != nil {
		return nil, err
	}
	if trace != nil && trace.GotConn != nil && a.size > 0 { // else it has no connection
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if a.err != nil || a.kind == "nothing" {
		return nil, a.err
	} else if a.kind == "panic" {
		panic("base")
	}
	text, off, header := strings.Repeat("abcdefghijklmnop", a.size/16+1)[:a.size], 0, []string{}
	if a.differs {
		text = strings.ToUpper(text)
	}
	if a.header != "" {
		header = append(header, a.header)
	}
	if a.tag && a.status == 200 {
		tag := fmt.Sprintf(`"%d"`, a.size)
		header = append(header, "Etag: "+tag)
		if n, _ := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &off); n == 1 && req.Header.Get("If-Range") == tag && off < a.size {
			a.status = http.StatusPartialContent
			header = append(header, fmt.Sprintf("Content-Range: bytes %d-%d/%d", off, a.size-1, a.size))
		} else {
			off = 0
		}
	}
	length := int64(a.size - off)
	if a.unknown && a.status == 200 {
		length = -1
	}
	rest, end := text[off:], io.EOF
	if 0 <= a.cut && a.cut < len(rest) {
		rest, end = rest[:a.cut], io.ErrUnexpectedEOF
	}
	from := strings.NewReader(rest)
	own := &body{Reader: readFunc(func(p []byte) (int, error) {
		if err := pause(req, a.pace); err != nil {
			return 0, err
		}
		n, err := from.Read(p)
		if err != nil {
			err = end
		}
		return n, err
	})}
	resp := newResponse(req, a.status, own, header...)
	resp.ContentLength = length
	if req.Method == http.MethodHead || a.status == http.StatusNoContent {
		resp.Body = http.NoBody
	}
	s.mu.Lock()
	s.bodies[i] = append(s.bodies[i], own)
	s.mu.Unlock()
	if a.kind == "both" {
		return resp, io.EOF
	}
	return resp, nil
}

// call sends one request, and notes what its caller gets.
func (s *scenePlay) call(t *testing.T, tr *transport.Transport, i int, observed inContext) {
	defer func() {
		if p := recover(); p != nil {
			s.note(i, "panic: %v", p)
		}
	}()
	q := s.requests[i]
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), sceneKey{}, i), time.Hour)
	defer cancel()
	if option := sceneOptions[q.option]; option != nil {
		ctx = option(ctx)
	}
	if q.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, q.deadline)
		defer cancel()
	}
	if q.cancel > 0 {
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(q.cancel, cancel).Stop()
	}
	if observed != nil {
		ctx = observed(ctx)
	}
	var b io.Reader
	if q.method == "POST" || q.method == "PUT" {
		b = map[string]io.Reader{"GetBody": strings.NewReader("payload"), "one-shot": oneShot("payload"), "seeks": seekable("payload")}[q.body]
	}
	req, err := http.NewRequestWithContext(ctx, q.method, "http://h.test/", b)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		s.note(i, "error: %v", err)
		return
	}
	h := transport.HistoryOf(resp, nil)
	s.note(i, "response: %d %v %d %v", resp.StatusCode, resp.Header, resp.ContentLength, h.Reason)
	var got bytes.Buffer
	switch q.read {
	case "all":
		_, err = io.Copy(&got, resp.Body)
	case "some":
		_, err = io.CopyN(&got, resp.Body, 5000)
	case "leave":
		cancel()
	}
	s.note(i, "body: %d %s %v", got.Len(), ts.Hash(got.Bytes()), err)
	s.note(i, "closed: %v", resp.Body.Close())
}

// playScene plays a scene and returns the records and the log.
func playScene(t *testing.T, scene *scene, observer string) (text, lines string) {
	synctest.Test(t, func(t *testing.T) {
		n := len(scene.requests)
		s := &scenePlay{scene: scene, begun: time.Now(), records: make([]strings.Builder, n), arrived: make([]int, n), bodies: make([][]*body, n), timed: !scene.jitter}
		var log testkit.Text
		c := transport.Config{Base: s, Rule: scene.rule, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "since" { // the start of a first attempt that nothing times is not known
				return slog.Attr{}
			}
			return a
		}}))}
		if scene.pools {
			c.NewPool = func(string) http.RoundTripper {
				return rt(func(req *http.Request) (*http.Response, error) { return s.answer(req, "pool") })
			}
		}
		ask := c.Rule.Classify
		c.Rule.Classify = func(o classify.Outcome) classify.Class {
			s.noteCall("Classify", o)
			if ask == nil {
				return classify.Unknown
			}
			return ask(o)
		}
		c.Rule.RetryAfter = func(o classify.Outcome) (time.Duration, bool) {
			s.noteCall("Hint", o)
			return classify.RetryAfter(o)
		}
		var observed inContext
		if observer != "" {
			observed = observers[observer](&c)
		}
		tr := mustNew(t, c)
		together(n, func(i int) {
			time.Sleep(scene.requests[i].start)
			s.call(t, tr, i, observed)
		})
		synctest.Wait()
		for i := range s.records {
			text += fmt.Sprintf("request %d\n%s", i, s.records[i].String())
			for _, b := range s.bodies[i] {
				text += fmt.Sprintln("closed:", b.closed())
			}
		}
		if s.timed {
			for _, h := range tr.Snapshot().Hosts {
				h.RetryBudget = math.Round(10*h.RetryBudget) / 10
				text += fmt.Sprintf("%+v", h)
			}
		}
		lines = log.String()
		time.Sleep(25 * time.Hour) // the answers that nobody waits for
	})
	return text, lines
}

// TestNoOutcomeDependsOnAnObserver plays random requests without an observer but a log, and with
// each. The caller and the base see the same at the same times, and the log has the same lines. If
// waits have jitter, the times are left out. Some outcomes depend on the jitter, or on who comes first
// in the same moment. So if there is a difference, both sides get more plays, and are alike if one
// outcome of the one is one of the other.
func TestNoOutcomeDependsOnAnObserver(t *testing.T) {
	for seed := range soak.Size[uint64](500, 20_000) {
		scene := newScene(seed)
		plain, log := playScene(t, scene, "")
		for observer := range observers {
			logs := !scene.jitter && !strings.HasSuffix(observer, "log")
			like := func(plain, log, seen, lines string) bool { return plain == seen && (!logs || log == lines) }
			seen, lines := playScene(t, scene, observer)
			same := like(plain, log, seen, lines)
			for i := 0; i < 30 && !same; i++ {
				one, log := playScene(t, scene, "")
				other, lines := playScene(t, scene, observer)
				same = like(one, log, other, lines) || like(plain, log, other, lines) || like(one, log, seen, lines)
			}
			if !same {
				t.Errorf("seed %d, observed by %s: %s\n%+v", seed, observer, scene.text, scene.requests)
				assert.Equal(t, plain, seen)
				assert.Equal(t, log, lines)
				return
			}
		}
	}
}
