// The base transport. It behaves like net/http over HTTP/1 or HTTP/2, or worse.

package simulate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// A base is the base transport of the client under test.
type base struct {
	world   *world
	process *process // of the fleet's member; nil: there is no fleet
}

// An attempt is one call of the base transport.
type attempt struct {
	world   *world
	call    *call
	host    *host
	process *process // of the fleet's member; nil: there is no fleet
	id      int      // in the story
	number  int      // of its call, from 1
	hedge   bool     // it began beside an earlier attempt of its call
	script  *script
	req     *http.Request
	rng     string // the requested Range
	began   time.Duration
	ended   time.Duration // when RoundTrip returned; never, while it has not
	dead    bool          // its context had ended by then
	late    bool          // its caller had left when it began

	status   int
	told     time.Duration // the wait that the response asked for; 0: none
	err      error
	exited   bool // ended by a panic or together with its goroutine
	body     *respBody
	page     page
	events   bool          // the response has the type of an event stream
	supplied []span        // the Reads of the request's body that took long
	cut      time.Duration // when its context ended; never, while it has not
}

// CloseIdleConnections must never be called if no attempt ended early, because the connections are
// shared.
func (b *base) CloseIdleConnections() {
	if !b.world.hadCut() {
		b.world.violate(Discarded, nil, "the pool's idle connections were closed")
	}
}

// hadCut reports whether the context of an attempt ended before its response.
func (w *world) hadCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.attempts, func(a *attempt) bool { return a.cut < never })
}

// RoundTrip sends a request according to the script of the attempt.
func (b *base) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	s := b.world.arrive(req)
	if s == nil {
		return nil, errors.New("simulate: a request of nobody")
	}
	s.process = b.process
	up := newUpload(s)
	s.exited = true
	stop := context.AfterFunc(req.Context(), func() { s.checkTimeout(up) })
	defer func() {
		if resp == nil {
			up.halt()
		}
		s.leave(err)
		if resp == nil || s.body == nil {
			stop() // otherwise the context may end because the body stalls
		}
	}()
	resp, err = b.exchange(s, up)
	s.exited = false
	return resp, err
}

// exchange performs the script.
func (b *base) exchange(s *attempt, up *upload) (*http.Response, error) {
	if err := s.thaw(); err != nil {
		return nil, err
	}
	sc := s.script
	switch sc.outcome {
	case cannotDial, refuses, distrusts:
		if err := s.wait(sc.takes); err != nil {
			return nil, err
		}
		return nil, &fault{errorOf(sc.outcome)}
	case blowsUp:
		panic(&scripted{"the base transport"})
	case exits:
		runtime.Goexit()
	}
	up.start()
	if !sc.early || sc.outcome == responds && sc.status < 300 {
		if err := s.await(up); err != nil {
			return nil, err
		}
	}
	if sc.outcome == hangs {
		return nil, s.wait(never)
	}
	if err := s.wait(sc.takes); err != nil {
		return nil, err
	}
	return s.result(up)
}

// result acts on the request if the script says so, and returns a response or
// an error.
func (s *attempt) result(up *upload) (*http.Response, error) {
	sc := s.script
	if s.acts() && (up == nil || up.isWhole()) {
		s.act()
	}
	if err := s.thaw(); err != nil {
		return nil, err
	}
	switch sc.outcome {
	case responds:
		return s.response(up), nil
	case says0:
		return nil, nil
	case says2:
		return s.response(up), &fault{errorOf(unknown)}
	}
	return nil, &fault{errorOf(sc.outcome)}
}

// acts reports whether the server acts on the request. It has not acted if it
// says that it refused.
func (s *attempt) acts() bool {
	sc := s.script
	switch {
	case sc.outcome != responds:
		return sc.acts
	case sc.status < 300:
		return true
	case sc.status == 421, sc.status == 425, sc.status == 429, sc.status == 503 && sc.told.wait > 0:
		return false
	}
	return sc.acts && sc.status >= 400
}

// thaw waits while the process stands still.
func (s *attempt) thaw() error {
	if s.process == nil {
		return nil
	}
	now := s.world.now()
	if until := s.process.resumes(now); until > now {
		return s.wait(until - now)
	}
	return nil
}

// never is longer than any story.
const never = 1000 * time.Hour

