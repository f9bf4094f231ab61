package dir

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// loop looks after the files, until Close.
func (f *Fleet) loop() {
	tick := time.Tick(pollEach)
	for {
		select {
		case <-tick:
			f.poll()
		case <-f.done:
			f.flush()
			if f.beaten.Load() != nil {
				f.beat(0)
			}
			return
		}
	}
}

// poll looks for news of the hosts that are in use.
func (f *Fleet) poll() {
	f.mu.Lock()
	hosts := slices.Collect(maps.Keys(f.hosts))
	f.mu.Unlock()
	busy := false
	for _, host := range hosts {
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
	if at := f.beaten.Load(); at == nil || time.Since(*at) >= beatEach {
		f.beat(memberFor)
	}
	if time.Since(f.swept) >= sweepEach {
		f.sweep()
	}
}

// use notes whether a host is in use.
func (f *Fleet) use(m fleetmsg.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.find(m.Host)
	if m.Busy || m.Amount != k.uses {
		k.used = time.Now()
	}
	k.uses = m.Amount
}

// refresh reads the file of a host if it has changed. It reports false, and touches no file, if
// the host is not in use.
func (f *Fleet) refresh(host string) (inUse bool) {
	f.mu.Lock()
	k := f.find(host)
	inUse = time.Since(k.used) < pollTime
	old := !inUse || same(k.file, f.stat(nameOf(host)))
	f.mu.Unlock()
	if old {
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
	for _, m := range due {
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

// sweep removes the files of hosts that are over, and those that make no sense.
func (f *Fleet) sweep() {
	f.swept = time.Now()
	names, _ := fs.Glob(os.DirFS(f.path), strings.Repeat("?", len(nameOf("")))) // it does not fail
	left := len(names)
	for _, name := range names {
		info := f.stat(name)
		if info == nil || time.Since(info.ModTime()).Abs() < sweepAge || !f.acquire() {
			continue
		}
		r, _ := load[ledger.Record](f, name)
		if (r.Host == "" || r.Expires() < now() || !r.Sane(now(), slack)) && os.Remove(filepath.Join(f.path, name)) == nil {
			left--
		}
		f.release()
	}
	f.full.Store(left >= maxFiles)
}
