package transport_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
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
	"github.com/aplomb-go/aplomb/internal/testserver"
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
		resp, err := get(t, tr, seen.on(t.Context()))
		require.NoError(t, err)
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

// reconnectsAt reads a whole body, and returns when each reconnect was sent,
// counted from the first attempt.
func reconnectsAt(t *testing.T, base *origin, rule policy.Rule, want string) (at []time.Duration) {
	t.Helper()
	start := time.Now()
	first := true
	tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
		if !first {
			at = append(at, time.Since(start))
		}
		first = false
		return base.RoundTrip(req)
	}))
	resp := mustGet(t, tr)
	got := mustRead(t, resp)
	require.True(t, got == want, "%d bytes of %d", len(got), len(want))
	return at
}

// Given a server that cuts after every 64 KiB, there is a pause between two reconnects.
func TestShortSegmentsAreSpacedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 8<<20/16)
		cuts := make([]int, 127)
		for i := range cuts {
			cuts[i] = resume.MinProgress
		}
		at := reconnectsAt(t, cutter(text, cuts...), policy.Rule{}, text)
		require.Len(t, at, 127)
		assert.LessOrEqual(t, at[0], transport.ResumeJitter, "the first one waits for nothing")
		for i := 1; i < len(at); i++ {
			assert.GreaterOrEqual(t, at[i]-at[i-1], transport.ContinuationGap)
			assert.LessOrEqual(t, at[i]-at[i-1], transport.ContinuationGap+transport.ResumeJitter)
		}
	})
}

// Given segments of 1 MiB, reconnects come at once.
func TestLongPartsAreNotSpacedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const short, long = resume.MinProgress, transport.LongPart
		text := strings.Repeat("0123456789abcdef", 16<<20/16)
		at := reconnectsAt(t, cutter(text, long, long, long, short, short, short, long, short, long), policy.Rule{}, text)
		require.Len(t, at, 9)
		for i, want := range []time.Duration{0, 0, transport.ContinuationGap, transport.ContinuationGap, transport.ContinuationGap, 0, transport.ContinuationGap, 0} {
			assert.GreaterOrEqual(t, at[i+1]-at[i], want, i)
			assert.LessOrEqual(t, at[i+1]-at[i], want+transport.ResumeJitter, i)
		}
	})
}

// Given segments that are short but slow, reconnects are far enough apart, and
// nothing is added.
func TestSlowSegmentsAreNotSpacedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 1<<20/16)
		cuts := make([]int, 15)
		for i := range cuts {
			cuts[i] = resume.MinProgress
		}
		played := cutter(text, cuts...)
		fast := played.serve
		played.serve = func(req *http.Request) (*http.Response, error) {
			resp, err := play(req, fast)
			body := resp.Body
			slow := false
			resp.Body = io.NopCloser(readFunc(func(p []byte) (int, error) {
				if !slow {
					slow = true
					time.Sleep(9 * time.Second)
				}
				return body.Read(p)
			}))
			return resp, err
		}
		at := reconnectsAt(t, played, policy.Rule{}, text)
		for i := 1; i < len(at); i++ {
			assert.LessOrEqual(t, at[i]-at[i-1], 9*time.Second+transport.ResumeJitter)
		}
	})
}

// Given a deadline before a spaced reconnect, the body ends at once.
func TestNoSpacingPastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 8<<20/16)
		base := cutter(text, resume.MinProgress, resume.MinProgress, resume.MinProgress, resume.MinProgress, resume.MinProgress)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start := time.Now()
		tr := over(t, transport.Config{}, base)
		resp, err := get(t, tr, ctx)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
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
	late := func(d time.Duration, a answer) answer {
		return func(req *http.Request) (*http.Response, error) {
			if err := pause(req, d); err != nil {
				return nil, err
			}
			return play(req, a)
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
		{"late 404", policy.Rule{}, tag, []answer{late(5*time.Second, status(404))}, 5 * time.Second, transport.ReasonNotResumable},
		{"503, and no attempt left", policy.Rule{MaxAttempts: 2}, tag, []answer{status(503)}, 0, transport.ReasonMaxAttempts},
		{"503 for a longer time", policy.Rule{}, tag, []answer{status(503, "Retry-After: 11")}, 0, transport.ReasonDeadline},
		{"503 after some time", policy.Rule{}, tag, []answer{late(5*time.Second, status(503, "Retry-After: 6"))}, 5 * time.Second, transport.ReasonDeadline},
		{"cuts without a byte", policy.Rule{MaxAttempts: 100}, tag, []answer{late(3*time.Second, cut)}, most, transport.ReasonDeadline},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			first := func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, 200, testkit.CutAt("0123", io.ErrUnexpectedEOF), row.header...)
				resp.ContentLength = 10
				return resp, nil
			}
			var seen recorder
			resp, err := get(t, over(t, transport.Config{Rule: row.rule.Or(quick)}, script(append([]answer{first}, row.then...)...)), seen.on(t.Context()))
			require.NoError(t, err)
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

