// The decision whether to retry, and its reasons.

package transport

import (
	"math"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/classify"
)

// A Reason says why there is a retry, or why there is none. Its String is short and
// stable, so that it can be the label of a metric.
type Reason uint8

const (
	// ReasonFinal means that the caller gets the outcome, because another attempt
	// would not change it. It may be a success.
	ReasonFinal Reason = iota
	// ReasonRetry means that the request is retried after Attempt.Wait.
	ReasonRetry
	// ReasonNotIdempotent means that the server may have acted on the request, and
	// that it could do harm to act twice.
	ReasonNotIdempotent
	// ReasonNotReplayable means that the request's body cannot be produced again
	// whole. Attempt.Err says why: GetBody failed, or a limit was reached
	// (ReplayBuffer).
	ReasonNotReplayable
	// ReasonBodyBusy means that the base transport is still reading the request's
	// body.
	ReasonBodyBusy
	// ReasonSentOnce means that the caller allowed one attempt only ([WithoutRetries]).
	ReasonSentOnce
	// ReasonRetriesOff means that the rule allows one attempt only.
	ReasonRetriesOff
	// ReasonNested means that a Transport below gave up on the request. Retries are
	// not multiplied.
	ReasonNested
	// ReasonCanceled means that the caller hung up: its context was canceled.
	ReasonCanceled
	// ReasonTimeout means that the deadline of the caller's context passed, or that a Read
	// of a body that was cut took 10 s.
	ReasonTimeout
	// ReasonAttempts means that the request had Rule.MaxAttempts attempts.
	ReasonAttempts
	// ReasonMaxElapsed means that the next attempt would start later than
	// Rule.MaxElapsedTime allows.
	ReasonMaxElapsed
	// ReasonDeadline means that the wait before the next attempt would pass the
	// deadline of the caller's context, or the 10 s of a Read of a body that was cut.
	ReasonDeadline
	// ReasonMaxRetryAfter means that the server asked for a longer wait than
	// Rule.MaxRetryAfter allows.
	ReasonMaxRetryAfter
	// ReasonBackoffStop means that the rule's Backoff ended the retries.
	ReasonBackoffStop
	// ReasonBudget means that the host's retry budget is used up.
	ReasonBudget
	// ReasonGateFull means that the gate was full, and that its mode is to refuse
	// requests that cannot go at once.
	ReasonGateFull
	// ReasonHedged means that the response took so long that a second attempt was
	// made beside the first.
	ReasonHedged
	// ReasonOutrun means that another attempt of the same request had its response
	// first.
	ReasonOutrun
	// ReasonResume means that the body of a response was cut after Event.Offset
	// bytes, and that a further request continues it after Attempt.Wait.
	ReasonResume
	// ReasonMismatch means that a reconnect did not bring the rest of the same
	// representation, so the body ends at the cut. The Err of the event is a
	// [ResumeError].
	ReasonMismatch
	// ReasonNotResumable means that a body ended with an error, and that nothing could
	// continue it. For example it is a stream, or it is that of a POST.
	// The Err of the event is a [ResumeError] that says why.
	ReasonNotResumable

	reasons // how many there are
)

