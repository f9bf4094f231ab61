// The lines of the log, the changes of hosts, and the stories of requests.

package transport_test

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A journal is a log handler that keeps the records.
type journal struct {
	mu  sync.Mutex
	all []slog.Record
}

func (j *journal) logger() *slog.Logger {
	return slog.New(handler(func(r slog.Record) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.all = append(j.all, r)
	}))
}

// attr returns an attribute of a record, or nil.
func attr(r slog.Record, key string) (v any) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			v = a.Value.Any()
		}
		return v == nil
	})
	return v
}

// records returns the records so far.
func (j *journal) records() []slog.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// lines returns the lines so far, and forgets them.
func (j *journal) lines() (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.all {
		all = append(all, lineOf(r))
	}
	j.all = nil
	return all
}

// lineOf returns a record as text, without the attributes that are the same in all lines of a request.
func lineOf(r slog.Record) string {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		if a.Value.Kind() == slog.KindTime {
			text = a.Value.Time().UTC().Format(time.TimeOnly)
		}
		if strings.Contains(text, " ") {
			text = strconv.Quote(text)
		}
		if a.Key != "host" && a.Key != "method" && a.Key != "url" {
			line += " " + a.Key + "=" + text
		}
		return true
	})
	return line
}

// above returns a logger that takes no lines below a level.
func (j *journal) above(level slog.Level) *slog.Logger {
	return slog.New(leveled{j.logger().Handler(), level})
}

type leveled struct {
	slog.Handler
	least slog.Level
}

func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.least }

// A switched base fails as long as it is told to.
type switched struct {
	down atomic.Bool
	fail error
}

func (s *switched) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.down.Load() {
		return nil, s.fail
	}
	return play(req, faults.Status(200))
}

// withoutRequests returns the lines that are not about a single request alone.
func withoutRequests(lines []string) (all []string) {
	for _, line := range lines {
		if !ofRequest(line) {
			all = append(all, line)
		}
	}
	return all
}

// ofRequest reports whether a line of level Info is about a single request.
func ofRequest(line string) bool { return strings.HasPrefix(line, "INFO request ") }

// TestStateOfSeveralConditions: the line says all that lasts, each condition once.
func TestStateOfSeveralConditions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		var seen changes
		base := switched{fail: errRefused}
		held := false
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, Logger: log.above(slog.LevelInfo), Traces: []*transport.Trace{seen.trace()}, Base: rt(func(req *http.Request) (*http.Response, error) {
			if held {
				return play(req, faults.Status(503).Header("Retry-After", "60"))
			}
			return base.RoundTrip(req)
		})})
		send := func(user string, n int) {
			for range n {
				req := newRequest(t, http.MethodGet, "http://h.test/", nil)
				req.Header.Set("Authorization", "Bearer "+user)
				_ = closing(tr.RoundTrip(req))
			}
		}
		for i := range 9 {
			base.down.Store(i%2 == 0)
			send("a", 9)
			time.Sleep(time.Second)
			send("a", 1)
		}
		held = true
		time.Sleep(30 * time.Second)
		send("a", 1)
		send("b", 1)
		assert.Len(t, log.lines(), 6, "lines of the log")
		assert.Greater(t, len(seen.told()), 9, "the hook hears of each")
		time.Sleep(30 * time.Second)
		held = false
		send("c", 1)
		lines := log.lines()
		require.Len(t, lines, 1)
		assert.Equal(t, `WARN changed often reason=circuit_open since=00:00:08 error="connection refused" also=[throttled]`, lines[0])
	})
}

// TestLinesOfAttempts: a log for debugging has a line for each attempt, also of a request that goes
// well at once. Lines of level Info come besides.
func TestLinesOfAttempts(t *testing.T) {
	const whole = "twelve bytes"
	cut := faults.Status(200).Header("ETag", `"v1"`).Body(whole).CutAt(5)
	rest := faults.Status(206).Header("ETag", `"v1"`).Header("Content-Range", "bytes 5-11/12").Body(whole[5:])
	for name, row := range map[string]struct {
		rule policy.Rule
		base []answer
		want []string
	}{
		"a success": {exact, []answer{faults.Status(200).Delay(20 * time.Millisecond)}, []string{
			"DEBUG attempt number=1 kind=first status=200 class=final reason=final duration=20ms"}},
		"a 401": {exact, []answer{faults.Status(401)}, []string{
			"DEBUG attempt number=1 kind=first status=401 class=final reason=final"}},
		"a retry": {exact, []answer{faults.Status(503), faults.Status(200)}, []string{
			"DEBUG attempt number=1 kind=first status=503 class=ambiguous reason=retry delay=1s",
			"DEBUG attempt number=2 kind=retry status=200 class=final reason=final"}},
		"a retry that waits for a limit": {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.5}}.Or(exact), []answer{faults.Status(503), faults.Status(200).Delay(300 * time.Millisecond)}, []string{
			"DEBUG attempt number=1 kind=first status=503 class=ambiguous reason=retry delay=1s",
			"DEBUG attempt number=2 kind=retry status=200 class=final reason=final waited=1s waited_for=rate_limit duration=300ms"}},
		"an error": {policy.Rule{MaxAttempts: 2}.Or(exact), []answer{faults.Fail(io.ErrUnexpectedEOF)}, []string{
			`DEBUG attempt number=1 kind=first error="unexpected EOF" class=ambiguous reason=retry delay=1s`,
			`DEBUG attempt number=2 kind=retry error="unexpected EOF" class=ambiguous reason=max_attempts`}},
		"a wait that is too long": {exact, []answer{faults.Status(503).Header("Retry-After", "3600")}, []string{
			"DEBUG attempt number=1 kind=first status=503 class=ambiguous reason=throttled retry_after=1h0m0s"}},
		"a hedge": {policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}.Or(exact), []answer{faults.Status(200).Delay(3 * time.Second), faults.Status(200).Delay(time.Second)}, []string{
			`DEBUG attempt number=1 kind=first error="another attempt of the request got a response first" reason=outrun duration=2s`,
			"DEBUG attempt number=2 kind=hedge status=200 class=final reason=final duration=1s"}},
		"a body that goes on": {exact, []answer{cut, rest}, []string{
			"DEBUG attempt number=1 kind=first status=200 class=final reason=final",
			"DEBUG attempt number=2 kind=resume status=206 class=final reason=final offset=5"}},
		"a body that does not": {exact, []answer{cut, faults.Status(404)}, []string{
			"DEBUG attempt number=1 kind=first status=200 class=final reason=final",
			"DEBUG attempt number=2 kind=resume status=404 class=final reason=final offset=5"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			for level, want := range map[slog.Level][]string{slog.LevelDebug: row.want, slog.LevelInfo: nil} {
				var log journal
				tr := over(t, transport.Config{Rule: row.rule, Logger: log.above(level)}, script(row.base...))
				if resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/?page=2", nil)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				for _, r := range log.records() {
					about := []any{attr(r, "host"), attr(r, "method"), attr(r, "url")}
					assert.Equal(t, []any{"http://h.test", "GET", "http://h.test/?page=xxxxx"}, about)
				}
				assert.Equal(t, want, withoutRequests(log.lines()))
			}
		})
	}
}

