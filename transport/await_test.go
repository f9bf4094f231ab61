// Responses that are read whole before the caller gets them.

package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// awaiting reads bodies of up to 1 MiB.
var awaiting = policy.Rule{Download: policy.Download{Memory: 1 << 20}}.Or(quick)

// version is JSON that is another at each request.
func jsonText(n, size int) string { return fmt.Sprintf(`{"now":%d,"data":%q}`, n, text(size)) }

// TestContentThatChangesAtEachRequest: the reader gets the whole of one version, wherever
// the bodies are cut. Without Download.Memory it gets the error of the cut.
func TestContentThatChangesAtEachRequest(t *testing.T) {
	const size = 20_000
	step := int64(soak.Size(1999, 1))
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		for at := int64(0); at < size; at += step {
			for _, rule := range []policy.Rule{policy.API(), {}} {
				length, gzip := at%2 == 0, at%3 == 0
				cut := at
				if gzip {
					cut %= 4000
				}
				s := set(t, cfg, policy.Rule{Budget: policy.Budget{Burst: policy.Off}}.Or(rule),
					jsonStep(jsonText(1, size), length, gzip).CutAt(cut, ts.Reset),
					jsonStep(jsonText(2, size), length, gzip).CutAt(cut/2, ts.Close),
					jsonStep(jsonText(3, size), length, gzip))
				got := s.send(http.MethodGet, nil)
				if rule.Download.Memory > 0 {
					require.NoError(t, got.err, "at %d", at)
					require.True(t, got.body == jsonText(3, size))
				} else if got.err == nil {
					require.True(t, got.body == jsonText(2, size) || got.body == jsonText(3, size), "nothing was delivered before the cut")
				}
				s.base.CloseIdleConnections()
				s.Close()
			}
		}
	})
}

// TestWhichResponsesAreAwaited: a cut of any other body reaches the reader, and a POST is
// not sent twice.
func TestWhichResponsesAreAwaited(t *testing.T) {
	small, large := text(5000), text(2<<20)
	keyed := policy.Rule{IdempotencyKey: func(*http.Request) string { return "k1" }}.Or(awaiting)
	vouched := policy.Rule{Idempotent: func(*http.Request) bool { return true }}.Or(awaiting)
	for _, row := range []struct {
		name    string
		method  string
		rule    policy.Rule
		step    ts.Step
		ctx     func(context.Context) context.Context
		awaited bool
	}{
		{"GET", http.MethodGet, awaiting, jsonStep(small, true, false), nil, true},
		{"GET without a length", http.MethodGet, awaiting, jsonStep(small, false, false), nil, true},
		{"PUT", http.MethodPut, awaiting, jsonStep(small, true, false), nil, false},
		{"DELETE", http.MethodDelete, awaiting, jsonStep(small, true, false), nil, false},
		{"REPORT", "REPORT", awaiting, jsonStep(small, true, false), nil, true},
		{"PUT with a key", http.MethodPut, keyed, jsonStep(small, true, false), nil, true},
		{"PUT that the rule vouches for", http.MethodPut, vouched, jsonStep(small, true, false), nil, true},
		{"POST with a key", http.MethodPost, keyed, jsonStep(small, true, false), nil, true},
		{"repeatable PUT", http.MethodPut, awaiting, jsonStep(small, true, false), transport.Repeatable, true},
		{"POST", http.MethodPost, awaiting, jsonStep(small, true, false), nil, false},
		{"repeatable POST", http.MethodPost, awaiting, jsonStep(small, true, false), transport.Repeatable, true},
		{"GET once", http.MethodGet, awaiting, jsonStep(small, true, false), transport.Once, false},
		{"off", http.MethodGet, quick, jsonStep(small, true, false), nil, false},
		{"too long", http.MethodGet, awaiting, jsonStep(large, true, false), nil, false},
		{"an error", http.MethodGet, awaiting, ts.Status(404).Body(small), nil, false},
		{"an event stream", http.MethodGet, awaiting, ts.OK(small).Header("Content-Type", "text/event-stream"), nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				rule := row.rule
				rule.Resume.Again = policy.Off
				s := set(t, cfg, rule, row.step.CutAt(3000, ts.Reset), row.step)
				req := s.request(row.method, strings.NewReader("an order"))
				if row.method == http.MethodGet {
					req = s.request(row.method, nil)
				}
				if row.ctx != nil {
					req = req.WithContext(row.ctx(req.Context()))
				}
				got := s.do(req)
				assert.Equal(t, row.awaited, got.err == nil, "%v", got.err)
				if row.awaited {
					assert.Equal(t, 2, s.Arrivals())
					assert.Equal(t, small, got.body)
				} else {
					assert.Equal(t, 1, s.Arrivals())
					assert.NotEmpty(t, got.body, "the reader gets what came before the cut")
				}
				s.base.CloseIdleConnections()
			})
		})
	}
}

