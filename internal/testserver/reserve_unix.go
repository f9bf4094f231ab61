//go:build unix

// How is a port kept that refuses connections? By a socket that is bound and
// does not listen.

package testserver

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// A reservation is a TCP port of 127.0.0.1 that is ours and refuses.
type reservation interface {
	addr() string
	listen() (net.Listener, error) // uses the reservation up
	release()
}

type boundSocket struct {
	file *os.File
	port int
}

// reserve takes a free port.
func reserve() (reservation, error) { return bind(0) }

// reserveAgain takes the port of addr, which a listener of ours has just left.
// For a moment in between it is anybody's.
func reserveAgain(addr string) (reservation, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	return bind(int(ap.Port()))
}

func bind(port int) (reservation, error) {
	syscall.ForkLock.RLock() // a child must not inherit the socket
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "reserved port")
	// Connections in TIME_WAIT must not keep us from our own port.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		_ = file.Close()
		return nil, os.NewSyscallError("getsockname", err)
	}
	return &boundSocket{file, sa.(*syscall.SockaddrInet4).Port}, nil
}

func (b *boundSocket) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

func (b *boundSocket) listen() (net.Listener, error) {
	if err := syscall.Listen(int(b.file.Fd()), backlog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(b.file) // a duplicate: ours can go
	_ = b.file.Close()
	return l, err
}

func (b *boundSocket) release() { _ = b.file.Close() }
