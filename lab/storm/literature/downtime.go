package literature

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
	"github.com/aplomb-go/aplomb/policy"
)

const downtimeTimeout = 100 * time.Millisecond

// downtimes are the variants of the experiment.
var downtimes = [...]struct {
	name    string
	cpus    int
	down    time.Duration
	share   float64 // of the requests that fail meanwhile
	ofUsers bool    // all requests of a share of the users fail
}{
	{name: "41 CPUs, all fail for 0.5 s", cpus: 41, down: 500 * time.Millisecond, share: 1},
	{name: "20 CPUs, all fail for 0.5 s", cpus: 20, down: 500 * time.Millisecond, share: 1},
	{name: "22 CPUs, all fail for 1 s", cpus: 22, down: time.Second, share: 1},
	{name: "22 CPUs, 30 % fail for 0.5 s", cpus: 22, down: 500 * time.Millisecond, share: 0.3},
	{name: "20 CPUs, 20 % of the users fail for 0.5 s", cpus: 20, down: 500 * time.Millisecond, share: 0.2, ofUsers: true},
}

// downtime is the experiment of the article "Good Retry, Bad Retry: An Incident Story" (Denis
// Isaev, 2024). Two retries with an exponential wait are left out. With 20 CPUs chance decides
// whether they bring the server back, in the authors' program as well.
func downtime() *Model {
	exponential := func(n int) float64 { return 0.1 * math.Pow(2, float64(n-1)) }
	atOnce := func(int) float64 { return 0 }
	m := &Model{
		Name:   "A short downtime",
		Source: "https://github.com/jirfag/simulations",
		About: "1000 requests per second. Each takes 10 ms of a CPU, with a deviation of a quarter, lognormal, and 5 ms on the way in the mean. They wait in one " +
			"queue for a CPU, also those whose clients have left after the timeout of 100 ms. One in 200 fails. From 6 s on all fail for a while, or a part, after " +
			"they have taken their time. All requests share a client. The authors' program, with these variants and 10 s long, has the same clients back.",
		Arms: []Arm{
			{Name: "no retries", New: limited(0, atOnce, nil)},
			{Name: "three retries", New: limited(3, atOnce, nil)},
			{Name: "three retries, exponential wait with full jitter", New: limited(3, exponential, nil)},
			{Name: "two retries", New: limited(2, atOnce, nil)},
			{Name: "two retries, none while 10 % fail", New: limited(2, atOnce, func() limit { return &failures{window: 200 * time.Millisecond, most: 0.1, least: 1} })},
			{Name: "two retries, budget of 10 %", New: limited(2, atOnce, func() limit { return &tokens{left: 30} })},
			{Name: "the same, exponential wait with full jitter", New: limited(2, exponential, func() limit { return &tokens{left: 30} })},
			{Name: "two retries, circuit breaker at 10 %", New: broken(0.1, limited(2, atOnce, nil))},
			{Name: "two retries, circuit breaker at 50 %", New: broken(0.5, limited(2, atOnce, nil))},
		},
		Rule: policy.Rule{AttemptTimeout: downtimeTimeout},
		Play: playDowntime,
	}
	for i, d := range downtimes {
		s := Setting{Name: d.name, Value: float64(i), Runs: 3, Length: 24 * time.Second, Trigger: Span{6 * time.Second, 6*time.Second + d.down}}
		if d.share == 1 {
			s.Dead = s.Trigger
		}
		m.Settings = append(m.Settings, s)
	}
	never := math.Inf(1)
	m.publish(Back, map[string][]float64{
		"no retries":    {0, 0, 0, 0, 0},
		"three retries": {0, never, never, 0, 0},
		"three retries, exponential wait with full jitter": {0, never, never, 0, 0},
		"two retries":                                 {0, never, never, 0, 0},
		"two retries, none while 10 % fail":           {0, 0, 0, 0, 0},
		"two retries, budget of 10 %":                 {0, 0, 0, 0, 0},
		"the same, exponential wait with full jitter": {0, 0, 0, 0, 0},
		"two retries, circuit breaker at 10 %":        {0, 0, 0, 0, 0},
		"two retries, circuit breaker at 50 %":        {0, 0, 0, 0, 0},
	})
	return m
}