// TestTheRestOfAnAwaitedBody: a connection that is cut after so many bytes each time brings
// the whole in parts.
func TestTheRestOfAnAwaitedBody(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		body := text(1 << 20)
		s := set(t, cfg, awaiting, ts.Content([]byte(body), `"v1"`).CutAt(400_000, ts.Reset), ts.Content([]byte(body), `"v1"`).CutAt(400_000, ts.Reset), ts.Content([]byte(body), `"v1"`))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == body)
		assert.Equal(t, "bytes=400000-", s.Log()[1].Header.Get("Range"))
		s.base.CloseIdleConnections()
	})
}

// A shorter part is fetched anew, so that it does not matter whether the content has changed.
func TestAShortPartIsFetchedAnew(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		first, second := text(200_000), text(100_000)
		s := set(t, cfg, awaiting, ts.Content([]byte(first), `"v1"`).CutAt(10_000, ts.Reset), ts.Content([]byte(second), `"v2"`))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == second)
		assert.Empty(t, s.Log()[1].Header.Get("Range"))
		s.base.CloseIdleConnections()
	})
}

// A longer part is fetched anew as well if there is no rest to ask for.
func TestALongPartWithoutARest(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, awaiting, jsonStep(jsonText(1, 150_000), true, false).CutAt(100_000, ts.Reset), jsonStep(jsonText(2, 150_000), true, false))
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == jsonText(2, 150_000))
		s.base.CloseIdleConnections()
	})
}

// A body that is longer than Download.Memory is delivered as it comes. So a second cut loses nothing.
func TestALongBodyIsNotAwaited(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		body := text(2 << 20)
		whole := ts.Content([]byte(body), `"v1"`)
		s := set(t, cfg, awaiting, whole.CutAt(1_500_000, ts.Reset), whole.CutAt(10_000, ts.Reset), whole)
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == body)
		assert.Equal(t, "bytes=1510000-", s.Log()[2].Header.Get("Range"))
		s.base.CloseIdleConnections()
	})
}

// The inner of two Transports has asked for the rest, and the content had changed. The outer
// one does not ask for the whole, because the inner has given up.
func TestTheRestBelowIsNotTheSame(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		first, second := ts.Content([]byte(text(200_000)), `"v1"`), ts.Content([]byte(text(150_000)), `"v2"`)
		s := set(t, cfg, quick, first.CutAt(100_000, ts.Reset), second, second)
		outer := mustNew(t, transport.Config{Base: s.tr, Rule: awaiting})
		got := do(outer, s.request(http.MethodGet, nil))
		require.Error(t, got.err)
		assert.True(t, got.body == text(200_000)[:100_000])
		assert.Equal(t, 2, s.Arrivals())
		s.base.CloseIdleConnections()
	})
}

