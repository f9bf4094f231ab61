package transport_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// field256 writes a digest field.
func field256(s string) string {
	d := sha256.Sum256([]byte(s))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}

// cutter serves a text under a strong tag. cuts says after how many bytes each
// response is cut. A negative number is the status of a response instead. After
// the list there are no cuts.
func cutter(text string, cuts ...int) *origin {
	n := 0
	return script(func(req *http.Request) (*http.Response, error) {
		end := len(text)
		if n < len(cuts) {
			end = cuts[n]
		}
		n++
		if end < 0 {
			return play(req, status(-end))
		}
		first, code := 0, 200
		header := []string{`ETag: "v1"`}
		if r := req.Header.Get("Range"); r != "" {
			first, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r, "bytes="), "-"))
			code = 206
			header = append(header, "Content-Range: bytes "+strconv.Itoa(first)+"-"+strconv.Itoa(len(text)-1)+"/"+strconv.Itoa(len(text)))
		}
		err := error(syscall.ECONNRESET)
		end = min(first+end, len(text))
		if end == len(text) {
			err = io.EOF
		}
		resp := newResponse(req, code, testkit.CutAt(text[first:end], err), header...)
		resp.ContentLength = int64(len(text) - first)
		return resp, nil
	})
}

func (o *origin) ranges() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, req := range o.reqs {
		all = append(all, req.Header.Get("Range")+" "+req.Header.Get("If-Range"))
	}
	return all
}

func TestResumeWithoutProgressIsARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		text := strings.Repeat("x", 1000)
		base := cutter(text, 400, 0, -503, 100)
		seen := &recorder{}
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		req = req.WithContext(seen.on(t.Context()))
		req.Header.Set("X-Own", "1")
		resp := mustRoundTrip(t, over(t, transport.Config{Rule: exact}, base), req)
		assert.Equal(t, text, mustRead(t, resp))
		assert.Equal(t, (1+2+4+8)*time.Second, time.Since(start))
		assert.Equal(t, []string{" ", `bytes=400- "v1"`, `bytes=400- "v1"`, `bytes=400- "v1"`, `bytes=500- "v1"`}, base.ranges())
		assert.Equal(t, []transport.Reason{transport.ReasonFinal, transport.ReasonFinal, transport.ReasonRetry, transport.ReasonFinal, transport.ReasonFinal}, seen.reasons())
		assert.EqualValues(t, 400, seen.all[1].Offset)
		assert.Equal(t, time.Second, seen.all[1].Start.Sub(start))
		assert.Equal(t, http.Header{"X-Own": {"1"}}, req.Header, "the caller's request is not changed")
		assert.Equal(t, "1", base.reqs[1].Header.Get("X-Own"))
		assert.EqualValues(t, 1000, resp.ContentLength)
		assert.NoError(t, resp.Body.Close())
	})
}

// Given segments of 64 KiB, each reconnect counts as a request, and the count of
// attempts starts anew. So there may be many more cuts than attempts.
func TestResumeAfterProgressIsARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		text := strings.Repeat("0123456789abcdef", 4<<20/16)
		cuts := make([]int, 50)
		for i := range cuts {
			cuts[i] = resume.MinProgress
		}
		base := cutter(text, cuts...)
		seen := &recorder{}
		tr := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 2, RetryBudget: policy.RetryBudget{Ratio: 1e-9, MinPerSecond: 1e-9}}.Or(exact)}, base)
		resp := mustGetWith(t, tr, seen.on(t.Context()))
		assert.Equal(t, text, mustRead(t, resp))
		base.sent(t, 51)
		assert.LessOrEqual(t, time.Since(start), 50*(transport.ContinuationGap+transport.ResumeJitter))
		for _, e := range seen.all {
			assert.Equal(t, 1, e.Number)
		}
	})
}

