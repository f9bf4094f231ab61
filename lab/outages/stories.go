package outages

import (
	"fmt"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

const begins = 10 * time.Second // of an outage

// shown are the stories of the main table.
var shown = []string{
	"closed-8-0ms/503/20s", "closed-64-0ms/503/20s", "open-2/503/10s", "open-200/503/20s", "open-200/503-wait/20s",
	"open-200/silent/10s", "deadline30-200/503/20s", "single-shots/503/20s", "breaker-200/503/20s", "service-200/503/500ms",
	"random-0.1-wait/500", "random-0.3-wait/500", "restarts/200", "capacity-0.8-1T/frozen/5s", "capacity-0.8-100T/503/5s",
	"overload-1.2-1T", "overload-2-1T", "overload-1.2-100T", "overload-2-100T", "together/429", "beside-10/s",
}

// short are the stories that make test-rest judges.
var short = []string{
	"closed-8-0ms/503/20s", "closed-8-100ms/refused/1m0s", "open-2/503/10s", "open-2/silent/10s", "open-200/503/20s", "open-200/silent/10s",
	"slow-200/503/10s", "deadline30-20/503/20s", "single-shots/503/20s", "breaker-200/503/20s", "service-200/503/100ms", "service-64/503/500ms",
	"random-0.1-wait/500", "random-0.3/20", "half/2s", "half/2s-0.05", "restarts/200", "restarts/closed-8", "capacity-0.8-100T/503/5s", "overload-2-1T", "overload-1.2-100T",
	"together/429", "together/503", "beside-10/s", "full/quiet", "full/bursts", "full/deadlines", "full/slow",
}

// stories returns all stories.
func stories() []*story {
	return slices.Concat(outages(), variants(), troubles(), capacities(), healthy())
}

// outage makes the trouble of an outage. The part of how behind a hyphen is for its name.
func outage(how string, d time.Duration) trouble {
	x := trouble{how: how, from: begins, until: begins + d}
	if how == "503-wait" {
		x.wait = "2"
	}
	return x
}

// outages are those of each kind, under loads of each kind.
func outages() (all []*story) {
	for _, how := range []string{"503", "503-wait", "refused", "silent"} {
		for _, d := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute} {
			base := story{trouble: outage(how, d), lossless: d < time.Minute, during: begins + d + 40*time.Second}
			if how == "silent" {
				base.rule.AttemptTimeout = time.Second
			}
			for _, callers := range []int{8, 64} {
				for _, think := range []time.Duration{0, 100 * time.Millisecond} {
					s := base
					s.name = fmt.Sprintf("closed-%d-%dms/%s/%v", callers, think.Milliseconds(), how, d)
					if s.callers, s.think, s.files = callers, think, map[int]int{8: 20000, 64: 80000}[callers]; think > 0 {
						s.files = s.files * 2 / 5
					}
					all = append(all, &s)
				}
			}
			for _, rate := range []float64{2, 20, 200, 1000} {
				s := base
				s.name, s.rate = fmt.Sprintf("open-%g/%s/%v", rate, how, d), rate
				all = append(all, &s)
			}
		}
	}
	return all
}

// variants are outages with other servers, deadlines, loads and rules.
func variants() (all []*story) {
	for _, d := range []time.Duration{10 * time.Second, 20 * time.Second} {
		all = append(all, &story{name: fmt.Sprintf("slow-200/503/%v", d), trouble: outage("503", d), latency: 300 * time.Millisecond,
			rate: 200, during: begins + d + 40*time.Second, lossless: true})
		single := &story{name: fmt.Sprintf("single-shots/503/%v", d), trouble: outage("503", d), latency: 100 * time.Millisecond,
			rate: 1000, during: begins + 200*time.Millisecond, lossless: true}
		single.from -= 200 * time.Millisecond
		all = append(all, single)
	}
	for _, rate := range []float64{20, 200} {
		for _, d := range []time.Duration{10 * time.Second, 20 * time.Second, time.Minute} {
			all = append(all, &story{name: fmt.Sprintf("deadline30-%g/503/%v", rate, d), trouble: outage("503", d), deadline: 30 * time.Second,
				rate: rate, during: begins + d + 40*time.Second, lossless: d < time.Minute})
		}
	}
	breaker := story{name: "breaker-200/503/20s", trouble: outage("503", 20*time.Second), rate: 200, during: 70 * time.Second, lossless: true,
		rule: policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}}
	closed := breaker
	closed.name, closed.callers, closed.files = "breaker-8/503/20s", 8, 20000
	all = append(all, &breaker, &closed)
	for _, d := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
		base := story{trouble: outage("503", d), rule: profile.Service(), during: 20 * time.Second}
		for _, rate := range []float64{200, 1000} {
			s := base
			s.name, s.rate = fmt.Sprintf("service-%g/503/%v", rate, d), rate
			all = append(all, &s)
		}
		base.name, base.callers, base.files = fmt.Sprintf("service-64/503/%v", d), 64, 50000
		all = append(all, &base)
	}
	return all
}

