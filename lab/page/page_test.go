package page

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// idle is a host without requests.
const idle = "https://an-upstream-with-a-long-name.internal.eu-central-1.compute.example.com:8443"

// A scene is a Transport whose hosts are in all kinds of states: fine, asked to wait, down, behind
// a concurrency limit, short of a rate that a fleet shares, and without requests.
type scene struct {
	debug *debug.Page
	page  *httptest.Server
	fine  string // the URL of a host
	get   func(url string)
}

func newScene(t *testing.T) *scene {
	server := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	var n atomic.Int64
	s := &scene{debug: &debug.Page{}}
	s.fine = server(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	held := server(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	paced := server(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "100")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", "300")
	})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	rated := server(func(http.ResponseWriter, *http.Request) {})
	hung := server(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	memory := fleettest.NewMemory()
	_, err := transport.New(transport.Config{Fleet: memory.Member()})
	require.NoError(t, err)
	tr, err := transport.New(transport.Config{
		Traces: []*transport.Trace{s.debug.Trace()},
		Fleet:  memory.Member(),
		Rule:   policy.Rule{MaxAttempts: 4, ShareRetryAfter: policy.On, MaxRetryAfter: 10 * time.Minute, Backoff: backoff.Constant(5 * time.Millisecond)},
		Hosts: map[string]policy.Rule{strings.TrimPrefix(hung, "http://"): {
			Concurrency: policy.Concurrency{Enabled: policy.On, Max: 2},
			RateLimit:   policy.RateLimit{PerSecond: 50, Burst: 10},
		}, strings.TrimPrefix(paced, "http://"): {QuotaPacing: policy.On},
			strings.TrimPrefix(rated, "http://"): {RateLimit: policy.RateLimit{PerSecond: 1. / 3600, Burst: 1}}},
	})
	require.NoError(t, err)
	client := &http.Client{Transport: tr}
	s.get = func(url string) {
		if resp, err := client.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	s.page = httptest.NewServer(s.debug.Handler(tr))
	t.Cleanup(s.page.Close)

	for range 60 {
		s.get(s.fine)
	}
	s.get(held)
	down := func(h transport.HostState) bool { return h.Down }
	for ; !slices.ContainsFunc(tr.Snapshot().Hosts, down); time.Sleep(50 * time.Millisecond) {
		s.get(closed.URL)
	}
	told := transport.AttemptEnd{Host: idle, Request: httptest.NewRequest(http.MethodPost, "/", nil)}
	for i := range 30 { // too many for the rows that are shown at first
		told.Attempt = transport.Attempt{Kind: transport.AttemptFirst, Number: 1, Status: 500 + i, RetryAfter: time.Hour, Waited: time.Second, WaitedFor: transport.ReasonConcurrency, Reason: transport.ReasonThrottled, Addr: "[2001:db8:1234:5678:9abc:def0:1234:5678]:8443"}
		told.Response = &http.Response{StatusCode: told.Status}
		s.debug.Trace().AttemptEnd(t.Context(), told)
	}
	for i := range 11 { // the last is slow
		well := transport.AttemptEnd{Host: idle, Request: told.Request, Response: &http.Response{StatusCode: 200}}
		took := max(time.Duration(i/10)*9*time.Second, 10*time.Millisecond)
		well.Attempt = transport.Attempt{Kind: transport.AttemptFirst, Number: 1, Status: 200, Duration: took, Reason: transport.ReasonFinal}
		s.debug.Trace().AttemptEnd(t.Context(), well)
	}
	// A request that has ended before it is sent.
	late, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(late, http.MethodGet, idle, nil)
	require.NoError(t, err)
	_, err = tr.RoundTrip(req)
	require.ErrorIs(t, err, context.Canceled)
	var hanging sync.WaitGroup
	t.Cleanup(hanging.Wait)
	ctx := t.Context()
	hangs := func(url string) {
		hanging.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return
			}
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for range 5 {
		hangs(hung)
	}
	s.get(paced)
	for range 2 {
		hangs(paced)
	}
	for range 2 {
		hangs(rated)
	}
	for queue, waits, rates := 0, 0, 0; queue != 3 || waits != 2 || rates != 1; time.Sleep(time.Millisecond) {
		for _, h := range tr.Snapshot().Hosts {
			if h.Host == hung {
				queue = h.ConcurrencyWaiting
			}
			if h.Host == paced {
				waits = h.QuotaWaiting
			}
			if h.Host == rated {
				rates = h.RateLimitWaiting
			}
		}
	}
	return s
}

// With APLOMB_PICTURES the test writes pictures into that directory.
func TestPage(t *testing.T) {
	browser := openBrowser(t)
	s := newScene(t)
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprint(width, " ", scheme), func(t *testing.T) {
				b := open(t, browser, s.page.URL+"/any/path", width, 844, scheme)
				b.until("document.querySelectorAll('article').length === 7 && document.getElementById('live').textContent === 'live'")
				eval[chromedp.Void](b, "document.querySelectorAll('details').forEach(e => e.open = true)")
				eval[chromedp.Void](b, "document.getElementById('all').click()")
				checkLayout(t, b, width)
				checkColours(t, b, scheme)
				checkTexts(t, b)

				// The page shows new requests without being loaded again, and keeps a rule open.
				card := `[...document.querySelectorAll("article")].find(a => a.querySelector("h3").textContent === "` + s.fine + `")`
				count := `Number(` + card + `.querySelector("dd").textContent.split(" ")[0])`
				before := eval[int](b, count)
				s.get(s.fine)
				b.until(fmt.Sprintf("%s === %d", count, before+1))
				b.until(card + ".querySelector('details').open")
				if dir := os.Getenv("APLOMB_PICTURES"); dir != "" {
					b.until("document.querySelector('article path').getAttribute('d').length > 60")
					b.shoot(filepath.Join(dir, fmt.Sprintf("debug-%d-%s.png", width, scheme)))
				}
				assert.Empty(t, b.errors())
			})
		}
	}
	t.Run("the program ends", func(t *testing.T) {
		b := open(t, browser, s.page.URL, 390, 844, "dark")
		b.until("document.getElementById('live').textContent === 'live'")
		s.page.CloseClientConnections()
		s.page.Close()
		b.until("document.getElementById('live').textContent.startsWith('no connection since')")
		checkLayout(t, b, 390)
	})
}