// TestWaitingReconnectEarnsNothing: a reconnect counts as a request when it goes.
// Before that its caller may leave, and a retry that it earned would be one too many.
func TestWaitingReconnectEarnsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 4<<20/16)
		tr := over(t, transport.Config{Rule: policy.Rule{}.Or(exact)}, cutter(text, 1<<20))
		ctx, cancel := context.WithCancel(t.Context())
		resp := mustGetWith(t, tr, ctx)
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
		synctest.Wait() // the body is cut, and the reconnect waits for its jitter
		assert.EqualValues(t, 1, stateOf(t, tr).Requests, "requests counted")
		time.Sleep(transport.ResumeJitter)
		synctest.Wait()
		assert.EqualValues(t, 2, stateOf(t, tr).Requests, "requests counted")
		cancel()
		require.NoError(t, resp.Body.Close())
	})
}

// Given segments of 1 MiB, reconnects come at once.
func TestLongPartsAreNotSpacedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const short, long = resume.MinProgress, transport.LongPart
		text := strings.Repeat("0123456789abcdef", 16<<20/16)
		base := cutter(text, long, long, long, short, short, short, long, short, long)
		require.True(t, text == mustRead(t, mustGet(t, over(t, transport.Config{}, base))))
		at := base.arrivals()[1:]
		require.Len(t, at, 9)
		for i, want := range []time.Duration{0, 0, transport.ContinuationGap, transport.ContinuationGap, transport.ContinuationGap, 0, transport.ContinuationGap, 0} {
			assert.GreaterOrEqual(t, at[i+1]-at[i], want, i)
			assert.LessOrEqual(t, at[i+1]-at[i], want+transport.ResumeJitter, i)
		}
	})
}

// Given a deadline before a spaced reconnect, the body ends at once.
func TestNoSpacingPastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 8<<20/16)
		base := cutter(text, resume.MinProgress, resume.MinProgress, resume.MinProgress, resume.MinProgress, resume.MinProgress)
		ctx := expires(t, 2500*time.Millisecond)
		start := time.Now()
		tr := over(t, transport.Config{}, base)
		resp := mustGetWith(t, tr, ctx)
		_, err := io.ReadAll(resp.Body)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonDeadline, e.Reason)
		assert.True(t, e.GaveUp())
		base.sent(t, 4)
		assert.Less(t, time.Since(start), 2400*time.Millisecond)
		assert.EqualValues(t, 4, tr.Hosts().Peek(base.reqs[0].URL).Requests(), "a reconnect that is not sent is no request")
	})
}

