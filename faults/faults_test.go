package faults_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// upload is a request body that counts its Close calls.
type upload struct {
	io.Reader
	closes atomic.Int32
}

func (u *upload) Close() error {
	u.closes.Add(1)
	return nil
}

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func request(t *testing.T, ctx context.Context, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://user:secret@h.test/path?key=secret", body)
	require.NoError(t, err)
	return req
}

func send(t *testing.T, rt http.RoundTripper, method string) (*http.Response, error) {
	t.Helper()
	return rt.RoundTrip(request(t, t.Context(), method, nil))
}

// every has a step of each kind, in every manner of ending.
var every = map[string]faults.Step{
	"pass":               faults.Pass(),
	"status":             faults.Status(503),
	"connection refused": faults.ConnRefused(),
	"dial timeout":       faults.DialTimeout(),
	"connection reset":   faults.ConnReset(),
	"response timeout":   faults.ResponseTimeout(),
	"fail":               faults.Fail(errors.New("own")),
	"delay":              faults.Pass().Delay(time.Second),
}

func TestFailuresAreLikeRealFailures(t *testing.T) {
	for _, tt := range []struct {
		name    string
		step    faults.Step
		kind    classify.ErrorType
		verdict classify.Class
		is      error
		timeout bool
	}{
		{"connection refused", faults.ConnRefused(), classify.ErrorDial, classify.Refused, syscall.ECONNREFUSED, false},
		{"dial timeout", faults.DialTimeout(), classify.ErrorDial, classify.Refused, nil, true},
		{"connection reset", faults.ConnReset(), classify.ErrorReset, classify.Ambiguous, syscall.ECONNRESET, false},
		{"response timeout", faults.ResponseTimeout(), classify.ErrorTimeout, classify.Ambiguous, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := send(t, faults.New(nil, faults.Script(tt.step)), http.MethodGet)
			require.Error(t, err)
			require.Nil(t, resp)
			assert.Equal(t, tt.kind, classify.ErrorTypeOf(err))
			assert.Equal(t, tt.verdict, classify.Default(classify.Outcome{Err: err}))
			assert.Equal(t, tt.name, tt.step.String())
			if tt.is != nil {
				assert.ErrorIs(t, err, tt.is)
			}
			var n net.Error
			assert.Equal(t, tt.timeout, errors.As(err, &n) && n.Timeout())
		})
	}
}

// A real server with the same fault gives an error with the same text, except for
// the addresses.
func TestFailuresHaveTheTextsOfRealFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  testserver.Config
		real testserver.Step
		step faults.Step
	}{
		"refuse": {testserver.Config{Refusing: true}, testserver.OK(""), faults.ConnRefused()},
		"reset":  {testserver.Config{}, testserver.ResetBeforeHeaders(), faults.ConnReset()},
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.Start(t, tt.cfg, tt.real)
			req := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil))(t)
			_, real := s.Transport().RoundTrip(req)
			require.Error(t, real)
			_, played := send(t, faults.New(nil, faults.Script(tt.step)), http.MethodPost)
			require.Error(t, played)
			assert.Equal(t, classify.ErrorTypeOf(real), classify.ErrorTypeOf(played))
			tail := func(err error) string { return err.Error()[strings.LastIndex(err.Error(), ": ")+1:] }
			assert.Equal(t, tail(real), tail(played))
			assert.IsType(t, innermost(real), innermost(played))
		})
	}
}

