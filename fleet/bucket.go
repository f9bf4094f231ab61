package fleet

import (
	"strconv"
	"time"
)

// jitter is by how much a question may take longer than the question before it. A member
// that takes it for time in which no bucket fills would lose tokens with each question.
const jitter = 10 * time.Millisecond

// buckets are what this member knows of the shared rates, so that a Redis that lost its keys does
// not begin with full buckets. While Redis is away the members send their parts of the rate,
// which add up to the whole rate. So a bucket is as full afterwards as it was before. Only the
// goroutine that asks uses it.
type buckets map[string]bucket

type bucket struct {
	next time.Time     // when the next token may be used if the bucket is empty
	away time.Duration // how long Redis had been away in all when it said so
}

// missed returns for how long this member knows that Redis answered no questions for tokens of
// a host. silence is since when it got no answer itself, and away is how long Redis was away in
// all. A member that asked nothing during the interruption knows of it from the link alone.
func (b buckets) missed(host string, silence, away time.Duration) time.Duration {
	if k, ok := b[host]; ok {
		return max(silence, away-k.away)
	}
	return silence
}

// due returns the microseconds until the next token of a host, for the script, as this member
// knew it when Redis answered last.
func (b buckets) due(host string, now time.Time) string {
	k, ok := b[host]
	if !ok {
		return ""
	}
	return strconv.FormatInt((k.next.Sub(now) - jitter).Microseconds(), 10)
}

// answered notes that the next token may be used at a time.
func (b buckets) answered(host string, next time.Time, away time.Duration) {
	if _, ok := b[host]; !ok && len(b) >= maxItems {
		clear(b)
	}
	b[host] = bucket{next: next, away: away}
}
