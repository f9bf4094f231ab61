package outages

import (
	"strings"
	"time"
)

// A bound is asked of aplomb in some stories.
type bound struct {
	name   string
	of     func(*story) bool
	figure figure
	most   func(*story, peers) float64
}

// peers returns the figures of another client in the same story.
type peers func(client) figures

// The kinds of stories.
func (s *story) is(kinds ...string) bool {
	for _, kind := range kinds {
		if strings.HasPrefix(s.name, kind) {
			return true
		}
	}
	return false
}

func is(kinds ...string) func(*story) bool { return func(s *story) bool { return s.is(kinds...) } }

// outage reports whether a server without a limited capacity is down once.
func (s *story) outage() bool {
	return s.until > 0 && s.every == 0 && s.workers == 0 && !s.is("together")
}

// long reports whether the callers of a closed loop meet an outage of ten seconds or more.
func (s *story) long() bool { return s.outage() && s.callers > 0 && s.until-s.from >= 10*time.Second }

// bounds are asked of aplomb. If two of them exclude each other in a story, the earlier one comes first. A server that is too busy, or
// that fails half of its requests for a minute, should get fewer retries, so these lose more.
var bounds = []bound{
	{"lost", func(s *story) bool { return !s.refuses && !s.is("half") }, lost, func(s *story, of peers) float64 {
		least, share := 0., .002
		switch {
		case s.lossless:
			return 0
		case s.before > 0: // the others are never back
			least = float64(s.before)
		case s.is("service"):
			least = of(off)[lost]
		default:
			least = min(of(off)[lost], of(retryable)[lost])
		}
		if s.until-s.from >= time.Minute {
			share = .01
		}
		return least + share*float64(s.count())
	}},
	{"while down", func(s *story) bool { return s.until > 0 && s.every == 0 && !s.is("together", "service") && !s.long() }, down,
		func(_ *story, of peers) float64 { return of(retryable)[down] }},
	{"while down, closed", (*story).long, down, func(_ *story, of peers) float64 { return of(retryable)[down]/2 + 2 }},
	{"while down, as off", is("restarts", "service"), down, func(_ *story, of peers) float64 { return 1.05*of(off)[down] + 2 }}, // back-offs are random
	{"while down, breaker", is("breaker-200"), down, func(s *story, _ peers) float64 { return 1.2*s.usual() + 12 }},             // in the first second, and probes
	{"peak", func(s *story) bool { return s.until > 0 && s.every == 0 && !s.is("together") }, peak,
		func(s *story, _ peers) float64 { return max(4*s.usual(), 35) }},
	{"peak, told the same time", is("together"), peak, func(*story, peers) float64 { return 100 }},
	{"done", func(s *story) bool { return s.outage() || s.is("together") }, done, func(s *story, _ peers) float64 {
		most := 12.
		if s.callers > 0 || s.is("together") {
			most = 15
		}
		if s.how == "silent" || s.latency >= 300*time.Millisecond {
			most += 10
		}
		return most
	}},
	{"back", is("capacity"), back, func(*story, peers) float64 { return 120 }},
	{"goodput", is("overload"), lost, func(s *story, of peers) float64 { // goodput is the requests that are not lost
		share := .95
		if s.transports > 1 {
			share = map[string]float64{"overload-1.2-100T": .91, "overload-2-100T": .88}[s.name]
		}
		p := of(plain)
		return p[requests] - share*(p[requests]-p[lost])
	}},
	{"attempts", is("overload"), attempts, func(s *story, _ peers) float64 {
		if s.transports > 1 {
			return 2 * float64(s.count())
		}
		return 1.5 * float64(s.count())
	}},
	{"attempts, half", is("half/2s-0.05"), attempts, func(s *story, _ peers) float64 { return 1.06 * float64(s.count()) }},
	{"in time, half", is("half/2s"), slowest, func(s *story, _ peers) float64 { return (s.rule.MaxElapsedTime + ordinary).Seconds() }},
	{"no slower", is("random", "restarts"), mean, func(_ *story, of peers) float64 { return 1.2 * of(off)[mean] }},
	{"no slower beside", is("beside"), slowest, func(_ *story, of peers) float64 { return 1.5 * of(off)[slowest] }},
	{"nothing waits", is("full"), slowest, func(s *story, _ peers) float64 { return s.latency.Seconds() }},
}
