// What a reader gets of a body that is cut, as over net/http alone, and who hears of it.

package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// TestExplainTellsOfABodyThatWasCut: the story says that there was a response, and why nothing
// continues its body. It does so without a Logger and a Trace, too.
func TestExplainTellsOfABodyThatWasCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		step := faults.Status(200).Body("twelve bytes").CutAt(5)
		resp, err := mustNew(t, transport.Config{Base: script(step)}).RoundTrip(postRequest(t, "http://h.test/?key=SECRET"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		const why = "for a body only a GET or QUERY is sent again, or a request with WithIdempotent"
		assert.Equal(t, "POST http://h.test/?key=xxxxx\n  status 200 at the first attempt, and its body failed (unexpected EOF): "+why, transport.Explain(resp, err))
		for _, own := range []struct {
			method, key, want string
			rule              policy.Rule
			ctx               context.Context
			body              io.Reader
		}{
			{method: http.MethodPut, want: why},
			{method: http.MethodPost, key: "1", want: why},
			{method: http.MethodPost, rule: policy.Rule{Idempotent: func(*http.Request) bool { return true }}, want: why},
			{method: http.MethodGet, body: strings.NewReader("x"), want: "the request has a body, and is not sent again for that of the response"},
			{method: http.MethodPost, ctx: transport.WithIdempotent(t.Context()), body: iotest.OneByteReader(strings.NewReader("x")), want: "the request has a body, and is not sent again for that of the response"},
		} {
			req := newRequest(t, own.method, "http://h.test/", own.body)
			if own.key != "" {
				req.Header.Set("Idempotency-Key", own.key)
			}
			if own.ctx != nil {
				req = req.WithContext(own.ctx)
			}
			resp := mustRoundTrip(t, mustNew(t, transport.Config{Base: script(step), Rule: own.rule}), req)
			_, err := io.ReadAll(resp.Body)
			assert.Contains(t, transport.Explain(resp, err), "its body failed (unexpected EOF): "+own.want, "%+v", own)
		}
		resp, err = mustNew(t, transport.Config{Base: script(faults.Status(503), step), Rule: exact}).RoundTrip(postRequest(t, "http://h.test/").WithContext(transport.WithIdempotent(t.Context())))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		story := transport.Explain(resp, err)
		assert.Contains(t, story, "attempt 1, at 0s: 503")
		assert.Contains(t, story, "\n  status 200, and its body failed (")
		resp, err = mustNew(t, transport.Config{Base: script(step)}).RoundTrip(getRequest(t, "http://h.test/"))
		require.NoError(t, err)
		story = transport.Explain(resp, errors.New("limit of the base"))
		assert.Equal(t, "GET http://h.test/\n  status 200 at the first attempt, and its body failed (limit of the base)", story)
		large := faults.Status(200).Body(strings.Repeat("x", 100)).CutAt(50)
		for _, traces := range [][]*transport.Trace{nil, {{BodyEnd: func(context.Context, transport.BodyEnd) {}}}} {
			resp, err = mustNew(t, transport.Config{Traces: traces, Base: script(large), Rule: policy.Rule{MaxRefetch: 40}}).RoundTrip(getRequest(t, "http://h.test/"))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Equal(t, io.ErrUnexpectedEOF, err)
			assert.Contains(t, transport.Explain(resp, err), "too many bytes to fetch them again (MaxRefetch)")
			resp, err = mustNew(t, transport.Config{Traces: traces, Base: script(large, faults.Status(200).Body(strings.Repeat("x", 100)))}).RoundTrip(getRequest(t, "http://h.test/"))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			assert.Equal(t, "GET http://h.test/\n  status 200 at the first attempt, its body was cut and went on", transport.Explain(resp, err))
		}
	})
}

// cutWith is a response whose body ends with an error.
func cutWith(err error, text string, header ...string) answer {
	return func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, testkit.CutAt(text, err), header...), nil
	}
}

