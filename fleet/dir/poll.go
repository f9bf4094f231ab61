package dir

import (
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
	tick := time.NewTicker(pollEach)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.poll()
		case <-f.done:
			f.flush()
			f.leave()
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
		f.mu.Lock()
		k := f.hosts[host]
		inUse := k != nil && time.Since(k.used) < pollTime
		f.mu.Unlock()
		if inUse {
			busy = true
			f.refresh(host)
		}
	}
	if time.Since(f.flushed) >= ledger.Gap {
		f.flush()
	}
	if !busy {
		return
	}
	if time.Since(f.beaten) >= beatEach {
		f.beat()
	}
	if time.Since(f.swept) >= sweepEach {
		f.sweep()
	}
}

// use notes whether a host is in use.
func (f *Fleet) use(m fleetmsg.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.hosts[m.Host]; k != nil {
		if m.Busy || m.Amount != k.uses {
			k.used = time.Now()
		}
		k.uses = m.Amount
	}
}

// refresh reads the file of a host if it has changed.
func (f *Fleet) refresh(host string) {
	file := f.stat(host)
	f.mu.Lock()
	k := f.hosts[host]
	old := k == nil || same(k.file, file)
	f.mu.Unlock()
	if old {
		return
	}
	record, file := f.read(host)
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.hosts[host]; k != nil {
		k.file = file
		f.news(k, now(), record)
	}
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

// beat says that this process is a member, and tells it how many there are.
func (f *Fleet) beat() {
	if !f.acquire() {
		return
	}
	defer f.release()
	roll, _ := load[ledger.Roll](f, rollName)
	at := now()
	for i := range roll { // the clock may have jumped
		roll[i].Until = min(roll[i].Until, at.Add(memberFor))
	}
	roll.Join(at, f.id, at.Add(memberFor))
	if !f.write(rollName, roll) {
		return
	}
	f.beaten = time.Now()
	if n := int64(roll.Count(at)); f.size.Swap(n) != n {
		f.mu.Lock()
		f.send(fleetmsg.Message{Kind: fleetmsg.Members, Members: int(n)})
		f.mu.Unlock()
	}
}

// leave says that this process is no member any more.
func (f *Fleet) leave() {
	if f.beaten.IsZero() || !f.acquire() {
		return
	}
	defer f.release()
	roll, _ := load[ledger.Roll](f, rollName)
	roll.Leave(now(), f.id)
	f.write(rollName, roll) // if it fails, the others find out in some seconds
}

// sweep removes the files that are over, and those that make no sense.
func (f *Fleet) sweep() {
	f.swept = time.Now()
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return
	}
	hosts := 0
	for _, e := range entries {
		name := e.Name()
		if len(name) != len(nameOf("")) || !strings.HasSuffix(name, ".json") {
			continue
		}
		hosts++
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()).Abs() < sweepAge || !f.acquire() {
			continue
		}
		r, _ := load[ledger.Record](f, name)
		if (r.Host == "" || r.Expires() < now() || !r.Sane(now(), slack)) && os.Remove(filepath.Join(f.path, name)) == nil {
			hosts--
		}
		f.release()
	}
	f.full.Store(hosts >= maxFiles)
}
