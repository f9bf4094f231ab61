package dir

import (
	"container/list"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/fleet/internal/keyed"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/mailbox"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	lockWait     = 10 * time.Millisecond // for the lock
	lockEach     = 300 * time.Microsecond
	lockPause    = 50 * time.Millisecond // after the lock was not free, nobody waits for it
	answerTime   = 10 * time.Millisecond // a request waits so long, and a later answer counts for nothing
	answerPieces = 10
	leaving      = 100 * time.Millisecond // Close waits so long
	pollEach     = 25 * time.Millisecond
	pollTime     = 10 * time.Second // a host that was used counts as in use for so long
	beatEach     = 2 * time.Second
	memberFor    = 3*beatEach + time.Second // a member that says nothing counts for so long
	lostAfter    = 40                       // heartbeats that failed in a row; while a host is in use, there are 40 in a second
	sweepEach    = time.Minute
	sweepSome    = 16               // files that are looked at in a tick
	evictSome    = 64               // files that make room together
	sweepAge     = 10 * time.Minute // a younger file stays
	sayEach      = time.Minute      // between two log lines of the same kind
	slack        = time.Second      // by which the clock may go back

	maxHosts = 4096            // that a process looks after
	maxPoll  = 1024            // hosts that it looks after at once; if there are more, they take turns
	maxFiles = 1024            // of hosts in the directory
	maxJobs  = 1024            // messages that wait for the files
	maxLate  = 1024            // news that is told later
	lateMost = 5 * time.Second // then it is old
	maxBytes = 4 << 20         // of a file; 256 quotas with 128 users each have 2.5 MiB
)

// Config configures a Fleet.
type Config struct {
	// Path is the directory. New makes it with the mode 0700 if it does not exist. All files are
	// in a folder aplomb-fleet in it, which New makes, too. The directory has to be on a local
	// disk, and nobody else may write it. Required.
	Path string

	// Logger gets a log line if others can put another directory in the place of this one. It
	// gets one if the folder or the key was gone, or has another key. A handler that blocks holds
	// up nothing but the log. Default none.
	Logger *slog.Logger
}

// A Fleet is a transport.Fleet over a directory. It serves a single Transport. It is safe for
// concurrent use. Make it with [New], and call Close at the end.
type Fleet struct {
	path   string
	id     int64 // of this member
	logger *slog.Logger
	scope  atomic.Pointer[keyed.Hash]
	jobs   chan job
	done   chan struct{} // closed by Close
	ended  chan struct{} // closed when the goroutine that touches the files has ended; nil: there is none
	closed atomic.Bool
	stuck  atomic.Bool // a request has waited in vain, and nothing was done since

	size             atomic.Int64
	dropped, touched atomic.Uint64             // touched: how often a file was looked at, read or locked
	beaten, polled   atomic.Pointer[time.Time] // the last heartbeat, and when the goroutine was last seen
	missed           atomic.Int64              // heartbeats in a row that failed
	member           atomic.Pointer[func(fleetmsg.Message)]
	box              mailbox.Box[fleetmsg.Message] // to be heard
	lines            mailbox.Box[func()]           // to be logged

	mu    sync.Mutex // guards the fields below, and is never held while a file is touched
	hosts map[string]*known
	order list.List                 // of *known, the one that was used last comes first
	late  map[fleetmsg.Message]late // news that is told later, by what it is about

	disk
}

// A disk is what belongs to the goroutine that touches the files.
type disk struct {
	files   files
	home    fs.FileInfo   // of the folder
	key     func() []byte // a function, so that no format prints the key
	keyFile fs.FileInfo   // as it was read last; nil: it was not
	lock    *os.File      // while it is held
	blocked time.Time     // until then the lock is not tried
	full    time.Time     // until then no room is made for further files
	said    map[string]time.Time

	swept, flushed, looked time.Time
	sweeping               []string  // the files that are still to be looked at
	left                   time.Time // nothing is told later; zero: Close was not called
	ticks                  int
	turns                  [2]int // ticks until each idle host, and each in use, had its turn
}

// A job is a message for the goroutine that touches the files.
type job struct {
	fleetmsg.Message
	at   time.Time
	done chan struct{}
}

// A late is news that is told later.
type late struct {
	fleetmsg.Message
	at time.Time
}

