package fleet

import "container/list"

// An lru is a map of at most maxMet hosts. The host that was not used for the longest time
// makes room for another.
type lru[V any] struct {
	at   map[string]*list.Element
	ages list.List // of entry[V], the oldest first
}

type entry[V any] struct {
	host  string
	value V
}

func newLRU[V any]() *lru[V] { return &lru[V]{at: map[string]*list.Element{}} }

// set adds a host, or replaces its value.
func (l *lru[V]) set(host string, value V) {
	if e := l.at[host]; e != nil {
		e.Value = entry[V]{host, value}
		l.ages.MoveToBack(e)
		return
	}
	if len(l.at) >= maxMet {
		l.delete(l.ages.Front().Value.(entry[V]).host)
	}
	l.at[host] = l.ages.PushBack(entry[V]{host, value})
}

// get returns the value of a host, which counts as used.
func (l *lru[V]) get(host string) (value V, ok bool) {
	e := l.at[host]
	if e == nil {
		return value, false
	}
	l.ages.MoveToBack(e)
	return e.Value.(entry[V]).value, true
}

func (l *lru[V]) delete(host string) {
	if e := l.at[host]; e != nil {
		l.ages.Remove(e)
		delete(l.at, host)
	}
}
