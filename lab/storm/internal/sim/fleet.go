// The processes and their fleet. The ledger is the real one. Only its network is a model:
// everything takes half of the delay to the ledger, and half of the delay back.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// A fleet has the ledger that the processes share, and their messages.
type fleet struct {
	shares model.Fleet
	half   int64 // ms that a message takes
	ledger ledger.Host
	posts  []post // on their way, the first to arrive first
	renews []renewal
}

// A renewal is the time at which a process renews the permit of its probe.
type renewal struct {
	at      int64 // ms
	process int32
}

// renewLater lets a process renew the permit of the probe that it sends now.
func (w *world) renewLater(p int32) {
	w.fleet.renews = append(w.fleet.renews, renewal{w.ms + gate.RenewTime.Milliseconds(), p})
}

// renew renews the permits whose time has come.
func (w *world) renew() {
	f := &w.fleet
	for len(f.renews) > 0 && f.renews[0].at <= w.ms {
		p := f.renews[0].process
		f.renews = f.renews[1:]
		if f.shares.Probe && w.hosts[p].gate.Renew() {
			w.permit(p)
			w.renewLater(p)
		}
	}
}

// A post is a message to the ledger or from it.
type post struct {
	at      int64 // ms
	deliver func()
}

// post lets a message arrive after half of the delay.
func (w *world) post(deliver func()) {
	w.fleet.posts = append(w.fleet.posts, post{w.ms + w.fleet.half, deliver})
}

// ask sends the ledger an operation.
func (w *world) ask(op func()) {
	w.run.At(w.now.Since()).Ops++
	w.post(op)
}

// toAll lets all processes hear something, at the same time.
func (w *world) toAll(hear func(m *machines)) {
	w.post(func() {
		for p := range w.hosts {
			hear(&w.hosts[p])
		}
	})
}

// deliver delivers the messages whose time has come.
func (w *world) deliver() {
	f := &w.fleet
	w.renew()
	for len(f.posts) > 0 && f.posts[0].at <= w.ms {
		p := f.posts[0]
		f.posts[0] = post{}
		f.posts = f.posts[1:]
		p.deliver()
		w.askAgain()
	}
}

// askFleet asks for a permit, if the gate of this client's process needs it.
func (w *world) askFleet(i int32) {
	p := w.process(i)
	h := &w.hosts[p]
	switch {
	case !w.conf.gate.Fleet || !h.gate.AskPermit(w.now):
		return
	case !w.fleet.shares.Probe: // the member answers itself
		h.gate.Permit(w.now, true, 0)
		return
	}
	w.permit(p)
}

// permit asks the ledger for a permit, or renews it.
func (w *world) permit(p int32) {
	h := &w.hosts[p]
	w.ask(func() {
		granted, wait := w.fleet.ledger.Probe(w.now, int64(p), len(w.hosts))
		w.post(func() {
			if used := h.gate.Permit(w.now, granted, wait); granted && !used {
				w.probeFailed(p)
			}
		})
	})
}

// tell tells the fleet the news of a gate.
func (w *world) tell(i int32, news bool) {
	if !news {
		return
	}
	p := w.process(i)
	n := w.hosts[p].gate.News()
	switch {
	case !w.fleet.shares.Probe:
		return
	case n.Working:
		w.working(p)
		return
	}
	if n.ProbeFailed {
		w.probeFailed(p)
	}
	if n.Failures > 0 {
		w.ask(func() {
			down, since := w.fleet.ledger.Failing(w.now, int64(p), n.Failures, n.Since, len(w.hosts))
			if down {
				w.down(since)
			}
		})
	}
}

func (w *world) probeFailed(p int32) {
	w.ask(func() { w.fleet.ledger.ProbeFailed(w.now, int64(p)) })
}

// down tells all processes that the host is down.
func (w *world) down(since instant.Instant) {
	w.post(func() {
		for p := range w.hosts {
			if w.hosts[p].gate.Down(w.now, since) {
				w.working(int32(p))
			}
		}
	})
}

func (w *world) working(p int32) {
	w.ask(func() {
		if !w.fleet.ledger.Working(w.now, int64(p)) {
			return
		}
		var spread time.Duration
		if w.fleet.shares.Spread {
			spread = ledger.ReturnTime(len(w.hosts))
		}
		w.toAll(func(m *machines) { m.gate.Up(w.now, w.now.Add(time.Duration(rand.Float64()*float64(spread)))) })
	})
}
