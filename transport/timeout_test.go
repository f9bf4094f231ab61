package transport_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/trait"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Where net/http alone fails at once, a retry that meets silence ends, too. The first attempt is not
// bounded, and neither is the time of an upload or of a response's body.
func TestRetryIntoSilenceIsBounded(t *testing.T) {
	const each = transport.LaterTimeout
	hang, late := faults.Hang(), func(d time.Duration) faults.Step { return faults.Status(200).Body("news").Delay(d) }
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		deadline time.Duration
		steps    []answer
		took     time.Duration // that the base has the request
		attempts int
		err      bool
	}{
		{"three attempts", policy.Rule{}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"an answer in time", policy.Rule{}, 0, []answer{faults.ConnReset(), late(each - 1)}, each - 1, 2, false},
		{"an answer too late, and then one in time", policy.Rule{}, 0, []answer{faults.ConnReset(), late(each + 1), late(time.Second)}, each + time.Second, 3, false},
		{"the first attempt", policy.Rule{}, 0, []answer{late(time.Hour)}, time.Hour, 1, false},
		{"a deadline", policy.Rule{}, time.Hour, []answer{faults.ConnReset(), hang}, time.Hour, 2, true},
		{"AttemptTimeout", policy.Rule{AttemptTimeout: time.Hour}, 0, []answer{faults.ConnReset(), hang}, 2 * time.Hour, 3, true},
		{"AttemptTimeout off", policy.Rule{AttemptTimeout: policy.Off}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"ConnectTimeout", policy.Rule{ConnectTimeout: time.Second}, 0, []answer{faults.ConnReset(), hang}, 2 * each, 3, true},
		{"Stall", policy.Rule{StallTimeout: time.Minute}, 0, []answer{faults.ConnReset(), hang}, 2 * time.Minute, 3, true},
		{"a slow body", policy.Rule{}, 0, []answer{faults.ConnReset(), faults.Status(200).Body("news").Drip(1, each)}, 4 * each, 2, false},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			ctx := t.Context()
			if row.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
				defer cancel()
			}
			server, start := script(row.steps...), time.Now()
			resp, err := get(t, over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 3}.Or(row.rule).Or(quick)}, server), ctx)
			if !row.err {
				require.NoError(t, err)
				assert.Equal(t, "news", mustRead(t, resp))
			} else {
				assert.True(t, trait.Timeout(err), err)
			}
			assert.InDelta(t, float64(row.took), float64(time.Since(start)), float64(time.Second))
			server.sent(t, row.attempts)
		})
	}
}

// A retried upload of which the server takes nothing ends, because over net/http alone the caller would
// know of the failure. Each piece is progress, however slow. The first attempt is not bounded.
func TestRetriedUploadIntoSilence(t *testing.T) {
	const size = 100 << 10
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		deadline time.Duration
		first    bool          // it is the first attempt that meets silence
		pause    time.Duration // after each piece that the server takes; 0: it takes one only
		took     time.Duration
		is       error // nil: the upload succeeds
	}{
		{name: "default", took: 30 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a deadline", deadline: time.Hour, took: 30 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a short AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Second}, took: 10 * time.Second, is: policy.ErrAttemptTimeout},
		{name: "a long AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Minute}, deadline: time.Hour, took: time.Minute, is: policy.ErrAttemptTimeout},
		{name: "a StallTimeout", rule: policy.Rule{StallTimeout: 2 * time.Minute}, took: 2 * time.Minute, is: policy.ErrStallTimeout},
		{name: "a slow link", pause: 29 * time.Second, took: 25 * 29 * time.Second},
		{name: "a slow link, a short AttemptTimeout", rule: policy.Rule{AttemptTimeout: time.Second}, pause: 9 * time.Second, took: 25 * 9 * time.Second},
		{name: "the first attempt", rule: policy.Rule{AttemptTimeout: time.Second}, deadline: time.Hour, first: true, took: time.Hour, is: context.DeadlineExceeded},
	} {
		for name, body := range bodies(t, strings.Repeat("x", size)) {
			inBubble(t, row.name+"/"+name, func(t *testing.T) {
				ctx := t.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				slow := func(req *http.Request) (*http.Response, error) {
					defer func() { _ = req.Body.Close() }()
					for p := make([]byte, 32<<10); ; {
						if _, err := req.Body.Read(p); err == io.EOF {
							return play(req, status(200))
						}
						if row.pause == 0 {
							<-req.Context().Done()
							return nil, context.Cause(req.Context())
						}
						time.Sleep(row.pause)
					}
				}
				base := numbered(func(req *http.Request, n int) (*http.Response, error) {
					if n == 1 && !row.first {
						_, _ = io.Copy(io.Discard, req.Body)
						_ = req.Body.Close()
						return play(req, status(503))
					}
					return slow(req)
				})
				tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 2, ReplayBuffer: size}.Or(row.rule).Or(quick)})
				start := time.Now()
				resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", body()).WithContext(ctx))
				assert.ErrorIs(t, err, row.is)
				assert.Equal(t, row.is == nil, resp != nil && resp.StatusCode == http.StatusOK)
				assert.InDelta(t, float64(row.took), float64(time.Since(start)), float64(time.Second))
			})
		}
	}
}