// If the request cannot be sent again, its reader gets what came before the cut.
func TestAwaitingNeedsTheRequest(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		rule := policy.Rule{Upload: policy.Upload{Memory: policy.Off}}.Or(awaiting)
		s := set(t, cfg, rule, jsonStep(text(5000), true, false).CutAt(3000, ts.Reset))
		got := s.send("REPORT", reader(strings.NewReader(text(100_000))))
		require.Error(t, got.err)
		assert.Equal(t, text(5000)[:3000], got.body)
		assert.Equal(t, 1, s.Arrivals())
		s.base.CloseIdleConnections()
	})
}

// TestTheResponseIsHandedOver: a response waits for its body for 100 ms without a byte, and for
// 1 s altogether, whatever it announces.
func TestTheResponseIsHandedOver(t *testing.T) {
	const lines, size = 20, 16
	for _, row := range []struct {
		name    string
		every   time.Duration
		length  bool
		returns time.Duration
	}{
		{"the body comes at once", 0, false, 0},
		{"the body pauses", time.Second, false, 100 * time.Millisecond},
		{"the body never pauses", 60 * time.Millisecond, false, time.Second},
		{"a known length comes at once", 0, true, 0},
		{"a known length pauses", 300 * time.Millisecond, true, 100 * time.Millisecond},
		{"a known length never pauses", 60 * time.Millisecond, true, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
				step := ts.OK(strings.Repeat("a line of a log\n", lines)).Header("Content-Type", "text/plain")
				if !row.length {
					step = step.Chunked()
				}
				if row.every > 0 {
					step = step.Drip(size, row.every)
				}
				s := set(t, cfg, awaiting, step)
				start := time.Now()
				resp := mustRoundTrip(t, s.tr, s.request(http.MethodGet, nil))
				assert.Equal(t, row.returns, time.Since(start))
				line := make([]byte, size)
				for i := range lines { // the server pauses before each of them
					_, err := io.ReadFull(resp.Body, line)
					require.NoError(t, err)
					assert.Equal(t, max(row.returns, time.Duration(i+1)*row.every), time.Since(start))
				}
				_, err := resp.Body.Read(line)
				assert.Equal(t, io.EOF, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 1, s.Arrivals())
				s.base.CloseIdleConnections()
			})
		})
	}
}

// TestASlowBodyIsNoOutcome: the caller gets 1 MiB at 30 KiB/s in the time that the server needs.
func TestASlowBodyIsNoOutcome(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		content := text(1 << 20)
		s := set(t, cfg, awaiting, jsonStep(content, true, false).Drip(3<<10, 100*time.Millisecond))
		start := time.Now()
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == content)
		assert.Equal(t, 1, s.Arrivals())
		assert.LessOrEqual(t, time.Since(start), 36*time.Second)
		s.base.CloseIdleConnections()
	})
}

// TestAHandlerThatGoesOn: all bytes that were announced have come, and the stream ends 40 s later.
func TestAHandlerThatGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, "right!")
				time.Sleep(40 * time.Second)
				_ = w.Close()
			}()
			resp := newResponse(req, 200, r)
			resp.ContentLength = 6
			return resp, nil
		})
		got := do(over(t, transport.Config{Rule: awaiting}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
		require.NoError(t, got.err)
		assert.Equal(t, "right!", got.body)
		assert.Equal(t, 100*time.Millisecond, got.elapsed)
		assert.Equal(t, 1, base.attempts())
	})
}

// TestFullDuplexUnderDownloadMemory: the server sends back what the caller sends, while it is sent.
func TestFullDuplexUnderDownloadMemory(t *testing.T) {
	for name, header := range map[string]string{"a PUT": "X-Other", "with a key": "Idempotency-Key"} {
		inBubble(t, name, func(t *testing.T) {
			attempts := 0
			tr := over(t, transport.Config{Rule: awaiting}, rt(func(req *http.Request) (*http.Response, error) {
				attempts++
				resp := newResponse(req, 200, req.Body)
				resp.ContentLength = 10
				return resp, nil
			}))
			r, w := io.Pipe()
			req := newRequest(t, http.MethodPut, "http://h.test/", r)
			req.Header.Set(header, "k1")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resp := mustRoundTrip(t, tr, req.WithContext(ctx))
			go func() { _, _ = io.WriteString(w, "to and fro"); _ = w.Close() }()
			assert.Equal(t, "to and fro", mustRead(t, resp))
			assert.Equal(t, 1, attempts)
		})
	}
}

