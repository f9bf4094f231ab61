package aplombotel

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/transport"
)

// seconds are the bounds of the histograms: those of the semantic conventions, and longer
// ones, because waits may take a minute.
var seconds = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)

// A measure is a counter or a histogram.
type measure uint8

const (
	attempts measure = iota
	requests
	retries
	hedges
	resumes
	withheld
	bodySize
	bodyFailures
	wait
	queued
	measures
	counters = wait // the measures before it are counters
)

// about describes the measures. The key is that of labels.value.
var about = [measures]struct {
	name, unit, text string
	key              attribute.Key
}{
	attempts:     {"attempts", "{attempt}", "Attempts, by kind and result.", kindKey},
	requests:     {"requests", "{request}", "Requests, by the reason for their end and their result.", reasonKey},
	retries:      {"retries", "{attempt}", "Retries, by the error type of the attempt before.", ""},
	hedges:       {"hedges", "{attempt}", "Attempts beside a slow attempt.", ""},
	resumes:      {"resumes", "{attempt}", "Reconnects that continued the body of a response.", ""},
	withheld:     {"withheld", "{attempt}", "Retries that a limit withheld, by the limit.", reasonKey},
	bodySize:     {"body.size", "By", "Bytes that were read of the bodies of responses.", ""},
	bodyFailures: {"body.failures", "{body}", "Bodies of responses that ended with an error, by the error type.", ""},
	wait:         {"wait", "s", "Waits before retries and reconnects.", reasonKey},
	queued:       {"queued", "s", "Time in the queue of a limit before an attempt.", queueKey},
}

// instruments are the counters and the histograms. The Telemetry counts by itself and
// reports the counts when metrics are collected. A counter of the SDK would look at each
// attribute for each request.
type instruments struct {
	counters               [counters]metric.Int64ObservableCounter
	duration, wait, queued metric.Float64Histogram
}

func newInstruments(m metric.Meter) (*instruments, error) {
	var faults []error
	histogram := func(name, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram("aplomb.client."+name, metric.WithUnit("s"), metric.WithDescription(text), seconds)
		faults = append(faults, err)
		return h
	}
	i := &instruments{
		duration: histogram("attempt.duration", "Time from the start of an attempt to its headers or its error."),
		wait:     histogram(about[wait].name, about[wait].text),
		queued:   histogram(about[queued].name, about[queued].text),
	}
	for of := range i.counters {
		a := &about[of]
		c, err := m.Int64ObservableCounter("aplomb.client."+a.name, metric.WithUnit(a.unit), metric.WithDescription(a.text))
		i.counters[of] = c
		faults = append(faults, err)
	}
	return i, errors.Join(faults...)
}

// report makes the counts of all peers be reported whenever metrics are collected.
func (i *instruments) report(m metric.Meter, all *peers) error {
	observed := make([]metric.Observable, 0, len(i.counters))
	for _, c := range i.counters {
		observed = append(observed, c)
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		all.observe(func(of measure, count int64, with metric.MeasurementOption) {
			o.ObserveInt64(i.counters[of], count, with)
		})
		return nil
	}, observed...)
	return err
}

// attemptStart counts a retry or a hedge. failed is the error type of the attempt before.
func (p *peer) attemptStart(kind transport.Kind, failed string) {
	switch kind {
	case transport.KindRetry:
		p.set(labels{of: retries, failure: failed}).count.Add(1)
	case transport.KindHedge:
		p.set(labels{of: hedges}).count.Add(1)
	}
}

// event counts the waits, the time in queues and the refusals of a decision.
func (i *instruments) event(p *peer, e *transport.Event) {
	switch e.Reason {
	case transport.ReasonRetry, transport.ReasonResume:
		i.wait.Record(e.Context, e.Wait.Seconds(), p.set(labels{of: wait, value: e.Reason.String()}).record...)
	case transport.ReasonAttempts, transport.ReasonMaxElapsed, transport.ReasonDeadline, transport.ReasonMaxRetryAfter, transport.ReasonBackoffStop,
		transport.ReasonCooldown, transport.ReasonBudget, transport.ReasonGateFull, transport.ReasonResumeMax:
		p.set(labels{of: withheld, value: e.Reason.String()}).count.Add(1)
	}
	if e.Queued.Total() == 0 {
		return
	}
	for _, q := range [...]struct {
		name string
		took time.Duration
	}{{"cooldown", e.Queued.Cooldown}, {"pacing", e.Queued.Pacing}, {"gate", e.Queued.Gate}, {"rate", e.Queued.Rate}} {
		if q.took > 0 {
			i.queued.Record(e.Context, q.took.Seconds(), p.set(labels{of: queued, value: q.name}).record...)
		}
	}
}

// hostChanged counts a host that does worse or better. Few of them come, so that the SDK may
// look at each attribute.
func (t *Telemetry) hostChanged(c transport.HostChange) {
	attrs := append(server(nil, hostKey(c.Host)), conditionKey.String(c.Condition.String()), overKey.Bool(c.Over))
	t.changes.Add(c.Context, 1, metric.WithAttributeSet(attribute.NewSet(attrs...)))
}