// checkLayout checks that nothing is wider than the window, or cut off in its box.
func checkLayout(t *testing.T, b *tab, width int64) {
	t.Helper()
	window := eval[int64](b, "innerWidth")
	assert.Equal(t, width, window)
	assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), window)
	wide := eval[[]string](b, `[...document.body.querySelectorAll("*")].filter(e => {
		const box = e.getBoundingClientRect();
		return box.width > 0 && !e.closest("svg") && (box.right > innerWidth + 0.5 || box.left < -0.5 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0);
	}).map(e => e.outerHTML.slice(0, 200))`)
	assert.Empty(t, wide)
}

// checkColours checks the colour scheme, and that each text can be read on its ground.
// WCAG 2 asks for a contrast of 4.5.
func checkColours(t *testing.T, b *tab, scheme string) {
	t.Helper()
	const light = `const light = c => {
		const [r, g, b] = c.match(/[\d.]+/g).map(v => (v = v / 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return light(c); } };`
	brightness := eval[float64](b, "(() => {"+light+" return ground(document.body); })()")
	if scheme == "light" {
		assert.Greater(t, brightness, 0.8)
	} else {
		assert.Less(t, brightness, 0.05)
	}
	pale := eval[[]string](b, "(() => {"+light+` return [...document.body.querySelectorAll("*")].filter(e => {
		if (e.closest("script") || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) return false;
		const [a, b] = [light(getComputedStyle(e).color), ground(e)].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05) < 4.5;
	}).map(e => e.outerHTML.slice(0, 200)); })()`)
	assert.Empty(t, pale)
}

// checkTexts checks that the page shows the state of each host.
func checkTexts(t *testing.T, b *tab) {
	t.Helper()
	text := eval[string](b, "document.body.innerText")
	for _, want := range []string{
		"asked to wait", "3 requests wait for the concurrency limit", "2 of 2 in flight, 3 waiting", "no requests yet", "fine", ": host down (connection refused)",
		"connection refused", "at most 50 per second, for 2 members together", "at most one in 1 h 0 min, for 2 members together", "1 request waits for the rate limit", "2 requests wait for a quota", "the top is ", "attempts", "waited", "waited 1 s (concurrency)", "concurrency 30 s, mean 1 s", "time of successes", "slow, took 9 s", "1 slow", "Config.Hosts[", "RateLimit{PerSecond: 50", "Config.Rule", "Backoff: backoff.Constant(5ms)", "show fewer", "asked for 1 h", "fleet connected", "1 key until", "throttled (429) for", "2 members, last heartbeat 0 s ago",
	} {
		assert.True(t, strings.Contains(text, want), want)
	}
}
