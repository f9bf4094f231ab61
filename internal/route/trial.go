// An attempt over a pool that has yet to show that it is better.

package route

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/attempt"
	"github.com/aplomb-go/aplomb/internal/exchange"
	"github.com/aplomb-go/aplomb/internal/host/pool"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// A Trial sends an attempt over the other pool of a host. If there is no connection in time, or if
// the dial fails, nothing was sent, and it sends the attempt over the current pool.
//
// net/http dials once for each request that finds no connection, also over HTTP/2. So one attempt
// makes the first connection of a pool. A retry of a request that failed over the current pool waits
// for it. Others go over the current pool meanwhile, which may be well, unless that is dead as far as can
// be seen.
type Trial struct {
	registry *exchange.Registry
	maker    *Maker
	base     http.RoundTripper // of the current pool
	pools    *pool.Pools       // of the host
	to, back *pool.Pool
	patience time.Duration
	waits    bool             // for the connection that another attempt makes
	http1    bool             // the host speaks HTTP/1.x
	frees    bool             // the current pool gives up its idle connections, each of which may hold a worker of the server
	Restart  func(*pool.Pool) // begins the time of the attempt anew, over a pool
}

// workerTime is how long a connection of HTTP/1.x may hold a worker of the server for nothing. A server
// may have a worker for each connection, and none for a new connection.
const workerTime = 150 * time.Millisecond

// errImpatient is the error of an attempt that had its connection in the moment in which it was to
// give up. It may have been sent.
var errImpatient error = &attempt.TimeoutError{Text: "transport: the connection came too late"}

func (t *Trial) RoundTrip(req *http.Request) (*http.Response, error) {
	until := time.Now().Add(t.patience)
	free, ok := t.enter(req, until)
	if !ok {
		return t.goBack(req)
	}
	t.Restart(t.to)
	defer func() { // also if the base panics
		free()
		t.to.Use(t.registry.Now())
		rest := pool.Rest
		if t.http1 {
			rest = workerTime // another request may wait for the worker of the connection
		}
		time.AfterFunc(rest, func() { // closes idle connections if no further attempt went over the pool
			if t.pools.Rests(t.to, t.registry.Now(), rest) {
				closeIdle(t.to.Base())
			}
		})
	}()
	missed := func() (*http.Response, error) {
		t.to.Missed(t.registry.Now())
		free()
		return t.goBack(req)
	}
	if t.to.Base() == nil {
		base := t.maker.open(req, t.back.Doubtful(), t.pools.HTTP1.Load())
		if base == nil {
			return missed()
		}
		t.to.Make(base)
	}
	ctx, unsent := t.watch(req, free, until)
	sent := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody && !replay.SmallInMemory(req.Body) {
		sent.Body = &unsentBody{req.Body, unsent}
	}
	resp, err := attempt.CheckResponse(t.to.Base().RoundTrip(sent))
	switch {
	case err == nil || !unsent():
	case req.Context().Err() != nil || attempt.IsCanceled(req):
		if req.Body != nil {
			_ = req.Body.Close() // an unsentBody is not
		}
		return nil, err
	default:
		return missed()
	}
	if t.to.Connected(); resp != nil && resp.Request == sent {
		resp.Request = req
	}
	return resp, err
}

// watch returns a context with which the base tells of the connections of the pool, and a function that
// reports whether it has none for the request yet. If that is so at the end of the patience, the context
// ends. A base may do something else before it asks, such as fetch a token. From then on it has half of
// the patience in any case.
func (t *Trial) watch(req *http.Request, free func(), until time.Time) (ctx context.Context, unsent func() bool) {
	var asked, got, heard atomic.Bool
	unsent, half := func() bool { return asked.Load() && !got.Load() }, time.Until(until)/2
	ctx, cancel := context.WithCancelCause(req.Context()) // which frees it when it ends with the response
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			if asked.Swap(true) { // net/http asks again after a connection that turned out to be closed
				return
			}
			time.AfterFunc(max(time.Until(until), half), func() {
				if unsent() {
					cancel(errImpatient)
				}
			})
		},
		GotConn: func(httptrace.GotConnInfo) {
			if got.Store(true); !t.http1 {
				return
			}
			time.AfterFunc(workerTime, func() {
				if free(); t.frees && !heard.Load() { // the response may take long, and each request needs a connection of its own
					closeIdle(t.base)
				}
			})
		},
		// Not GotConn: net/http offers a new connection of HTTP/2 to other requests a little later.
		WroteHeaders: func() {
			if !t.http1 {
				t.to.Connected()
				free()
			}
		},
		GotFirstResponseByte: func() {
			heard.Store(true)
			t.to.Connected()
			free()
		},
		// The dial goes on when the attempt has gone back.
		ConnectDone: func(_, _ string, err error) {
			if err == nil && req.URL.Scheme == "http" {
				t.to.Dialled()
			}
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				t.to.Dialled()
			}
		},
	}), unsent
}

// enter reports whether the attempt may take the pool, for which it may have to wait. The caller calls
// free when the pool has a connection, or has none.
func (t *Trial) enter(req *http.Request, until time.Time) (free func(), ok bool) {
	for !t.to.IsOpen() {
		free, ended := t.to.TakeTurn()
		switch {
		case free != nil && !t.to.IsOpen() && t.to.IsDue(t.registry.Now()):
			return free, true
		case free != nil: // an attempt has made the connection just now, or has found none
			free()
			return free, t.to.IsOpen()
		case !t.waits:
			return nil, false
		}
		select {
		case <-ended:
		case <-time.After(time.Until(until)):
			t.to.Missed(t.registry.Now()) // the base may call no hooks, and the other attempt may hang
			return nil, false
		case <-req.Context().Done():
			return nil, false
		//lint:ignore SA1019 old callers still set Request.Cancel
		case <-req.Cancel:
			return nil, false
		}
	}
	return func() {}, true
}

// goBack sends the attempt over the current pool, with all of its time.
func (t *Trial) goBack(req *http.Request) (*http.Response, error) {
	t.Restart(t.back)
	return t.base.RoundTrip(req)
}

// An unsentBody is not closed as long as nothing can have been sent, because the request then goes
// over another pool.
type unsentBody struct {
	io.ReadCloser
	unsent func() bool
}

func (b *unsentBody) Close() error {
	if b.unsent() {
		return nil
	}
	return b.ReadCloser.Close()
}
