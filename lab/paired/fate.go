// What becomes of an arrival. It is drawn by the call and the number of the arrival.

package paired

import (
	"net/http"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A fateKind is a kind of answer.
type fateKind uint8

const (
	well fateKind = iota
	says500
	says502
	says503
	says504
	saysBusy // 503 with Retry-After
	says429
	says404
	resets    // after the request was read
	closes    // the same with FIN
	halves    // in the headers
	hangs     // nothing comes
	cutClosed // in the body
	cutReset
	cutSilent
	unended  // all bytes, but not the end
	changes  // a new version of the document
	codes    // the same version in gzip
	lies     // to a request for a part: the rest with status 200 and Content-Range
	isSlow   // takes twenty times as long
	refuses  // REFUSED_STREAM
	goesAway // GOAWAY, and this stream was not looked at
	wants11  // HTTP_1_1_REQUIRED
)

func (f fateKind) String() string {
	return [...]string{"well", "500", "502", "503", "504", "503 with a wait", "429", "404", "reset", "close", "half headers", "hang",
		"cut by FIN", "cut by RST", "cut by silence", "no end", "new version", "coded", "200 with Content-Range", "slow", "REFUSED_STREAM", "GOAWAY", "HTTP_1_1_REQUIRED"}[f]
}

// A fate is what becomes of an arrival.
type fate struct {
	kind    fateKind
	wait    int     // seconds of Retry-After
	place   float64 // of a cut, as a part of the body
	acts    bool    // although it fails
	version int     // of the document
}

// fate returns the fate of the nth arrival of a call.
func (p *plan) fate(c *call, n int) (f fate) {
	version := 0
	for i := 1; i <= n; i++ {
		d, r := dice.Roll(p.seed, ofFate, uint64(c.id), uint64(i)), c.route
		percent, kinds := r.fail, r.firsts
		if i > 1 {
			percent, kinds = r.again, r.seconds
		}
		f = fate{acts: d.Chance(50), place: d.Float64(), wait: dice.One(d, 1, 1, 2, 5, 30, 100)}
		if d.Chance(15) {
			f.place = dice.One(d, 0, 0.02, 0.999)
		}
		if d.Chance(percent) && len(kinds) > 0 {
			f.kind = dice.One(d, kinds...)
		}
		if f.kind == changes {
			version++
		}
	}
	if n > 4 && (f.kind == refuses || f.kind == goesAway) {
		f.kind = resets // net/http itself sends the request again after these, without an end after GOAWAY
	}
	f.version = version
	return f
}

// status returns the status of a fate that has one of its own.
func (f fateKind) status() int {
	switch f {
	case says500:
		return http.StatusInternalServerError
	case says502:
		return http.StatusBadGateway
	case says503, saysBusy:
		return http.StatusServiceUnavailable
	case says504:
		return http.StatusGatewayTimeout
	case says429:
		return http.StatusTooManyRequests
	case says404:
		return http.StatusNotFound
	}
	return 0
}

// step returns the fault of a fate that answers nothing. Over HTTP/2 it concerns one stream only,
// so that the fate of a call is nobody else's.
func (f fateKind) step(http2 bool) (step testserver.Step, ok bool) {
	codes := map[fateKind]testserver.H2Code{resets: testserver.InternalError, closes: testserver.Cancel, halves: testserver.EnhanceYourCalm,
		refuses: testserver.RefusedStream, wants11: testserver.HTTP11Required}
	code, has := codes[f]
	switch {
	case f == hangs:
		return testserver.Hang(), true
	case f == goesAway && http2:
		return testserver.GoAway(testserver.NoError), true
	case http2 && has:
		return testserver.RSTStream(code), true
	case f == resets:
		return testserver.ResetBeforeHeaders(), true
	case f == halves:
		return testserver.CloseInHeaders(), true
	case has, f == goesAway:
		return testserver.CloseBeforeHeaders(), true
	}
	return step, false
}
