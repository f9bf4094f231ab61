// The changes of a host's state: for the worse, and back.

package transport

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// reasonsOfHosts are the Reasons of the conditions of a host.
var reasonsOfHosts = [...]Reason{
	news.Down:        ReasonCircuitOpen,
	news.Held:        ReasonThrottled,
	news.NoRetries:   ReasonRetryBudget,
	news.LowQuota:    ReasonQuota,
	news.Crowded:     ReasonConcurrency,
	news.RateLimited: ReasonRateLimit,
	news.Pool:        "", // has none
}

// A HostChange says that a limit of a host began to hold or to refuse requests, or that this is
// over. The limits have no timers. So the end is told when the next request is let through, and
// news of the fleet when the next request comes.
type HostChange struct {
	// Host is the scheme and host.
	Host string
	// Reason says which condition began, or which is over if Over is true.
	//
	//	ReasonCircuitOpen  the host is down: ten attempts in a row failed, over a second or more
	//	ReasonThrottled    the server asked the requests with some credentials to wait
	//	ReasonRetryBudget  retries wait for longer than a second, because the budget is used up
	//	ReasonQuota        a fifth or less is left of the quota that the server named, so
	//	                   requests are spread over the rest of its window
	//	ReasonConcurrency  requests wait for longer than a second, or are refused, because the
	//	                   host is slower than its load
	//	ReasonRateLimit    requests wait for Rule.RateLimit for longer than a second, or are
	//	                   refused because they would have to
	Reason Reason
	Over   bool
	// Status and Err are the response or the error that caused the change. Both are zero
	// if it is not known. Err prints without secrets, as in [Attempt].
	Status int
	Err    error
	// FromFleet reports that another member of the fleet told of the change.
	FromFleet bool
	// Since is when it began. For ReasonCircuitOpen it is when the first of the failures began.
	Since time.Time
	// Until is when it will be over, or zero if nobody knows, as with ReasonRetryBudget.
	Until time.Time
	// Waiting is how many requests wait at the limit, or for the end of the outage.
	Waiting int
	// Limit is how many requests the limit lets go: of Rule.Concurrency, or the rest of the quota.
	// It is 0 for other reasons, and for a host without Rule.Concurrency.
	Limit int

	at       time.Time // when it was noticed
	breaker  bool      // a circuit breaker withholds requests while the host is down
	failFast bool      // they fail
}

// String tells the change of the host, its cause, and what happens next. It has no secrets.
func (c HostChange) String() string {
	if c.Over {
		return redact.Printable(c.Host + c.endText())
	}
	return redact.Printable(c.Host + c.beginning())
}

// time returns when the change was noticed.
func (c HostChange) time() time.Time {
	if c.at.IsZero() {
		return time.Now()
	}
	return c.at
}

// beginning tells that the condition began.
func (c HostChange) beginning() string {
	why, lasted, left := c.causeText(), redact.Rough(c.time().Sub(c.Since)), redact.Rough(c.Until.Sub(c.time()))
	switch c.Reason {
	case ReasonThrottled:
		return fmt.Sprintf(" asks for a pause (%s): requests wait for %v", why, left)
	case ReasonCircuitOpen:
		switch {
		case c.failFast:
			return fmt.Sprintf(" is down (%s): requests fail", why)
		case c.breaker:
			return fmt.Sprintf(" is down (%s): requests wait%s", why, inLine(c.Waiting))
		}
		return fmt.Sprintf(" is down (%s): retries wait%s", why, inLine(c.Waiting))
	case ReasonConcurrency:
		return fmt.Sprintf(" is slower than its load (%s): %d go at a time, %s", why, c.Limit, waiting(c.Waiting))
	case ReasonRateLimit:
		held := "they would wait for too long"
		if lasted > 0 {
			held = fmt.Sprintf("they had to wait for %v", lasted)
		}
		return fmt.Sprintf(" has more requests than the rule lets go (%s): %s, %s", why, held, waiting(c.Waiting))
	case ReasonRetryBudget:
		return fmt.Sprintf(" has used up its retries (%s): %s", why, waiting(c.Waiting))
	case ReasonQuota:
		return fmt.Sprintf(" has a quota of %d left (%s): requests are spread over %v", c.Limit, why, left)
	}
	return ": " + c.Reason.words()
}

