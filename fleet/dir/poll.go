package dir

import (
	"maps"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// work touches the files, until Close. If the disk does not answer, it stands still here, and
// nobody waits for it.
func (f *Fleet) work() {
	defer close(f.ended)
	tick := time.NewTicker(pollEach)
	defer tick.Stop()
	for {
		select {
		case j := <-f.jobs:
			f.do(j)
		case <-tick.C:
			f.poll()
			f.polled.Store(new(time.Now()))
		case <-f.done:
			f.leave()
			return
		}
	}
}

func (f *Fleet) do(j job) {
	f.take(j.Message, j.at)
	close(j.done)
	if len(f.jobs) == 0 { // otherwise a further request would wait for them as well
		f.stuck.Store(false)
	}
}

// leave tells the last news, for as long as Close waits for sure, and leaves the fleet.
func (f *Fleet) leave() {
	f.left = time.Now().Add(leaving / 2)
	for len(f.jobs) > 0 { // nobody else receives
		f.do(<-f.jobs)
	}
	f.flush()
	if f.beaten.Load() != nil {
		f.beat(0)
	}
	_ = f.files.Close() // nothing is left to be written
}

// poll looks for news of the hosts that are in use.
func (f *Fleet) poll() {
	busy := false
	for _, host := range f.turn() {
		f.hear(fleetmsg.Message{Kind: fleetmsg.AskUse, Host: host})
		busy = f.refresh(host) || busy
	}
	if time.Since(f.flushed) >= ledger.Gap {
		f.flush()
	}
	if !busy {
		f.missed.Store(0) // nobody tries
		return
	}
	if time.Since(f.looked) >= beatEach {
		f.look()
	}
	if at := f.beaten.Load(); at == nil || time.Since(*at) >= beatEach {
		f.beat(memberFor)
	}
	f.sweep()
}

// turn returns the hosts whose turn it is: those in use, and those that may be in use again. If
// there are more than maxPoll of either, they take turns.
func (f *Fleet) turn() (hosts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticks++
	var counts [2]int
	for e := f.order.Front(); e != nil; e = e.Next() {
		k, group := e.Value.(*known), 0
		if time.Since(k.used) < pollTime {
			group = 1
		}
		if (k.number+f.ticks)%f.turns[group] == 0 {
			hosts = append(hosts, k.host)
		}
		counts[group]++
	}
	for group, n := range counts {
		f.turns[group] = 1 + max(0, n-1)/maxPoll
	}
	return hosts
}

// use notes whether a host is in use.
func (f *Fleet) use(m fleetmsg.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.hosts[m.Host]
	if k == nil {
		return
	}
	if m.Busy || m.Amount != k.uses {
		f.touch(k)
	}
	k.uses = m.Amount
}

// refresh reads the file of a host if it has changed. It reports false, and touches no file, if
// the host is not in use. Then only the mark of its last news is kept.
func (f *Fleet) refresh(host string) (inUse bool) {
	f.mu.Lock()
	k := f.find(host)
	inUse = time.Since(k.used) < pollTime
	if !inUse {
		k.record, k.file = ledger.Record{}, nil
	}
	file := k.file
	f.mu.Unlock()
	if !inUse || same(file, f.stat(nameOf(host))) {
		return inUse
	}
	record, file := f.read(host)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news(f.find(host), record, file)
	return true
}

// flush tells the news that was put off.
func (f *Fleet) flush() {
	f.flushed = time.Now()
	f.mu.Lock()
	due := f.late
	f.late = map[fleetmsg.Message]late{}
	f.mu.Unlock()
	for _, m := range slices.SortedFunc(maps.Values(due), func(a, b late) int { return a.at.Compare(b.at) }) {
		f.update(m.Message, m.at)
	}
}

// rollName is the file of the members.
const rollName = "members.json"

// beat says that this process is a member for so long, and tells it how many there are. At the
// end it is one for no time.
func (f *Fleet) beat(lasts time.Duration) {
	f.missed.Add(1)
	if !f.acquire() {
		return
	}
	defer f.release()
	roll, _ := load[ledger.Roll](f, rollName)
	at := now()
	for i := range roll { // the clock may have jumped
		roll[i].Until = min(roll[i].Until, at.Add(memberFor))
	}
	roll.Join(at, f.id, at.Add(lasts))
	if !f.write(rollName, roll) {
		return // if it was the last time, the others find out in some seconds
	}
	f.beaten.Store(new(time.Now()))
	f.missed.Store(0)
	if n := int64(roll.Count(at)); lasts > 0 && f.size.Swap(n) != n {
		f.box.Put(f.answer, fleetmsg.Message{Kind: fleetmsg.Members, Members: int(n)})
	}
}