// TestLinesOfRequests: a request that failed after more than one attempt, or whose retry a limit withheld, has one line. So has a
// long wait, when it begins.
func TestLinesOfRequests(t *testing.T) {
	cut := faults.Status(200).Header("ETag", `"v1"`).Body("twelve bytes").CutAt(5)
	down := faults.Fail(errRefused)
	for name, row := range map[string]struct {
		rule   policy.Rule
		base   []answer
		method string
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		want   []string
	}{
		"a success":                   {rule: exact, base: []answer{status(200)}},
		"a success after a retry":     {rule: exact, base: []answer{status(503), status(200)}},
		"a 404 after a retry":         {rule: exact, base: []answer{status(503), status(404)}},
		"a 501 after a retry":         {rule: exact, base: []answer{status(503), status(501)}, want: []string{"INFO request failed attempts=2 reason=final status=501 delay=1s"}},
		"a wrong name after a retry":  {rule: exact, base: []answer{status(503), faults.Fail(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h.test"})}, want: []string{`INFO request failed attempts=2 reason=final error="certificate not for h.test" delay=1s`}},
		"a lost POST":                 {rule: exact, method: http.MethodPost, base: []answer{faults.ConnReset()}, want: []string{`INFO request failed attempts=1 reason=not_idempotent error="connection reset by peer"`}},
		"one attempt":                 {rule: policy.Rule{MaxAttempts: 1}, base: []answer{down}},
		"a single 404":                {rule: exact, base: []answer{status(404)}},
		"all attempts are used up":    {rule: policy.Rule{MaxAttempts: 3}.Or(exact), base: []answer{status(503), down}, want: []string{`INFO request failed attempts=3 reason=max_attempts error="connection refused" delay=3s`}},
		"the last answer is a 503":    {rule: policy.Rule{MaxAttempts: 3}.Or(exact), base: []answer{down, status(503)}, want: []string{"INFO request failed attempts=3 reason=max_attempts status=503 delay=3s"}},
		"a wait that is too long":     {rule: exact, base: []answer{status(503, "Retry-After: 3600")}, want: []string{"INFO request failed attempts=1 reason=throttled status=503 until=01:00:00"}},
		"a deadline that is too soon": {rule: exact, base: []answer{status(503)}, ctx: withTimeout(time.Millisecond), want: []string{"INFO request failed attempts=1 reason=deadline status=503"}},
		"a deadline that passes":      {rule: exact, base: []answer{status(503), faults.Hang()}, ctx: withTimeout(5 * time.Second), want: []string{`INFO request failed attempts=2 reason=deadline error="context deadline exceeded" delay=1s`}},
		"a deadline at once":          {rule: exact, base: []answer{faults.Hang()}, ctx: withTimeout(5 * time.Second)},
		"a caller who left": {rule: exact, base: []answer{status(503), faults.Hang()}, ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(5*time.Second, cancel)
			return ctx, cancel
		}},
		"a body that is not continued": {rule: policy.Rule{MaxAttempts: 2}.Or(exact), base: []answer{cut, status(503)}, want: []string{"INFO request failed attempts=2 reason=max_attempts status=503 offset=5"}},
		"a back-off of 10 s":           {rule: policy.Rule{Backoff: backoff.Constant(10 * time.Second)}, base: []answer{down, status(200)}, want: []string{`INFO request waits attempts=1 reason=retry error="connection refused" delay=10s`}},
		"a back-off below that":        {rule: policy.Rule{Backoff: backoff.Constant(9 * time.Second)}, base: []answer{down, status(200)}},
		"a wait of the server":         {rule: policy.Rule{MaxRetryAfter: time.Minute}.Or(exact), base: []answer{status(429, "Retry-After: 40"), status(200)}, want: []string{"INFO request waits attempts=1 reason=throttled status=429 delay=40s"}},
		"a wait that the host has told": {rule: sharing.Or(policy.Rule{MaxRetryAfter: time.Minute}).Or(exact), base: []answer{status(429, "Retry-After: 40"), status(200)},
			want: []string{"WARN throttled reason=throttled since=00:00:00 status=429 until=00:00:40", "INFO no longer throttled reason=throttled since=00:00:00"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var log journal
			req := newRequest(t, cmp.Or(row.method, http.MethodGet), "http://h.test/?page=2", nil)
			if row.ctx != nil {
				ctx, cancel := row.ctx(t.Context())
				defer cancel()
				req = req.WithContext(ctx)
			}
			tr := over(t, transport.Config{Rule: row.rule, Logger: log.above(slog.LevelInfo)}, script(row.base...))
			if resp, err := tr.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			for _, r := range log.records() {
				if strings.HasPrefix(r.Message, "request ") {
					assert.Equal(t, []any{"http://h.test", req.Method, "http://h.test/?page=xxxxx"}, []any{attr(r, "host"), attr(r, "method"), attr(r, "url")})
				}
			}
			var got []string
			for _, line := range log.lines() {
				got = append(got, jitters.ReplaceAllString(line, "$1"))
			}
			assert.Equal(t, row.want, got)
		})
	}
	inBubble(t, "the program's own rate", func(t *testing.T) {
		var log journal
		tr := over(t, transport.Config{Rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1. / 30, Burst: 1}}, Logger: log.above(slog.LevelInfo)}, script(status(200)))
		mustFetch(t, tr, t.Context(), "http://h.test/")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		together(2, func(i int) {
			time.Sleep(time.Duration(i) * time.Second)
			if i == 1 {
				for _, line := range log.lines() {
					assert.Equal(t, "INFO request waits reason=rate_limit delay=30s", line, "when it begins")
				}
				_, err := fetch(t, tr, ctx, "http://h.test/")
				require.NoError(t, err)
				return
			}
			mustFetch(t, tr, t.Context(), "http://h.test/")
		})
		assert.Equal(t, []string{"INFO request waits reason=rate_limit delay=59s", "WARN rate limit reached reason=rate_limit since=00:00:00 waiting=1"}, log.lines())
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := fetch(t, tr, ctx, "http://h.test/")
		require.ErrorIs(t, err, transport.ErrNotSent)
		assert.Empty(t, log.lines(), "it does not wait")
	})
	inBubble(t, "six per minute", func(t *testing.T) {
		var log journal
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick), Logger: log.above(slog.LevelInfo)}, script(status(503)))
		for range 40 {
			mustFetch(t, tr, t.Context(), "http://h.test/")
		}
		time.Sleep(time.Minute)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		var requests []string
		for _, line := range log.lines() {
			if ofRequest(line) {
				requests = append(requests, line)
			}
		}
		one := "INFO request failed attempts=2 reason=max_attempts status=503"
		assert.Equal(t, append(slices.Repeat([]string{one}, 6), one+" lines_left_out=34"), requests)
	})
}

