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
	until   int64 // ms at which the client leaves, as far as the server knows
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
	wait   int64 // ms that a client waits
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
		groups: make([]group, end+1), wait: int64(timeout / time.Millisecond),
		answer: answer,
	}
	s.oldest = make([]int64, s.tick)
	for i := range s.oldest {
		s.oldest[i] = int64(i)
	}
	return s
}

// arrive takes a request that was sent at that millisecond.
func (s *server) arrive(now int64, x send) {
	x.until = now + s.wait
	if s.frozen {
		s.socket = append(s.socket, x)
		return
	}
	s.take(now, x)
}

// take reads a request. It begins the request, answers 503 or drops it.
func (s *server) take(now int64, x send) {
	s.came++
	if s.model.Drop == model.DropBegun {
		x.until = now + s.wait // the server knows nothing of the time before
	}
	switch {
	case s.model.Drop.Queued() && x.until <= now:
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
// clients may be gone.
func (s *server) wake(now int64) {
	s.frozen = false
	socket := s.socket
	s.socket = nil
	for _, x := range socket {
		s.take(now, x)
	}
}

// run lets one millisecond pass.
func (s *server) run(now int64) {
	if s.frozen {
		return
	}
	if old := now - s.wait - 1; old >= 0 {
		s.forget(&s.groups[old])
	}
	phase := now % s.tick
	for at := s.oldest[phase]; at < now; at += s.tick {
		g := &s.groups[at]
		spent := time.Duration(now-at) * time.Millisecond
		for g.n > 0 {
			late := s.late(now, g)
			if !late && spent < s.model.Delay(s.busy) {
				return // the younger groups have spent less time, need as much, and expire later
			}
			s.end(g, !late)
		}
		s.forget(g)
		s.oldest[phase] = at + s.tick
	}
}

// late reports whether the server drops the oldest request of the group.
func (s *server) late(now int64, g *group) bool {
	return s.model.Drop.Begun() && (len(g.live) == 0 || g.live[0].until <= now)
}

// end takes the oldest request out of the group.
func (s *server) end(g *group, answered bool) {
	g.n--
	s.busy--
	if len(g.live) > 0 {
		x := g.live[0]
		g.live = g.live[1:]
		if answered {
			s.answer(x, 0)
		}
	}
}

// forget removes the names of requests whose clients are gone. The server may work on
// these requests all the same.
func (s *server) forget(g *group) {
	if cap(g.live) > 0 && len(s.free) < 1000 {
		s.free = append(s.free, g.live[:0])
	}
	g.live = nil
}