// After a cut the reader waits for at most 10 s until a new byte comes or it gets the error of the
// cut, however many reconnects that takes and whatever they meet.
func TestReaderOfACutBodyWaitsForTenSeconds(t *testing.T) {
	const most = 10 * time.Second
	hang := faults.Hang()
	cut := func(req *http.Request) (*http.Response, error) { // a second response, cut before a new byte
		if err := pause(req, 3*time.Second); err != nil {
			return nil, err
		}
		return newResponse(req, 206, testkit.CutAt("", io.ErrUnexpectedEOF), `ETag: "v1"`, "Content-Range: bytes 4-9/10"), nil
	}
	silent := func(code int, text string, header ...string) answer { // what does not end by its context
		return func(req *http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() { _, _ = io.WriteString(w, text) }()
			resp := newResponse(req, code, r, header...)
			resp.ContentLength = 10
			if code == 206 {
				resp.ContentLength = 6
			}
			return resp, nil
		}
	}
	tag := []string{`ETag: "v1"`}
	for _, row := range []struct {
		name   string
		rule   policy.Rule
		header []string // of the first response
		then   []answer
		took   time.Duration
		reason transport.Reason
	}{
		{"silence", policy.Rule{}, tag, []answer{hang}, most, transport.ReasonDeadline},
		{"silence, with a timeout", policy.Rule{AttemptTimeout: 4 * time.Second}, tag, []answer{hang}, most, transport.ReasonDeadline},
		{"silence, with a longer timeout", policy.Rule{AttemptTimeout: time.Minute}, tag, []answer{hang}, most, transport.ReasonDeadline},
		{"silence, with hedges", policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, tag, []answer{hang}, most, transport.ReasonDeadline},
		{"headers, and then silence", policy.Rule{}, tag, []answer{silent(206, "", `ETag: "v1"`, "Content-Range: bytes 4-9/10")}, most, transport.ReasonDeadline},
		{"everything again, and then silence", policy.Rule{}, nil, []answer{silent(200, "0123")}, most, transport.ReasonDeadline},
		{"everything again, too slowly", policy.Rule{}, nil, []answer{silent(200, "01")}, most, transport.ReasonDeadline},
		{"headers too late, and then silence", policy.Rule{}, tag, []answer{func(req *http.Request) (*http.Response, error) {
			time.Sleep(most + time.Second) // whatever the context says
			return play(req, silent(206, "", `ETag: "v1"`, "Content-Range: bytes 4-9/10"))
		}}, most + time.Second, transport.ReasonDeadline},
		{"404", policy.Rule{}, tag, []answer{status(404)}, 0, transport.ReasonNotResumable},
		{"late 404", policy.Rule{}, tag, []answer{status(404).Delay(5 * time.Second)}, 5 * time.Second, transport.ReasonNotResumable},
		{"503, and no attempt left", policy.Rule{MaxAttempts: 2}, tag, []answer{status(503)}, 0, transport.ReasonMaxAttempts},
		{"503 for a longer time", policy.Rule{}, tag, []answer{status(503, "Retry-After: 11")}, 0, transport.ReasonDeadline},
		{"503 after some time", policy.Rule{}, tag, []answer{status(503, "Retry-After: 6").Delay(5 * time.Second)}, 5 * time.Second, transport.ReasonDeadline},
		{"cuts without a byte", policy.Rule{MaxAttempts: 100}, tag, []answer{cut}, most, transport.ReasonDeadline},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			first := func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, 200, testkit.CutAt("0123", io.ErrUnexpectedEOF), row.header...)
				resp.ContentLength = 10
				return resp, nil
			}
			var seen recorder
			resp := mustGetWith(t, over(t, transport.Config{Rule: row.rule.Or(quick)}, script(append([]answer{first}, row.then...)...)), seen.on(t.Context()))
			start := time.Now()
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "0123", string(got))
			assert.Equal(t, io.ErrUnexpectedEOF, err, "the error of the cut as it was")
			assert.Equal(t, row.took, time.Since(start))
			assert.Equal(t, row.reason, seen.last())
			require.NoError(t, resp.Body.Close())
		})
	}
}

// MaxElapsedTime bounds the reconnects of a body without progress, counted from the first attempt.
func TestMaxElapsedOfAReconnect(t *testing.T) {
	for _, row := range []struct {
		name    string
		cut     time.Duration // after the first attempt
		rule    policy.Rule
		goes    bool
		attempt int
	}{
		{"in time", 1900 * time.Millisecond, policy.Rule{MaxElapsedTime: 3 * time.Second}, true, 2},
		{"in time, with a timeout", 1900 * time.Millisecond, policy.Rule{MaxElapsedTime: 3 * time.Second, AttemptTimeout: time.Minute}, true, 2},
		{"later", 2100 * time.Millisecond, policy.Rule{MaxElapsedTime: 3 * time.Second}, false, 1},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			base := script(func(req *http.Request) (*http.Response, error) {
				body, cut := testkit.CutAt("0123", io.ErrUnexpectedEOF), time.Now().Add(row.cut)
				slow := readFunc(func(p []byte) (int, error) {
					time.Sleep(time.Until(cut))
					return body.Read(p)
				})
				return newResponse(req, 200, io.NopCloser(slow), `ETag: "v1"`), nil
			}, func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 206, testkit.CutAt("456789", io.EOF), `ETag: "v1"`, "Content-Range: bytes 4-9/10"), nil
			})
			tr := over(t, transport.Config{Rule: row.rule.Or(exact)}, base)
			time.Sleep(time.Minute)
			resp := mustGet(t, tr)
			got, err := io.ReadAll(resp.Body)
			if row.goes {
				require.NoError(t, err)
				assert.Equal(t, "0123456789", string(got))
			} else {
				assert.Equal(t, io.ErrUnexpectedEOF, err)
			}
			base.sent(t, row.attempt)
		})
	}
}

