// Package literature plays experiments about retries that others have published, with the
// clients of their authors and with aplomb. It has models of its own, which follow the ideas
// and the figures of each source. The Transport is the real one.
//
// A [Model] is a server and a load. Its function Play uses package time as usual, and the test
// of this package plays it in a bubble of testing/synctest. So nothing waits, and a minute with
// a thousand requests per second takes about a second.
//
// make storm-literature plays everything in full and writes the tables into ../README.md.
// go test -run '^TestTables$/play/NAME' -update plays the experiments with that name only.
// make test-rest plays a tenth of some of it and compares that with the tables, and make soak a tenth of all.
//
// To add a model, write a file with a function that returns a *Model, and add it to Models:
//
//   - Arms are the authors' clients. Each is a function that makes an http.RoundTripper over the
//     server, as transport.New does. The clients of aplomb come by themselves.
//   - Settings are the variants of the experiment, one column of the table each. Trigger is the
//     time of the fault if it ends, and Dead is the time in which no attempt succeeds. A setting
//     that takes long to play uses Run.Part.
//   - Rule has the timeouts of the authors, and is laid over each rule of aplomb.
//   - Play makes a server, wraps it with Run.Server, makes the clients with Run.Client, and calls
//     Run.Request for each request. It returns when Setting.Length is over. What is still under
//     way then ends by itself.
//   - Published are figures of the authors that the model has to meet. Model.publish adds some.
//   - Where one of their clients is better than ours, Why says why that is right.
//
// The files:
//
//	literature.go  models, and how they are played
//	record.go      what is counted, and the figures
//	table.go       the tables of ../README.md
//	the others     a model each
package literature

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// Models returns all experiments, in the order of the document.
func Models() []*Model {
	return []*Model{frozen(), updates(), failing(), collapse(), stragglers(), downtime(), starved(), refusals()}
}

// A Model is an experiment.
type Model struct {
	Name   string
	Source string // the repository
	About  string // a sentence or two about the server and the load

	Arms     []Arm // the authors' clients
	Settings []Setting
	Rule     policy.Rule // the authors' timeouts

	// Play plays one run. It may use package time, and starts goroutines only by Run.Go.
	Play func(r *Run)

	// Time returns the third figure of a cell, in milliseconds, and TimeName says what it is.
	// Nil: there is none.
	Time     func(c *Record) float64
	TimeName string
	Counted  bool // a cell says how many requests were lost
	Closed   bool // a client sends its next request after the last has ended

	Published []Published
	Why       []Reason
	Notes     []string // stand below the table, after the reasons
}

// An Arm is a kind of client.
type Arm struct {
	Name string
	// New makes a client.
	New func(r *Run, server http.RoundTripper) http.RoundTripper
	// Shared means that all requests go through one client.
	Shared bool
}

// A Setting is a variant of a model.
type Setting struct {
	Name    string
	Value   float64       // for Play
	Runs    int           // how often it is played for the document; 0: once
	Length  time.Duration // requests still under way a minute later are given up
	Trigger Span          // the fault, if it ends
	Dead    Span          // while no attempt succeeds
}

// A Span is a time. The zero Span is none.
type Span struct{ From, To time.Duration }

// Published is a figure of the authors. The model has to meet it within 5 %.
type Published struct {
	Setting, Arm string
	Figure       Figure
	Value        float64
}

// publish adds figures of the authors, for each client in the order of the settings.
func (m *Model) publish(f Figure, values map[string][]float64) {
	for arm, of := range values {
		for i, x := range of {
			m.Published = append(m.Published, Published{m.Settings[i].Name, arm, f, x})
		}
	}
}

// A Reason says why a client of the authors may have less load and more success than ours.
// An empty Setting or Arm means all.
type Reason struct{ Setting, Arm, Text string }

// A Run is one run of a setting with a kind of client. Its random numbers are for many goroutines.
type Run struct {
	*rand.Rand
	Setting Setting

	arm    Arm
	part   float64
	record *Record
	began  time.Time
	shared http.RoundTripper
	all    sync.WaitGroup
	ctx    context.Context
}

// play plays one run and adds its events to the record. It is called in a bubble.
func (m *Model) play(s Setting, a Arm, seed uint64, part float64, c *Record) {
	r := &Run{Rand: rand.New(&dice{source: rand.NewPCG(seed, 0)}), Setting: s, arm: a, part: part, record: c, began: time.Now()}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), s.Length+time.Minute)
	defer cancel()
	m.Play(r)
	r.all.Wait()
	c.runs++
}

// Part is n for the document and a tenth of it in a quick test. Play calls it for numbers that
// change the figures little, such as that of the clients.
func (r *Run) Part(n int) int { return int(float64(n) * r.part) }

// Go calls f in a goroutine that the run waits for.
func (r *Run) Go(f func()) { r.all.Go(f) }

// Now is the time since the beginning of the run.
func (r *Run) Now() time.Duration { return time.Since(r.began) }

// Over reports whether the setting's time is over.
func (r *Run) Over() bool { return r.Now() >= r.Setting.Length }

