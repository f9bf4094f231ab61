// Package logbook sums up the lines of a log, so that an outage can be read.
package logbook

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/redact"
)

const (
	// The first line of a key is written at once. Then there is a line per span, which
	// begins with shortSpan and doubles up to longSpan while the key goes on.
	shortSpan = time.Second
	longSpan  = time.Minute
	// keysOfHost is how many keys of a host are told apart. All others are one.
	keysOfHost = 4
	// changesOfRank is how many lines of a rank about its state a host has within changesTime.
	changesOfRank = 4
	changesTime   = time.Minute
	// hostsOfLog is how many hosts are told apart at a time. All others are one.
	hostsOfLog = 1024
)

// A Rank is that of a line about the state of a host. Each rank has lines of its own, so that no
// other rank takes their place.
type Rank uint8

const (
	RankDown  Rank = iota // whether the host is down
	RankOther             // anything else
	ranks
)

// A Line is a line of the log. Lines of a host with the same Key are alike.
type Line[K comparable] struct {
	Ctx   context.Context
	Level slog.Level
	Host  string
	Key   K    // of a line about a request
	Rank  Rank // of a line about the state of the host
	Text  string
	Attrs []slog.Attr
}

// A Book has the lines of a Transport. It is safe for concurrent use. It knows
// neither the Transport nor its requests, so its timer keeps little in memory.
type Book[K comparable] struct {
	logger *slog.Logger

	mu    sync.Mutex // guards everything below; nothing is written while it is held
	hosts map[string]*hostLines[K]
	timer *time.Timer // armed while something is held back
	at    time.Time   // when it fires; zero: it is not armed
	busy  bool        // writeDue writes lines
}

// hostLines are the lines of a host. Each repeat writes a line per second at most, and a line
// about the state of the host takes the turn of a repeat. So a host has 5 lines per second.
type hostLines[K comparable] struct {
	repeats [keysOfHost + 1]repeat[K] // the last is for all other keys
	states  [ranks]stateLines[K]
}

// stateLines are the lines of a rank about the state of a host.
type stateLines[K comparable] struct {
	written [changesOfRank]time.Time // when the last of them were written
	waiting []Line[K]                // whose turn comes later
	skipped int                      // changes that have no line, since the last
}

// A repeat sums up the lines of a key.
type repeat[K comparable] struct {
	key    K
	shown  time.Time // when a line was written; zero: never
	span   time.Duration
	held   int       // lines that are held back
	first  time.Time // when the first of them came
	last   Line[K]   // the last of them
	latest time.Time // when it came
}

// New returns a Book that writes to a logger.
func New[K comparable](logger *slog.Logger) *Book[K] {
	return &Book[K]{logger: logger, hosts: map[string]*hostLines[K]{}}
}

// Write writes a line about a request, or holds it back.
func (s *Book[K]) Write(l Line[K]) {
	s.add(l.Host, func(h *hostLines[K], now time.Time) {
		r := h.repeat(l.Key, now)
		if r.held == 0 {
			r.first = now
		} else {
			l.Level = max(l.Level, r.last.Level)
		}
		r.held, r.last, r.latest = r.held+1, l, now
		if now.Before(r.due()) {
			r.last.Ctx = context.Background() // keeps no request in memory
		}
	})
}

// WriteChange writes a line about the state of a host, or holds it back. If there is too much to
// tell of a rank, the latest counts.
func (s *Book[K]) WriteChange(l Line[K]) {
	s.add(l.Host, func(h *hostLines[K], now time.Time) {
		state := &h.states[l.Rank]
		if n := len(state.waiting); n > 0 && (n == changesOfRank || now.Before(state.nextAt())) {
			l.Ctx = context.Background()
			state.waiting[n-1] = l
			state.skipped++
			return
		}
		if now.Before(h.changeDue(state)) {
			l.Ctx = context.Background()
		}
		state.waiting = append(state.waiting, l)
	})
}

// add adds a line to those of its host, and writes what may be written now.
func (s *Book[K]) add(host string, to func(h *hostLines[K], now time.Time)) {
	now := time.Now()
	s.mu.Lock()
	h := s.linesOf(host, now)
	to(h, now)
	ready := h.takeReady(now, nil)
	s.armTimer(now, h.due())
	s.mu.Unlock()
	for i := range ready {
		s.log(&ready[i])
	}
}

// Enabled reports whether the logger takes lines of a level. A nil Book takes none.
func (s *Book[K]) Enabled(ctx context.Context, level slog.Level) bool {
	return s != nil && s.logger.Enabled(ctx, level)
}

// log writes a line. No lock is held, because a handler may block, or send a request over
// the same Transport.
func (s *Book[K]) log(l *Line[K]) { s.logger.LogAttrs(l.Ctx, l.Level, l.Text, l.Attrs...) }

// linesOf returns the lines of a host; the lock is held.
func (s *Book[K]) linesOf(host string, now time.Time) *hostLines[K] {
	h := s.hosts[host]
	if h != nil {
		return h
	}
	if len(s.hosts) >= hostsOfLog {
		maps.DeleteFunc(s.hosts, func(_ string, h *hostLines[K]) bool { return h.idle(now) })
	}
	if len(s.hosts) >= hostsOfLog {
		host = "" // the hosts that are too many
	}
	if h = s.hosts[host]; h == nil {
		h = new(hostLines[K])
		s.hosts[host] = h
	}
	return h
}