// Given a hedge that was told to wait, when the first attempt wins and its body is
// cut, then no reconnect is sent before that wait is over.
func TestResumeKeepsTheWaitOfAHedge(t *testing.T) {
	for _, row := range []struct {
		name     string
		size     int
		told     string
		deadline time.Duration
		reason   transport.Reason // Resume: it is continued
	}{
		{"without progress", 4, "9", time.Hour, transport.ReasonRetry},
		{"after progress", resume.MinProgress, "9", time.Hour, transport.ReasonRetry},
		{"without progress, past the deadline", 4, "9", 10 * time.Second, transport.ReasonDeadline},
		{"after progress, past the deadline", resume.MinProgress, "9", 10 * time.Second, transport.ReasonDeadline},
		{"without progress, past 10 s", 4, "12", time.Hour, transport.ReasonDeadline},
		{"after progress, past 10 s", resume.MinProgress, "12", time.Hour, transport.ReasonDeadline},
		{"without progress, too long", 4, "100", time.Hour, transport.ReasonThrottled},
		{"after progress, too long", resume.MinProgress, "100", time.Hour, transport.ReasonThrottled},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			text := strings.Repeat("x", row.size) + "the rest"
			start := time.Now()
			base := script(func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 3*time.Second); err != nil {
					return nil, err
				}
				resp := newResponse(req, 200, testkit.CutAt(text[:row.size], io.ErrUnexpectedEOF), `ETag: "v1"`)
				resp.ContentLength = int64(len(text))
				return resp, nil
			}, status(503, "Retry-After: "+row.told), func(req *http.Request) (*http.Response, error) {
				r := fmt.Sprintf("Content-Range: bytes %d-%d/%d", row.size, len(text)-1, len(text))
				return newResponse(req, 206, testkit.CutAt(text[row.size:], io.EOF), `ETag: "v1"`, r), nil
			})
			ctx := expires(t, row.deadline)
			rule := policy.Rule{Hedge: policy.Hedge{Delay: 2 * time.Second}}.Or(quick)
			var seen recorder
			resp := mustGetWith(t, over(t, transport.Config{Rule: rule}, base), seen.on(ctx))
			require.Equal(t, 200, resp.StatusCode)
			got, err := io.ReadAll(resp.Body)
			if row.reason == transport.ReasonRetry {
				require.NoError(t, err)
				assert.True(t, string(got) == text)
				base.sent(t, 3)
				assert.GreaterOrEqual(t, base.arrivals()[2], 11*time.Second)
				assert.LessOrEqual(t, base.arrivals()[2], 12*time.Second+transport.ResumeJitter)
				return
			}
			assert.Equal(t, io.ErrUnexpectedEOF, err)
			assert.Equal(t, row.reason, seen.last())
			assert.Equal(t, 3*time.Second, time.Since(start), "no sleep that ends in nothing")
			base.sent(t, 2)
		})
	}
}

// Each limit and each final response ends the body with its reason.
func TestResumeGivesUp(t *testing.T) {
	text := strings.Repeat("x", 1000)
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		cuts     []int
		reason   transport.Reason
		attempts int
		read     int
	}{
		{"attempts", policy.Rule{MaxAttempts: 3}, []int{10, 10, 10, 10}, transport.ReasonMaxAttempts, 3, 30},
		{"attempts, others among them", policy.Rule{MaxAttempts: 3}, []int{-503, 10, 10, 10}, transport.ReasonMaxAttempts, 3, 20},
		{"responses that are none", policy.Rule{MaxAttempts: 3}, []int{10, -503, -503, -503}, transport.ReasonMaxAttempts, 3, 10},
		{"elapsed", policy.Rule{MaxElapsedTime: 4 * time.Second}, []int{10, 10, 10, 10}, transport.ReasonMaxElapsedTime, 3, 30},
		{"budget", policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 1e-9, MinPerSecond: 1e-9}}, []int{10, 10, 10}, transport.ReasonRetryBudget, 2, 20},
		{"back-off", policy.Rule{Backoff: backoff.Constant(-1)}, []int{10, 10, 10}, transport.ReasonMaxAttempts, 1, 10},
		{"final response", policy.Rule{}, []int{10, -404}, transport.ReasonNotResumable, 2, 10},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			seen := &recorder{}
			base := cutter(text, row.cuts...)
			resp := mustGetWith(t, over(t, transport.Config{Rule: row.rule.Or(exact)}, base), seen.on(t.Context()))
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, text[:row.read], string(got))
			assert.Equal(t, row.reason, seen.last())
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			if row.read == 10 {
				assert.Equal(t, syscall.ECONNRESET, err, "the base's own error, because nothing came from a reconnect")
			} else {
				e := errorAs[*transport.Error](t, err)
				assert.Equal(t, row.reason, e.Reason)
				assert.True(t, e.GaveUp())
				assert.EqualValues(t, row.read, e.Offset)
			}
			base.sent(t, row.attempts)
			_, again := resp.Body.Read(make([]byte, 1))
			assert.True(t, err == again)
		})
	}
}

