//go:build !unix

// A port that refuses connections, for systems that cannot bind a socket without
// listening. The port is only remembered. Another process can take it.

package testserver

import "net"

// A reservation is a TCP port of 127.0.0.1 that refuses connections.
type reservation interface {
	addr() string
	listen() (net.Listener, error)
	release()
}

type rememberedPort string

func reserve() (reservation, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return rememberedPort(l.Addr().String()), nil
}

func reserveAgain(addr string) (reservation, error) { return rememberedPort(addr), nil }

func (p rememberedPort) addr() string                  { return string(p) }
func (p rememberedPort) listen() (net.Listener, error) { return net.Listen("tcp", string(p)) }
func (p rememberedPort) release()                      {}
