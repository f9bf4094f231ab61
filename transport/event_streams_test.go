// Event streams that reconnect with Last-Event-ID.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// reconnects reads events on, and waits 1 s before each attempt.
var reconnects = policy.Rule{Backoff: backoff.Constant(time.Second), Resume: policy.Resume{Events: policy.On}}

// stream is a response with events.
func stream(events ...string) ts.Step {
	return ts.OK(strings.Join(events, "")).Header("Content-Type", "text/event-stream").Chunked()
}

// A source is a server that sends the events after the one that the client has. The
// event at index i has the ID i+1. ends says how each response ends, and the last how
// all others do.
type source struct {
	events []string
	ends   []func(ts.Step) ts.Step

	mu    sync.Mutex
	asked []string // the Last-Event-ID of each request
	times []time.Time
}

func (s *source) respond(r *ts.Received) ts.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := r.Header.Get("Last-Event-ID")
	s.asked, s.times = append(s.asked, last), append(s.times, time.Now())
	from, _ := strconv.Atoi(last)
	end := s.ends[min(len(s.asked), len(s.ends))-1]
	return end(stream(s.events[min(from, len(s.events)):]...))
}

// from sets a stage with the source as its server.
func (s *source) stage(t *testing.T, cfg ts.Config, rule policy.Rule) *stage {
	cfg.Handler = s.respond
	return set(t, cfg, rule)
}

func cutsAt(at int64) func(ts.Step) ts.Step {
	return func(s ts.Step) ts.Step { return s.CutAt(at, ts.Reset) }
}

func whole(s ts.Step) ts.Step { return s }

func gone(ts.Step) ts.Step { return ts.Status(http.StatusNoContent) }

// then makes the responses of a source end in turn.
func then(ends ...func(ts.Step) ts.Step) []func(ts.Step) ts.Step { return ends }

// eventsOf returns the events of a text. It is for texts without comments.
func eventsOf(text string) []string {
	text = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(text, "\uFEFF"), "\r\n", "\n"), "\r", "\n")
	return strings.SplitAfter(strings.TrimSuffix(text, "\n\n")+"\n\n", "\n\n")
}

// TestACutEventStreamGoesOn: cuts at every byte, with every end of a line. The reader
// gets each event once and none torn.
func TestACutEventStreamGoesOn(t *testing.T) {
	for name, end := range map[string]string{"LF": "\n", "CR": "\r", "CRLF": "\r\n"} {
		t.Run(name, func(t *testing.T) {
			var events []string
			for i, text := range []string{"id: 1\ndata: a\n\n", "id: 2\n: note\ndata: b\ndata: c\n\n", "event: x\ndata: d\nid:3\n\n", "id: 4\n\n", "data: e\nid: 5\n\n"} {
				if i == 0 {
					text = "\uFEFF" + text
				}
				events = append(events, strings.ReplaceAll(text, "\n", end))
			}
			all := strings.Join(events, "")
			first := int64(len(events[0]))
			if end == "\r\n" {
				first-- // the event is complete with the last CR
			}
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				for at := first; at < int64(len(all)); at++ {
					s := &source{events: events, ends: then(cutsAt(at), cutsAt(at%11), whole, gone)}
					st := s.stage(t, cfg, reconnects)
					got := st.send(http.MethodGet, nil)
					require.NoError(t, got.err, "at %d", at)
					require.Equal(t, eventsOf(all), eventsOf(got.body), "at %d: %q", at, got.body)
					st.base.CloseIdleConnections()
					st.Close()
				}
			})
		})
	}
}

// lastReason returns the reason of the last event.
func (s *stage) lastReason() transport.Reason {
	all := s.seen.events()
	return all[len(all)-1].Reason
}

