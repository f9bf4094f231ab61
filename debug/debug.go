package debug

import (
	"context"
	_ "embed"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/transport"
)

//go:embed page.html
var html []byte

// A Page keeps the last decisions of a Transport and the changes of its hosts, and shows
// them. The zero Page is ready to use. Each Transport needs one of its own. The methods are
// safe for concurrent use.
type Page struct {
	// AllowedHosts are further names of this machine. The page is also served to requests
	// whose Host is one of them, with any port. Set it before the call of Handler. Default
	// none.
	AllowedHosts []string

	counts tally
	recent recent
}

// Trace returns a Trace for transport.Config.
func (p *Page) Trace() *transport.Trace {
	return &transport.Trace{
		AttemptEnd: func(_ context.Context, e transport.AttemptEnd) {
			p.recent.attempt(&e, p.counts.attempt(&e))
		},
		RequestEnd: func(_ context.Context, e transport.RequestEnd) {
			p.counts.request(&e)
			p.recent.request(&e)
		},
		BodyEnd: func(_ context.Context, e transport.BodyEnd) {
			if e.Err != nil {
				p.counts.body(&e)
				p.recent.body(&e)
			}
		},
		HostChange: p.recent.change,
	}
}

// Handler returns a handler of the page for t, which must not be nil. It can be mounted at any
// path, and answers GET and HEAD. With the query "format=json" it returns what the page shows,
// whose keys can change in any version. A request whose Host is not allowed gets a 403 (see
// the package comment).
func (p *Page) Handler(t *transport.Transport) http.Handler {
	if t == nil {
		panic("debug: Handler of a nil Transport")
	}
	names, began := slices.Clone(p.AllowedHosts), time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case !isOurs(r.Host, names):
			http.Error(w, "debug: this page is only for localhost, for IP addresses and for the names that the program allows", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "debug: only GET and HEAD", http.StatusMethodNotAllowed)
		case r.URL.Query().Get("format") == "json":
			h.Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(p.state(t, began)) // the reader has gone
		default:
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			h.Set("Referrer-Policy", "no-referrer")
			_, _ = w.Write(html) // the reader has gone
		}
	})
}

// isOurs reports whether a Host is allowed. Nobody can make an IP address lead elsewhere.
func isOurs(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") ||
		host != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}