// reasonNames has the name of each reason, and says why there is no further attempt as the end
// of a sentence.
var reasonNames = [...][2]string{
	ReasonFinal:         {"final", "another attempt would not change it"},
	ReasonRetry:         {"retry", "it is retried"},
	ReasonNotIdempotent: {"not_idempotent", "the server may have acted, and it could do harm to act twice"},
	ReasonNotReplayable: {"body_not_replayable", "the request's body cannot be sent again"},
	ReasonBodyBusy:      {"body_busy", "the request's body is still being read"},
	ReasonSentOnce:      {"sent_once", "the caller allows one attempt"},
	ReasonRetriesOff:    {"retries_off", "the rule allows one attempt"},
	ReasonNested:        {"nested", "a Transport below gave up"},
	ReasonCanceled:      {"canceled", "the caller hung up"},
	ReasonTimeout:       {"timeout", "the caller's time is up"},
	ReasonAttempts:      {"attempts", "all attempts are used up"},
	ReasonMaxElapsed:    {"max_elapsed", "the rule's time for retries is over"},
	ReasonDeadline:      {"deadline", "its turn would come too late for the caller"},
	ReasonMaxRetryAfter: {"max_retry_after", "the wait is longer than the rule allows"},
	ReasonBackoffStop:   {"backoff_stop", "the back-off ends here"},
	ReasonBudget:        {"budget", "the host's retry budget is used up"},
	ReasonGateFull:      {"gate_full", "too many requests are in flight"},
	ReasonHedged:        {"hedged", "a second attempt goes beside it"},
	ReasonOutrun:        {"outrun", "another attempt was faster"},
	ReasonResume:        {"resume", "the rest of its body is asked for"},
	ReasonMismatch:      {"mismatch", "the rest is not of the same body"},
	ReasonNotResumable:  {"not_resumable", "nothing can continue its body"},
}

// String returns the reason in snake case.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r][0]
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// isLimit reports whether a limit withheld a retry that was otherwise due. Then the
// request was tried enough, and a Transport around this one must not start again.
// The other reasons do not stop an outer Transport, because its rule may know better
// whether the request is idempotent or replayable.
func (r Reason) isLimit() bool {
	switch r {
	case ReasonAttempts, ReasonMaxElapsed, ReasonDeadline, ReasonMaxRetryAfter, ReasonBackoffStop, ReasonBudget, ReasonGateFull:
		return true
	}
	return false
}

// facts are everything that the decision depends on.
type facts struct {
	verdict     classify.Class
	canceled    bool // the caller's context has ended, and there is no final response
	expired     bool // it ended because its deadline passed
	nested      bool // a Transport below gave up
	misdirected bool // the server wants the request over another connection, and there is none
	once        bool // the caller allowed one attempt only
	idempotent  bool // only asked if the verdict is Ambiguous
	replayable  bool // the body can be produced again, as far as is known

	sent, attempts int // made so far, and allowed to one request; none are made if a body was cut after progress, because its continuation is a request and not a retry

	backoff       time.Duration // before a retry, negative: stop; or until the continuations of a body are far enough apart
	silence       time.Duration // if the attempt timed out: the wait is a random time from the back-off to this, because what a silent server has not answered piles up there
	hint          time.Duration // how long the server asked to wait; not positive: it did not
	maxRetryAfter time.Duration // negative: no bound
	u             float64       // random, in [0,1)

	elapsed, elapsedMax time.Duration // elapsedMax not positive: no bound
	room                time.Duration // to the deadline
	deadline            bool
	turn                time.Duration // until the limits let another attempt go, as far as is known
	limit               string        // that takes so long
}

// maxJitter bounds the jitter that is added to a wait that a server asked for. Without
// jitter all clients that were told "in 10 s" would return in the same instant.
const maxJitter = time.Second

// resumeJitter bounds the random wait before a continuation after progress. A proxy
// that restarts cuts all its downloads at the same instant.
const resumeJitter = 100 * time.Millisecond

