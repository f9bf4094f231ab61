// Scripts decide how one attempt ends. A script is drawn from the host's mood
// before the attempt begins. The errors are like those of net/http.

package simulate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// An outcome is how an attempt ends, up to the header of the response.
type outcome uint8

const (
	responds   outcome = iota // with the status of the script
	cannotDial                // no connection, so the request never left
	refuses                   // HTTP/2 refused the stream
	resets                    // the connection, before or after the server acted
	talksNonsense
	distrusts // a bad certificate, after which nobody tries again
	unknown   // an error that the Transport does not know
	hangs     // until the context ends
	// No RoundTripper may do these, but some do.
	blowsUp
	exits
	says0 // returns neither a response nor an error
	says2 // returns both
)

func (o outcome) String() string {
	return [...]string{"responds", "cannot dial", "refuses the stream", "resets", "talks nonsense", "has a bad certificate",
		"fails in an unknown way", "hangs", "panics", "ends the goroutine", "returns nothing", "returns both"}[o]
}

// A bodyEnd is how a response's body ends.
type bodyEnd uint8

const (
	whole bodyEnd = iota
	cut
	stalls // until it is closed or its context ends
	explodes
	overcounts // its Read returns too large a count
)

func (e bodyEnd) String() string {
	return [...]string{"whole", "cut", "stalls", "explodes", "overcounts"}[e]
}

// A script describes one attempt before it begins.
type script struct {
	outcome outcome
	status  int
	told    told
	acts    bool          // the server acts although it fails
	takes   time.Duration // after the request is there
	early   bool          // the response comes while the request's body is still being read
	deaf    time.Duration // for how long the attempt does not notice the end of the context
	late    time.Duration // for how long the request's body is read after the end of the response
	gap     time.Duration // between two pieces of the request's body
	blocks  time.Duration // for how long Close waits for a Read of the response's body
	end     bodyEnd
	cutAt   int64 // of the response's body
	piece   int64 // of the response's body, per Read
	pause   time.Duration
	length  bool  // Content-Length is announced
	tagged  int   // 0: a strong ETag, 1: weak, 2: none, 3: a date
	page    int64 // size of an error page
	unpacks bool  // the base transport, as net/http does with gzip
	quota   int64 // the remaining quota that the server names; negative: it names none
	reset   time.Duration
	typed   bool // it has the type of an event stream
}

// String describes the script for the printed story.
func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", s.outcome)
	if s.outcome == responds {
		fmt.Fprintf(&b, " %d", s.status)
	}
	if s.told.form != noHint {
		fmt.Fprintf(&b, ", hint %v", s.told.form)
	}
	if s.end != whole {
		fmt.Fprintf(&b, ", body %v at %d", s.end, s.cutAt)
	}
	return b.String()
}

// newScript draws the script of the n-th attempt of a call. A host tells the
// truth: if it returns 421, 425 or 429, or 503 with a wait, it has not acted.
func newScript(seed uint64, h *host, m mood, callID, n int) *script {
	d := dice.Roll(seed, ofAttempt, uint64(callID), uint64(n))
	s := &script{
		outcome: responds,
		status:  200,
		takes:   d.Between(100*time.Microsecond, 300*time.Millisecond),
		piece:   int64(d.Between(16, 32<<10)),
		length:  d.Chance(70),
		tagged:  dice.One(d, 0, 0, 0, 0, 0, 1, 2, 3),
		acts:    d.Chance(50),
		page:    int64(d.Between(1, 4<<10)),
		quota:   -1,
	}
	if d.Chance(10) {
		s.takes = d.Between(time.Second, time.Minute)
	}
	if d.Chance(10) {
		s.page = int64(d.Between(4<<10, 300<<10))
	}
	s.drawMood(d, m)
	s.drawManners(d, m)
	if h.wild && d.Chance(10) {
		s.outcome = dice.One(d, blowsUp, exits, says0, says2)
	}
	s.drawLength(dice.Roll(seed, ofManner, uint64(callID), uint64(n)), h)
	return s
}

