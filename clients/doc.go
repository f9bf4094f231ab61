// Package clients tests the transport under the clients of providers, under libraries of which
// users have reported a fault, and with other transports above and below it. The servers have the
// names of the providers, run in memory and misbehave (internal/testserver). Time is virtual there,
// so an hour of a rate limit costs nothing, and the figures of docs/clients.md are the same on each
// machine. The tests in http3_test.go need the network of this machine.
//
// The files:
//
//	site_test.go        servers of providers, and their clients with and without a Transport
//	table_test.go       the tables of docs/clients.md and README.md
//	clients_test.go     the questions and faults that every client meets
//	providers_test.go   the clients
//	issues_test.go      reports of users of other libraries, each before and after
//	order_test.go       the order of transports that go around each other
//	http3_test.go       HTTP/3 with a way back to HTTP/2
//	recipes_test.go     the code of docs/recipes.md that needs a client of a provider
package clients
