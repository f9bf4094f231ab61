// Many workers, while the network and the server keep changing their faults.

package e2e

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	workers  = 64
	largest  = 1 << 20 // of a body, in bytes
	sumField = "X-Sum" // the hash of a body
)

// A ledger is a server that remembers its effects.
type ledger struct {
	content []byte // of every GET

	mu     sync.Mutex
	stored map[string]string // the hash of the last PUT, by its path
	acted  map[string]int    // how often a POST had its effect
	torn   []string          // requests that arrived with a wrong body
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch roll := rand.IntN(100); {
	case roll < 2: // refused, before the body is read
		busyUntil(2)(1, w, req)
		return
	case roll < 3 && req.Method != http.MethodPost:
		http.Error(w, "", http.StatusBadGateway)
		return
	}
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(l.content))
		return
	}
	l.act(req, hex.EncodeToString(sum(whole(req))))
	if rand.IntN(100) < 2 { // it has acted, and nobody can know
		http.Error(w, "", http.StatusInternalServerError)
	}
}

func (l *ledger) act(req *http.Request, hash string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hash != req.Header.Get(sumField) {
		l.torn = append(l.torn, req.Method+" "+req.URL.Path)
	}
	if req.Method == http.MethodPost {
		l.acted[req.URL.Path]++
	} else {
		l.stored[req.URL.Path] = hash
	}
}

// weather changes the faults of the network until ctx ends. It returns how often.
func weather(ctx context.Context, t testing.TB, n *network) (changes int) {
	kinds := []func() []toxic{
		func() []toxic { return []toxic{newToxic("latency", down, "latency", 50)} },
		func() []toxic { return []toxic{newToxic("bandwidth", down, "rate", 256)} },
		func() []toxic { return []toxic{newToxic("bandwidth", up, "rate", 256)} },
		func() []toxic { return []toxic{newToxic("timeout", down, "timeout", 0)} },
		func() []toxic { return []toxic{newToxic("reset_peer", down, "timeout", 20)} },
		func() []toxic { return resetAfter(down, 1+rand.IntN(largest)) },
		func() []toxic { return resetAfter(up, 1+rand.IntN(largest)) },
		func() []toxic { return cutAfter(down, 1+rand.IntN(largest)) },
		func() []toxic { return cutAfter(up, 1+rand.IntN(largest)) },
		func() []toxic { return append(cutAfter(down, 100_000), newToxic("slow_close", down, "delay", 100)) },
		nil, // nobody listens
	}
	pause := func() { // between 100 and 500 ms
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond):
		}
	}
	for ; ctx.Err() == nil; changes++ {
		if kind := kinds[changes%len(kinds)]; kind == nil {
			n.close()
		} else {
			assert.NoError(t, n.set(kind()...))
		}
		pause()
		assert.NoError(t, n.set())
		pause()
	}
	return changes
}

// A soaker is a Transport that is used by half of the workers. The Transport over
// HTTP/2 also has a concurrency limit and a rate.
type soaker struct {
	client   *http.Client
	base     *http.Transport
	attempts atomic.Int64 // of the base transport
	open     atomic.Int64 // connections
	retries  atomic.Int64
	resumes  atomic.Int64
	earned   atomic.Int64 // retries that the budget does not count, or that others have paid for
}

// RoundTrip counts the attempts.
func (s *soaker) RoundTrip(req *http.Request) (*http.Response, error) {
	s.attempts.Add(1)
	return s.base.RoundTrip(req)
}

// A counted connection knows when it is closed.
type counted struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func newSoaker(t testing.TB, n *network, h2c bool) *soaker {
	s := &soaker{base: base(t, n, h2c)}
	s.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := n.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.open.Add(1)
		return &counted{Conn: conn, open: &s.open}, nil
	}
	s.base.MaxIdleConnsPerHost = workers
	rule := policy.Rule{
		Backoff:        backoff.Exponential{Base: 10 * time.Millisecond},
		AttemptTimeout: time.Second,
		StallTimeout:   time.Second,
		Classify:       classify.Refusals,
		Hedge:          policy.Hedge{Percentile: 95},
		ReplayBuffer:   2 * largest,
	}
	if h2c {
		rule.Concurrency = policy.Concurrency{Enabled: policy.On, Max: workers}
		rule.RateLimit = policy.RateLimit{PerSecond: 2000}
	}
	tr := transport.MustNew(transport.Config{
		Base: s,
		Rule: rule,
		Traces: []*transport.Trace{&transport.Trace{AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			switch {
			case e.Kind == transport.AttemptRetry && e.WaitedFor == transport.ReasonRetryBudget:
				s.earned.Add(1)
			case e.Kind == transport.AttemptRetry && e.Status != 0 && e.Status < 400:
				s.earned.Add(3)
			}
			switch {
			case e.Kind == transport.AttemptResume:
				s.resumes.Add(1)
			case e.Reason == transport.ReasonRetry:
				s.retries.Add(1)
			}
		}}},
	})
	s.client = &http.Client{Transport: tr, Timeout: 10 * time.Second}
	return s
}

// A worker sends a request at a time and keeps the promises that it got.
type worker struct {
	*soaker
	name     string
	url      string
	content  []byte
	file     string // has the content as well
	rand     *rand.Rand
	requests int
	promised map[string]string // the hash of each PUT that succeeded
	accepted map[string]bool   // each POST that succeeded
	done     map[string]int    // successes by method
	wrong    []string
}

