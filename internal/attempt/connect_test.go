package attempt

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
)

// connTo is a connection to an address.
type connTo struct {
	net.Conn
	addr string
}

func (c connTo) RemoteAddr() net.Addr {
	if c.addr == "" {
		panic("no address")
	}
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr))
}

func TestLink(t *testing.T) {
	for _, row := range []struct {
		addr            string
		asks, has, late bool
		connected       bool
		unsent          bool
		ip              string
	}{
		{unsent: false},
		{asks: true, unsent: true},
		{asks: true, has: true, connected: true},
		{has: true, connected: true},
		{asks: true, has: true, addr: "192.0.2.1:80", connected: true, ip: "192.0.2.1"},
		{asks: true, has: true, addr: "[::ffff:192.0.2.1]:80", connected: true, ip: "192.0.2.1"},
	} {
		l := new(Link)
		l.ctx = attemptOf(t.Context(), policy.Rule{ConnectTimeout: time.Hour})
		trace := httptrace.ContextClientTrace(l.hook(t.Context()))
		if row.asks {
			trace.GetConn("h.test:80")
		}
		if row.has {
			trace.GotConn(httptrace.GotConnInfo{Conn: connTo{addr: row.addr}})
		}
		assert.Equal(t, row.connected, l.Connected(), row)
		assert.Equal(t, row.unsent, l.Unsent(), row)
		assert.Equal(t, row.connected, l.ConnectedLate(l.ctx.unconnected), row)
		assert.False(t, l.ConnectedLate(errors.New("another")), row)
		assert.Equal(t, row.asks && row.has, l.ctx.linked, row)
		assert.Equal(t, row.addr != "", l.Addr() != "", row)
		if row.ip != "" {
			assert.Equal(t, row.ip, l.Ip().String(), row)
		} else {
			assert.False(t, l.Ip().IsValid(), row)
		}
	}
	l := new(Link)
	l.ctx = new(attemptContext)
	l.gotConn(httptrace.GotConnInfo{}) // a base may tell of no connection
	assert.True(t, l.Connected())

	var none *Link
	assert.False(t, none.Connected() || none.Unsent() || none.ConnectedLate(nil))
	assert.Empty(t, none.Addr())
	assert.False(t, none.Ip().IsValid())
}

// The search for a connection is bounded once, and only if the attempt would not end earlier.
func TestSearchForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			attempt, connect time.Duration
			phase            string
		}{
			{time.Hour, second, "connecting"},
			{0, second, "connecting"},
			{second + 1, second, "connecting"},
			{second, second, "waiting"},
			{second, time.Hour, "waiting"},
			{second, 0, "waiting"},
		} {
			a := attemptOf(t.Context(), policy.Rule{AttemptTimeout: row.attempt, ConnectTimeout: row.connect})
			a.seekConnection()
			assert.Equal(t, row.phase, phases[a.phase], row)
			a.connect()
			assert.Equal(t, "waiting", phases[a.phase], row)
			a.seekConnection()
			assert.Equal(t, "waiting", phases[a.phase], "it has had a connection")
			a.happens(leaves, nil)
		}
		a := &attemptContext{Context: context.Background()}
		a.seekConnection()
		a.connect()
		assert.Zero(t, a.phase, "it is not timed")
	})
}