// wait waits for d, or until the context or the old Cancel channel ends. A deaf
// attempt notices that end late.
func (s *attempt) wait(d time.Duration) error { return s.waitFor(nil, d) }

// await waits for the end of the request's body.
func (s *attempt) await(up *upload) error {
	if up == nil {
		return nil
	}
	if err := s.waitFor(up.done, never); err != nil {
		return err
	}
	if up.err != nil {
		return &fault{up.err}
	}
	return nil
}

func (s *attempt) waitFor(ready <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	//lint:ignore SA1019 old callers still set Request.Cancel
	canceled := s.req.Cancel
	var err error
	select {
	case <-ready:
		return nil
	case <-timer.C:
		return nil
	case <-s.req.Context().Done():
		err = context.Cause(s.req.Context())
	case <-canceled:
		err = errors.New("net/http: request canceled")
	}
	if s.script.deaf > 0 {
		late := time.NewTimer(s.script.deaf)
		defer late.Stop()
		select {
		case <-ready:
			return nil
		case <-timer.C:
			return nil
		case <-late.C:
		}
	}
	return &fault{err}
}

// An upload sends the request's body. As in net/http, it runs beside the
// response and may end later.
type upload struct {
	attempt *attempt
	body    io.ReadCloser
	done    chan struct{} // closed when the reading is over
	halted  chan struct{}
	once    sync.Once

	mu      sync.Mutex    // guards the next two fields
	reading bool          // a Read of the caller's body is under way
	since   time.Duration // when the last Read ended

	got     int64
	wrong   int64 // the first byte that is not the caller's; negative: none
	whole   bool  // read before done is closed
	err     error
	started bool
}

func newUpload(s *attempt) *upload {
	if s.req.Body == nil || s.req.Body == http.NoBody {
		return nil
	}
	return &upload{attempt: s, body: s.req.Body, done: make(chan struct{}), halted: make(chan struct{}), wrong: -1}
}

func (u *upload) isWhole() bool { return isClosed(u.done) && u.whole }

// isClosed reports whether a channel that is only ever closed is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start begins to read the body.
func (u *upload) start() {
	if u != nil {
		u.started = true
		stop := context.AfterFunc(u.attempt.req.Context(), u.halt)
		go u.run(stop)
	}
}

// halt ends the upload soon, because the response has ended or nobody waits for
// it. HTTP/2 closes the body from another goroutine. HTTP/1 closes it when a
// Read has returned.
func (u *upload) halt() {
	if u == nil {
		return
	}
	u.once.Do(func() {
		if !u.started {
			_ = u.body.Close()
			return
		}
		go func() {
			time.Sleep(u.attempt.script.late)
			close(u.halted)
			if u.attempt.host.http2 {
				_ = u.body.Close()
			}
		}()
	})
}

func (u *upload) run(stop func() bool) {
	defer close(u.done)
	defer stop()
	defer func() { _ = u.body.Close() }()
	defer func() {
		if p := recover(); p != nil {
			u.err = errBody
			if _, ok := p.(*scripted); !ok {
				u.attempt.world.violate(Panics, u.attempt.call, "in a Read of the request's body: %v", p)
			}
		}
	}()
	buf := make([]byte, 8<<10)
	for !isClosed(u.halted) {
		n, err := u.read(buf)
		if u.wrong < 0 {
			u.wrong = u.attempt.call.content.differs(buf[:n], u.got)
		}
		u.got += int64(n)
		if err != nil {
			u.end(err)
			return
		}
		time.Sleep(u.attempt.script.gap)
	}
	u.err = errGivenUp
}

var errGivenUp = errors.New("simulate: the upload was given up")

// read reads from the body, and notes when.
func (u *upload) read(p []byte) (n int, err error) {
	note := func(reading bool) {
		u.mu.Lock()
		u.reading, u.since = reading, u.attempt.world.now()
		u.mu.Unlock()
	}
	note(true)
	began := u.since
	defer func() { // also if it panics
		note(false)
		if u.since > began {
			s := u.attempt
			s.world.mu.Lock()
			s.supplied = append(s.supplied, span{began, u.since})
			s.world.mu.Unlock()
		}
	}()
	return u.body.Read(p)
}