// MCP's resumable GET streams: the server primes the client with an ID, names a wait, and
// closes the connection. The client polls until the server says 204 (SEP-1699).
func TestAnEventStreamIsPolled(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := &source{
			events: []string{"id: 1\nretry: 3000\ndata: \n\n", "id: 2\nevent: message\ndata: {}\n\n", "id: 3\ndata: {}\n\n"},
			ends: then(
				func(st ts.Step) ts.Step { return stream("id: 1\nretry: 3000\ndata: \n\n") },
				func(st ts.Step) ts.Step {
					return stream("id: 2\nevent: message\ndata: {}\n\n", "event: close\nretry: 5000\ndata: \n\n")
				},
				whole, gone),
		}
		st := s.stage(t, cfg, reconnects)
		got := st.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, s.events[0]+s.events[1]+"event: close\nretry: 5000\ndata: \n\n"+s.events[2], got.body)
		assert.Equal(t, []string{"", "1", "2", "3"}, s.asked)
		for i, least := range []time.Duration{3 * time.Second, 5 * time.Second, 5 * time.Second} {
			wait := s.times[i+1].Sub(s.times[i])
			assert.GreaterOrEqual(t, wait, least)
			assert.LessOrEqual(t, wait, least+time.Second+100*time.Millisecond, "jitter")
		}
		st.base.CloseIdleConnections()
	})
}

// A retry that is longer than the rule allows ends the stream. A wait that is shorter
// than the back-off is the back-off.
func TestTheWaitOfAnEventStream(t *testing.T) {
	for _, row := range []struct {
		name   string
		retry  string
		wait   time.Duration
		reason transport.Reason
	}{
		{"no field retry", "", time.Second, transport.ReasonFinal},
		{"short", "retry: 20\n", time.Second, transport.ReasonFinal},
		{"long", "retry: 50000\n", 50 * time.Second, transport.ReasonFinal},
		{"too long", "retry: 61000\n", 0, transport.ReasonMaxRetryAfter},
		{"no number", "retry: 9s\n", time.Second, transport.ReasonFinal},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				s := &source{events: []string{row.retry + "id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"}, ends: then(
					cutsAt(int64(len(row.retry)+20)),
					func(ts.Step) ts.Step { return ts.Status(503) },
					whole, gone)}
				st := s.stage(t, cfg, reconnects)
				got := st.send(http.MethodGet, nil)
				if row.reason != transport.ReasonFinal {
					e := errorAs[*transport.ResumeError](t, got.err)
					assert.Equal(t, row.reason, e.Reason)
					assert.Len(t, s.times, 1)
					return
				}
				require.NoError(t, got.err)
				require.Len(t, s.times, 4)
				for i := range 2 { // before the reconnect, and before its retry
					wait := s.times[i+1].Sub(s.times[i])
					assert.GreaterOrEqual(t, wait, row.wait)
					assert.LessOrEqual(t, wait, row.wait+1100*time.Millisecond) // the back-off has 0.1 s at random
				}
				st.base.CloseIdleConnections()
			})
		})
	}
}

// TestTheWaitOfAnEventStreamIsBounded: after the time that the server names, a reconnect comes
// within a second.
func TestTheWaitOfAnEventStreamIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var times []time.Time
		base := faults.New(nil, func(*http.Request) faults.Step {
			if times = append(times, time.Now()); len(times) > 200 {
				return faults.Status(204)
			}
			return faults.Status(200, "Content-Type", "text/event-stream").Body(fmt.Sprintf("retry: 2000\nid: %d\ndata: x\n\n", len(times)))
		})
		resp, err := mustNew(t, transport.Config{Rule: reconnects, Base: base}).RoundTrip(newRequest(t, http.MethodGet, "http://h.test/", nil))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.Len(t, times, 201)
		for i := range 200 {
			wait := times[i+1].Sub(times[i])
			assert.GreaterOrEqual(t, wait, 2*time.Second)
			assert.LessOrEqual(t, wait, 3*time.Second)
		}
	})
}

