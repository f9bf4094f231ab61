package fleet

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
)

// News is what a member has to tell, and what it knows about the hosts that it uses.
type news struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	out    *outbox
	met    lru    // hosts that this member uses
	full   rarely // log lines about news and questions that are dropped
}

// close takes no more news. It reports false if it was closed before.
func (n *news) close() (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first, n.closed = !n.closed, true
	return first
}

// setDown notes that a host is down for the fleet, if this member uses it.
func (n *news) setDown(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.met.get(host); h != nil {
		h.down = time.Now()
	}
}

// setUp notes that a host was not down at a time. It reports whether it was down before. What
// this member has heard since then counts more.
func (n *news) setUp(host string, at time.Time) (was bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.met.get(host)
	if h == nil || h.down.IsZero() || h.down.After(at) {
		return false
	}
	h.down = time.Time{}
	return true
}

// A topic is a thing of which only the latest news counts.
type topic struct {
	kind   fleetmsg.Kind
	host   string
	scope  uint64
	status int
	unit   string // of a quota or of tokens
}

// An item is the news about a topic. It also remembers the news that was sent before, so
// that less needs to be sent.
type item struct {
	topic
	pending bool // there is news to be sent, after the news that is being sent
	sending bool
	due     time.Time // if it is pending and not being sent

	until     time.Time        // hold: its end
	quota     fleetmsg.Message // quota, and unused tokens
	resets    time.Time        // quota
	failures  int
	since     time.Time // failing
	knownTo   time.Time // hold: its end as all members know it
	forget    time.Time // hold: when this member tells it again all the same
	sent      time.Time // hold: its end as it was sent
	period    string    // quota: the period in which this member was counted
	counted   time.Time // quota: the period is over then
	members   int       // quota: as the Transport was told
	notBefore time.Time // the next time that news of this topic may be sent
}

// The trays of an outbox. Each has its own places. So many quotas leave no hold without a
// place, and nothing takes the places of the news of outages.
const (
	outageTray = iota
	holdTray
	meetTray
	quotaTray
	trays
)

// trayOf has the trays of the kinds of news. The others are in that of outages.
var trayOf = map[fleetmsg.Kind]int{fleetmsg.Hold: holdTray, fleetmsg.Meet: meetTray, fleetmsg.Quota: quotaTray}

// An outbox has the news that was not sent yet. News of a topic replaces older news. The
// first news is due at once. The next is due after the gap of the topic. The caller
// locks.
type outbox struct {
	trays [trays]tray
	turn  int // the tray that comes first in the next batch, after that of outages
}

// A tray has the items of some kinds. If it is full, an item that only remembers makes room.
type tray struct {
	hosts map[string]map[topic]*item
	n     int     // items of all hosts
	due   []*item // that are pending and not being sent, the earliest first
}

func newOutbox() *outbox {
	o := &outbox{}
	for i := range o.trays {
		o.trays[i].hosts = map[string]map[topic]*item{}
	}
	return o
}

// of returns the tray of a topic.
func (o *outbox) of(t topic) *tray { return &o.trays[trayOf[t.kind]] }

// get returns the item of a topic, or nil.
func (o *outbox) get(t topic) *item { return o.of(t).hosts[t.host][t] }

// find returns the item of a topic. It makes one if there is room, else it returns nil.
func (o *outbox) find(t topic, now time.Time) *item {
	y := o.of(t)
	if it := o.get(t); it != nil {
		return it
	}
	if !y.makeRoom(t.host, now) {
		return nil
	}
	if y.hosts[t.host] == nil {
		y.hosts[t.host] = map[topic]*item{}
	}
	it := &item{topic: t}
	y.hosts[t.host][t] = it
	y.n++
	return it
}

// maxLooks is at how many items makeRoom looks at most, so that news costs about the same however many there are.
const maxLooks = 64

// makeRoom makes room for an item of a host. Within the share of a host the gaps count, so
// that many scopes in turn do not send more than the share in a gap. Between hosts they do not.
func (y *tray) makeRoom(host string, now time.Time) bool {
	looks := 0
	if of := y.hosts[host]; len(of) >= maxScope {
		for _, it := range of { // in random order, also below
			if it.forgettable(now) && !now.Before(it.notBefore) {
				y.remove(it)
				break
			}
			if looks++; looks >= maxLooks {
				return false
			}
		}
	}
	if y.n < maxItems {
		return true
	}
	for name, of := range y.hosts {
		for _, it := range of {
			if name != host && it.forgettable(now) {
				y.remove(it)
				return true
			}
			if looks++; looks >= maxLooks {
				return false
			}
		}
	}
	return false
}

// forgettable reports whether an item only remembers, and it does no harm to forget it. A member that forgets the
// period in which it was counted would be counted twice.
func (it *item) forgettable(now time.Time) bool {
	return !it.pending && !it.sending && !now.Before(it.counted)
}

func (y *tray) remove(it *item) {
	y.n--
	if delete(y.hosts[it.host], it.topic); len(y.hosts[it.host]) == 0 {
		delete(y.hosts, it.host)
	}
}

// push says that an item has news. It is due at a time, or when its topic may be told
// again.
func (o *outbox) push(it *item, at time.Time) {
	y := o.of(it.topic)
	if !it.pending && !it.sending {
		it.due = at
		if at.Before(it.notBefore) {
			it.due = it.notBefore
		}
		i := sort.Search(len(y.due), func(i int) bool { return y.due[i].due.After(it.due) })
		y.due = slices.Insert(y.due, i, it)
	}
	it.pending = true
}

// withdraw forgets the news of an item.
func (o *outbox) withdraw(it *item) {
	y := o.of(it.topic)
	it.pending = false
	if i := slices.Index(y.due, it); i >= 0 {
		y.due = slices.Delete(y.due, i, i+1)
	}
}

// take returns up to most items that are due. They are being sent until done. The trays
// take turns, so that no news waits behind all news of another tray.
func (o *outbox) take(now time.Time, most int) []*item {
	var items []*item
	for empty := 0; len(items) < most && empty < trays; o.turn = (o.turn + 1) % trays {
		y := &o.trays[o.turn]
		if len(y.due) == 0 || now.Before(y.due[0].due) {
			empty++
			continue
		}
		empty = 0
		it := y.due[0]
		y.due = slices.Delete(y.due, 0, 1)
		it.pending, it.sending = false, true
		items = append(items, it)
	}
	return items
}

// done says that the news of an item was sent. The next may be sent after gap.
func (o *outbox) done(it *item, now time.Time, gap time.Duration) {
	it.sending = false
	it.notBefore = now.Add(gap)
	if it.pending {
		it.pending = false
		o.push(it, now)
	}
}

// next returns when the next item is due.
func (o *outbox) next() (next time.Time, ok bool) {
	for i := range o.trays {
		if y := &o.trays[i]; len(y.due) > 0 && (!ok || y.due[0].due.Before(next)) {
			next, ok = y.due[0].due, true
		}
	}
	return next, ok
}

// drop forgets all news and returns how many items had some.
func (o *outbox) drop() (n int) {
	for i := range o.trays {
		y := &o.trays[i]
		for _, it := range y.due {
			it.pending = false
		}
		n += len(y.due)
		y.due = nil
	}
	return n
}