// drawLength draws whether the body is a stream and whether the response takes until a
// later phase. Streams come to an end, so that the story does.
func (s *script) drawLength(d dice.Dice, h *host) {
	if h.streams && s.status == 200 && d.Chance(40) {
		s.typed, s.length, s.unpacks, s.pause = d.Chance(50), false, false, d.Between(10*time.Millisecond, 40*time.Second)
		s.piece = max(s.piece, 4<<10)
	}
	if h.lingers && s.outcome == responds && d.Chance(15) {
		s.takes = d.Between(time.Second, 2*time.Minute)
	}
}

// drawMood draws whether the attempt succeeds.
func (s *script) drawMood(d dice.Dice, m mood) {
	bad := [...]int{fine: 1, scattered: 10, flaky: 25, failing: 95, throttling: 90, exhausted: 100, frozen: 95}[m]
	if !d.Chance(bad) {
		s.status = dice.One(d, 200, 200, 200, 200, 200, 200, 204, 404, 301)
		if d.Chance(5) {
			s.told = newTold(d) // has no meaning for this status
		}
		return
	}
	switch {
	case m == scattered:
		s.status, s.told = 429, told{wait: d.Between(time.Second, 10*time.Second).Truncate(time.Second), form: plainSeconds}
	case m == exhausted:
		s.status, s.told = 429, newTold(d)
		s.told.form = 1 + s.told.form%(badHints-1) // the phase decides how long
	case m == frozen:
		s.outcome = hangs
	case m == throttling:
		s.status, s.told = dice.One(d, 429, 429, 503), newTold(d)
	case d.Chance(40):
		s.status = dice.One(d, 500, 502, 503, 503, 504, 408, 421, 425, 429, 501)
		if d.Chance(30) {
			s.told = newTold(d)
		}
	default:
		s.outcome = dice.One(d, cannotDial, cannotDial, refuses, resets, resets, resets, resets, talksNonsense, distrusts, unknown, hangs)
	}
}

// drawManners draws how the base transport treats the bodies.
func (s *script) drawManners(d dice.Dice, m mood) {
	s.early = d.Chance(20)
	if d.Chance(15) {
		s.deaf = d.Between(time.Millisecond, 3*time.Second)
	}
	if d.Chance(30) {
		s.late = d.Between(time.Microsecond, 2*time.Second)
	}
	if d.Chance(30) {
		s.gap = d.Between(time.Microsecond, 20*time.Millisecond)
	}
	if d.Chance(20) {
		s.pause = d.Between(time.Microsecond, time.Second)
	}
	if d.Chance(5) {
		s.blocks = d.Between(time.Millisecond, 5*time.Second)
	}
	s.cutAt = int64(d.Between(1, 200<<10)) - 1
	if m != fine && d.Chance(40) {
		s.end = dice.One(d, cut, cut, cut, stalls)
		if d.Chance(10) {
			s.end = dice.One(d, explodes, overcounts)
		}
	}
	s.unpacks = d.Chance(3)
	if d.Chance(20) {
		s.quota, s.reset = int64(d.IntN(100)), d.Between(time.Second, 2*time.Minute).Truncate(time.Second)
		if d.Chance(5) {
			s.reset = 24 * time.Hour
		}
	}
}

// A fault is the error of one attempt.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// A scripted is a panic that the story planned.
type scripted struct{ where string }

func (p *scripted) String() string { return "a scripted panic in " + p.where }

// errorOf returns the error of an attempt that fails.
func errorOf(o outcome) error {
	switch o {
	case cannotDial:
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case refuses:
		return errors.New("stream error: stream ID 5; REFUSED_STREAM; received from peer")
	case resets:
		return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case talksNonsense:
		return errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "x"`)
	case distrusts:
		return x509.UnknownAuthorityError{}
	}
	return errors.New("simulate: an error that nobody knows")
}