// The bound of a retry does not run while its upload is sent, and hooks know it.
func TestBoundOfARetryLeavesTimeForTheUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var deadlines []time.Time
		start := time.Now()
		server := script(faults.ConnReset(), func(req *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, req.Body)
			require.NoError(t, err)
			return play(req, status(200))
		})
		trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
			deadlines = append(deadlines, a.Deadline)
			return ctx
		}}
		req := newRequest(t, http.MethodPut, "http://h.test/", nil)
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(readFunc(func([]byte) (int, error) {
				time.Sleep(time.Hour)
				return 0, io.EOF
			})), nil
		}
		req.Body, _ = req.GetBody()
		tr := over(t, transport.Config{Rule: quick, Traces: []*transport.Trace{trace}}, server)
		assert.Equal(t, http.StatusOK, mustRoundTrip(t, tr, req).StatusCode)
		assert.Equal(t, 2*time.Hour, time.Since(start), "by each attempt")
		assert.Equal(t, make([]time.Time, 2), deadlines, "nobody knows how long the upload takes")

		deadlines, start = nil, time.Now()
		_ = mustGet(t, over(t, transport.Config{Rule: quick, Traces: []*transport.Trace{trace}}, script(faults.ConnReset(), status(200))))
		assert.Equal(t, []time.Time{{}, start.Add(transport.LaterTimeout)}, deadlines)
	})
}

// The time of an attempt stands still while net/http waits for the response to Expect: 100-continue, which
// a server may ignore (RFC 9110 §10.1.1).
func TestTimeOfAnExpectation(t *testing.T) {
	const each = time.Second // the AttemptTimeout
	for name, row := range map[string]struct {
		plain     bool          // there is no expectation
		base      time.Duration // the ExpectContinueTimeout
		around    bool          // another base is around net/http
		continues time.Duration // until the 100; 0: the server ignores the expectation
		answers   bool          // there is a response when the server has the body
		size      int
		took      time.Duration
	}{
		"ignored":                  {base: time.Second, answers: true, took: time.Second},
		"ignored, and silence":     {base: time.Second, took: 2 * time.Second},
		"ignored by a large body":  {base: time.Second, size: 100 << 10, took: 2 * time.Second},
		"100, and silence":         {base: time.Second, continues: 300 * time.Millisecond, took: 1300 * time.Millisecond},
		"100, and a response":      {base: time.Second, continues: 300 * time.Millisecond, answers: true, took: 300 * time.Millisecond},
		"a short wait":             {base: 200 * time.Millisecond, took: 1200 * time.Millisecond},
		"no wait":                  {took: time.Second},
		"a long wait":              {base: 5 * time.Second, answers: true, took: 5 * time.Second},
		"a base that nobody knows": {base: 5 * time.Second, around: true, took: 2 * time.Second},
		"no expectation":           {plain: true, base: time.Second, took: time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				r := bufio.NewReader(far)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if row.continues > 0 {
					time.Sleep(row.continues)
					_, _ = io.WriteString(far, "HTTP/1.1 100 Continue\r\n\r\n")
				}
				if _, err = io.Copy(io.Discard, req.Body); err == nil && row.answers {
					_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, r)
			}()
			h := &http.Transport{ExpectContinueTimeout: row.base, DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
			var base http.RoundTripper = h
			if row.around {
				base = rt(h.RoundTrip)
			}
			req := newRequest(t, http.MethodPut, "http://h.test/", strings.NewReader(strings.Repeat("x", max(row.size, 1))))
			if !row.plain {
				req.Header.Set("Expect", "100-continue")
			}
			start := time.Now()
			resp, err := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{AttemptTimeout: each, MaxAttempts: 1}}).RoundTrip(req)
			assert.Equal(t, row.took, time.Since(start))
			if row.answers {
				require.NoError(t, err)
				assert.NoError(t, resp.Body.Close())
			} else {
				assert.ErrorIs(t, err, policy.ErrAttemptTimeout)
			}
			h.CloseIdleConnections()
			_ = near.Close()
		})
	}
}