// TestTheLastCutIsTheReaders: if no attempt is left, the caller gets the last response with
// what came of its body, and then the error of the cut.
func TestTheLastCutIsTheReaders(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		for attempts, reason := range map[int]transport.Reason{2: transport.ReasonAttempts, 9: transport.ReasonBudget} {
			rule := policy.Rule{Attempts: attempts, Budget: policy.Budget{Ratio: policy.Off, PerSecond: 1e-6, Burst: 3}}.Or(awaiting)
			step := jsonStep(text(5000), true, false).Header("ETag", `"v1"`)
			s := set(t, cfg, rule, step.CutAt(1000, ts.Reset), step.CutAt(2000, ts.Reset), step.CutAt(3000, ts.Reset), step.CutAt(4000, ts.Reset), step)
			sent := min(attempts, 4)
			resp := mustRoundTrip(t, s.tr, s.request(http.MethodGet, nil))
			assert.Equal(t, sent, s.Arrivals())
			assert.Equal(t, reason, transport.HistoryOf(resp).Reason)
			assert.Len(t, transport.HistoryOf(resp).Attempts, sent)
			got, err := io.ReadAll(resp.Body)
			require.Error(t, err)
			require.NotErrorAs(t, err, new(*transport.Error))
			assert.Equal(t, text(5000)[:1000*sent], string(got))
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, sent, s.Arrivals(), "the rest is not asked for")
			s.base.CloseIdleConnections()
			s.Close()
		}
	})
}

// TestACutAfterTheHandover: it is the reader's, and the rest is asked for.
func TestACutAfterTheHandover(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		whole := ts.Content([]byte(text(50_000)), `"v1"`)
		s := set(t, cfg, awaiting, whole.Drip(10_000, 200*time.Millisecond).CutAt(25_000, ts.Reset), whole)
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.True(t, got.body == text(50_000))
		assert.Equal(t, "bytes=25000-", s.Log()[1].Header.Get("Range"))
		s.base.CloseIdleConnections()
	})
}

// TestMemoryOfAnnouncedBodies: a body takes memory for what has come, not for what it announces.
func TestMemoryOfAnnouncedBodies(t *testing.T) {
	const responses = 1000
	heap := func(memory int64) (bytes int64) {
		bubble(t, func(t *testing.T) {
			tr := over(t, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: memory}}}, rt(func(req *http.Request) (*http.Response, error) {
				r, w := io.Pipe()
				go func() { _, _ = w.Write([]byte("x")) }()
				resp := newResponse(req, 200, r)
				resp.ContentLength = 1 << 20
				return resp, nil
			}))
			all := make([]*http.Response, responses)
			for i := range all {
				all[i] = mustGet(t, tr)
			}
			synctest.Wait()
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			bytes = int64(m.HeapAlloc)
			for _, resp := range all {
				_ = resp.Body.Close()
			}
		})
		return bytes
	}
	off := heap(policy.Off)
	more := heap(1<<20) - off
	t.Logf("%d responses take %d KiB more", responses, more>>10)
	assert.LessOrEqual(t, more, int64(3<<20))
}

// TestFirstByteWithoutDownloadMemory: no reader waits for a byte that has arrived.
func TestFirstByteWithoutDownloadMemory(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, policy.Rule{}, ts.OK(strings.Repeat("x", 100)).Chunked().Drip(1, 10*time.Millisecond))
		start := time.Now()
		resp := mustRoundTrip(t, s.tr, s.request(http.MethodGet, nil))
		assert.Zero(t, time.Since(start))
		_, err := resp.Body.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		require.NoError(t, resp.Body.Close())
	})
}

