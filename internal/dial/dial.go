// Package dial connects to the addresses of a name in an order of its own. Package
// net dials them one after the other, and gives each a part of the time that the
// dial may take. With the usual 30 s a request gives up before the second address
// has its turn. Here the next address gets its turn after 250 ms, or twice the time
// in which the name was connected last, or when an address fails. Addresses that failed lately
// come last. An address has failed if its dial failed, or if it did not answer in twice the time in
// which another did.
//
// The files, in the order in which a dial meets them:
//
//	dial.go     a Dialer, which transports can have one, and one address after the other until one connects
//	address.go  the addresses of a name, the memory of them, and their order
package dial

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"runtime"
	"time"
)

// A Func dials. It has the type of http.Transport.DialContext.
type Func = func(ctx context.Context, network, addr string) (net.Conn, error)

// A Dialer dials the addresses of names for the transports of one base. It is safe
// for concurrent use, and starts no goroutine that outlives a dial.
type Dialer struct {
	dial   Func
	lookup lookupFunc
	memory memory
}

// New returns the DialContext of a Dialer that dials as the transport does, or that of the transport if it has a
// Dialer already. It returns nil if the transport has dialling of its own, because that may map
// names or refuse some addresses. So it gets names and never an address. The method of a net.Dialer
// is not such dialling. Its Control, its Resolver and its local address stay in force.
func New(t *http.Transport) Func {
	//lint:ignore SA1019 old transports still set Dial and DialTLS
	if runtime.GOOS == "js" || t.Dial != nil && t.DialContext == nil || t.DialTLS != nil || t.DialTLSContext != nil {
		return nil
	}
	own := t.DialContext
	if own == nil {
		own = new(net.Dialer).DialContext
	}
	switch {
	case isMethod(own, new(net.Dialer).DialContext):
		return With(own, lookupBy(own)).DialContext
	case isMethod(own, new(Dialer).DialContext):
		return own
	}
	return nil
}

// With returns a Dialer that connects by dial and looks names up by lookup. lookup
// returns the addresses of the name in addr, which is "name:port".
func With(dial Func, lookup func(ctx context.Context, network, addr string) ([]netip.Addr, error)) *Dialer {
	return &Dialer{dial: dial, lookup: lookup, memory: memory{names: map[string]*name{}}}
}

// isMethod reports whether dial is the same method, perhaps of another receiver. A func that
// calls the method has a name of its own.
func isMethod(dial, method Func) bool {
	f, m := runtime.FuncForPC(reflect.ValueOf(dial).Pointer()), runtime.FuncForPC(reflect.ValueOf(method).Pointer())
	return f != nil && m != nil && f.Name() == m.Name()
}

// An elsewhereKey is the key of a context with an address, see Elsewhere.
type elsewhereKey struct{}

// Elsewhere returns a context with which a Dialer takes the address bad of the name for failed, although it may have
// connected. If bad is zero, it is the address that would be dialled first, unless one has failed within the last minute.
func Elsewhere(ctx context.Context, bad netip.Addr) context.Context {
	return context.WithValue(ctx, elsewhereKey{}, bad)
}

// DialContext connects to addr, which is "name:port". If network is "tcp", the next address of the name
// gets its turn after a while, or at once when an address fails. If all of them fail,
// DialContext returns the error of the first.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	name, port, _ := net.SplitHostPort(addr)
	if _, noLiteral := netip.ParseAddr(name); noLiteral == nil || name == "" || network != "tcp" {
		return d.dial(ctx, network, addr)
	}
	ips, err := d.lookup(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if ips = d.memory.order(addr, ips); len(ips) == 0 {
		return d.dial(ctx, network, addr) // it knows the right error
	}
	switch bad, elsewhere := ctx.Value(elsewhereKey{}).(netip.Addr); {
	case bad.IsValid():
		d.memory.fail(addr, bad)
	case elsewhere && !d.memory.hasFailed(addr):
		d.memory.fail(addr, ips[0])
	}
	return d.race(ctx, addr, port, ips)
}

// An address has stagger before the next gets its turn (RFC 8305 §5), or twice the time in which an address of
// the name has connected before, but never more than longest.
const (
	stagger = 250 * time.Millisecond
	longest = 2 * time.Second
)

type result struct {
	conn net.Conn
	err  error
	of   int // index of the address
}

// race dials the addresses in their order, and returns the first connection. It closes
// each connection that comes later.
func (d *Dialer) race(ctx context.Context, addr, port string, ips []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)
	results := make(chan result) // unbuffered, so that a connection has one owner
	dial := func(of int) {
		conn, err := d.dial(ctx, "tcp", net.JoinHostPort(ips[of].String(), port))
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
		races   bool
	)
	defer d.memory.note(addr, func(n *name) { n.races = n.races && !races })
	for {
		select {
		case <-turn.C:
			of := len(began)
			if pending > 0 && !d.memory.mayRace(addr, time.Since(began[of-1]), &races) {
				turn.Reset(stagger / 10) // another dial finds out how far away they are
				continue
			}
			copy(ips[of:], d.memory.order(addr, ips[of:])) // others have found out which are dead
			began = append(began, time.Now())
			pending++
			go dial(of)
			if len(began) < len(ips) {
				turn.Reset(stagger)
			}
			continue
		case r := <-results:
			if r.err == nil {
				d.late(addr, ips, began, r.of)
				return r.conn, nil
			}
			pending--
			first = cmp.Or(first, r.err)
			if ctx.Err() == nil || time.Since(began[r.of]) >= stagger {
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

// late notes the addresses that have not answered in twice the time in which another did.
func (d *Dialer) late(addr string, ips []netip.Addr, began []time.Time, answered int) {
	took := time.Since(began[answered])
	d.memory.note(addr, func(n *name) { n.took = max(took, 1) })
	for of, at := range began {
		if of != answered && !at.IsZero() && time.Since(at) >= 2*took {
			d.memory.fail(addr, ips[of])
		}
	}
}
