// The attempt that seeks the first connection of a lane.

package flight

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/lane"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// A Seek says what becomes of an attempt that seeks the first connection of a lane, if it finds
// none.
type Seek struct {
	Lane     *lane.Lane        // that has no connection yet
	Patience time.Duration     // after which the attempt takes the other lane
	Else     *lane.Lane        // the other lane
	Base     http.RoundTripper // of the other lane; nil: the attempt has to take this one
}

// seek sends the copy over a lane that has no connection yet. If it gets none in time, or if
// the dial fails, nothing was sent, and the copy goes over the other lane. The dial goes on. The
// time of the attempt begins when it has a connection or takes the other lane.
func (f *Flight) seek(out *Outgoing) (*http.Response, error) {
	link, s := f.Link, f.Link.Seeks
	over := false
	defer func() {
		if !over { // the base transport has panicked
			s.Lane.Missed(f.Home.Now())
		}
	}()
	ctx, stop := s.wait(&out.Ctx, link)
	defer stop()
	req := out.Req.WithContext(link.hook(ctx))
	if req.Body != nil && req.Body != http.NoBody && s.Base != nil && !replay.SmallInMemory(req.Body) {
		req.Body = &unsentBody{req.Body, link}
	}
	gone := out.Ctx.Err() != nil
	resp, err := CheckResponse(f.Base.RoundTrip(req))
	switch over = true; {
	case gone && resp == nil: // the base does not seek a connection then
		s.Lane.Quit()
	case resp != nil || !link.Unsent():
		s.Lane.Connected()
		return ofCopy(resp, req, out), err
	default:
		s.Lane.Missed(f.Home.Now())
		if s.Base != nil && out.Ctx.Err() == nil && !IsCanceled(&out.Req) {
			return f.goElsewhere(out)
		}
	}
	if out.Req.Body != nil && link.Unsent() { // else the base has closed it
		_ = out.Req.Body.Close()
	}
	return nil, err
}

// IsCanceled reports whether the caller has gone without ending its context.
func IsCanceled(req *http.Request) bool {
	select {
	//lint:ignore SA1019 old callers still set Request.Cancel
	case <-req.Cancel:
		return true
	default:
		return false
	}
}

// ofCopy makes a response to a request that was sent one to the copy.
func ofCopy(resp *http.Response, sent *http.Request, out *Outgoing) *http.Response {
	if resp != nil && resp.Request == sent {
		resp.Request = &out.Req
	}
	return resp
}

// dialled hears of the end of a dial, which may come after the attempt.
func (s *Seek) dialled(err error) {
	if err == nil {
		s.Lane.Dialled()
	}
}

// wait returns a context that ends when an attempt has waited for its connection long enough.
func (s *Seek) wait(parent context.Context, link *Link) (ctx context.Context, stop func() bool) {
	if s.Base == nil {
		return parent, func() bool { return true }
	}
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(s.Patience, func() {
		if link.Unsent() {
			cancel(&net.OpError{Op: "dial", Net: "tcp", Err: &TimeoutError{"no connection within %v", s.Patience, errUnconnected}})
		}
	})
	return ctx, timer.Stop // the parent frees the context when it ends with the response
}

// goElsewhere sends the copy over the other lane.
func (f *Flight) goElsewhere(out *Outgoing) (*http.Response, error) {
	s := f.Link.Seeks
	f.Lane, f.Link = s.Else, &Link{ctx: &out.Ctx}
	out.Ctx.lane = f.Lane
	out.Ctx.takeOff()
	req := out.Req.WithContext(f.Link.hook(&out.Ctx))
	resp, err := CheckResponse(s.Base.RoundTrip(req))
	return ofCopy(resp, req, out), err
}

// takeOff begins the time of an attempt that has sought a connection.
func (a *attemptContext) takeOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = time.Since(a.alarms.made)
	a.on(hasConnection, nil)
	a.linked = true
}

// An unsentBody is not closed as long as nothing can have been sent, because the request then
// goes over another lane.
type unsentBody struct {
	io.ReadCloser
	link *Link
}

func (b *unsentBody) Close() error {
	if b.link.Unsent() {
		return nil
	}
	return b.ReadCloser.Close()
}
