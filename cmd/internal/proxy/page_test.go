package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/transport"
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
		for _, path := range []string{"/", "/debug", "/debug?format=json", "/metrics"} {
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
	for {
		for _, h := range stateOf(t, p).Hosts {
			if h.Host == hung.URL && h.GateQueue == 3 {
				return p
			}
		}
	}
}

// A shown is a part of what the page shows.
type shown struct {
	Title string
	Notes []debug.Note
	Hosts []struct {
		transport.HostState
		Label string
	}
}

func stateOf(t *testing.T, p *running) (s shown) {
	t.Helper()
	_, text := get(t, p.debug+"/debug?format=json")
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s
}

// The page of package debug shows the rules of the proxy, and which requests an upstream
// gets.
func TestPage(t *testing.T) {
	p := busy(t)
	resp, page := get(t, p.debug+"/debug")
	assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	assert.Contains(t, page, "<!doctype html>")
	s := stateOf(t, p)
	assert.Equal(t, "aplomb proxy", s.Title)
	require.Len(t, s.Notes, 1)
	assert.Equal(t, debug.Good, s.Notes[0].Level)
	assert.Contains(t, s.Notes[0].Text, "rules.json since ")
	labels := map[string]int{}
	for _, h := range s.Hosts {
		labels[h.Label]++
	}
	assert.Len(t, labels, 5)
	for _, want := range []string{"gets /", "gets /held/", "gets /down/", "gets /hung/"} {
		assert.Equal(t, 1, labels[want], want)
	}

	require.NoError(t, os.WriteFile(p.rules, []byte(`{"rule": {"attempts": "many"}}`), 0o600))
	p.hangup <- os.Interrupt // which signal it is makes no difference
	p.log.wait("the old rules stay in force", 1)
	s = stateOf(t, p)
	require.Len(t, s.Notes, 1)
	assert.Equal(t, debug.Bad, s.Notes[0].Level)
	assert.Contains(t, s.Notes[0].Text, "stay in force")
}

func TestNotes(t *testing.T) {
	assert.Equal(t, debug.Plain, rulesState{}.note().Level)
	assert.NotContains(t, rulesState{File: "a", Taken: 1}.note().Text, "Changed")
	assert.Contains(t, rulesState{File: "a", Taken: 2}.note().Text, "Changed 1 time.")
	assert.Contains(t, rulesState{File: "a", Taken: 3}.note().Text, "Changed 2 times.")
}

// The pages and the metrics name no path, no query and no header of a request.
func TestNoSecrets(t *testing.T) {
	p := busy(t)
	for _, path := range []string{"/debug", "/debug?format=json", "/metrics", "/"} {
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
