// The listeners, and an orderly end.

package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 10 * time.Second // for the header of a request to arrive
	idleTimeout   = 2 * time.Minute  // of a connection without a request
	pageTimeout   = 10 * time.Second // for a debug page to be sent
	farewell      = 2 * time.Second  // for responses to requests that were cut off
)

// serve forwards requests until ctx ends, and returns the exit status.
func serve(ctx context.Context, o options, w world, p *proxy, r *rules) int {
	front, err := net.Listen("tcp", o.listen)
	if err != nil {
		w.complain(err)
		return exitFailed
	}
	defer front.Close()
	// The requests end with this context, not with ctx, so that they can be done
	// in peace when ctx ends.
	requests, cut := context.WithCancelCause(context.Background())
	defer cut(errEnding)
	server := newServer(p, p)
	server.BaseContext = func(net.Listener) context.Context { return requests }
	failed := make(chan error, 2)
	debugAddr := ""
	if o.debug != "off" {
		back, err := net.Listen("tcp", o.debug)
		if err != nil {
			w.complain(err)
			return exitFailed
		}
		debugAddr = back.Addr().String()
		name, _, _ := net.SplitHostPort(o.debug)
		pages := newServer(newDebug(p, r, append(o.names, name)), p)
		pages.WriteTimeout = pageTimeout
		defer func() { _ = pages.Close() }()
		go func() { failed <- pages.Serve(back) }()
	}
	go func() { failed <- server.Serve(front) }()
	ended, listening := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(listening)
		for {
			select {
			case <-ended:
				return
			case <-w.hangup:
				r.check()
			}
		}
	}()
	defer func() {
		close(ended)
		<-listening
	}()
	p.log.Info("proxy is up", "listen", front.Addr(), "debug", debugAddr, "to", o.routes.String())
	if w.ready != nil {
		w.ready(front.Addr().String(), debugAddr)
	}
	select {
	case <-ctx.Done():
		return shutDown(server, p, o.grace, cut)
	case err := <-failed:
		p.log.Error("proxy ends", "reason", err)
		_ = server.Close()
		return exitFailed
	}
}

// newServer returns a server on which no idle connection stays for ever. The deadlines for
// bodies are in client.go.
func newServer(h http.Handler, p *proxy) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: p.errorLog}
}

// errEnding is the cause of the end of a request that was cut off.
var errEnding = errors.New("the proxy ends")

// shutDown accepts no more requests and waits for those under way. When the grace is
// over, it cuts them off. It returns the exit status.
//
// Upgraded connections, such as WebSockets, may last for ever. So they are cut off
// as soon as the other requests are done.
func shutDown(server *http.Server, p *proxy, grace time.Duration, cut context.CancelCauseFunc) int {
	p.log.Info("proxy ends", "under_way", p.active.Load())
	late := wait(server.Shutdown, grace)
	cut(errEnding)
	// The requests that were cut off get a response now, if their client reads it.
	if wait(server.Shutdown, farewell) != nil {
		_ = server.Close()
	}
	_ = wait(p.waitForHandlers, farewell)
	if late != nil {
		p.log.Error("requests were cut off", "grace", grace)
		return exitFailed
	}
	return exitFine
}

// wait calls f with a context that ends after a time.
func wait(f func(context.Context) error, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}
