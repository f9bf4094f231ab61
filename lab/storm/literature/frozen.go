package literature

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// freezes are the variants of the experiment.
var freezes = [...]struct {
	name   string
	frozen time.Duration
	drops  bool // the server drops the requests whose clients have left
}{
	{"frozen for 5 s", 5 * time.Second, false},
	{"8 s", 8 * time.Second, false},
	{"20 s", 20 * time.Second, false},
	{"20 s, drops the requests of clients that have left", 20 * time.Second, true},
}

// frozen is the experiment of the article of github.com/smira/exponential-backoff, which the
// program above repeats with real servers and clients.
func frozen() *Model {
	sc := model.DefaultScenario()
	m := &Model{
		Name:   "A server that was frozen",
		Source: "https://github.com/smira/exponential-backoff",
		About: "1000 clients send a request every 10 s on average, and wait 2 s for the response. The server takes 100 ms while at most 30 requests are in progress, " +
			"and 100 ms × 1.05^((requests − 30)/15) beyond. It is frozen from 10 s on, and takes up all that has arrived meanwhile, also requests whose clients have left. " +
			"The first three clients retry until the end. The second waits as the article says, and the third as its program does.",
		Arms: []Arm{
			{Name: "a retry every 0.1 s", New: endless(backoff.Constant(100*time.Millisecond), false)},
			{Name: "exponential from 0.1 s", New: endless(model.DefaultArticle(), false)},
			{Name: "exponential from 27 s", New: endless(model.DefaultArticle(), true)},
			{Name: "Google's formula", New: endless(backoff.Google{}, false)},
			{Name: "no retries", New: resends(sc.Timeout, 0)},
		},
		Rule: policy.Rule{AttemptTimeout: sc.Timeout},
		Play: playFrozen, Closed: true,
		Why: []Reason{
			{"8 s", "aplomb, Service", "Service retries after 50 to 100 ms, because a caller waits. So each of 1000 separate clients leaves two requests in the sockets at once."},
			{"20 s", "", "The requests of clients without any retries pile up to more than this server can work off, so separate clients cannot bring it back. " +
				"The article's program can, because it waits 27 s before its first retry. Few callers have that time. Clients that share a Transport with the concurrency limit bring the server back at once, and so does a fleet."},
			{"20 s, drops the requests of clients that have left", "", "The article's program sends a little less here, but the usual rate is back later."},
		},
	}
	for i, f := range freezes {
		m.Settings = append(m.Settings, Setting{
			Name: f.name, Value: float64(i), Length: sc.Steady + f.frozen + sc.Watched,
			Trigger: Span{sc.Steady, sc.Steady + f.frozen},
		})
	}
	m.Published = []Published{
		{"20 s", "a retry every 0.1 s", Back, math.Inf(1)},
		{"20 s", "exponential from 27 s", Back, 60},
	}
	return m
}

func playFrozen(r *Run) {
	sc, f := model.DefaultScenario(), freezes[int(r.Setting.Value)]
	type work struct {
		begun    time.Duration
		left     context.Context // ends when the client leaves
		answered chan struct{}
	}
	var mu sync.Mutex
	var works []work // the longest in progress first, because each needs the same time
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		w := work{r.Now(), req.Context(), make(chan struct{})}
		if at := r.Setting.Trigger; w.begun >= at.From {
			w.begun = max(w.begun, at.To)
		}
		mu.Lock()
		works = append(works, w)
		mu.Unlock()
		select {
		case <-w.answered:
			return Response(req, http.StatusOK), nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})
	for range sc.Clients {
		client := r.Client(server)
		r.Go(func() {
			for {
				if time.Sleep(Seconds(sc.Think.Seconds() * r.ExpFloat64())); r.Over() {
					return
				}
				r.Request(client)
			}
		})
	}
	for !r.Over() {
		time.Sleep(10 * time.Millisecond)
		if at := r.Setting.Trigger; r.Now() >= at.From && r.Now() < at.To {
			continue
		}
		mu.Lock()
		for len(works) > 0 {
			w := works[0]
			if r.Now()-w.begun >= sc.Server.Delay(len(works)) {
				close(w.answered)
			} else if !f.drops || w.left.Err() == nil {
				break
			}
			works = works[1:]
		}
		mu.Unlock()
	}
}

// endless tries again until the request's context ends. The article's program keeps the last wait
// and the time between two requests in the same variable, so that the first wait depends on that.
func endless(b backoff.Backoff, fromThink bool) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(r *Run, server http.RoundTripper) http.RoundTripper {
		var ended time.Duration // the last request
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
			defer func() { ended = r.Now() }()
			var wait time.Duration
			if fromThink {
				wait = r.Now() - ended
			}
			for n := 0; ; n++ {
				resp, err := within(model.DefaultScenario().Timeout, server, req)
				if err == nil {
					return resp, nil
				}
				wait = b.Delay(n, wait)
				if err := virtual.Pause(req.Context(), wait); err != nil {
					return nil, err
				}
			}
		})
	}
}
