package paired

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/lab/internal/virtual"
	"github.com/aplomb-go/aplomb/policy"
)

// spoilt is net/http with something around it, judged as if it were aplomb.
func spoilt(name string, spoil func(*http.Transport) http.RoundTripper) kind {
	k := aplomb(name, policy.Rule{})
	k.spoil = spoil
	return k
}

// itself is net/http in the place of aplomb.
var itself = spoilt("itself", func(t *http.Transport) http.RoundTripper { return t })

// TestItself checks that net/http is not worse than net/http.
func TestItself(t *testing.T) {
	for seed := range uint64(virtual.Number("ITSELF", 60)) {
		p := newPlan(seed)
		for _, v := range tell(t, p, []kind{itself}).violations() {
			t.Errorf("seed %d: %v", seed, v)
		}
	}
}

// TestHonest checks that a client that retries with measure is not worse than net/http, whatever
// else its arrivals change.
func TestHonest(t *testing.T) {
	for seed := range uint64(virtual.Number("ITSELF", 60)) {
		p := newPlan(seed)
		for _, v := range tell(t, p, []kind{spoilt("honest", honest)}).violations() {
			t.Errorf("seed %d, %s: %v", seed, p.theme, v)
		}
	}
}

// honest retries what has no body, obeys the wait that a request was told, keeps to the budget as it is
// documented, and gives each retry two minutes.
func honest(base *http.Transport) http.RoundTripper {
	var mu sync.Mutex
	left, at := 30.0, time.Now()
	earn := func(n float64) bool { // a negative n spends
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		left, at = min(30, left+3*now.Sub(at).Seconds()), now
		if left+n < 0 {
			return false
		}
		left = min(30, left+n)
		return true
	}
	return trip(func(r *http.Request) (*http.Response, error) {
		earn(0.2)
		resp, err := base.RoundTrip(r)
		for i := range 5 {
			if r.Body != nil || r.Method == http.MethodPost || !failed(resp, err) || r.Context().Err() != nil {
				break
			}
			wait, told := time.Second<<i+time.Duration(rand.Int64N(int64(time.Second))), 0
			if resp != nil {
				told, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
				if wait = max(wait, time.Duration(told)*time.Second+time.Duration(rand.Int64N(int64(time.Second)))); told > 60 {
					break
				}
				body, _ := io.ReadAll(resp.Body)
				closeBody(resp)
				resp.Body = io.NopCloser(bytes.NewReader(body))
			}
			if deadline, ok := r.Context().Deadline(); ok && time.Until(deadline) < wait || told == 0 && !earn(-1) || virtual.Pause(r.Context(), wait) != nil || told > 0 && !earn(-1) {
				break
			}
			ctx, cancel := context.WithCancel(r.Context())
			timer := time.AfterFunc(2*time.Minute, cancel)
			resp, err = base.RoundTrip(r.WithContext(ctx))
			timer.Stop()
			context.AfterFunc(r.Context(), cancel)
		}
		return resp, err
	})
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSabotage checks that the judge sees clients that are worse than net/http, by the clause that
// each of them breaks.
func TestSabotage(t *testing.T) {
	for _, s := range []struct {
		name   string
		theme  string
		clause int
		spoil  func(*http.Transport) http.RoundTripper
	}{
		{"a hold of the whole host", "refused", asGood, holdsHost},
		{"leaving a pool for one deadline", "bursts", asGood, leavesPool},
		{"an unbounded retry that hangs", "faults", soon, hangsAgain},
		{"an unbounded number of retries", "faults", asked, retriesOn},
		{"a splice", "documents", oneAnswer, splices},
		{"a broken source that counts", "uploads", asGood, countsSources},
		{"a hedge that nobody asked for", "beside", asked, hedges},
		{"a hedge of a POST", "faults", actsOnce, hedges},
		{"idle connections that a NAT has forgotten", "forgetful", asGood, keepsMany},
		{"idle connections that the server closes", "keepalive", asGood, keepsMany},
		{"idle connections that hold all workers", "prefork", asGood, keepsMany},
		{"idle connections of one host instead of all others", "quiet", connects, keepsMany},
		{"leaving a pool of all hosts", "strangers", connects, leavesAll},
		{"more addresses than needed", "distant", connects, dialsTwice},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed < 1000; seed++ {
				p := newPlan(seed)
				if p.theme != s.theme {
					continue
				}
				for _, v := range tell(t, p, []kind{spoilt(s.name, s.spoil)}).violations() {
					if v.clause == s.clause {
						t.Logf("seed %d: clause %d, %s: %s", seed, v.clause, v.what, v.text)
						return
					}
				}
			}
			assert.Fail(t, "not seen")
		})
	}
}

