package outages

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/lab/internal/virtual"
	"github.com/aplomb-go/aplomb/lab/storm/literature"
)

// A trouble is a time in which a server is down.
type trouble struct {
	how         string // see doc.go
	from, until time.Duration
	every       time.Duration // the trouble comes again and again
	wait        string        // a Retry-After, also for random failures
}

// lasts reports whether the server is down.
func (x trouble) lasts(at time.Duration) bool {
	if x.every > 0 && at >= x.from {
		at = x.from + (at-x.from)%x.every
	}
	return at >= x.from && at < x.until
}

const (
	ordinary = 20 * time.Millisecond  // the latency of a server for which a story names none
	job      = 10 * time.Millisecond  // of a worker
	refusal  = time.Millisecond       // the time that it takes from a worker
	longest  = 200 * time.Millisecond // in the queue of a server that refuses
)

// A server plays the server of a story. It has a latency, or workers and a queue.
type server struct {
	*story
	began time.Time

	mu       sync.Mutex      // guards the following
	free     []time.Duration // when each worker will be free
	seen     int
	down     int               // of these, while the server was down
	arrivals []int             // of each step
	tries    map[uint64]uint64 // of each request, if some fail at random
}

const step = 100 * time.Millisecond

func newServer(s *story) *server {
	return &server{story: s, began: time.Now(), free: make([]time.Duration, s.workers), tries: map[uint64]uint64{}}
}

// A fate is the end of an attempt.
type fate struct {
	after  time.Duration
	status int // 0: the connection is refused
	wait   string
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	f := s.arrive(req)
	if err := virtual.Pause(req.Context(), f.after); err != nil {
		return nil, err
	}
	if f.status == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	resp := literature.Response(req, f.status)
	if f.wait != "" {
		resp.Header.Set("Retry-After", f.wait)
	}
	return resp, nil
}

func (s *server) arrive(req *http.Request) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.began)
	s.seen++
	for len(s.arrivals) <= int(at/step) {
		s.arrivals = append(s.arrivals, 0)
	}
	s.arrivals[at/step]++
	if s.lasts(at) {
		s.down++
		if s.how != "frozen" {
			return s.fail(at)
		}
	}
	switch latency := max(s.latency, ordinary); {
	case req.URL.Path == "/bad", s.share > 0 && s.unlucky(req):
		return fate{latency, http.StatusServiceUnavailable, s.wait}
	case s.workers == 0:
		return fate{latency, http.StatusOK, ""}
	}
	return s.work(at)
}

// unlucky draws whether an attempt fails. The same tries of the same requests fail for each client.
func (s *server) unlucky(req *http.Request) bool {
	id, _ := strconv.ParseUint(req.Header.Get("Request-Id"), 10, 64)
	s.tries[id]++
	return dice.Roll(id, s.tries[id]).Float64() < s.share
}

// fail returns the fate of an attempt while the server is down.
func (s *server) fail(at time.Duration) fate {
	switch s.how {
	case "refused":
		return fate{time.Millisecond, 0, ""}
	case "silent":
		return fate{time.Hour, 0, ""}
	case "429":
		left := (s.until - at + time.Second - 1) / time.Second
		return fate{ordinary, http.StatusTooManyRequests, fmt.Sprint(int(left))}
	}
	return fate{max(s.latency, ordinary), http.StatusServiceUnavailable, s.wait}
}

// work gives an attempt to the worker that is free first.
func (s *server) work(at time.Duration) fate {
	first := 0
	for i, free := range s.free {
		if free < s.free[first] {
			first = i
		}
	}
	begin := max(s.free[first], at)
	if s.how == "frozen" && begin+job > s.from && begin < s.until {
		begin = s.until
	}
	if s.refuses && begin-at > longest {
		s.free[first] += refusal
		return fate{refusal, http.StatusServiceUnavailable, ""}
	}
	s.free[first] = begin + job
	return fate{begin + job - at, http.StatusOK, ""}
}
