// The page that shows the state of each host.

package proxy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

//go:embed page.html
var page []byte

// A view is everything that the debug page and the metrics show.
type view struct {
	Now     time.Time  `json:"now"`
	Started time.Time  `json:"started"`
	Active  int64      `json:"active"`
	Rules   rulesState `json:"rules"`
	counted
	Hosts []hostView `json:"hosts"`
}

// A hostView is the state of a host and its counts.
type hostView struct {
	transport.HostState
	counts
	Routes []string `json:"routes"` // the prefixes that lead to the host
}

// A debug serves the debug page and the metrics.
type debug struct {
	proxy *proxy
	rules *rules
}

// newDebug returns the handler of the pages. names are the hosts for which they are served.
func newDebug(p *proxy, r *rules, names []string) http.Handler {
	d := debug{p, r}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/debug", http.StatusFound))
	mux.HandleFunc("GET /debug", d.page)
	mux.HandleFunc("GET /debug/state", d.state)
	mux.HandleFunc("GET /metrics", d.metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOurs(r.Host, names) {
			http.Error(w, "proxy: this is not a name of the debug address; -debug-host adds one", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isOurs reports whether the Host of a request is a name of the debug address. A web page
// can make its own name lead to this machine, and then read the pages in the browser of a
// person who may see them. It cannot do so with an IP address.
func isOurs(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") ||
		host != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}

// page serves the page, which fetches the state by itself.
func (d debug) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(page) // the reader has gone
}

func (d debug) state(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(d.view()) // the reader has gone
}

func (d debug) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprint(w, metricsOf(d.view()))
}

// view returns the state of everything now.
func (d debug) view() view {
	v := view{
		Now:     time.Now(),
		Started: d.proxy.stats.started,
		Active:  d.proxy.active.Load(),
		Rules:   d.rules.now(),
		counted: d.proxy.stats.now(),
	}
	for _, state := range d.proxy.transport.Snapshot() {
		v.host(state.Host).HostState = state
	}
	for host, c := range v.counted.Hosts {
		v.host(host).counts = c
	}
	for _, r := range d.proxy.routes {
		h := v.host(r.to.Scheme + "://" + r.to.Host)
		h.Routes = append(h.Routes, r.prefix)
	}
	slices.SortFunc(v.Hosts, func(a, b hostView) int { return strings.Compare(a.Host, b.Host) })
	return v
}

// host returns the place of a host in the view. An upstream has a place even
// before its first request.
func (v *view) host(name string) *hostView {
	i := slices.IndexFunc(v.Hosts, func(h hostView) bool { return strings.EqualFold(h.Host, name) })
	if i < 0 {
		i = len(v.Hosts)
		v.Hosts = append(v.Hosts, hostView{HostState: transport.HostState{Host: name}})
	}
	return &v.Hosts[i]
}
