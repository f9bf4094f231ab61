// The changes of a host's state: for the worse, and back.

package transport

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/news"
	"github.com/aplomb-go/aplomb/internal/redact"
)

// conditions are the conditions of a host, with their Reasons and the messages of their log lines.
var conditions = [...]struct {
	reason       Reason
	begins, ends string
}{
	news.Down:        {ReasonCircuitOpen, "host down", "host back"},
	news.Held:        {ReasonThrottled, "throttled", "no longer throttled"},
	news.NoRetries:   {ReasonRetryBudget, "retry budget used up", "retry budget restored"},
	news.LowQuota:    {ReasonQuota, "quota low", "quota restored"},
	news.Crowded:     {ReasonConcurrency, "concurrency limit reached", "concurrency limit no longer reached"},
	news.RateLimited: {ReasonRateLimit, "rate limit reached", "rate limit no longer reached"},
	news.Pool:        {"", "new connection pool", "new connection pool"},
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

	at      time.Time // when it was noticed
	breaker bool      // a circuit breaker withholds requests while the host is down
}

// String tells the change of the host in the words of the log, with its cause, how long it lasted
// or will last, and how many requests wait. It has no secrets.
func (c HostChange) String() string {
	cause, at := "", cmp.Or(c.at, time.Now())
	switch {
	case c.FromFleet:
		cause = "says the fleet"
	case c.Err != nil:
		cause = causeOf(c.Err)
	case c.Status != 0:
		cause = strconv.Itoa(c.Status)
	}
	lasted, left := redact.Rough(at.Sub(c.Since)), redact.Rough(c.Until.Sub(at))
	var b redact.Sentence
	fmt.Fprintf(&b, "%s: %s", c.Host, c.message())
	b.Add(cause != "", " (%s)", cause)
	b.Add(c.Over, " after %v", lasted)
	b.Add(left > 0, " for %v", left)
	b.Add(c.Limit > 0, ", limit %d", c.Limit)
	b.Add(c.Waiting > 0, ", %d waiting", c.Waiting)
	return redact.Printable(b.String())
}

// message returns the text of the log line about a change.
func (c HostChange) message() string {
	begins, ends := c.Reason.words(), c.Reason.words()
	for _, x := range conditions {
		if x.reason == c.Reason {
			begins, ends = x.begins, x.ends
		}
	}
	if c.breaker && c.Reason == ReasonCircuitOpen {
		begins, ends = "circuit open", "circuit closed"
	}
	if c.Over {
		return ends
	}
	return begins
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
