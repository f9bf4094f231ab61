package aplombotel

import (
	"cmp"
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
	wait:         {"wait", "s", "Waits before retries.", reasonKey},
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
func (p *peer) attemptStart(kind transport.AttemptKind, failed string) {
	switch kind {
	case transport.AttemptRetry:
		p.set(labels{of: retries, failure: failed}).count.Add(1)
	case transport.AttemptHedge:
		p.set(labels{of: hedges}).count.Add(1)
	}
}

// withheld counts a retry that a limit withheld.
func (p *peer) withheld(reason transport.Reason) {
	switch reason {
	case transport.ReasonMaxAttempts, transport.ReasonMaxElapsedTime, transport.ReasonDeadline, transport.ReasonRetryBudget, transport.ReasonThrottled,
		transport.ReasonQuota, transport.ReasonRateLimit, transport.ReasonConcurrency, transport.ReasonCircuitOpen:
		p.set(labels{of: withheld, value: string(reason)}).count.Add(1)
	}
}

// waits records a wait for a limit.
func (i *instruments) waits(ctx context.Context, p *peer, waited time.Duration, at transport.Reason) {
	if waited > 0 {
		i.queued.Record(ctx, waited.Seconds(), p.set(labels{of: queued, value: string(at)}).record...)
	}
}

// hostChanged counts a host that does worse or better. Few of them come, so that the SDK may
// look at each attribute.
func (t *Telemetry) hostChanged(ctx context.Context, c transport.HostChange) {
	attrs := append(server(nil, hostKey(c.Host)), reasonKey.String(string(c.Reason)), overKey.Bool(c.Over))
	t.changes.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(attrs...)))
}

// hostKey returns the key of a host by its name in a HostState.
func hostKey(name string) host.Key {
	scheme, name, _ := strings.Cut(name, "://")
	return host.Key{Scheme: scheme, Host: bare(name)}
}

// A figure is a part of a state that an instrument shows.
type figure[S any] struct {
	kind             kind
	name, unit, text string
	of               func(*S) float64 // below zero: the figure is left out
}

type kind uint8

const (
	whole  kind = iota // a gauge of whole numbers
	broken             // a gauge
	total              // a counter
)

// hostFigures show the state of a host. The figures of a limit that the rule turns off are left
// out.
var hostFigures = []figure[transport.HostState]{
	{whole, "requests", "{request}", "Requests under way.", func(s *transport.HostState) float64 { return float64(s.InFlight) }},
	{whole, "holds", "{scope}", "Scopes that the server asked to wait.", func(s *transport.HostState) float64 { return float64(s.ThrottledKeys) }},
	{whole, "lane", "{lane}", "The number of the pool of connections in use. 0 is the base.", func(s *transport.HostState) float64 { return float64(s.Pool) }},
	{whole, "gate.limit", "{attempt}", "Attempts that the gate lets be in flight.", func(s *transport.HostState) float64 { return ofGate(s, s.ConcurrencyLimit) }},
	{whole, "gate.slots", "{attempt}", "Slots of the gate in use.", func(s *transport.HostState) float64 { return ofGate(s, s.ConcurrencyInUse) }},
	{whole, "gate.queue", "{attempt}", "Attempts that wait for a slot of the gate.", func(s *transport.HostState) float64 { return ofGate(s, s.ConcurrencyWaiting) }},
	{whole, "gate.closed", "{gate}", "1 while the circuit is open.", func(s *transport.HostState) float64 { return ofGate(s, oneIf[s.CircuitOpen]) }},
	{broken, "budget", "{attempt}", "Retries that could be sent at once.", func(s *transport.HostState) float64 { return s.RetryBudget }},
	{broken, "rate", "{attempt}/s", "The limit of attempts per second.", func(s *transport.HostState) float64 { return cmp.Or(s.RateLimit, -1) }},
}

func ofGate(s *transport.HostState, n int) float64 {
	if s.ConcurrencyLimit == 0 {
		return -1
	}
	return float64(n)
}

var oneIf = map[bool]int{true: 1}

// fleetFigures show the state of the fleet. They are those of transport.FleetState, so that this
// module needs no backend. Before the first heartbeat it has no age.
var fleetFigures = []figure[transport.FleetState]{
	{whole, "connected", "{fleet}", "1 while the backend answers.", func(s *transport.FleetState) float64 { return float64(oneIf[s.Connected]) }},
	{whole, "members", "{member}", "Members of the fleet, as far as is known.", func(s *transport.FleetState) float64 { return float64(s.Members) }},
	{broken, "heartbeat.age", "s", "Time since the last heartbeat that succeeded.", ageOf},
	{total, "commands", "{command}", "Commands to the backend.", func(s *transport.FleetState) float64 { return float64(s.Commands) }},
	{total, "dropped", "{message}", "News and questions that were not sent, or not answered in time.", func(s *transport.FleetState) float64 { return float64(s.Dropped) }},
}

// ageOf returns the seconds since the last heartbeat, or -1 before the first.
func ageOf(s *transport.FleetState) float64 {
	if s.LastHeartbeat.IsZero() {
		return -1
	}
	return time.Since(s.LastHeartbeat).Seconds()
}

// newFigures makes the instruments of figures, in their order.
func newFigures[S any](m metric.Meter, prefix string, figures []figure[S]) ([]metric.Observable, error) {
	instruments := make([]metric.Observable, len(figures))
	faults := make([]error, len(figures))
	for i, f := range figures {
		name, unit, text := prefix+f.name, metric.WithUnit(f.unit), metric.WithDescription(f.text)
		switch f.kind {
		case whole:
			instruments[i], faults[i] = m.Int64ObservableGauge(name, unit, text)
		case broken:
			instruments[i], faults[i] = m.Float64ObservableGauge(name, unit, text)
		case total:
			instruments[i], faults[i] = m.Int64ObservableCounter(name, unit, text)
		}
	}
	return instruments, errors.Join(faults...)
}

// observe reports the figures of a state.
func observe[S any](o metric.Observer, instruments []metric.Observable, figures []figure[S], s *S, with ...metric.ObserveOption) {
	for i, f := range figures {
		v := f.of(s)
		if v < 0 {
			continue
		}
		switch to := instruments[i].(type) {
		case metric.Int64Observable:
			o.ObserveInt64(to, int64(v), with...)
		case metric.Float64Observable:
			o.ObserveFloat64(to, v, with...)
		}
	}
}
