package fleet

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A bucketOf asks for tokens as a member does, at times that the test sets. The rate is 50/s with
// a burst of 500.
type bucketOf struct {
	t       *testing.T
	client  *redis.Client
	key     string
	buckets buckets
	silence time.Duration // for which it got no answer
	spent   float64       // tokens that it used meanwhile
}

const bucketEach = 20 * time.Millisecond

func when(now time.Duration) time.Time { return time.Unix(0, int64(now)) }

// take asks for tokens. Redis gets the question after a time.
func (m *bucketOf) take(now, way, away time.Duration, want int) (n int64, first time.Duration) {
	missed := m.buckets.missed("h", m.silence, away)
	due := m.buckets.due("h", when(now))
	got, err := tokensScript.Run(context.Background(), m.client, []string{m.key}, (now + way).Microseconds(), "", "",
		bucketEach.Microseconds(), 500, want, missed.Microseconds(), int64(m.spent), due, "").Slice()
	require.NoError(m.t, err)
	m.silence, m.spent = 0, 0
	first, _ = micros(got[1])
	if n = got[0].(int64); n > 0 {
		m.buckets.answered("h", when(now+first+time.Duration(n)*bucketEach), away)
	}
	return n, now + way + first
}

// After an interruption of Redis a bucket is as full as before it, although the key says that
// it had time to fill, or is lost. The members used their parts of the rate meanwhile.
func TestBucketAfterAnInterruption(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	for name, lost := range map[string]bool{"cut": false, "emptied": true} {
		for _, idle := range []bool{false, true} {
			if idle {
				name += ", nothing asked meanwhile"
			}
			t.Run(name, func(t *testing.T) {
				m := &bucketOf{t: t, client: client, key: unique(t), buckets: buckets{}}
				now, away := 1000*time.Second, time.Duration(0)
				take := func() int64 {
					n, _ := m.take(now, 0, away, 1000)
					return n
				}
				require.GreaterOrEqual(t, take(), int64(500))
				for range 2 {
					now += 10 * time.Second
					if idle {
						away += 10 * time.Second
					} else {
						m.silence, m.spent = 10*time.Second, 500 // it is alone
					}
					if lost {
						require.NoError(t, client.Del(context.Background(), m.key).Err())
					}
					assert.LessOrEqual(t, take(), int64(15))
				}
				now += 2 * time.Second // without an interruption it fills
				assert.InDelta(t, 100, take(), 15)
				m.buckets = buckets{} // a member of an earlier version, or one that knows nothing
				now += 2 * time.Second
				assert.InDelta(t, 100, take(), 15)
			})
		}
	}
}

// Only the time in which Redis was away fills no bucket. A member that asks again much later
// does not empty a bucket that had time to fill since.
func TestBucketFillsAfterAnInterruption(t *testing.T) {
	m := &bucketOf{t: t, client: connect(t, sharedServer(t).Addr), key: unique(t), buckets: buckets{}}
	now := 1000 * time.Second
	n, _ := m.take(now, 0, 0, 1000)
	require.GreaterOrEqual(t, n, int64(500))
	m.silence = time.Second
	now += time.Minute
	n, _ = m.take(now, 0, time.Second, 1000)
	assert.GreaterOrEqual(t, n, int64(500))
}

// The way to Redis and back costs a member no tokens, also if it is alone.
func TestBucketCountsNoWay(t *testing.T) {
	m := &bucketOf{t: t, client: connect(t, sharedServer(t).Addr), key: unique(t), buckets: buckets{}}
	now := 1000 * time.Second
	m.take(now, 0, 0, 1000)
	var sent int64
	for i := range 100 {
		now += 150 * time.Millisecond
		n, _ := m.take(now, time.Duration(i%3)*4*time.Millisecond, 0, 20)
		sent += n
	}
	assert.InDelta(t, 100*0.15*50, sent, 10)
}

// Four members lose Redis twice for 10 s, and send their parts meanwhile. In no window they
// send more than 1.1 times the rate and one burst.
func TestBucketOfFourMembers(t *testing.T) {
	client := connect(t, sharedServer(t).Addr)
	for name, lost := range map[string]bool{"cut": false, "emptied": true} {
		t.Run(name, func(t *testing.T) {
			key := unique(t)
			var members [4]*bucketOf
			var turn [4]time.Duration // of a member's own part
			for i := range members {
				members[i] = &bucketOf{t: t, client: client, key: key, buckets: buckets{}}
			}
			var list []send
			away := time.Duration(0)
			const step = 50 * time.Millisecond
			for at := time.Duration(0); at < 45*time.Second; at += step {
				i := int(at/step) % len(members)
				m, now := members[i], 1000*time.Second+at
				if at%(15*time.Second) >= 5*time.Second { // two thirds of the time
					away += step
					m.silence += 4 * step
					for turn[i] = max(turn[i], at); turn[i] < at+step*4; turn[i] += 4 * bucketEach {
						list = append(list, send{i, turn[i]})
						m.spent++
					}
					if lost {
						require.NoError(t, client.Del(context.Background(), key).Err())
					}
					continue
				}
				n, first := m.take(now, 0, away, 500)
				for j := range n {
					list = append(list, send{i, max(at, first-1000*time.Second+time.Duration(j)*bucketEach)})
				}
			}
			slices.SortFunc(list, func(a, b send) int { return int(a.at - b.at) })
			worst, window := worstWindow(list, 50, 500)
			t.Logf("%d sent; the busiest window of %v has %.2f times the rate with one burst", len(list), window, worst)
			assert.LessOrEqual(t, worst, 1.1)
			assert.Greater(t, len(list), 45*50*9/10)
		})
	}
}