// MaxElapsedTime bounds the reconnects of a body without progress, counted from the first attempt, whether
// somebody observes them or not.
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
		for name, trace := range map[string]*transport.Trace{"nobody": nil, "a trace": {AttemptEnd: func(context.Context, transport.AttemptEnd) {}}} {
			inBubble(t, row.name+"/"+name, func(t *testing.T) {
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
				tr := over(t, transport.Config{Rule: row.rule.Or(exact), Traces: []*transport.Trace{trace}}, base)
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
}

// Each new byte gives the reader of a cut body another 10 s, and a body whose last byte came at the
// end of its 10 s is whole.
func TestANewByteEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		segment := func(from int, text string) answer {
			return func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 9*time.Second); err != nil {
					return nil, err
				}
				resp := newResponse(req, 206, testkit.CutAt(text, io.ErrUnexpectedEOF), `ETag: "v1"`, fmt.Sprintf("Content-Range: bytes %d-9/10", from))
				resp.ContentLength = int64(10 - from)
				return resp, nil
			}
		}
		first := func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, testkit.CutAt("0123", io.ErrUnexpectedEOF), `ETag: "v1"`), nil
		}
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, script(first, segment(4, "45"), segment(6, "6"), segment(7, "789"))))
		start := time.Now()
		assert.Equal(t, "0123456789", mustRead(t, resp))
		assert.Equal(t, 27*time.Second, time.Since(start))
	})
}