// quiet returns for how long the server has been silent while nothing else was waited for.
// That is the time since the beginning of the attempt, or since the last Read of the
// request's body. It is zero during such a Read.
func (s *attempt) quiet(u *upload) time.Duration {
	since := s.began
	if u != nil && s.call.plan.shape != inMemory { // the timer does not see such Reads
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.reading {
			return 0
		}
		since = max(since, u.since)
	}
	return s.world.now() - since
}

// checkTimeout judges the end of the attempt's context.
func (s *attempt) checkTimeout(u *upload) {
	var limit, quiet time.Duration
	rule, cause := s.call.rule, context.Cause(s.req.Context())
	s.world.mu.Lock()
	responded, body, end := s.ended < never, s.body, s.script.end
	s.cut = s.world.now()
	s.world.mu.Unlock()
	if quiet = s.quiet(u); body != nil {
		quiet = body.quietFor()
	}
	switch {
	case end == explodes: // a body that panics has no more to give
	case !responded && errors.Is(cause, policy.ErrAttemptTimeout):
		limit = rule.AttemptTimeout
	case errors.Is(cause, policy.ErrStallTimeout):
		limit = rule.StallTimeout
	}
	if quiet < limit {
		s.world.violate(Patience, s.call, "attempt %d was ended by %q, when it had waited for the server for %v", s.number, cause, quiet)
	}
}

// end checks the bytes that arrived. The server stores a body that ends
// properly.
func (u *upload) end(err error) {
	s, want := u.attempt, u.attempt.call.plan.size
	switch {
	case !errors.Is(err, io.EOF):
		u.err = err
		if !s.superseded() && !errors.Is(err, errBody) && !errors.Is(err, io.ErrClosedPipe) {
			s.world.violate(OneReader, s.call, "attempt %d is under way and can't read its body: %v", s.number, err)
		}
	case (isClosed(u.halted) || s.superseded()) && (u.got != want || u.wrong >= 0):
		u.err = errGivenUp // the server does not store it
	case u.wrong >= 0:
		u.err = errors.New("simulate: another body arrived")
		s.world.violate(Stored, s.call, "attempt %d stored another body: byte %d is not the caller's", s.number, u.wrong)
	case u.got != want:
		u.err = errors.New("simulate: the body arrived in part")
		s.world.violate(Stored, s.call, "attempt %d stored %d bytes of %d", s.number, u.got, want)
	default:
		u.whole = true
	}
}

// superseded reports whether the attempt has its response or is no longer
// needed, so that its body may be taken away.
func (s *attempt) superseded() bool {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return s.ended < never || s.req.Context().Err() != nil
}

// response makes the response.
func (s *attempt) response(up *upload) *http.Response {
	resp := &http.Response{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Request: s.req, ContentLength: -1,
	}
	page := s.represent(resp)
	resp.Status = strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	resp.Header.Set("X-Sim-Attempt", strconv.Itoa(s.id))
	told := s.ask(resp)
	// The lock is needed because the oracles look at all attempts of a call,
	// also at an attempt that nobody waits for.
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.page, s.status, s.told = page, resp.StatusCode, told
	s.attach(resp, up)
	return resp
}

// ask writes the wait of the script into the header and returns it.
func (s *attempt) ask(resp *http.Response) (wait time.Duration) {
	sc, h, status := s.script, resp.Header, resp.StatusCode
	sc.told.write(h)
	if status >= 400 && sc.told.holdsFor(status) {
		wait = sc.told.wait
	}
	if sc.quota < 0 || sc.told.form == rateLimit || sc.told.form == xRateLimit {
		return wait
	}
	h.Set("X-Ratelimit-Limit", "100")
	h.Set("X-Ratelimit-Remaining", strconv.FormatInt(sc.quota, 10))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(int64(sc.reset/time.Second), 10))
	if sc.quota == 0 && status == 429 && wait == 0 && sc.told.form != past {
		return sc.reset
	}
	return wait
}

// attach gives the response its body. If the request's body is still being
// read, that ends with the response's body; the lock is held.
func (s *attempt) attach(resp *http.Response, up *upload) {
	if s.status == http.StatusSwitchingProtocols {
		s.body = newRespBody(s, up)
		resp.Body = &tunnel{s.body}
		return
	}
	if s.status == 204 || s.req.Method == http.MethodHead || s.page.size() == 0 {
		resp.Body = http.NoBody
		up.halt()
		return
	}
	s.body = newRespBody(s, up)
	resp.Body = s.body
}