func playDowntime(r *Run) {
	d := downtimes[int(r.Setting.Value)]
	var mu sync.Mutex
	cpus := make([]time.Duration, d.cpus) // when each is idle
	take := func() time.Duration {        // when a CPU is ready with a request that comes now
		mu.Lock()
		defer mu.Unlock()
		first := slices.Index(cpus, slices.Min(cpus))
		cpus[first] = max(r.Now(), cpus[first]) + Seconds(0.010*math.Exp(0.25*r.NormFloat64()))
		return cpus[first]
	}
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		if err := virtual.Pause(req.Context(), Seconds(0.005*r.ExpFloat64())); err != nil {
			return nil, err
		}
		done, share, dice := take(), 0.005, r.Float64()
		if done >= r.Setting.Trigger.From && done < r.Setting.Trigger.To {
			share = d.share
			if user, err := strconv.ParseFloat(req.Header.Get("User"), 64); d.ofUsers && err == nil {
				dice = user
			}
		}
		if dice < share {
			return Reply(req, done-r.Now(), http.StatusInternalServerError)
		}
		return Reply(req, done-r.Now(), http.StatusNoContent)
	})
	client := r.Client(server)
	r.Arrive(func() float64 { return 1000 }, func() {
		req := r.NewRequest(http.MethodGet)
		if d.ofUsers {
			req.Header.Set("User", strconv.FormatFloat(r.Float64(), 'g', -1, 64))
		}
		r.Send(client, req)
	})
}

// A limit stops retries. It is told of every attempt.
type limit interface {
	note(now time.Duration, ok, retry bool)
	allow(now time.Duration) bool
}

// limited retries so many times, after a random part of the most seconds before a retry.
func limited(retries int, most func(n int) float64, new func() limit) func(*Run, http.RoundTripper) http.RoundTripper {
	return tries(downtimeTimeout, func(r *Run) judge {
		var l limit = &tokens{left: math.Inf(1)}
		if new != nil {
			l = new()
		}
		var mu sync.Mutex
		return func(n int, resp *http.Response, err error) (time.Duration, bool) {
			mu.Lock()
			defer mu.Unlock()
			l.note(r.Now(), good(resp, err), n > 1)
			if good(resp, err) || n > retries || !l.allow(r.Now()) {
				return 0, false
			}
			return Seconds(r.Float64() * min(most(n), 1)), true
		}
	})
}

// tokens are a budget. A success of a first attempt earns a tenth of a retry, up to 30.
type tokens struct{ left float64 }

func (t *tokens) note(_ time.Duration, ok, retry bool) {
	if ok && !retry {
		t.left = min(t.left+0.1, max(t.left, 30))
	}
}

func (t *tokens) allow(time.Duration) bool {
	if t.left < 1 {
		return false
	}
	t.left--
	return true
}

// failures count what has failed of late.
type failures struct {
	window time.Duration
	most   float64
	least  int // attempts, below which nothing is said
	events []event
	failed int
}

type event struct {
	at time.Duration
	ok bool
}

func (f *failures) note(now time.Duration, ok, _ bool) {
	f.events = append(f.events, event{now, ok})
	if !ok {
		f.failed++
	}
	for now-f.events[0].at >= f.window {
		if !f.events[0].ok {
			f.failed--
		}
		f.events = f.events[1:]
	}
}

func (f *failures) allow(time.Duration) bool {
	return len(f.events) >= f.least && float64(f.failed) < f.most*float64(len(f.events))
}

// broken is a circuit breaker around a client. It opens for 100 ms if, of 100 attempts or more
// in 200 ms, so many fail. Then 100 requests may pass before it is judged anew.
func broken(most float64, client func(*Run, http.RoundTripper) http.RoundTripper) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(r *Run, server http.RoundTripper) http.RoundTripper {
		b := &breaker{seen: failures{window: 200 * time.Millisecond, most: most}}
		inner := client(r, RoundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := server.RoundTrip(req)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen.note(r.Now(), good(resp, err), false)
			return resp, err
		}))
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
			if !b.enter(r.Now()) {
				return Response(req, http.StatusServiceUnavailable), nil
			}
			return inner.RoundTrip(req)
		})
	}
}

type breaker struct {
	mu    sync.Mutex
	seen  failures
	state int // 0: closed, 1: open, 2: half open
	since time.Duration
}

func (b *breaker) enter(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	failing := len(b.seen.events) >= 100 && !b.seen.allow(now)
	switch {
	case b.state == 1 && now-b.since < 100*time.Millisecond:
		return false
	case b.state == 1:
		b.become(2, now)
	case failing:
		b.become(1, now)
		return false
	case b.state == 2 && len(b.seen.events) >= 100:
		b.become(0, now)
	}
	return true
}

func (b *breaker) become(state int, now time.Duration) {
	b.state, b.since = state, now
	b.seen.events, b.seen.failed = nil, 0
}
