package transport_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A hungBody is a body whose Read waits for the server, and whose Close waits
// for that Read.
type hungBody struct {
	server chan struct{} // closed when the server goes on
	mu     sync.Mutex    // held during a Read and a Close
}

func (b *hungBody) Read([]byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.server
	return 0, io.EOF
}

func (b *hungBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.server
	return nil
}

// Given a 503 whose body can be neither read nor closed, when the request is
// sent again, then the retry is late by the time of the drain and no more.
func TestRetryAfterABodyThatCannotBeClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &hungBody{server: make(chan struct{})}
		start := time.Now()
		resp, err := get(t, over(t, transport.Config{Rule: quick}, script(func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 503, b), nil
		}, status(200))), t.Context())
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, transport.DrainTime, time.Since(start))
		close(b.server)
	})
}

// badBody misbehaves in Read and Close.
type badBody struct {
	read  func([]byte) (int, error)
	close func()
}

func (b badBody) Read(p []byte) (int, error) { return b.read(p) }
func (b badBody) Close() error               { b.close(); return nil }

// Given a body whose Read panics, when a classifier looks at it, the request
// goes on as it would for any other body that cannot be read.
func TestClassifierOfABadBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := func(req *http.Request) (*http.Response, error) {
			return newResponse(req, 503, badBody{func([]byte) (int, error) { panic("bad body") }, func() {}}), nil
		}
		rule := policy.Rule{Classify: classify.OnBody(classify.Final, "x")}.Or(quick)
		base := script(bad, status(200))
		resp := mustGetWith(t, over(t, transport.Config{Rule: rule}, base), t.Context())
		assert.Equal(t, 200, resp.StatusCode)
		base.sent(t, 2)

		resp, err := get(t, over(t, transport.Config{Rule: policy.Rule{MaxAttempts: 1}.Or(rule)}, script(bad)), t.Context())
		require.NoError(t, err)
		assert.PanicsWithValue(t, "bad body", func() { _, _ = resp.Body.Read(make([]byte, 1)) }, "as without a look")
	})
}

// The decoder of a base may not be closed during a Read that the end of its context ends. After its text
// nothing else does, and a deaf base hears only a Close.
func TestDecoderIsNotClosedDuringARead(t *testing.T) {
	text := strings.Repeat("text", 200)
	for want, rule := range map[error]policy.Rule{
		policy.ErrStallTimeout: {StallTimeout: time.Second},
		io.ErrUnexpectedEOF:    {},                          // a cut, and then silence
		nil:                    {AttemptTimeout: time.Hour}, // an error page
	} {
		for _, deaf := range []bool{false, true} {
			inBubble(t, fmt.Sprint(want, deaf), func(t *testing.T) {
				base := numbered(func(req *http.Request, n int) (*http.Response, error) {
					if n > 1 && want == nil {
						return play(req, status(200).Body(text))
					}
					var reading, closed atomic.Bool
					source := io.MultiReader(strings.NewReader(text), readFunc(func([]byte) (int, error) {
						if n == 1 && want == io.ErrUnexpectedEOF {
							return 0, want
						}
						<-req.Context().Done()
						for deaf && !closed.Load() {
							time.Sleep(time.Second)
						}
						return 0, req.Context().Err()
					}))
					resp := newResponse(req, map[bool]int{true: 503, false: 200}[want == nil], badBody{func(p []byte) (int, error) {
						reading.Store(true)
						defer reading.Store(false)
						return source.Read(p)
					}, func() { assert.True(t, deaf || !reading.Load(), "a Close during a Read"); closed.Store(true) }})
					resp.Uncompressed = true
					return resp, nil
				})
				got := do(over(t, transport.Config{Rule: rule}, base), newRequest(t, http.MethodGet, "http://h.test/", nil))
				assert.ErrorIs(t, got.err, want)
				assert.Equal(t, text, got.body)
				time.Sleep(time.Hour)
			})
		}
	}
}