// A classifier is asked once about each outcome, and a cut is one of them.
func TestClassifierIsAskedOnceAboutACut(t *testing.T) {
	for name, cut := range map[string]int{"with progress": 100 << 10, "without progress": 50} {
		inBubble(t, name, func(t *testing.T) {
			text := strings.Repeat("0123456789", 20<<10)
			var asked []string
			rule := policy.Rule{Classify: func(o classify.Outcome) classify.Class {
				if o.Err != nil {
					asked = append(asked, o.Err.Error())
				} else {
					asked = append(asked, strconv.Itoa(o.Response.StatusCode))
				}
				return classify.Default(o)
			}}
			resp := mustGet(t, over(t, transport.Config{Rule: rule.Or(quick)}, cutter(text, cut)))
			assert.True(t, text == mustRead(t, resp))
			assert.Equal(t, []string{"200", "connection reset by peer", "206"}, asked)
		})
	}
}

// After progress the count of reconnects starts anew. Only a reconnect after
// progress counts as a request for the host's budget.
func TestResumeCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("x", 3*resume.MinProgress)
		base := cutter(text, 10, resume.MinProgress, 10, 10)
		var prevs []time.Duration
		rule := policy.Rule{MaxAttempts: 2, Backoff: backoffFunc(func(n int, prev time.Duration) time.Duration {
			prevs = append(prevs, prev)
			return time.Duration(n+1) * time.Second
		})}
		tr := over(t, transport.Config{Rule: rule}, base)
		resp := mustGet(t, tr)
		got, err := io.ReadAll(resp.Body)
		assert.Len(t, got, 10+resume.MinProgress+10+10)
		e := errorAs[*transport.Error](t, err)
		assert.Equal(t, transport.ReasonMaxAttempts, e.Reason, "two in a row without progress")
		assert.Equal(t, []time.Duration{0, 0}, prevs)
		assert.EqualValues(t, 2, tr.Hosts().Peek(base.reqs[0].URL).Requests(), "requests counted")
		assert.Zero(t, tr.Hosts().Peek(base.reqs[0].URL).InFlight(), "requests in flight")
	})
}

// Without progress the back-off continues from its previous value.
func TestResumeKeepsThePreviousWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var prevs []time.Duration
		rule := policy.Rule{Backoff: backoffFunc(func(n int, prev time.Duration) time.Duration {
			prevs = append(prevs, prev)
			return time.Duration(n+1) * time.Second
		})}
		resp := mustGet(t, over(t, transport.Config{Rule: rule}, cutter("0123456789", -503, 1, 1, -503)))
		assert.Equal(t, "0123456789", mustRead(t, resp))
		assert.Equal(t, []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second}, prevs)
	})
}

// Given a Transport around another, only the inner Transport reconnects.
func TestResumesAreNotMultiplied(t *testing.T) {
	for _, first := range []int{1, resume.MinProgress} {
		bubble(t, func(t *testing.T) {
			base := cutter(strings.Repeat("x", 2*resume.MinProgress), first, 1, 1, 1, 1, 1, 1, 1, 1)
			inner := over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 3}.Or(quick)}, base)
			resp := mustGet(t, over(t, transport.Config{Rule: quick}, inner))
			got, err := io.ReadAll(resp.Body)
			e := errorAs[*transport.Error](t, err)
			assert.Equal(t, transport.ReasonMaxAttempts, e.Reason)
			assert.Equal(t, len(got), first+base.attempts()-1)
			assert.LessOrEqual(t, base.attempts(), 4, "attempts")
		})
	}
}

