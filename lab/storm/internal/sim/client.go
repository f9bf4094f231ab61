// The way of one request mirrors the transport's loop. This file has the order in
// which the loop calls the machines. The decisions are the machines' own.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
)

// A client thinks, sends a request, waits for its response, and thinks again.
type client struct {
	state   state
	sent    uint16 // attempts of this request
	attempt uint32 // counts all attempts, so that late responses can be recognised
	began   instant.Instant
	prev    time.Duration // the last back-off
	thought time.Duration // how long it thought before this request
	slot    gate.Slot
	waiter  queue.Waiter
}

type state uint8

const (
	thinking state = iota
	queued         // waits in the queue of the gate
	flying         // an attempt is under way
	resting        // waits for its back-off
)

func (w *world) think(i int32) {
	c := &w.clients[i]
	c.state = thinking
	c.thought = w.exp(w.scenario.Think)
	w.after(i, c.thought)
}

// due is called when the client's time has come.
func (w *world) due(i int32) {
	c := &w.clients[i]
	switch c.state {
	case thinking:
		c.began, c.sent, c.prev = w.now, 0, 0
		if w.strategy.FromThink {
			c.prev = c.thought
		}
		h := w.host(i)
		h.begun++
		h.budget.CountTo(h.begun)
		w.run.At(w.now.Since()).Begun++
		w.admit(i)
	case queued, resting:
		w.admit(i)
	case flying: // the attempt's timeout
		w.failed(i, gate.Lost, 0)
	}
}

// askAgain lets the clients ask that were woken meanwhile.
func (w *world) askAgain() {
	for len(w.woken) > 0 {
		i := w.woken[0]
		w.woken = w.woken[1:]
		if w.clients[i].state == queued {
			w.wheel.clear(i)
			w.admit(i)
		}
	}
	w.woken = w.woken[:0]
}

// admit asks the gate. The clients share no waits, so the transport's other limits are off.
func (w *world) admit(i int32) {
	c, h := &w.clients[i], w.host(i)
	if w.conf.gated {
		if a := h.gate.Enter(w.now, &c.slot, &c.waiter, w.conf.gate); a.Verb != queue.Go {
			w.askFleet(i)
			c.state = queued
			w.until(i, a.Ask)
			return
		} else if a.Probe {
			w.renewLater(w.process(i))
		}
	}
	w.send(i)
}

func (w *world) send(i int32) {
	c := &w.clients[i]
	c.state = flying
	c.sent++
	c.attempt++
	w.run.Send(w.now.Since())
	w.after(i, w.rule.AttemptTimeout)
	w.server.arrive(w.ms, send{client: i, attempt: c.attempt})
}

// answered is called when a response reaches its client. The client may have left.
func (w *world) answered(a answer) {
	c := &w.clients[a.client]
	if c.state != flying || c.attempt != a.attempt {
		return
	}
	w.wheel.clear(a.client)
	if a.hint > 0 {
		w.failed(a.client, gate.Failed, a.hint)
		return
	}
	h := w.host(a.client)
	w.result(a.client, gate.Success)
	h.failures.Succeeded()
	w.landed(a.client)
	w.run.Success(c.began.Since(), w.now.Since())
	w.think(a.client)
}

// result tells the gate how an attempt ended.
func (w *world) result(i int32, r gate.Result) {
	if w.conf.gated {
		w.tell(i, w.host(i).gate.Result(w.now, &w.clients[i].slot, r))
	}
}

func (w *world) landed(i int32) {
	if w.conf.gated {
		w.tell(i, w.host(i).gate.Done(w.now, &w.clients[i].slot))
	}
}

// failed notes a failed attempt and decides on a retry. It asks for attempts left,
// the back-off, the wait that the server asked for, and last the budget.
func (w *world) failed(i int32, r gate.Result, hint time.Duration) {
	c, h := &w.clients[i], w.host(i)
	w.result(i, r)
	if c.sent > 1 {
		h.failures.RetryFailed()
	}
	u := rand.Float64()
	wait, ok := w.decide(c, hint, u)
	budget := w.conf.budget
	budget.Rests = h.failures.Helpless()
	at := w.now
	if hint > 0 {
		at = at.Add(wait)
	}
	ok = ok && h.budget.Take(w.now, at, budget) != nil
	w.landed(i)
	if !ok {
		w.lose(i)
		return
	}
	c.state = resting
	w.after(i, wait)
}

// decide returns the wait before the next attempt, if there is one.
func (w *world) decide(c *client, hint time.Duration, u float64) (wait time.Duration, ok bool) {
	if int(c.sent) >= w.conf.attempts {
		return 0, false
	}
	backoff := w.rule.Backoff.Delay(int(c.sent)-1, c.prev)
	if backoff < 0 || w.conf.asked > 0 && hint > w.conf.asked {
		return 0, false
	}
	c.prev = backoff
	if hint == 0 && w.strategy.Aplomb() { // the attempt met silence
		backoff += time.Duration(u * float64(max(0, w.rule.Backoff.Delay(3, backoff)-backoff)))
	}
	wait = max(backoff, hint)
	if hint > 0 && hint >= backoff {
		wait += time.Duration(u * float64(min(hint, time.Second)))
	}
	return wait, true
}

// lose ends a request without an answer.
func (w *world) lose(i int32) {
	w.run.At(w.now.Since()).Lost++
	w.think(i)
}
