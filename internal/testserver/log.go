// What has arrived so far, and how can a test wait for it?

package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"sync"
	"time"
)

// logLimit bounds the log: beyond it requests are counted, not kept.
const logLimit = 1 << 16

// prefixLimit is how much of a request body the log keeps.
const prefixLimit = 4096

// An Arrival is what is known about one request. Log returns copies: what is
// still in progress has zero values in the fields about its end.
type Arrival struct {
	N      int       // from 1, over all routes and connections
	Time   time.Time // when the headers were complete
	Conn   int       // which connection, from 1 in the order of Accept
	Stream uint32    // the HTTP/2 stream; 0 over HTTP/1.1

	Proto  string // "HTTP/1.1" or "HTTP/2.0"
	Method string
	Target string // as sent: path and query, or host:port for CONNECT
	Host   string
	Header http.Header // not to be changed

	BodyLength int64     // bytes that arrived
	BodySHA256 string    // of those bytes, in hex; see Hash
	BodyPrefix []byte    // the first of those bytes, at most 4096
	BodyWhole  bool      // the body arrived to its end (an empty one did)
	BodyEnd    time.Time // when it ended or was cut off; zero: it may still come

	Done time.Time // when the step was over; zero: still playing
	Left bool      // the client left, or cancelled, before the step was over
}

// Hash is a body's SHA-256 in hex, as Arrival has it.
func Hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// A record keeps arrivals and counts connections. Waiters block on a channel
// that is closed and replaced at each change.
type record struct {
	mu       sync.Mutex // guards everything here and in every entry
	changed  chan struct{}
	entries  []*entry
	arrivals int
	accepted int
	open     int
}

// An entry is an Arrival in the making, guarded by record.mu.
type entry struct{ Arrival }

func newRecord() *record { return &record{changed: make(chan struct{})} }

// update changes the record under its lock and wakes every waiter.
func (r *record) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// arrive logs a request whose headers are complete.
func (r *record) arrive(req *Received) *entry {
	e := &entry{Arrival{
		Time: time.Now(), Conn: req.Conn, Stream: req.stream, Proto: req.Proto,
		Method: req.Method, Target: req.Target, Host: req.Host, Header: req.Header,
	}}
	r.update(func() {
		r.arrivals++
		e.N = r.arrivals
		req.N = r.arrivals
		if len(r.entries) < logLimit {
			r.entries = append(r.entries, e)
		}
	})
	return e
}

// done logs the end of a step.
func (r *record) done(e *entry, left bool) {
	r.update(func() {
		e.Done = time.Now()
		e.Left = left
	})
}

// A body reads a request body for the log: it counts and hashes on the way. It
// belongs to the goroutine that plays the step; the log gets copies.
type body struct {
	r      io.Reader
	rec    *record
	e      *entry
	sum    hash.Hash
	prefix []byte
	n      int64
	ended  bool // the end was logged, whole or not
}

func newBody(r io.Reader, rec *record, e *entry) *body {
	return &body{r: r, rec: rec, e: e, sum: sha256.New()}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > 0 {
		b.sum.Write(p[:n])
		b.n += int64(n)
		b.prefix = append(b.prefix, p[:min(n, prefixLimit-len(b.prefix))]...)
	}
	switch {
	case err != nil:
		b.end(err == io.EOF)
	case n > 0 && b.n == int64(n):
		b.note(func() {}) // the first bytes are news; later ones are logged at the end
	}
	return n, err
}

// note copies what was read so far into the log.
func (b *body) note(more func()) {
	sum := hex.EncodeToString(b.sum.Sum(nil))
	b.rec.update(func() {
		b.e.BodyLength = b.n
		b.e.BodySHA256 = sum
		b.e.BodyPrefix = b.prefix[:len(b.prefix):len(b.prefix)]
		more()
	})
}

// end logs how the body ended; the first call counts.
func (b *body) end(whole bool) {
	if b.ended {
		return
	}
	b.ended = true
	b.note(func() {
		b.e.BodyWhole = whole
		b.e.BodyEnd = time.Now()
	})
}

// Log is a snapshot of what arrived, in order; the first 65536 are kept.
func (s *Server) Log() []Arrival {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	log := make([]Arrival, len(s.rec.entries))
	for i, e := range s.rec.entries {
		log[i] = e.Arrival
	}
	return log
}

// Arrivals counts the requests whose headers arrived.
func (s *Server) Arrivals() int {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	return s.rec.arrivals
}

// Conns counts the connections accepted so far.
func (s *Server) Conns() int {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	return s.rec.accepted
}

// Open counts the connections that the server has not closed yet. A connection
// that its client closes counts until the server has noticed.
func (s *Server) Open() int {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	return s.rec.open
}

// Wait returns when n requests have arrived, or with the context's error.
func (s *Server) Wait(ctx context.Context, n int) error {
	return s.WaitUntil(ctx, func() bool { return s.Arrivals() >= n })
}

// WaitUntil returns when cond holds, or with the context's error. It asks cond
// at every change of the log and of the number of connections, so cond should
// be about those:
//
//	s.WaitUntil(ctx, func() bool { return s.Open() == 0 })
func (s *Server) WaitUntil(ctx context.Context, cond func() bool) error {
	for {
		s.rec.mu.Lock()
		changed := s.rec.changed // before cond: no change can fall in between
		s.rec.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
