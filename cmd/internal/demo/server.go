// The server that meets requests with faults.

package demo

import (
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A step is what the server does with one request, after it has read the body.
type step struct {
	status     int    // 0: it resets the connection
	retryAfter string // the header Retry-After; empty: none
	body       string
}

// An arrival is a request as the server got it.
type arrival struct {
	time   time.Time
	length int64 // of the body
	hash   [sha256.Size]byte
	whole  bool // the body ended as it should
}

// A server plays its steps, a step for each request, and the last one from then on.
type server struct {
	url   string
	http  http.Server
	late  *time.Timer // listens; nil: it listens already
	steps []step

	mu       sync.Mutex
	arrivals []arrival
}

// newServer starts a server on the loopback interface. Connections are refused for the time
// late. The system could give the port to somebody else meanwhile. Then the demo says that
// the results are not as promised.
func newServer(late time.Duration, steps []step) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	s := &server{url: "http://" + addr, steps: steps}
	s.http.Handler = s
	if late == 0 {
		go func() { _ = s.http.Serve(l) }()
		return s, nil
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.late = time.AfterFunc(late, func() {
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = s.http.Serve(l)
		}
	})
	return s, nil
}

// close ends the server. A connection that still has a request is closed, too.
func (s *server) close() {
	if s.late != nil {
		s.late.Stop()
	}
	_ = s.http.Close()
}

// log returns the requests that arrived.
func (s *server) log() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival(nil), s.arrivals...)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := arrival{time: time.Now()}
	hash := sha256.New()
	var err error
	a.length, err = io.Copy(hash, r.Body)
	a.hash, a.whole = [sha256.Size]byte(hash.Sum(nil)), err == nil

	s.mu.Lock()
	do := s.steps[min(len(s.arrivals), len(s.steps)-1)]
	s.arrivals = append(s.arrivals, a)
	s.mu.Unlock()

	if do.status == 0 {
		reset(w)
		return
	}
	if do.retryAfter != "" {
		w.Header().Set("Retry-After", do.retryAfter)
	}
	w.WriteHeader(do.status)
	_, _ = io.WriteString(w, do.body)
}

// reset closes the request's connection with an RST.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
