package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A web page can make its own name lead to this machine.
func TestDebugIsOnlyForItsNames(t *testing.T) {
	to := upstream(t, hello)
	p := start(t, "-to", to.URL, "-debug", "localhost:0", "-debug-host", "Metrics.internal", "-debug-host", "proxy.svc")
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "127.0.0.1": 200, "[::1]:8081": 200, "::1": 200, "192.0.2.1": 200,
		"localhost": 200, "LOCALHOST:8081": 200, "localhost.:1": 200, "metrics.internal:8081": 200, "proxy.svc": 200,
		"evil.example": 403, "evil.example:8081": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "xproxy.svc": 403, "": 403,
	} {
		for _, path := range []string{"/", "/debug", "/debug/state", "/metrics"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.debug+path, nil)
			require.NoError(t, err)
			if req.Host = host; host == "" {
				continue // http.Client would send the host of the URL
			}
			resp, err := client(t).Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			want := want
			if want == 200 && path == "/" {
				want = http.StatusFound
			}
			assert.Equal(t, want, resp.StatusCode, "%s %s", host, path)
		}
	}
	assert.False(t, isOurs("", []string{""}))
}

// busy starts a proxy whose hosts are in all kinds of states: fine, asked to wait, down,
// behind a gate, and without requests.
func busy(t *testing.T) *running {
	var n atomic.Int64
	fine := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		hello(w, r)
	})
	held := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	down := upstream(t, hello)
	down.Close()
	hung := upstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	path := rulesFile(t, fmt.Sprintf(`{"rule": {"attempts": 4, "retry_after": {"max": "10m"}, "backoff": {"type": "constant", "delay": "5ms"}},
		"hosts": {%q: {"gate": {"mode": "wait", "start": 2, "max": 2}, "rate": {"per_second": 50, "burst": 10}}}}`, strings.TrimPrefix(hung.URL, "http://")))
	p := start(t, "-to", fine.URL, "-to", "/held/="+held.URL, "-to", "/down/="+down.URL, "-to", "/hung/="+hung.URL,
		"-to", "/a-service-with-a-name-that-is-much-longer-than-a-telephone-is-wide-and-has-no-space/=https://an-upstream-with-a-long-name.internal.eu-central-1.compute.example.com:8443",
		"-rules", path, "-grace", "0s", "-poll", "0")
	p.expected = exitFailed // requests hang
	p.rules = path
	for i := range 60 {
		get(t, fmt.Sprintf("%s/%s?key=%s&n=%d", p.url, secret, secret, i))
	}
	for range 3 {
		get(t, p.url+"/held/"+secret)
		get(t, p.url+"/down/"+secret)
	}
	for range 5 {
		go func() {
			if resp, err := http.Get(p.url + "/hung/" + secret); err == nil {
				resp.Body.Close()
			}
		}()
	}
	waitFor(t, p, func(v view) bool {
		for _, h := range v.Hosts {
			if h.Host == hung.URL && h.GateQueue == 3 {
				return true
			}
		}
		return false
	})
	return p
}

// waitFor returns when the state is as wanted.
func waitFor(t *testing.T, p *running, wanted func(view) bool) {
	t.Helper()
	for {
		_, text := get(t, p.debug+"/debug/state")
		var v view
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		if wanted(v) {
			return
		}
	}
}

func TestPage(t *testing.T) {
	b := openBrowser(t)
	p := busy(t)
	for _, width := range []int{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprint(width, " ", scheme), func(t *testing.T) {
				b.t = t
				b.open(p.debug+"/debug", width, 844, scheme)
				b.until("document.querySelectorAll('article').length === 5 && document.getElementById('live').textContent === 'live'")
				checkLayout(t, b, width)
				checkColours(t, b, scheme)
				checkTexts(t, b)

				// The page shows new requests without being loaded again.
				const count = `Number([...document.querySelectorAll("article")].find(a => a.querySelector(".routes").textContent === "gets /").querySelector("dd").textContent.split(" ")[0])`
				var before int
				b.eval(count, &before)
				get(t, p.url+"/")
				b.until(fmt.Sprintf("%s === %d", count, before+1))
				if dir := os.Getenv("APLOMB_PICTURES"); dir != "" {
					b.until("document.querySelector('article path').getAttribute('d').length > 60")
					b.shoot(filepath.Join(dir, fmt.Sprintf("proxy-%d-%s.png", width, scheme)))
				}
				assert.Empty(t, b.console)
			})
		}
	}
	b.t = t
	t.Run("the rules go wrong, and the proxy ends", func(t *testing.T) {
		b.t = t
		require.NoError(t, os.WriteFile(p.rules, []byte(`{"rule": {"attempts": "`+strings.Repeat("many", 50)+`"}}`), 0o600))
		p.hangup <- os.Interrupt // which signal it is makes no difference
		b.until("document.getElementById('rules').textContent.includes('stay in force')")
		checkLayout(t, b, 390)
		if dir := os.Getenv("APLOMB_PICTURES"); dir != "" {
			b.shoot(filepath.Join(dir, "proxy-390-rules.png"))
		}
		p.stop()
		b.until("document.getElementById('live').textContent.startsWith('no connection since')")
		checkLayout(t, b, 390)
	})
	b.t = t
}

