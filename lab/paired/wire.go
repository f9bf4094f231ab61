// The way of a connection to a host that is distant, behind a NAT, or short of workers.

package paired

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// A wire is a connection that leads over a middlebox. The client has one end of near, and the server one
// end of far.
type wire struct {
	host      *host
	queue     *queue // of the connections that have no worker
	near, far *testserver.Conn
	gone      context.Context // ends when the client or the server has closed
	end       context.CancelFunc

	mu        sync.Mutex // guards the following
	last      time.Time  // when the NAT saw bytes last
	forgotten bool       // the NAT forwards nothing any more
	keepAlive *time.Timer
}

// A routed connection is the client's end. Its address is that of the server.
type routed struct {
	net.Conn
	server net.Addr
}

func (r routed) RemoteAddr() net.Addr { return r.server }

// route returns the client's end of a new connection over the middlebox of a host.
func (w *world) route(h *host, far net.Conn) (net.Conn, error) {
	w.routers.Lock()
	client, err := w.net.DialContext(context.Background(), "tcp", router)
	if err != nil {
		w.routers.Unlock()
		return nil, err
	}
	near, err := w.router.Accept()
	w.routers.Unlock()
	if err != nil {
		return nil, err
	}
	x := &wire{host: h, queue: w.queues[h.id], near: near.(*testserver.Conn), far: far.(*testserver.Conn), last: time.Now()}
	x.gone, x.end = context.WithCancel(context.Background())
	up, down := make(chan piece, 1024), make(chan piece, 1024)
	go x.read(x.near, up)
	go x.read(x.far, down)
	go x.serve(up)
	go x.bring(down)
	return routed{client, far.RemoteAddr()}, nil
}

const router = "router.test:1"

// A piece is some bytes on their way, or the end of them.
type piece struct {
	at  time.Time
	p   []byte
	err error
}

// read takes bytes from an end, and says when they arrive at the other.
func (x *wire) read(from net.Conn, to chan<- piece) {
	for {
		p := make([]byte, 4096)
		n, err := from.Read(p)
		x.mu.Lock()
		now := time.Now()
		if x.host.forgets > 0 && now.Sub(x.last) > x.host.forgets {
			x.forgotten = true
		}
		x.last = now
		lost := x.forgotten
		if from == net.Conn(x.far) && x.host.keeps > 0 && err == nil { // a response: the connection is idle after it
			if x.keepAlive != nil {
				x.keepAlive.Stop()
			}
			x.keepAlive = time.AfterFunc(x.host.keeps, x.close)
		}
		x.mu.Unlock()
		if n > 0 && !lost {
			to <- piece{now.Add(x.host.distance), p[:n], nil}
		}
		if err != nil {
			if lost && from == net.Conn(x.near) {
				x.close() // the server's end would stay for ever
			}
			if !lost {
				to <- piece{now.Add(x.host.distance), nil, err}
			}
			close(to)
			return
		}
	}
}

// close closes the server's end.
func (x *wire) close() {
	_ = x.far.Close()
	x.end()
}

// reset resets the client's connection.
func (x *wire) reset() {
	_ = x.near.SetLinger(0)
	_ = x.near.Close()
}

// serve hands the bytes of the client to the server, when that has a worker for the connection.
func (x *wire) serve(up <-chan piece) {
	if x.host.places > 0 {
		if !x.queue.enter(x.gone) {
			return
		}
		defer x.queue.leave()
	}
	for piece := range up {
		time.Sleep(time.Until(piece.at))
		if piece.err != nil {
			x.close()
			break
		}
		x.mu.Lock()
		if x.keepAlive != nil {
			x.keepAlive.Stop()
		}
		x.mu.Unlock()
		if _, err := x.far.Write(piece.p); err != nil || x.gone.Err() != nil { // the server has closed it, and its reset is on the way
			time.Sleep(x.host.distance)
			x.reset()
			break
		}
	}
	<-x.gone.Done()
}

// bring hands the bytes of the server to the client.
func (x *wire) bring(down <-chan piece) {
	for piece := range down {
		time.Sleep(time.Until(piece.at))
		if piece.err == io.EOF || x.gone.Err() != nil && piece.err != nil {
			_ = x.near.CloseWrite()
			break
		} else if piece.err != nil {
			x.reset()
			break
		}
		_, _ = x.near.Write(piece.p)
	}
}
