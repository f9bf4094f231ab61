// Which test fails with each of the mistakes that others made? An index of
// them, and tests of those that no other file is about.

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/soak"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/retry"
	"github.com/aplomb-go/aplomb/transport"
)

// pitfalls lists the mistakes that retry libraries were seen to make, and the
// tests that would fail with them. The numbers are only for reference.
//
// Not listed are those of features whose own tests are about nothing else: 14,
// a hedge's cancel kills the winner's body, or losers are never closed; 30,
// budgets never refilled, charged after the sleep, or one for all hosts; 31, a
// budget that counts waiting retries as active; 37, a resumed body from a
// forged or misaligned response; 38, one resumed on decompressed bytes.
var pitfalls = []struct {
	number  int
	mistake string
	tests   string // package.Test, by spaces
}{
	{1, "seconds × 1e9 overflows: a negative wait, then hammering", "transport.TestHostileWaits field.TestRetryAfter field.FuzzRetryAfter"},
	{2, "NaN, Inf, 1e300, negative and signed values accepted", "transport.TestHostileWaits field.TestRetryAfter field.TestNumber"},
	{3, "epoch seconds in Retry-After make a sleep of decades", "transport.TestHostileWaits field.TestRetryAfter"},
	{4, "waits without a cap", "transport.TestServersWait transport.TestHostileWaits formula.TestFormulasMeetTheirPromises"},
	{5, "a server's wait that is capped: back earlier than told", "transport.TestServersWait transport.TestDecide"},
	{6, "jitter that lowers the server's wait", "transport.TestDecide transport.FuzzDecide transport.TestHostileWaits"},
	{7, "one of three date forms, or none", "transport.TestHostileWaits field.TestRetryAfter"},
	{8, "Retry-After on 2xx or 3xx taken for a retry", "transport.TestWaitsOfResponsesThatAreFinal field.TestRetryAfterStatuses transport.TestPOST"},
	{9, "discarded responses not closed: leaks, deadlock under MaxConnsPerHost", "transport.TestNoConnectionIsLeftBehind transport.TestOneConnectionIsEnough attempt.TestDrain"},
	{10, "draining without a bound, or too little, or not at all", "transport.TestErrorBodiesDoNotHoldTheRetryUp transport.TestConnectionsAreReused attempt.TestDrain"},
	{11, "the whole body in memory before the first attempt; GetBody ignored", "transport.TestUploadStreams transport.TestUploadMemoryIsBounded transport.TestFilesAreSentAgainWithoutBuffering transport.TestGetBodyIsUsed"},
	{12, "the caller's body never closed; the caller's request changed", "transport.TestContractClosesTheBody transport.TestBodiesThatAreMadeAreClosed transport.TestContractDoesNotModifyTheRequest"},
	{13, "one reader shared by attempts while the transport still reads it", "transport.TestEarlyResponses transport.TestHTTP2EarlyResponses transport.TestUploadsOfOneReader replay.TestRewindDuringARead"},
	{15, "the attempt's context cancelled before its body is read, or never", "transport.TestAttemptTimeout transport.TestHangs"},
	{16, "a wrapper hides io.Writer: upgrades die", "transport.TestUpgradesOverTheWire transport.TestUpgradesAreUntouched transport.TestPlainBodiesAreNotWrapped"},
	{17, "CloseIdleConnections on the shared pool after a failure", "transport.TestOtherConnectionsAreLeftAlone transport.TestCloseIdleConnections"},
	{18, "the last response, its body or the real error lost", "transport.TestGivesUpWithTheLastResponse transport.TestGivesUpWithTheLastError transport.TestContractResponseMeansNoError"},
	{19, "errors.Is(err, context.Canceled) false after a cancelled wait", "transport.TestCancelDuringTheWait transport.TestCancelWhileTheBodyIsAwaited"},
	{20, "an attempt's timeout taken for the caller's cancellation", "transport.TestAttemptTimeout transport.TestHangs"},
	{21, "a sleep that ignores the context", "transport.TestCancelDuringTheWait transport.TestDeadlineIsSeenBeforeTheSleep"},
	{22, "POST and PATCH retried by default", "transport.TestPOST transport.TestMethods transport.TestFaultsThenAResponse"},
	{23, "the method unknown on the error path, so POST retried", "transport.TestPOST transport.TestFaultsThenAResponse transport.TestHTTP2Ambiguous"},
	{24, "errors told apart by their text", "classify.TestPhrasesAreNotSoughtInWrappers classify.TestRealErrors"},
	{25, "permanent errors retried", "transport.TestTLSFaultsAreFinal transport.TestNamesAndRoutes transport.TestPermanentFailures classify.TestErrors"},
	{26, "2^n overflows for large n", "formula.TestFormulasMeetTheirPromises formula.TestArithmeticKeepsToItsBounds formula.FuzzFormulas"},
	{27, "rand panics on a zero bound", "formula.TestFormulasMeetTheirPromises formula.FuzzFormulas"},
	{28, "jitter after the cap exceeds it; before the cap it vanishes there", "formula.TestTheWholeSpreadIsPossibleAtTheCap"},
	{29, "no jitter, or no delay, by default", "transport.TestDefaultWaits"},
	{32, "the body closed before the classifier could read it", "transport.TestBodyClassifierAndTheCaller peek.TestPeekKeepsTheBody"},
	{33, "a typed nil body panics", "transport.TestContractBadRequests"},
	{34, "hooks given a nil or wrong error", "transport.TestAttemptEnds transport.TestAttemptTimeout transport.TestRateLimit"},
	{35, "clock skew against dates and epoch headers", "field.TestClockSkew"},
	{36, "layers multiply", "transport.TestNestedTransports transport.TestDoAroundATransport retry.TestDoLayersMultiplyOnlyWhenTold"},
	{39, "a 429 that means that the quota is used up is retried", "transport.TestQuotaUsedUp classify.TestSignals"},
	{40, "success on a retry hides a failing provider", "transport.TestAttemptEnds transport.TestLinesOfAttempts"},
	{41, "a response before the upload ended; the retry races with it", "transport.TestEarlyResponses transport.TestEarlyResponseWhileTheBodyWaits transport.TestHTTP2CloseDuringRead replay.TestRewindDuringARead"},
	{42, "two-digit years", "transport.TestHostileWaits field.FuzzTwoDigitYear"},
	{43, "Retry-After: 0 as no value, or as a hot loop", "transport.TestHostileWaits transport.TestServersWait"},
	{44, "several Retry-After values, only the first read", "transport.TestHostileWaits field.TestSeveralRetryAfter"},
}