// decide returns what to do, and how long to wait before the next attempt. The
// guards are in the order of their weight. Retries that are not safe come first,
// then retries that are not worth it, and then the limits. Each guard has its own
// Reason.
func decide(f facts) (Reason, time.Duration) {
	switch {
	case f.canceled && f.expired:
		return ReasonTimeout, 0
	case f.canceled:
		return ReasonCanceled, 0 // nobody waits for it any more
	case f.nested:
		return ReasonNested, 0 // RFC 9110 §9.2.2: a failed retry is no excuse for another layer's
	case f.verdict != classify.Refused && f.verdict != classify.Ambiguous:
		return ReasonFinal, 0 // nothing says that another attempt would help
	case f.misdirected:
		return ReasonFinal, 0 // RFC 9110 §15.5.20, RFC 9113 §7: it would go over the same connection
	case f.once:
		return ReasonSentOnce, 0
	case f.attempts <= 1:
		return ReasonRetriesOff, 0 // a Transport around this one may retry, because nobody gave up
	case f.verdict == classify.Ambiguous && !f.idempotent:
		return ReasonNotIdempotent, 0 // RFC 9110 §9.2.2
	case !f.replayable:
		return ReasonNotReplayable, 0
	case f.sent >= f.attempts:
		return ReasonAttempts, 0
	case f.backoff < 0:
		return ReasonBackoffStop, 0
	}
	asked := f.asked()
	if asked < 0 {
		return ReasonMaxRetryAfter, 0
	}
	backoff := f.backoff
	if f.silence > backoff { // it is longer by a random time; half of the time that is left stays for the attempt
		backoff += time.Duration(f.u * float64(min(f.silence-backoff, max(f.left()-backoff, 0)/2)))
	}
	wait := max(backoff, asked)
	start := max(wait, f.turn)
	switch {
	case f.deadline && start >= f.room:
		return ReasonDeadline, 0 // a sleep that cannot end in an attempt
	case f.elapsedMax > 0 && start > f.elapsedMax-f.elapsed:
		return ReasonMaxElapsed, 0
	}
	if asked > 0 && wait == asked || f.sent == 0 { // a wait of the back-off already has jitter
		wait += f.jitter(wait, asked)
	}
	return ReasonRetry, wait
}

// withheldBy returns the limit that withheld a retry for this reason. It is empty if
// there would be no retry without the limit either.
func (f facts) withheldBy(reason Reason) string {
	if reason == ReasonDeadline || reason == ReasonMaxElapsed {
		f.turn = 0
		if alone, _ := decide(f); alone == ReasonRetry {
			return f.limit
		}
	}
	return ""
}

// asked returns the server's wait as far as the rule obeys it. It is negative if the
// rule does not wait that long.
func (f facts) asked() time.Duration {
	switch {
	case f.hint <= 0:
		return 0
	case f.maxRetryAfter < 0 || f.hint <= f.maxRetryAfter:
		return f.hint
	}
	return -1
}

// left returns how long the rule and the caller go on.
func (f facts) left() time.Duration {
	left := time.Duration(math.MaxInt64)
	if f.deadline {
		left = f.room
	}
	if f.elapsedMax > 0 {
		left = min(left, f.elapsedMax-f.elapsed)
	}
	return left
}

// jitter returns the jitter that is added to a wait of the server's, and to that of a
// request for a rest. It does not pass a limit that the wait alone keeps. For a retry it is
// at most the server's wait itself. A request for a rest keeps half of the time to its
// deadline, unless the server asked for a wait.
func (f facts) jitter(wait, asked time.Duration) time.Duration {
	var most time.Duration
	if asked > 0 && wait == asked {
		most = min(wait, maxJitter)
	}
	if f.sent == 0 {
		most = max(most, min(resumeJitter, (f.left()-wait)/2))
	}
	return time.Duration(f.u * float64(max(min(most, f.left()-wait-1), 0)))
}

// within returns how long the work before the next attempt may take, up to most. The
// work is to wait for a Read of the request's body, and to drain the old response.
// Work during the wait costs nothing. Beyond the wait, it may use up the elapsed time
// that the rule leaves, and a quarter of the time to the deadline, so that the next
// attempt has the rest.
func (f facts) within(wait, most time.Duration) time.Duration {
	spare := most
	if f.deadline {
		spare = min(spare, (f.room-wait)/4)
	}
	if f.elapsedMax > 0 {
		spare = min(spare, f.elapsedMax-f.elapsed-wait)
	}
	return min(most, wait+max(spare, 0))
}

// textOf says as the end of a sentence why there is no further attempt.
func textOf(r Reason) string {
	if r < reasons {
		return reasonNames[r][1]
	}
	return r.String()
}
