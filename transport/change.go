// The changes of a host's state: for the worse, and back.

package transport

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/limit"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// A Condition is something that keeps requests from a host, or that a host is short of. Its
// String can be the label of a metric. Later versions may have more of them.
type Condition uint8

const (
	// ConditionDown means that the host fails wholesale, and that its gate is closed. Without
	// a gate it means that five attempts in a row failed.
	ConditionDown Condition = news.Down
	// ConditionHeld means that the server asked the requests of a scope to wait.
	ConditionHeld Condition = news.Held
	// ConditionNoRetries means that the retry budget is used up, so failures reach the
	// callers. It is over when half of the budget is there again.
	ConditionNoRetries Condition = news.NoRetries
	// ConditionLowQuota means that a fifth or less is left of the quota that the server
	// named, so requests are spread over the rest of its window.
	ConditionLowQuota Condition = news.LowQuota
	// ConditionCrowded means that requests wait at the gate for longer than a second, or
	// are refused there, because the host is slower than its load.
	ConditionCrowded Condition = news.Crowded
	// ConditionRateLimited means that requests wait for Rule.RateLimit for longer than a second, or
	// are refused because they would have to.
	ConditionRateLimited Condition = news.RateLimited
	// ConditionLane means that requests take other connections. It does not last. Over
	// says that the other connections proved better, and not that the old failed.
	ConditionLane Condition = news.Lane
)

// conditionNames has the name of each condition, and the limit that acts.
var conditionNames = [...][2]string{
	ConditionDown:        {"down", limit.LimitGate},
	ConditionHeld:        {"held", limit.LimitCooldown},
	ConditionNoRetries:   {"no_retries", limit.LimitBudget},
	ConditionLowQuota:    {"low_quota", limit.LimitPacing},
	ConditionCrowded:     {"crowded", limit.LimitGate},
	ConditionRateLimited: {"rate_limited", limit.LimitRate},
	ConditionLane:        {"lane", ""},
}

// String returns the condition in snake case.
func (c Condition) String() string {
	if int(c) < len(conditionNames) {
		return conditionNames[c][0]
	}
	return "Condition(" + strconv.Itoa(int(c)) + ")"
}

// limit returns the name of the limit that acts, as in [Event]. It is "" if there is none.
func (c HostChange) limit() string {
	if int(c.Condition) < len(conditionNames) && (c.Condition != ConditionDown || c.Limit > 0) {
		return conditionNames[c.Condition][1]
	}
	return ""
}

// A HostChange says that a condition of a host began or is over. The limits have no timers.
// So the end of a condition is told when the next request is let through, and news of the
// fleet when the next request comes.
type HostChange struct {
	// Context is that of the request that noticed the change, which may have ended since.
	Context context.Context
	// Host is the scheme and host.
	Host string
	// Condition began, or is over if Over is true. The first is a change for the worse,
	// and the second for the better.
	Condition Condition
	Over      bool
	// Scope is a hash that tells the scopes of a host apart, for ConditionHeld and
	// ConditionLowQuota. It is 0 for requests without credentials, and for the other
	// conditions. It differs from process to process, except in a fleet.
	Scope uint64
	// Status and Err are the response or the error that caused the change. Both are zero
	// if it is not known. Err prints without secrets, as in [Event].
	Status int
	Err    error
	// Fleet reports that another member of the fleet told of the change.
	FromFleet bool
	// Time is when the change was noticed.
	Time time.Time
	// Since is when the condition began. For ConditionDown it is when the first of the
	// failures began.
	Since time.Time
	// Until is when the condition will be over, or zero if nobody knows.
	Until time.Time
	// Waiting is how many requests wait at the limit.
	Waiting int
	// Room is how many requests the limit lets go: the gate's limit, or what is left of
	// the quota. It is 0 for the other conditions, and for a host without a gate.
	Limit int
	// Lane is the number of the pool that attempts take now, for ConditionLane. Addr is the address of
	// the connection that failed, if it is known.
	Pool int
	Addr string
}

// String says what happened to which host, why, and what happens next. It has no secrets.
func (c HostChange) String() string {
	if c.Over {
		return redact.Printable(c.Host + c.endText())
	}
	return redact.Printable(c.Host + c.beginning())
}

// beginning says what began.
func (c HostChange) beginning() string {
	why, lasted, left := c.causeText(), redact.Rough(c.Time.Sub(c.Since)), redact.Rough(c.Until.Sub(c.Time))
	switch c.Condition {
	case ConditionHeld:
		return fmt.Sprintf(" asks for a pause (%s): requests wait for %v", why, left)
	case ConditionDown:
		if c.Limit == 0 {
			return fmt.Sprintf(" is down (%s): its last five attempts failed, and requests still go", why)
		}
		return fmt.Sprintf(" is down (%s): one request at a time tries it, %s", why, waiting(c.Waiting))
	case ConditionCrowded:
		return fmt.Sprintf(" is slower than its load (%s): %d go at a time, %s", why, c.Limit, waiting(c.Waiting))
	case ConditionRateLimited:
		held := "they would wait for too long"
		if lasted > 0 {
			held = fmt.Sprintf("they had to wait for %v", lasted)
		}
		return fmt.Sprintf(" has more requests than the rule lets go (%s): %s, %s", why, held, waiting(c.Waiting))
	case ConditionNoRetries:
		return fmt.Sprintf(" has used up its retries (%s): failures go to the callers", why)
	case ConditionLowQuota:
		return fmt.Sprintf(" has a quota of %d left (%s): requests are spread over %v", c.Limit, why, left)
	case ConditionLane:
		return fmt.Sprintf(": its requests take other connections (%s)", why)
	}
	return ": " + c.Condition.String()
}

// endText says what is over.
func (c HostChange) endText() string {
	lasted := redact.Rough(c.Time.Sub(c.Since))
	switch c.Condition {
	case ConditionHeld:
		return fmt.Sprintf(" takes requests again after a pause of %v: they go one after the other, %s", lasted, waiting(c.Waiting))
	case ConditionDown:
		if c.Limit == 0 {
			return fmt.Sprintf(" is back after %v: an attempt succeeded", lasted)
		}
		says := ""
		if c.FromFleet {
			says = " (" + c.causeText() + ")"
		}
		return fmt.Sprintf(" is back after %v%s: %d go at a time at first, %s", lasted, says, c.Limit, waiting(c.Waiting))
	case ConditionCrowded:
		return fmt.Sprintf(" keeps up with its load again after %v: requests go at once", lasted)
	case ConditionRateLimited:
		return fmt.Sprintf(" has no more requests than the rule lets go after %v: they go at once", lasted)
	case ConditionNoRetries:
		return fmt.Sprintf(" has retries again after %v: failures are retried", lasted)
	case ConditionLowQuota:
		return fmt.Sprintf(" has quota again after %v: requests go at once", lasted)
	case ConditionLane:
		return ": its requests take other connections, which do better"
	}
	return ": no longer " + c.Condition.String()
}

// waiting says how many requests wait.
func waiting(n int) string {
	switch n {
	case 0:
		return "none waits"
	case 1:
		return "1 request waits"
	}
	return strconv.Itoa(n) + " requests wait"
}

// causeText returns the response or the error in a few words.
func (c HostChange) causeText() string {
	switch {
	case c.FromFleet:
		return "says the fleet"
	case c.Err != nil:
		return causeOf(c.Err)
	case c.Status != 0:
		return strconv.Itoa(c.Status)
	case c.Condition == ConditionCrowded:
		return "slow"
	case c.Condition == ConditionRateLimited:
		return "own rate"
	}
	return "a failure"
}