// hostKey returns the key of a host by its name in a HostState.
func hostKey(name string) host.Key {
	scheme, name, _ := strings.Cut(name, "://")
	return host.Key{Scheme: scheme, Host: bare(name)}
}

// gauges show the state of the hosts, and of the fleet.
type gauges struct {
	fleet
	requests, holds, lane, gateLimit, gateSlots, gateQueue, gateClosed metric.Int64ObservableGauge
	budget, rate                                                       metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) (*gauges, error) {
	var faults []error
	whole := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge("aplomb.host."+name, metric.WithUnit(unit), metric.WithDescription(text))
		faults = append(faults, err)
		return g
	}
	broken := func(name, unit, text string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge("aplomb.host."+name, metric.WithUnit(unit), metric.WithDescription(text))
		faults = append(faults, err)
		return g
	}
	g := &gauges{
		requests:   whole("requests", "{request}", "Requests under way."),
		holds:      whole("holds", "{scope}", "Scopes that the server asked to wait."),
		lane:       whole("lane", "{lane}", "The number of the pool of connections in use. 0 is the base."),
		gateLimit:  whole("gate.limit", "{attempt}", "Attempts that the gate lets be in flight."),
		gateSlots:  whole("gate.slots", "{attempt}", "Slots of the gate in use."),
		gateQueue:  whole("gate.queue", "{attempt}", "Attempts that wait for a slot of the gate."),
		gateClosed: whole("gate.closed", "{gate}", "1 while the gate is closed."),
		budget:     broken("budget", "{attempt}", "Retries that could be sent at once."),
		rate:       broken("rate", "{attempt}/s", "The limit of attempts per second."),
	}
	var err error
	g.fleet, err = newFleet(m)
	return g, errors.Join(append(faults, err)...)
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{g.connected, g.members, g.age, g.commands, g.dropped, g.requests, g.holds, g.lane, g.gateLimit, g.gateSlots, g.gateQueue, g.gateClosed, g.budget, g.rate}
}

// observe reports the state of one host. A limit that the rule turns off is left out.
func (g *gauges) observe(o metric.Observer, s *transport.HostState) {
	with := metric.WithAttributeSet(attribute.NewSet(server(nil, hostKey(s.Host))...))
	o.ObserveInt64(g.requests, int64(s.InFlight), with)
	o.ObserveInt64(g.holds, int64(s.HeldScopes), with)
	o.ObserveInt64(g.lane, int64(s.Lane), with)
	if s.BudgetLeft >= 0 {
		o.ObserveFloat64(g.budget, s.BudgetLeft, with)
	}
	if s.RatePerSecond > 0 {
		o.ObserveFloat64(g.rate, s.RatePerSecond, with)
	}
	if s.GateLimit == 0 {
		return
	}
	closed := int64(0)
	if s.GateClosed {
		closed = 1
	}
	o.ObserveInt64(g.gateLimit, int64(s.GateLimit), with)
	o.ObserveInt64(g.gateSlots, int64(s.GateSlots), with)
	o.ObserveInt64(g.gateQueue, int64(s.GateQueue), with)
	o.ObserveInt64(g.gateClosed, closed, with)
}

// A fleet shows the state of the fleet. The figures are those of transport.FleetState, so that
// this module needs no backend.
type fleet struct {
	connected, members metric.Int64ObservableGauge
	age                metric.Float64ObservableGauge
	commands, dropped  metric.Int64ObservableCounter
}

func newFleet(m metric.Meter) (f fleet, err error) {
	var faults [5]error
	f.connected, faults[0] = m.Int64ObservableGauge("aplomb.fleet.connected", metric.WithUnit("{fleet}"), metric.WithDescription("1 while the backend answers."))
	f.members, faults[1] = m.Int64ObservableGauge("aplomb.fleet.members", metric.WithUnit("{member}"), metric.WithDescription("Members of the fleet, as far as is known."))
	f.age, faults[2] = m.Float64ObservableGauge("aplomb.fleet.heartbeat.age", metric.WithUnit("s"), metric.WithDescription("Time since the last heartbeat that succeeded."))
	f.commands, faults[3] = m.Int64ObservableCounter("aplomb.fleet.commands", metric.WithUnit("{command}"), metric.WithDescription("Commands to the backend."))
	f.dropped, faults[4] = m.Int64ObservableCounter("aplomb.fleet.dropped", metric.WithUnit("{message}"), metric.WithDescription("News and questions that were not sent, or not answered in time."))
	return f, errors.Join(faults[:]...)
}

// observe reports the state of the fleet. Before the first heartbeat it has no age.
func (f *fleet) observe(o metric.Observer, s transport.FleetState) {
	connected := int64(0)
	if s.Connected {
		connected = 1
	}
	o.ObserveInt64(f.connected, connected)
	o.ObserveInt64(f.members, int64(s.Members))
	o.ObserveInt64(f.commands, int64(s.Commands))
	o.ObserveInt64(f.dropped, int64(s.Dropped))
	if s.HeartbeatAge >= 0 {
		o.ObserveFloat64(f.age, s.HeartbeatAge)
	}
}