// endText tells that the condition is over.
func (c HostChange) endText() string {
	lasted := redact.Rough(c.time().Sub(c.Since))
	switch c.Reason {
	case ReasonThrottled:
		return fmt.Sprintf(" takes requests again after a pause of %v: they go one after the other, %s", lasted, waiting(c.Waiting))
	case ReasonCircuitOpen:
		if c.Waiting > 1 {
			return fmt.Sprintf(" is back after %v: %d come back gradually", lasted, c.Waiting)
		}
		return fmt.Sprintf(" is back after %v: %s", lasted, waiting(c.Waiting))
	case ReasonConcurrency:
		return fmt.Sprintf(" keeps up with its load again after %v: requests go at once", lasted)
	case ReasonRateLimit:
		return fmt.Sprintf(" has no more requests than the rule lets go after %v: they go at once", lasted)
	case ReasonRetryBudget:
		return fmt.Sprintf(" has retries again after %v: %s", lasted, waiting(c.Waiting))
	case ReasonQuota:
		return fmt.Sprintf(" has quota again after %v: requests go at once", lasted)
	}
	return ": no longer " + c.Reason.words()
}

// inLine says how many requests wait, unless none does.
func inLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d in line", n)
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
	case c.Reason == ReasonConcurrency:
		return "slow"
	case c.Reason == ReasonRateLimit:
		return "own rate"
	}
	return "a failure"
}

// message returns the text of the log line about a change.
func (c HostChange) message() string {
	texts := map[Reason][2]string{
		"":                {"new connection pool", "new connection pool"},
		ReasonCircuitOpen: {"host down", "host back"},
		ReasonThrottled:   {"throttled", "no longer throttled"},
		ReasonQuota:       {"quota low", "quota restored"},
		ReasonConcurrency: {"concurrency limit reached", "concurrency limit no longer reached"},
		ReasonRateLimit:   {"rate limit reached", "rate limit no longer reached"},
		ReasonRetryBudget: {"retry budget used up", "retry budget restored"},
	}[c.Reason]
	if c.breaker && c.Reason == ReasonCircuitOpen {
		texts = [2]string{"circuit open", "circuit closed"}
	}
	if c.Over {
		return texts[1]
	}
	return texts[0]
}

// attrs returns the attributes of the log line about a change. It never began later than it is told.
func (c HostChange) attrs() (all attrs) {
	all = attrs{slog.String("host", c.Host), slog.String("reason", string(c.Reason)), slog.Time("since", c.Since.Truncate(time.Second))}
	all.add(c.Status != 0, slog.Int("status", c.Status))
	all.addError(c.Err)
	all.add(c.FromFleet, slog.Bool("from_fleet", true))
	all.add(!c.Until.IsZero(), slog.Time("until", c.Until.Round(time.Second)))
	all.add(c.Waiting > 0, slog.Int("waiting", c.Waiting))
	all.add(c.Limit > 0, slog.Int("limit", c.Limit))
	return all
}

// attrs are the attributes of a log line.
type attrs []slog.Attr

// add adds an attribute if it is set.
func (all *attrs) add(set bool, attr slog.Attr) {
	if set {
		*all = append(*all, attr)
	}
}

// addError adds the cause of err in a few words, unless err is nil.
func (all *attrs) addError(err error, known ...string) {
	if err != nil {
		all.add(true, slog.String("error", causeOf(err, known...)))
	}
}

// addTime adds a time, unless it is not known or zero.
func (all *attrs) addTime(key string, d time.Duration) {
	d = d.Round(time.Millisecond)
	all.add(d > 0, slog.Duration(key, d))
}