// A Read of the rest is bounded as well. The time between two Reads is the reader's own.
func TestReadsOfTheRestAreBounded(t *testing.T) {
	for pause, whole := range map[time.Duration]bool{9 * time.Second: true, 11 * time.Second: false} {
		inBubble(t, pause.String(), func(t *testing.T) {
			first := func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 200, testkit.CutAt("0123", io.ErrUnexpectedEOF), `ETag: "v1"`), nil
			}
			second := func(req *http.Request) (*http.Response, error) {
				slow := readFunc(func([]byte) (int, error) {
					select {
					case <-time.After(pause):
						return 0, io.EOF
					case <-req.Context().Done():
						return 0, req.Context().Err()
					}
				})
				return newResponse(req, 206, io.NopCloser(io.MultiReader(strings.NewReader("45"), slow, strings.NewReader("6789"))),
					`ETag: "v1"`, "Content-Range: bytes 4-9/10"), nil
			}
			resp, err := get(t, over(t, transport.Config{Rule: quick}, script(first, second)), t.Context())
			require.NoError(t, err)
			got := make([]byte, 6)
			_, err = io.ReadFull(resp.Body, got)
			require.NoError(t, err)
			time.Sleep(time.Hour)
			start := time.Now()
			rest, err := io.ReadAll(resp.Body)
			if whole {
				require.NoError(t, err)
				assert.Equal(t, "0123456789", string(got)+string(rest))
				return
			}
			assert.Equal(t, 10*time.Second, time.Since(start))
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "the error of the cut")
			e := errorAs[*transport.Error](t, err)
			assert.Equal(t, transport.ReasonDeadline, e.Reason)
			assert.EqualValues(t, 6, e.Offset)
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
			var at []time.Duration
			base := script(func(req *http.Request) (*http.Response, error) {
				if err := pause(req, 3*time.Second); err != nil {
					return nil, err
				}
				resp := newResponse(req, 200, testkit.CutAt(text[:row.size], io.ErrUnexpectedEOF), `ETag: "v1"`)
				resp.ContentLength = int64(len(text))
				return resp, nil
			}, status(503, "Retry-After: "+row.told), func(req *http.Request) (*http.Response, error) {
				at = append(at, time.Since(start))
				r := fmt.Sprintf("Content-Range: bytes %d-%d/%d", row.size, len(text)-1, len(text))
				return newResponse(req, 206, testkit.CutAt(text[row.size:], io.EOF), `ETag: "v1"`, r), nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			rule := policy.Rule{Hedge: policy.Hedge{Delay: 2 * time.Second}}.Or(quick)
			var seen recorder
			resp, err := get(t, over(t, transport.Config{Rule: rule}, base), seen.on(ctx))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			got, err := io.ReadAll(resp.Body)
			if row.reason == transport.ReasonRetry {
				require.NoError(t, err)
				assert.True(t, string(got) == text)
				require.Len(t, at, 1)
				assert.GreaterOrEqual(t, at[0], 11*time.Second)
				assert.LessOrEqual(t, at[0], 12*time.Second+transport.ResumeJitter)
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
		{"back-off", policy.Rule{Backoff: stopping{}}, []int{10, 10, 10}, transport.ReasonMaxAttempts, 1, 10},
		{"final response", policy.Rule{}, []int{10, -404}, transport.ReasonNotResumable, 2, 10},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			seen := &recorder{}
			base := cutter(text, row.cuts...)
			resp, err := get(t, over(t, transport.Config{Rule: row.rule.Or(exact)}, base), seen.on(t.Context()))
			require.NoError(t, err)
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

type stopping struct{}

func (stopping) Delay(int, time.Duration) time.Duration { return -1 }

// A body that cannot be resumed is not wrapped.
func TestNotResumable(t *testing.T) {
	for _, row := range []struct {
		name string
		rule policy.Rule
		once bool
		code int
	}{
		{name: "resumes are off", rule: policy.Rule{Resume: policy.Off}},
		{name: "one attempt", rule: policy.Rule{MaxAttempts: 1}},
		{name: "once", once: true},
		{name: "404", code: 404},
		{name: "101", code: 101},
		{name: "empty"},
	} {
		t.Run(row.name, func(t *testing.T) {
			own := testkit.CutAt("x", io.EOF)
			base := rt(func(req *http.Request) (*http.Response, error) {
				resp := newResponse(req, cmp.Or(row.code, 200), own, `ETag: "v1"`)
				if row.name == "empty" {
					resp.ContentLength = 0
				}
				return resp, nil
			})
			ctx := t.Context()
			if row.once {
				ctx = transport.WithoutRetries(ctx)
			}
			row.rule.MaxRefetch = policy.Off // only the rest by Range
			resp := mustGetWith(t, over(t, transport.Config{Rule: row.rule}, base), ctx)
			assert.True(t, own == resp.Body, "wrapped in a %T", resp.Body)
		})
	}
}

// An error that no reconnect helps against reaches the reader unchanged.
func TestReadErrorsThatAreNoCut(t *testing.T) {
	own := errors.New("limit of the base")
	base := rt(func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, testkit.CutAt("x", own), `ETag: "v1"`), nil
	})
	resp, err := get(t, over(t, transport.Config{}, base), t.Context())
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	assert.Equal(t, own, err)
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
		rule := policy.Rule{MaxAttempts: 2, Backoff: recording(func(n int, prev time.Duration) time.Duration {
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
		rule := policy.Rule{Backoff: recording(func(n int, prev time.Duration) time.Duration {
			prevs = append(prevs, prev)
			return time.Duration(n+1) * time.Second
		})}
		resp := mustGet(t, over(t, transport.Config{Rule: rule}, cutter("0123456789", -503, 1, 1, -503)))
		assert.Equal(t, "0123456789", mustRead(t, resp))
		assert.Equal(t, []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second}, prevs)
	})
}

// recording is a back-off that is a function.
type recording func(int, time.Duration) time.Duration

func (f recording) Delay(n int, prev time.Duration) time.Duration { return f(n, prev) }

// A response that goes beyond the caller's range does not continue the body.
func TestResumeBeyondARange(t *testing.T) {
	first := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 206, testkit.CutAt("234", io.ErrUnexpectedEOF),
			`ETag: "v1"`, "Content-Range: bytes 2-7/10"), nil
	}
	second := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 206, io.NopCloser(strings.NewReader("56789")), `ETag: "v1"`, "Content-Range: bytes 5-9/10"), nil
	}
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Header.Set("Range", "bytes=2-7")
	seen := &recorder{}
	resp := mustRoundTrip(t, over(t, transport.Config{Rule: quick, Traces: []*transport.Trace{seen.trace()}}, script(first, second)), req)
	got, err := io.ReadAll(resp.Body)
	assert.Equal(t, "234", string(got))
	assert.Equal(t, io.ErrUnexpectedEOF, err)
	assert.ErrorContains(t, seen.all[len(seen.all)-1].Err, "it goes to 9 instead of 7")
}