// TestEventStreamsThatEnd: what the reader gets if a stream cannot be read on.
func TestEventStreamsThatEnd(t *testing.T) {
	a, b := "id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n"
	big := "id: 2\ndata: " + strings.Repeat("x", 1<<20) + "\n\n"
	html := func(ts.Step) ts.Step { return ts.OK(a) }
	says := func(code int) func(ts.Step) ts.Step { return func(ts.Step) ts.Step { return ts.Status(code) } }
	elsewhere := func(ts.Step) ts.Step { return ts.Status(307).Header("Location", "/there") }
	only := func(text string) func(ts.Step) ts.Step { return func(ts.Step) ts.Step { return stream(text) } }
	onlyCut := func(text string) func(ts.Step) ts.Step {
		return func(ts.Step) ts.Step { return stream(text, "data: torn").CutAt(int64(len(text)+6), ts.Reset) }
	}
	for _, row := range []struct {
		name   string
		ends   []func(ts.Step) ts.Step
		body   string
		clean  bool
		sent   int
		reason transport.Reason
	}{
		{"no ID, clean", then(only("data: a\n\ndata: b\n")), "data: a\n\ndata: b\n", true, 1, transport.ReasonFinal},
		{"no ID, cut", then(onlyCut("data: a\n\n")), "data: a\n\n", false, 1, transport.ReasonNotResumable},
		{"an empty ID", then(onlyCut(a + "id\ndata: b\n\n")), a + "id\ndata: b\n\n", false, 1, transport.ReasonNotResumable},
		{"an ID with NUL", then(onlyCut("id: 1\x00\ndata: a\n\n")), "id: 1\x00\ndata: a\n\n", false, 1, transport.ReasonNotResumable},
		{"an ID that no header can have", then(onlyCut("id: \x01\n\n")), "id: \x01\n\n", false, 1, transport.ReasonNotResumable},
		{"an ID of 5000 bytes", then(onlyCut("id: " + strings.Repeat("1", 5000) + "\n\n")), "id: " + strings.Repeat("1", 5000) + "\n\n", false, 1, transport.ReasonNotResumable},
		{"data without an ID after it", then(onlyCut(a + "data: c\n\n")), a + "data: c\n\n", false, 1, transport.ReasonNotResumable},
		{"a large event", then(onlyCut(a + big)), a + big + "data: ", false, 1, transport.ReasonNotResumable},
		{"a large event, clean", then(only(a + big)), a + big, true, 1, transport.ReasonFinal},
		{"204 after a cut", then(onlyCut(a), gone), a, true, 2, transport.ReasonFinal},
		{"204 after a clean end", then(only(a), gone), a, true, 2, transport.ReasonFinal},
		{"404 after a cut", then(onlyCut(a), says(404)), a, false, 2, transport.ReasonMismatch},
		{"404 after a clean end", then(only(a), says(404)), a, true, 2, transport.ReasonMismatch},
		{"a redirect after a cut", then(onlyCut(a), elsewhere), a, false, 2, transport.ReasonMismatch},
		{"a redirect after a clean end", then(only(a), elsewhere), a, true, 2, transport.ReasonMismatch},
		{"another type", then(onlyCut(a), html), a, false, 2, transport.ReasonMismatch},
		{"503 without end", then(onlyCut(a), says(503)), a, false, 7, transport.ReasonAttempts},
		{"the server starts over after a cut", then(onlyCut(a + b)), a + b, false, 2, transport.ReasonMismatch},
		{"the server starts over after a clean end", then(only(a + b)), a + b, true, 2, transport.ReasonMismatch},
		{"the server begins with the last event", then(onlyCut(a), only(a+b), gone), a + b, true, 3, transport.ReasonFinal},
		{"clean ends without an event", then(only(a), only(": ping\n\n")), a + strings.Repeat(": ping\n\n", 6), true, 7, transport.ReasonResumeMax},
		{"cuts without an event", then(only(a), onlyCut("")), a, false, 7, transport.ReasonResumeMax},
		{"a BOM in a later response", then(onlyCut("\uFEFF"+a), only("\uFEFF"+b), gone), "\uFEFF" + a + b, true, 3, transport.ReasonFinal},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				s := &source{ends: row.ends}
				rule := reconnects
				if row.reason == transport.ReasonAttempts {
					rule.Budget.Burst = policy.Off
				}
				st := s.stage(t, cfg, rule)
				got := st.send(http.MethodGet, nil)
				assert.Equal(t, row.clean, got.err == nil, "%v", got.err)
				assert.Equal(t, row.body, got.body)
				assert.Len(t, s.times, row.sent)
				assert.Equal(t, row.reason, st.lastReason())
				if row.sent == 1 || row.sent == 2 { // nothing continued it
					assert.NotErrorAs(t, got.err, new(*transport.ResumeError), "the error of the cut, as it is")
				}
				st.base.CloseIdleConnections()
			})
		})
	}
}