// body returns the last n bytes of the content in a form that people use: with
// GetBody, as a stream, or as a file. It also returns the hash.
func (w *worker) body(n int) (io.Reader, string) {
	from := len(w.content) - n
	b := w.content[from:]
	hash := hex.EncodeToString(sum(b))
	switch w.rand.IntN(3) {
	case 0:
		return bytes.NewReader(b), hash
	case 1:
		return io.MultiReader(bytes.NewReader(b)), hash
	}
	f, err := os.Open(w.file)
	if err == nil {
		_, err = f.Seek(int64(from), io.SeekStart)
	}
	if err != nil {
		panic(err)
	}
	return f, hash
}

// step makes a request. Its failure is no mistake, but a false promise is.
func (w *worker) step(ctx context.Context, i int) {
	method := []string{http.MethodGet, http.MethodGet, http.MethodPut, http.MethodPut, http.MethodPost, http.MethodHead, http.MethodDelete}[w.rand.IntN(7)]
	path := fmt.Sprintf("/%s/%d", w.name, i)
	size := w.rand.IntN(1 << w.rand.IntN(21)) // small bodies are more frequent
	var body io.Reader
	hash := hex.EncodeToString(sum(nil))
	if method == http.MethodPut || method == http.MethodPost {
		body, hash = w.body(size)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set(sumField, hash)
	want := w.content
	if method == http.MethodGet && size > 0 {
		want = want[:size]
		req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", size-1))
	}
	w.requests++
	resp, err := w.client.Do(req)
	if err != nil {
		return
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices || err != nil {
		return
	}
	w.done[method]++
	switch method {
	case http.MethodGet:
		if !bytes.Equal(got, want) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s: %d bytes instead of %d", path, len(got), len(want)))
		}
	case http.MethodPut:
		w.promised[path] = hash
	case http.MethodPost:
		w.accepted[path] = true
	}
}

// TestSoak runs for the time of APLOMB_SOAK_TIME.
func TestSoak(t *testing.T) {
	length := 15 * time.Second
	if text := os.Getenv("APLOMB_SOAK_TIME"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	l := &ledger{content: content(largest), stored: map[string]string{}, acted: map[string]int{}}
	s := newServer(t, func(string) http.Handler { return l })
	n := newNetwork(t, s.url)
	soakers := []*soaker{newSoaker(t, n, false), newSoaker(t, n, true)}
	file := filepath.Join(t.TempDir(), "content")
	require.NoError(t, os.WriteFile(file, l.content, 0o600))

	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	start := time.Now()
	var all [workers]*worker
	var group sync.WaitGroup
	for i := range all {
		w := &worker{soaker: soakers[i%2], name: fmt.Sprint(i), url: s.url, content: l.content, file: file,
			rand: rand.New(rand.NewPCG(uint64(i), 0)), promised: map[string]string{}, accepted: map[string]bool{}, done: map[string]int{}}
		all[i] = w
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w.step(context.WithoutCancel(ctx), i) // runs to its end
				time.Sleep(time.Millisecond)
			}
		})
	}
	changes := weather(ctx, t, n)
	group.Wait()
	took := time.Since(start)

	done := map[string]int{}
	var requests int64
	for _, w := range all {
		requests += int64(w.requests)
		l.check(t, w)
		for method, n := range w.done {
			done[method] += n
		}
	}
	l.checkAll(t)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodHead, http.MethodDelete} {
		assert.NotZero(t, done[method], method)
	}
	t.Logf("%d requests, %d changes of the faults, successes: %v", requests, changes, done)
	for i, s := range soakers {
		var own int64
		for _, w := range all {
			if w.soaker == s {
				own += int64(w.requests)
			}
		}
		s.check(t, own, took)
		t.Logf("protocol %d: %d requests, %d attempts, %d retries, %d resumed", i+1, own, s.attempts.Load(), s.retries.Load(), s.resumes.Load())
	}
}

// check compares a worker's promises with the effects.
func (l *ledger) check(t testing.TB, w *worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, w.wrong)
	for path, hash := range w.promised {
		assert.Equal(t, hash, l.stored[path], "PUT %s", path)
	}
	for path := range w.accepted {
		assert.Equal(t, 1, l.acted[path], "POST %s", path)
	}
}

// checkAll looks for effects that nobody asked for.
func (l *ledger) checkAll(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.torn)
	for path, n := range l.acted {
		testkit.Count(t, 1, n, "POST acted on", path)
	}
}

// check compares the attempts with the budget and looks for leaks. A reconnect
// counts as a request. Retries that waited in line may be probes of a host that was down, or come back after that.
func (s *soaker) check(t testing.TB, requests int64, took time.Duration) {
	assert.NotZero(t, s.retries.Load())
	assert.NotZero(t, s.resumes.Load())
	budget := policy.Defaults().RetryBudget
	asked := float64(requests + s.resumes.Load())
	assert.LessOrEqual(t, float64(s.attempts.Load()), asked*(1+budget.Ratio)+budget.MinPerSecond*(took.Seconds()+10)+float64(s.earned.Load()))

	s.base.CloseIdleConnections()
	assert.Eventually(t, func() bool { return s.open.Load() == 0 }, time.Minute, 10*time.Millisecond, "open connections")
	for _, h := range s.client.Transport.(*transport.Transport).Snapshot().Hosts {
		assert.Zero(t, h.InFlight, "requests in flight")
		assert.Zero(t, h.ConcurrencyInUse, "slots in use")
	}
}
