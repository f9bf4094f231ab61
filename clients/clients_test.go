// Every client meets the same questions and the same faults. docs/clients.md has the results.

package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// A client is a provider's library that is given an http.Client.
type client struct {
	name string
	// off says how its own retries are turned off, as Markdown.
	off string
	// needs is the rule as Markdown, and rule the rule itself.
	needs string
	rule  policy.Rule
	// keyed says that its requests to write have an Idempotency-Key.
	keyed bool
	// endsCut says that a response that is cut ends with its error.
	endsCut bool

	host    string
	good    func(*ts.Received) ts.Step // the answer if all is well
	trouble string                     // the body of a failure
	open    func(hc *http.Client, retries bool) calls
}

// The calls of a client return its errors as they are.
type calls struct {
	read, write func(context.Context) error
	own         func(error) bool // reports whether an error has the client's own type
}

// A row has what was found out about a client.
type row struct {
	client           client
	alone, both, off int  // attempts at a server that answers 503 for ever
	hasty            int  // requests of the client alone before the end of the server's wait, after the first
	waited           bool // the client alone waited for it
}

const wait = 30 * time.Second // that the server asks for

func (r *row) String() string {
	alone := "waits"
	if !r.waited {
		alone = fmt.Sprintf("fails, sent %d", 1+r.hasty)
	}
	c := r.client
	return fmt.Sprintf("| %s | %s | %d → %d → %d | %s | %s |\n", c.name, c.off, r.alone, r.both, r.off, alone, c.needs)
}

// TestClients checks docs/clients.md as well. With -update it writes the table.
func TestClients(t *testing.T) {
	rows := make([]string, len(clients()))
	for i, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			r := &row{client: c}
			t.Run("unchanged", func(t *testing.T) { inMemory(t, c.unchanged) })
			t.Run("given up", func(t *testing.T) { inMemory(t, func(t *testing.T) { c.givenUp(t, r) }) })
			t.Run("told to wait", func(t *testing.T) {
				inMemory(t, func(t *testing.T) { c.aloneToldToWait(t, r) })
				inMemory(t, c.toldToWait)
			})
			t.Run("writes", c.writes)
			for name, f := range faults() {
				t.Run(name, func(t *testing.T) { c.survive(t, f, name == "cut" && c.endsCut) })
			}
			rows[i] = r.String()
		})
	}
	checkTable(t, "../docs/clients.md", "clients", "| client | its own retries off | 503 for ever | a 429, alone | rule |\n|---|---|---|---|---|\n", rows)
}

// Without faults the server sees the same requests with and without a Transport.
func (c client) unchanged(t *testing.T) {
	s := newSite(t, ts.Config{Host: c.host, Handler: c.good})
	for _, hc := range []*http.Client{s.plain(), s.under(c.rule)} {
		require.NoError(t, c.open(hc, true).read(bounded(t)))
		require.NoError(t, c.open(hc, true).write(bounded(t)))
	}
	log := s.Log()
	require.Len(t, log, 4)
	for i, a := range log[:2] {
		b := log[i+2]
		assert.Equal(t, []any{a.Method, a.Target, a.BodyPrefix}, []any{b.Method, b.Target, b.BodyPrefix})
		a.Header.Del("Idempotency-Key") // it is random
		b.Header.Del("Idempotency-Key")
		assert.Equal(t, a.Header, b.Header)
	}
}

// If a server answers 503 for ever, the retries of the client and of the Transport multiply.
func (c client) givenUp(t *testing.T, r *row) {
	attempts := func(hc func(*site) *http.Client, retries bool) int {
		s := newSite(t, ts.Config{Host: c.host, Handler: func(*ts.Received) ts.Step { return json(503, c.trouble) }})
		calls := c.open(hc(s), retries)
		err := calls.read(bounded(t))
		require.Error(t, err)
		assert.True(t, calls.own(err), "the client's own error: %v (%T)", err, err)
		return len(s.Log())
	}
	under := func(s *site) *http.Client { return s.under(c.rule) }
	testkit.Count(t, 1, attempts((*site).plain, false), "request sent")
	r.alone, r.both, r.off = attempts((*site).plain, true), attempts(under, true), attempts(under, false)
	assert.Equal(t, policy.Defaults().MaxAttempts, r.off)
}

// tooMany is the answer of a server that asks for a wait.
func (c client) tooMany() ts.Step {
	return json(429, c.trouble).Header("Retry-After", fmt.Sprint(wait.Seconds()))
}

// aloneToldToWait counts the requests of the client alone that come before the wait is over.
func (c client) aloneToldToWait(t *testing.T, r *row) {
	s := newSite(t, ts.Config{Host: c.host, Handler: busyFor(wait, c.tooMany(), c.good)})
	r.waited = c.open(s.plain(), true).read(bounded(t)) == nil
	r.hasty = s.early(wait)
	assert.False(t, r.waited && r.hasty > 0)
}