// known is what this process knows of a host.
type known struct {
	host   string
	number int             // at random, so that hosts take turns
	file   fs.FileInfo     // as it was read last; nil: there was none
	record ledger.Record   // that was in it
	heard  instant.Instant // the mark of the last news
	uses   float64         // how many requests have begun
	used   time.Time       // when it was used last
	place  *list.Element   // in the order of the hosts
	asked  time.Time       // when the last question for tokens was asked
}

// New returns a Fleet. It makes the directory if there is none, and returns an error if it
// cannot be used or if others can write it.
func New(c Config) (*Fleet, error) {
	f, err := open(c)
	if err == nil {
		f.start()
	}
	return f, err
}

// open returns a Fleet whose files nobody touches yet.
func open(c Config) (*Fleet, error) {
	if c.Path == "" {
		return nil, errors.New("dir: Path is empty")
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		path:   path,
		id:     1 + rand.Int64N(1<<53-1),
		logger: c.Logger,
		jobs:   make(chan job, maxJobs),
		done:   make(chan struct{}),
		hosts:  map[string]*known{},
		late:   map[fleetmsg.Message]late{},
	}
	f.said, f.turns = map[string]time.Time{}, [2]int{1, 1}
	f.files, f.home, err = openFolder(path)
	if err != nil {
		return nil, err
	}
	if parts := loose(path); len(parts) > 0 {
		f.say("fleet: others can put another directory in the place of this one", "path", path, "writable", strings.Join(parts, ", "))
	}
	f.firstKey()
	return f, nil
}

// start begins to touch the files in a goroutine of its own.
func (f *Fleet) start() {
	f.polled.Store(new(time.Now()))
	f.ended = make(chan struct{})
	go f.work()
}

// Close gives back the tokens of rates that this member has not used, tells the last news, and
// leaves the fleet. It takes 0.1 s at most, also if the disk does not answer. Later calls of any
// method do nothing. The Transport can be used on, with its own knowledge.
func (f *Fleet) Close() {
	f.hear(fleetmsg.Message{Kind: fleetmsg.Leave})
	if !f.closed.Swap(true) {
		close(f.done)
	}
	if f.ended == nil {
		return
	}
	select {
	case <-f.ended:
	case <-time.After(leaving):
	}
}

// Join makes a Transport the member. New of package transport calls it.
func (f *Fleet) Join(hear func(fleetmsg.Message)) error {
	if !f.member.CompareAndSwap(nil, &hear) {
		return errors.New("dir: a Fleet serves a single Transport, and this Fleet has another already")
	}
	return nil
}

// Scope returns the first 64 bits of the HMAC-SHA256 of a text, and 0 for no text.
func (f *Fleet) Scope(text string) uint64 { return f.scope.Load().Scope(text) }

// Tell takes news and questions. It waits until the file of a new host is read, and until a hold
// is written, for 10 ms at most. If that was in vain, it does not wait again until the disk has
// answered.
func (f *Fleet) Tell(m fleetmsg.Message) {
	switch {
	case f.closed.Load():
	case m.Kind == fleetmsg.Use:
		f.use(m)
	case ledger.Valid(m):
		f.hand(job{m, time.Now(), make(chan struct{})})
	}
}

// hand hands a message over to the goroutine that touches the files.
func (f *Fleet) hand(j job) {
	select {
	case f.jobs <- j:
	default:
		f.failed(j.Message, j.at)
		return
	}
	if j.Kind != fleetmsg.Meet && j.Kind != fleetmsg.Hold || f.stuck.Load() {
		return
	}
	// The time counts in pieces. If the machine gives the process no time, only one piece passes.
	// In the other pieces the goroutine gets its turn.
	pieces := time.NewTicker(answerTime / answerPieces)
	defer pieces.Stop()
	for range answerPieces {
		select {
		case <-j.done:
			return
		case <-f.done:
			return
		case <-pieces.C:
		}
	}
	f.stuck.Store(true)
	select {
	case <-j.done: // just now
		f.stuck.Store(false)
	default:
	}
}

// take does what a message asks for.
func (f *Fleet) take(m fleetmsg.Message, from time.Time) {
	switch {
	case m.Kind == fleetmsg.Meet:
		f.meet(m)
	case !f.spared(m):
		f.update(m, from)
	}
}

// meet lets the member hear what the file of a host says.
func (f *Fleet) meet(m fleetmsg.Message) {
	record, file := f.read(m.Host)
	f.mu.Lock()
	k := f.find(m.Host)
	f.touch(k)
	answers, _ := record.Tell(now(), f.id, f.members(), m)
	k.record, k.file, k.heard = record, file, max(k.heard, record.Last())
	f.mu.Unlock()
	for _, a := range answers {
		f.hear(a)
	}
}

