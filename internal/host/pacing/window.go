// A window of a quota, over which requests are spread.

package pacing

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/field"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A Window is a quota until its reset, as far as it is known.
type Window struct {
	Unit        string
	End         instant.Instant // when the window ends
	Left, Limit int64
	Others      int64 // so many other clients use the quota as well, each as much as this one

	price int64           // of the last request that passed; 0: there was none
	last  instant.Instant // when it passed, or when the window was named
	next  instant.Instant // when the next request may go, if the requests are spread
}

// EndOf returns when the window ends that a response names now.
func EndOf(now instant.Instant, n field.Quota) instant.Instant {
	return instant.After(now, min(n.Reset, maxReset))
}

// EndsAt reports whether end may be another name for the end of the window.
func (v *Window) EndsAt(end instant.Instant) bool {
	return end >= v.End.Add(-Slack) && end <= v.End.Add(Slack)
}

// Begin begins another window.
func (v *Window) Begin(now, end instant.Instant, left, limit int64) {
	v.End, v.Left, v.Limit, v.next, v.last = end, left, limit, 0, now
}

// Until returns until when a request has to wait.
func (v *Window) Until(now instant.Instant, cost int, c Config) instant.Instant {
	n := v.count(cost)
	if now >= v.End || v.Left >= n && !Low(v.Left, v.Limit) {
		return now
	}
	next := v.next
	if n > max(v.Left, 1) {
		next = max(next, instant.After(v.last, c.maxWait()))
	}
	return min(next, v.End)
}

// Take counts a request that goes.
func (v *Window) Take(now instant.Instant, cost int, c Config) {
	low := Low(v.Left, v.Limit)
	v.price, v.last = v.count(cost), now
	v.Left = max(0, v.Left-v.price)
	if low {
		v.next = instant.After(now, v.gap(now, c))
	}
}

// Pace computes when the next request may go, after a response. So much was left before it.
func (v *Window) Pace(now instant.Instant, before int64, c Config) {
	switch at := instant.After(now, v.gap(now, c)); {
	case v.Left > 0: // more may be left than when v.next was computed
		v.next = min(v.next, at)
	case before > 0 || v.next <= now:
		v.next = at
	}
}

// count returns how much a request of a cost takes from the quota.
func (v *Window) count(cost int) int64 {
	if v.Unit == "" {
		return 1
	}
	return max(1, min(int64(cost), v.Limit))
}

// gap returns the time after the last request with which requests like it would use up the
// quota just at the end of the window.
func (v *Window) gap(now instant.Instant, c Config) time.Duration {
	rest, price := v.End.Sub(now), max(v.price, 1)
	each := float64(rest) / float64(v.Left+price) * float64(price) * float64(1+v.Others)
	return min(time.Duration(min(each, float64(rest))), c.maxWait())
}

func (c Config) maxWait() time.Duration { return instant.Bound(c.MaxWait) }