// jitters finds the jitter of a wait that a server asked for, in the seconds of a line.
var jitters = regexp.MustCompile(`(delay=40)\.\d+`)

func withTimeout(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// TestHandlerThatBlocks: a handler that blocks holds up its own request only.
func TestHandlerThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var calls atomic.Int64
		logger := slog.New(handler(func(slog.Record) {
			calls.Add(1)
			time.Sleep(10 * time.Second)
		}))
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}, Logger: slog.New(leveled{logger.Handler(), slog.LevelInfo}), Base: script(faults.Fail(errRefused))})
		for range 100 {
			go func() { _, _ = fetch(t, tr, t.Context(), "http://h.test/") }()
			time.Sleep(20 * time.Millisecond)
		}
		count(t, 1, calls.Load(), "Handle called")
		start := time.Now()
		_, _ = fetch(t, tr, t.Context(), "http://h.test/")
		assert.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
	})
}

// TestForgottenAfterAChange: a line about a host that was written keeps no request in memory.
func TestForgottenAfterAChange(t *testing.T) {
	tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}, Base: faults.New(nil, faults.Script(status(429, "Retry-After: 1"))), Logger: slog.New(handler(func(slog.Record) {}))})
	type kept struct{ _ [64]byte }
	lost := func() weak.Pointer[kept] {
		k := new(kept)
		_, _ = fetch(t, tr, context.WithValue(t.Context(), k, k), "http://h.test/")
		return weak.Make(k)
	}()
	for range 100 {
		if runtime.GC(); lost.Value() == nil {
			runtime.KeepAlive(tr)
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the request is still there")
	runtime.KeepAlive(tr)
}

// TestReasonsOfAnEnd: a deadline that passed is told from a caller who hung up.
func TestReasonsOfAnEnd(t *testing.T) {
	for name, row := range map[string]struct {
		begin  func(context.Context) (context.Context, context.CancelFunc)
		reason transport.Reason
	}{
		"a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, transport.ReasonDeadline},
		"a deadline with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errors.New("enough"))
		}, transport.ReasonDeadline},
		"a caller": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, transport.ReasonCanceled},
	} {
		inBubble(t, name, func(t *testing.T) {
			var log journal
			var seen recorder
			tr := mustNew(t, transport.Config{Logger: log.logger(), Base: script(faults.Hang()), Traces: []*transport.Trace{seen.trace()}})
			ctx, cancel := row.begin(t.Context())
			defer cancel()
			_, err := fetch(t, tr, ctx, "http://h.test/")
			require.Error(t, err)
			last := seen.events()[len(seen.events())-1]
			assert.Equal(t, row.reason, last.Reason)
			require.NotEmpty(t, log.records())
			line := log.records()[len(log.records())-1] // the first is about the pools
			assert.Equal(t, string(row.reason), attr(line, "reason"))
		})
	}
	inBubble(t, "the timeout of a client", func(t *testing.T) {
		var seen recorder
		client := &http.Client{Timeout: time.Second, Transport: mustNew(t, transport.Config{Base: script(faults.Hang()), Traces: []*transport.Trace{seen.trace()}})}
		_, err := client.Get("http://h.test/")
		require.Error(t, err)
		assert.Equal(t, []transport.Reason{transport.ReasonDeadline}, seen.reasons())
	})
}

