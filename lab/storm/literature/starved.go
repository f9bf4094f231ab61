package literature

import (
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

const (
	starvedTimeout = 3 * time.Second
	starvedRate    = 600.0 // requests per second
	starvedLoad    = 0.375 // the part of the two CPUs that these requests take
)

// starvations are the variants of the experiment.
var starvations = [...]struct {
	name string
	cpus float64 // that are left of two
	time time.Duration
	rate float64
	back float64 // after how many seconds the authors' client is, about
	dead Span    // in which no attempt without retries is answered in time
}{
	{"0.45 CPUs for 10 s", 0.45, 10 * time.Second, starvedRate, 0, Span{24600 * time.Millisecond, 27500 * time.Millisecond}},
	{"0.40 CPUs for 10 s", 0.40, 10 * time.Second, starvedRate, math.Inf(1), Span{23500 * time.Millisecond, 28 * time.Second}},
	{"0.40 CPUs for 9 s", 0.40, 9 * time.Second, starvedRate, 0, Span{23500 * time.Millisecond, 26600 * time.Millisecond}},
	{"0.40 CPUs for 10 s, 30 % fewer requests", 0.40, 10 * time.Second, 0.7 * starvedRate, 0, Span{}},
}

// starved is the experiment with retries of the article "Metastable Failures in the Wild" (Huang
// and others, OSDI 2022). The authors' database is a real one, and their figures are curves. With
// starvedLoad their client is back in the same three variants as theirs.
func starved() *Model {
	m := &Model{
		Name:   "A database without CPU",
		Source: "https://github.com/lexiangh/Metastability/tree/main/Retry_Metastability",
		About: "A client inserts 600 records per second. The database can take 1600 with its two CPUs, and has fewer CPUs from 20 s on. Inserts wait in one " +
			"queue, also those whose clients have left after the timeout of 3 s. We chose the 600 and the 1600, with which the authors' client is back in the same " +
			"variants as in the article. Our inserts are PUTs, because the authors send them again.",
		Arms: []Arm{
			{Name: "no retries", New: resends(starvedTimeout, 0)},
			{Name: "four retries", New: resends(starvedTimeout, 4)},
		},
		Rule: policy.Rule{AttemptTimeout: starvedTimeout},
		Play: playStarved,
	}
	var back []float64
	for i, v := range starvations {
		m.Settings = append(m.Settings, Setting{
			Name: v.name, Value: float64(i), Length: time.Minute, Trigger: Span{20 * time.Second, 20*time.Second + v.time}, Dead: v.dead,
		})
		back = append(back, v.back)
	}
	m.publish(Back, map[string][]float64{"four retries": back})
	return m
}

func playStarved(r *Run) {
	s := starvations[int(r.Setting.Value)]
	var mu sync.Mutex
	var last time.Duration // the work until the queue is empty, as the time that it takes two CPUs
	work := Seconds(starvedLoad / starvedRate)
	starved := clock{r.Setting.Trigger, s.cpus / 2}
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		last = max(last, starved.work(r.Now())) + work
		done := starved.at(last)
		mu.Unlock()
		return Reply(req, done-r.Now(), http.StatusNoContent)
	})
	client := r.Client(server)
	r.Arrive(func() float64 { return s.rate }, func() { r.Send(client, r.NewRequest(http.MethodPut)) })
}

// A clock runs slower for a while.
type clock struct {
	slow  Span
	speed float64
}

// work is what the clock shows at a time.
func (c clock) work(at time.Duration) time.Duration {
	slow := min(max(at, c.slow.From), c.slow.To) - c.slow.From
	return at - slow + time.Duration(float64(slow)*c.speed)
}

// at is the time at which the clock shows so much.
func (c clock) at(work time.Duration) time.Duration {
	all := c.slow.To - c.slow.From
	slow := min(max(0, time.Duration(float64(work-c.slow.From)/c.speed)), all)
	return work + slow - time.Duration(float64(slow)*c.speed)
}

// resends retries at once after the timeout.
func resends(timeout time.Duration, n int) func(*Run, http.RoundTripper) http.RoundTripper {
	return tries(timeout, func(*Run) judge {
		return func(i int, _ *http.Response, err error) (time.Duration, bool) { return 0, err != nil && i <= n }
	})
}