// TestABodyThatStandsStill: the caller has it after 100 ms. Stall.Timeout then ends it as it ends
// any other body, and the request is sent again whole.
func TestABodyThatStandsStill(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		whole := jsonStep(text(5000), true, false)
		s := set(t, cfg, policy.Rule{Stall: policy.Stall{Timeout: 5 * time.Second}}.Or(awaiting), whole.CutAt(3000, ts.Stall), whole)
		got := s.send(http.MethodGet, nil)
		require.NoError(t, got.err)
		assert.Equal(t, text(5000), got.body)
		assert.Equal(t, 100*time.Millisecond, got.elapsed)
		assert.Equal(t, 2, s.Arrivals())
	})
}

// TestTheContextEndsTheAwaiting: at once, whether the length is known or not.
func TestTheContextEndsTheAwaiting(t *testing.T) {
	for _, length := range []bool{true, false} {
		inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, awaiting, jsonStep(text(5000), length, false).CutAt(3000, ts.Stall))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			got := s.do(s.request(http.MethodGet, nil).WithContext(ctx))
			require.ErrorIs(t, got.err, context.DeadlineExceeded)
			assert.Equal(t, 50*time.Millisecond, got.elapsed)
			assert.Equal(t, 1, s.Arrivals())
		})
	}
}

// TestRequestCancelEndsTheAwaiting: old callers close a channel.
func TestRequestCancelEndsTheAwaiting(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		s := ts.Start(t, cfg, jsonStep(text(5000), true, false).CutAt(3000, ts.Stall))
		tr := mustNew(t, transport.Config{Base: s.Transport(), Rule: awaiting})
		req := newRequest(t, http.MethodGet, s.URL+"/", nil)
		cancel := make(chan struct{})
		//lint:ignore SA1019 still honoured
		req.Cancel = cancel
		time.AfterFunc(50*time.Millisecond, func() { close(cancel) })
		got := do(tr, req)
		require.ErrorContains(t, got.err, "cancel")
		assert.Equal(t, 50*time.Millisecond, got.elapsed)
		assert.Equal(t, 1, s.Arrivals())
	})
}

// stuck is a body whose Read and Close wait for a second.
type stuck struct{ closed atomic.Int32 }

func (*stuck) Read([]byte) (int, error) { time.Sleep(time.Second); return 0, io.ErrUnexpectedEOF }
func (s *stuck) Close() error           { s.closed.Add(1); time.Sleep(time.Second); return nil }

func (s *stuck) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, ContentLength: 5, Header: http.Header{}, Body: s, Request: req}, nil
}

// TestCancelDoesNotWaitForClose: a request whose channel was closed ends at once, also if
// the Close of the body takes long.
func TestCancelDoesNotWaitForClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := mustNew(t, transport.Config{Base: new(stuck), Rule: awaiting})
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		cancel := make(chan struct{})
		//lint:ignore SA1019 still honoured
		req.Cancel = cancel
		time.AfterFunc(50*time.Millisecond, func() { close(cancel) })
		got := do(tr, req)
		require.ErrorContains(t, got.err, "cancel")
		assert.Equal(t, 50*time.Millisecond, got.elapsed)
		time.Sleep(time.Minute) // the goroutines of Read and Close end
	})
}

// TestPanicBeforeTheAwaiting: an Idempotent that panics leaves no body open.
func TestPanicBeforeTheAwaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := new(stuck)
		rule := policy.Rule{ConnectTimeout: time.Minute, Idempotent: func(*http.Request) bool { panic("idempotent") }}
		tr := mustNew(t, transport.Config{Base: b, Rule: rule.Or(awaiting)})
		assert.PanicsWithValue(t, "idempotent", func() { do(tr, newRequest(t, http.MethodGet, "http://h.test/", nil)) })
		time.Sleep(time.Minute) // the Close of this body blocks, and nobody waits for it
		assert.EqualValues(t, 1, b.closed.Load())
	})
}

