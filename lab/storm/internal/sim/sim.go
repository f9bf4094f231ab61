// Package sim runs the experiment in virtual time, for up to millions of clients.
// The back-offs of package policy and the machines of internal/host (budget,
// gate) are the real ones. Only the server is a model.
//
// The simulation repeats the order of the transport's calls in client.go. The files:
//
//	sim.go     the course of a run
//	client.go  the way of one request, as in the transport's loop
//	fleet.go   the processes and their fleet
//	server.go  the server
//	wheel.go   the event queue
package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/failures"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
	"github.com/aplomb-go/aplomb/policy"
)

// A world is one run.
type world struct {
	scenario model.Scenario
	strategy model.Strategy
	rule     policy.Rule // complete
	conf     configs

	rng     *rand.Rand
	wheel   *wheel
	server  *server
	clients []client
	hosts   []machines // a set for each process
	fleet   fleet
	woken   []int32  // clients that have to ask again
	answers []answer // responses that arrive in the next millisecond

	ms  int64
	now instant.Instant // the same as a time
	run *record.Run
}

// machines are the state machines that a Transport keeps per host.
type machines struct {
	budget   budget.Budget
	failures failures.Run
	gate     gate.Gate
	begun    uint64 // requests
}

// configs are the values of the rule in the form that the machines need.
type configs struct {
	budget         budget.Config
	gate           gate.Config
	gated          bool
	attempts       int
	elapsed, asked time.Duration
}

type answer struct {
	send
	hint time.Duration
}

// Run runs one strategy. The seed makes the clients' thinking repeatable. The
// back-offs draw from the global source and are not repeatable.
func Run(ctx context.Context, sc model.Scenario, st model.Strategy, seed uint64) (*record.Run, error) {
	w := newWorld(sc, st, seed)
	end := int64(sc.End() / time.Millisecond)
	stop, resume := int64(sc.Stop()/time.Millisecond), int64(sc.Resume()/time.Millisecond)
	for w.ms = 0; w.ms < end; w.ms++ {
		w.now = instant.At(time.Duration(w.ms) * time.Millisecond)
		switch w.ms {
		case stop:
			w.server.frozen = true
		case resume:
			w.run.Found = len(w.server.socket)
			w.server.wake(w.ms)
		}
		w.step()
		if w.ms%100 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	for i := range w.clients {
		if w.clients[i].state != thinking {
			w.run.Open++
		}
	}
	return w.run, nil
}

func newWorld(sc model.Scenario, st model.Strategy, seed uint64) *world {
	w := &world{
		scenario: sc, strategy: st, rule: st.Rule.Or(policy.Defaults()),
		rng: rand.New(rand.NewPCG(seed, 0)),
		run: record.NewRun(sc.End()),
	}
	w.conf = configsOf(w.rule)
	w.run.Name, w.run.Key, w.run.Words = st.Name, st.Key, st.Words
	w.run.Aplomb, w.run.Coordinated = st.Aplomb(), st.Coordinated()
	w.run.Stop, w.run.Resume = sc.Stop(), sc.Resume()
	w.run.Rate, w.run.ServerLimit = sc.Rate(), sc.Server.Limit
	w.run.Keep = 1 + int(sc.Rate()*sc.End().Seconds()/1e6)
	end := int(sc.End() / time.Millisecond)
	w.wheel = newWheel(sc.Clients, end)
	w.server = newServer(sc.Server, end, sc.Timeout, func(x send, hint time.Duration) {
		w.answers = append(w.answers, answer{x, hint})
	})
	w.clients = make([]client, sc.Clients)
	w.hosts = make([]machines, st.Processes(sc))
	w.fleet = fleet{shares: st.Fleet, half: int64(sc.FleetDelay / 2 / time.Millisecond)}
	w.conf.gate.Fleet = st.Fleet != (model.Fleet{})
	if st.Fleet.Probe { // they know how many they are
		w.conf.budget, w.conf.gate = w.conf.budget.ForMember(len(w.hosts)), w.conf.gate.ForMember(len(w.hosts))
	}
	wake := func(waiter *queue.Waiter) { w.woken = append(w.woken, int32(waiter.ID)) }
	for i := range w.clients {
		w.clients[i].waiter = queue.Waiter{ID: i, Woken: wake}
		w.think(int32(i))
	}
	return w
}

func configsOf(r policy.Rule) configs {
	b := r.RetryBudget
	if b.Burst < 0 { // off
		b.Ratio, b.MinPerSecond = -1, -1
	}
	return configs{
		budget:   budget.Config{Ratio: b.Ratio, PerSecond: b.MinPerSecond, Window: b.Window, Burst: b.Burst}.Complete(),
		gate:     gate.Config{Start: r.Concurrency.Initial, Max: r.Concurrency.Max},
		gated:    r.Concurrency.Enabled(),
		attempts: r.MaxAttempts,
		elapsed:  r.MaxElapsedTime,
		asked:    r.RetryAfter.Max,
	}
}

// step lets one millisecond pass. First messages of the fleet and responses arrive, then
// the clients act whose time has come.
func (w *world) step() {
	w.deliver()
	for len(w.answers) > 0 {
		batch := w.answers
		w.answers = nil
		for _, a := range batch {
			w.answered(a)
			w.askAgain()
		}
	}
	for {
		i, ok := w.wheel.take(w.ms)
		if !ok {
			break
		}
		w.due(i)
		w.askAgain()
	}
	w.server.run(w.ms)
	w.run.Busy(w.now.Since(), w.server.busy)
	w.run.Arrive(w.now.Since(), w.server.came)
	w.server.came = 0
}

func (w *world) host(i int32) *machines {
	return &w.hosts[w.process(i)]
}

// process returns the process of a client.
func (w *world) process(i int32) int32 { return i % int32(len(w.hosts)) }

// after plans an event of the client, at the next millisecond at the soonest.
func (w *world) after(i int32, d time.Duration) { w.until(i, w.now.Add(d)) }

func (w *world) until(i int32, at instant.Instant) {
	ms := at.Since().Milliseconds()
	if at.Since()%time.Millisecond > 0 && ms < 1<<40 {
		ms++
	}
	w.wheel.set(i, max(ms, w.ms+1))
}

func (w *world) exp(mean time.Duration) time.Duration {
	return time.Duration(w.rng.ExpFloat64() * float64(mean))
}
