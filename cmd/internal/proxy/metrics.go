// The counts in the text form of Prometheus.

package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

// A metrics is a text in the form that Prometheus reads.
type metrics struct{ strings.Builder }

// family begins a metric.
func (m *metrics) family(name, kind, help string) {
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample adds a value. labels are names and values in turn.
func (m *metrics) sample(name string, value float64, labels ...string) {
	pairs := make([]string, 0, len(labels)/2)
	for pair := range slices.Chunk(labels, 2) {
		pairs = append(pairs, pair[0]+`="`+escapeLabel.Replace(pair[1])+`"`)
	}
	m.WriteString(name)
	if len(pairs) > 0 {
		m.WriteString("{" + strings.Join(pairs, ",") + "}")
	}
	m.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metricsOf returns all metrics of a view.
func metricsOf(v view) string {
	m := &metrics{}
	m.ofProxy(v)
	m.ofRules(v.rules)
	m.ofHosts(v.hosts)
	m.ofSnapshot(v.hosts)
	return m.String()
}

func (m *metrics) ofProxy(v view) {
	m.family("proxy_requests_in_flight", "gauge", "Requests of clients that are not done.")
	m.sample("proxy_requests_in_flight", float64(v.active))
	m.family("proxy_responses_total", "counter", "Responses to clients by status.")
	for _, status := range slices.Sorted(maps.Keys(v.responses)) {
		m.sample("proxy_responses_total", float64(v.responses[status]), "code", strconv.Itoa(status))
	}
	m.family("proxy_cut_responses_total", "counter", "Responses whose body was cut.")
	m.sample("proxy_cut_responses_total", float64(v.cut))
	const name = "proxy_request_duration_seconds"
	m.family(name, "histogram", "Time from a request to the end of its response.")
	total := uint64(0)
	for i, n := range v.durations {
		total += n
		bound := "+Inf"
		if i < len(buckets) {
			bound = strconv.FormatFloat(buckets[i], 'g', -1, 64)
		}
		m.sample(name+"_bucket", float64(total), "le", bound)
	}
	m.sample(name+"_sum", v.seconds)
	m.sample(name+"_count", float64(total))
}

func (m *metrics) ofRules(r rulesState) {
	m.family("proxy_rules_reloads_total", "counter", "Changes of the file with the rules.")
	m.sample("proxy_rules_reloads_total", float64(r.Taken), "result", "taken")
	m.sample("proxy_rules_reloads_total", float64(r.Refused), "result", "refused")
	m.family("proxy_rules_in_force", "gauge", "1 if the file with the rules is in force, 0 if older rules are.")
	m.sample("proxy_rules_in_force", number(r.Problem == ""))
	m.family("proxy_rules_loaded_timestamp_seconds", "gauge", "When the rules came into force.")
	m.sample("proxy_rules_loaded_timestamp_seconds", seconds(r.Loaded))
}

// ofHosts adds the counts of the Trace.
func (m *metrics) ofHosts(hosts []hostView) {
	count := func(name, label, help string, values func(hostView) map[string]uint64) {
		m.family(name, "counter", help)
		for _, h := range hosts {
			for _, value := range slices.Sorted(maps.Keys(values(h))) {
				m.sample(name, float64(values(h)[value]), "host", h.Host, label, value)
			}
		}
	}
	count("aplomb_attempts_total", "kind", "Attempts: first, retry, hedge or reconnect.", func(h hostView) map[string]uint64 { return h.Kinds })
	count("aplomb_outcomes_total", "outcome", "Attempts by status or kind of error.", func(h hostView) map[string]uint64 { return h.Outcomes })
	count("aplomb_decisions_total", "reason", "Decisions after attempts by reason.", func(h hostView) map[string]uint64 { return h.Decisions })
	m.family("aplomb_attempt_seconds_total", "counter", "Time of attempts to the header of their response.")
	for _, h := range hosts {
		m.sample("aplomb_attempt_seconds_total", h.Taken, "host", h.Host)
	}
	m.family("aplomb_wait_seconds_total", "counter", "Time that requests waited before retries.")
	for _, h := range hosts {
		m.sample("aplomb_wait_seconds_total", h.Waited, "host", h.Host)
	}
	m.family("aplomb_queue_seconds_total", "counter", "Time that requests waited in the queues of limits.")
	for _, h := range hosts {
		for _, limit := range slices.Sorted(maps.Keys(h.Queued)) {
			m.sample("aplomb_queue_seconds_total", h.Queued[limit], "host", h.Host, "limit", limit)
		}
	}
}

// ofSnapshot adds the state of the limits.
func (m *metrics) ofSnapshot(hosts []hostView) {
	for _, metric := range []struct {
		name, kind, help string
		value            func(transport.HostState) float64
	}{
		{"aplomb_requests_total", "counter", "Requests that were sent.", func(h transport.HostState) float64 { return float64(h.Requests) }},
		{"aplomb_requests_in_flight", "gauge", "Requests that have no response yet.", func(h transport.HostState) float64 { return float64(h.InFlight) }},
		{"aplomb_budget_left", "gauge", "Retries that could be sent at once. -1: the budget is off.", func(h transport.HostState) float64 { return h.BudgetLeft }},
		{"aplomb_held_scopes", "gauge", "Scopes that the host asked to wait.", func(h transport.HostState) float64 { return float64(h.HeldScopes) }},
		{"aplomb_held_until_timestamp_seconds", "gauge", "End of the longest such wait. 0: there is none.", func(h transport.HostState) float64 { return seconds(h.HeldUntil) }},
		{"aplomb_gate_limit", "gauge", "Attempts that the gate lets be in flight. 0: there is no gate.", func(h transport.HostState) float64 { return float64(h.GateLimit) }},
		{"aplomb_gate_slots", "gauge", "Slots of the gate in use.", func(h transport.HostState) float64 { return float64(h.GateSlots) }},
		{"aplomb_gate_queue", "gauge", "Attempts that wait for a slot.", func(h transport.HostState) float64 { return float64(h.GateQueue) }},
		{"aplomb_gate_closed", "gauge", "1 if the gate is closed.", func(h transport.HostState) float64 { return number(h.GateClosed) }},
		{"aplomb_lane", "gauge", "Number of the pool of connections in use. 0: that of the base.", func(h transport.HostState) float64 { return float64(h.Lane) }},
		{"aplomb_lanes_total", "counter", "Pools of connections that were opened because of trouble.", func(h transport.HostState) float64 { return float64(h.Lanes) }},
		{"aplomb_rate_per_second", "gauge", "Limit of attempts per second. 0: there is none.", func(h transport.HostState) float64 { return h.RatePerSecond }},
	} {
		m.family(metric.name, metric.kind, metric.help)
		for _, h := range hosts {
			m.sample(metric.name, metric.value(h.HostState), "host", h.Host)
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds returns a time as Prometheus has it.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
