package outages

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// A story is a server, its trouble and a load.
type story struct {
	name string
	rule policy.Rule // aplomb's; the others get its AttemptTimeout

	// the server
	trouble
	latency time.Duration
	share   float64 // of random 503
	workers int     // of a server with a capacity
	refuses bool    // what would wait for too long

	// the load of a closed loop
	callers, files int
	think          time.Duration

	// the load of an open loop
	rate       float64 // per second
	during     time.Duration
	when       func(i int) time.Duration // a request is sent; nil: by the rate
	deadline   time.Duration             // of a request, after it is sent
	transports int                       // 0: 1
	bad        float64                   // per second to /bad, which are not counted

	// the judgement
	lossless bool // aplomb loses no request
	before   int  // so many were lost when the budget refused retries, if the others lose more
}

// count returns how many requests are counted.
func (s *story) count() int {
	if s.callers > 0 {
		return s.files
	}
	return int(s.rate * s.during.Seconds())
}

// usual returns how many requests begin in a second when nothing is wrong.
func (s *story) usual() float64 {
	if s.callers > 0 {
		return float64(s.callers) / (s.think + max(s.latency, ordinary)).Seconds()
	}
	return s.rate
}

// A result is the end of a request.
type result struct {
	began, took time.Duration
	ok          bool
}

// A play is a story with a client.
type play struct {
	*story
	server  *server
	clients []http.RoundTripper
	all     sync.WaitGroup

	mu      sync.Mutex // guards results
	results []result
}

// play plays a story in a bubble.
func (s *story) play(c client) figures {
	p := &play{story: s, server: newServer(s)}
	for range max(1, s.transports) {
		p.clients = append(p.clients, c.wrap(s, p.server))
	}
	if s.callers > 0 {
		p.closed()
	} else {
		p.all.Go(func() { p.open(s.bad, "/bad", nil) })
		p.open(s.rate, "/good", s.when)
	}
	p.all.Wait()
	return p.figures()
}

// Play plays a story in a bubble, over a client that the caller makes. It returns how many requests the client has lost, and how
// many of its attempts met the server while that was down.
func Play(name string, wrap func(base http.RoundTripper) http.RoundTripper) (lostOnes, whileDown int, err error) {
	for _, s := range stories() {
		if s.name == name {
			f := s.play(client{"", func(_ *story, base http.RoundTripper) http.RoundTripper { return wrap(base) }})
			return int(f[lost]), int(f[down]), nil
		}
	}
	return 0, 0, fmt.Errorf("outages: there is no story %q", name)
}

// closed lets each caller take the next file when it is done with the last.
func (p *play) closed() {
	files := make(chan struct{}, p.files)
	for range p.files {
		files <- struct{}{}
	}
	close(files)
	for range p.callers {
		p.all.Go(func() {
			for range files {
				p.request(p.clients[0], http.MethodPut, "/file", 0)
				time.Sleep(p.think)
			}
		})
	}
}

// open sends requests at their times, whatever becomes of the earlier.
func (p *play) open(rate float64, path string, when func(int) time.Duration) {
	if when == nil {
		when = func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	}
	for i := range int(rate * p.during.Seconds()) {
		time.Sleep(when(i) - time.Since(p.server.began))
		p.all.Go(func() { p.request(p.clients[i%len(p.clients)], http.MethodGet, path, i) })
	}
}

func (p *play) request(c http.RoundTripper, method, path string, i int) {
	began := time.Since(p.server.began)
	ctx := context.Background()
	if p.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.deadline)
		defer cancel()
	}
	var body io.Reader
	if method == http.MethodPut {
		body = strings.NewReader("file")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://server.test"+path, body)
	if err != nil {
		panic(err) // the methods and paths are this program's
	}
	req.Header.Set("Request-Id", strconv.Itoa(i))
	resp, err := c.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if path == "/bad" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = append(p.results, result{began, time.Since(p.server.began) - began, err == nil && resp.StatusCode == http.StatusOK})
}
