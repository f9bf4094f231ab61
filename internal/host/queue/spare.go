// Which scope makes room for another.

package queue

import (
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	// spares is how many scopes a look at all of them finds, and spareTime how long they count.
	spares    = 32
	spareTime = 10 * time.Millisecond
)

// Spares are the scopes that a machine misses least. A look at all scopes finds some at once, so that
// a new scope costs the same however many there are. The zero Spares is ready.
type Spares struct {
	list  []spare // missed least first
	until instant.Instant
}

type spare struct {
	key uint64
	Worth
}

// A Worth says how much a scope is missed: first by its class, and then by when it ends.
type Worth struct {
	Class int
	End   instant.Instant
}

func (w Worth) less(than Worth) bool {
	return w.Class < than.Class || w.Class == than.Class && w.End < than.End
}

// Spare returns the scope that is missed least, if its class is below a bound. There must be scopes.
func Spare[V any](s *Spares, now instant.Instant, scopes map[uint64]V, below int, worth func(V) Worth) (key uint64, found bool) {
	for {
		if now >= s.until || len(s.list) == 0 {
			s.list, s.until = s.list[:0], instant.After(now, spareTime)
			for key, v := range scopes {
				s.add(spare{key, worth(v)}, spares)
			}
		}
		first := s.list[0]
		v, same := scopes[first.key]
		if same {
			w := worth(v)
			if same = !first.less(w); same && w.Class >= below {
				return 0, false
			}
		}
		if s.list = slices.Delete(s.list, 0, 1); same {
			return first.key, true
		}
	}
}

// Note notes how much a scope is missed that is new, or has changed.
func (s *Spares) Note(key uint64, w Worth) {
	s.list = slices.DeleteFunc(s.list, func(x spare) bool { return x.key == key })
	s.add(spare{key, w}, len(s.list)) // nobody knows which comes after the last
}

// add adds a scope to the list, if its place is below a bound.
func (s *Spares) add(x spare, below int) {
	at := len(s.list)
	for at > 0 && x.less(s.list[at-1].Worth) {
		at--
	}
	if at < below {
		s.list = slices.Insert(s.list[:min(len(s.list), spares-1)], at, x)
	}
}
