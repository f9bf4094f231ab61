package fleet

import (
	"container/list"
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
	met    *lru[struct{}]  // hosts that this member uses
	down   *lru[time.Time] // hosts that are down for the fleet, and when it was said
	full   rarely          // log lines about news and questions that are dropped
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
	if _, met := n.met.get(host); met {
		n.down.set(host, time.Now())
	}
}

// setUp notes that a host was not down at a time. It reports whether it was down before. What
// this member has heard since then counts more.
func (n *news) setUp(host string, at time.Time) (was bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	said, was := n.down.get(host)
	if was && said.After(at) {
		return false
	}
	n.down.delete(host)
	return was
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
	due     time.Time     // if it is pending and not being sent
	rest    *list.Element // in the list of the tray, if it only remembers
	ofHost  *list.Element // in the list of the host, if it only remembers

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

// A tray has the items of some kinds. If it is full, an item that only remembers makes room,
// the oldest first.
type tray struct {
	items   map[topic]*item
	due     []*item                // that are pending and not being sent, the earliest first
	resting list.List              // of *item, the oldest first
	hosts   map[string]*hostsShare // nil if only one item of each kind can be of a host
}

// hostsShare are the items of a host in a tray.
type hostsShare struct {
	count   int
	resting list.List
}

func newOutbox() *outbox {
	o := &outbox{}
	for i := range o.trays {
		o.trays[i].items = map[topic]*item{}
	}
	o.trays[holdTray].hosts = map[string]*hostsShare{}
	o.trays[quotaTray].hosts = map[string]*hostsShare{}
	return o
}

// get returns the item of a topic, or nil.
func (o *outbox) get(t topic) *item { return o.trays[trayOf[t.kind]].items[t] }

// find returns the item of a topic. It makes one if there is room, else it returns nil.
func (o *outbox) find(t topic, now time.Time) *item {
	y := &o.trays[trayOf[t.kind]]
	if it := y.items[t]; it != nil {
		return it
	}
	if !y.makeRoom(t.host, now) {
		return nil
	}
	it := &item{topic: t}
	y.items[t] = it
	if y.hosts != nil {
		if y.hosts[t.host] == nil {
			y.hosts[t.host] = &hostsShare{}
		}
		y.hosts[t.host].count++
	}
	y.settle(it)
	return it
}

// makeRoom makes room for an item of a host. Within the share of a host the gaps count, so
// that many scopes in turn do not send more than the share in a gap. Between hosts the
// oldest item gives way in any case.
func (y *tray) makeRoom(host string, now time.Time) bool {
	if h := y.hosts[host]; h != nil && h.count >= maxScope {
		e := h.resting.Front()
		if e == nil || now.Before(e.Value.(*item).notBefore) || !e.Value.(*item).forgettable(now) {
			return false
		}
		y.remove(e.Value.(*item))
	}
	if len(y.items) < maxItems {
		return true
	}
	e := y.resting.Front()
	if e == nil || !e.Value.(*item).forgettable(now) {
		return false
	}
	y.remove(e.Value.(*item))
	return true
}

// forgettable reports whether it does no harm to forget an item. A member that forgets the
// period in which it was counted would be counted twice.
func (it *item) forgettable(now time.Time) bool { return !now.Before(it.counted) }

func (y *tray) remove(it *item) {
	y.unsettle(it)
	delete(y.items, it.topic)
	if h := y.hosts[it.host]; h != nil {
		if h.count--; h.count == 0 {
			delete(y.hosts, it.host)
		}
	}
}

// settle puts an item that only remembers at the end of the lists.
func (y *tray) settle(it *item) {
	y.unsettle(it)
	if it.pending || it.sending {
		return
	}
	it.rest = y.resting.PushBack(it)
	if h := y.hosts[it.host]; h != nil {
		it.ofHost = h.resting.PushBack(it)
	}
}

func (y *tray) unsettle(it *item) {
	if it.rest != nil {
		y.resting.Remove(it.rest)
		it.rest = nil
	}
	if it.ofHost != nil {
		y.hosts[it.host].resting.Remove(it.ofHost)
		it.ofHost = nil
	}
}

// push says that an item has news. It is due at a time, or when its topic may be told
// again.
func (o *outbox) push(it *item, at time.Time) {
	y := &o.trays[trayOf[it.kind]]
	if !it.pending && !it.sending {
		it.due = at
		if at.Before(it.notBefore) {
			it.due = it.notBefore
		}
		i := sort.Search(len(y.due), func(i int) bool { return y.due[i].due.After(it.due) })
		y.due = slices.Insert(y.due, i, it)
	}
	it.pending = true
	y.settle(it)
}

// withdraw forgets the news of an item.
func (o *outbox) withdraw(it *item) {
	y := &o.trays[trayOf[it.kind]]
	it.pending = false
	if i := slices.Index(y.due, it); i >= 0 {
		y.due = slices.Delete(y.due, i, i+1)
	}
	y.settle(it)
}

// touch says that an item remembers something new.
func (o *outbox) touch(it *item) { o.trays[trayOf[it.kind]].settle(it) }

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
		y.settle(it)
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
		return
	}
	o.touch(it)
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
		due := y.due
		y.due = nil
		for _, it := range due {
			it.pending = false
			y.settle(it)
			n++
		}
	}
	return n
}
