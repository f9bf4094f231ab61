// Package mailbox hands messages to a function, one after the other.
package mailbox

import "sync"

// A Box has messages for a function. A goroutine calls the function, and ends when there are
// no more messages. So nobody who puts something into the Box waits. The zero Box is ready. It
// is safe for concurrent use.
type Box[M any] struct {
	mu    sync.Mutex // guards the fields below
	queue []M
	busy  bool // the goroutine runs
}

// Put adds messages for hear. All calls have the same hear.
func (b *Box[M]) Put(hear func(M), messages ...M) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, messages...)
	if len(b.queue) > 0 && !b.busy {
		b.busy = true
		go b.empty(hear)
	}
}

func (b *Box[M]) empty(hear func(M)) {
	for {
		b.mu.Lock()
		queue := b.queue
		b.queue, b.busy = nil, len(queue) > 0
		b.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, m := range queue {
			hear(m)
		}
	}
}
