// Which scope makes room for another.

package queue

import (
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A look at all scopes finds so many spares at once, which count for spareTime.
const spares, spareTime = 32, 10 * time.Millisecond

// Spares are the scopes that a machine misses least. A look at all scopes finds some at once, so that
// a new scope costs the same however many there are. The zero Spares is ready.
type Spares struct {
	list  []Worth // missed least first
	until instant.Instant
}

// A Worth says how much a scope is missed: first by its class, and then by when it ends.
type Worth struct {
	Class int
	End   instant.Instant
	key   uint64
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
				s.add(key, worth(v), spares)
			}
		}
		first, same := s.list[0], false
		if v, known := scopes[first.key]; known {
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
	s.list = slices.DeleteFunc(s.list, func(x Worth) bool { return x.key == key })
	s.add(key, w, len(s.list)) // nobody knows which comes after the last
}

// add adds a scope to the list, if its place is below a bound.
func (s *Spares) add(key uint64, w Worth, below int) {
	at := len(s.list)
	for at > 0 && w.less(s.list[at-1]) {
		at--
	}
	if w.key = key; at < below {
		s.list = slices.Insert(s.list[:min(len(s.list), spares-1)], at, w)
	}
}