func innermost(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

func TestEveryStepClosesTheRequestBody(t *testing.T) {
	bases := map[string]http.RoundTripper{
		"no base": nil,
		"handler": faults.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
	}
	for baseName, base := range bases {
		for name, step := range every {
			inBubble(t, baseName+" "+name, func(t *testing.T) {
				b := &upload{Reader: strings.NewReader("upload")}
				resp, err := faults.New(base, faults.Script(step)).RoundTrip(request(t, t.Context(), http.MethodPost, b))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				synctest.Wait()
				assert.EqualValues(t, 1, b.closes.Load(), "times closed")
			})
		}
	}
}

// A caller who leaves ends every step, and the request body is closed.
func TestContextEndsEveryStep(t *testing.T) {
	cause := errors.New("the caller left")
	blocks := over(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	reads := over(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	late := over(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		_, _ = io.WriteString(w, "late")
	})
	for _, tt := range []struct {
		name string
		base http.RoundTripper
		step faults.Step
		body bool // a body whose Read blocks until it is closed
	}{
		{"hang", nil, faults.Hang(), false},
		{"delay", nil, faults.Status(503).Delay(time.Hour), false},
		{"delay of a failure", nil, faults.ConnRefused().Delay(time.Hour), false},
		{"delay of a pass", blocks, faults.Pass().Delay(time.Hour), false},
		{"handler", blocks, faults.Pass(), false},
		{"handler that writes too late", late, faults.Pass(), false},
		{"upload to a handler that reads it", reads, faults.Pass(), true},
		{"upload to a late pass", blocks, faults.Pass().Delay(time.Hour), true},
		{"upload", nil, faults.Status(503), true},
		{"upload to a reset", nil, faults.ConnReset(), true},
		{"upload to a handler", blocks, faults.Pass(), true},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			var body io.Reader
			r, w := io.Pipe()
			if tt.body {
				body = r
			}
			_, err := faults.New(tt.base, faults.Script(tt.step)).RoundTrip(request(t, ctx, http.MethodPost, body))
			assert.Equal(t, cause, err)
			if tt.body {
				synctest.Wait()
				_, err := w.Write([]byte("more"))
				assert.ErrorIs(t, err, io.ErrClosedPipe, "the body is closed")
			}
		})
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := faults.Status(503).Header("X-A", "1").Header("X-B", "2").Header("X-A", "3").RetryAfter(1500 * time.Millisecond).Body("busy")
		resp := testkit.Must(send(t, faults.New(nil, faults.Script(step)), http.MethodGet))(t)
		text := testkit.Must(io.ReadAll(resp.Body))(t)
		assert.Equal(t, "busy", string(text))
		assert.Equal(t, "503 Service Unavailable", resp.Status)
		assert.Equal(t, []string{"1", "3"}, resp.Header.Values("X-A"))
		assert.Equal(t, "2", resp.Header.Get("Retry-After"), "rounded up")
		longest, err := send(t, faults.New(nil, faults.Script(faults.Status(503).RetryAfter(math.MaxInt64))), http.MethodGet)
		require.NoError(t, err)
		assert.Equal(t, "9223372037", longest.Header.Get("Retry-After"))
		assert.Equal(t, time.Now().UTC().Format(http.TimeFormat), resp.Header.Get("Date"))
		assert.EqualValues(t, 4, resp.ContentLength)

		resp = testkit.Must(send(t, faults.New(nil, faults.Script(step)), http.MethodHead))(t)
		assert.Equal(t, http.NoBody, resp.Body)
		assert.EqualValues(t, 4, resp.ContentLength)
	})
}

// A response has the length of its body, unless the step names another. One without a body has none.
func TestLengths(t *testing.T) {
	for named, step := range map[string]faults.Step{
		"4": faults.Status(200).Body("busy"),
		"9": faults.Status(200).Body("busy").Header("Content-Length", "9"),
		"":  faults.Status(204).Body("busy"),
	} {
		resp := testkit.Must(send(t, faults.New(nil, faults.Script(step)), http.MethodGet))(t)
		assert.Equal(t, named, resp.Header.Get("Content-Length"))
		assert.Equal(t, named != "", resp.ContentLength == 4, named)
	}
}

// A header that is set on the way changes nothing of the base's own, and the base's body is closed.
func TestPassChangesTheResponse(t *testing.T) {
	for _, own := range []http.Header{nil, {"X-A": {"own"}, "X-B": {"own"}}} {
		body := &upload{Reader: strings.NewReader("text")}
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: own, Body: body}, nil
		})
		ft := faults.New(base, faults.Script(faults.Pass().Header("X-A", "set").CutAt(2)))
		resp := testkit.Must(send(t, ft, http.MethodGet))(t)
		assert.Equal(t, []string{"set", own.Get("X-B")}, []string{resp.Header.Get("X-A"), resp.Header.Get("X-B")})
		assert.Len(t, own, 2*min(len(own), 1))
		assert.NotEqual(t, "set", own.Get("X-A"))
		assert.NoError(t, resp.Body.Close())
		assert.Positive(t, body.closes.Load(), "times closed")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestTexts(t *testing.T) {
	for want, step := range map[string]faults.Step{
		"hang, delay 1s":                          faults.Hang().Delay(time.Second),
		"pass, cut at 100":                        faults.Pass().CutAt(100),
		"status 503, stall at 5, drip 3 every 1s": faults.Status(503).StallAt(5).Drip(3, time.Second),
	} {
		assert.Equal(t, want, step.String())
	}
}

