// The server, in virtual time.

package sim

import (
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/model"
)

// A send is one attempt of a client. A client that has given it up counts on,
// so that the server's answer finds another number there.
type send struct {
	client  int32
	attempt uint32
}

// A server works on requests by the model. All that began in the same
// millisecond are one group, and look at the same milliseconds, a tick apart,
// whether they are done; that is exact to the millisecond and costs the same
// however many are in progress.
type server struct {
	model model.Server
	tick  int64 // ms

	groups []group // by the millisecond of their beginning
	oldest []int64 // by phase: no group before it has anybody left
	busy   int
	came   int   // arrivals that the server saw, until somebody asks
	keep   int64 // ms after which no client waits any more
	free   [][]send

	frozen bool
	socket []send // what arrived meanwhile

	answer func(send, time.Duration) // called for each that is done; a hint is a 503's
}

type group struct {
	n    int    // in progress
	live []send // those of them somebody may wait for, oldest first
}

func newServer(m model.Server, end int, timeout time.Duration, answer func(send, time.Duration)) *server {
	s := &server{
		model: m, tick: int64(m.Tick / time.Millisecond),
		groups: make([]group, end+1), keep: int64(timeout/time.Millisecond) + 1,
		answer: answer,
	}
	s.oldest = make([]int64, s.tick)
	for i := range s.oldest {
		s.oldest[i] = int64(i)
	}
	return s
}

// arrive takes a request at that millisecond.
func (s *server) arrive(now int64, x send) {
	if s.frozen {
		s.socket = append(s.socket, x)
		return
	}
	s.came++
	switch {
	case s.model.RetryAfter > 0 && s.busy >= s.model.Limit:
		s.answer(x, s.model.RetryAfter)
	default:
		g := &s.groups[now]
		if g.live == nil && len(s.free) > 0 {
			g.live, s.free = s.free[len(s.free)-1], s.free[:len(s.free)-1]
		}
		g.n++
		g.live = append(g.live, x)
		s.busy++
	}
}

// wake resumes the server: what waits in its sockets is taken at once. Those
// who sent it may be gone; it cannot know.
func (s *server) wake(now int64) {
	s.frozen = false
	socket := s.socket
	s.socket = nil
	for _, x := range socket {
		s.arrive(now, x)
	}
}

// run lets one millisecond pass.
func (s *server) run(now int64) {
	if s.frozen {
		return
	}
	if old := now - s.keep; old >= 0 {
		s.forget(&s.groups[old])
	}
	phase := now % s.tick
	for at := s.oldest[phase]; at < now; at += s.tick {
		g := &s.groups[at]
		spent := time.Duration(now-at) * time.Millisecond
		for g.n > 0 && spent >= s.model.Delay(s.busy) {
			s.finish(g)
		}
		if g.n > 0 {
			return // the younger ones have spent less time, and need as much
		}
		s.forget(g)
		s.oldest[phase] = at + s.tick
	}
}

func (s *server) finish(g *group) {
	g.n--
	s.busy--
	if len(g.live) > 0 {
		x := g.live[0]
		g.live = g.live[1:]
		s.answer(x, 0)
	}
}

// forget drops the names of those whose clients are gone; they are worked on
// all the same.
func (s *server) forget(g *group) {
	if cap(g.live) > 0 && len(s.free) < 1000 {
		s.free = append(s.free, g.live[:0])
	}
	g.live = nil
}
