// The decision whether to retry, and its reasons.

package transport

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/attempt"
)

// A Reason says why a request was not sent, or not sent again. It is the same word in errors, in
// the log, and as a label of metrics. Later versions may have more of them.
type Reason string

const (
	// ReasonFinal means that the caller gets the outcome, because another attempt
	// would not change it. It may be a success.
	ReasonFinal Reason = "final"
	// ReasonRetry means that another attempt follows after Attempt.Delay. After the cut of a body
	// it continues the body.
	ReasonRetry Reason = "retry"
	// ReasonOutrun means that another attempt of the same request had its response
	// first.
	ReasonOutrun Reason = "outrun"
	// ReasonNotIdempotent means that the server may have acted on the request, and
	// that it must not act twice, or that the request has a nonce that counts once.
	ReasonNotIdempotent Reason = "not_idempotent"
	// ReasonNotReplayable means that the request's body cannot be sent again. Attempt.Err says
	// why: GetBody failed, a limit was reached (Rule.ReplayBuffer), or the base transport still
	// reads the body.
	ReasonNotReplayable Reason = "not_replayable"
	// ReasonNotResumable means that the body of a response ended with an error, and that nothing
	// could continue it. For example it is a stream or that of a POST, or a further response was
	// not the rest of the same representation. The error says why.
	ReasonNotResumable Reason = "not_resumable"
	// ReasonRetriesOff means that the rule or the caller ([WithoutRetries]) allows one attempt.
	ReasonRetriesOff Reason = "retries_off"
	// ReasonNested means that a Transport below gave up on the request. Retries are
	// not multiplied.
	ReasonNested Reason = "nested"
	// ReasonCanceled means that the caller hung up: its context was canceled.
	ReasonCanceled Reason = "canceled"
	// ReasonDeadline means that the deadline of the caller's context passed, or that the wait
	// before the next attempt would pass it. A Read of a body that was cut has 10 s.
	ReasonDeadline Reason = "deadline"
	// ReasonMaxAttempts means that the request had Rule.MaxAttempts attempts, that the rule's
	// Backoff ended the retries, or that too many reconnects in a row brought no progress.
	ReasonMaxAttempts Reason = "max_attempts"
	// ReasonMaxElapsedTime means that the next attempt would start later than
	// Rule.MaxElapsedTime allows.
	ReasonMaxElapsedTime Reason = "max_elapsed_time"
	// ReasonRetryBudget means that the time of the request in the line of its host is over: the host had
	// no retry left for it, or was down, for as long as its attempts would have gone on. Of a wait
	// it says that the attempt stood in that line.
	ReasonRetryBudget Reason = "retry_budget"
	// ReasonThrottled means that the server asked to wait: for longer than Rule.MaxRetryAfter
	// allows, or for longer than the request has.
	ReasonThrottled Reason = "throttled"
	// ReasonQuota means that the quota that the server named is nearly used up, and that the
	// turn of the request would come too late.
	ReasonQuota Reason = "quota"
	// ReasonRateLimit means that the turn of the request under Rule.RateLimit would come too late.
	ReasonRateLimit Reason = "rate_limit"
	// ReasonConcurrency means that as many requests are in flight as Rule.Concurrency lets go.
	ReasonConcurrency Reason = "concurrency"
	// ReasonCircuitOpen means that the host is down, and that Rule.CircuitBreaker withholds requests
	// meanwhile. Of a host and of a wait it says only that the host was down.
	ReasonCircuitOpen Reason = "circuit_open"
)

// text says the reason as the end of a sentence.
func (r Reason) text() string {
	return cmp.Or(map[Reason]string{
		ReasonFinal:          "another attempt would not change it",
		ReasonRetry:          "it is retried",
		ReasonOutrun:         "another attempt was faster",
		ReasonNotIdempotent:  "the server may have acted, and must not act twice",
		ReasonNotReplayable:  "the request's body cannot be sent again",
		ReasonNotResumable:   "nothing can continue its body",
		ReasonRetriesOff:     "one attempt is allowed",
		ReasonNested:         "a Transport below gave up",
		ReasonCanceled:       "the caller hung up",
		ReasonDeadline:       "the caller's deadline leaves no time",
		ReasonMaxAttempts:    "all attempts are used up",
		ReasonMaxElapsedTime: "the rule's time for retries is over",
		ReasonRetryBudget:    "the host had no retry left in time",
		ReasonThrottled:      "the server asked for a longer wait",
		ReasonQuota:          "the server's quota is nearly used up",
		ReasonRateLimit:      "the rule's rate limit is reached",
		ReasonConcurrency:    "too many requests are in flight",
		ReasonCircuitOpen:    "the host is down",
	}[r], string(r))
}

// words is the reason without underscores.
func (r Reason) words() string { return strings.ReplaceAll(string(r), "_", " ") }

// isLimit reports whether a limit withheld a retry that was otherwise due. Then the
// request was tried enough, and an outer Transport must not start again.
// The other reasons do not stop an outer Transport, because its rule may know better
// whether the request is idempotent or replayable.
func (r Reason) isLimit() bool {
	switch r {
	case ReasonDeadline, ReasonMaxAttempts, ReasonMaxElapsedTime, ReasonRetryBudget, ReasonThrottled, ReasonQuota, ReasonRateLimit, ReasonConcurrency, ReasonCircuitOpen:
		return true
	}
	return false
}

