package dashboard

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/internal/testkit"
	aplombotel "github.com/aplomb-go/aplomb/otel"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// The story has faults from the one to the other, and is well before and after.
const (
	trouble = 20 * time.Minute
	well    = 45 * time.Minute
	end     = 75 * time.Minute
	scrape  = 15 * time.Second
)

// servers are the hosts of the story, each with its behaviour in trouble. n counts its attempts.
var servers = map[string]func(req *http.Request, n int64) (*http.Response, error){
	"well.test":   func(req *http.Request, _ int64) (*http.Response, error) { return answer(req, 200) },
	"down.test":   func(*http.Request, int64) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
	"gated.test":  func(*http.Request, int64) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
	"held.test":   held,
	"left.test":   held, // no more requests come when it is held
	"flaky.test":  func(req *http.Request, n int64) (*http.Response, error) { return answer(req, 200+303*int(n%5/4)) },
	"fair.test":   func(req *http.Request, n int64) (*http.Response, error) { return answer(req, 200+303*int(n%20/19)) },
	"orders.test": func(req *http.Request, n int64) (*http.Response, error) { return answer(req, 200+303*int(n%20/19)) }, // has POSTs
	"stuck.test":  stuck,
	"slow.test":   slow,
	"cutter.test": cut,
	"hasty.test": func(req *http.Request, n int64) (*http.Response, error) { // for a hedge
		if n%20 == 0 {
			time.Sleep(2 * time.Second)
		}
		return answer(req, 200)
	},
	"paced.test": func(req *http.Request, _ int64) (*http.Response, error) { return answer(req, 200) }, // has a rate, and in trouble more requests
	"fleet.test": func(req *http.Request, _ int64) (*http.Response, error) { return answer(req, 200) }, // has a rate that a fleet shares
}

// rules are the rules of the hosts that need one.
var rules = map[string]policy.Rule{
	"gated.test": {CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}},
	"held.test":  {ShareRetryAfter: policy.On},
	"left.test":  {ShareRetryAfter: policy.On},
	"slow.test":  {Concurrency: policy.Concurrency{Enabled: policy.On, Max: 2}},
	"hasty.test": {Hedge: policy.Hedge{Delay: 200 * time.Millisecond}},
	"paced.test": {RateLimit: policy.RateLimit{PerSecond: 0.9, Burst: 1}},
	"fleet.test": {RateLimit: policy.RateLimit{PerSecond: 5}},
}

func answer(req *http.Request, status int, header ...string) (*http.Response, error) {
	h := http.Header{"Etag": {`"v1"`}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(strings.NewReader("0123456789")), ContentLength: 10, Request: req}, nil
}

func held(req *http.Request, _ int64) (*http.Response, error) {
	return answer(req, 429, "Retry-After", "300")
}

// stuck fails over the first pool. Over HTTP/1.1 the host would stay there, because each connection may have another server.
func stuck(req *http.Request, _ int64) (*http.Response, error) {
	resp, err := answer(req, 503)
	resp.ProtoMajor = 2
	return resp, err
}

// slow takes a second for each request. Three of them come in a second.
func slow(req *http.Request, _ int64) (*http.Response, error) {
	time.Sleep(time.Second)
	return answer(req, 200)
}

// cut cuts some bodies in the middle, and then sends the rest or has another version.
func cut(req *http.Request, n int64) (*http.Response, error) {
	resp, err := answer(req, 200)
	switch {
	case req.Header.Get("Range") == "" && n%5 != 0:
	case req.Header.Get("Range") == "":
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("01234"), broken{}))
	case n%4 < 2:
		resp.StatusCode = http.StatusPartialContent
		resp.Header.Set("Content-Range", "bytes 5-9/10")
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader("56789")), 5
	default:
		resp.Header.Set("Etag", `"v2"`)
	}
	return resp, err
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.ECONNRESET }

// A base plays the servers.
type base struct {
	began    time.Time
	attempts map[string]*atomic.Int64
}

func (b *base) inTrouble() bool { return time.Since(b.began) >= trouble && time.Since(b.began) < well }

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	n := b.attempts[req.URL.Host].Add(1)
	if !b.inTrouble() {
		return answer(req, 200)
	}
	return servers[req.URL.Host](req, n)
}

// An otherPool is a base for which the balancer before stuck.test chooses a healthy server.
type otherPool struct{ *base }

func (b otherPool) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == "stuck.test" {
		return answer(req, 200)
	}
	return b.base.RoundTrip(req)
}

// A lostFleet is a member of a fleet that is away in trouble.
type lostFleet struct {
	member *fleettest.Member
	began  time.Time
	lost   atomic.Uint64 // what was told in vain
}

func (f *lostFleet) away() bool { return time.Since(f.began) >= trouble && time.Since(f.began) < well }

func (f *lostFleet) tell(m fleetmsg.Message) {
	if f.away() {
		f.lost.Add(1)
		return
	}
	f.member.Tell(m)
}

func (f *lostFleet) state() fleetlink.State {
	s := f.member.State()
	s.Dropped += f.lost.Load()
	if f.away() {
		s.Connected, s.LastHeartbeat = false, f.began.Add(trouble)
	}
	return s
}

// play returns the metrics of the story, as a Prometheus would have read them.
func play(t *testing.T) (all *samples) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo()) // as in lab/metrics
		require.NoError(t, err)
		telemetry, err := aplombotel.New(aplombotel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &base{began: time.Now(), attempts: map[string]*atomic.Int64{}}
		for name := range servers {
			b.attempts[name] = new(atomic.Int64)
		}
		c := transport.Config{
			Base:    b,
			NewPool: func(string) http.RoundTripper { return otherPool{b} },
			Traces:  []*transport.Trace{telemetry.Trace()},
			Rule:    policy.Rule{Backoff: backoff.Constant(1500 * time.Millisecond), RetryBudget: policy.RetryBudget{Ratio: 0.1, MinPerSecond: 0.5}},
			Hosts:   rules,
		}
		alone := testkit.Must(transport.New(c))(t)
		lost := &lostFleet{member: fleettest.NewMemory().Member(), began: b.began}
		c.Fleet = &member.Backend{Join: lost.member.Join, Tell: lost.tell, Scope: lost.member.Scope, State: lost.state}
		shared := testkit.Must(transport.New(c))(t)
		for _, tr := range []*transport.Transport{alone, shared} {
			testkit.Must(telemetry.Observe(tr))(t)
		}

		var group sync.WaitGroup
		for name := range servers {
			tr, every := alone, time.Second
			switch name {
			case "slow.test":
				every = 400 * time.Millisecond
			case "fleet.test":
				tr = shared
			}
			group.Go(func() {
				for ; ctx.Err() == nil && (name != "left.test" || time.Since(b.began) < trouble+time.Minute); time.Sleep(every) {
					group.Go(func() { send(ctx, tr, name) })
					if name == "paced.test" && !b.inTrouble() {
						time.Sleep(every)
					}
				}
			})
		}
		all = newSamples(b.began)
		for time.Since(b.began) < end {
			time.Sleep(scrape)
			synctest.Wait()
			families := testkit.Must(registry.Gather())(t)
			all.add(time.Now(), families)
		}
		cancel()
		group.Wait()
	})
	return all
}

// send sends a request and reads its body. Every caller has ten seconds.
func send(ctx context.Context, tr *transport.Transport, name string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	method := http.MethodGet
	if name == "orders.test" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+name+"/", nil)
	if err != nil {
		panic(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body) // some of them are cut
	_ = resp.Body.Close()
}