// TestExplain: the story has the attempts, the limits and the end, and no secrets.
func TestExplain(t *testing.T) {
	const secret = "http://someone:SECRET@h.test/p?key=SECRET#SECRET"
	for name, row := range map[string]struct {
		rule policy.Rule
		base http.RoundTripper
		want string
	}{
		"a success": {exact, script(faults.Status(200)), "GET %s\n  status 200 at the first attempt"},
		"a success after a retry": {exact, script(faults.Status(503).Delay(20*time.Millisecond), faults.Status(200)),
			"GET %s\n  attempt 1, at 0s: 503, retry after 1s\n  attempt 2, at 1s: 200\n  status 200, the caller has it, after 1s in all"},
		"a wait that is too long": {exact, script(faults.Status(429).Header("Retry-After", "3600")),
			"GET %s\n  attempt 1, at 0s: 429, asks to wait 1h0m0s\n  status 429: the server asked for a longer wait, next try at 2000-01-01T01:00:00Z"},
		"an error": {policy.Rule{MaxAttempts: 2}.Or(exact), script(faults.Fail(fmt.Errorf("broken at %s", secret))),
			"GET %s\n  failed: broken at %s"},
	} {
		inBubble(t, name, func(t *testing.T) {
			const safe = "http://xxxxx@h.test/p?key=xxxxx"
			tr := mustNew(t, transport.Config{Rule: row.rule, Base: row.base})
			resp, err := (&http.Client{Transport: tr}).Get(secret)
			if err == nil {
				_ = resp.Body.Close()
			}
			assert.Equal(t, strings.ReplaceAll(row.want, "%s", safe), transport.Explain(resp, err))
		})
	}
	inBubble(t, "a hedge that ends before the first attempt", func(t *testing.T) {
		base := script(faults.Status(200).Delay(time.Second), faults.Status(503))
		resp := mustFetch(t, over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{Delay: 300 * time.Millisecond}}}, base), t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  attempt 2, at 300ms: 503, a hedge\n  attempt 1, at 0s: 200 after 1s\n  status 200, the caller has it, after 1s in all", transport.Explain(resp, nil))
	})
	inBubble(t, "no connection", func(t *testing.T) {
		for err, want := range map[error]string{
			nil:                "no connection: context deadline exceeded after 4s",
			io.EOF:             "no connection: EOF, retry after 2s", // in the handshake of TLS
			syscall.ECONNRESET: "no connection: connection reset by peer, retry after 2s",
			&net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}: "dial: no route to host, retry after 2s",
		} {
			dial := func(req *http.Request) (*http.Response, error) {
				httptrace.ContextClientTrace(req.Context()).GetConn("h.test:80")
				if err != nil {
					return nil, err
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			var log journal
			ctx := expires(t, 5*time.Second)
			_, failure := fetch(t, over(t, transport.Config{Rule: exact, Logger: log.logger()}, script(faults.Status(503), dial)), ctx, "http://h.test/")
			assert.Equal(t, "  attempt 2, at 1s: "+want, strings.Split(transport.Explain(nil, failure), "\n")[2])
			text, _, _ := strings.Cut(strings.TrimSuffix(want, " after 4s"), ",")
			assert.Contains(t, log.lines()[1], strconv.Quote(text))
		}
	})
	inBubble(t, "the timeout of a client", func(t *testing.T) {
		tr := over(t, transport.Config{Rule: exact}, script(faults.Status(503), faults.Hang()))
		_, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get("http://h.test/")
		require.Error(t, err)
		assert.NotContains(t, transport.Explain(nil, err), "canceled")
		assert.Contains(t, transport.Explain(nil, err), "deadline exceeded")
	})
	inBubble(t, "a body that cannot be sent again", func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{ReplayBuffer: policy.Off}}, script(faults.Status(503)))
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", reader(strings.NewReader("text"))))
		_ = resp.Body.Close()
		assert.Equal(t, "PUT http://h.test/\n  attempt 1, at 0s: 503, and the request's body cannot be sent again (ReplayBuffer is off, and it has neither GetBody nor Seek)\n"+
			"  status 503: the request's body cannot be sent again", transport.Explain(resp, nil))
	})
	assert.Equal(t, "no request", transport.Explain(nil, nil))
	assert.Equal(t, "a request\n  status 200 at the first attempt", transport.Explain(&http.Response{StatusCode: 200, Request: &http.Request{}}, nil))
	for _, raw := range []string{"http://someone:SECRET@h.test/%zz?key=SECRET", "http://h.test:port/?key=SECRET#SECRET"} {
		resp, err := http.Get(raw)
		require.Error(t, err)
		assert.NotContains(t, transport.Explain(resp, err), "SECRET")
	}
	inBubble(t, "limits", func(t *testing.T) {
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, RateLimit: policy.RateLimit{PerSecond: 0.5}}, Base: script(faults.Status(503))})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		resp := mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  attempt 1, at 2s: 503, had waited 2s for the rate limit\n  status 503: one attempt is allowed, after 2s in all", transport.Explain(resp, nil))
		ctx := expires(t, time.Second)
		_, err := fetch(t, tr, ctx, "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  not sent: the rule's rate limit is reached, next try at 2000-01-01T00:00:04Z", transport.Explain(nil, err))
	})
	inBubble(t, "an outage", func(t *testing.T) {
		start := time.Now()
		tr := mustNew(t, transport.Config{Rule: exact, Base: rt(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < 9*time.Second {
				return play(req, faults.Status(503))
			}
			return play(req, faults.Status(200))
		})})
		others := make(chan struct{})
		go func() {
			defer close(others)
			for range 50 { // so that no retry has to probe
				mustFetch(t, tr, transport.WithoutRetries(t.Context()), "http://h.test/")
				time.Sleep(200 * time.Millisecond)
			}
		}()
		time.Sleep(3*time.Second + 1)
		resp := mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  attempt 1, at 0s: 503, retry after 1s\n  attempt 2, at 6s: 200, had waited 5s in line while the host was down\n"+
			"  status 200, the caller has it, attempts left out: 1, after 6s in all", transport.Explain(resp, nil))
		<-others
	})
	inBubble(t, "an open circuit", func(t *testing.T) { // nobody watches the Transport
		rule := policy.Rule{MaxAttempts: 1, CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}
		tr := mustNew(t, transport.Config{Rule: rule, Base: script(faults.Fail(errRefused))})
		for range 11 {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			time.Sleep(200 * time.Millisecond)
		}
		_, err := fetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  not sent: the host is down (connection refused), next try at 2000-01-01T00:00:02Z", transport.Explain(nil, err))
		assert.EqualError(t, err, "transport: not sent: the host is down (connection refused), next try at 2000-01-01T00:00:02Z")
	})
	for large, want := range map[bool]string{
		false: "GET http://h.test/\n  attempt 1, at 0s: 503\n  waited 6s in line for a retry\n  status 503: the host had no retry left in time, attempts left out: 2, after 7s in all",
		true:  "GET http://h.test/\n  attempt 1, at 0s: 503\n  waited 6s in line for a retry\n  failed: the host had no retry left in time, attempts left out: 2, after 7s in all",
	} {
		inBubble(t, "no retry", func(t *testing.T) {
			var ends []transport.RequestEnd
			ctx := transport.WithTrace(t.Context(), &transport.Trace{RequestEnd: func(_ context.Context, e transport.RequestEnd) { ends = append(ends, e) }})
			fail := faults.Status(503)
			if large {
				fail = fail.Body(strings.Repeat("x", 100_000)) // too long to be kept
			}
			rule := policy.Rule{MaxAttempts: 4, RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.05}}.Or(exact)
			tr := mustNew(t, transport.Config{Rule: rule, Base: script(fail, fail, faults.Status(200))})
			together(2, func(i int) {
				time.Sleep(time.Duration(i))
				if i == 0 {
					mustFetch(t, tr, t.Context(), "http://h.test/")
				} else {
					resp, err := fetch(t, tr, ctx, "http://h.test/")
					assert.Equal(t, want, transport.Explain(resp, err))
					assert.Equal(t, transport.ReasonRetryBudget, transport.ReasonOf(resp, err))
					if large {
						assert.EqualError(t, err, "transport: not retried, 2 left out, waited 6s in line for a retry, last status 503 (retry budget)")
					}
				}
			})
			require.Len(t, ends, 1)
			assert.Equal(t, 6*time.Second, ends[0].Waited.Round(time.Second))
		})
	}
}

