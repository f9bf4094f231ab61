package transport_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
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

// count returns how many lines a record stands for.
func count(r slog.Record) int {
	if n, ok := attr(r, "count").(int64); ok {
		return int(n)
	}
	return 1
}

// records returns the records so far.
func (j *journal) records() []slog.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// busiest returns the most lines in any second.
func (j *journal) busiest() (most int) {
	all := j.records()
	for i := range all {
		n := 0
		for _, r := range all[i:] {
			if r.Time.Sub(all[i].Time) < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestLinesOfAStorm: a host that fails 1000 requests per second in many ways has at most 5
// lines in any second, also about its state, and the numbers are exact.
func TestLinesOfAStorm(t *testing.T) {
	for name, kinds := range map[string]int{"one kind": 1, "some kinds": 3, "many kinds": 40} {
		inBubble(t, name, func(t *testing.T) {
			var log journal
			var requests, events atomic.Int64
			tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: 2}.Or(exact), Logger: log.logger(),
				Trace: &transport.Trace{Event: func(e transport.Event) {
					if e.Number > 1 || e.Reason != transport.ReasonFinal {
						events.Add(1)
					}
				}},
				Base: rt(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 500 + int(requests.Add(1))%kinds, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
				})})
			const storm = 3000
			for range storm {
				go func() { _, _ = fetch(t, tr, t.Context(), "http://h.test/") }()
				time.Sleep(time.Millisecond)
			}
			time.Sleep(2 * time.Minute)
			assert.LessOrEqual(t, log.busiest(), 5)
			lines, changes := 0, 0
			for _, r := range log.records() {
				if attr(r, "condition") == nil {
					lines += count(r)
					continue
				}
				changes++
			}
			assert.EqualValues(t, events.Load(), lines)
			assert.Greater(t, lines, storm/2)
			assert.Positive(t, changes)
			assert.Less(t, len(log.records()), 70)
		})
	}
}

// TestLinesOfAnHour: an hour of an outage can be read. The requests wait behind the gate, and
// most callers hang up.
func TestLinesOfAnHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Start: 10}}, Logger: log.logger(),
			Base: rt(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			})})
		var all sync.WaitGroup
		for i := range 3600 * 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if i%2 == 0 {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(10*time.Second, cancel)
				}
				defer cancel()
				_, _ = fetch(t, tr, ctx, "http://h.test/")
			})
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
		time.Sleep(2 * time.Minute)
		levels := map[slog.Level]int{}
		sum := 0
		for _, r := range log.records() {
			levels[r.Level]++
			if attr(r, "reason") != nil {
				n := count(r)
				sum += n
				if within, _ := attr(r, "within").(time.Duration); n > 1 { // a second between two of a kind
					assert.InDelta(t, n-1, within.Seconds(), 2, "%d lines within %v", n, within)
				}
			} else {
				t.Log(r.Time.Format(time.TimeOnly), r.Level, r.Message)
			}
		}
		t.Log("an hour makes", levels)
		assert.Equal(t, 7200, sum)
		assert.Less(t, levels[slog.LevelWarn], 400)
	})
}

// TestLinesOfManyHosts: hosts do not share their lines, and what is kept is bounded.
func TestLinesOfManyHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Logger: log.logger(), Base: script(faults.Fail(errors.New("no")))})
		for i := range 3000 {
			_, _ = fetch(t, tr, t.Context(), fmt.Sprintf("http://h%d.test/", i))
		}
		first := len(log.records())
		assert.GreaterOrEqual(t, first, 1000)
		assert.Less(t, first, 1100)
		time.Sleep(time.Minute)
		sum := 0
		for _, r := range log.records() {
			sum += count(r)
		}
		assert.Equal(t, 3000, sum)
		for i := range 10 { // the others are forgotten by then
			_, _ = fetch(t, tr, t.Context(), fmt.Sprintf("http://again%d.test/", i))
		}
		assert.Equal(t, first+1+10, len(log.records()))
	})
}

// TestChangesPerMinute: a host has four lines per minute about its state. The last change is
// written, with the number of those that are not.
func TestChangesPerMinute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		var seen changes
		refuses := true
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Logger: log.logger(), Trace: seen.trace(),
			Base: rt(func(req *http.Request) (*http.Response, error) {
				h, code := http.Header{}, 200
				if refuses {
					h.Set("Retry-After", "2")
					code = 503
				}
				refuses = !refuses
				return &http.Response{StatusCode: code, Body: http.NoBody, Header: h, Request: req}, nil
			})})
		for range 10 {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
			time.Sleep(5 * time.Second)
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
		}
		told := len(seen.told())
		assert.Equal(t, 20, told)
		time.Sleep(2 * time.Minute)
		lines, skipped := 0, 0
		for _, r := range log.records() {
			if attr(r, "condition") != nil {
				lines++
				if n, ok := attr(r, "skipped").(int64); ok {
					skipped += int(n)
				}
			}
		}
		assert.Equal(t, told, lines+skipped)
		assert.LessOrEqual(t, lines, 8)
		last := log.records()[len(log.records())-1]
		assert.Equal(t, true, attr(last, "over"), "the last line says how it is now: %s", last.Message)
	})
}

