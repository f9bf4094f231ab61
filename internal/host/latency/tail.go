package latency

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	// A generation of samples ends when it has most of them, or least and has lasted for an age.
	// This generation and the one before it count. So p99.9 is one of the five longest.
	most  = 2048
	least = 100
	age   = 20 * time.Second

	// few is the number of samples below which the longest counts instead of p99.9.
	few = 2000

	// An attempt hangs if it takes thrice as long as p99.9, and shortest at least.
	thrice   = 3
	shortest = 250 * time.Millisecond
)

// A Tail knows when an attempt hangs: when it takes three times as long as 99.9 % of the host's
// recent successes. For that it keeps the longest of them only. A success that is not among them
// costs three atomic loads and an addition. The zero value is ready. All methods are safe for
// concurrent use.
type Tail struct {
	hangs atomic.Int64 // see Hangs
	n     atomic.Int32 // samples of this generation
	floor atomic.Int64 // the least of its longest, if there are five; what is not above changes nothing
	ends  atomic.Int64 // when it may end

	mu     sync.Mutex // guards the fields below, and all changes of those above but n
	now    longest
	before longest
	old    int32 // samples of the generation before
}

// longest are the longest samples of a generation, the longest first.
type longest [2*most/1000 + 1]time.Duration

// Hangs returns the time after which an attempt hangs, or 0 if that is not known yet.
func (t *Tail) Hangs() time.Duration { return time.Duration(t.hangs.Load()) }

// Record adds a sample: how long an attempt took that brought a success now.
func (t *Tail) Record(now instant.Instant, d time.Duration) {
	n := t.n.Add(1)
	if int64(d) <= t.floor.Load() && int64(now) < t.ends.Load() && n%least != 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends.Load() == 0 {
		t.ends.Store(int64(now.Add(age)))
	}
	t.now.add(d)
	t.floor.Store(int64(t.now[len(t.now)-1]))
	n = t.n.Load()
	if all := n + t.old; all >= least {
		t.hangs.Store(int64(max(thrice*t.beyond(int(all)), shortest)))
	}
	if n >= most || n >= least && int64(now) >= t.ends.Load() {
		t.old, t.before, t.now = n, t.now, longest{}
		t.n.Store(0)
		t.floor.Store(0)
		t.ends.Store(int64(now.Add(age)))
	}
}

// beyond returns p99.9 of all samples; the lock is held.
func (t *Tail) beyond(all int) time.Duration {
	both := t.before
	for _, d := range t.now {
		both.add(d)
	}
	if all < few {
		return both[0]
	}
	return both[min(all/1000, len(both)-1)] // so many samples are longer
}

// add adds a sample, if it is one of the longest.
func (l *longest) add(d time.Duration) {
	for i, other := range l {
		if d > other {
			l[i], d = d, other
		}
	}
}
