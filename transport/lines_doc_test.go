package transport_test

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/fleetmsg"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

var updateLines = flag.Bool("update", false, "write the lines of the log to docs/observability.md")

// A situation is something that an operator sees in the log.
type situation struct {
	name string
	rule policy.Rule
	tls  ts.TLS            // of a server, if there is no base
	base http.RoundTripper // nil: a server with faulty TLS
	lane http.RoundTripper // of other connections; nil: the base has one pool only
	play func(*testing.T, *transport.Transport, string)
	busy bool // only the first line of each kind is shown, without numbers

	debug bool // the log has a line for each attempt
}

// TestAttributesInTheDocs: docs/observability.md lists the attributes of all log lines.
func TestAttributesInTheDocs(t *testing.T) {
	written := map[string]bool{}
	for _, path := range []string{"report.go", "../internal/route/maker.go"} {
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
	five := func(t *testing.T, tr *transport.Transport, url string) {
		for range 5 {
			once(t, tr, url)
		}
	}
	impatient := func(t *testing.T, tr *transport.Transport, url string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
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
	single := policy.Rule{Attempts: -1}
	gated := policy.Rule{Attempts: -1, Gate: policy.Gate{Start: 10}}
	heard := make(chan func(fleetmsg.Message), 1)
	quota := func(left string) faults.Step {
		return faults.Status(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", left, "X-RateLimit-Reset", "60")
	}
	var table strings.Builder
	table.WriteString("| situation | lines, with the time after its beginning |\n|---|---|\n")
	for _, s := range []situation{
		{name: "the certificate has expired, five GETs", rule: single, tls: ts.Expired, play: five},
		{name: "the DNS does not answer a GET", base: script(faults.Fail(&net.DNSError{Err: "i/o timeout", Name: "api.example.com", IsTimeout: true, IsTemporary: true})), rule: exact, play: once},
		{name: "the connection is refused, and the sixth attempt succeeds", rule: exact, base: script(append(slices.Repeat([]answer{faults.Refuse()}, 5), faults.Status(200))...), play: once},
		{name: "no response within the client's 10 s, five GETs", base: script(faults.Hang()), play: func(t *testing.T, tr *transport.Transport, url string) {
			for range 5 {
				impatient(t, tr, url)
			}
		}},
		{name: "a retry and a body that is cut, in a log for debugging", rule: exact, debug: true, base: script(faults.Status(503), faults.Status(200, "ETag", `"v1"`).Body("twelve bytes").CutAt(5), faults.Status(206, "ETag", `"v1"`, "Content-Range", "bytes 5-11/12").Body("e bytes")),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				_, _ = io.ReadAll(mustRoundTrip(t, tr, newRequest(t, http.MethodGet, url, nil)).Body)
			}},
		{name: "four GETs, the first gets a 429 with `Retry-After: 30`, `Cooldown` on", rule: sharing.Or(single), base: script(faults.Status(429, "Retry-After", "30"), faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				together(3, func(_ int) { once(t, tr, url) })
			}},
		{name: "a quota is nearly used up", rule: policy.Rule{Pacing: policy.On}, base: script(quota("50"), quota("12"), quota("100")),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				once(t, tr, url)
				time.Sleep(30 * time.Second)
				once(t, tr, url)
			}},
		{name: "the retries of a host are used up, and come back", rule: policy.Rule{Budget: policy.Budget{Burst: 4, PerSecond: 0.2}}.Or(quick), base: script(faults.Status(503), faults.Status(503), faults.Status(503), faults.Status(503), faults.Status(503), faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				time.Sleep(30 * time.Second)
				once(t, tr, url)
			}},
		{name: "connections die without a word", rule: policy.Rule{AttemptTimeout: time.Second, Backoff: backoff.Constant(time.Second)}, base: script(faults.Hang()), lane: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				for range 3 {
					once(t, tr, url)
				}
			}},
		{name: "one of the servers behind a balancer is bad", rule: policy.Rule{Backoff: backoff.Constant(10 * time.Millisecond)}.Or(exact), base: script(faults.Status(503)), lane: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				for range 9 {
					once(t, tr, url)
				}
			}},
		{name: "the server hangs behind a gate", rule: gated, base: script(faults.Hang()), busy: true, play: many(40, 503*time.Millisecond)},
		{name: "the server is down for a minute, and comes back", rule: gated,
			base: rt(func(req *http.Request) (*http.Response, error) {
				if time.Since(bubbles) < time.Minute {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
			}), busy: true, play: many(700, 101*time.Millisecond)},
		{name: "four GETs under a rate of one per 2.6 s", rule: policy.Rule{Rate: policy.Rate{PerSecond: 1 / 2.6, Burst: 1}}, base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				together(4, func(_ int) { once(t, tr, url) })
				time.Sleep(time.Minute)
				once(t, tr, url)
			}},
		{name: "a host that is down every other second", rule: single,
			base: rt(func(req *http.Request) (*http.Response, error) {
				if time.Since(bubbles)/time.Second%2 == 0 {
					return nil, errRefused
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
			}), busy: true, play: many(620, 100*time.Millisecond)},
		{name: "another process of a fleet gets a 429 with `Retry-After: 5`, `Cooldown` on", rule: sharing.Or(single), base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				hear := <-heard
				hear(fleetmsg.Message{Kind: fleetmsg.Hold, Host: "https://api.example.com", Status: 429, Wait: 5 * time.Second})
				once(t, tr, url)
			}},
		{name: "another process of a fleet reads that a quota is nearly used up", rule: policy.Rule{Pacing: policy.On}, base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				hear := <-heard
				hear(fleetmsg.Message{Kind: fleetmsg.Quota, Host: "https://api.example.com", Amount: 12, Limit: 100, Wait: time.Minute, Members: 2})
				once(t, tr, url)
				time.Sleep(time.Minute)
				once(t, tr, url)
			}},
		{name: "other processes of a fleet find a host down, and later back", rule: gated, base: script(faults.Status(200)),
			play: func(t *testing.T, tr *transport.Transport, url string) {
				once(t, tr, url)
				hear := <-heard
				time.Sleep(time.Minute)
				hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: "https://api.example.com", Wait: 10 * time.Second})
				for at, m := range map[time.Duration]fleetmsg.Message{300 * time.Millisecond: {Kind: fleetmsg.Probe, Wait: time.Minute}, 5 * time.Second: {Kind: fleetmsg.Up}} {
					m.Host = "https://api.example.com" // another member has the permit to try it
					time.AfterFunc(at, func() { hear(m) })
				}
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
			if s.lane != nil {
				c.Lane = func(string) http.RoundTripper { return s.lane }
			}
			if strings.Contains(s.name, "of a fleet") {
				c.Fleet = headersSeen{heard}
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
				text := fmt.Sprintf("%v %s", r.Level, random.ReplaceAllString(r.Message, "$1 …"))
				if s.busy {
					if text = numbers.ReplaceAllString(text, "…"); kinds[text] {
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
	// random finds the times that have jitter.
	random = regexp.MustCompile(`(a pause of|\(says the fleet\): requests wait for) [0-9.]+s`)
	// numbers finds the numbers that depend on the order in which goroutines run.
	numbers = regexp.MustCompile(`none waits|1 request waits|[0-9]+ requests wait|[0-9]+ go|again after [0-9.]+s`)
)

// bubbles is when the time of each bubble begins.
var bubbles = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// hearing is a fleet that only gives its hear function away.
type headersSeen struct{ to chan func(fleetmsg.Message) }

func (h headersSeen) Join(hear func(fleetmsg.Message)) error { h.to <- hear; return nil }
func (headersSeen) Tell(fleetmsg.Message)                    {}
func (headersSeen) Scope(string) uint64                      { return 1 }
