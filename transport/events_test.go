package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// stream returns a stream whose pieces come a minute apart, and then its end.
func streamed(req *http.Request, end error, pieces ...string) *http.Response {
	r, w := io.Pipe()
	go func() {
		for _, p := range pieces {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, p)
		}
		time.Sleep(time.Minute)
		_ = w.CloseWithError(end)
	}()
	resp := newResponse(req, 200, r, "Content-Type: text/event-stream")
	resp.ContentLength = -1
	return resp
}

func TestFirstEventTimeout(t *testing.T) {
	const event = "data: {}\n\n"
	for name, tt := range map[string]struct {
		method string
		first  []string
		end    error
		rule   policy.Rule
		sent   int
		took   time.Duration
		err    error
	}{
		"in time":             {http.MethodGet, []string{": a\n\n", event}, nil, policy.Rule{}, 1, 2 * time.Minute, nil},
		"late":                {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{}, 2, 150*time.Second + time.Minute, nil},
		"late, POST":          {http.MethodPost, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{}, 1, 150 * time.Second, policy.ErrAttemptTimeout},
		"cut":                 {http.MethodGet, []string{": a\n\n"}, io.ErrUnexpectedEOF, policy.Rule{}, 2, 3 * time.Minute, nil},
		"cut, POST":           {http.MethodPost, []string{": a\n\n"}, io.ErrUnexpectedEOF, policy.Rule{}, 1, 2 * time.Minute, io.ErrUnexpectedEOF},
		"ends":                {http.MethodGet, []string{": a\n\n"}, nil, policy.Rule{}, 1, 2 * time.Minute, nil},
		"with other timeouts": {http.MethodGet, []string{event}, nil, policy.Rule{AttemptTimeout: time.Second, Stall: policy.Stall{Timeout: 100 * time.Second}}, 1, time.Minute, nil},
		"stalls":              {http.MethodGet, []string{": a\n\n"}, nil, policy.Rule{Stall: policy.Stall{Timeout: 30 * time.Second}}, 2, 30*time.Second + time.Minute, transport.ErrStalled},
		"with a gate":         {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{Gate: policy.Gate{Max: 1, Start: 1}}, 2, 150*time.Second + time.Minute, nil},
		"off":                 {http.MethodGet, []string{": a\n\n", ": b\n\n", event}, nil, policy.Rule{FirstEventTimeout: policy.Off}, 1, 0, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			defer time.Sleep(time.Hour) // for the streams that nobody reads
			sent := 0
			base := rt(func(req *http.Request) (*http.Response, error) {
				if sent++; sent == 1 {
					return streamed(req, tt.end, tt.first...), nil
				}
				return streamed(req, nil, event), nil
			})
			rule := tt.rule.Or(quick).Or(policy.Rule{FirstEventTimeout: 150 * time.Second})
			if name == "stalls" {
				rule.Attempts = 2
			}
			start := time.Now()
			resp, err := over(t, transport.Config{Rule: rule}, base).RoundTrip(newRequest(t, tt.method, "http://example.test/", nil))
			assert.Equal(t, tt.sent, sent, "attempts")
			if tt.err != nil {
				assert.ErrorIs(t, err, tt.err)
				assert.Nil(t, resp)
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, tt.took, time.Since(start), float64(time.Second))
			whole := mustRead(t, resp)
			require.NoError(t, resp.Body.Close())
			want := strings.Join(tt.first, "")
			if tt.sent == 2 {
				want = event
			}
			assert.Equal(t, want, string(whole))
		})
	}
}

// The end of the caller's context ends the wait, with its own error. Other responses
// are not awaited.
func TestFirstEventTimeoutAndItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Second, func() { cancel(gone) })
		sent := 0
		tr := over(t, transport.Config{Rule: policy.Rule{FirstEventTimeout: time.Hour}}, rt(func(req *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				return streamed(req, nil, "data: a\n\n"), nil
			}
			resp := streamed(req, nil, "data: a\n\n")
			resp.Header.Set("Content-Type", "application/json")
			return resp, nil
		}))
		_, err := get(t, tr, ctx)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, sent)

		start := time.Now()
		resp := mustGet(t, tr)
		assert.Equal(t, start, time.Now(), "no reader waits for JSON")
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
	})
}
