// The counts in the text form of Prometheus.

package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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
	ofEach(m, hosts, "aplomb_attempts_total", "kind", "Attempts: first, retry, hedge or reconnect.", func(h hostView) map[string]uint64 { return h.Kinds })
	ofEach(m, hosts, "aplomb_outcomes_total", "outcome", "Attempts by status or kind of error.", func(h hostView) map[string]uint64 { return h.Outcomes })
	ofEach(m, hosts, "aplomb_decisions_total", "reason", "Decisions after attempts by reason.", func(h hostView) map[string]uint64 { return h.Decisions })
	m.ofAll(hosts, "aplomb_attempt_seconds_total", "counter", "Time of attempts to the header of their response.", func(h hostView) float64 { return h.Taken })
	m.ofAll(hosts, "aplomb_wait_seconds_total", "counter", "Time that requests waited before retries.", func(h hostView) float64 { return h.Waited })
	ofEach(m, hosts, "aplomb_queue_seconds_total", "limit", "Time that requests waited in the queues of limits.", func(h hostView) map[string]float64 { return h.Queued })
}

// ofEach adds a counter that each host has for each value of a label.
func ofEach[V uint64 | float64](m *metrics, hosts []hostView, name, label, help string, values func(hostView) map[string]V) {
	m.family(name, "counter", help)
	for _, h := range hosts {
		for _, value := range slices.Sorted(maps.Keys(values(h))) {
			m.sample(name, float64(values(h)[value]), "host", h.Host, label, value)
		}
	}
}

// ofAll adds a metric that each host has.
func (m *metrics) ofAll(hosts []hostView, name, kind, help string, value func(hostView) float64) {
	m.family(name, kind, help)
	for _, h := range hosts {
		m.sample(name, value(h), "host", h.Host)
	}
}

// ofSnapshot adds the state of the limits.
func (m *metrics) ofSnapshot(hosts []hostView) {
	m.ofAll(hosts, "aplomb_requests_total", "counter", "Requests that were sent.", func(h hostView) float64 { return float64(h.Requests) })
	m.ofAll(hosts, "aplomb_requests_in_flight", "gauge", "Requests that have no response yet.", func(h hostView) float64 { return float64(h.InFlight) })
	m.ofAll(hosts, "aplomb_budget_left", "gauge", "Retries that could be sent at once. -1: the budget is off.", func(h hostView) float64 { return h.BudgetLeft })
	m.ofAll(hosts, "aplomb_held_scopes", "gauge", "Scopes that the host asked to wait.", func(h hostView) float64 { return float64(h.HeldScopes) })
	m.ofAll(hosts, "aplomb_held_until_timestamp_seconds", "gauge", "End of the longest such wait. 0: there is none.", func(h hostView) float64 { return seconds(h.HeldUntil) })
	m.ofAll(hosts, "aplomb_gate_limit", "gauge", "Attempts that the gate lets be in flight. 0: there is no gate.", func(h hostView) float64 { return float64(h.GateLimit) })
	m.ofAll(hosts, "aplomb_gate_slots", "gauge", "Slots of the gate in use.", func(h hostView) float64 { return float64(h.GateSlots) })
	m.ofAll(hosts, "aplomb_gate_queue", "gauge", "Attempts that wait for a slot.", func(h hostView) float64 { return float64(h.GateQueue) })
	m.ofAll(hosts, "aplomb_gate_closed", "gauge", "1 if the gate is closed.", func(h hostView) float64 { return number(h.GateClosed) })
	m.ofAll(hosts, "aplomb_lane", "gauge", "Number of the pool of connections in use. 0: that of the base.", func(h hostView) float64 { return float64(h.Lane) })
	m.ofAll(hosts, "aplomb_lanes_total", "counter", "Pools of connections that were opened beside the base.", func(h hostView) float64 { return float64(h.Lanes) })
	m.ofAll(hosts, "aplomb_rate_per_second", "gauge", "Limit of attempts per second. 0: there is none.", func(h hostView) float64 { return h.RatePerSecond })
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
