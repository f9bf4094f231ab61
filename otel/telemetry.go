package aplombotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/aplomb-go/aplomb/transport"
)

const scope = "github.com/aplomb-go/aplomb/otel"

// Config says where the telemetry goes. The zero Config is complete. A nil field takes
// the global value of package otel at the time of New.
type Config struct {
	// TracerProvider makes the tracer for the spans.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the meter for the metrics.
	MeterProvider metric.MeterProvider
	// Propagator writes the trace context into the header of each attempt.
	Propagator propagation.TextMapPropagator
	// NoRequestSpan leaves the span of the request out. The spans of the attempts then
	// belong to the span of the caller's context, for example that of otelhttp around
	// the Transport, and the events of the request are added to it.
	NoRequestSpan bool
	// NoAttemptMetrics leaves http.client.request.duration out. Set it if otelhttp is the base
	// of the Transport or around it, because otelhttp has that metric as well.
	NoAttemptMetrics bool
}

// A Telemetry makes the spans and the metrics. It may observe several Transports. Make it
// once and share it, because its MeterProvider keeps it in memory. It is safe for
// concurrent use.
type Telemetry struct {
	tracer        trace.Tracer
	propagator    propagation.TextMapPropagator
	noRequestSpan bool
	client        []trace.SpanStartOption // of the span of an attempt
	meter         metric.Meter
	counts        *instruments
	hosts, fleet  []metric.Observable // the instruments of hostFigures and fleetFigures
	peers         peers
}

// New returns a Telemetry. It returns an error if a field of the configuration is a nil
// pointer, or if the meter refuses an instrument.
func New(c Config) (*Telemetry, error) {
	var faults []error
	for name, v := range map[string]any{"TracerProvider": c.TracerProvider, "MeterProvider": c.MeterProvider, "Propagator": c.Propagator} {
		if v := reflect.ValueOf(v); v.IsValid() && v.Kind() == reflect.Pointer && v.IsNil() {
			faults = append(faults, fmt.Errorf("aplombotel: %s is a nil pointer", name))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	t := &Telemetry{
		tracer:        cmp.Or(c.TracerProvider, otel.GetTracerProvider()).Tracer(scope),
		propagator:    cmp.Or(c.Propagator, otel.GetTextMapPropagator()),
		noRequestSpan: c.NoRequestSpan,
		client:        []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)},
		meter:         cmp.Or(c.MeterProvider, otel.GetMeterProvider()).Meter(scope),
		peers:         peers{known: map[peerKey]*peer{}},
	}
	var errs [3]error
	t.counts, errs[0] = newInstruments(t.meter, c.NoAttemptMetrics)
	t.hosts, errs[1] = newFigures(t.meter, hostFigures)
	t.fleet, errs[2] = newFigures(t.meter, fleetFigures)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if err := t.counts.report(t.meter, &t.peers); err != nil {
		return nil, err
	}
	return t, nil
}

// Trace returns a Trace for transport.Config, or for transport.WithTrace.
func (t *Telemetry) Trace() *transport.Trace {
	return &transport.Trace{
		RequestStart: t.requestStart,
		AttemptStart: t.attemptStart,
		AttemptEnd:   t.attemptEnd,
		HostChange:   t.hostChanged,
		RequestEnd:   t.requestEnd,
		BodyEnd:      t.bodyEnd,
	}
}

// Observe reports the state of the hosts of tr, and of its fleet, whenever metrics are collected.
// stop ends that. If several Transports are watched that have a fleet, the counters of their
// fleets are added up, and each gauge is that of one of them. A Transport that is watched is
// kept in memory. 200 sets of attributes are reserved for the hosts that its rules name.
func (t *Telemetry) Observe(tr *transport.Transport) (stop func() error, err error) {
	if tr == nil {
		return nil, errors.New("aplombotel: a nil Transport cannot be watched")
	}
	r, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now, kept := tr.Snapshot(), t.peers.hosts()
		for _, first := range []bool{true, false} { // the SDK keeps those that come first
			for _, s := range now.Hosts {
				if k := hostKey(s.Host); kept[k] == first {
					observe(o, t.hosts, hostFigures, &s, metric.WithAttributeSet(attribute.NewSet(server(nil, k)...)))
				}
			}
		}
		if now.Fleet != nil {
			observe(o, t.fleet, fleetFigures, now.Fleet)
		}
		return nil
	}, slices.Concat(t.hosts, t.fleet)...)
	if err != nil {
		return nil, err
	}
	forget := t.peers.watch(tr)
	return func() error { forget(); return r.Unregister() }, nil
}