// isOfRequest reports whether a retry was due that the request or its rule does not allow. An outer
// Transport decides about such an outcome as if this Transport were not there.
func (r Reason) isOfRequest() bool {
	return r == ReasonNotIdempotent || r == ReasonNotReplayable || r == ReasonRetriesOff
}

// facts are everything that the decision depends on.
type facts struct {
	class       classify.Class
	gone        Reason // why the caller's context has ended, if there is no final response; empty: it has not
	nested      bool   // a Transport below gave up
	down        bool   // the host is, and the rule says that requests fail then
	misdirected bool   // the server wants the request over another connection, and there is none
	idempotent  bool   // only asked if the class is Ambiguous
	replayable  bool   // the body can be produced again, as far as is known

	sent, attempts int // made so far, and allowed to one request; none are made if a body was cut after progress, because its continuation is a request and not a retry

	backoff       time.Duration // before a retry, negative: stop; or until the continuations of a body are far enough apart
	silence       time.Duration // if the attempt timed out: the wait is a random time from the back-off to this, because unanswered requests pile up at a silent server
	retryAfter    time.Duration // how long the server asked to wait; not positive: it did not
	maxRetryAfter time.Duration // negative: no bound
	u             float64       // random, in [0,1)

	elapsed, elapsedMax time.Duration // elapsedMax not positive: no bound
	room                time.Duration // to the deadline
	deadline            bool
	turn                time.Duration // until the limits let another attempt go, as far as is known
	limit               Reason        // that takes so long; empty: none
}

// maxJitter bounds the jitter that is added to a wait that a server asked for. Without
// jitter all clients that were told "in 10 s" would return in the same instant.
const maxJitter = time.Second

// silentAfter is the retry up to whose back-off the wait after a timeout is random.
const silentAfter = 3

// leastWait is the least wait that a server's word may name.
const leastWait = 100 * time.Millisecond

// resumeJitter bounds the random wait before a continuation after progress. A proxy
// that restarts cuts all its downloads at the same instant.
const resumeJitter = 100 * time.Millisecond

// decide returns what to do, and how long to wait before the next attempt. The
// guards are in the order of their weight. Retries that are not safe come first,
// then retries that are not worth it, and then the limits. Each guard has its own
// Reason.
func decide(f facts) (Reason, time.Duration) {
	switch {
	case f.gone != "":
		return f.gone, 0 // nobody waits for it any more
	case f.nested:
		return ReasonNested, 0 // RFC 9110 §9.2.2: a failed retry is no excuse for another layer's
	case f.class != classify.Refused && f.class != classify.Ambiguous:
		return ReasonFinal, 0 // nothing says that another attempt would help
	case f.misdirected:
		return ReasonFinal, 0 // RFC 9110 §15.5.20, RFC 9113 §7: it would go over the same connection
	case f.attempts <= 1:
		return ReasonRetriesOff, 0 // an outer Transport may retry, because nobody gave up
	case f.class == classify.Ambiguous && !f.idempotent:
		return ReasonNotIdempotent, 0 // RFC 9110 §9.2.2
	case !f.replayable:
		return ReasonNotReplayable, 0
	case f.sent >= f.attempts:
		return ReasonMaxAttempts, 0
	case f.backoff < 0:
		return ReasonMaxAttempts, 0
	case f.down:
		return ReasonCircuitOpen, 0
	}
	if f.maxRetryAfter >= 0 && f.retryAfter > f.maxRetryAfter {
		return ReasonThrottled, 0
	}
	asked := max(f.retryAfter, 0)
	backoff := f.backoff
	if f.silence > backoff { // it is longer by a random time; half of the time that is left stays for the attempt
		backoff += time.Duration(f.u * float64(min(f.silence-backoff, max(f.left()-backoff, 0)/2)))
	}
	wait := max(backoff, asked)
	if asked > 0 && f.sent == 1 {
		asked = max(asked, leastWait) // the server's word replaces the formula's
		wait = asked
	}
	start := max(wait, f.turn)
	switch {
	case f.deadline && start >= f.room:
		return ReasonDeadline, 0 // a sleep that cannot end in an attempt
	case f.elapsedMax > 0 && start > f.elapsedMax-f.elapsed:
		return ReasonMaxElapsedTime, 0
	}
	if asked > 0 && wait == asked || f.sent == 0 { // a wait of the back-off already has jitter
		wait += f.jitter(wait, asked)
	}
	return ReasonRetry, wait
}

// retryable reports whether a class calls for a retry.
func retryable(v classify.Class) bool { return (&attempt.Outcome{Class: v}).Failed() }

// nameLimit returns the limit of the host in the place of the time that is up, if there would be a
// retry without that limit.
func (f facts) nameLimit(reason Reason) Reason {
	f.turn = 0
	if alone, _ := decide(f); alone == ReasonRetry && f.limit != "" {
		return f.limit
	}
	return reason
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
