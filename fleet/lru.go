package fleet

import (
	"container/list"
	"time"
)

// An lru has the hosts that a member uses, at most maxMet. The host that was not used for the longest time
// makes room for another.
type lru struct {
	at   map[string]*list.Element
	ages list.List // of *met, the oldest first
}

// A met is a host that a member uses.
type met struct {
	host string
	down time.Time // when it was said that the host is down for the fleet; zero: it is not
}

// add adds a host, unless it is there.
func (l *lru) add(host string) {
	if l.get(host) != nil {
		return
	}
	if len(l.at) >= maxMet {
		delete(l.at, l.ages.Remove(l.ages.Front()).(*met).host)
	}
	l.at[host] = l.ages.PushBack(&met{host: host})
}

// get returns a host, which counts as used, or nil.
func (l *lru) get(host string) *met {
	e := l.at[host]
	if e == nil {
		return nil
	}
	l.ages.MoveToBack(e)
	return e.Value.(*met)
}