// TestAnOutageIsToldAmongOtherChanges: lines about a quota that comes and goes take no line from
// an outage.
func TestAnOutageIsToldAmongOtherChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		var seen changes
		start, left := time.Now(), 12
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1, Pacing: policy.On, Gate: policy.Gate{Start: 10}}, Logger: log.logger(), Trace: seen.trace(),
			Base: rt(func(req *http.Request) (*http.Response, error) {
				if at := time.Since(start); at > 30*time.Second && at < 55*time.Second {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
				}
				left = 112 - left
				h := http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {strconv.Itoa(left)}, "X-Ratelimit-Reset": {"3"}}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: h, Request: req}, nil
			})})
		for range 200 {
			go func() { _, _ = fetch(t, tr, t.Context(), "http://h.test/") }()
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		assert.Subset(t, seen.told(), []string{"down", "no longer down"})
		var about []string
		for _, r := range log.records() {
			if attr(r, "condition") == "down" {
				about = append(about, r.Message)
				assert.Nil(t, attr(r, "skipped"))
			}
		}
		require.Len(t, about, 2)
		assert.Contains(t, about[0], "http://h.test is down (connection refused)")
		assert.Contains(t, about[1], "http://h.test is back after")
	})
}

// TestAHostThatFlaps: of a host that is down again and again the last state is told, with the
// number of the lines that are left out.
func TestAHostThatFlaps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log journal
		var seen changes
		var down atomic.Bool
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1, Gate: policy.Gate{Start: 10}}, Logger: log.logger(), Trace: seen.trace(),
			Base: rt(func(req *http.Request) (*http.Response, error) {
				if down.Load() {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
			})})
		for i := range 1200 {
			down.Store(i/40%2 == 0)
			go func() { _, _ = fetch(t, tr, t.Context(), "http://h.test/") }()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		told := len(seen.told())
		require.Greater(t, told, 4)
		var lines []slog.Record
		skipped := 0
		for _, r := range log.records() {
			if attr(r, "condition") == "down" {
				n, _ := attr(r, "skipped").(int64)
				lines, skipped = append(lines, r), skipped+int(n)
			}
		}
		assert.Equal(t, told, len(lines)+skipped)
		assert.NotZero(t, skipped)
		for i := 4; i < len(lines); i++ {
			assert.GreaterOrEqual(t, lines[i].Time.Sub(lines[i-4].Time), time.Minute)
		}
		assert.Contains(t, lines[len(lines)-1].Message, " is back after ")
	})
}

// TestHandlerThatBlocks: a handler that blocks holds up its own request only, and nothing is
// lost meanwhile.
func TestHandlerThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		sum, calls := 0, 0
		logger := slog.New(handler(func(r slog.Record) {
			mu.Lock()
			calls++
			mu.Unlock()
			time.Sleep(10 * time.Second)
			mu.Lock()
			sum += count(r)
			mu.Unlock()
		}))
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Logger: logger, Base: script(faults.Fail(errors.New("no")))})
		for range 100 {
			go func() { _, _ = fetch(t, tr, t.Context(), "http://h.test/") }()
		}
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		_, _ = fetch(t, tr, t.Context(), "http://h.test/")
		assert.Zero(t, time.Since(start))
		time.Sleep(3 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 101, sum)
		assert.Equal(t, 2, calls)
	})
}

// TestHandlerThatPanics: a panic in the goroutine of the timer does not end the process.
func TestHandlerThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var calls atomic.Int64
		logger := slog.New(handler(func(slog.Record) {
			if calls.Add(1) > 1 {
				panic("handler")
			}
		}))
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Logger: logger, Base: script(faults.Fail(errors.New("no")))})
		for range 3 {
			_, _ = fetch(t, tr, t.Context(), "http://h.test/")
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, calls.Load())
	})
}