// Given a Transport around another, the outer Transport does not reconnect after the inner
// has learned that the body cannot be resumed. The server may even have asked to wait.
func TestResumeIsNotTriedAboveAgain(t *testing.T) {
	for name, rule := range map[string]policy.Rule{
		"plain":    {},
		"timed":    {AttemptTimeout: time.Minute},
		"stall":    {StallTimeout: time.Minute},
		"limited":  {Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}},
		"observed": {AttemptTimeout: time.Minute},
		"peeked":   {Classify: func(o classify.Outcome) classify.Class { o.Peek(1); return classify.Default(o) }},
		"failover": {},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := cutter(strings.Repeat("x", 1000), 400, -501)
			c := transport.Config{Rule: rule.Or(quick)}
			if name == "observed" {
				c.Traces = []*transport.Trace{&transport.Trace{BodyEnd: func(context.Context, transport.BodyEnd) {}}}
			}
			var inner http.RoundTripper = over(t, c, base)
			if name == "failover" {
				var err error
				inner, err = failover.New(failover.Endpoint{URL: "http://h.test", Transport: inner}, failover.Endpoint{URL: "http://i.test", Transport: inner})
				require.NoError(t, err)
			}
			resp := mustGet(t, over(t, c, inner))
			got, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			assert.Len(t, got, 400)
			base.sent(t, 2)
		})
	}
	inBubble(t, "an inner one that does not resume leaves it to the outer", func(t *testing.T) {
		base := cutter(strings.Repeat("x", 1000), 400)
		inner := over(t, transport.Config{Rule: policy.Rule{Resume: policy.Off}.Or(quick)}, base)
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, inner))
		assert.Len(t, mustRead(t, resp), 1000)
	})
}

// Close may come at any moment and leaves nothing behind. A goroutine that stays
// would fail the bubble.
func TestCloseAtAnyMoment(t *testing.T) {
	inMemory(t, anyHTTP, func(t *testing.T, cfg ts.Config) {
		text := ts.Pattern(1 << 20)
		cfg.Handler = func(*ts.Received) ts.Step {
			return ts.Content(text, `"v1"`).CutAt(rand.Int64N(200_000), ts.Reset).Drip(20_000, 10*time.Millisecond)
		}
		s := set(t, cfg, policy.Rule{StallTimeout: time.Second})
		for range soak.Size(25, 100) {
			resp := mustRoundTrip(t, s.tr, s.request(http.MethodGet, nil))
			var reader sync.WaitGroup
			reader.Go(func() {
				got, err := io.ReadAll(resp.Body)
				if assert.True(t, bytes.HasPrefix(text, got)) && err == nil {
					assert.Len(t, got, len(text))
				}
			})
			time.Sleep(rand.N(2 * time.Second))
			_ = resp.Body.Close()
			reader.Wait()
		}
		s.tr.CloseIdleConnections()
	})
}

// The header of a response is the caller's, who may change it while another goroutine reads the
// body.
func TestHeaderIsTheCallersDuringARead(t *testing.T) {
	whole := text(10_000)
	for name, row := range map[string]struct {
		header []string
		ranges bool
	}{
		"fetched again":        {header: []string{"Content-Type: application/json", "Digest: x"}},
		"with a weak tag":      {header: []string{`ETag: W/"v1"`}},
		"the rest":             {header: []string{`ETag: "v1"`, "Content-Encoding: br"}, ranges: true},
		"a 200 for the rest":   {header: []string{`ETag: "v1"`, "Last-Modified: Mon, 06 Jan 2025 10:00:00 GMT"}},
		"with a digest":        {header: []string{"Repr-Digest: " + field256(whole)}},
		"the rest of a digest": {header: []string{`ETag: "v1"`, "Repr-Digest: " + field256(whole)}, ranges: true},
	} {
		sent := 0
		base := rt(func(req *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				resp := newResponse(req, 200, testkit.CutAt(whole[:6000], io.ErrUnexpectedEOF), row.header...)
				if row.ranges {
					resp.ContentLength = 10_000
				}
				return resp, nil
			}
			if row.ranges {
				resp := newResponse(req, 206, testkit.CutAt(whole[6000:], io.EOF), append(row.header, "Content-Range: bytes 6000-9999/10000")...)
				resp.ContentLength = 4000
				return resp, nil
			}
			return newResponse(req, 200, testkit.CutAt(whole, io.EOF), row.header...), nil
		})
		resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: base, Rule: policy.Rule{Backoff: backoff.Constant(0)}}), getRequest(t, "http://h.test/"))
		var changes sync.WaitGroup
		var over atomic.Bool
		changes.Go(func() {
			for !over.Load() {
				resp.Header["Etag"], resp.Header["Digest"], resp.Header["Repr-Digest"] = []string{`"v2"`}, []string{"y"}, []string{"z"}
				resp.Header.Set("Content-Encoding", "gzip")
				resp.Header.Del("Content-Encoding")
			}
		})
		body, err := io.ReadAll(resp.Body)
		over.Store(true)
		changes.Wait()
		assert.NoError(t, err, name)
		assert.True(t, whole == string(body), name)
		count(t, 2, sent, "GET sent", name)
	}
}