// Arrive calls f at the times of a Poisson process until the setting's time is over. rate is
// asked for the rate per second, after each arrival.
func (r *Run) Arrive(rate func() float64, f func()) {
	for {
		time.Sleep(Seconds(r.ExpFloat64() / rate()))
		if r.Over() {
			return
		}
		r.Go(f)
	}
}

// Client returns a client over the server: a new one, or the same as before if the arm has one
// for all.
func (r *Run) Client(server http.RoundTripper) http.RoundTripper {
	if !r.arm.Shared {
		return r.arm.New(r, server)
	}
	if r.shared == nil {
		r.shared = r.arm.New(r, server)
	}
	return r.shared
}

// Server counts the attempts that reach a server. Connections take no time.
func (r *Run) Server(f func(*http.Request) (*http.Response, error)) http.RoundTripper {
	return RoundTripper(func(req *http.Request) (*http.Response, error) {
		r.Attempt()
		connect(httptrace.ContextClientTrace(req.Context()))
		return f(req)
	})
}

// connect tells the hooks of an attempt that it has a connection. Otherwise the attempts over a
// new lane wait for the first response.
func connect(trace *httptrace.ClientTrace) {
	if trace == nil {
		return
	}
	if trace.GetConn != nil {
		trace.GetConn("server.test:80")
	}
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
}

// Attempt counts an attempt. Run.Server calls it.
func (r *Run) Attempt() {
	r.record.add(r.Now(), func(s *sample) { s.attempts++ })
}

// Request sends a GET, and reports whether it was answered with a status below 400.
func (r *Run) Request(client http.RoundTripper) bool {
	return r.Send(client, r.NewRequest(http.MethodGet))
}

// NewRequest returns a request without a body.
func (r *Run) NewRequest(method string) *http.Request {
	req, err := http.NewRequestWithContext(r.ctx, method, "http://server.test/", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// Send sends a request, and reports whether it was answered with a status below 400.
func (r *Run) Send(client http.RoundTripper, req *http.Request) bool {
	began := r.Now()
	r.record.add(began, func(s *sample) { s.begun++ })
	resp, err := client.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	r.record.ended(began, r.Now(), good(resp, err))
	return good(resp, err)
}

// dice are a source of random numbers for many goroutines.
type dice struct {
	mu     sync.Mutex
	source rand.Source
}

func (d *dice) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Uint64()
}

// Seconds is a time of so many seconds.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// The names of the client that has no settings, and of the client that has the concurrency limit.
const (
	byDefault = "aplomb, default"
	limitOn   = "aplomb, one Transport, limit on"
)

// ours returns the clients of aplomb with the model's timeouts.
func (m *Model) ours() []Arm {
	arm := func(name string, shared bool, rule policy.Rule) Arm {
		rule = m.Rule.Or(rule)
		return Arm{Name: name, Shared: shared, New: func(_ *Run, server http.RoundTripper) http.RoundTripper {
			return transport.MustNew(transport.Config{
				Base:    server,
				Rule:    rule,
				NewPool: func(string) http.RoundTripper { return server },
			})
		}}
	}
	return []Arm{
		arm(byDefault, false, policy.Rule{}),
		arm("aplomb, API", false, profile.API()),
		arm("aplomb, Service", false, profile.Service()),
		arm(limitOn, true, policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}}),
	}
}

// arms returns all clients, the authors' first.
func (m *Model) arms() []Arm { return append(m.Arms[:len(m.Arms):len(m.Arms)], m.ours()...) }

// RoundTripper is a function that is an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A judge says after the nth attempt of a request whether there is another, and after which wait.
type judge func(n int, resp *http.Response, err error) (wait time.Duration, again bool)

// tries is a client whose attempts end after the timeout. begin makes what it knows.
func tries(timeout time.Duration, begin func(r *Run) judge) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(r *Run, server http.RoundTripper) http.RoundTripper {
		judge := begin(r)
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
			for n := 1; ; n++ {
				resp, err := within(timeout, server, req)
				wait, again := judge(n, resp, err)
				if !again {
					return resp, err
				}
				if err := virtual.Pause(req.Context(), wait); err != nil {
					return nil, err
				}
			}
		})
	}
}

// within sends an attempt with a timeout.
func within(timeout time.Duration, server http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), timeout)
	defer cancel()
	return server.RoundTrip(req.WithContext(ctx))
}

// never is a timeout for an attempt without one.
const never = time.Hour

// good reports whether an attempt was answered with a status below 400.
func good(resp *http.Response, err error) bool { return err == nil && resp.StatusCode < 400 }

// Plain is a client without retries.
func Plain(_ *Run, server http.RoundTripper) http.RoundTripper { return server }

// Reply is a response with this status after the given time, or the error of the request's
// context if that ends before.
func Reply(req *http.Request, after time.Duration, status int) (*http.Response, error) {
	if err := virtual.Pause(req.Context(), after); err != nil {
		return nil, err
	}
	return Response(req, status), nil
}

// Response is an empty response.
func Response(req *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}
}