// If the caller asked for a range, the body is continued to the end of that range.
func TestResumeOfARange(t *testing.T) {
	text := "0123456789"
	n := 0
	base := rt(func(req *http.Request) (*http.Response, error) {
		n++
		if n == 1 {
			assert.Equal(t, "bytes=2-7", req.Header.Get("Range"))
			return newResponse(req, 206, testkit.CutAt("234", io.ErrUnexpectedEOF),
				`ETag: "v1"`, "Content-Range: bytes 2-7/10", "Content-Digest: "+field256("234567")), nil
		}
		assert.Equal(t, "bytes=5-7", req.Header.Get("Range"))
		return newResponse(req, 206, io.NopCloser(strings.NewReader(text[5:8])),
			`ETag: "v1"`, "Content-Range: bytes 5-7/10", "Content-Digest: "+field256("567")), nil
	})
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Header.Set("Range", "bytes=2-7")
	resp := mustRoundTrip(t, over(t, transport.Config{Rule: quick}, base), req)
	assert.Equal(t, "234567", mustRead(t, resp))
	assert.Equal(t, "bytes=2-7", req.Header.Get("Range"))
}

// If the caller asked for an encoding, the encoded bytes are the representation.
func TestResumeOfAnEncodedBody(t *testing.T) {
	n := 0
	base := rt(func(req *http.Request) (*http.Response, error) {
		assert.Equal(t, "gzip", req.Header.Get("Accept-Encoding"))
		if n++; n == 1 {
			resp := newResponse(req, 200, testkit.CutAt("gz", io.ErrUnexpectedEOF), `ETag: "v1-gzip"`, "Content-Encoding: gzip")
			resp.ContentLength = 4
			return resp, nil
		}
		resp := newResponse(req, 206, io.NopCloser(strings.NewReader("ip")),
			`ETag: "v1-gzip"`, "Content-Encoding: gzip", "Content-Range: bytes 2-3/4")
		resp.ContentLength = 2
		return resp, nil
	})
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	resp := mustRoundTrip(t, over(t, transport.Config{Rule: quick}, base), req)
	assert.Equal(t, "gzip", mustRead(t, resp))
}

func TestResumeUnderADate(t *testing.T) {
	const modified = "Last-Modified: Mon, 06 Jan 2025 10:00:00 GMT"
	n := 0
	base := rt(func(req *http.Request) (*http.Response, error) {
		if n++; n == 1 {
			return newResponse(req, 200, testkit.CutAt("da", io.ErrUnexpectedEOF),
				modified, "Date: Mon, 06 Jan 2025 10:05:00 GMT"), nil
		}
		assert.Equal(t, "Mon, 06 Jan 2025 10:00:00 GMT", req.Header.Get("If-Range"))
		return newResponse(req, 206, io.NopCloser(strings.NewReader("te")), modified, "Content-Range: bytes 2-3/4"), nil
	})
	resp := mustGet(t, over(t, transport.Config{Rule: quick}, base))
	assert.Equal(t, "date", mustRead(t, resp))
}