// As long as no byte came from a second response, the reader gets the very error that the base
// gave, whatever prevented the continuation.
func TestErrorOfACutIsTheBasesOwn(t *testing.T) {
	reset := fmt.Errorf("read: %w", syscall.ECONNRESET)
	again := func(err error) answer { // a second response that brings what the reader has, and no more
		return func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("Range") != "" {
				return newResponse(req, 206, testkit.CutAt("", err), `ETag: "v1"`, "Content-Range: bytes 2-9/10"), nil
			}
			return newResponse(req, 200, testkit.CutAt("ab", err)), nil
		}
	}
	for name, row := range map[string]struct {
		rule policy.Rule
		then []answer
	}{
		"503":                  {then: []answer{status(503)}},
		"503 with a wait":      {then: []answer{status(503, "Retry-After: 3600")}},
		"404":                  {then: []answer{status(404)}},
		"another version":      {then: []answer{status(200, `ETag: "v2"`)}},
		"a reset":              {then: []answer{faults.Fail(syscall.ECONNRESET)}},
		"no host":              {then: []answer{faults.Fail(&net.DNSError{IsNotFound: true})}},
		"no byte":              {then: []answer{again(errors.New("another"))}},
		"no byte, often":       {then: []answer{again(io.ErrUnexpectedEOF)}},
		"no reconnect":         {rule: policy.Rule{Resume: policy.Off, MaxRefetch: policy.Off}},
		"no retry":             {rule: policy.Rule{MaxAttempts: 1}},
		"no budget":            {rule: policy.Rule{RetryBudget: policy.RetryBudget{Ratio: policy.Off}}, then: []answer{status(503)}},
		"no time":              {rule: policy.Rule{MaxElapsedTime: time.Millisecond}},
		"a late turn":          {rule: policy.Rule{RateLimit: policy.RateLimit{PerSecond: 0.01}}},
		"AttemptTimeout":       {rule: policy.Rule{AttemptTimeout: time.Second}, then: []answer{faults.Hang()}},
		"a pair of Transports": {then: []answer{status(503)}},
	} {
		for _, header := range [][]string{nil, {`ETag: "v1"`}} {
			for _, cut := range []error{io.ErrUnexpectedEOF, reset} {
				inBubble(t, fmt.Sprint(name, header, cut), func(t *testing.T) {
					ctx := expires(t, time.Hour)
					base := script(append([]answer{cutWith(cut, "ab", header...)}, row.then...)...)
					c := transport.Config{Rule: row.rule.Or(policy.Rule{Backoff: backoff.Constant(time.Second)})}
					tr := over(t, c, base)
					if name == "a pair of Transports" {
						tr = over(t, c, tr)
					}
					resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
					text, err := io.ReadAll(resp.Body)
					assert.Equal(t, "ab", string(text))
					assert.True(t, err == cut, "%T: %[1]v", err)
					assert.NoError(t, resp.Body.Close())
				})
			}
		}
	}
}

// stuck is a body whose Read and Close wait for a second.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { time.Sleep(time.Second); return 0, io.ErrUnexpectedEOF }
func (stuck) Close() error             { time.Sleep(time.Second); return nil }