// armTimer makes the timer fire at that time or earlier; the lock is held.
func (s *Book[K]) armTimer(now, at time.Time) {
	switch {
	case s.busy || at.IsZero() || !s.at.IsZero() && !at.Before(s.at):
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(at.Sub(now), s.writeDue)
	default:
		s.timer.Reset(at.Sub(now))
	}
	s.at = at
}

// writeDue writes the lines that were held back and are due. The timer is armed again when they
// are written, so at most one goroutine waits for a handler that blocks.
func (s *Book[K]) writeDue() {
	now := time.Now()
	var ready []Line[K]
	s.mu.Lock()
	s.busy = true
	for _, h := range s.hosts {
		ready = h.takeReady(now, ready)
	}
	s.mu.Unlock()
	defer func() {
		_ = recover() // the panic of a handler has no caller here, and would end the process
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy, s.at = false, time.Time{}
		for _, h := range s.hosts {
			s.armTimer(now, h.due())
		}
	}()
	for i := range ready {
		s.log(&ready[i])
	}
}

// idle reports whether nothing has to be remembered of the host.
func (h *hostLines[K]) idle(now time.Time) bool {
	for i := range h.repeats {
		if r := &h.repeats[i]; r.held > 0 || now.Before(r.shown.Add(2*r.span)) {
			return false
		}
	}
	for i := range h.states {
		if s := &h.states[i]; len(s.waiting) > 0 || now.Sub(s.written[changesOfRank-1]) < changesTime {
			return false
		}
	}
	return true
}

// repeat returns the place for a key.
func (h *hostLines[K]) repeat(key K, now time.Time) *repeat[K] {
	var free *repeat[K]
	for i := range keysOfHost {
		switch r := &h.repeats[i]; {
		case r.key == key:
			return r
		case free == nil && r.held == 0 && !now.Before(r.shown.Add(max(r.span, shortSpan))):
			free = r
		}
	}
	if free == nil {
		return &h.repeats[keysOfHost]
	}
	*free = repeat[K]{key: key, shown: free.shown}
	return free
}

// nextAt returns when the rank may have a further line.
func (s *stateLines[K]) nextAt() time.Time { return s.written[0].Add(changesTime) }

// changeDue returns when the first line of a rank that waits is due.
func (h *hostLines[K]) changeDue(s *stateLines[K]) time.Time {
	at := h.oldestRepeat().shown.Add(shortSpan)
	if allowed := s.nextAt(); at.Before(allowed) {
		return allowed
	}
	return at
}

// oldestRepeat returns the repeat whose last line is the oldest. Its next line may be written a
// second later.
func (h *hostLines[K]) oldestRepeat() *repeat[K] {
	oldest := &h.repeats[0]
	for i := range h.repeats {
		if r := &h.repeats[i]; r.shown.Before(oldest.shown) {
			oldest = r
		}
	}
	return oldest
}

// takeReady appends the lines that may be written now, and forgets them.
func (h *hostLines[K]) takeReady(now time.Time, all []Line[K]) []Line[K] {
	for i := range h.states {
		for s := &h.states[i]; len(s.waiting) > 0 && !now.Before(h.changeDue(s)); {
			all = append(all, s.take(now))
			h.oldestRepeat().shown = now
		}
	}
	for i := range h.repeats {
		if r := &h.repeats[i]; r.held > 0 && !now.Before(r.due()) {
			all = append(all, r.sum(now))
		}
	}
	return all
}

// take returns the first line that waits, and forgets it.
func (s *stateLines[K]) take(now time.Time) Line[K] {
	l := s.waiting[0]
	s.waiting[0] = Line[K]{} // the array keeps no request in memory
	if s.waiting = s.waiting[1:]; s.skipped > 0 {
		l.Attrs = append(l.Attrs, slog.Int("skipped", s.skipped))
		s.skipped = 0
	}
	s.written = [changesOfRank]time.Time(append(s.written[1:], now)) // in the order in which they were written
	return l
}

// due returns when the next line that is held back is due. It is zero if there is none.
func (h *hostLines[K]) due() (at time.Time) {
	for i := range h.states {
		if s := &h.states[i]; len(s.waiting) > 0 && (at.IsZero() || h.changeDue(s).Before(at)) {
			at = h.changeDue(s)
		}
	}
	for i := range h.repeats {
		if r := &h.repeats[i]; r.held > 0 && (at.IsZero() || r.due().Before(at)) {
			at = r.due()
		}
	}
	return at
}

// due returns when the lines that are held back become one. If no more of them come, this
// is earlier.
func (r *repeat[K]) due() time.Time {
	quiet := r.latest.Add(max(r.span/4, shortSpan)).Sub(r.shown)
	return r.shown.Add(min(max(r.span, shortSpan), max(quiet, shortSpan)))
}

// sum returns the line for all that were held back.
func (r *repeat[K]) sum(now time.Time) Line[K] {
	l := r.last
	if r.held > 1 {
		if r.key == *new(K) {
			l.Text = redact.Fit(l.Host, "", func(host, _ string) string {
				return host + ": " + strconv.Itoa(r.held) + " more lines of other kinds are left out"
			})
			l.Attrs = []slog.Attr{slog.String("host", l.Host)}
		}
		l.Attrs = append(l.Attrs, slog.Int("count", r.held), slog.Duration("within", r.latest.Sub(r.first).Round(time.Millisecond)))
	}
	if span := max(r.span, shortSpan); now.Sub(r.shown) < 2*span && r.span > 0 {
		r.span = min(2*span, longSpan)
	} else {
		r.span = shortSpan
	}
	r.held, r.shown, r.last = 0, now, Line[K]{}
	return l
}