// troubles are other than one outage.
func troubles() (all []*story) {
	for _, share := range []float64{.1, .3} {
		for _, wait := range []string{"", "1"} {
			for _, rate := range []float64{20, 500} {
				name := fmt.Sprintf("random-%g/%g", share, rate)
				if wait != "" {
					name = fmt.Sprintf("random-%g-wait/%g", share, rate)
				}
				all = append(all, &story{name: name, trouble: trouble{wait: wait}, share: share, rate: rate, during: time.Minute, lossless: share < .2})
			}
		}
	}
	half := story{name: "half/default", share: .5, rate: 200, during: time.Minute}
	short, sparing := half, half
	short.name, short.rule = "half/2s", policy.Rule{MaxElapsedTime: 2 * time.Second}
	sparing.name, sparing.rule = "half/2s-0.05", policy.Rule{MaxElapsedTime: 2 * time.Second, RetryBudget: policy.RetryBudget{Ratio: 0.05, MinPerSecond: 0.1}}
	all = append(all, &half, &short, &sparing)
	restarts := trouble{how: "refused", from: 3 * time.Second, until: 3500 * time.Millisecond, every: 3 * time.Second}
	for _, rate := range []float64{2, 20, 200} {
		all = append(all, &story{name: fmt.Sprintf("restarts/%g", rate), trouble: restarts, rate: rate, during: time.Minute, lossless: true})
	}
	all = append(all, &story{name: "restarts/closed-8", trouble: restarts, callers: 8, files: 20000, lossless: true})
	for _, how := range []string{"429", "503"} {
		all = append(all, &story{name: "together/" + how, trouble: trouble{how: how, until: 5 * time.Second, wait: "5"},
			rate: 700, during: time.Second, when: func(int) time.Duration { return 0 }, lossless: true})
	}
	for _, bad := range []float64{10, 100} {
		all = append(all, &story{name: fmt.Sprintf("beside-%g/s", bad), share: .01, bad: bad, rate: 100, during: 5 * time.Minute, lossless: true})
	}
	return all
}

// capacities are servers with four workers, which can take 400 requests per second.
func capacities() (all []*story) {
	const workers, most = 4, float64(4 * time.Second / job)
	before := map[string]int{
		"capacity-0.8-1T/frozen/5s": 8000, "capacity-0.8-100T/frozen/5s": 31000,
		"capacity-0.8-100T/503/5s": 24200, "capacity-0.8-100T/refused/5s": 24100,
	}
	for _, n := range []int{1, 100} {
		for _, load := range []float64{.5, .8} {
			for _, how := range []string{"frozen", "503", "refused"} {
				name := fmt.Sprintf("capacity-%g-%dT/%s/5s", load, n, how)
				all = append(all, &story{name: name, trouble: outage(how, 5*time.Second), workers: workers,
					rule: policy.Rule{AttemptTimeout: time.Second}, rate: load * most, during: 150 * time.Second, transports: n,
					before: before[name], lossless: load == .5 || n == 1 && how != "frozen"})
			}
		}
		for _, load := range []float64{1.2, 2} {
			all = append(all, &story{name: fmt.Sprintf("overload-%g-%dT", load, n), workers: workers, refuses: true,
				rate: load * most, during: time.Minute, transports: n, deadline: 5 * time.Second})
		}
	}
	return all
}

// healthy are servers without any trouble, and a limit on the requests in flight that is never reached.
func healthy() []*story {
	limit := func(name string, c policy.Concurrency, s story) *story {
		c.Enabled = policy.On
		s.name, s.rule, s.lossless = "full/"+name, policy.Rule{Concurrency: c}, true
		return &s
	}
	return []*story{
		limit("quiet", policy.Concurrency{Max: 200, FailFast: policy.On}, story{latency: 100 * time.Millisecond, rate: 300, during: 20 * time.Second,
			when: func(i int) time.Duration { // after the first, 12 s without any
				return time.Duration(min(i, 1))*12*time.Second + time.Duration(i)*time.Second/300
			}}),
		limit("deadlines", policy.Concurrency{Max: 200}, story{latency: 200 * time.Millisecond, deadline: time.Second, rate: 290, during: 20 * time.Second}),
		limit("slow", policy.Concurrency{Max: 500}, story{latency: 10 * time.Second, deadline: time.Minute, rate: 10, during: 2 * time.Minute}),
		limit("bursts", policy.Concurrency{Max: 50, FailFast: policy.On}, story{latency: 100 * time.Millisecond, rate: 40, during: 20 * time.Second,
			when: func(i int) time.Duration { return time.Duration(i/40) * 10 * time.Second }}),
	}
}
