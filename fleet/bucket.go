package fleet

import (
	"strconv"
	"time"
)

// jitter is by how much a question may take longer than the question before it. A member
// that takes it for time in which no bucket fills would lose tokens with each question.
const jitter = 10 * time.Millisecond

// buckets are what this member knows of the shared rates, so that a Redis that was away or that
// lost its keys does not begin with full buckets. While Redis is away the members send their
// parts of the rate, which add up to the whole rate. So a bucket is as full afterwards as it was
// before. Only the goroutine that asks uses it.
type buckets map[string]bucket

type bucket struct {
	next time.Time     // when the next token may be used if the bucket is empty
	away time.Duration // how long Redis had been away in all when it said so
	from time.Time     // the first question since then that got no answer; zero: none
	to   time.Time     // when the last of them was given up
}

// known returns the microseconds until the next token of a host, for the script. away is how
// long Redis was away in all.
func (b buckets) known(host string, now time.Time, away time.Duration) string {
	k, ok := b[host]
	if !ok {
		return ""
	}
	// A member that asked nothing during the interruption knows of it from the link alone.
	lost := max(away-k.away, k.to.Sub(k.from))
	return strconv.FormatInt((k.next.Sub(now) + lost - jitter).Microseconds(), 10)
}

// answered notes that the next token may be used at a time.
func (b buckets) answered(host string, next time.Time, away time.Duration) {
	if _, ok := b[host]; !ok && len(b) >= maxItems {
		clear(b)
	}
	b[host] = bucket{next: next, away: away}
}

// unanswered notes that a question got no answer until now.
func (b buckets) unanswered(host string, asked, now time.Time) {
	if k, ok := b[host]; ok {
		if k.from.IsZero() {
			k.from = asked
		}
		k.to = now
		b[host] = k
	}
}