// A date proves nothing for a response that has a tag. A weak tag says that the bytes may be others.
func TestRestThatHasATag(t *testing.T) {
	old := []string{"Last-Modified: Mon, 06 Jan 2025 10:00:00 GMT", "Date: Mon, 06 Jan 2025 10:05:00 GMT"}
	for _, tag := range []string{`W/"v1"`, `"v1"`} {
		base := script(cutWith(io.ErrUnexpectedEOF, "da", old...), func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 206, testkit.CutAt("TE", io.EOF), append(old, "Content-Range: bytes 2-3/4", "ETag: "+tag)...), nil
		})
		got := do(over(t, transport.Config{Rule: quick}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
		assert.Equal(t, io.ErrUnexpectedEOF, got.err, tag)
		assert.Equal(t, "da", got.body)
	}
}

// A base transport that makes bodies longer or shorter, and leaves their length as it was, has the last word.
func TestBaseThatChangesBodies(t *testing.T) {
	for _, length := range []int64{4, 16} {
		base := rt(func(req *http.Request) (*http.Response, error) {
			resp := newResponse(req, 200, io.NopCloser(strings.NewReader("0123456789")), `ETag: "v1"`)
			resp.ContentLength = length
			return resp, nil
		})
		got := do(over(t, transport.Config{}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
		assert.NoError(t, got.err)
		assert.Equal(t, "0123456789", got.body)
	}
}

// After the last byte nothing is missing but trailers, and no range brings them. So
// there is no reconnect. If trailers were announced, the caller gets the error.
func TestCutBehindTheLastByte(t *testing.T) {
	for name, trailer := range map[string]http.Header{"no trailers": nil, "trailers": {"X-Sum": nil}} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			tr := over(t, transport.Config{Rule: quick}, rt(func(req *http.Request) (*http.Response, error) {
				attempts++
				body := io.MultiReader(strings.NewReader("text"), iotest.ErrReader(io.ErrUnexpectedEOF))
				resp := newResponse(req, 200, io.NopCloser(body), `Etag: "a"`)
				resp.ContentLength, resp.Trailer = 4, trailer
				return resp, nil
			}))
			resp := mustGet(t, tr)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "text", string(got))
			count(t, 1, attempts, "GET sent")
			if trailer == nil {
				assert.NoError(t, err)
			} else {
				assert.Equal(t, io.ErrUnexpectedEOF, err)
			}
		})
	}
}

func TestTrailersOfTheLastSegment(t *testing.T) {
	first := func(req *http.Request) (*http.Response, error) {
		resp := newResponse(req, 200, testkit.CutAt("ab", io.ErrUnexpectedEOF), `ETag: "v1"`)
		resp.Trailer = http.Header{"X-T": nil}
		return resp, nil
	}
	second := func(req *http.Request) (*http.Response, error) {
		resp := newResponse(req, 206, io.NopCloser(strings.NewReader("cd")), `ETag: "v1"`, "Content-Range: bytes 2-3/4")
		resp.Trailer = http.Header{"X-T": {"1"}}
		return resp, nil
	}
	resp := mustGet(t, over(t, transport.Config{Rule: quick}, script(first, second)))
	mustRead(t, resp)
	assert.Equal(t, http.Header{"X-T": {"1"}}, resp.Trailer)
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

// Close and the end of the context interrupt a reconnect in each of its phases.
func TestEndDuringReconnect(t *testing.T) {
	hang := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
	for name, second := range map[string]answer{
		"during the wait":      faults.Fail(errors.New("not reached in time")),
		"during the send":      hang,
		"during a later retry": status(503),
	} {
		for _, how := range []string{"close", "cancel"} {
			inBubble(t, name+"/"+how, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				first := func(req *http.Request) (*http.Response, error) {
					return newResponse(req, 200, testkit.CutAt("ab", io.ErrUnexpectedEOF), `ETag: "v1"`), nil
				}
				rule := policy.Rule{Backoff: backoff.Constant(9 * time.Second)}
				if name != "during the wait" {
					rule.Backoff = backoff.Constant(time.Second)
				}
				resp := mustGetWith(t, over(t, transport.Config{Rule: rule}, script(first, second)), ctx)
				p := make([]byte, 10)
				n, err := resp.Body.Read(p)
				require.NoError(t, err)
				result := make(chan error)
				go func() {
					for err == nil {
						_, err = resp.Body.Read(p[n:])
					}
					result <- err
				}()
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				why, start := errors.New("why"), time.Now()
				if how == "cancel" {
					cancel(why)
				} else {
					assert.NoError(t, resp.Body.Close())
				}
				err = <-result
				assert.Zero(t, time.Since(start))
				if how == "cancel" {
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, why)
					var e *transport.Error
					if assert.ErrorAs(t, err, &e) {
						assert.Equal(t, transport.ReasonCanceled, e.Reason)
					}
				} else {
					assert.Equal(t, http.ErrBodyReadAfterClose, err)
				}
				assert.NoError(t, resp.Body.Close())
			})
		}
	}
}