// TestPitfallsHaveTests: every test that the index names exists.
func TestPitfallsHaveTests(t *testing.T) {
	exists := map[string]bool{}
	for name, dir := range map[string]string{"transport": ".", "classify": "../classify", "policy": "../policy", "retry": "../retry", "formula": "../internal/formula", "field": "../internal/field", "peek": "../internal/peek", "replay": "../internal/replay", "attempt": "../internal/attempt"} {
		for f := range testsIn(t, dir) {
			exists[name+"."+f] = true
		}
	}
	last := 0
	for _, p := range pitfalls {
		assert.Greater(t, p.number, last, "in order, none twice")
		last = p.number
		assert.NotEmpty(t, strings.Fields(p.tests), "%d: %s", p.number, p.mistake)
		for _, name := range strings.Fields(p.tests) {
			assert.True(t, exists[name], "%d (%s): there is no %s", p.number, p.mistake, name)
		}
	}
}

// testsIn returns the names of the functions in a directory's test files.
func testsIn(t *testing.T, dir string) map[string]bool {
	isTest := func(f fs.FileInfo) bool { return strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), dir, isTest, parser.SkipObjectResolution) //lint:ignore SA1019 build constraints do not matter here
	require.NoError(t, err)
	names := map[string]bool{}
	for _, p := range packages {
		for _, file := range p.Files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					names[f.Name.Name] = true
				}
			}
		}
	}
	return names
}

