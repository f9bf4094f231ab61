// The log of requests, and waiting for it.

package testserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"
	"time"
)

// logLimit is the number of requests that the log keeps. Later requests are only
// counted.
const logLimit = 1 << 16

// prefixLimit is the number of bytes that the log keeps of each request body.
const prefixLimit = 4096

// An Arrival describes a request. Log returns copies. While the request is in
// progress, the fields about its end are zero.
type Arrival struct {
	Received           // its Header is read-only
	Time     time.Time // when the headers were complete

	BodyLength int64     // bytes that arrived
	BodySHA256 string    // hash of these bytes in hex, see Hash
	BodyPrefix []byte    // the first of these bytes, at most 4096
	BodyWhole  bool      // the whole body arrived, or there was none
	BodyEnd    time.Time // when the body ended or was cut off, zero while it can still come

	Done time.Time // when the step ended, zero while it plays
	Left bool      // the client left or cancelled before the step ended
}

// Hash returns the SHA-256 of a body in hex, as in Arrival.BodySHA256.
func Hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// A record keeps arrivals and counts connections. Goroutines that wait for a
// change block on the channel changed, which each change closes and replaces.
type record struct {
	mu       sync.Mutex // guards all fields here and in each Arrival
	changed  chan struct{}
	entries  []*Arrival // those under way are still filled in
	arrivals int
	accepted int
	open     int
}

func newRecord() *record { return &record{changed: make(chan struct{})} }

// update changes the record under its lock and wakes the goroutines that wait.
func (r *record) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// arrive numbers and logs a request whose headers are complete.
func (r *record) arrive(req *Received) (e *Arrival) {
	r.update(func() {
		r.arrivals++
		req.N = r.arrivals
		e = &Arrival{Received: *req, Time: time.Now()}
		if len(r.entries) < logLimit {
			r.entries = append(r.entries, e)
		}
	})
	return e
}

// done logs the end of the step. If left is true, the client or Close ended it.
func (r *record) done(e *Arrival, left bool) {
	r.update(func() {
		e.Done = time.Now()
		e.Left = left
	})
}

// A body reads a request body and counts and hashes it for the log. It belongs to
// the goroutine that plays the step. The log gets copies.
type body struct {
	r      io.Reader
	rec    *record
	e      *Arrival
	sum    hash.Hash
	prefix []byte
	n      int64
	ended  bool // the end of the body is in the log
}

func newBody(r io.Reader, rec *record, e *Arrival) *body {
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
		b.note(func() {}) // log the first bytes now, the other bytes at the end
	}
	return n, err
}

// note copies length, hash and prefix of the bytes read so far into the log.
func (b *body) note(more func()) {
	sum := hex.EncodeToString(b.sum.Sum(nil))
	b.rec.update(func() {
		b.e.BodyLength = b.n
		b.e.BodySHA256 = sum
		b.e.BodyPrefix = b.prefix[:len(b.prefix):len(b.prefix)]
		more()
	})
}

// end logs the end of the body. Later calls do nothing.
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

// Log returns the requests so far in the order of arrival. It keeps the first
// 65536 of them.
func (s *Server) Log() []Arrival {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	log := make([]Arrival, len(s.rec.entries))
	for i, e := range s.rec.entries {
		log[i] = *e
	}
	return log
}

// Arrivals returns the number of requests whose headers have arrived.
func (s *Server) Arrivals() int { return s.rec.look(&s.rec.arrivals) }

// Conns returns the number of connections accepted so far.
func (s *Server) Conns() int { return s.rec.look(&s.rec.accepted) }

// Open returns the number of connections that the server has not closed yet. If
// a client closes a connection, it counts until the server notices that.
func (s *Server) Open() int { return s.rec.look(&s.rec.open) }

// look returns one of the counts.
func (r *record) look(count *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *count
}

// Wait waits until n requests have arrived. If the context ends first, Wait
// returns its cause.
func (s *Server) Wait(ctx context.Context, n int) error {
	return s.WaitUntil(ctx, func() bool { return s.Arrivals() >= n })
}

// WaitUntil waits until cond returns true. If the context ends first, WaitUntil
// returns its cause. It calls cond after each change of the log or of the number
// of connections, so cond should depend only on these. For example:
//
//	s.WaitUntil(ctx, func() bool { return s.Open() == 0 })
func (s *Server) WaitUntil(ctx context.Context, cond func() bool) error {
	for {
		s.rec.mu.Lock()
		changed := s.rec.changed // read before calling cond, so that no change is missed
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