// If the caller's context ended meanwhile, the error of the context and its cause are seen, and
// the error is a net.Error. This is so at any moment: before the reconnect, in its wait, in its
// attempt, and while its response is read.
func TestErrorOfACutTellsOfTheContext(t *testing.T) {
	cause := errors.New("the job is over")
	for name, row := range map[string]struct {
		then answer
		when time.Duration // after the cut
	}{
		"before":         {status(200), 0},
		"in the wait":    {status(200), 500 * time.Millisecond},
		"in the attempt": {faults.Hang(), 1500 * time.Millisecond},
		"in the body": {func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 200, stuck{}), nil
		}, 1500 * time.Millisecond},
	} {
		for _, passes := range []bool{false, true} {
			if passes && name == "in the wait" {
				continue // no wait begins that cannot end in an attempt
			}
			inBubble(t, fmt.Sprintf("%s/deadline %v", name, passes), func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				want := cause
				if passes {
					late, stop := context.WithTimeout(t.Context(), row.when+time.Millisecond)
					defer stop()
					ctx, want = late, context.DeadlineExceeded
				}
				end := func() {
					time.Sleep(row.when + 2*time.Millisecond)
					cancel(cause)
				}
				first := func(req *http.Request) (*http.Response, error) {
					both := iotest.DataErrReader(io.MultiReader(strings.NewReader(strings.Repeat("ab", 256)), iotest.ErrReader(io.ErrUnexpectedEOF)))
					return newResponse(req, 200, io.NopCloser(both)), nil
				}
				tr := over(t, transport.Config{Rule: policy.Rule{Backoff: backoff.Constant(time.Second)}}, script(first, row.then))
				resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
				n, err := resp.Body.Read(make([]byte, 600))
				require.NoError(t, err)
				require.Equal(t, 512, n)
				if row.when == 0 {
					end()
				} else {
					go end()
				}
				_, err = resp.Body.Read(make([]byte, 10))
				assert.ErrorIs(t, err, ctx.Err())
				assert.ErrorIs(t, err, want)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "the error of the cut")
				assert.Equal(t, map[bool]transport.Reason{false: transport.ReasonCanceled, true: transport.ReasonDeadline}[passes], transport.ReasonOf(nil, err))
				var n2 net.Error
				if assert.ErrorAs(t, err, &n2) {
					assert.Equal(t, passes, n2.Timeout())
					//lint:ignore SA1019 callers of net.Error still ask
					assert.Equal(t, passes, n2.Temporary())
				}
				assert.NoError(t, resp.Body.Close())
				time.Sleep(time.Minute)
			})
		}
	}
}

// A Transport around another sees at the body that the other gave up, and does not start again.
func TestPairOfTransportsAtACut(t *testing.T) {
	for _, header := range []string{"X: y", `ETag: "v1"`} {
		inBubble(t, header, func(t *testing.T) {
			text := strings.Repeat("ab", 256)
			base := script(cutWith(io.ErrUnexpectedEOF, text, header))
			c := transport.Config{Rule: policy.Rule{MaxAttempts: 2}.Or(quick)}
			got := do(over(t, c, over(t, c, base)), newRequest(t, http.MethodGet, "http://h.test/", nil))
			assert.Equal(t, text, got.body)
			assert.True(t, got.err == io.ErrUnexpectedEOF, "%T: %[1]v", got.err)
			base.sent(t, 2)
		})
	}
}

// A delivery is what a reader gets of a body.
type delivery struct {
	parts []string
	times []time.Duration // since the request, of each part
	end   string          // the error
}

// asAlone reads the response to a GET over net/http alone and over Transports, each with a server of
// its own that plays the steps. It asserts that they deliver the same, and that at most so many
// requests arrive over a Transport.
func asAlone(t *testing.T, most int, read func(t *testing.T, body io.Reader, add func(part string)) error, steps ...ts.Step) {
	over := func(rule policy.Rule) func(http.RoundTripper) http.RoundTripper {
		return func(base http.RoundTripper) http.RoundTripper {
			return mustNew(t, transport.Config{Base: base, Rule: rule})
		}
	}
	inMemory(t, anyProtocol, func(t *testing.T, cfg ts.Config) {
		play := func(wrap func(http.RoundTripper) http.RoundTripper) (d delivery, arrived int) {
			s := ts.Start(t, cfg, steps...)
			defer s.Close()
			base := s.Transport()
			defer base.CloseIdleConnections()
			start := time.Now()
			resp := mustRoundTrip(t, wrap(base), newRequest(t, http.MethodGet, s.URL+"/", nil))
			err := read(t, resp.Body, func(part string) {
				d.parts, d.times = append(d.parts, part), append(d.times, time.Since(start))
			})
			d.end = fmt.Sprint(err)
			require.NoError(t, resp.Body.Close())
			return d, s.Arrivals()
		}
		want, _ := play(func(base http.RoundTripper) http.RoundTripper { return base })
		for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
			"default": over(policy.Rule{}),
			"API":     over(profile.API()),
			"Service": over(profile.Service()),
			"GitHub":  over(profile.GitHub()),
			"a pair":  func(base http.RoundTripper) http.RoundTripper { return over(profile.API())(over(profile.API())(base)) },
		} {
			got, arrived := play(wrap)
			assert.Equal(t, want, got, name)
			assert.LessOrEqual(t, arrived, most, name)
		}
	})
}

