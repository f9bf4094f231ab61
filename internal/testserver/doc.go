// Package testserver scripts faults: an HTTP server that does, request by
// request, what a test or a demonstration tells it to, and remembers what
// arrived.
//
//	s := testserver.Start(t, testserver.Config{},
//		testserver.Status(503),
//		testserver.Status(429).Header("Retry-After", "1"),
//		testserver.ResetBeforeHeaders(),
//		testserver.OK("hello")) // the last step repeats for ever
//	resp, err := s.Client().Get(s.URL)
//
// # Steps
//
// A [Step] is what happens to one request, in this order: read the upload (or
// answer [Step.Early]), send informational responses ([Step.Info]), wait
// ([Step.Delay]), write headers and body (in one go, or [Step.Drip]), and end
// ([Step.Then]). Every step can be cut: in its headers ([Step.CutHeaders]), or
// after so many bytes of its body ([Step.CutAt], over HTTP/2 also
// [Step.RSTAt]). An [End] says whether that is a FIN, a reset, a stall or a half
// close. The constructors that are not answers ([Hang], [ResetBeforeHeaders],
// [Raw], [RefuseStream], [GoAway] and so on) say themselves what they do.
//
// One list of steps serves all requests in the order in which their headers
// arrive. Parallel tests on one server want [Config.Routes], each with a list
// and a counter of its own; a [Config.Handler] decides by looking.
//
// # Where it runs
//
// By default the server listens on a TCP port of 127.0.0.1. With [Config.Net] it
// runs in memory, where testing/synctest makes time virtual: make the [Net], the
// Server and the clients inside the bubble, and a drip that takes hours takes
// none. Any other server can be put on the same Net; names, refused
// connections, DNS failures and silent hosts are its business.
//
// [Config.HTTP2] makes the clients speak HTTP/2, [Config.TLS] chooses a
// certificate or a handshake that fails. [Config.Refusing], [Server.Listen],
// [Server.Refuse] and [Server.ResetAll] play outages. Use [Server.Client], or
// [Server.Transport] beneath the transport under test.
//
// # What arrived
//
// [Server.Log] has one [Arrival] for each request: when, on which connection,
// what, and its body as a length and a hash, whole or cut off.
// [Server.Wait] and [Server.WaitUntil] wait for it without polling. What the
// client has already been told is in the log, but the end of an exchange
// (Arrival.Done) may come a moment later than its last byte.
//
// # What to know about the wire
//
//   - net/http repeats some requests by itself: idempotent ones on a reused
//     connection that died, refused streams, streams above a GOAWAY. The log
//     counts what came over the wire. A fault on a fresh connection, or met by a
//     POST without GetBody, is seen as it is.
//   - Linux tells of a reset once per connection. Over TCP a reset in the headers,
//     or any reset over HTTP/2, may be swallowed by one of net/http's buffers or
//     goroutines, so that the error is an EOF. In memory everybody is told, every
//     time.
//   - Close with unread bytes from the peer is a reset, over TCP and in memory.
//   - net/http offers an HTTP/2 connection to other requests only just after it
//     has given it to the first: Conns may be 2 where 1 was expected.
//   - While a part of an upload is unread, nobody can see an HTTP/1.1 client
//     leave: the FIN is behind those bytes.
//
// HTTP/1.1 and HTTP/2 are both written by hand here, because net/http's server
// corrects what a fault needs to be wrong. Neither is a server for anything but
// tests: they trust their clients with memory.
//
// # Files
//
//	net.go           names, listeners and dials in memory
//	conn.go          a connection in memory that fails like TCP
//	reserve_unix.go  a port that refuses, and reserve_other.go where there is no bind
//	server.go        listening, routing, closing
//	tls.go           certificates
//	conn_serve.go    a connection from Accept to its end
//	http1.go         HTTP/1.1
//	http2.go         HTTP/2 connections
//	http2_stream.go  an HTTP/2 request and its answer
//	script.go        the steps
//	exchange.go      playing a step, whatever the protocol
//	ranges.go        Content's answers to Range
//	log.go           what arrived
package testserver