// Nobody waits for the rest of a response that does not continue the body.
func TestEndDuringADiscard(t *testing.T) {
	for _, how := range []string{"close", "cancel", "channel"} {
		inBubble(t, how, func(t *testing.T) {
			first := func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 200, testkit.CutAt("ab", io.ErrUnexpectedEOF), `ETag: "v1"`), nil
			}
			second := func(req *http.Request) (*http.Response, error) {
				return newResponse(req, 206, stuck{}, `ETag: "v2"`, "Content-Range: bytes 2-9/10"), nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			channel := make(chan struct{})
			req := newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx)
			//lint:ignore SA1019 still honoured
			req.Cancel = channel
			tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, script(first, second))
			resp := mustRoundTrip(t, tr, req)
			time.AfterFunc(1100*time.Millisecond, map[string]func(){
				"close": func() { _ = resp.Body.Close() }, "cancel": cancel, "channel": func() { close(channel) },
			}[how])
			start := time.Now()
			_, err := io.ReadAll(resp.Body)
			assert.Error(t, err)
			assert.Equal(t, 1100*time.Millisecond, time.Since(start))
			assert.NoError(t, resp.Body.Close())
			time.Sleep(time.Minute) // the goroutines of Read and Close end
		})
	}
}

// A body that was read and closed has an error, as in net/http, and no clean end.
func TestReadAfterTheEndAndClose(t *testing.T) {
	for _, header := range []string{`ETag: "v1"`, "X: without a validator"} {
		resp := mustGet(t, over(t, transport.Config{Rule: quick}, script(cutWith(io.EOF, "text", header))))
		require.Equal(t, "text", mustRead(t, resp))
		require.NoError(t, resp.Body.Close())
		_, err := resp.Body.Read(make([]byte, 1))
		assert.Equal(t, http.ErrBodyReadAfterClose, err, header)
	}
}

// Close may come at any moment and leaves nothing behind. A goroutine that stays
// would fail the bubble.
func TestCloseAtAnyMoment(t *testing.T) {
	for name, config := range protocols {
		inBubble(t, name, func(t *testing.T) {
			text := testserver.Pattern(1 << 20)
			config.Handler = func(*testserver.Received) testserver.Step {
				return testserver.Content(text, `"v1"`).CutAt(rand.Int64N(200_000), testserver.Reset).Drip(20_000, 10*time.Millisecond)
			}
			c, srv := overServer(t, transport.Config{Rule: policy.Rule{StallTimeout: time.Second}}, config)
			for range soak.Size(25, 100) {
				resp, err := c.Get(srv.URL)
				require.NoError(t, err)
				read := make(chan struct{})
				go func() {
					defer close(read)
					got, err := io.ReadAll(resp.Body)
					if assert.True(t, bytes.HasPrefix(text, got)) && err == nil {
						assert.Len(t, got, len(text))
					}
				}()
				time.Sleep(rand.N(2 * time.Second))
				_ = resp.Body.Close()
				<-read
			}
		})
	}
}

