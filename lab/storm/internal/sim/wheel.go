// A queue of events in virtual time.

package sim

// A wheel holds at most one event per client, in a list per millisecond. Every
// operation takes the same short time for any number of clients. A heap of a million
// events would miss the cache some twenty times per event. Times beyond the end of
// the run are dropped.
type wheel struct {
	first []int32 // by millisecond: the first client, or none
	links []link  // by client
}

type link struct {
	next, prev int32
	at         int32 // the millisecond; none: no event
}

const none = -1

func newWheel(clients, end int) *wheel {
	w := &wheel{first: make([]int32, end+1), links: make([]link, clients)}
	for i := range w.first {
		w.first[i] = none
	}
	for i := range w.links {
		w.links[i].at = none
	}
	return w
}

// set plans the client's event. It replaces an earlier event of the client.
func (w *wheel) set(client int32, at int64) {
	w.clear(client)
	if at >= int64(len(w.first)) {
		return
	}
	l := &w.links[client]
	l.at, l.prev, l.next = int32(at), none, w.first[at]
	if l.next != none {
		w.links[l.next].prev = client
	}
	w.first[at] = client
}

// clear drops the client's event.
func (w *wheel) clear(client int32) {
	l := &w.links[client]
	if l.at == none {
		return
	}
	if l.prev == none {
		w.first[l.at] = l.next
	} else {
		w.links[l.prev].next = l.next
	}
	if l.next != none {
		w.links[l.next].prev = l.prev
	}
	l.at = none
}

// take returns a client whose event is at that millisecond, and drops it.
func (w *wheel) take(at int64) (client int32, ok bool) {
	client = w.first[at]
	if client == none {
		return 0, false
	}
	w.clear(client)
	return client, true
}