// A plan keeps none of the caller's slices.
func TestPlansCopy(t *testing.T) {
	steps, chances := []faults.Step{faults.Hang()}, []faults.Chance{{Rate: 1, Step: faults.Hang()}}
	script, random := faults.Script(steps...), faults.Random(1, chances...)
	steps[0], chances[0].Step = faults.Pass(), faults.Pass()
	assert.Equal(t, []string{"hang", "hang"}, []string{script(nil).String(), random(nil).String()})
}

func TestResponsesShareNoHeader(t *testing.T) {
	ft := faults.New(nil, faults.Script(faults.Status(200).Header("X-A", "1")))
	first := testkit.Must(send(t, ft, http.MethodGet))(t)
	first.Header.Set("X-A", "changed")
	second := testkit.Must(send(t, ft, http.MethodGet))(t)
	assert.Equal(t, "1", second.Header.Get("X-A"))
}

func TestBodies(t *testing.T) {
	const text = "0123456789"
	served := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	for _, tt := range []struct {
		name string
		base http.RoundTripper
		step faults.Step
		want string
		err  error
		took time.Duration
	}{
		{"whole", nil, faults.Status(200).Body(text), text, nil, 0},
		{"cut", nil, faults.Status(200).Body(text).CutAt(4), text[:4], io.ErrUnexpectedEOF, 0},
		{"cut at the start", nil, faults.Status(200).Body(text).CutAt(-1), "", io.ErrUnexpectedEOF, 0},
		{"cut at the end", nil, faults.Status(200).Body(text).CutAt(10), text, nil, 0},
		{"cut beyond the end", nil, faults.Status(200).Body(text).CutAt(11), text, nil, 0},
		{"stall", nil, faults.Status(200).Body(text).StallAt(4), text[:4], context.DeadlineExceeded, time.Minute},
		{"drip", nil, faults.Status(200).Body(text).Drip(4, time.Second), text, nil, 3 * time.Second},
		{"drip and cut", nil, faults.Status(200).Body(text).Drip(3, time.Second).CutAt(4), text[:4], io.ErrUnexpectedEOF, 2 * time.Second},
		{"slow drip", nil, faults.Status(200).Body(text).Drip(0, 11*time.Second), text[:5], context.DeadlineExceeded, time.Minute},
		{"served", served, faults.Pass(), text, nil, 0},
		{"served and cut", served, faults.Pass().CutAt(4), text[:4], io.ErrUnexpectedEOF, 0},
		{"chunks cut before their end", served, faults.Pass().CutAt(10), text, io.ErrUnexpectedEOF, 0},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			resp, err := faults.New(tt.base, faults.Script(tt.step)).RoundTrip(request(t, ctx, http.MethodGet, nil))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, tt.want, string(got))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.took, time.Since(start))
			_, again := resp.Body.Read(make([]byte, 1))
			if tt.err != nil {
				assert.Equal(t, err, again, "the end stays the same")
			}
			assert.NoError(t, resp.Body.Close())
		})
	}
}

func TestCloseEndsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, err := send(t, faults.New(nil, faults.Script(faults.Status(200).Body("text").StallAt(0))), http.MethodGet)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		_, err = resp.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})
}

func TestScriptRepeatsItsLastStep(t *testing.T) {
	ft := faults.New(nil, faults.Script(faults.ConnReset(), faults.Pass(), faults.Status(404)))
	_, err := send(t, ft, http.MethodGet)
	require.Error(t, err)
	for _, want := range []int{200, 404, 404} {
		resp := testkit.Must(send(t, ft, http.MethodPost))(t)
		assert.Equal(t, want, resp.StatusCode)
	}
	records := ft.Records()
	require.Len(t, records, 4)
	assert.Equal(t, faults.ConnReset(), records[0].Step)
	assert.Equal(t, "POST", records[3].Method)
	assert.Equal(t, "http://h.test/path", records[3].URL)
}

func TestRecordsAreBounded(t *testing.T) {
	ft := faults.New(nil, nil)
	for range 12_345 {
		testkit.Must(send(t, ft, http.MethodGet))(t)
	}
	assert.InDelta(t, 9_500, len(ft.Records()), 500)
	assert.Equal(t, ft.Records()[0], ft.Records()[0])
}