// With a Transport all calls wait, also those that write.
func (c client) toldToWait(t *testing.T) {
	s := newSite(t, ts.Config{Host: c.host, Handler: busyFor(wait, c.tooMany(), c.good)})
	calls := c.open(s.under(c.rule), false)
	require.NoError(t, calls.write(bounded(t)))
	assert.Zero(t, s.early(wait))
	assert.Len(t, s.Log(), 2, "requests that arrived")
}

// A request to write is sent again after a lost response only if it has a key.
func (c client) writes(t *testing.T) {
	inMemory(t, func(t *testing.T) {
		s := newSite(t, ts.Config{Host: c.host, Handler: firstly(1, ts.ResetBeforeHeaders(), c.good)})
		err := c.open(s.under(c.rule), false).write(bounded(t))
		if !c.keyed {
			assert.Error(t, err)
			assert.Len(t, s.Log(), 1, "requests that arrived")
			return
		}
		require.NoError(t, err)
		log := s.Log()
		require.Len(t, log, 2)
		assert.NotEmpty(t, log[0].Header.Get("Idempotency-Key"))
		assert.Equal(t, log[0].Header.Get("Idempotency-Key"), log[1].Header.Get("Idempotency-Key"))
	})
}

// A fault is what a server does first, or for a while.
type fault func(c client) ts.Config

func faults() map[string]fault {
	step := func(s ts.Step) fault {
		return func(c client) ts.Config { return ts.Config{Handler: firstly(2, s, c.good)} }
	}
	return map[string]fault{
		"refused": func(c client) ts.Config { return ts.Config{Handler: c.good, ListenAfter: 1500 * time.Millisecond} },
		"reset":   step(ts.ResetBeforeHeaders()),
		"lost":    step(ts.CloseBeforeHeaders()),
		"silent":  step(ts.Hang()),
		"502":     step(ts.Status(502)),
		"cut": func(c client) ts.Config {
			return ts.Config{Handler: func(r *ts.Received) ts.Step {
				if r.N <= 2 {
					return c.good(r).CutAt(9, ts.Reset)
				}
				return c.good(r)
			}}
		},
	}
}

// survive shows that a fault breaks the client without its own retries, and not with a
// Transport, unless it ends the call there, too.
func (c client) survive(t *testing.T, f fault, ends bool) {
	for _, http2 := range []bool{false, true} {
		start := func(t *testing.T) *site {
			cfg := f(c)
			cfg.Host, cfg.HTTP2 = c.host, http2
			return newSite(t, cfg)
		}
		inMemory(t, func(t *testing.T) {
			require.Error(t, c.open(start(t).plain(), false).read(bounded(t)))
		})
		inMemory(t, func(t *testing.T) {
			s := start(t)
			rule := c.rule.Or(policy.Rule{AttemptTimeout: time.Minute}) // for the silence
			err := c.open(s.under(rule), false).read(bounded(t))
			if ends {
				require.Error(t, err)
				assert.Len(t, s.Log(), 1, "requests that arrived")
				return
			}
			require.NoError(t, err)
		})
	}
}

// asError reports whether err has the type T.
func asError[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// The events of a stream arrive when the server sends them. Those before the first content are held
// until it comes, for 5 s at most, because an error may come instead.
func TestStreamsInTime(t *testing.T) {
	const start = `{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","content":[]}}`
	delta := func(text string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text)
	}
	for _, row := range []struct {
		events string // when the server sends the start, and then a text each
		want   string // when the client gets them
	}{
		{"[0s 0s 1s 2s]", "[0s 0s 1s 2s]"},
		{"[0s 3s 4s 9s]", "[3s 3s 4s 9s]"},
		{"[0s 20s 21s 22s]", "[5s 20s 21s 22s]"},
	} {
		inMemory(t, func(t *testing.T) {
			hc := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				begin := time.Now()
				w.Header().Set("Content-Type", "text/event-stream")
				for i, at := range strings.Fields(strings.Trim(row.events, "[]")) {
					d, _ := time.ParseDuration(at)
					time.Sleep(time.Until(begin.Add(d)))
					event, data := "content_block_delta", delta(fmt.Sprint(i))
					if i == 0 {
						event, data = "message_start", start
					}
					_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
					_ = http.NewResponseController(w).Flush()
				}
			}))
			tr := over(t, hc.Transport, profile.Anthropic())
			c := newAnthropic(&http.Client{Transport: tr}, false, option.WithBaseURL("http://api.anthropic.com"))
			begin := time.Now()
			stream := c.Messages.NewStreaming(bounded(t), prompt())
			var came []time.Duration
			for stream.Next() {
				came = append(came, time.Since(begin))
			}
			require.NoError(t, stream.Err())
			assert.Equal(t, row.want, fmt.Sprint(came))
		})
	}
}