// holdsHost lets all requests wait that come while one was told to.
func holdsHost(base *http.Transport) http.RoundTripper {
	var mu sync.Mutex
	var until time.Time
	return trip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		wait := time.Until(until)
		mu.Unlock()
		if err := virtual.Pause(r.Context(), wait); err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(r)
		if err == nil {
			if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
				mu.Lock()
				until = time.Now().Add(time.Duration(min(s, 60)) * time.Second)
				mu.Unlock()
			}
		}
		return resp, err
	})
}

// leavesPool takes new connections when a deadline has passed.
func leavesPool(base *http.Transport) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if errors.Is(err, context.DeadlineExceeded) {
			base.CloseIdleConnections()
		}
		return resp, err
	})
}

func failed(resp *http.Response, err error) bool {
	return err != nil || retried(resp.StatusCode, false)
}

func closeBody(resp *http.Response) {
	if resp != nil {
		_ = resp.Body.Close()
	}
}

// hangsAgain retries once, for as long as it takes.
func hangsAgain(base *http.Transport) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if r.Body == nil && failed(resp, err) && r.Context().Err() == nil {
			closeBody(resp)
			return base.RoundTrip(r)
		}
		return resp, err
	})
}

// retriesOn retries a hundred times.
func retriesOn(base *http.Transport) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		for i := 0; i < 100 && r.Body == nil && failed(resp, err) && r.Context().Err() == nil; i++ {
			closeBody(resp)
			time.Sleep(10 * time.Millisecond)
			resp, err = base.RoundTrip(r)
		}
		return resp, err
	})
}

// A spliced body goes on where another was cut, without a look at what it is.
type spliced struct {
	io.ReadCloser
	again func() (*http.Response, error)
	n     int64
}

func (s *spliced) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.n += int64(n)
	if err == nil || err == io.EOF || s.again == nil {
		return n, err
	}
	resp, again := s.again()
	if s.again = nil; again != nil {
		return n, err
	}
	_ = s.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, s.n)
	s.ReadCloser = resp.Body
	return n, nil
}

func splices(base *http.Transport) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil && r.Method == http.MethodGet {
			resp.Body = &spliced{ReadCloser: resp.Body, again: func() (*http.Response, error) { return base.RoundTrip(r) }}
		}
		return resp, err
	})
}

// countsSources sends nothing for a while after three broken sources.
func countsSources(base *http.Transport) http.RoundTripper {
	var mu sync.Mutex
	var until time.Time
	count := 0
	return trip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		down := time.Now().Before(until)
		mu.Unlock()
		if down {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, errors.New("the host is down")
		}
		resp, err := base.RoundTrip(r)
		mu.Lock()
		defer mu.Unlock()
		if !errors.Is(err, errSource) {
			count = 0
		} else if count++; count == 3 {
			until, count = time.Now().Add(10*time.Second), 0
		}
		return resp, err
	})
}

// hedges sends a second request beside one that takes long.
func hedges(base *http.Transport) http.RoundTripper {
	type result struct {
		resp *http.Response
		err  error
	}
	return trip(func(r *http.Request) (*http.Response, error) {
		if r.Body != nil && r.GetBody == nil {
			return base.RoundTrip(r)
		}
		results := make(chan result, 2)
		send := func() {
			again := r.Clone(r.Context())
			if r.GetBody != nil {
				again.Body, _ = r.GetBody()
			}
			resp, err := base.RoundTrip(again)
			results <- result{resp, err}
		}
		go send()
		late := time.NewTimer(200 * time.Millisecond)
		defer late.Stop()
		select {
		case first := <-results:
			return first.resp, first.err
		case <-late.C:
		}
		go send()
		first := <-results
		go func() { closeBody((<-results).resp) }()
		return first.resp, first.err
	})
}

// keepsMany keeps a hundred idle connections for a host.
func keepsMany(base *http.Transport) http.RoundTripper {
	base.MaxIdleConnsPerHost = 100
	return base
}

// leavesAll closes the idle connections of all hosts when two requests to a host have failed, and asks again.
func leavesAll(base *http.Transport) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		for i := 0; i < 2 && err != nil && r.Body == nil && r.Context().Err() == nil; i++ {
			base.CloseIdleConnections()
			resp, err = base.RoundTrip(r)
		}
		return resp, err
	})
}

// dialsTwice makes a second connection if the first takes longer than 150 ms.
func dialsTwice(base *http.Transport) http.RoundTripper {
	dial := base.DialContext
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		late := time.AfterFunc(150*time.Millisecond, func() {
			if c, err := dial(ctx, network, addr); err == nil {
				_ = c.Close()
			}
		})
		defer late.Stop()
		return dial(ctx, network, addr)
	}
	return base
}
