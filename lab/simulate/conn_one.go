// Scenes in which one connection of several turns bad, and their check.

package simulate

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/dice"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// newOneScene draws a scene whose callers come in crowds, so that the host has several
// connections. Each strike hits one of them, in a way of its own.
func newOneScene(d dice.Dice) *scene {
	s := &scene{kind: oneOfMany, warm: time.Second, begin: 10 * time.Second, end: 10*time.Second + 3*strikeEach}
	s.timeout = d.Between(200*time.Millisecond, time.Second)
	s.trip = d.Between(5*time.Millisecond, s.timeout/5)
	s.every = d.Between(time.Second, 5*time.Second)
	s.tick = d.Between(time.Second, 10*time.Second)
	s.crowd = 3 + d.IntN(8)
	return s
}

// oneWires returns the connections of the scene's host. A connection has few streams, so
// that a crowd needs several of HTTP/2, too.
func (s *scene) oneWires(d dice.Dice) *wiring {
	w := &wiring{untold: d.Chance(20), streams: dice.One(d, 2+s.crowd/4, s.crowd-1), single: true, fate: dice.One(d, dies, drags, sick, strays)}
	for at := s.begin; at < s.end; at += strikeEach {
		w.strikes = append(w.strikes, at)
	}
	return w
}

// oneRule returns the rule of the scene's host.
func (s *scene) oneRule() policy.Rule {
	return policy.Rule{Attempts: 4, Backoff: backoff.Constant(10 * time.Millisecond), AttemptTimeout: s.timeout}
}

// oneCast adds the crowds to the plan. The last of each crowd sends a POST.
func (s *scene) oneCast(add func(time.Duration, callPlan)) {
	add(s.warm, callPlan{method: http.MethodGet, role: listener, cancel: 2 * time.Minute})
	for at := s.warm; at < s.end+5*time.Second; at += s.every {
		for i := range s.crowd {
			c := callPlan{method: http.MethodGet}
			if i == s.crowd-1 {
				c.method = http.MethodPost
			}
			add(at+time.Duration(i)*100*time.Microsecond, c)
		}
	}
}

// strike hits one connection that an attempt may take, if a strike of the host is due.
func (b *base) strike(h *host) {
	w := b.world
	w.mu.Lock()
	n := w.struck[h]
	due := n < len(h.wires.strikes) && w.now() >= h.wires.strikes[n]
	if due {
		w.struck[h]++
	}
	w.mu.Unlock()
	if !due {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*conn
	for _, c := range b.conns {
		if c.host == h && !c.closed && (c.streams == 0 || h.http2) {
			all = append(all, c)
		}
	}
	if len(all) > 1 { // the only connection would be another scene
		c := all[dice.Roll(w.plan.seed, ofStrike, uint64(h.id), uint64(n)).IntN(len(all))]
		c.doom.Store(&doom{h.wires.fate, w.now()})
	}
}

// checkOne checks that each request gets its response although one connection is bad, after
// one bad attempt at most. A connection of HTTP/1 is bad for one request, and one of HTTP/2
// for those that it takes at once. Only after a 503 the host stays, because such a response
// may come from a healthy server; the lock is held.
func (w *world) checkOne(h *host, s *scene) {
	met := make(map[*conn]int)
	for _, c := range w.calls {
		if c.plan.host != h.id || c.last || c.plan.role != ordinary || c.plan.method != http.MethodGet {
			continue
		}
		bad := 0
		for _, a := range c.attempts {
			if a.conn.is(h.wires.fate) && a.ended > a.conn.dooms().turns && (a.status != http.StatusOK || a.ended-a.began > s.trip+2*dialTime) {
				bad++
				met[a.conn]++
			}
		}
		switch most := s.timeout + 3*s.trip + 200*time.Millisecond; {
		case h.wires.fate == sick && c.detours(): // the host stays, so both lanes may have one, and the retries may be used up
		case c.resp == nil || c.resp.StatusCode != http.StatusOK:
			w.complain(Another, c, "the request failed, although one connection alone was %v: %s", h.wires.fate, c.outcome())
		case bad > 1:
			w.complain(Another, c, "%d attempts went over bad connections; one may", bad)
		case c.returned-c.plan.at > most:
			w.complain(Another, c, "the request took %v, beside one bad connection; it may take %v", c.returned-c.plan.at, most)
		}
	}
	most := 1
	if h.http2 {
		most = 2 * h.wires.streams
	}
	for c, n := range met {
		if n > most && h.wires.fate != sick {
			w.complain(Another, nil, "%d requests went over connection %d, which was %v since %v; there may be %d", n, c.id, c.dooms().fate, c.dooms().turns, most)
		}
	}
}

// detours reports whether each retry took another lane than the attempt before it.
func (c *call) detours() bool {
	for i := 1; i < len(c.attempts); i++ {
		if c.attempts[i].lane == c.attempts[i-1].lane {
			return false
		}
	}
	return true
}
