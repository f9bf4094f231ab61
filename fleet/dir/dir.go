package dir

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/aplomb-go/aplomb/fleet/internal/keyed"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/mailbox"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	lockWait   = 10 * time.Millisecond // for the lock
	lockEach   = 300 * time.Microsecond
	lockPause  = 50 * time.Millisecond // after the lock was not free, nobody waits for it
	answerTime = 10 * time.Millisecond // a later answer counts for nothing
	pollEach   = 25 * time.Millisecond
	pollTime   = 10 * time.Second // a host that was used counts as in use for so long
	beatEach   = 2 * time.Second
	memberFor  = 3*beatEach + time.Second // a member that says nothing counts for so long
	lostAfter  = 40                       // heartbeats that failed in a row; while a host is in use, there are 40 in a second
	sweepEach  = time.Minute
	sweepAge   = 10 * time.Minute // a younger file stays
	slack      = time.Second      // by which the clock may go back

	maxHosts = 256             // that a process looks after
	maxFiles = 1024            // of hosts in the directory
	maxLate  = 1024            // news that is told later
	lateMost = 5 * time.Second // then it is old
	maxBytes = 1 << 20
)

// Config configures a Fleet.
type Config struct {
	// Path is the directory. New makes it with the mode 0700 if it does not exist. It has to be
	// on a local disk, and nobody else may write it. Required.
	Path string
}

// A Fleet is a transport.Fleet over a directory. It serves a single Transport. It is safe for
// concurrent use. Make it with [New], and call Close at the end.
type Fleet struct {
	path   string
	id     int64 // of this member
	scope  keyed.Hash
	turn   chan struct{} // has a place for the goroutine that may lock
	lock   *flock.Flock
	closed atomic.Bool
	done   chan struct{} // closed by Close
	group  sync.WaitGroup

	size             atomic.Int64
	dropped, touched atomic.Uint64             // touched: how often a file was looked at, read or locked
	blocked          time.Time                 // until then the lock is not tried; belongs to the goroutine that has the turn
	full             atomic.Bool               // the directory has too many files
	swept, flushed   time.Time                 // belong to the goroutine that polls
	beaten           atomic.Pointer[time.Time] // the last heartbeat; only the goroutine that polls stores it
	missed           atomic.Int64              // heartbeats in a row that failed
	member           atomic.Pointer[func(fleetmsg.Message)]
	box              mailbox.Box[fleetmsg.Message] // to be heard

	mu    sync.Mutex // guards the fields below
	hosts map[string]*known
	late  map[fleetmsg.Message]late // news that is told later, by what it is about
}

// A late is news that is told later.
type late struct {
	fleetmsg.Message
	at time.Time
}

// known is what this process knows of a host.
type known struct {
	file   fs.FileInfo     // as it was read last; nil: there was none
	record ledger.Record   // that was in it
	heard  instant.Instant // the mark of the last news
	uses   float64         // how many requests have begun
	used   time.Time       // when it was used last
	asked  time.Time       // when the last question for tokens was asked
}

// New returns a Fleet. It makes the directory if there is none, and returns an error if it
// cannot be used or if others can write it.
func New(c Config) (*Fleet, error) {
	f, err := open(c)
	if err == nil {
		f.group.Go(f.loop)
	}
	return f, err
}

// open returns a Fleet that does not look for news yet.
func open(c Config) (*Fleet, error) {
	path, err := prepare(c.Path)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		path:  path,
		id:    1 + rand.Int64N(1<<53-1),
		turn:  make(chan struct{}, 1),
		lock:  flock.New(filepath.Join(path, "lock"), flock.SetPermissions(0o600)),
		done:  make(chan struct{}),
		hosts: map[string]*known{},
		late:  map[fleetmsg.Message]late{},
	}
	f.scope = keyed.New(f.key())
	return f, nil
}

// Close gives back the tokens of rates that this member has not used, tells the last news, and
// leaves the fleet. It takes a few 10 ms at most. Later calls of
// any method do nothing. The Transport can be used on, with its own knowledge.
func (f *Fleet) Close() {
	f.hear(fleetmsg.Message{Kind: fleetmsg.Leave})
	if !f.closed.Swap(true) {
		close(f.done)
	}
	f.group.Wait()
}

// Join makes a Transport the member. New of package transport calls it.
func (f *Fleet) Join(hear func(fleetmsg.Message)) error {
	if !f.member.CompareAndSwap(nil, &hear) {
		return errors.New("dir: a Fleet serves a single Transport, and this Fleet has another already")
	}
	return nil
}

// Scope returns the first 64 bits of the HMAC-SHA256 of a text, and 0 for no text.
func (f *Fleet) Scope(text string) uint64 { return f.scope.Scope(text) }

// Tell takes news and questions. It waits for a file for 10 ms at most.
func (f *Fleet) Tell(m fleetmsg.Message) {
	switch {
	case f.closed.Load():
	case m.Kind == fleetmsg.Use:
		f.use(m)
	case !ledger.Valid(m):
	case m.Kind == fleetmsg.Meet:
		f.meet(m)
	case !f.spared(m):
		f.update(m, time.Now())
	}
}