// TestHostileWaits: what a server may write into Retry-After, on a clock that
// stands at the first second of the year 2000. Where it says nothing sensible
// the back-off's own second is waited.
func TestHostileWaits(t *testing.T) {
	const s = time.Second
	const stop = -1
	for _, row := range []struct {
		value string // several by "|"
		wait  time.Duration
	}{
		{"10000000000", stop},
		{"9223372036854775807", stop},
		{"9223372036854775808", stop},
		{"99999999999999999999999999", stop},
		{"18446744073", stop}, // × 1e9 is a tenth of a second, modulo 2^64
		{"3600", stop},
		{"NaN", s}, {"Inf", s}, {"-Inf", s}, {"1e300", s}, {"1e1", s},
		{"-1", s}, {"+30", s}, {"30.5.5", s}, {"0x1e", s}, {"1_0", s}, {"", s}, {"soon", s},
		{"0", s}, {"00", s}, {"1", s},
		{"10", 10 * s}, {"010", 10 * s}, {" 10 ", 10 * s}, {"60", time.Minute},
		{"10.5", 10*s + s/2}, {"10, 20", 20 * s}, {"946684810", 10 * s}, // an instant in Unix seconds, 10 s from now
		{"Sat, 01 Jan 2000 00:00:10 GMT", 10 * s},
		{"Saturday, 01-Jan-00 00:00:10 GMT", 10 * s},
		{"Sat Jan  1 00:00:10 2000", 10 * s},
		{"Fri, 31 Dec 1999 23:59:50 GMT", s},
		{"Friday, 31-Dec-99 23:59:50 GMT", s},      // 1999, not 2099
		{"Saturday, 01-Jan-49 00:00:00 GMT", stop}, // 2049
		{"Sun, 32 Jan 2000 00:00:10 GMT", s},
		{"5|20", 20 * s}, {"20|5", 20 * s}, {"nonsense|20", 20 * s}, {"20|nonsense", 20 * s}, {"5|3600", stop},
	} {
		runInMemory(t, row.value, http1[:1], func(t *testing.T, cfg ts.Config) {
			busy := ts.Status(503)
			for _, v := range strings.Split(row.value, "|") {
				busy = busy.Header("Retry-After", v)
			}
			s := set(t, cfg, exact, busy, ts.OK("hello"))
			got := s.send(http.MethodGet, nil)
			require.NoError(t, got.err)
			if row.wait == stop {
				assert.Equal(t, 503, got.status)
				assert.Equal(t, transport.ReasonThrottled, got.reason)
				assert.Zero(t, got.elapsed)
				return
			}
			assert.Equal(t, 200, got.status)
			assert.GreaterOrEqual(t, got.elapsed, row.wait)
			assert.LessOrEqual(t, got.elapsed, row.wait+time.Second)
		})
	}
}

// TestWaitsOfResponsesThatAreFinal: there, Retry-After is about something else.
func TestWaitsOfResponsesThatAreFinal(t *testing.T) {
	for _, code := range []int{200, 201, 202, 204, 301, 302, 304, 307, 400, 403, 404, 409, 417} {
		runInMemory(t, strconv.Itoa(code), http1[:1], func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, exact, ts.Status(code).Header("Retry-After", "1"))
			got := s.send(http.MethodPut, strings.NewReader("text"))
			assert.Equal(t, code, got.status)
			assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
			assert.Zero(t, got.elapsed)
		})
	}
}

// TestNoConnectionIsLeftBehind: after many failures, each with a body that is
// given up half-way, nothing is open that is not in use.
func TestNoConnectionIsLeftBehind(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, step := range map[string]ts.Step{
		"short":   ts.Status(503).Body("busy"),
		"long":    ts.Status(503).Body(long),
		"stalled": ts.Status(503).Body(long).CutAt(10, ts.Stall),
		"reset":   ts.Status(503).Body(long).CutAt(10, ts.Reset),
	} {
		runAt(t, name, append(http1[:1:1], http2...), func(t *testing.T, cfg ts.Config) {
			if name == "stalled" && cfg.Net == nil {
				return // takes real time
			}
			s := set(t, cfg, policy.Rule{MaxAttempts: 4}.Or(quick), step)
			for range soak.Size(5, 20) {
				_, _ = fetch(t, s.tr, t.Context(), s.URL+"/") // the last response's body is closed unread
			}
			assert.Eventually(t, func() bool {
				s.tr.CloseIdleConnections() // again: net/http may still end a stream, or a dial that nobody needs
				return s.Open() == 0
			}, waitFor, tick)
		})
	}
}

// TestCancelWhileTheBodyIsAwaited: the wait for an old attempt to let the body
// go is a wait like any other: its end is the context's error and cause.
func TestCancelWhileTheBodyIsAwaited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gone := errors.New("the user went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
		pr, pw := io.Pipe() // nobody writes: a Read blocks
		defer func() { _ = pw.Close() }()
		tr := mustNew(t, transport.Config{Rule: quick, Base: rt(func(req *http.Request) (*http.Response, error) {
			go func() { _, _ = readAndClose(req.Body) }()
			synctest.Wait()
			return nil, syscall.ECONNRESET
		})})
		_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", pr).WithContext(ctx))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, gone)
		_ = pr.Close()
	})
}

// TestOtherConnectionsAreLeftAlone: a host's failures cost no other host its
// connections.
func TestOtherConnectionsAreLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := ts.NewNet()
		sound := ts.Start(t, ts.Config{Net: n, Host: "sound.test"}, ts.OK("hello"))
		broken := set(t, ts.Config{Net: n, Host: "broken.test"}, quick, ts.Status(503), ts.ResetBeforeHeaders(), ts.BadStatusLine())
		for range 3 {
			require.NoError(t, do(broken.tr, newRequest(t, http.MethodGet, sound.URL+"/", nil)).err)
			assert.Error(t, broken.send(http.MethodGet, nil).err)
		}
		assert.Equal(t, 3, sound.Arrivals(), "requests that arrived")
		assert.Equal(t, 1, sound.Conns(), "connections")
	})
}

