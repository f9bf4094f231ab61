//go:build unix

// A port that refuses connections. A socket is bound to it but does not listen,
// so no other process can take the port.

package testserver

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

// A reservation is a TCP port of 127.0.0.1 that refuses connections.
type reservation interface {
	addr() string
	listen() (net.Listener, error) // ends the reservation
	release()
}

type boundSocket struct {
	file *os.File
	port int
}

// reserve reserves a free port.
func reserve() (reservation, error) { return bind(0) }

// reserveAgain reserves the port of addr after our listener there was closed. In
// between, another process can take the port.
func reserveAgain(addr string) (reservation, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	return bind(int(ap.Port()))
}

func bind(port int) (reservation, error) {
	syscall.ForkLock.RLock() // a child process must not inherit the socket
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "reserved port")
	// Without this option, bind fails if earlier connections are in TIME_WAIT.
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
	l, err := net.FileListener(b.file) // duplicates the socket
	_ = b.file.Close()
	return l, err
}

func (b *boundSocket) release() { _ = b.file.Close() }
