// The server, in virtual time.

package sim

import (
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// A send is one attempt of a client. If the client gives the attempt up, its count
// goes on, so that the late response finds another number.
type send struct {
	client  int32
	attempt uint32
}

// A server works on requests by the model. All requests that began in the same
// millisecond form a group. They check whether they are done in the same
// milliseconds, a tick apart. This is exact to the millisecond and costs the same
// for any number of requests in progress.
type server struct {
	model model.Server
	tick  int64 // ms

	groups []group // by the millisecond of their beginning
	oldest []int64 // by phase: no group before it has anybody left
	busy   int
	came   int   // arrivals since the last question
	keep   int64 // ms after which no client waits any more
	free   [][]send

	frozen bool
	socket []send // requests that arrived while the server was frozen

	answer func(send, time.Duration) // called for each that is done; a hint is a 503's
}

type group struct {
	n    int    // in progress
	live []send // requests whose client may still wait, oldest first
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

// wake resumes the server, which takes all requests in its sockets at once. Their
// clients may be gone, but the server cannot know that.
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
			return // the younger groups have spent less time and need as much
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

// forget drops the names of requests whose clients are gone. The server works on
// these requests all the same.
func (s *server) forget(g *group) {
	if cap(g.live) > 0 && len(s.free) < 1000 {
		s.free = append(s.free, g.live[:0])
	}
	g.live = nil
}