func TestRandom(t *testing.T) {
	run := func(seed uint64) (steps []string) {
		plan := faults.Random(seed, faults.Chance{Rate: 0.1, Step: faults.ConnReset()}, faults.Chance{Rate: 0.2, Step: faults.Status(503)})
		for range 2000 {
			steps = append(steps, plan(nil).String())
		}
		return steps
	}
	count := map[string]int{}
	for _, s := range run(1) {
		count[s]++
	}
	assert.InDelta(t, 200, count["connection reset"], 60)
	assert.InDelta(t, 400, count["status 503"], 80)
	assert.Equal(t, run(1), run(1))
	assert.NotEqual(t, run(1), run(2))
	all := faults.Random(1, faults.Chance{Rate: 1, Step: faults.ConnReset()})
	for range 100 {
		assert.Equal(t, "connection reset", all(nil).String())
	}
}

func TestRandomRefusesWrongRates(t *testing.T) {
	assert.Panics(t, func() { faults.Random(1, faults.Chance{Rate: -0.1}) })
	assert.Panics(t, func() { faults.Random(1, faults.Chance{Rate: 0.6}, faults.Chance{Rate: 0.6}) })
	assert.NotPanics(t, func() {
		var tenths []faults.Chance
		for range 10 {
			tenths = append(tenths, faults.Chance{Rate: 0.1})
		}
		faults.Random(1, tenths...)
	})
}

// The waits of a rule, measured in virtual time.
func TestWaitsOfARule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := faults.New(nil, faults.Script(faults.Status(503).RetryAfter(20*time.Second), faults.ConnRefused(), faults.ResponseTimeout().Delay(5*time.Second), faults.Pass()))
		rt := transport.MustNew(transport.Config{Base: base, Rule: policy.Rule{Backoff: backoff.Exponential{Jitter: backoff.JitterNone}}})
		start := time.Now()
		resp := testkit.Must(send(t, rt, http.MethodGet))(t)
		assert.Equal(t, 200, resp.StatusCode)
		var at []time.Duration
		for _, r := range base.Records() {
			at = append(at, r.Time.Sub(start))
		}
		require.Len(t, at, 4)
		assert.GreaterOrEqual(t, at[1], 20*time.Second)
		assert.LessOrEqual(t, at[1], 21*time.Second)
		assert.Equal(t, 2*time.Second, at[2]-at[1])
		assert.GreaterOrEqual(t, at[3]-at[2], 9*time.Second, "5 s for the timeout and 4 s of back-off")
		assert.LessOrEqual(t, at[3]-at[2], 13*time.Second, "a random time after silence")
	})
}

// A body that is cut and one that stands still are resumed by a Transport.
func TestCutBodiesAreResumed(t *testing.T) {
	text := strings.Repeat("0123456789", 50_000)
	serve := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	}))
	for name, step := range map[string]faults.Step{
		"cut": faults.Pass().CutAt(100_000), "stall": faults.Pass().StallAt(100_000),
	} {
		inBubble(t, name, func(t *testing.T) {
			base := faults.New(serve, faults.Script(step, step, faults.Pass()))
			rt := transport.MustNew(transport.Config{Base: base, Rule: policy.Rule{StallTimeout: 5 * time.Second}})
			resp := testkit.Must(send(t, rt, http.MethodGet))(t)
			got := testkit.Must(io.ReadAll(resp.Body))(t)
			assert.Equal(t, text, string(got))
			assert.NoError(t, resp.Body.Close())
			assert.Len(t, base.Records(), 3, "requests that arrived")
		})
	}
}

// The connections of a host die without a word, and new ones work. Base stands for the old
// connections, and each Transport that Config.NewPool returns for new ones. A single slow request
// proves no death, so two are slow, and no other.
func TestDeadConnectionsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, fresh := faults.New(nil, faults.Script(faults.Pass(), faults.Hang())), faults.New(nil, faults.Script(faults.Pass()))
		rt := transport.MustNew(transport.Config{
			Base:    base,
			NewPool: func(string) http.RoundTripper { return fresh },
			Rule:    policy.Rule{AttemptTimeout: time.Second, Backoff: backoff.Constant(0)},
		})
		for i := range 10 {
			start := time.Now()
			resp := testkit.Must(send(t, rt, http.MethodGet))(t)
			assert.Equal(t, 200, resp.StatusCode)
			if i == 1 || i == 2 {
				assert.Equal(t, time.Second, time.Since(start))
			} else {
				assert.Zero(t, time.Since(start))
			}
		}
		assert.Len(t, base.Records(), 3, "requests that arrived")
		assert.Len(t, fresh.Records(), 9, "requests that arrived")
		rt.CloseIdleConnections()
	})
}