// TestTextsThatOthersChoose: what a server or the author of a link chooses writes no line of
// its own into a log or a story, and does not act on a terminal.
func TestTextsThatOthersChoose(t *testing.T) {
	const evil = "\x1b[2K\r\n  status 200, the caller has it\u009b31m\u202e\a"
	printable := func(t *testing.T, text string) {
		assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
		assert.NotContains(t, text, "SECRET")
	}
	for name, err := range map[string]error{
		"a name in a certificate":     x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{evil}}, Host: "SECRET@h.test"},
		"a certificate without names": x509.HostnameError{Certificate: &x509.Certificate{}, Host: "SECRET@h.test" + evil},
		"an error":                    errors.New(evil),
		"several errors":              errors.Join(errors.New(evil), io.ErrUnexpectedEOF),
		"a dial":                      &net.OpError{Op: "dial", Net: "tcp", Err: errors.New(evil)},
		"a lookup":                    &net.DNSError{Err: evil, Name: "h.test"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var log journal
			tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2}, Logger: log.logger(), Base: script(faults.Fail(err))})
			req := newRequest(t, http.MethodPost, "https://h.test/", nil)
			req.URL.Host = "SECRET@h\u009b31m.test"
			_, failure := tr.RoundTrip(req)
			require.Error(t, failure)
			story := strings.Split(transport.Explain(nil, &url.Error{Op: "Post", URL: req.URL.String(), Err: failure}), "\n")
			assert.LessOrEqual(t, len(story), 4, "%q", story)
			for _, line := range story {
				printable(t, line)
				assert.False(t, strings.HasPrefix(line, "  status"), "%q", line)
			}
			time.Sleep(time.Minute)
			require.NotEmpty(t, log.records())
			for _, r := range log.records() {
				printable(t, r.Message)
				text, _ := attr(r, "error").(string)
				printable(t, text)
			}
			printable(t, transport.HostChange{Host: "https://h\u009b31m.test", Reason: transport.ReasonCircuitOpen, Err: err}.String())
		})
	}
}

var updateLines = flag.Bool("update", false, "write the lines of the log to docs/observability.md")

// A situation is something that an operator sees in the log.
type situation struct {
	name string
	rule policy.Rule
	tls  ts.TLS            // of a server, if there is no base
	base http.RoundTripper // nil: a server with faulty TLS
	pool http.RoundTripper // of other connections; nil: the base has one pool only
	play func(*testing.T, *transport.Transport, string)
	busy bool // only the first line of each kind is shown, without numbers

	debug bool // the log has a line for each attempt
}

// TestAttributesInTheDocs: docs/observability.md lists the attributes of all log lines.
func TestAttributesInTheDocs(t *testing.T) {
	written := map[string]bool{}
	for _, path := range []string{"lines.go", "report.go", "change.go", "../internal/route/planner.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			key, isText := call.Args[0].(*ast.BasicLit)
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && isText && (fmt.Sprint(f.X) == "slog" || f.Sel.Name == "addTime") {
				written[strings.Trim(key.Value, `"`)] = true
			}
			return true
		})
	}
	require.Greater(t, len(written), 20)
	text, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "| attribute | ")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[min(1, len(cells)-1)], -1) {
			listed = append(listed, key[1])
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(written)), listed)
}

