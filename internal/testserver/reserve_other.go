//go:build !unix

// How is a port kept that refuses connections, where sockets cannot be bound
// without listening? By remembering its number, and hoping.

package testserver

import "net"

// A reservation is a TCP port of 127.0.0.1 that refuses.
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
