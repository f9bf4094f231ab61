// The context of an attempt, which ends when the attempt takes too long, and the phases of that.

package attempt

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/policy"
)

// An attemptContext is the context of one attempt. It may be cancelled without the caller's
// context if the attempt is timed or runs beside another. Package context makes the context
// that is cancelled then, and only when somebody asks for its end. A base transport that answers
// from memory never does.
//
// The time of each [phase] of a timed attempt is bounded, and later the time of each
// Read of the response's body (see [watchedBody]). Whoever locks the context sees whether the time
// is over. So the attempt has a timer only if somebody waits for the end of the context or for such a
// Read. The timer belongs to this attempt alone, so it never leaves the attempt's bubble of
// testing/synctest.
type attemptContext struct {
	context.Context                // the caller's
	*Timeouts                      // nil: it ends with the caller's context only
	unlink          func() bool    // not nil: it is linked to the caller's by AfterFunc, not derived from it
	pool            *pool.Pool     // hears when something comes; nil: nobody needs to know
	clock           *instant.Clock // of the pool
	hooking

	mu     sync.Mutex      // guards the fields below, and some of the response's body
	own    context.Context // nil: nobody has asked for its end
	cancel context.CancelCauseFunc
	phase  phase
	linked bool          // it had a connection, or needs no bound for the search
	use    atomic.Uint32 // inRead and inClose of the response's body; not guarded
	began  time.Time     // when the attempt began
	due    time.Duration // from then to the end of the time of the phase, or of a Read of the response's body; 0: there is no bound
	whole  time.Duration // from then to the end of the AttemptTimeout, while the attempt waits for the headers
	timer  *time.Timer   // nil: nobody has waited for that end
	upload *timedBody    // the request's body that is being sent
	body   *watchedBody  // the response's body, if it may stall
}

// A phase says how far a timed attempt is. The timer bounds the time from the start of an
// attempt to the first Read of the request's body, and the time from the end of that body to
// the headers of the response. If the rule has a StallTimeout, and after the first attempt, it also
// bounds the time between two Reads of the body. It does not see the Reads of a small body in
// memory, and its time runs on during them. From the response on it is for the Reads of its body
// (see [watchedBody]).
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