// TestLinesInTheDocs plays situations of an operator's night, and compares the lines with
// those of docs/observability.md. With -update it writes them there.
func TestLinesInTheDocs(t *testing.T) {
	const url = "https://api.example.com/things"
	once := func(t *testing.T, tr *transport.Transport, url string) { _, _ = fetch(t, tr, t.Context(), url) }
	ten := func(t *testing.T, tr *transport.Transport, url string) {
		for range 10 {
			once(t, tr, url)
			time.Sleep(200 * time.Millisecond)
		}
	}
	impatient := func(t *testing.T, tr *transport.Transport, url string) {
		ctx := expires(t, 10*time.Second)
		_, _ = fetch(t, tr, ctx, url)
	}
	many := func(n int, every time.Duration) func(*testing.T, *transport.Transport, string) {
		return func(t *testing.T, tr *transport.Transport, url string) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() { impatient(t, tr, url) })
				time.Sleep(every)
			}
			all.Wait()
		}
	}
	single := policy.Rule{MaxAttempts: 1}
	limited := policy.Rule{MaxAttempts: 1, Concurrency: policy.Concurrency{Max: 10}}
	heard := make(chan func(fleetmsg.Message), 1)
	away := func(d time.Duration) http.RoundTripper {
		return rt(func(req *http.Request) (*http.Response, error) {
			if time.Since(bubbles) < d {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
		})
	}
	quota := func(left string) faults.Step {
		return faults.Status(200).Header("X-RateLimit-Limit", "100").Header("X-RateLimit-Remaining", left).Header("X-RateLimit-Reset", "60")
	}
	var table strings.Builder
	table.WriteString("| situation | lines, with the time after its beginning |\n|---|---|\n")
	for _, s := range []situation{
		{name: "the certificate has expired, ten GETs within two seconds", rule: single, tls: ts.Expired, play: ten},
		{name: "the server is down for a minute, ten GETs per second", rule: exact, base: away(time.Minute), busy: true, play: many(700, 101*time.Millisecond)},
		{name: "the same with a `CircuitBreaker` and its `FailFast`", rule: policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}.Or(single), base: away(time.Minute), busy: true, play: many(700, 101*time.Millisecond)},
		{name: "no response within the client's 10 s, ten GETs", base: script(faults.Hang()), play: func(t *testing.T, tr *transport.Transport, url string) {
			for range 10 {
				impatient(t, tr, url)
			}
		}},
		{name: "a retry and a body that is cut, in a log for debugging", rule: exact, debug: true, base: script(faults.Status(503), faults.Status(200).Header("ETag", `"v1"`).Body("twelve bytes").CutAt(5), faults.Status(206).Header("ETag", `"v1"`).Header("Content-Range", "bytes 5-11/12").Body("e bytes")),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				_, _ = io.ReadAll(mustRoundTrip(t, tr, newRequest(t, http.MethodGet, url, nil)).Body)
			}},
		{name: "four GETs, the first gets a 429 with `Retry-After: 30`, `ShareRetryAfter` on", rule: sharing.Or(single), base: script(faults.Status(429).Header("Retry-After", "30"), faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				together(3, func(_ int) { once(t, tr, url) })
			}},
		{name: "a quota is nearly used up", rule: policy.Rule{QuotaPacing: policy.On}, base: script(quota("50"), quota("12"), quota("100")),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				once(t, tr, url)
				time.Sleep(30 * time.Second)
				once(t, tr, url)
			}},
		{name: "four GETs fail at once, under a `RetryBudget` of one per 5 s", rule: policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off, MinPerSecond: 0.2}}.Or(exact), base: script(faults.Status(503), faults.Status(503), faults.Status(503), faults.Status(503), faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				together(4, func(_ int) { once(t, tr, url) })
				time.Sleep(30 * time.Second)
				once(t, tr, url)
			}},
		{name: "connections die without a word", rule: policy.Rule{AttemptTimeout: time.Second, Backoff: backoff.Constant(time.Second)}, base: script(faults.Hang()), pool: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				for range 3 {
					once(t, tr, url)
				}
			}},
		{name: "one of the servers behind a balancer is bad", rule: policy.Rule{Backoff: backoff.Constant(10 * time.Millisecond)}.Or(exact), base: script(faults.Status(503)), pool: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				for range 9 {
					once(t, tr, url)
				}
			}},
		{name: "the server hangs behind a concurrency limit", rule: limited, base: script(faults.Hang()), busy: true, play: many(40, 503*time.Millisecond)},
		{name: "four GETs under a rate of one per 2.6 s", rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1 / 2.6, Burst: 1}}, base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				together(4, func(_ int) { once(t, tr, url) })
				time.Sleep(time.Minute)
				once(t, tr, url)
			}},
		{name: "a host that is down for every other two seconds", rule: single,
			base: rt(func(req *http.Request) (*http.Response, error) {
				if time.Since(bubbles)/time.Second%4 < 2 {
					return nil, errRefused
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
			}), busy: true, play: many(620, 100*time.Millisecond)},
		{name: "another process of a fleet gets a 429 with `Retry-After: 5`, `ShareRetryAfter` on", rule: sharing.Or(single), base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				hear := <-heard
				hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://api.example.com", Status: 429, Wait: 5 * time.Second})
				once(t, tr, url)
			}},
		{name: "another process of a fleet reads that a quota is nearly used up", rule: policy.Rule{QuotaPacing: policy.On}, base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				hear := <-heard
				hear(fleetmsg.Message{Kind: fleetmsg.Quota, Host: "https://api.example.com", Amount: 12, Limit: 100, Wait: time.Minute, Members: 2})
				once(t, tr, url)
				time.Sleep(time.Minute)
				once(t, tr, url)
			}},
	} {
		inBubble(t, s.name, func(t *testing.T) {
			var log journal
			start := time.Now()
			c := transport.Config{Rule: s.rule, Base: s.base, Logger: log.above(slog.LevelInfo)}
			if s.debug {
				c.Logger = log.logger()
			}
			if s.pool != nil {
				c.NewPool = func(string) http.RoundTripper { return s.pool }
				c.Traces = []*transport.Trace{{HostChange: func(_ context.Context, h transport.HostChange) { assert.Fail(t, "other connections are no change", h) }}}
			}
			if strings.Contains(s.name, "of a fleet") {
				c.Fleet = fleettest.Link(headersSeen{heard})
			}
			target := url
			if s.base == nil {
				server := ts.Start(t, ts.Config{TLS: s.tls, Net: ts.NewNet()}, ts.OK(""))
				base := server.Transport()
				defer base.CloseIdleConnections()
				c.Base, target = base, server.URL
			}
			s.play(t, mustNew(t, c), target)
			time.Sleep(5 * time.Minute)
			var cells []string
			kinds := map[string]bool{}
			for _, r := range log.records() {
				if strings.Contains(r.Message, "one pool only") {
					continue // the base of this test has one pool
				}
				text := random.ReplaceAllString(lineOf(r), "$1")
				if s.busy {
					if text = numbers.ReplaceAllString(text, ""); kinds[text] {
						continue
					}
					kinds[text] = true
				}
				cells = append(cells, fmt.Sprintf("`%d s %s`", int(r.Time.Sub(start).Seconds()), text))
			}
			require.NotEmpty(t, cells)
			fmt.Fprintf(&table, "| %s | %s |\n", s.name, strings.Join(cells, "<br>"))
		})
	}
	const path, begin, end = "../docs/observability.md", "<!-- lines -->\n\n", "\n<!-- end -->"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	old, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *updateLines {
		require.NoError(t, os.WriteFile(path, []byte(head+begin+table.String()+end+tail), 0o644))
		return
	}
	assert.Equal(t, old, table.String(), "go test ./transport -run LinesInTheDocs -update writes the table")
}

