package fleet

import (
	"container/heap"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// A kind of news.
type kind uint8

const (
	meet kind = iota
	hold
	quota
	failing
	working
	probeFailed
)

// A topic is a thing of which only the latest news counts.
type topic struct {
	kind   kind
	host   string
	scope  uint64
	status int
}

// An item is the news about a topic. It also remembers the news that was sent before, so
// that less needs to be sent.
type item struct {
	topic
	pending bool // there is news to be sent
	again   bool // news came while the last was being sent
	sending bool
	due     time.Time
	index   int // in the heap, if it is pending and not being sent

	until     time.Time // hold: its end. The zero time says that it is over
	quota     transport.FleetQuota
	resets    time.Time // quota
	failures  int
	since     time.Time // failing
	knownTo   time.Time // hold: its end as all members know it
	sent      time.Time // hold: its end as it was sent
	period    string    // quota: the period in which this member was counted
	members   int       // quota: as the Transport was told
	notBefore time.Time // the next time that news of this topic may be sent
}

// An outbox has the news that was not sent yet. News of a topic replaces older news. The
// first news is due at once. The next is due after the gap of the topic. The caller
// locks.
type outbox struct {
	items map[topic]*item
	due   dueHeap
	most  int
	swept time.Time
}

func newOutbox(most int) *outbox { return &outbox{items: map[topic]*item{}, most: most} }

// find returns the item of a topic. It makes one if there is room, else it returns nil.
func (o *outbox) find(t topic, now time.Time) *item {
	if it := o.items[t]; it != nil {
		return it
	}
	if len(o.items) >= o.most && now.Sub(o.swept) > time.Second {
		o.swept = now
		for t, it := range o.items {
			if it.idle(now) {
				delete(o.items, t)
			}
		}
	}
	if len(o.items) >= o.most {
		return nil
	}
	it := &item{topic: t, index: -1}
	o.items[t] = it
	return it
}

// idle reports whether an item has nothing to remember.
func (it *item) idle(now time.Time) bool {
	return !it.pending && !it.sending && !now.Before(it.notBefore) && !now.Before(it.knownTo) && !now.Before(it.resets)
}

// push says that an item has news. It is due at a time, or when its topic may be told
// again.
func (o *outbox) push(it *item, at time.Time) {
	it.pending = true
	switch {
	case it.sending:
		it.again = true
	case it.index < 0:
		it.due = at
		if at.Before(it.notBefore) {
			it.due = it.notBefore
		}
		heap.Push(&o.due, it)
	}
}

// withdraw forgets the news of an item.
func (o *outbox) withdraw(it *item) {
	it.pending, it.again = false, false
	if it.index >= 0 {
		heap.Remove(&o.due, it.index)
	}
}

// take returns up to most items that are due. They are being sent until done.
func (o *outbox) take(now time.Time, most int) []*item {
	var items []*item
	for len(items) < most && len(o.due) > 0 && !now.Before(o.due[0].due) {
		it := heap.Pop(&o.due).(*item)
		it.pending, it.sending = false, true
		items = append(items, it)
	}
	return items
}

// done says that the news of an item was sent. The next may be sent after gap.
func (o *outbox) done(it *item, now time.Time, gap time.Duration) {
	it.sending = false
	it.notBefore = now.Add(gap)
	if it.again {
		it.again = false
		o.push(it, now)
	}
}

// next returns when the next item is due.
func (o *outbox) next() (time.Time, bool) {
	if len(o.due) == 0 {
		return time.Time{}, false
	}
	return o.due[0].due, true
}

// drop forgets all news and returns how many items had some.
func (o *outbox) drop() (n int) {
	for _, it := range o.due {
		it.pending, it.again, it.index = false, false, -1
		n++
	}
	o.due = nil
	return n
}

type dueHeap []*item

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueHeap) Push(x any) {
	it := x.(*item)
	it.index = len(*h)
	*h = append(*h, it)
}
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.index = -1
	return it
}