// Which streams do not reconnect: by default, after a POST, and if the caller sends once.
func TestEventStreamsThatAreLeftAlone(t *testing.T) {
	a := "id: 1\ndata: a\n\n"
	torn := stream(a, a).CutAt(20, ts.Reset)
	same := func(ctx context.Context) context.Context { return ctx }
	for _, row := range []struct {
		name   string
		rule   policy.Rule
		method string
		mark   func(context.Context) context.Context
		step   ts.Step
	}{
		{"by default", policy.Rule{}, http.MethodGet, same, torn},
		{"a POST", reconnects, http.MethodPost, same, torn},
		{"a repeatable POST", reconnects, http.MethodPost, transport.Repeatable, torn},
		{"once", reconnects, http.MethodGet, transport.Once, torn},
		{"compressed for the caller", reconnects, http.MethodGet, same, torn.Header("Content-Encoding", "x")},
		{"no 200", reconnects, http.MethodGet, same, ts.Status(201).Body(a+a).Header("Content-Type", "text/event-stream").CutAt(20, ts.Reset)},
		{"resuming is off", policy.Rule{Resume: policy.Resume{Max: policy.Off}}.Or(reconnects), http.MethodGet, same, torn},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				st := set(t, cfg, row.rule, row.step, ts.Status(204))
				got := st.do(st.request(row.method, nil).WithContext(row.mark(t.Context())))
				require.Error(t, got.err)
				assert.Equal(t, (a + a)[:20], got.body)
				assert.Equal(t, 1, st.Arrivals())
				st.base.CloseIdleConnections()
			})
		})
	}
}

// A caller's own Last-Event-ID stays until the first ID came.
func TestTheCallersOwnEventID(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := &source{events: []string{"", "", "", "", "id: 5\ndata: a\n\n", "id: 6\ndata: b\n\n"}, ends: then(cutsAt(3), cutsAt(16), whole, gone)}
		st := s.stage(t, cfg, reconnects)
		req := st.request(http.MethodGet, nil)
		req.Header.Set("Last-Event-ID", "4")
		got := st.do(req)
		require.NoError(t, got.err)
		assert.Equal(t, s.events[4]+s.events[5], got.body)
		assert.Equal(t, []string{"4", "4", "5", "6"}, s.asked)
		assert.Equal(t, "4", req.Header.Get("Last-Event-ID"), "the caller's request is not changed")
		st.base.CloseIdleConnections()
	})
}

// TestTimeToTheFirstByteOfAStream: while reconnecting is off, no reader waits for a byte
// that has arrived. While it is on, an event comes when it is complete, and a comment
// with the end of its line.
func TestTimeToTheFirstByteOfAStream(t *testing.T) {
	text := ": hi\nid: 1\ndata: a\n\n"
	for _, on := range []bool{false, true} {
		t.Run(fmt.Sprint("on=", on), func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				rule := policy.Rule{}
				if on {
					rule = reconnects
				}
				st := set(t, cfg, rule, stream(text).Drip(1, time.Second), ts.Status(204))
				resp := mustRoundTrip(t, st.tr, st.request(http.MethodGet, nil))
				start := time.Now()
				var came []time.Duration
				for range text {
					p := make([]byte, 1)
					_, err := io.ReadFull(resp.Body, p)
					require.NoError(t, err)
					came = append(came, time.Since(start))
				}
				for i, d := range came {
					want := time.Duration(i+1) * time.Second
					if on && i < 5 {
						want = 5 * time.Second
					} else if on {
						want = time.Duration(len(text)) * time.Second
					}
					assert.Equal(t, want, d, "byte %d", i)
				}
				require.NoError(t, resp.Body.Close())
				st.base.CloseIdleConnections()
			})
		})
	}
}

// Close ends a Read that waits for an event, and one that waits for a reconnect. The
// bubble fails if a goroutine is left.
func TestClosingAnEventStream(t *testing.T) {
	for _, after := range []time.Duration{10 * time.Second, 30 * time.Second} {
		inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
			event := "id: 1\nretry: 59000\ndata: a\n\n"
			st := set(t, cfg, reconnects, stream(event, "data: b").Drip(len(event), 20*time.Second).CutAt(int64(len(event)), ts.Reset), ts.Hang())
			resp := mustRoundTrip(t, st.tr, st.request(http.MethodGet, nil))
			start := time.Now()
			done := make(chan error)
			go func() {
				_, err := io.Copy(io.Discard, resp.Body)
				done <- err
			}()
			time.Sleep(after)
			require.NoError(t, resp.Body.Close())
			require.Error(t, <-done)
			assert.Equal(t, after, time.Since(start))
			_, err := resp.Body.Read(make([]byte, 1))
			assert.Error(t, err)
			assert.Equal(t, 1, st.Arrivals())
			st.base.CloseIdleConnections()
		})
	}
}