// The last chunk of a JSON response is missing. A decoder has all of the text, and never reads that
// far.
func TestJSONWithoutItsLastChunk(t *testing.T) {
	whole := jsonStep(`{"id":1}`, false, false)
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		var v json.RawMessage
		err := json.NewDecoder(body).Decode(&v)
		add(string(v))
		return err
	}, whole.CutAt(8, ts.Close), whole)
}

// The daemon of Docker tells events as JSON, each to those who listen then. It restarts within a
// second. Its reader has to learn that, with every event until then, so that it asks again for
// those after it.
func TestEventsOfDockerAreCut(t *testing.T) {
	events := func(first int) (s string) {
		for id := range 5 {
			s += fmt.Sprintf(`{"Action":"start","id":%d}`+"\n", first+id)
		}
		return s
	}
	size := len(events(1)) / 5
	step := func(first int) ts.Step {
		return ts.OK(events(first)).Header("Content-Type", "application/json").Chunked().Drip(size, 30*time.Millisecond)
	}
	asAlone(t, 2, func(t *testing.T, body io.Reader, add func(string)) error {
		for d := json.NewDecoder(body); ; {
			var event json.RawMessage
			if err := d.Decode(&event); err != nil {
				assert.NotEqual(t, io.EOF, err, "the events that follow are lost")
				return err
			}
			add(string(event))
		}
	}, step(1).CutAt(int64(5*size), ts.Close), step(6))
}

// Each line of a log comes when it was written.
func TestLinesThatComeSlowly(t *testing.T) {
	const line = "a line of a log\n"
	asAlone(t, 1, func(_ *testing.T, body io.Reader, add func(string)) error {
		buf := make([]byte, len(line))
		for {
			if _, err := io.ReadFull(body, buf); err != nil {
				return err
			}
			add(string(buf))
		}
	}, ts.OK(strings.Repeat(line, 20)).Header("Content-Type", "text/plain").Chunked().Drip(len(line), 90*time.Millisecond))
}

// A base transport may wrap all bodies, also that of a HEAD, whose header is that of a GET.
func TestHeadThroughABaseThatWrapsBodies(t *testing.T) {
	const text = "right!"
	for name, rule := range map[string]policy.Rule{"default": {}, "API": profile.API(), "AWS": profile.AWS()} {
		for _, length := range []int64{int64(len(text)), -1} {
			bubble(t, func(t *testing.T) {
				req := newRequest(t, http.MethodHead, "http://h.test/", nil)
				if length < 0 {
					req = req.WithContext(transport.WithIdempotent(req.Context()))
				}
				base := script(func(req *http.Request) (*http.Response, error) {
					resp := newResponse(req, 200, reader(strings.NewReader("")),
						"Content-Digest: "+field256(text), "Repr-Digest: "+field256(text), "X-Amz-Checksum-Crc32c: AAAAAQ==")
					resp.ContentLength = length
					return resp, nil
				})
				got := do(over(t, transport.Config{Rule: rule}, base), req)
				require.NoError(t, got.err, name)
				assert.Equal(t, 200, got.status)
				assert.Empty(t, got.body)
				base.sent(t, 1)
			})
		}
	}
}
