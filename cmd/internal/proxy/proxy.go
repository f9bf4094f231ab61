// A request and its response.

package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/transport"
)

// A proxy forwards requests.
type proxy struct {
	routes    routes
	trusted   bool          // the X-Forwarded headers of requests
	patience  time.Duration // with a client, for a piece of a body
	transport *transport.Transport
	stats     *stats
	debug     *debug.Debug
	forward   *httputil.ReverseProxy
	via       string // our name in the Via header of requests
	log       *slog.Logger
	errorLog  *log.Logger

	active   atomic.Int64
	handlers sync.WaitGroup
}

func newProxy(o options, t *transport.Transport, s *stats, d *debug.Debug, logger *slog.Logger) *proxy {
	p := &proxy{
		routes: o.routes, trusted: o.trusted, patience: o.client, transport: t, stats: s, debug: d, log: logger,
		via:      "aplomb-" + rand.Text()[:8], // two proxies in a row are no loop
		errorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      t,
		FlushInterval:  -1, // each piece of a body goes on as it comes
		BufferPool:     &buffers{},
		ModifyResponse: p.respond,
		ErrorHandler:   p.fail,
		ErrorLog:       p.errorLog,
	}
	return p
}

// A target is the place to which a request is forwarded. It is in the context of the
// request.
type target struct {
	route route
	rest  string // the path below the route's prefix

	client *downstream
}

type targetKey struct{}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.handlers.Add(1)
	p.active.Add(1)
	start, whole := time.Now(), false
	c, r := newDownstream(w, r, p.patience)
	w = c
	defer func() { // also if ReverseProxy panics, because a body was cut
		p.stats.served(time.Since(start), whole)
		c.end()
		c.hurry()
		p.active.Add(-1)
		p.handlers.Done()
	}()
	to, rest, ok := p.routes.find(r.URL)
	switch {
	case p.passed(r):
		// Each proxy of the loop would retry a 508.
		p.refuse(w, http.StatusBadRequest, "the request has passed this proxy before")
	case !ok:
		p.refuse(w, http.StatusNotFound, "no upstream has this path")
	case to.leaves(rest):
		p.refuse(w, http.StatusBadRequest, "the path leaves the path of the upstream")
	default:
		ctx := context.WithValue(r.Context(), targetKey{}, target{to, rest, c})
		p.forward.ServeHTTP(w, r.WithContext(ctx))
	}
	whole = true
}

// passed reports whether a request comes from this proxy itself.
func (p *proxy) passed(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header.Values("Via"), ","), p.via)
}

// refuse responds to a request that is not forwarded.
func (p *proxy) refuse(w http.ResponseWriter, status int, text string) {
	p.stats.responded(status)
	http.Error(w, "proxy: "+text, status)
}

// rewrite makes the request to the upstream. ReverseProxy has removed the
// hop-by-hop headers and the X-Forwarded headers.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	to := r.In.Context().Value(targetKey{}).(target)
	r.Out.URL.RawPath = "/" + to.rest
	r.Out.URL.Path, _ = url.PathUnescape(r.Out.URL.RawPath) // part of a path that was unescaped before
	r.Out.URL.RawQuery = r.In.URL.RawQuery                  // ReverseProxy left out parts that Go cannot read
	r.SetURL(to.route.to)
	// The client fills this map when it has read the body, and after that the
	// transport sends it.
	r.Out.Trailer = to.client.trailer
	maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool {
		return isSettings(name) || !p.trusted && aboutTheWay(name)
	})
	if to.route.plain || upgradesToHTTP(r.In.Header["Upgrade"]) {
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Upgrade")
	}
	if p.trusted {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	r.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		if values := r.In.Header[name]; p.trusted && values != nil {
			r.Out.Header[name] = values
		}
	}
	r.Out.Header.Add("Via", fmt.Sprintf("%d.%d %s", r.In.ProtoMajor, r.In.ProtoMinor, p.via))
}

// respond passes the response of an upstream on. If the transport gave up and this is
// the last response, the response says so.
func (p *proxy) respond(resp *http.Response) error {
	if resp.StatusCode < 100 {
		return fmt.Errorf("the upstream's status is %03d", resp.StatusCode) // net/http cannot send it
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && resp.Request.Header.Get("Upgrade") == "" {
		return errors.New("the upstream switches to a protocol that nobody asked for")
	}
	p.stats.responded(resp.StatusCode)
	if h := transport.HistoryOf(resp); h.Reason != transport.ReasonFinal {
		resp.Header.Add("Proxy-Status", proxyStatus("", h.Reason, len(h.Attempts)))
	}
	return nil
}

// waitForHandlers waits for the end of all requests. http.Server does not wait for
// upgraded connections.
func (p *proxy) waitForHandlers(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		p.handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// buffers keeps the buffers for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if kept, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return kept[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