// A body that can be continued costs one allocation, any other none.
func TestResumableAllocatesOnce(t *testing.T) {
	body := &testkit.CutBody{}
	for _, row := range []struct {
		header []string
		want   float64
	}{
		{[]string{`ETag: "v1"`}, 1},
		{[]string{"Last-Modified: Mon, 06 Jan 2025 10:00:00 GMT", "Date: Mon, 06 Jan 2025 10:05:00 GMT"}, 1},
		{[]string{`ETag: W/"v1"`}, 1},
		{[]string{"Last-Modified: Mon, 06 Jan 2025 10:00:00 GMT", "Date: Mon, 06 Jan 2025 10:00:05 GMT"}, 1},
		{nil, 1},
		{[]string{"Content-Type: text/event-stream"}, 0},
	} {
		resp := newResponse(nil, 200, body, row.header...)
		resp.ContentLength = 1000
		tr := mustNew(t, transport.Config{Base: rt(func(*http.Request) (*http.Response, error) {
			resp.Body = body
			return resp, nil
		})})
		req := getRequest(t, "https://api.example.com/v1/things")
		assert.Equal(t, row.want, testing.AllocsPerRun(1000, func() {
			_, _ = tr.RoundTrip(req)
		}), "%v", row.header)
	}
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

// A body that can be continued takes 256 bytes.
func TestSizeOfABodyThatCanBeContinued(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(transport.Download{}), uintptr(256))
}

// BenchmarkMemoryOfManyBodies: 10,000 bodies under way cost what a body that may be
// fetched again takes, and 10,000 event streams nothing.
func BenchmarkMemoryOfManyBodies(t *testing.B) {
	const n = 10_000
	perBody := func(mediaType string, again int64) float64 {
		body := &testkit.CutBody{}
		header := http.Header{"Content-Type": {mediaType}}
		tr := mustNew(t, transport.Config{Rule: policy.Rule{MaxRefetch: again}, Base: rt(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: header, Body: body, ContentLength: -1, Request: req}, nil
		})})
		req := getRequest(t, "https://api.example.com/v1/things")
		all := make([]*http.Response, n)
		before := testkit.Heap()
		for i := range all {
			all[i], _ = tr.RoundTrip(req)
		}
		after := testkit.Heap()
		runtime.KeepAlive(all)
		return float64(after-before) / n
	}
	for t.Loop() {
		t.ReportMetric(perBody("application/json", policy.Off), "B/body-off")
		t.ReportMetric(perBody("application/json", 0), "B/body-on")
		t.ReportMetric(perBody("text/event-stream", 0), "B/stream")
	}
}

// If the deadline passes while the bytes that the reader has come again, the body ends because
// of the deadline, and not because the caller hung up.
func TestDeadlineWhileBytesComeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var seen recorder
		sent := 0
		tr := over(t, transport.Config{Traces: []*transport.Trace{seen.trace()}}, rt(func(req *http.Request) (*http.Response, error) {
			body := testkit.CutAt("hello", syscall.ECONNRESET)
			if sent++; sent > 1 {
				body = io.NopCloser(readFunc(func([]byte) (int, error) {
					<-req.Context().Done()
					return 0, req.Context().Err()
				}))
			}
			resp := newResponse(req, 200, body, "Content-Type: application/json")
			resp.ContentLength = 10
			return resp, nil
		}))
		resp, err := get(t, tr, ctx)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		require.Equal(t, 2, sent, "requests sent")
		assert.Equal(t, transport.ReasonDeadline, seen.last())
		if e, ok := errors.AsType[*transport.Error](err); assert.True(t, ok, err) {
			assert.Equal(t, transport.ReasonDeadline, e.Reason)
		}
	})
}

// The rest comes with a body whose Read counts too much.
func TestRestThatOvercounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		sent := 0
		tr := mustNew(t, transport.Config{Rule: quick, Base: rt(func(req *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Request: req, ContentLength: 9, Header: http.Header{"Etag": {`"v1"`}}}
			if sent++; sent == 1 {
				resp.Body = testkit.CutAt("abc", io.ErrUnexpectedEOF)
				return resp, nil
			}
			resp.StatusCode, resp.ContentLength, resp.Body = 206, 6, overcounting{}
			resp.Header.Set("Content-Range", "bytes 3-8/9")
			return resp, nil
		})})
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://a.test", nil))
		var got strings.Builder
		_, err := io.Copy(&got, resp.Body)
		assert.Error(t, err)
		assert.Equal(t, "abc", got.String())
		_ = resp.Body.Close()
	})
}

type overcounting struct{}

func (overcounting) Read(p []byte) (int, error) { return len(p) + 1, nil }
func (overcounting) Close() error               { return nil }