// The next phase, by phase and event. An event that a phase does not name changes nothing: the
// base transport may call its hooks late.
var transitions = [...][leaves + 1]phase{
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

// start begins the first phase. A derived context must be cancelled at some time, because its
// parent keeps it until then. But the context must not be cancelled if its connection goes over
// to the caller (101, CONNECT). So the context of a request that may upgrade is detached from its
// parent. AfterFunc links the two until the response.
func (a *attemptContext) start(t *Timeouts, detached bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Timeouts = t
	if detached {
		parent := a.Context
		own, cancel := context.WithCancelCause(context.WithoutCancel(parent))
		a.own, a.cancel = own, cancel
		a.unlink = context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	}
	a.phase, a.began = waiting, time.Now()
	a.limit(0, a.After)
}

// Over returns the pool that the attempt takes. A base may have restarted it over another.
func (o *Outgoing) Over() *pool.Pool {
	o.Ctx.mu.Lock()
	defer o.Ctx.mu.Unlock()
	return o.Ctx.pool
}

// Restart begins the time of the attempt anew, because it has waited for a connection of a pool, or
// goes over another.
func (o *Outgoing) Restart(over *pool.Pool) {
	a := &o.Ctx
	a.lock()
	defer a.mu.Unlock()
	if a.pool = over; a.phase == waiting || a.phase == connecting {
		a.phase, a.began = waiting, time.Now()
		a.limit(0, a.After)
	}
}

// Began returns when the attempt began, if it is timed.
func (a *attemptContext) Began() time.Time { return a.began }

// lock locks the context. If the time is over, the attempt ends before anything else happens to it.
func (a *attemptContext) lock() {
	a.mu.Lock()
	if a.due != 0 && time.Since(a.began) >= a.due {
		a.on(timeIsUp, a.tooLate())
	}
}

// limit bounds the time to d from a moment of the attempt on. If d is not positive, there is no bound; the
// lock is held.
func (a *attemptContext) limit(from, d time.Duration) {
	if a.due = 0; d > 0 {
		a.due = d + min(from, instant.Forever-d)
	}
	a.whole = a.attempt + min(from, instant.Forever-a.attempt)
	a.run()
}

// move moves the end of the time; the lock is held.
func (a *attemptContext) move(d time.Duration) {
	a.due, a.whole = a.due+d, a.whole+d
	a.run()
}

// run makes the timer fire at the end of the time, if somebody waits for that; the lock is held.
func (a *attemptContext) run() {
	waits := a.own != nil || a.body != nil
	switch {
	case a.phase == late: // the timer fires now, if there is one
	case a.due == 0 && a.timer != nil:
		a.timer.Stop()
	case a.due != 0 && a.timer != nil:
		a.timer.Reset(a.due - time.Since(a.began))
	case a.due != 0 && waits:
		a.timer = time.AfterFunc(a.due-time.Since(a.began), a.ring)
	}
}

// ring runs when the timer fires, and closes the body of a response that stalls, because a base may ignore
// its context. The base's Close may panic, which would end the process here. The attempt may have ended in
// the same moment, or have more time.
func (a *attemptContext) ring() {
	a.lock()
	body, isLate := a.body, a.phase == late
	a.mu.Unlock()
	if body == nil || !isLate {
		return
	}
	end := func() {
		defer func() { _ = recover() }()
		_ = body.close()
	}
	if body.decompressed {
		time.AfterFunc(resume.CloseGrace, end)
	} else {
		end()
	}
}

// state returns the context that has the error of the attempt. When the attempt has ended, the error
// and its cause must not change any more.
func (a *attemptContext) state() context.Context {
	if a.Timeouts == nil {
		return a.Context
	}
	a.lock()
	defer a.mu.Unlock()
	if a.phase >= late {
		a.derive()
	}
	if a.own == nil {
		return a.Context
	}
	return a.own
}

func (a *attemptContext) Err() error { return a.state().Err() }

// A valuesOf ends with one context, and has the values of another.
type valuesOf struct {
	context.Context
	values context.Context
}

func (v valuesOf) Value(key any) any {
	if _, ok := key.(*int); ok { // package context looks for the context that ends it
		return v.Context.Value(key)
	}
	return v.values.Value(key)
}

// Value also serves package context, which looks for its own contexts in this way. Its own address is the
// key of an attempt's context.
func (a *attemptContext) Value(key any) any {
	switch {
	case key == a:
		return a
	case key == traceKey && (a.link != nil || a.Timeouts != nil && (a.quiet > 0 || a.expects)):
		return a.hooks()
	}
	return a.state().Value(key)
}

func (a *attemptContext) Done() <-chan struct{} {
	if a.Timeouts == nil {
		return a.Context.Done()
	}
	a.lock()
	defer a.mu.Unlock()
	if a.own == nil {
		a.derive()
		a.run()
	}
	return a.own.Done()
}

// derive makes the context that can be cancelled; the lock is held.
func (a *attemptContext) derive() {
	if a.own != nil {
		return
	}
	a.own, a.cancel = context.WithCancelCause(a.Context)
	if a.phase >= late {
		a.cancel(nil)
	}
}

// String keeps package fmt from reading the fields, which other goroutines may set.
func (a *attemptContext) String() string { return "transport.Attempt" }

// Abandon ends the attempt because nobody needs its response any more.
func (a *attemptContext) Abandon() { a.happens(leaves, ErrOutrun) }

// happens lets an event change the phase.
func (a *attemptContext) happens(e event, why error) {
	a.lock()
	defer a.mu.Unlock()
	a.on(e, why)
}

// outcome notes that there is a response, or an error if resp is nil. It returns the error of the
// phase whose time ended the attempt before. The context lives on if there is a body to be read.
func (a *attemptContext) outcome(resp *http.Response) (tooLate error) {
	a.lock()
	defer a.mu.Unlock()
	switch {
	case a.phase == late:
		return context.Cause(a.own)
	case resp == nil:
		a.on(leaves, nil)
	default:
		a.on(responds, nil)
		if resp.Body == nil || resp.Body == http.NoBody {
			a.on(bodyEnds, nil)
		}
	}
	return nil
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
	switch d := a.bound(); {
	case to >= late || e == responds:
		a.limit(0, 0)
	case to >= early:
	case e == hasConnection:
		a.limit(0, d)
	default:
		a.limit(time.Since(a.began), d)
	}
	if to >= late && a.cancel != nil {
		a.cancel(why)
	}
	if to >= late && a.unlink != nil {
		a.unlink()
	}
	return true
}

// bound returns how long the phase may take. From the response on the time is that of a Read of its body. If
// the time is not positive, there is no bound; the lock is held.
func (a *attemptContext) bound() time.Duration {
	switch {
	case a.phase == connecting:
		return a.Connect
	case a.phase == waiting:
		return a.After
	case a.phase == sending && a.idle > 0:
		return a.idle
	case a.phase == sending, a.phase == early, a.phase == answered:
		return a.quiet
	}
	return 0
}

// tooLate returns the error of a phase whose time is over; the lock is held.
func (a *attemptContext) tooLate() error {
	switch {
	case a.phase == connecting:
		return &net.OpError{Op: "dial", Net: "tcp", Err: tooLong("no connection within %v", a.Connect, errUnconnected)}
	case a.phase == waiting && a.attempt > 0 && a.due >= a.whole:
		return tooLong("transport: no response within the attempt's %v", a.attempt, policy.ErrAttemptTimeout)
	case a.phase == sending && a.idle > 0:
		return tooLong("transport: nothing of the request's body was taken for %v", a.idle, policy.ErrAttemptTimeout)
	}
	return tooLong("transport: no progress for %v", a.quiet, policy.ErrStallTimeout)
}

// An attemptBody is the body of the response to a timed attempt. It frees the attempt's
// context when the body has ended or is closed. If that is during a Read, the end of the context
// comes first, because the base's Close may wait for the Read.
type attemptBody struct {
	io.ReadCloser
	ctx *attemptContext
}

const (
	inRead  = 1 << iota // a Read is under way
	inClose             // a Close has begun
)

func (b *attemptBody) Read(p []byte) (int, error) {
	if b.ctx.use.Or(inRead)&inClose != 0 {
		b.ctx.happens(leaves, nil)
	}
	n, err := b.ReadCloser.Read(p)
	b.ctx.use.And(^uint32(inRead))
	if n > 0 && b.ctx.pool != nil {
		b.ctx.pool.Hear(b.ctx.clock.Now())
	}
	if err != nil {
		b.ctx.happens(bodyEnds, nil)
	}
	return n, err
}

// PeekWait returns the timeout of the attempt.
func (b *attemptBody) PeekWait() time.Duration { return b.ctx.After }

// Inner returns the body of the base transport.
func (b *attemptBody) Inner() io.ReadCloser { return b.ReadCloser }

// ResumeTried reports whether a Transport below has asked for the rest of the body.
func (b *attemptBody) ResumeTried() bool { return resume.Tried(b.ReadCloser) }

func (b *attemptBody) Close() error {
	if b.ctx.use.Or(inClose)&inRead != 0 {
		b.ctx.happens(leaves, nil)
	}
	defer b.ctx.happens(leaves, nil)
	return b.ReadCloser.Close()
}
