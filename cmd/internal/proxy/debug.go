// The debug page and the metrics.

package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/internal/tally"
	"github.com/aplomb-go/aplomb/transport"
)

// A view is everything that the metrics show.
type view struct {
	active int64
	rules  rulesState
	counted
	hosts []hostView
}

// A hostView is the state of a host and its counts.
type hostView struct {
	transport.HostState
	tally.Counts
}

// newDebug returns the handler of the page and the metrics. names are the hosts for which they
// are served.
func newDebug(p *proxy, r *rules, names []string) http.Handler {
	p.debug.Title, p.debug.Names = "aplomb proxy", names
	p.debug.Notes = func() []debug.Note { return []debug.Note{r.now().note()} }
	p.debug.Labels = p.routes.labels
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/debug", http.StatusFound))
	mux.Handle("GET /debug", p.debug.Handler(p.transport))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprint(w, metricsOf(viewOf(p, r)))
	})
	return debug.Guard(mux, names...)
}

// note returns the state of the rules for the page.
func (s rulesState) note() debug.Note {
	reloads := ""
	switch s.Taken {
	case 0, 1:
	case 2:
		reloads = " Changed 1 time."
	default:
		reloads = fmt.Sprintf(" Changed %d times.", s.Taken-1)
	}
	loaded := s.Loaded.Format(time.TimeOnly)
	switch {
	case s.File == "":
		return debug.Note{Level: debug.Plain, Title: "default rules", Text: "There is no file with rules (-rules)."}
	case s.Problem == "":
		return debug.Note{Level: debug.Good, Title: "rules in force", Text: s.File + " since " + loaded + "." + reloads}
	}
	return debug.Note{Level: debug.Bad, Title: "old rules in force", Text: s.File + ": " + s.Problem + ". The rules of " + loaded + " stay in force." + reloads}
}

// labels returns for each upstream the prefixes that lead to it.
func (rs routes) labels() map[string]string {
	all := map[string]string{}
	for _, r := range rs {
		name := r.to.Scheme + "://" + r.to.Host
		if all[name] == "" {
			all[name] = "gets"
		}
		all[name] += " " + r.prefix
	}
	return all
}

// viewOf returns the state of everything now.
func viewOf(p *proxy, r *rules) view {
	v := view{active: p.active.Load(), rules: r.now(), counted: p.stats.now()}
	for _, state := range p.transport.Snapshot() {
		v.host(state.Host).HostState = state
	}
	for host, c := range p.stats.hosts.All() {
		v.host(host).Counts = c
	}
	for host := range p.routes.labels() {
		v.host(host)
	}
	slices.SortFunc(v.hosts, func(a, b hostView) int { return strings.Compare(a.Host, b.Host) })
	return v
}

// host returns the place of a host in the view. An upstream has a place even
// before its first request.
func (v *view) host(name string) *hostView {
	i := slices.IndexFunc(v.hosts, func(h hostView) bool { return strings.EqualFold(h.Host, name) })
	if i < 0 {
		i = len(v.hosts)
		v.hosts = append(v.hosts, hostView{HostState: transport.HostState{Host: name}})
	}
	return &v.hosts[i]
}
