package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A hook knows the deadline of each attempt.
func TestDeadlineOfAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, row := range []struct {
			name            string
			attempt, caller time.Duration // 0: none
			stall           time.Duration // 0: none
			body            io.Reader
			want            []time.Duration // from the start of each attempt; -1: none
		}{
			{"none", 0, 0, 0, nil, []time.Duration{-1, -1}},
			{"attempt", time.Second, 0, 0, nil, []time.Duration{time.Second, time.Second}},
			{"caller", 0, 5 * time.Second, 0, nil, []time.Duration{5 * time.Second, 4 * time.Second}},
			{"the earlier", 3 * time.Second, 3500 * time.Millisecond, 0, nil, []time.Duration{3 * time.Second, 2500 * time.Millisecond}},
			{"a stall", 0, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall before the attempt's end", 1200 * time.Millisecond, 0, 200 * time.Millisecond, nil, []time.Duration{200 * time.Millisecond, 200 * time.Millisecond}},
			{"a stall after the attempt's end", time.Second, 0, time.Minute, nil, []time.Duration{time.Second, time.Second}},
			{"a stall and a streamed body", 0, 0, 200 * time.Millisecond, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"small body", time.Second, 0, 0, strings.NewReader("x"), []time.Duration{time.Second, time.Second}},
			{"large body", time.Second, 0, 0, strings.NewReader(strings.Repeat("x", 65<<10)), []time.Duration{-1, -1}},
			{"streamed body", time.Second, 0, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{-1, -1}},
			{"streamed body with a caller", time.Second, 5 * time.Second, 0, io.MultiReader(strings.NewReader("x")), []time.Duration{5 * time.Second, 4 * time.Second}},
		} {
			var got []time.Duration
			trace := &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
				left := time.Duration(-1)
				if !a.Deadline.IsZero() {
					left = a.Deadline.Sub(a.Start)
				}
				got = append(got, left)
				return ctx
			}}
			tr := mustNew(t, transport.Config{Base: script(status(503), status(200)), Trace: trace, Rule: policy.Rule{AttemptTimeout: row.attempt, Stall: policy.Stall{Timeout: row.stall}, Backoff: backoff.Constant(time.Second)}})
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.caller > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.caller)
			}
			finish(tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", row.body).WithContext(ctx)))
			cancel()
			assert.Equal(t, row.want, got, row.name)
		}
	})
}
