// Package redisserver starts a redis-server of its own for tests, examples and
// experiments.
package redisserver

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// ErrMissing says that there is no redis-server on this machine.
var ErrMissing = errors.New("redis-server is missing: install it with \"make redis\" or your package manager")

// Program returns the name of the server's program. It is redis-server, unless the
// environment variable APLOMB_REDIS_SERVER names another, such as valkey-server.
func Program() string { return cmp.Or(os.Getenv("APLOMB_REDIS_SERVER"), "redis-server") }

// A Server is a running redis-server on a port of 127.0.0.1, which keeps nothing on disk.
type Server struct {
	Addr string

	args []string
	dir  string

	mu   sync.Mutex // guards the fields below
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	text *bytes.Buffer // the output of the process
}

// Start starts a redis-server on a free port, and waits until it answers. args are more
// settings, such as "--maxmemory", "2mb". Stop it at the end. On Linux the server also
// ends when this process dies.
func Start(args ...string) (*Server, error) {
	if _, err := exec.LookPath(Program()); err != nil {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "redisserver")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, args: args}
	for range 5 { // another process may take the port in between
		if s.Addr, err = freeAddr(); err != nil {
			break
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
	}
	s.Stop()
	return nil, err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Restart starts the server again at its address, after Kill. It remembers nothing.
func (s *Server) Restart() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", s.dir, "--daemonize", "no", "--loglevel", "warning"}
	cmd := exec.Command(Program(), append(args, s.args...)...)
	text := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = text, text
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The exit status is of no interest. The caller sees whether the server answers.
		_ = cmd.Wait()
	}()
	s.mu.Lock()
	s.cmd, s.done, s.text = cmd, done, text
	s.mu.Unlock()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-done:
			return fmt.Errorf("redis-server ended: %s", text)
		default:
		}
		if answers(s.Addr) {
			return nil
		}
		if time.Since(start) > 10*time.Second {
			s.Kill()
			return errors.New("redis-server does not answer")
		}
	}
}

// answers reports whether a Redis answers a ping, be it with an error.
func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	// If one of these fails, the connection is broken, and the Read fails as well.
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write([]byte("PING\r\n"))
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}

// Process returns the running process, for signals.
func (s *Server) Process() *os.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process
}

// Kill ends the server at once and waits for its end.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	// It fails if the process has ended, which is as good.
	_ = cmd.Process.Kill()
	<-done
}

// Stop kills the server and removes its directory.
func (s *Server) Stop() {
	s.Kill()
	// A directory that is left in the temporary directory does no harm.
	_ = os.RemoveAll(s.dir)
}
