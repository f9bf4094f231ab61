package aplombotel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/transport"
)

// The bounds of the histograms: those of the semantic conventions, and longer times, because waits may
// take a minute.
var (
	seconds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}
	bytes   = []float64{1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}
)

// A measure is a counter or a histogram.
type measure uint8

const (
	attempts measure = iota
	bodyFailures
	changes // of hosts
	duration
	requests
	waits
	bodySize
	measures
	counters = duration // the measures before it are counters
)

// about describes the measures. The key is that of labels.value.
var about = [measures]struct {
	name, unit, text string
	key              attribute.Key
	bounds           []float64 // of a histogram
}{
	attempts:     {"aplomb.attempts", "{attempt}", "Attempts, by kind and error type.", kindKey, nil},
	bodyFailures: {"aplomb.body.failures", "{body}", "Bodies of responses that ended with an error, by the error type.", "", nil},
	changes:      {"aplomb.host.changes", "{change}", "Hosts that began or ceased to do badly, by the reason.", reasonKey, nil},
	duration:     {"http.client.request.duration", "s", "Duration of HTTP client requests.", "", seconds},
	requests:     {"aplomb.request.duration", "s", "Duration of requests with all attempts and waits, by the reason for their end.", reasonKey, seconds},
	waits:        {"aplomb.wait.duration", "s", "Waits for the server, for the back-off and for limits, by the reason.", reasonKey, seconds},
	bodySize:     {"http.client.response.body.size", "By", "Size of HTTP client response bodies.", "", bytes},
}

// instruments are the counters and the histograms. The Telemetry counts by itself and
// reports the counts when metrics are collected. A counter of the SDK would look at each
// attribute for each request.
type instruments struct {
	counters   [counters]metric.Int64ObservableCounter
	histograms [measures]metric.Float64Histogram // nil: it is off, or no histogram
}