// A body that can be continued takes 240 bytes.
func TestSizeOfABodyThatCanBeContinued(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(transport.Download{}), uintptr(240))
}

// soakRuns returns how often each protocol's download is repeated, from
// APLOMB_SOAK, which make soak sets. 0 means a short run.
func soakRuns() int {
	n, _ := strconv.Atoi(os.Getenv("APLOMB_SOAK"))
	return n
}

// large returns 256 MiB, or 16 MiB in a short run, and their hash. No two places
// in it look alike.
var large = sync.OnceValues(func() ([]byte, string) {
	size := 16 << 20
	if soakRuns() > 0 {
		size = 256 << 20
	}
	p := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(p)
	sum := sha256.Sum256(p)
	return p, hex.EncodeToString(sum[:])
})

// resetting is a server that resets the connection every 1 to 8 MiB, or every 4
// to 8 MiB in a short run.
func resetting(t *testing.T, config ts.Config, body []byte) *ts.Server {
	least := int64(1 << 20)
	if soakRuns() == 0 {
		least = 4 << 20 // a segment below 1 MiB would delay the next reconnect by a second
	}
	config.Handler = func(*ts.Received) ts.Step {
		return ts.Content(body, `"v1"`).CutAt(least+rand.Int64N(8<<20-least), ts.Reset)
	}
	return ts.Start(t, config)
}

var wires = map[string]ts.Config{
	"http1": {},
	"http2": {HTTP2: true, TLS: ts.Trusted},
	"tls":   {TLS: ts.Trusted},
}

// TestResumeSoak downloads a large body over connections that are reset all the
// time. make soak downloads 256 MiB APLOMB_SOAK times, three at a time, since
// most of the time is spent in the jitter.
func TestResumeSoak(t *testing.T) {
	runs := max(soakRuns(), 1)
	body, want := large()
	for name, config := range wires {
		t.Run(name, func(t *testing.T) {
			srv := resetting(t, config, body)
			tr := mustNew(t, transport.Config{Base: srv.Transport()})
			defer tr.CloseIdleConnections()
			var all sync.WaitGroup
			room := make(chan struct{}, 3)
			for range runs {
				room <- struct{}{}
				all.Go(func() {
					defer func() { <-room }()
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, srv.URL, nil))
					if !assert.NoError(t, err) {
						return
					}
					defer func() { _ = resp.Body.Close() }()
					sum := sha256.New()
					n, err := io.Copy(sum, resp.Body)
					assert.NoError(t, err, "after %d bytes", n)
					assert.Equal(t, want, hex.EncodeToString(sum.Sum(nil)), "%d bytes", n)
				})
			}
			all.Wait()
			assert.GreaterOrEqual(t, srv.Arrivals(), runs*len(body)/(8<<20))
		})
	}
}