// checkLayout checks that nothing is wider than the window, or cut off in its box.
func checkLayout(t *testing.T, b *browser, width int) {
	t.Helper()
	var size struct{ Page, Window float64 }
	b.eval("({page: document.documentElement.scrollWidth, window: innerWidth})", &size)
	assert.EqualValues(t, width, size.Window)
	assert.LessOrEqual(t, size.Page, size.Window)
	var wide []string
	b.eval(`[...document.body.querySelectorAll("*")].filter(e => {
		const box = e.getBoundingClientRect();
		return box.width > 0 && !e.closest("svg") && (box.right > innerWidth + 0.5 || box.left < -0.5 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0);
	}).map(e => e.outerHTML.slice(0, 200))`, &wide)
	assert.Empty(t, wide)
}

// checkColours checks the colour scheme, and that each text can be read on its ground.
// WCAG 2 asks for a contrast of 4.5.
func checkColours(t *testing.T, b *browser, scheme string) {
	t.Helper()
	const light = `const light = c => {
		const [r, g, b] = c.match(/[\d.]+/g).map(v => (v = v / 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return light(c); } };`
	var brightness float64
	b.eval("(() => {"+light+" return ground(document.body); })()", &brightness)
	if scheme == "light" {
		assert.Greater(t, brightness, 0.8)
	} else {
		assert.Less(t, brightness, 0.05)
	}
	var pale []string
	b.eval("(() => {"+light+` return [...document.body.querySelectorAll("*")].filter(e => {
		if (e.closest("script") || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) return false;
		const [a, b] = [light(getComputedStyle(e).color), ground(e)].sort((x, y) => y - x);
		return (a + 0.05) / (b + 0.05) < 4.5;
	}).map(e => e.outerHTML.slice(0, 200)); })()`, &pale)
	assert.Empty(t, pale)
}

// checkTexts checks that the page shows the state of each host, and no secret.
func checkTexts(t *testing.T, b *browser) {
	t.Helper()
	var text string
	b.eval("document.body.innerText", &text)
	for _, want := range []string{
		"rules in force", "rules.json since", "asked to wait", "3 in the queue", "2 of 2 slots", "no requests yet", "fine", "failures in a row",
		"connection refused", "at most 50 per second", "attempts",
	} {
		assert.Contains(t, text, want)
	}
	assertLacksSecret(t, text)
}

// The pages and the metrics name no path, no query and no header of a request.
func TestNoSecrets(t *testing.T) {
	p := busy(t)
	for _, path := range []string{"/debug", "/debug/state", "/metrics", "/"} {
		resp, body := get(t, p.debug+path)
		assertLacksSecret(t, body)
		assert.Less(t, resp.StatusCode, 400)
	}
}

// The form is that of Prometheus: each sample belongs to a family that was announced,
// and no sample is there twice.
func TestMetrics(t *testing.T) {
	p := busy(t)
	resp, text := get(t, p.debug+"/metrics")
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", resp.Header.Get("Content-Type"))
	form := regexp.MustCompile(`^([a-z_]+)(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? (-?[0-9.]+)$`)
	families, seen := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(kind, " ")
			families[name] = kind
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		m := form.FindStringSubmatch(line)
		require.NotNil(t, m, line)
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); families[base] == "histogram" {
				name = base
			}
		}
		assert.Contains(t, families, name)
		assert.Equal(t, strings.HasSuffix(name, "_total"), families[name] == "counter", name)
		assert.False(t, seen[m[1]+m[2]], line)
		seen[m[1]+m[2]] = true
	}
	// Every third attempt fails at the first upstream, and so does its retry if it is
	// the third again.
	assert.Regexp(t, `aplomb_attempts_total\{host="[^"]+",kind="first"\} 60\n`, text)
	assert.Regexp(t, `aplomb_attempts_total\{host="[^"]+",kind="retry"\} 29\n`, text)
	assert.Regexp(t, `aplomb_outcomes_total\{host="[^"]+",outcome="503"\} 29\n`, text)
	assert.Regexp(t, `aplomb_outcomes_total\{host="[^"]+",outcome="connection_refused"\} 12\n`, text)
	assert.Contains(t, text, `aplomb_gate_queue{host="http://127.0.0.1:`)
	assert.Regexp(t, `proxy_responses_total\{code="200"\} 60\n`, text)
	assert.Regexp(t, `proxy_request_duration_seconds_count 66\n`, text)
}

func TestEscapedLabels(t *testing.T) {
	var m metrics
	m.sample("a", 1.5, "b", "\"\\\n")
	assert.Equal(t, `a{b="\"\\\n"} 1.5`+"\n", m.String())
}
