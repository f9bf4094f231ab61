// One address after the other, until one connects.

package dial

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"
)

// stagger is how long an address has before the next gets its turn (RFC 8305 §5).
const stagger = 250 * time.Millisecond

type result struct {
	conn net.Conn
	err  error
	of   int // index of the address
}

// race dials the addresses in their order, and returns the first connection. It closes
// each connection that comes later.
func (d *Dialer) race(ctx context.Context, network, addr, port string, ips []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)
	results := make(chan result) // unbuffered, so that a connection has one owner
	dial := func(of int) {
		conn, err := d.dial(ctx, network, net.JoinHostPort(ips[of].String(), port))
		select {
		case results <- result{conn, err, of}:
		case <-returned:
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	var (
		first   error
		began   = make([]time.Time, 0, len(ips)) // zero: it has failed
		pending int
		turn    = time.NewTimer(0) // of the next address
	)
	defer turn.Stop()
	for {
		select {
		case <-turn.C:
			of := len(began)
			began = append(began, time.Now())
			pending++
			go dial(of)
			if len(began) < len(ips) {
				turn.Reset(stagger)
			}
			continue
		case r := <-results:
			if r.err == nil {
				began[r.of] = time.Time{}
				d.late(addr, ips, began)
				return r.conn, nil
			}
			pending--
			first = cmp.Or(first, r.err)
			if ctx.Err() == nil || hadTime(began[r.of]) {
				d.memory.fail(addr, ips[r.of])
			}
			began[r.of] = time.Time{}
		}
		switch {
		case ctx.Err() == nil && len(began) < len(ips):
			turn.Reset(0)
		case pending == 0:
			return nil, first
		}
	}
}

// late notes the addresses that had their time and have not answered.
func (d *Dialer) late(addr string, ips []netip.Addr, began []time.Time) {
	for of, at := range began {
		if !at.IsZero() && hadTime(at) {
			d.memory.fail(addr, ips[of])
		}
	}
}

// hadTime reports whether an address that was dialled at began had time to answer.
func hadTime(began time.Time) bool { return time.Since(began) >= stagger }