// TestAwaitingIsNotMultiplied: the inner of two Transports uses up its attempts, and the
// outer one sees that, whether it reads the body itself or hands it on.
func TestAwaitingIsNotMultiplied(t *testing.T) {
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		rule := policy.Rule{Attempts: 3}.Or(awaiting)
		for name, outer := range map[string]policy.Rule{"awaiting": rule, "off": {Attempts: 3, Download: policy.Download{Memory: policy.Off}}} {
			for _, tag := range []string{"", `"v1"`} {
				whole := jsonStep(text(200_000), true, false)
				if tag != "" {
					whole = whole.Header("ETag", tag)
				}
				s := ts.Start(t, cfg, whole.CutAt(50_000, ts.Reset))
				base := s.Transport()
				inner := mustNew(t, transport.Config{Base: base, Rule: rule})
				got := do(mustNew(t, transport.Config{Base: inner, Rule: outer.Or(quick)}), newRequest(t, http.MethodGet, s.URL+"/", nil))
				require.Error(t, got.err)
				assert.True(t, got.body == text(200_000)[:50_000], name)
				assert.Equal(t, 3, s.Arrivals(), name)
				base.CloseIdleConnections()
				s.Close()
			}
		}
	})
}

// TestAwaitedBodiesAreClosed: whatever the reader does, the body of the base is closed and
// no goroutine stays.
func TestAwaitedBodiesAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := set(t, ts.Config{Net: ts.NewNet()}, awaiting, jsonStep(text(5000), false, false).CutAt(3000, ts.Stall))
		resp, err := s.tr.RoundTrip(s.request(http.MethodGet, nil))
		require.NoError(t, err, "it paused, so it is a stream")
		first := make([]byte, 3000)
		_, err = io.ReadFull(resp.Body, first)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		_, err = resp.Body.Read(first)
		require.Error(t, err)
		synctest.Wait()
		_, err = resp.Body.Read(first)
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})
}

// BenchmarkDownloadMemory is a GET of 10 kB over loopback. With Download.Memory the
// response is read before the caller gets it.
func BenchmarkDownloadMemory(b *testing.B) {
	body := []byte(text(10_000))
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(body)
	_ = z.Close()
	for _, coded := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if coded {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(zipped.Bytes())
				return
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body)
		}))
		for _, memory := range []int64{policy.Off, 1 << 20} {
			b.Run(fmt.Sprintf("gzip=%v/awaited=%v", coded, memory > 0), func(b *testing.B) {
				tr := mustNew(b, transport.Config{Rule: policy.Rule{Download: policy.Download{Memory: memory}}})
				b.ReportAllocs()
				for b.Loop() {
					resp, err := tr.RoundTrip(newRequest(b, http.MethodGet, srv.URL, nil))
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(len(body)) {
						b.Fatal(n, err)
					}
					_ = resp.Body.Close()
				}
				tr.CloseIdleConnections()
			})
		}
		srv.Close()
	}
}

// TestTrailerComesWithTheEnd: the trailer has no values until the caller reads the end of the body,
// although a goroutine reads it before.
func TestTrailerComesWithTheEnd(t *testing.T) {
	for name, pause := range map[string]time.Duration{"whole": 0, "pauses": time.Second} {
		inBubble(t, name, func(t *testing.T) {
			late := readFunc(func([]byte) (int, error) { time.Sleep(pause); return 0, io.EOF })
			tr := over(t, transport.Config{Rule: awaiting}, rt(func(req *http.Request) (*http.Response, error) {
				return withTrailer(req, 200, io.MultiReader(strings.NewReader("text"), late), http.Header{"X-Sum": {"1"}}), nil
			}))
			resp := mustGet(t, tr)
			copied := *resp
			time.Sleep(2 * time.Second)
			assert.Equal(t, http.Header{"X-Sum": nil}, resp.Trailer)
			assert.Equal(t, "text", mustRead(t, resp))
			assert.Equal(t, http.Header{"X-Sum": {"1"}}, resp.Trailer)
			assert.Equal(t, resp.Trailer, copied.Trailer, "a RoundTripper around it may have copied the response")
		})
	}
}