// An attempt leaves nothing behind in the caller's context, which may live longer. Its
// timer is stopped.
func TestAttemptLeavesNothingInItsContext(t *testing.T) {
	read := func(resp *http.Response) { _, _ = io.Copy(io.Discard, resp.Body) }
	shut := func(resp *http.Response) { _ = resp.Body.Close() }
	rows := map[string]struct {
		response answer
		end      func(*http.Response)
	}{
		"read":               {status(200), read},
		"closed":             {status(200), shut},
		"no body":            {faults.Status(204), func(*http.Response) {}},
		"error":              {faults.Fail(io.ErrUnexpectedEOF), nil},
		"response and error": {func(req *http.Request) (*http.Response, error) { return newResponse(req, 200, oneShot("")), io.EOF }, nil},
		"nothing":            {func(*http.Request) (*http.Response, error) { return nil, nil }, nil},
		"too late":           {deaf(2 * time.Minute), shut},
		"panic":              {func(*http.Request) (*http.Response, error) { panic("base") }, nil},
		"Goexit":             {func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, nil},
		"response, error and a panic of Close": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, badBody{nil, func() { panic("close") }}), io.EOF
		}, nil},
		"panic of Close": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, badBody{nil, func() { panic("close") }}), nil
		}, shut},
		"tunnel": {func(req *http.Request) (*http.Response, error) { return newResponse(req, 101, oneShot("")), nil }, shut},
	}
	rules := map[string]policy.Rule{
		"attempt timeout": {AttemptTimeout: time.Minute},
		"stall":           {AttemptTimeout: -1, StallTimeout: time.Minute},
		"hedge":           {AttemptTimeout: -1, Hedge: policy.Hedge{Delay: time.Second}},
	}
	for name, row := range rows {
		for kind, rule := range rules {
			inBubble(t, name+", "+kind, func(t *testing.T) {
				rule.MaxAttempts = 2
				ctx := &countingCtx{Context: t.Context(), done: make(chan struct{})}
				req := headed(t, http.MethodGet, "http://h.test/").WithContext(ctx)
				if name == "tunnel" {
					req.Header.Set("Upgrade", "websocket")
				}
				tr := over(t, transport.Config{Rule: rule}, rt(func(req *http.Request) (*http.Response, error) {
					req.Context().Done()
					return play(req, row.response)
				}))
				var ended sync.WaitGroup
				ended.Go(func() {
					defer func() { _ = recover() }()
					if resp, err := tr.RoundTrip(req); err == nil {
						row.end(resp)
					}
				})
				ended.Wait()
				if name == "too late" {
					time.Sleep(time.Hour) // until the loser of a race has its answer
				}
				synctest.Wait()
				assert.Zero(t, ctx.n.Load())
			})
		}
	}
}