func newInstruments(m metric.Meter, noAttempts bool) (*instruments, error) {
	i := &instruments{}
	var faults [measures]error
	for of, a := range about {
		unit, text := metric.WithUnit(a.unit), metric.WithDescription(a.text)
		switch {
		case a.bounds == nil:
			i.counters[of], faults[of] = m.Int64ObservableCounter(a.name, unit, text)
		case measure(of) != duration || !noAttempts:
			i.histograms[of], faults[of] = m.Float64Histogram(a.name, unit, text, metric.WithExplicitBucketBoundaries(a.bounds...))
		}
	}
	return i, errors.Join(faults[:]...)
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

// record records a value of a peer.
func (i *instruments) record(ctx context.Context, p *peer, l labels, value float64) {
	if h := i.histograms[l.of]; h != nil {
		h.Record(ctx, value, p.set(l).record...)
	}
}

// waited records a wait, unless there was none.
func (i *instruments) waited(ctx context.Context, p *peer, why transport.Reason, d time.Duration) {
	if d > 0 {
		i.record(ctx, p, labels{of: waits, value: string(why)}, d.Seconds())
	}
}

// hostChanged counts a host that does worse or better.
func (t *Telemetry) hostChanged(_ context.Context, c transport.HostChange) {
	k := hostKey(c.Host)
	p := t.peers.of(&http.Request{URL: &url.URL{Scheme: k.Scheme, Host: k.Host}})
	p.set(labels{of: changes, value: string(c.Reason), over: c.Over}).count.Add(1)
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
	active             // a counter that also falls
)

// hostFigures show the state of a host. The figures of a limit that the rule turns off are left
// out.
var hostFigures = []figure[transport.HostState]{
	{active, "http.client.active_requests", "{request}", "Number of active HTTP requests.", func(s *transport.HostState) float64 { return float64(s.InFlight) }},
	{whole, "aplomb.host.throttled_keys", "{key}", "Throttle keys that the server asked to wait.", func(s *transport.HostState) float64 { return float64(s.ThrottledKeys) }},
	{whole, "aplomb.host.pool", "{pool}", "The number of the pool of connections in use. 0 is the base.", func(s *transport.HostState) float64 { return float64(s.Pool) }},
	{whole, "aplomb.host.concurrency.limit", "{attempt}", "Attempts that may be in flight.", func(s *transport.HostState) float64 { return limited(s, s.ConcurrencyLimit) }},
	{whole, "aplomb.host.concurrency.usage", "{attempt}", "Attempts that count against the limit.", func(s *transport.HostState) float64 { return limited(s, s.ConcurrencyInUse) }},
	{whole, "aplomb.host.concurrency.waiting", "{attempt}", "Attempts that wait for the limit.", func(s *transport.HostState) float64 { return limited(s, s.ConcurrencyWaiting) }},
	{whole, "aplomb.host.down", "{host}", "1 while the host is down.", func(s *transport.HostState) float64 { return float64(oneIf[s.Down]) }},
	{whole, "aplomb.host.circuit_open", "{circuit}", "1 while a circuit breaker withholds requests.", func(s *transport.HostState) float64 { return float64(oneIf[s.CircuitOpen]) }},
	{whole, "aplomb.host.retries_waiting", "{request}", "Requests that wait for a retry, or for the end of an outage.", func(s *transport.HostState) float64 { return float64(s.RetriesWaiting) }},
	{broken, "aplomb.host.retry_budget", "{attempt}", "Retries that could be sent at once.", func(s *transport.HostState) float64 { return s.RetryBudget }},
	{broken, "aplomb.host.rate_limit", "{attempt}/s", "The limit of attempts per second.", func(s *transport.HostState) float64 { return cmp.Or(s.RateLimit, -1) }},
}

// limited returns a figure of the concurrency limit, or -1 if there is none.
func limited(s *transport.HostState, n int) float64 {
	if s.ConcurrencyLimit == 0 {
		return -1
	}
	return float64(n)
}

var oneIf = map[bool]int{true: 1}

// fleetFigures show the state of the fleet. They are those of transport.FleetState, so that this
// module needs no backend. Before the first heartbeat it has no age.
var fleetFigures = []figure[transport.FleetState]{
	{whole, "aplomb.fleet.connected", "{fleet}", "1 while the backend answers.", func(s *transport.FleetState) float64 { return float64(oneIf[s.Connected]) }},
	{whole, "aplomb.fleet.members", "{member}", "Members of the fleet, as far as is known.", func(s *transport.FleetState) float64 { return float64(s.Members) }},
	{broken, "aplomb.fleet.heartbeat.age", "s", "Time since the last heartbeat that succeeded.", ageOf},
	{total, "aplomb.fleet.commands", "{command}", "Commands to the backend.", func(s *transport.FleetState) float64 { return float64(s.Commands) }},
	{total, "aplomb.fleet.dropped", "{message}", "News and questions that were not sent, or not answered in time.", func(s *transport.FleetState) float64 { return float64(s.Dropped) }},
}

// ageOf returns the seconds since the last heartbeat, or -1 before the first.
func ageOf(s *transport.FleetState) float64 {
	if s.LastHeartbeat.IsZero() {
		return -1
	}
	return time.Since(s.LastHeartbeat).Seconds()
}

// newFigures makes the instruments of figures, in their order.
func newFigures[S any](m metric.Meter, figures []figure[S]) ([]metric.Observable, error) {
	instruments := make([]metric.Observable, len(figures))
	faults := make([]error, len(figures))
	for i, f := range figures {
		unit, text := metric.WithUnit(f.unit), metric.WithDescription(f.text)
		switch f.kind {
		case whole:
			instruments[i], faults[i] = m.Int64ObservableGauge(f.name, unit, text)
		case broken:
			instruments[i], faults[i] = m.Float64ObservableGauge(f.name, unit, text)
		case total:
			instruments[i], faults[i] = m.Int64ObservableCounter(f.name, unit, text)
		case active:
			instruments[i], faults[i] = m.Int64ObservableUpDownCounter(f.name, unit, text)
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