// The end of the caller's context ends the wait for a reconnect with its error.
func TestCancelingAnEventStream(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		st := set(t, cfg, reconnects, stream("id: 1\nretry: 50000\n\n"), ts.Hang())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		start := time.Now()
		got := st.do(st.request(http.MethodGet, nil).WithContext(ctx))
		assert.Equal(t, 20*time.Second, time.Since(start))
		require.ErrorIs(t, got.err, context.Canceled)
		st.base.CloseIdleConnections()
	})
}

// A stream without events is cut by proxies. It goes on as long as its segments last for
// long, and takes no retry from the budget.
func TestAnIdleEventStreamGoesOn(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		idle := func(ts.Step) ts.Step { return stream(": -\n").Drip(1, 15*time.Second).CutAt(3, ts.Reset) }
		ends := then(func(ts.Step) ts.Step { return stream("id: 1\n\n") })
		for range 20 {
			ends = append(ends, idle)
		}
		s := &source{ends: append(ends, gone)}
		st := s.stage(t, cfg, policy.Rule{Budget: policy.Budget{Ratio: policy.Off, PerSecond: 1e-6, Burst: 1}}.Or(reconnects))
		got := st.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Len(t, s.times, 22)
		st.base.CloseIdleConnections()
	})
}

// TestEventStreamsOfAllKinds: the reader has a prefix of the events in any case, each
// once, and all of them if no error came.
func TestEventStreamsOfAllKinds(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		for seed := range uint64(soak.Size(150, 3000)) {
			r := rand.New(rand.NewPCG(seed, 1))
			end := []string{"\n", "\r", "\r\n"}[r.IntN(3)]
			s := &source{}
			for i := range 1 + r.IntN(12) {
				text := ""
				for range r.IntN(3) {
					text += []string{": note", "event: x", "retry: 10", "foo: bar"}[r.IntN(4)] + end
				}
				text += fmt.Sprintf("id: %d%s", i+1, end)
				for range r.IntN(3) {
					text += "data: " + strings.Repeat("x", r.IntN(50)) + end
				}
				s.events = append(s.events, text+end)
			}
			all := strings.Join(s.events, "")
			for range r.IntN(6) {
				at := int64(r.IntN(len(all) + 20))
				s.ends = append(s.ends, []func(ts.Step) ts.Step{
					cutsAt(at), whole,
					func(st ts.Step) ts.Step { return st.CutAt(at, ts.Close).Drip(1+r.IntN(30), time.Millisecond) },
					func(ts.Step) ts.Step { return ts.Status(503) },
					func(ts.Step) ts.Step { return ts.ResetBeforeHeaders() },
					func(st ts.Step) ts.Step { return st.Gzip() },
				}[r.IntN(6)])
			}
			s.ends = append(s.ends, whole, gone)
			st := s.stage(t, cfg, policy.Rule{Budget: policy.Budget{Burst: policy.Off}}.Or(reconnects))
			got := st.send(http.MethodGet, nil)
			// A comment outside of an event may come twice, but it is no event.
			have, want := bare(got.body), bare(all)
			if got.err != nil {
				require.True(t, len(have) <= len(want), "seed %d", seed)
				want = want[:len(have)]
			}
			require.Equal(t, want, have, "seed %d: %v", seed, got.err)
			st.base.CloseIdleConnections()
			st.Close()
		}
	})
}

// bare returns the events of a text without comments and empty lines.
func bare(text string) []string {
	event, events := "", []string{}
	for line := range strings.Lines(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")) {
		switch {
		case line[0] == ':':
		case line != "\n":
			event += line
		case event != "":
			events, event = append(events, event), ""
		}
	}
	if event != "" {
		events = append(events, "torn: "+event)
	}
	return events
}