var (
	// random finds what differs in each run: addresses, and a wait with jitter. It also finds what the page leaves out.
	random = regexp.MustCompile(` (?:addr|since)=\S+|( from_fleet=true) until=00:00:0\S+`)
	// numbers finds the numbers that depend on the order in which goroutines run.
	numbers = regexp.MustCompile(` (waiting|limit|attempts|delay|waited|lines_left_out)=\S+`)
)

// bubbles is when the time of each bubble begins.
var bubbles = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// headersSeen is a fleet that only gives its hear function away.
type headersSeen struct{ to chan func(fleetmsg.Message) }

func (h headersSeen) Join(hear func(fleetmsg.Message)) error { h.to <- hear; return nil }
func (headersSeen) Tell(fleetmsg.Message)                    {}
func (headersSeen) Scope(string) uint64                      { return 1 }
func (headersSeen) State() fleetlink.State                   { return fleetlink.State{} }

// changes are the changes of hosts that a Trace was told.
type changes struct {
	mu  sync.Mutex
	all []transport.HostChange
}

func (c *changes) trace() *transport.Trace {
	return &transport.Trace{HostChange: func(_ context.Context, h transport.HostChange) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, h)
	}}
}

// told returns the changes as words, and forgets them.
func (c *changes) told() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.all {
		word := string(h.Reason)
		if h.Over {
			word = "no longer " + word
		}
		all = append(all, word)
	}
	c.all = nil
	return all
}

// TestChangeOfAHold: a hold is told when it begins, and when the first request goes after it.
func TestChangeOfAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1, ShareRetryAfter: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(429).Header("Retry-After", "30"), faults.Status(200))})
		start := time.Now()
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 1, "events")
		began := seen.all[0]
		assert.Equal(t, transport.ReasonThrottled, began.Reason)
		assert.Equal(t, "http://h.test", began.Host)
		assert.Equal(t, 429, began.Status)
		assert.Equal(t, start.Add(30*time.Second), began.Until)
		assert.Equal(t, "http://h.test: throttled (429) for 30s", began.String())
		assert.Equal(t, []string{"throttled"}, seen.told())

		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := fetch(t, tr, t.Context(), "http://h.test/")
				assert.NoError(t, err)
			})
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Empty(t, seen.told(), "nobody goes yet")
		all.Wait()
		assert.Len(t, seen.all, 1, "events")
		assert.Contains(t, seen.all[0].String(), "http://h.test: no longer throttled after 3")
		assert.Equal(t, []string{"no longer throttled"}, seen.told())
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Empty(t, seen.told(), "it is told once")
	})
}

// TestChangeOfAnOutage: that a host is down and back is told with the retries or requests that wait, which the log calls an open
// circuit only if there is a circuit breaker.
func TestChangeOfAnOutage(t *testing.T) {
	for name, row := range map[string]struct {
		breaker     policy.CircuitBreaker
		down, back  string
		first, last string // messages of the log
	}{
		"retries wait":  {policy.CircuitBreaker{}, "http://h.test: host down (503)", `: host back after \d+s, \d+ waiting$`, "host down", "host back"},
		"requests wait": {policy.CircuitBreaker{Enabled: policy.On}, "http://h.test: circuit open (503)", `: circuit closed after \d+s, \d+ waiting$`, "circuit open", "circuit closed"},
		"they fail":     {policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}, "http://h.test: circuit open (503)", `: circuit closed after \d+s$`, "circuit open", "circuit closed"},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen changes
			var log journal
			start := time.Now()
			patient := policy.Rule{MaxAttempts: 60, Backoff: backoff.Constant(time.Second), CircuitBreaker: row.breaker}
			tr := mustNew(t, transport.Config{Rule: patient, Traces: []*transport.Trace{seen.trace()}, Logger: log.above(slog.LevelInfo), Base: rt(func(req *http.Request) (*http.Response, error) {
				if time.Since(start) < 11*time.Second {
					return play(req, faults.Status(503))
				}
				return play(req, faults.Status(200))
			})})
			together(60, func(i int) {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond)
				_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			})
			require.Len(t, seen.all, 2, "events")
			assert.Equal(t, row.down, seen.all[0].String())
			assert.Regexp(t, row.back, seen.all[1].String())
			assert.Equal(t, 503, seen.all[0].Status)
			assert.Equal(t, []string{"circuit_open", "no longer circuit_open"}, seen.told())
			var messages []string
			for _, r := range log.records() {
				if !strings.HasPrefix(r.Message, "request ") {
					messages = append(messages, r.Message)
				}
			}
			assert.Equal(t, []string{row.first, row.last}, messages)
		})
	}
}