// TestGetBodyIsUsed: a body that can be made anew is, and neither kept nor read
// twice.
func TestGetBodyIsUsed(t *testing.T) {
	at(t, http1[:1], func(t *testing.T, cfg ts.Config) {
		s := set(t, cfg, policy.Rule{ReplayBuffer: -1}.Or(quick), ts.Status(503), ts.Status(503), ts.OK("done"))
		req := s.request(http.MethodPut, strings.NewReader("text"))
		made, own := 0, req.GetBody
		req.GetBody = func() (io.ReadCloser, error) {
			made++
			return own()
		}
		got := s.do(req)
		require.NoError(t, got.err)
		assert.Equal(t, "done", got.body)
		count(t, 2, made, "GetBody called", "once for each resend, and not before")
		s.lastBody("text")
	})
}

// TestBodiesThatAreMadeAreClosed: a retry that the caller's end comes before has
// none made.
func TestBodiesThatAreMadeAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel) // in the second wait
		made, closed := 1, 0
		body := func() io.ReadCloser { return badBody{strings.NewReader("text").Read, func() { closed++ }} }
		req := newRequest(t, http.MethodPut, "http://h.test/", nil).WithContext(ctx)
		req.Body = body()
		req.GetBody = func() (io.ReadCloser, error) {
			made++
			return body(), nil
		}
		_, err := mustNew(t, transport.Config{Base: script(faults.Status(503)), Rule: exact}).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		count(t, 2, made, "GetBody called")
		count(t, made, closed, "body closed")
	})
}

// TestBackoffKnowsItsOwnWaitsOnly: what a server asked for is not what the next
// back-off grows from.
func TestBackoffKnowsItsOwnWaitsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []time.Duration
		rule := policy.Rule{MaxAttempts: 4, Backoff: backoffFunc(func(n int, prev time.Duration) time.Duration {
			told = append(told, prev)
			return time.Duration(n+1) * time.Second
		})}
		tr := mustNew(t, transport.Config{Base: script(faults.Status(503).Header("Retry-After", "30")), Rule: rule})
		mustFetch(t, tr, t.Context(), "http://h.test/")
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, told[:3])
	})
}

// TestBuffersOfCommittedUploadsAreFree: once an upload is too long to be kept,
// nothing of it is, so that it takes nobody else's room. Two of these would
// fill what a Transport has for all of them.
func TestBuffersOfCommittedUploadsAreFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const limit = 32 << 20
		goOn := make(chan struct{})
		small := script(faults.Status(503), faults.Status(200))
		tr := mustNew(t, transport.Config{Rule: policy.Rule{ReplayBuffer: limit}.Or(quick), Base: rt(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/small" {
				return small.RoundTrip(req)
			}
			_, _ = io.CopyN(io.Discard, req.Body, limit+1)
			<-goOn
			_ = req.Body.Close()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		})})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				endless := reader(readFunc(func(p []byte) (int, error) { return len(p), nil }))
				_, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/large", endless))
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/small", reader(strings.NewReader("text"))))
		assert.Equal(t, 200, resp.StatusCode)
		close(goOn)
		wg.Wait()
	})
}

// TestMethods: what is sent again after a 503 when nobody says anything.
func TestMethods(t *testing.T) {
	for method, again := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true,
		"POST": false, "PATCH": false, "CONNECT": false, "get": false, "PROPFIND": true, "QUERY": true, "LOCK": false,
	} {
		tr := mustNew(t, transport.Config{Base: script(faults.Status(503), faults.Status(200)), Rule: quick})
		resp := mustRoundTrip(t, tr, newRequest(t, method, "http://h.test/", nil))
		assert.Equal(t, again, resp.StatusCode == 200, method)
	}
}

