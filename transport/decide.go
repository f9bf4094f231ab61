// Why is there a retry, or none? The decision, pure and in one place.

package transport

import (
	"math"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// A Reason says what was done about an attempt and why. Its String is short
// and stable, fit for logs and as a metric's label.
type Reason uint8

const (
	// Final: the outcome is for the caller: a success, an answer or an error
	// that another try would not change.
	ReasonFinal Reason = iota
	// Retry: the request is sent again after Wait.
	ReasonRetry
	// NotIdempotent: the server may have acted on the request, and acting
	// twice could do harm.
	ReasonNotIdempotent
	// NotReplayable: the request's body cannot be produced again whole. The
	// attempt's Err says why: GetBody failed, or Upload.Memory, Upload.Disk
	// or Config.TempTotal was reached.
	ReasonNotReplayable
	// BodyBusy: the base transport is still reading the request's body.
	ReasonBodyBusy
	// SentOnce: the caller asked for one send only ([Once]).
	ReasonSentOnce
	// RetriesOff: the rule allows one attempt only.
	ReasonRetriesOff
	// Nested: a Transport below gave up on the request; retries are not
	// multiplied.
	ReasonNested
	// Canceled: the caller's context ended.
	ReasonCanceled
	// Attempts: Rule.Attempts sends are spent.
	ReasonAttempts
	// Elapsed: the next attempt would start later than Rule.Elapsed allows.
	ReasonMaxElapsed
	// Deadline: the wait before the next attempt would pass the deadline of
	// the caller's context.
	ReasonDeadline
	// MaxRetryAfter: the server asked for a longer wait than
	// Rule.MaxRetryAfter allows.
	ReasonMaxRetryAfter
	// BackoffStop: the rule's Backoff ended the retries.
	ReasonBackoffStop
	// Cooldown: the host asked everybody for a longer wait than
	// Rule.MaxRetryAfter allows; for MaxRetryAfter requests are refused.
	ReasonCooldown
	// Budget: the host's retry budget is spent.
	ReasonBudget
	// GateFull: the gate refuses what cannot go at once, and it was full.
	ReasonGateFull
	// Hedged: the answer took so long that the request was sent a second time.
	ReasonHedged
	// Outrun: another send of the same request was answered first.
	ReasonOutrun
	// Resume: the response's body was cut after Event.Offset bytes, and is
	// continued from there by a further request after Wait.
	ReasonResume
	// Resumes: the body was cut more than Rule.Resumes times in a row without
	// progress.
	ReasonResumeMax
	// Mismatch: a reconnect did not bring the rest of the same representation, so
	// the body ends where it was cut. The event's Err is a [ResumeError].
	ReasonMismatch
)

var reasonNames = [...]string{
	ReasonFinal:         "final",
	ReasonRetry:         "retry",
	ReasonNotIdempotent: "not_idempotent",
	ReasonNotReplayable: "body_not_replayable",
	ReasonBodyBusy:      "body_busy",
	ReasonSentOnce:      "sent_once",
	ReasonRetriesOff:    "retries_off",
	ReasonNested:        "nested",
	ReasonCanceled:      "canceled",
	ReasonAttempts:      "attempts",
	ReasonMaxElapsed:    "max_elapsed",
	ReasonDeadline:      "deadline",
	ReasonMaxRetryAfter: "max_retry_after",
	ReasonBackoffStop:   "backoff_stop",
	ReasonCooldown:      "cooldown",
	ReasonBudget:        "budget",
	ReasonGateFull:      "gate_full",
	ReasonHedged:        "hedged",
	ReasonOutrun:        "outrun",
	ReasonResume:        "resume",
	ReasonResumeMax:     "resume_max",
	ReasonMismatch:      "mismatch",
}

// String returns the reason in a few words.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}

// limit reports whether the reason is a limit that withheld a retry which was
// otherwise due. Such an outcome is marked: the failure was tried enough, and
// a Transport around this one must not start again. The other reasons do not
// mark, since the outer rule may know better what is idempotent or replayable.
func (r Reason) limit() bool {
	switch r {
	case ReasonAttempts, ReasonMaxElapsed, ReasonDeadline, ReasonMaxRetryAfter, ReasonBackoffStop, ReasonCooldown, ReasonBudget, ReasonGateFull, ReasonResumeMax:
		return true
	}
	return false
}

// told reports whether a response carries the reason: a limit withheld the
// retry, or it was not safe. What the caller asked for itself needs no telling.
func (r Reason) told() bool {
	switch r {
	case ReasonNotIdempotent, ReasonNotReplayable, ReasonBodyBusy:
		return true
	}
	return r.limit()
}

// facts is all that the decision depends on.
type facts struct {
	verdict    classify.Verdict
	canceled   bool // the caller's context has ended, and there is no answer for it
	nested     bool // a Transport below gave up
	once       bool // one send only, by the caller's word
	idempotent bool // asked only where the verdict is Ambiguous
	replayable bool // the body can be produced again, as far as is known

	sent, attempts int // sends so far, and allowed

	backoff       time.Duration // negative: stop
	hint          time.Duration // how long the server asked to wait
	hinted        bool
	maxRetryAfter time.Duration // negative: no bound
	excess        policy.Beyond
	u             float64 // random, in [0,1)

	elapsed, elapsedMax time.Duration // elapsedMax not positive: no bound
	room                time.Duration // to the deadline
	deadline            bool
	turn                time.Duration // how long until the host's limits let another send go, as far as is known
	refused             bool          // the host's cooldown refuses requests, and does not let them wait
}

// spread bounds the jitter on top of a wait that a server asked for. Everybody
// who was told "in 10 s" would else return in the same instant.
const spread = time.Second

// decide says what to do, and how long to wait before the next send. The
// guards stand in the order of their weight: what must not be sent again for
// safety's sake first, then what is not worth it, then what a limit forbids.
// The verdict Final ends the list early; whoever adds a guard adds a Reason.
func decide(f facts) (Reason, time.Duration) {
	switch {
	case f.canceled:
		return ReasonCanceled, 0 // nobody waits for it any more
	case f.verdict != classify.Refused && f.verdict != classify.Ambiguous:
		return ReasonFinal, 0 // nothing says that another try would help
	case f.nested:
		return ReasonNested, 0 // RFC 9110 §9.2.2: a failed retry is no excuse for another layer's
	case f.once:
		return ReasonSentOnce, 0
	case f.attempts <= 1:
		return ReasonRetriesOff, 0 // nobody gave up: a Transport around this one may retry
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
	wait := max(f.backoff, asked)
	start := max(wait, f.turn)
	switch {
	case f.refused:
		return ReasonCooldown, 0 // it would be refused when its wait is over
	case f.deadline && start >= f.room:
		return ReasonDeadline, 0 // a sleep that cannot end in an attempt
	case f.elapsedMax > 0 && start > f.elapsedMax-f.elapsed:
		return ReasonMaxElapsed, 0
	}
	return ReasonRetry, wait + f.jitter(wait, asked)
}

// asked returns the server's wait as the rule takes it, negative where the
// rule does not wait that long.
func (f facts) asked() time.Duration {
	switch {
	case !f.hinted || f.hint <= 0:
		return 0
	case f.maxRetryAfter < 0 || f.hint <= f.maxRetryAfter:
		return f.hint
	case f.excess == policy.BeyondCap:
		return f.maxRetryAfter
	case f.excess == policy.BeyondWait:
		return f.hint
	}
	return -1
}

// jitter returns what is added to a wait that the server determined: upward
// only, no more than the wait itself, and not past a limit that the wait alone
// keeps. A wait that the back-off determined has its jitter already.
func (f facts) jitter(wait, asked time.Duration) time.Duration {
	if wait != asked || asked == 0 {
		return 0
	}
	most := min(asked, spread, math.MaxInt64-wait)
	if f.deadline {
		most = min(most, f.room-wait-1)
	}
	if f.elapsedMax > 0 {
		most = min(most, f.elapsedMax-f.elapsed-wait)
	}
	return time.Duration(f.u * float64(max(most, 0)))
}

// within returns how long the work before the next send may take, at most most:
// waiting for a Read of the request's body, and draining the old answer. Work
// during the wait costs nothing. Beyond the wait, it may use up the elapsed time
// that the rule leaves, and a quarter of the time to the deadline, so that the
// next attempt has the rest.
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
