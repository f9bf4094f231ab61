// The phases of an attempt that is timed, and how long each may take.

package attempt

import (
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

// A phase says how far a timed attempt is. The timer bounds the time from the start of an
// attempt to the first Read of the request's body, and the time from the end of that body to
// the headers of the response. If the rule has a StallTimeout, it also bounds the time between
// two Reads of the body. It does not see the Reads of a small body in memory, and its time runs
// on during them. From the response on it is for the Reads of its body (see [watchedBody]).
type phase uint8

const (
	untimed    phase = iota // in the table: nothing changes
	waiting                 // for the headers of the response
	connecting              // the base transport seeks a connection, and time for that is bounded
	reading                 // the base transport reads the request's body, and its caller may be slow
	sending                 // it has a piece of that body and has to come back for the next
	early                   // there is a response, and the request's body is still being sent
	answered                // there is a response
	lingering               // the response's body has ended, and the request's body is still being sent (HTTP/2)
	late                    // its time was over, which has cancelled the context, and nothing that comes after that counts
	over                    // the context is cancelled
)

// An event may change the phase of an attempt.
type event uint8

const (
	seeksConnection event = iota // the base transport seeks a connection
	hasConnection                // it has one
	readsUpload                  // it reads the request's body
	hasPiece                     // it has read a piece of that body, and stalls count
	uploadEnds                   // that body has ended
	responds                     // there is a response
	bodyEnds                     // the response's body has ended, or there is none
	timeIsUp                     // the time of the phase is over
	leaves                       // there is an error, or nobody needs the response any more
)

// What each event makes of a phase. An event that a phase does not name changes nothing: the
// base transport may call its hooks late.
var transitions = [over + 1][leaves + 1]phase{
	untimed:    {},
	waiting:    {seeksConnection: connecting, readsUpload: reading, responds: answered, timeIsUp: late, leaves: over},
	connecting: {hasConnection: waiting, readsUpload: reading, responds: answered, timeIsUp: late, leaves: over},
	reading:    {readsUpload: reading, hasPiece: sending, uploadEnds: waiting, responds: early, leaves: over},
	sending:    {readsUpload: reading, uploadEnds: waiting, responds: early, timeIsUp: late, leaves: over},
	early:      {uploadEnds: answered, bodyEnds: lingering, timeIsUp: late, leaves: over},
	answered:   {readsUpload: early, bodyEnds: over, timeIsUp: late, leaves: over},
	lingering:  {uploadEnds: over, leaves: over},
	late:       {},
	over:       {},
}

// on lets an event change the phase, and bounds the time of the next phase. From the response on the
// time is that of a Read of its body. why is the cause if the next phase cancels the context. on reports
// whether the event counts; the lock is held.
func (a *attemptContext) on(e event, why error) bool {
	to := transitions[a.phase][e]
	if to == untimed {
		return false
	}
	if why != nil {
		a.derive() // it keeps the cause
	}
	a.phase = to
	switch d, _ := a.bound(); {
	case to >= late || e == responds:
		a.limit(0, 0)
	case to >= early:
	case e == hasConnection:
		a.limit(a.began, d)
	default:
		a.limit(a.home.Now(), d)
	}
	if to >= late && a.cancel != nil {
		a.cancel(why)
	}
	if to >= late && a.unlink != nil {
		a.unlink()
	}
	return true
}

// bound returns how long the phase may take, and the error if it takes longer. From the response on the
// time is that of a Read of its body. If the time is not positive, there is no bound; the lock is held.
func (a *attemptContext) bound() (d time.Duration, tooLate error) {
	switch a.phase {
	case connecting:
		return a.Connect, a.unconnected
	case waiting:
		return a.After, a.late
	case sending, early, answered:
		return a.quiet, a.silent
	}
	return 0, nil
}

// seekConnection bounds the time until the attempt has a connection, unless the attempt ends
// earlier. The base transport may seek a connection again later, which is not bounded.
func (a *attemptContext) seekConnection() {
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.lock()
	defer a.mu.Unlock()
	switch {
	case a.phase != waiting || a.linked:
	case a.After > 0 && instant.After(a.began, a.After).Sub(a.home.Now()) <= a.Connect:
		a.linked = true
	default:
		a.on(seeksConnection, nil)
	}
}

// connect gives the attempt the rest of its time.
func (a *attemptContext) connect() {
	if a.Timeouts == nil || a.Connect <= 0 {
		return
	}
	a.lock()
	defer a.mu.Unlock()
	a.linked = a.on(hasConnection, nil) || a.linked
}