// TestPermanentFailures: responses and errors that another try would not change.
func TestPermanentFailures(t *testing.T) {
	for _, code := range []int{400, 401, 403, 404, 405, 410, 411, 412, 416, 422, 431, 451, 501, 505, 507, 508, 511} {
		inMemory(t, http1[:1], func(t *testing.T, cfg ts.Config) {
			s := set(t, cfg, quick, ts.Status(code))
			assert.Equal(t, code, s.send(http.MethodGet, nil).status)
			assert.Equal(t, 1, s.Arrivals(), "requests that arrived, %v", code)
		})
	}
	for _, url := range []string{"ftp://h.test/", "http:///path", "://", "http://"} {
		var seen recorder
		tr := mustNew(t, transport.Config{Rule: quick, Traces: []*transport.Trace{seen.trace()}})
		req := newRequest(t, http.MethodGet, "http://h.test/", nil)
		req.URL.Scheme, req.URL.Host, _ = strings.Cut(strings.TrimSuffix(url, "/"), "://")
		req.URL.Host, _, _ = strings.Cut(req.URL.Host, "/")
		_, err := tr.RoundTrip(req)
		assert.Error(t, err, url)
		assert.Equal(t, []transport.Reason{transport.ReasonFinal}, seen.reasons(), url)
	}
	var seen recorder
	tr := mustNew(t, transport.Config{Rule: quick, Traces: []*transport.Trace{seen.trace()}})
	req := newRequest(t, http.MethodGet, "http://h.test/", nil)
	req.Header["Bad name"] = []string{"x"}
	_, err := tr.RoundTrip(req)
	assert.Error(t, err)
	assert.Equal(t, []transport.Reason{transport.ReasonFinal}, seen.reasons())
}

// TestDefaultWaits: by default every client waits, and no two the same time.
func TestDefaultWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		waits := map[time.Duration]bool{}
		for range 20 {
			var seen recorder
			tr := mustNew(t, transport.Config{Base: script(faults.Status(503), faults.Status(200)), Traces: []*transport.Trace{seen.trace()}})
			mustFetch(t, tr, t.Context(), "http://h.test/")
			wait := seen.events()[0].Delay
			assert.GreaterOrEqual(t, wait, time.Second)
			assert.LessOrEqual(t, wait, 2*time.Second)
			waits[wait] = true
		}
		assert.Greater(t, len(waits), 15)
	})
}

// TestBodyClassifierAndTheCaller: the predicate sees the body, and so does the
// caller, from its first byte to its last.
func TestBodyClassifierAndTheCaller(t *testing.T) {
	page := "the queue capacity is exceeded: " + strings.Repeat("x", 200_000)
	at(t, append(http1, http2...), func(t *testing.T, cfg ts.Config) {
		rule := policy.Rule{MaxAttempts: 3, Classify: classify.OnBody(classify.Refused, "queue capacity")}.Or(quick)
		s := set(t, cfg, rule, ts.Status(400).Body(page))
		got := s.send(http.MethodPost, strings.NewReader("an order"))
		require.NoError(t, got.err)
		assert.Equal(t, 400, got.status)
		assert.Equal(t, 3, s.Arrivals(), "requests that arrived")
		assert.True(t, page == got.body, "%d of %d bytes", len(got.body), len(page))
	})
	at(t, http1[:1], func(t *testing.T, cfg ts.Config) { // seen, but of no interest
		rule := policy.Rule{Classify: classify.OnBody(classify.Refused, "no such words")}.Or(quick)
		s := set(t, cfg, rule, ts.Status(404).Body(page))
		got := s.send(http.MethodPost, strings.NewReader("an order"))
		require.NoError(t, got.err)
		assert.Equal(t, 1, s.Arrivals(), "requests that arrived")
		assert.True(t, page == got.body, "%d of %d bytes", len(got.body), len(page))
	})
}

// TestDoAroundATransport: a loop around the client does not start again what
// the transport gave up on.
func TestDoAroundATransport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		base := script(faults.Fail(context.DeadlineExceeded))
		client := &http.Client{Transport: mustNew(t, transport.Config{Rule: quick, Base: base})}
		err := retry.Do(t.Context(), policy.Rule{Backoff: backoff.Constant(0)}, nil, func(ctx context.Context) error {
			resp, err := client.Do(newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
			if err != nil {
				return fmt.Errorf("reading the things: %w", err)
			}
			return resp.Body.Close()
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		base.sent(t, 6)
	})
}

// TestQuotaUsedUp: a 429 that no waiting cures.
func TestQuotaUsedUp(t *testing.T) {
	at(t, http1[:1], func(t *testing.T, cfg ts.Config) {
		rule := policy.Rule{Classify: classify.First(classify.Signals, classify.Refusals)}.Or(quick)
		const page = `{"error": {"code": "insufficient_quota"}}`
		s := set(t, cfg, rule, ts.Status(429), ts.Status(429).Body(page))
		got := s.send(http.MethodPost, strings.NewReader("an order"))
		assert.Equal(t, 429, got.status)
		assert.Equal(t, page, got.body)
		assert.Equal(t, 2, s.Arrivals(), "requests that arrived")
	})
}