// update changes the file of a host, by news from that time. News that is too old is dropped.
func (f *Fleet) update(m fleetmsg.Message, from time.Time) {
	switch {
	case time.Since(from) > lateMost, !f.left.IsZero() && time.Now().After(f.left):
		f.dropped.Add(1)
	case !f.change(m, from):
		f.failed(m, from)
	}
}

// failed notes that the file of a host could not be changed. A question is dropped, and news is
// told later.
func (f *Fleet) failed(m fleetmsg.Message, from time.Time) {
	f.dropped.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m.Kind {
	case fleetmsg.Meet, fleetmsg.AskProbe, fleetmsg.AskTokens:
	default:
		f.put(m, from)
	}
}

// put lets news be told later. Newer news takes its place; the lock is held.
func (f *Fleet) put(m fleetmsg.Message, from time.Time) {
	if old, ok := f.late[about(m)]; (ok || len(f.late) < maxLate) && !old.at.After(from) {
		f.late[about(m)] = late{m, from}
	}
}

// about returns a message with nothing but what it is about.
func about(m fleetmsg.Message) fleetmsg.Message {
	return fleetmsg.Message{Kind: m.Kind, Host: m.Host, Scope: m.Scope, Status: m.Status, Unit: m.Unit}
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
	if changed && (file == nil && !f.room() || !f.write(nameOf(m.Host), &record)) {
		return false
	}
	if changed {
		file = f.stat(nameOf(m.Host))
	}
	f.dropped.Add(record.Dropped)
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.find(m.Host)
	f.touch(k)
	if m.Kind == fleetmsg.AskTokens {
		k.asked = from
	}
	if !f.late[about(m)].at.After(from) { // it is older
		delete(f.late, about(m))
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

// spared reports whether news need not be written now. Either the file says the same of a
// hold, or this member told of a quota a moment ago. Then it tells the rest later.
func (f *Fleet) spared(m fleetmsg.Message) bool {
	f.mu.Lock()
	k := f.find(m.Host)
	record, file := k.record, k.file
	f.mu.Unlock()
	switch {
	case m.Kind == fleetmsg.Hold:
		return same(file, f.stat(nameOf(m.Host))) && !record.WouldHold(now(), m)
	case m.Kind == fleetmsg.Quota && record.ToldQuota(now(), f.id, m.Scope, m.Unit):
		f.mu.Lock()
		defer f.mu.Unlock()
		f.put(m, time.Now())
		return true
	}
	return false
}

// find returns what is known of a host. If there are too many, the one that was used longest ago
// is forgotten; the lock is held.
func (f *Fleet) find(host string) *known {
	k := f.hosts[host]
	if k != nil {
		return k
	}
	for len(f.hosts) >= maxHosts {
		delete(f.hosts, f.order.Remove(f.order.Back()).(*known).host)
	}
	k = &known{host: host, number: rand.Int()}
	k.place = f.order.PushFront(k)
	f.hosts[host] = k
	return k
}

// touch notes that a host is used; the lock is held.
func (f *Fleet) touch(k *known) {
	k.used = time.Now()
	f.order.MoveToFront(k.place)
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

// say writes a log line, but the same only once per minute. Nobody waits for the handler. If it
// panics, which no caller could see, the line is lost.
func (f *Fleet) say(text string, args ...any) {
	if f.logger == nil || time.Since(f.said[text]) < sayEach {
		return
	}
	f.said[text] = time.Now()
	f.lines.Put(func(line func()) { line() }, func() {
		defer func() { _ = recover() }()
		f.logger.Log(context.Background(), slog.LevelWarn, text, args...)
	})
}

// now is the time of the files.
func now() instant.Instant { return instant.At(time.Duration(time.Now().UnixNano())) }

// alive reports whether the disk has answered lately.
func (f *Fleet) alive() bool {
	at := f.polled.Load()
	return at == nil || time.Since(*at) < lostAfter*pollEach
}

// FleetState returns the figures that any backend has, for the metrics of the Transport. The
// Fleet counts as connected as long as it can write to the directory, or does not try.
func (f *Fleet) FleetState() transport.FleetState {
	s := transport.FleetState{
		Connected:    !f.closed.Load() && f.missed.Load() < lostAfter && f.alive(),
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