// meet lets the member hear at once what the file of a host says.
func (f *Fleet) meet(m fleetmsg.Message) {
	record, file := f.read(m.Host)
	f.mu.Lock()
	k := f.find(m.Host)
	k.used = time.Now()
	answers, _ := record.Tell(now(), f.id, f.members(), m)
	k.record, k.file, k.heard = record, file, max(k.heard, record.Last())
	f.mu.Unlock()
	for _, a := range answers {
		f.hear(a)
	}
}

// update changes the file of a host, by news from that time. If it cannot, a question is
// dropped, and news is told later.
func (f *Fleet) update(m fleetmsg.Message, from time.Time) {
	if time.Since(from) > lateMost || f.change(m, from) {
		return
	}
	f.dropped.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Kind != fleetmsg.AskProbe && m.Kind != fleetmsg.AskTokens {
		f.put(m, from)
	}
}

// put lets news be told later. Newer news takes its place; the lock is held.
func (f *Fleet) put(m fleetmsg.Message, from time.Time) {
	about := fleetmsg.Message{Kind: m.Kind, Host: m.Host, Scope: m.Scope, Status: m.Status, Unit: m.Unit}
	if old, ok := f.late[about]; (ok || len(f.late) < maxLate) && !old.at.After(from) {
		f.late[about] = late{m, from}
	}
}

// change changes the file of a host, by news from that time. It reports false if it cannot.
func (f *Fleet) change(m fleetmsg.Message, from time.Time) bool {
	if !f.acquire() {
		return false
	}
	defer f.release()
	record, file := f.read(m.Host)
	if m.Kind == fleetmsg.AskTokens && time.Since(from) > answerTime*2/3 {
		return false // the answer would come too late
	}
	answers, changed := record.Tell(now().Add(-time.Since(from)), f.id, f.members(), m)
	if changed && (file == nil && f.full.Load() || !f.write(nameOf(m.Host), &record)) {
		return false
	}
	if changed {
		file = f.stat(nameOf(m.Host))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.find(m.Host)
	k.used = time.Now()
	if m.Kind == fleetmsg.AskTokens {
		k.asked = from
	}
	f.news(k, record, file)
	f.box.Put(f.answer, answers...)
	return true
}

// news queues what the member has not heard of a host, whose file was read; the lock is held.
func (f *Fleet) news(k *known, record ledger.Record, file fs.FileInfo) {
	if record.Last() < k.heard { // the file was lost
		k.heard = 0
	}
	f.box.Put(f.answer, record.News(now(), f.id, f.members(), k.heard)...)
	k.record, k.file, k.heard = record, file, record.Last()
}

// spared reports whether news need not be written now: the file says the same of a hold, or
// this member told of a quota a moment ago, and tells the rest later.
func (f *Fleet) spared(m fleetmsg.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch k := f.find(m.Host); {
	case m.Kind == fleetmsg.Hold:
		return same(k.file, f.stat(nameOf(m.Host))) && !k.record.WouldHold(now(), m)
	case m.Kind == fleetmsg.Quota && k.record.ToldQuota(now(), f.id, m.Scope, m.Unit):
		f.put(m, time.Now())
		return true
	}
	return false
}

// find returns what is known of a host. If there are too many, all are forgotten. Then the
// member may hear news again; the lock is held.
func (f *Fleet) find(host string) *known {
	if f.hosts[host] == nil {
		if len(f.hosts) >= maxHosts {
			clear(f.hosts)
		}
		f.hosts[host] = new(known)
	}
	return f.hosts[host]
}

// members returns how many members there are, as far as is known.
func (f *Fleet) members() int { return max(1, int(f.size.Load())) }

// answer lets the Transport hear a message. Tokens that come too late are not used.
func (f *Fleet) answer(m fleetmsg.Message) {
	f.hear(m)
	if m.Kind != fleetmsg.Tokens {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.find(m.Host)
	if time.Since(k.asked) > answerTime {
		f.dropped.Add(1)
	}
}

// hear lets the Transport hear a message, if one has joined.
func (f *Fleet) hear(m fleetmsg.Message) {
	if hear := f.member.Load(); hear != nil {
		(*hear)(m)
	}
}

// now is the time of the files.
func now() instant.Instant { return instant.At(time.Duration(time.Now().UnixNano())) }

// FleetState returns the figures that any backend has, for the metrics of the Transport. The
// Fleet counts as connected as long as it can write to the directory, or does not try.
func (f *Fleet) FleetState() transport.FleetState {
	s := transport.FleetState{
		Connected:    !f.closed.Load() && f.missed.Load() < lostAfter,
		Members:      int(f.size.Load()),
		Commands:     f.touched.Load(),
		Dropped:      f.dropped.Load(),
		HeartbeatAge: -1,
	}
	if at := f.beaten.Load(); at != nil {
		s.HeartbeatAge = time.Since(*at).Seconds()
	}
	return s
}
