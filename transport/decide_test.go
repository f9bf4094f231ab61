package transport

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
)

// TestDecide is the specification of when a request is sent again. Each row
// changes one fact of an attempt that would be retried after 2 s.
func TestDecide(t *testing.T) {
	retryable := facts{
		class: classify.Ambiguous, idempotent: true, replayable: true,
		sent: 1, attempts: 6, backoff: 2 * time.Second,
		maxRetryAfter: time.Minute,
	}
	for _, row := range []struct {
		name   string
		change func(*facts)
		reason Reason
		wait   time.Duration
	}{
		{"an ambiguous outcome of an idempotent request is retried", func(f *facts) {}, ReasonRetry, 2 * time.Second},
		{"a refused request needs no idempotence", func(f *facts) { f.class, f.idempotent = classify.Refused, false }, ReasonRetry, 2 * time.Second},
		{"a request with an ambiguous outcome has to be idempotent", func(f *facts) { f.idempotent = false }, ReasonNotIdempotent, 0},
		{"a final outcome is delivered", func(f *facts) { f.class = classify.Final }, ReasonFinal, 0},
		{"a 421 is final if there is no other connection", func(f *facts) { f.class, f.misdirected = classify.Refused, true }, ReasonFinal, 0},
		{"nobody has an opinion", func(f *facts) { f.class = classify.Unknown }, ReasonFinal, 0},
		{"the caller has left", func(f *facts) { f.gone = ReasonCanceled }, ReasonCanceled, 0},
		{"the caller's deadline has passed", func(f *facts) { f.gone = ReasonDeadline }, ReasonDeadline, 0},
		{"the caller has left, and the error is final", func(f *facts) { f.gone, f.class = ReasonCanceled, classify.Final }, ReasonCanceled, 0},
		{"a transport below gave up", func(f *facts) { f.nested = true }, ReasonNested, 0},
		{"a transport below gave up, and the error is final", func(f *facts) { f.nested, f.class = true, classify.Final }, ReasonNested, 0},
		{"the rule allows one attempt", func(f *facts) { f.attempts = -1 }, ReasonRetriesOff, 0},
		{"the body is gone", func(f *facts) { f.replayable = false }, ReasonNotReplayable, 0},
		{"safety is named before limits", func(f *facts) { f.idempotent, f.sent = false, 6 }, ReasonNotIdempotent, 0},
		{"one attempt is left", func(f *facts) { f.sent = 5 }, ReasonRetry, 2 * time.Second},
		{"no attempt is left", func(f *facts) { f.sent = 6 }, ReasonMaxAttempts, 0},
		{"the back-off says stop", func(f *facts) { f.backoff = -1 }, ReasonMaxAttempts, 0},
		{"the back-off is zero", func(f *facts) { f.backoff = 0 }, ReasonRetry, 0},

		{"the server asks for less than the back-off", func(f *facts) { f.retryAfter = time.Second }, ReasonRetry, time.Second},
		{"the server asks again for less than the back-off", func(f *facts) { f.sent, f.retryAfter = 2, time.Second }, ReasonRetry, 2 * time.Second},
		{"the server asks again for more than the back-off", func(f *facts) { f.sent, f.retryAfter = 2, 10*time.Second }, ReasonRetry, 10 * time.Second},
		{"jitter makes a wait of the server longer that is below the back-off", func(f *facts) { f.retryAfter, f.u = 400*time.Millisecond, 0.5 }, ReasonRetry, 600 * time.Millisecond},
		{"the back-off before a second retry has no more jitter", func(f *facts) { f.sent, f.retryAfter, f.u = 2, time.Second, 0.5 }, ReasonRetry, 2 * time.Second},
		{"a wait of the server is at least 100 ms", func(f *facts) { f.retryAfter = time.Millisecond }, ReasonRetry, 100 * time.Millisecond},
		{"a wait of the server replaces that after silence", func(f *facts) { f.silence, f.retryAfter, f.u = 8*time.Second, time.Second, 0.5 }, ReasonRetry, 1500 * time.Millisecond},
		{"the back-off says stop, whatever the server asks for", func(f *facts) { f.backoff, f.retryAfter = -1, time.Second }, ReasonMaxAttempts, 0},
		{"the deadline leaves room for the wait of the server, and not for the back-off", func(f *facts) {
			f.deadline, f.room, f.retryAfter = true, 1500*time.Millisecond, time.Second
		}, ReasonRetry, time.Second},
		{"the host is down, and the rule says that requests fail then", func(f *facts) { f.down = true }, ReasonCircuitOpen, 0},
		{"all attempts are made at a host that is down", func(f *facts) { f.down, f.sent = true, 6 }, ReasonMaxAttempts, 0},
		{"the server asks for more than the back-off", func(f *facts) { f.retryAfter = 10 * time.Second }, ReasonRetry, 10 * time.Second},
		{"jitter makes the wait of the server longer", func(f *facts) { f.retryAfter, f.u = 10*time.Second, 0.5 }, ReasonRetry, 10500 * time.Millisecond},
		{"jitter is at most the wait of the server itself", func(f *facts) {
			f.backoff, f.retryAfter, f.u = 0, 200*time.Millisecond, 0.5
		}, ReasonRetry, 300 * time.Millisecond},
		{"a wait of the back-off gets no second jitter", func(f *facts) { f.u = 0.5 }, ReasonRetry, 2 * time.Second},
		{"silence makes the back-off longer by a random time", func(f *facts) { f.silence, f.u = 8*time.Second, 0.5 }, ReasonRetry, 5 * time.Second},
		{"silence makes no back-off shorter", func(f *facts) { f.silence, f.u = time.Second, 0.5 }, ReasonRetry, 2 * time.Second},
		{"the server asks for more than the wait after silence", func(f *facts) { f.silence, f.retryAfter, f.u = 8*time.Second, 10*time.Second, 0.5 }, ReasonRetry, 10500 * time.Millisecond},
		{"after silence half of the time to the deadline is left", func(f *facts) {
			f.silence, f.deadline, f.room, f.u = 8*time.Second, true, 6*time.Second, 0.5
		}, ReasonRetry, 3 * time.Second},
		{"after silence half of the rest of MaxElapsedTime is left", func(f *facts) {
			f.silence, f.elapsed, f.elapsedMax, f.u = 8*time.Second, time.Second, 7*time.Second, 0.5
		}, ReasonRetry, 3 * time.Second},
		{"after silence a short time to the deadline is used as before", func(f *facts) {
			f.silence, f.deadline, f.room, f.u = 8*time.Second, true, 2*time.Second+1, 0.5
		}, ReasonRetry, 2 * time.Second},
		{"the back-off before later retries says stop", func(f *facts) { f.silence, f.u = -1, 0.5 }, ReasonRetry, 2 * time.Second},
		{"Retry-After: 0 is no reason to hurry", func(f *facts) { f.retryAfter = 0 }, ReasonRetry, 2 * time.Second},
		{"the server asks for a negative wait, which counts for nothing", func(f *facts) { f.retryAfter = -time.Second }, ReasonRetry, 2 * time.Second},
		{"the server asks for exactly the longest wait", func(f *facts) { f.retryAfter = time.Minute }, ReasonRetry, time.Minute},
		{"the server asks for more than the longest wait, and the rule stops then", func(f *facts) { f.retryAfter = time.Minute + 1 }, ReasonThrottled, 0},
		{"no wait is too long for the rule", func(f *facts) { f.retryAfter, f.maxRetryAfter = time.Hour, -1 }, ReasonRetry, time.Hour},

		{"the deadline leaves room", func(f *facts) { f.deadline, f.room = true, 2*time.Second+1 }, ReasonRetry, 2 * time.Second},
		{"the deadline leaves no room", func(f *facts) { f.deadline, f.room = true, 2*time.Second }, ReasonDeadline, 0},
		{"the deadline leaves no room for the wait of the server", func(f *facts) {
			f.deadline, f.room, f.retryAfter = true, 5*time.Second, 10*time.Second
		}, ReasonDeadline, 0},
		{"the deadline leaves no room for the wait at the rate", func(f *facts) { f.deadline, f.room, f.turn = true, 5*time.Second, 6*time.Second }, ReasonDeadline, 0},
		{"the wait at the rate is not part of the wait before the retry", func(f *facts) { f.turn = 6 * time.Second }, ReasonRetry, 2 * time.Second},
		{"jitter does not reach the deadline", func(f *facts) {
			f.deadline, f.room, f.retryAfter, f.u = true, 10*time.Second+2, 10*time.Second, 0.999999
		}, ReasonRetry, 10 * time.Second},
		{"MaxElapsedTime leaves room", func(f *facts) { f.elapsed, f.elapsedMax = time.Second, 3*time.Second }, ReasonRetry, 2 * time.Second},
		{"MaxElapsedTime leaves no room", func(f *facts) { f.elapsed, f.elapsedMax = time.Second+1, 3*time.Second }, ReasonMaxElapsedTime, 0},
		{"jitter does not pass MaxElapsedTime", func(f *facts) {
			f.elapsed, f.elapsedMax, f.retryAfter, f.u = time.Second, 11*time.Second, 10*time.Second, 0.9
		}, ReasonRetry, 10 * time.Second},

		{"a request for missing bytes is not sent if the rule allows one attempt", func(f *facts) { f.sent, f.attempts = 0, 1 }, ReasonRetriesOff, 0},
		{"a request for missing bytes is not sent if the caller has left", func(f *facts) { f.sent, f.gone = 0, ReasonCanceled }, ReasonCanceled, 0},
		{"a request for missing bytes has to be idempotent if the cut is ambiguous", func(f *facts) { f.sent, f.idempotent = 0, false }, ReasonNotIdempotent, 0},
		{"a request for missing bytes waits at random", func(f *facts) { f.sent, f.u = 0, 0.5 }, ReasonRetry, 2050 * time.Millisecond},
		{"a request for missing bytes waits as the server asked", func(f *facts) { f.sent, f.retryAfter, f.u = 0, 10*time.Second, 0.5 }, ReasonRetry, 10500 * time.Millisecond},
		{"a request for missing bytes waits at random after a short wait of the server", func(f *facts) {
			f.sent, f.backoff, f.retryAfter, f.u = 0, 0, 10*time.Millisecond, 0.5
		}, ReasonRetry, 60 * time.Millisecond},
		{"a request for missing bytes is not sent if the server asks for more than the longest wait", func(f *facts) { f.sent, f.retryAfter = 0, time.Hour }, ReasonThrottled, 0},
		{"a request for missing bytes keeps half of the time to the deadline", func(f *facts) {
			f.sent, f.deadline, f.room, f.u = 0, true, 2*time.Second+40*time.Millisecond, 0.5
		}, ReasonRetry, 2010 * time.Millisecond},
		{"the deadline leaves no room for a request for missing bytes", func(f *facts) { f.sent, f.deadline, f.room = 0, true, 2*time.Second }, ReasonDeadline, 0},

		{"absurd values overflow nothing", func(f *facts) {
			f.backoff, f.retryAfter, f.maxRetryAfter = 1<<63-1, 1<<63-1, -1
			f.deadline, f.room, f.turn, f.elapsed, f.elapsedMax, f.silence = true, time.Hour, 1<<62, 1<<62, 1<<63-1, 1<<63-1
		}, ReasonDeadline, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := retryable
			row.change(&f)
			reason, wait := decide(f)
			assert.Equal(t, row.reason, reason)
			assert.Equal(t, row.wait, wait)
		})
	}
}