// TestChangeOfACrowd: a host is crowded when requests wait at its limiter for long.
func TestChangeOfACrowd(t *testing.T) {
	for failFast, want := range map[policy.Switch]string{policy.Off: "concurrency", policy.On: "concurrency"} {
		bubble(t, func(t *testing.T) {
			var seen changes
			tr := mustNew(t, transport.Config{Rule: policy.Rule{Concurrency: policy.Concurrency{Max: 1, FailFast: failFast}}, Traces: []*transport.Trace{seen.trace()},
				Base: script(faults.Status(200).Delay(700 * time.Millisecond))})
			together(4, func(_ int) { _, _ = fetch(t, tr, t.Context(), "http://h.test/") })
			assert.Equal(t, []string{want}, seen.told(), "fail fast %v", failFast)
			time.Sleep(time.Minute)
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			assert.Equal(t, []string{"no longer concurrency"}, seen.told(), "fail fast %v", failFast)
		})
	}
}

// TestChangeOfABudget: that a retry has waited for longer than a second is told when it goes, and when none waits any more.
func TestChangeOfABudget(t *testing.T) {
	one := policy.RetryBudget{Enabled: policy.On, Ratio: policy.Off, MinPerSecond: 0.1} // a retry in ten seconds
	bubble(t, func(t *testing.T) {
		var seen changes
		fail := faults.Status(503)
		tr := mustNew(t, transport.Config{Rule: policy.Rule{RetryBudget: one, Backoff: backoff.Constant(15 * time.Second)}, Traces: []*transport.Trace{seen.trace()}, Base: script(fail, fail, fail, faults.Status(200))})
		together(3, func(int) { mustFetch(t, tr, t.Context(), "http://h.test/") })
		require.NotEmpty(t, seen.all)
		assert.Equal(t, "http://h.test: retry budget used up (503), 1 waiting", seen.all[0].String())
		time.Sleep(time.Minute)
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 2, "events")
		assert.Equal(t, "http://h.test: retry budget restored after 1m20s", seen.all[1].String())
		assert.Equal(t, []string{"retry_budget", "no longer retry_budget"}, seen.told())
	})
}

// TestChangeOfAQuota: a quota of which a fifth is left is told, and the end of its window.
func TestChangeOfAQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		quota := func(left string) faults.Step {
			return faults.Status(200).Header("X-RateLimit-Limit", "100").Header("X-RateLimit-Remaining", left).Header("X-RateLimit-Reset", "60")
		}
		tr := mustNew(t, transport.Config{Rule: policy.Rule{QuotaPacing: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(quota("21"), quota("20"), quota("19"), quota("100"))})
		for range 3 {
			mustFetch(t, tr, t.Context(), "http://h.test/")
		}
		require.NotEmpty(t, seen.all)
		assert.Equal(t, 20, seen.all[0].Limit)
		assert.Equal(t, []string{"quota"}, seen.told())
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, []string{"no longer quota"}, seen.told())
	})
}

// TestChangeOfALargeQuota: what is left of a quota may be more than an int of 32 bits.
func TestChangeOfALargeQuota(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen changes
		tr := mustNew(t, transport.Config{Rule: policy.Rule{QuotaPacing: policy.On}, Traces: []*transport.Trace{seen.trace()},
			Base: script(faults.Status(200).Header("X-RateLimit-Limit", "30000000000").Header("X-RateLimit-Remaining", "3000000000").Header("X-RateLimit-Reset", "60"))})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		require.Len(t, seen.all, 1, "events")
		assert.GreaterOrEqual(t, seen.all[0].Limit, math.MaxInt32)
	})
}

// TestHostChangeTexts: each names the host and its cause, however long they are.
func TestHostChangeTexts(t *testing.T) {
	long, cause := "https://"+strings.Repeat("long.", 40)+"example.com:8443", "ein "+strings.Repeat("ü", 300)
	h := transport.HostChange{Host: long, Reason: transport.ReasonRateLimit, Err: errors.New(cause), Limit: 2, Waiting: 1_000_000}
	assert.Equal(t, long+": rate limit reached ("+cause+"), limit 2, 1000000 waiting", h.String())
	told := transport.HostChange{Host: "https://h.test", Reason: transport.ReasonThrottled, Over: true, FromFleet: true, Since: time.Now().Add(-20 * time.Second)}
	assert.Equal(t, "https://h.test: no longer throttled (says the fleet) after 20s", told.String())
}

// TestHookThatSends: a hook and a log handler may send requests over the same Transport.
func TestHookThatSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tr *transport.Transport
		var depth atomic.Int64
		tr = mustNew(t, transport.Config{
			Rule: policy.Rule{MaxAttempts: 2, Concurrency: policy.Concurrency{Max: 1}}.Or(quick),
			Base: script(faults.Status(503)),
			Traces: []*transport.Trace{&transport.Trace{HostChange: func(context.Context, transport.HostChange) {
				if depth.Add(1) < 3 {
					_, _ = fetch(t, tr, t.Context(), "http://h.test/")
				}
			}}},
			Logger: slog.New(handler(func(slog.Record) {
				if depth.Add(1) < 20 {
					_, _ = fetch(t, tr, t.Context(), "http://h.test/")
				}
			})),
		})
		for range 30 {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Greater(t, depth.Load(), int64(3))
	})
}

// A handler is a function that takes the records of a log.
type handler func(slog.Record)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