// TestResumeMemory compares the memory in use during such a download with the
// memory that the bare base uses for a download that is not cut.
func TestResumeMemory(t *testing.T) {
	body, _ := large()
	for name, config := range wires {
		t.Run(name, func(t *testing.T) {
			whole := config
			whole.Handler = func(*ts.Received) ts.Step { return ts.Content(body, `"v1"`) }
			plain := ts.Start(t, whole)
			srv := resetting(t, config, body)
			tr := mustNew(t, transport.Config{Base: srv.Transport()})
			// Other goroutines of the process add to a measurement, so the least of a
			// few is the nearest to the truth. The buffers of HTTP/2 may be empty at the
			// moment of a measurement, so both are measured anew.
			over := int64(math.MaxInt64)
			for range 3 {
				bare := downloadMemory(t, plain.Transport(), plain.URL, 8<<20)
				ours := downloadMemory(t, tr, srv.URL, 12<<20)
				t.Logf("ours %d KiB, bare %d KiB", ours>>10, bare>>10)
				if over = min(over, ours-bare); over < 4<<20 {
					break
				}
			}
			tr.CloseIdleConnections()
			assert.Less(t, over, int64(4<<20))
		})
	}
}

// downloadMemory returns by how much the memory in use grows during a download.
func downloadMemory(t *testing.T, rt http.RoundTripper, url string, size int64) (most int64) {
	before := testkit.Heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp := mustRoundTrip(t, rt, req)
	defer func() { _ = resp.Body.Close() }()
	for size > 0 {
		n, err := io.CopyN(io.Discard, resp.Body, min(size, 2<<20))
		require.NoError(t, err)
		size -= n
		most = max(most, testkit.Heap()-before)
	}
	return most
}

// BenchmarkDownload compares a download of 1 GiB over loopback, resumable but
// not cut, with the bare base. It reports the median of nine quotients of their times as
// ours/bare, and the bare throughput. If the quotient is above 1, ours was faster. In each
// round both bodies are read by turns in slices of 16 MiB, so that other work on the machine
// slows down both.
func BenchmarkDownload(b *testing.B) {
	const size, slice = int64(1 << 30), int64(16 << 20)
	chunk := make([]byte, 1<<20)
	url := newLoopback(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for n := size; n > 0; n -= int64(len(chunk)) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	sides := [2]http.RoundTripper{base, mustNew(b, transport.Config{Base: base})}
	buf := make([]byte, 64<<10)
	round := func() (took [2]time.Duration) {
		var bodies [2]io.ReadCloser
		for i, rt := range sides {
			resp, err := rt.RoundTrip(getRequest(b, url))
			require.NoError(b, err)
			bodies[i] = resp.Body
			defer func() { _ = resp.Body.Close() }()
		}
		_, resumes := bodies[1].(*resume.Body)
		require.True(b, resumes)
		for n := int64(0); n < size; n += slice {
			for i := range bodies {
				i = (i + int(n/slice)) % 2 // neither side is always the second
				start := time.Now()
				k, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(bodies[i], slice), buf)
				took[i] += time.Since(start)
				require.NoError(b, err)
				require.Equal(b, slice, k)
			}
		}
		return took
	}
	round()
	for b.Loop() {
		var quotients, bare []float64
		for range 9 {
			took := round()
			quotients = append(quotients, took[0].Seconds()/took[1].Seconds())
			bare = append(bare, float64(size)/1e9/took[0].Seconds())
		}
		slices.Sort(quotients)
		slices.Sort(bare)
		b.ReportMetric(quotients[4], "ours/bare")
		b.ReportMetric(bare[4], "bare-GB/s")
		b.ReportMetric(quotients[4]*bare[4], "ours-GB/s")
		b.Logf("%.3f", quotients)
	}
}

// newLoopback is a plain server of net/http.
func newLoopback(b *testing.B, h http.HandlerFunc) string {
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	return srv.URL
}

// Given a server of net/http whose chunked response is cut before its last chunk,
// its response to the request for the rest proves that nothing is missing.
func TestCutBeforeTheLastChunk(t *testing.T) {
	const text = "some text"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if req.Header.Get("Range") != "" {
			http.ServeContent(w, req, "text.txt", time.Time{}, strings.NewReader(text))
			return
		}
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	tr := mustNew(t, transport.Config{Rule: quick})
	defer tr.CloseIdleConnections()
	resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, srv.URL, nil))
	wantText(t, resp.Body, text)
}