// FuzzDecide checks what holds whatever the facts are.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(3), uint8(0xff), 1, 6, int64(time.Second), int64(2*time.Second), int64(time.Minute), 0.5, int64(0), int64(0), int64(time.Hour), int64(0))
	f.Fuzz(func(t *testing.T, verdict, bits uint8, sent, attempts int, backoff, hint, longest int64, u float64, elapsed, elapsedMax, room, turn int64) {
		if !(u >= 0 && u < 1) {
			u = 0.5
		}
		in := facts{
			class: []classify.Class{classify.Unknown, classify.Final, classify.Refused, classify.Ambiguous, "?"}[verdict%5],
			gone:  []Reason{"", ReasonCanceled}[bits&1], nested: bits&2 != 0, idempotent: bits&8 != 0,
			replayable: bits&16 != 0, deadline: bits&64 != 0,
			sent: sent, attempts: attempts, backoff: time.Duration(backoff), retryAfter: time.Duration(hint),
			maxRetryAfter: time.Duration(longest), u: u,
			elapsed: time.Duration(max(elapsed, 0)), elapsedMax: time.Duration(elapsedMax),
			room: time.Duration(room), turn: time.Duration(max(turn, 0)), silence: time.Duration(turn),
		}
		reason, wait := decide(in)
		if reason != ReasonRetry {
			assert.Zero(t, wait)
			return
		}
		assert.True(t, in.class == classify.Refused || in.class == classify.Ambiguous && in.idempotent)
		assert.True(t, in.replayable && in.gone == "" && !in.nested && in.attempts > 1)
		assert.Less(t, in.sent, in.attempts)
		if in.sent != 1 || in.retryAfter <= 0 {
			assert.GreaterOrEqual(t, wait, in.backoff, "never earlier than the back-off")
		}
		assert.GreaterOrEqual(t, wait, time.Duration(0))
		assert.GreaterOrEqual(t, wait, in.retryAfter, "never earlier than told")
		if in.deadline {
			assert.Less(t, wait, in.room, "never a sleep that cannot end in an attempt")
		}
		if in.elapsedMax > 0 {
			assert.LessOrEqual(t, wait, in.elapsedMax-in.elapsed)
		}
	})
}

