package aplombotel

import (
	"context"
	"errors"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/transport"
)

// seconds are the bounds of the histograms: those of the semantic conventions, and longer
// ones, because waits may take a minute.
var seconds = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)

// instruments are the counters and histograms.
type instruments struct {
	attempts, requests, retries, hedges, resumes, withheld, body metric.Int64Counter
	duration, wait, queued                                       metric.Float64Histogram
}

func newInstruments(m metric.Meter) (*instruments, error) {
	var faults []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter("aplomb.client."+name, metric.WithUnit(unit), metric.WithDescription(text))
		faults = append(faults, err)
		return c
	}
	histogram := func(name, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram("aplomb.client."+name, metric.WithUnit("s"), metric.WithDescription(text), seconds)
		faults = append(faults, err)
		return h
	}
	i := &instruments{
		attempts: counter("attempts", "{attempt}", "Attempts, by kind and result."),
		requests: counter("requests", "{request}", "Requests, by the reason for their end and their result."),
		retries:  counter("retries", "{attempt}", "Retries, by the error type of the attempt before."),
		hedges:   counter("hedges", "{attempt}", "Attempts beside a slow attempt."),
		resumes:  counter("resumes", "{attempt}", "Reconnects that continued the body of a response."),
		withheld: counter("withheld", "{attempt}", "Retries that a limit withheld, by the limit."),
		body:     counter("body.size", "By", "Bytes that were read of the bodies of responses."),
		duration: histogram("attempt.duration", "Time from the start of an attempt to its headers or its error."),
		wait:     histogram("wait", "Waits before retries and reconnects."),
		queued:   histogram("queued", "Time in the queue of a limit before an attempt."),
	}
	return i, errors.Join(faults...)
}

// attemptStart counts a retry or a hedge. failed is the error type of the attempt before.
func (i *instruments) attemptStart(ctx context.Context, t *Telemetry, a *transport.AttemptStart, failed string) {
	switch a.Kind {
	case transport.KindRetry:
		i.retries.Add(ctx, 1, t.sets.of(a.Request, labels{failure: failed}).add...)
	case transport.KindHedge:
		i.hedges.Add(ctx, 1, t.sets.of(a.Request, labels{}).add...)
	}
}

// event counts the waits, the time in queues and the refusals of a decision.
func (i *instruments) event(t *Telemetry, e *transport.Event) {
	switch e.Reason {
	case transport.ReasonRetry, transport.ReasonResume:
		i.wait.Record(e.Context, e.Wait.Seconds(), t.sets.of(e.Request, labels{key: reasonKey, value: e.Reason.String()}).record...)
	case transport.ReasonAttempts, transport.ReasonMaxElapsed, transport.ReasonDeadline, transport.ReasonMaxRetryAfter, transport.ReasonBackoffStop,
		transport.ReasonCooldown, transport.ReasonBudget, transport.ReasonGateFull, transport.ReasonResumeMax:
		i.withheld.Add(e.Context, 1, t.sets.of(e.Request, labels{key: reasonKey, value: e.Reason.String()}).add...)
	}
	if e.Queued.Total() == 0 {
		return
	}
	for _, q := range [...]struct {
		name string
		took time.Duration
	}{{"cooldown", e.Queued.Cooldown}, {"pacing", e.Queued.Pacing}, {"gate", e.Queued.Gate}, {"rate", e.Queued.Rate}} {
		if q.took > 0 {
			i.queued.Record(e.Context, q.took.Seconds(), t.sets.of(e.Request, labels{key: queueKey, value: q.name}).record...)
		}
	}
}

// gauges show the state of the hosts.
type gauges struct {
	requests, holds, gateLimit, gateSlots, gateQueue, gateClosed metric.Int64ObservableGauge
	budget, rate                                                 metric.Float64ObservableGauge
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
		gateLimit:  whole("gate.limit", "{attempt}", "Attempts that the gate lets be in flight."),
		gateSlots:  whole("gate.slots", "{attempt}", "Slots of the gate in use."),
		gateQueue:  whole("gate.queue", "{attempt}", "Attempts that wait for a slot of the gate."),
		gateClosed: whole("gate.closed", "{gate}", "1 while the gate is closed."),
		budget:     broken("budget", "{attempt}", "Retries that could be sent at once."),
		rate:       broken("rate", "{attempt}/s", "The limit of attempts per second."),
	}
	return g, errors.Join(faults...)
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{g.requests, g.holds, g.gateLimit, g.gateSlots, g.gateQueue, g.gateClosed, g.budget, g.rate}
}

// observe reports the state of one host. A limit that the rule turns off is left out.
func (g *gauges) observe(o metric.Observer, s *transport.HostState) {
	u, err := url.Parse(s.Host)
	if err != nil {
		u = &url.URL{Host: s.Host}
	}
	with := newSet(u, "", labels{serverOnly: true}).observe
	o.ObserveInt64(g.requests, int64(s.InFlight), with...)
	o.ObserveInt64(g.holds, int64(s.HeldScopes), with...)
	if s.BudgetLeft >= 0 {
		o.ObserveFloat64(g.budget, s.BudgetLeft, with...)
	}
	if s.RatePerSecond > 0 {
		o.ObserveFloat64(g.rate, s.RatePerSecond, with...)
	}
	if s.GateLimit == 0 {
		return
	}
	closed := int64(0)
	if s.GateClosed {
		closed = 1
	}
	o.ObserveInt64(g.gateLimit, int64(s.GateLimit), with...)
	o.ObserveInt64(g.gateSlots, int64(s.GateSlots), with...)
	o.ObserveInt64(g.gateQueue, int64(s.GateQueue), with...)
	o.ObserveInt64(g.gateClosed, closed, with...)
}
