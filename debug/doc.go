// Package debug has a page that shows a Transport at this moment: its hosts, limits, rules,
// fleet, changes and last decisions. It needs no other module than package transport does.
//
//	page := &debug.Page{}
//	tr, err := transport.New(transport.Config{Traces: []*transport.Trace{page.Trace()}})
//	mux.Handle("GET /debug/aplomb", page.Handler(tr))
//
// The page is for a person who wants to know why requests wait or fail. It is refreshed each
// second. For alerts and for what happened before, use the module otel
// (docs/observability.md).
//
// # Who may see it
//
// The package registers nothing by itself. Everybody who reaches the page sees the names of
// the hosts, the rules, and what is counted. The page has no paths, no headers, no credentials
// and no texts of errors. Mount it where only people you trust can reach it, for example on a
// listener on the loopback interface, like net/http/pprof.
//
// A web page can make its own name lead to this machine, and then read the page in the browser
// of a person who may see it (DNS rebinding). So the page is only served if the Host of the
// request is localhost, an IP address, or one of Page.AllowedHosts. This is no access control, because
// a client can send any Host.
//
// # What it costs
//
// With a Trace, a success on the first try costs a few allocations and a lock. The last 100
// decisions, as many changes of hosts, and the counts of up to 1024 hosts are kept. The
// page has up to 100 hosts. Those in trouble come before those with many requests.
//
// The files, in the order in which a decision meets them:
//
//	debug.go   Page, its Trace and its Handler
//	counts.go  counts of attempts and requests by host
//	recent.go  the last decisions, and the last changes of hosts
//	state.go   what the page shows, in JSON
//	rules.go   the rule of a host, with the source of each setting
//	page.html  the page, which fetches the state by itself
package debug