// The names of the reasons are labels of metrics, so they never change, and each has a text.
func TestReasonsHaveNames(t *testing.T) {
	names := []Reason{
		"final", "retry", "outrun", "not_idempotent", "not_replayable", "not_resumable", "retries_off", "nested", "canceled", "deadline",
		"max_attempts", "max_elapsed_time", "retry_budget", "throttled", "quota", "rate_limit", "concurrency", "circuit_open",
	}
	assert.Equal(t, names, []Reason{
		ReasonFinal, ReasonRetry, ReasonOutrun, ReasonNotIdempotent, ReasonNotReplayable, ReasonNotResumable, ReasonRetriesOff, ReasonNested, ReasonCanceled, ReasonDeadline,
		ReasonMaxAttempts, ReasonMaxElapsedTime, ReasonRetryBudget, ReasonThrottled, ReasonQuota, ReasonRateLimit, ReasonConcurrency, ReasonCircuitOpen,
	})
	for _, r := range names {
		assert.NotEqual(t, string(r), r.text())
	}
}

// Jitter does not make the longest possible wait overflow.
func TestLongestHint(t *testing.T) {
	for _, u := range []float64{0, 0.5, 0.999} {
		reason, wait := decide(facts{
			class: classify.Refused, replayable: true, sent: 1, attempts: 6,
			retryAfter: math.MaxInt64, maxRetryAfter: -1, u: u,
		})
		assert.Equal(t, ReasonRetry, reason)
		assert.EqualValues(t, math.MaxInt64, wait)
	}
}
