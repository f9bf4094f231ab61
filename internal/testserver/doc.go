// Package testserver is an HTTP server for tests and demonstrations. A script
// tells the server how to answer each request, and which fault to show. The
// server records the requests that arrive.
//
//	s := testserver.Start(t, testserver.Config{},
//		testserver.Status(503),
//		testserver.Status(429).Header("Retry-After", "1"),
//		testserver.ResetBeforeHeaders(),
//		testserver.OK("hello")) // the last step is used again for later requests
//	resp, err := s.Client().Get(s.URL)
//
// # Steps
//
// A [Step] answers a request. It goes through these phases in order.
//
//   - Read the request body. [Step.Early] answers sooner.
//   - Send informational responses, see [Step.Info].
//   - Wait, see [Step.Delay].
//   - Write the headers, then the body. [Step.Drip] writes the body slowly.
//   - Keep or end the connection, see [Step.Then].
//
// A step can break off in its headers, see [Step.CutHeaders], or in its body, see
// [Step.CutAt]. An [End] says if the connection then gets a FIN, a reset, a stall
// or a half close. Over HTTP/2, [Step.RSTAt] resets only the stream. Other
// constructors play faults that are not answers, for example [Hang],
// [ResetBeforeHeaders], [Raw], [RefuseStream] and [GoAway].
//
// A list of steps serves all requests in the order in which their headers
// arrive. If parallel tests share a server, use [Config.Routes], because each
// route has its own list and its own counter. A [Config.Handler] looks at each
// request and chooses a step.
//
// # Networks
//
// By default the server listens on a TCP port of 127.0.0.1. If [Config.Net] is
// set, the server runs in memory. There testing/synctest can make time virtual,
// so that a slow answer that takes hours costs no time. Create the [Net], the
// Server and the clients inside the bubble. Other servers can listen on the same
// Net. A Net also plays refused connections, DNS failures and hosts that do not
// answer.
//
// With [Config.HTTP2] the clients speak HTTP/2. [Config.TLS] chooses a
// certificate, or a handshake that fails. [Config.Refusing], [Server.Listen],
// [Server.Refuse] and [Server.ResetAll] play outages. A test uses
// [Server.Client], or puts [Server.Transport] beneath the transport under test.
//
// # The log
//
// [Server.Log] has an [Arrival] for each request, with its time, its connection,
// its headers, and the length and hash of its body. [Server.Wait] and
// [Server.WaitUntil] wait for log entries without polling. A request is in the
// log before the client gets any part of its answer. The end of the exchange,
// Arrival.Done, can be logged a moment after the client has read the last byte.
//
// # Notes about the wire
//
//   - net/http itself repeats some requests. It repeats idempotent requests if a
//     reused connection dies, refused streams, and streams above a GOAWAY. The
//     log counts each request on the wire. To see a fault exactly once, use a
//     fresh connection or a POST without GetBody.
//   - Linux reports a reset only once per connection. If a buffer or a
//     goroutine of net/http takes that report, the caller sees an EOF instead.
//     This happens over TCP to resets in the headers and to any reset over
//     HTTP/2. In memory every Read and Write reports the reset.
//   - If a connection is closed while bytes from the peer are unread, the peer
//     sees a reset. This is so over TCP and in memory.
//   - net/http offers a new HTTP/2 connection to other requests a little later
//     than to the first request. So Conns can be 2 when a test expects 1.
//   - An HTTP/1.1 client's FIN comes after its upload. If a step leaves part of
//     the upload unread, the server cannot notice that the client has left.
//
// The server does not use net/http's server, because that corrects the errors
// that a fault needs. It is only fit for tests, since it does not limit the
// memory that a client can use. Frames and header compression of HTTP/2 come
// from golang.org/x/net. To print the frames, set GODEBUG=http2debug=2.
//
// # Files
//
//	net.go           the network in memory: names, listeners and dials
//	conn.go          a connection in memory that fails like TCP
//	server.go        configuration, listening, routes, Close
//	tls.go           certificates
//	http1.go         an accepted connection, and HTTP/1.1
//	http2.go         HTTP/2 connections
//	http2_stream.go  an HTTP/2 request and its answer
//	script.go        the steps, and Content's answers to Range
//	exchange.go      playing a step over either protocol
//	log.go           the log of requests
package testserver