// TestForgottenWithLines: lines that are held back keep neither the Transport nor its requests
// in memory.
func TestForgottenWithLines(t *testing.T) {
	type kept struct{ http.RoundTripper }
	lost := func() weak.Pointer[kept] {
		b := &kept{script(faults.Fail(errors.New("no")))}
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Base: b, Logger: slog.New(handler(func(slog.Record) {}))})
		for range 3 {
			_, _ = fetch(t, tr, context.WithValue(t.Context(), b, b), "http://h.test/")
		}
		return weak.Make(b)
	}()
	for range 1000 {
		if runtime.GC(); lost.Value() == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the Transport is still there")
}

// TestForgottenAfterAChange: a line about a host that was written keeps no request in memory.
func TestForgottenAfterAChange(t *testing.T) {
	tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1}, Base: faults.New(nil, faults.Always(status(429, "Retry-After: 1"))), Logger: slog.New(handler(func(slog.Record) {}))})
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

// TestReasonsOfAnEnd: a deadline that passed is a warning, and a caller who hung up is not.
func TestReasonsOfAnEnd(t *testing.T) {
	for name, row := range map[string]struct {
		begin  func(context.Context) (context.Context, context.CancelFunc)
		reason transport.Reason
		level  slog.Level
	}{
		"a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, transport.ReasonTimeout, slog.LevelWarn},
		"a deadline with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errors.New("enough"))
		}, transport.ReasonTimeout, slog.LevelWarn},
		"a caller": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, transport.ReasonCanceled, slog.LevelDebug},
	} {
		inBubble(t, name, func(t *testing.T) {
			var log journal
			var seen recorder
			tr := mustNew(t, transport.Config{Logger: log.logger(), Base: script(faults.Hang()), Trace: seen.trace()})
			ctx, cancel := row.begin(t.Context())
			defer cancel()
			_, err := fetch(t, tr, ctx, "http://h.test/")
			require.Error(t, err)
			last := seen.events()[len(seen.events())-1]
			assert.Equal(t, row.reason, last.Reason)
			require.NotEmpty(t, log.records())
			line := log.records()[len(log.records())-1] // the first is about the lanes
			assert.Equal(t, row.level, line.Level)
			assert.Equal(t, row.reason.String(), attr(line, "reason"))
		})
	}
	inBubble(t, "the timeout of a client", func(t *testing.T) {
		var seen recorder
		client := &http.Client{Timeout: time.Second, Transport: mustNew(t, transport.Config{Base: script(faults.Hang()), Trace: seen.trace()})}
		_, err := client.Get("http://h.test/")
		require.Error(t, err)
		assert.Equal(t, []transport.Reason{transport.ReasonTimeout}, seen.reasons())
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
			"GET %s\n  attempt 1, at 0s: 503, retry after 1s\n  attempt 2, at 1s: 200\n  status 200, the caller has it"},
		"a wait that is too long": {exact, script(faults.Status(429, "Retry-After", "3600")),
			"GET %s\n  attempt 1, at 0s: 429, asks to wait 1h0m0s\n  status 429: the wait is longer than the rule allows"},
		"an error": {policy.Rule{Attempts: 2}.Or(exact), script(faults.Fail(fmt.Errorf("broken at %s", secret))),
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
		resp := mustFetch(t, over(t, transport.Config{Rule: policy.Rule{Hedge: policy.Hedge{After: 300 * time.Millisecond}}}, base), t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  attempt 2, at 300ms: 503, a hedge\n  attempt 1, at 0s: 200 after 1s\n  status 200, the caller has it", transport.Explain(resp, nil))
	})
	assert.Equal(t, "no request", transport.Explain(nil, nil))
	for _, raw := range []string{"http://someone:SECRET@h.test/%zz?key=SECRET", "http://h.test:port/?key=SECRET#SECRET"} {
		resp, err := http.Get(raw)
		require.Error(t, err)
		assert.NotContains(t, transport.Explain(resp, err), "SECRET")
	}
	inBubble(t, "limits", func(t *testing.T) {
		tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: -1, Rate: policy.Rate{PerSecond: 0.5}}, Base: script(faults.Status(503))})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		resp := mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  attempt 1, at 0s: 503, had waited 2s for the rate\n  status 503: the rule allows one attempt", transport.Explain(resp, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := fetch(t, tr, ctx, "http://h.test/")
		assert.Equal(t, "GET http://h.test/\n  not sent: its turn would come after the caller's deadline (rate), try again at 2000-01-01T00:00:04Z", transport.Explain(nil, err))
	})
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
			tr := mustNew(t, transport.Config{Rule: policy.Rule{Attempts: 2}, Logger: log.logger(), Base: script(faults.Fail(err))})
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
			}
			printable(t, transport.HostChange{Host: "https://h\u009b31m.test", Condition: transport.ConditionDown, Err: err}.String())
		})
	}
}
