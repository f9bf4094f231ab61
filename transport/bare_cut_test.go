// The error that ends a body which was cut, as its reader sees it.

package transport_test

import (
	"context"
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
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

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
		"no reconnect":         {rule: policy.Rule{Resume: policy.Resume{Max: policy.Off, Again: policy.Off}}},
		"no retry":             {rule: policy.Rule{Attempts: 1}},
		"no budget":            {rule: policy.Rule{Budget: policy.Budget{Ratio: policy.Off}}, then: []answer{status(503)}},
		"no time":              {rule: policy.Rule{MaxElapsed: time.Millisecond}},
		"a late turn":          {rule: policy.Rule{Rate: policy.Rate{PerSecond: 0.01}}},
		"AttemptTimeout":       {rule: policy.Rule{AttemptTimeout: time.Second}, then: []answer{faults.Hang()}},
		"a pair of Transports": {then: []answer{status(503)}},
	} {
		for _, header := range [][]string{nil, {`ETag: "v1"`}} {
			for _, cut := range []error{io.ErrUnexpectedEOF, reset} {
				inBubble(t, fmt.Sprint(name, header, cut), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					base := script(append([]answer{cutWith(cut, "ab", header...)}, row.then...)...)
					c := transport.Config{Rule: row.rule.Or(policy.Rule{Backoff: backoff.Constant(time.Second)})}
					tr := over(t, c, base)
					if name == "a pair of Transports" {
						tr = over(t, c, tr)
					}
					resp, err := tr.RoundTrip(newRequest(t, http.MethodGet, "http://h.test/", nil).WithContext(ctx))
					require.NoError(t, err)
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
			c := transport.Config{Rule: policy.Rule{Attempts: 2}.Or(quick)}
			got := do(over(t, c, over(t, c, base)), newRequest(t, http.MethodGet, "http://h.test/", nil))
			assert.Equal(t, text, got.body)
			assert.True(t, got.err == io.ErrUnexpectedEOF, "%T: %[1]v", got.err)
			assert.Equal(t, 2, base.attempts())
		})
	}
}
