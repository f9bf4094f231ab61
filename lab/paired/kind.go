// What plays a plan: net/http alone, or aplomb with a rule.

package paired

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/internal/dial"
	connections "github.com/aplomb-go/aplomb/internal/route"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// A kind is a client.
type kind struct {
	name    string
	rule    policy.Rule                             // with its defaults; zero: net/http alone
	own     policy.Rule                             // as its user writes it
	waits   []time.Duration                         // the longest documented back-offs
	timeout time.Duration                           // of net/http until the headers
	spoil   func(*http.Transport) http.RoundTripper // not nil: sabotage over net/http
}

// bare is net/http alone. With a timeout it is the reference of a rule with that timeout.
func bare(timeout time.Duration) kind { return kind{name: "net/http", timeout: timeout} }

func aplomb(name string, rule policy.Rule) kind {
	whole := rule.Or(policy.Defaults())
	return kind{name: name, rule: whole, own: rule, waits: longest(whole)}
}

// providers are the profiles whose providers' documented limits are played.
var providers = map[string]func() policy.Rule{
	"GitHub": profile.GitHub, "Slack": profile.Slack, "Discord": profile.Discord,
	"OpenAI": profile.OpenAI, "Anthropic": profile.Anthropic, "Stripe": profile.Stripe,
}

// presets returns the clients that every plan is played with.
func presets() []kind {
	return []kind{aplomb("default", policy.Rule{}), aplomb("API", profile.API()), aplomb("Service", profile.Service())}
}

// kinds returns the clients that a plan is played with, beside net/http alone.
func (p *plan) kinds(presets []kind) []kind {
	all := slices.Clone(presets)
	if p.profile != "" {
		all = append(all, aplomb(p.profile, providers[p.profile]()))
	}
	if p.only > 0 {
		first := int(p.seed) % len(all)
		all = append(all[first:], all[:first]...)[:p.only]
	}
	return all
}

// client makes the client of a world, and returns what closes its idle connections.
func (k kind) client(w *world) (http.RoundTripper, func()) {
	bare := http.DefaultTransport.(*http.Transport).Clone()
	bare.DialContext = w.dialName
	w.base(bare)
	if w.plan.most > 0 { // the program's own base
		bare.MaxConnsPerHost = w.plan.most
	}
	switch {
	case k.spoil != nil:
		return k.spoil(bare), bare.CloseIdleConnections
	case k.rule.MaxAttempts == 0:
		return bare, bare.CloseIdleConnections
	}
	c := transport.Config{Rule: k.own}
	switch {
	case w.plan.wrapped:
		c.Base = struct{ hides }{hides{bare}}
	case w.plan.most > 0: // a base with MaxConnsPerHost is not copied
		bare.DialContext = w.dialer().DialContext
		c.Base = bare
	}
	t := transport.MustNew(c)
	if c.Base == nil {
		rewire(t, w)
	}
	return t, t.CloseIdleConnections
}

// hides is a base that nobody knows as an *http.Transport.
type hides struct{ t *http.Transport }

func (h hides) RoundTrip(r *http.Request) (*http.Response, error) { return h.t.RoundTrip(r) }
func (h hides) CloseIdleConnections()                             { h.t.CloseIdleConnections() }

// dialer is aplomb's, with the name server and the network of the world.
func (w *world) dialer() *dial.Dialer {
	return dial.With(
		func(ctx context.Context, network, addr string) (net.Conn, error) { return w.dial(ctx, network, addr) },
		func(ctx context.Context, network, addr string) ([]netip.Addr, error) {
			return w.lookup(ctx, network, addr)
		},
	)
}

// rewire puts a Transport with its default base into a world: its own dialer gets the world's
// name server and network, and its base the protocols of the world. All other values are its own. The public API
// cannot do that, because a base with a DialContext of the user's is dialled by name.
func rewire(t *transport.Transport, w *world) {
	base := makerOf(t).Resolve().(*http.Transport)
	w.base(base)
	base.DialContext = w.dialer().DialContext
}

// makerOf returns what makes the pools of a Transport, from a field that is not exported.
func makerOf(t *transport.Transport) *connections.Maker {
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if m, ok := reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Interface().(*connections.Maker); ok {
			return m
		}
	}
	panic("a Transport has no pools")
}

// trusting is the configuration of TLS of all clients.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// longest returns the longest documented back-offs of a rule. After a timeout a retry may come as
// late as the fourth.
func longest(rule policy.Rule) (all []time.Duration) {
	waits := bounds.Of(rule.Backoff, max(rule.MaxAttempts-1, 4))
	for _, b := range waits[:rule.MaxAttempts-1] {
		all = append(all, max(b.Highest, waits[3].Highest))
	}
	return all
}
