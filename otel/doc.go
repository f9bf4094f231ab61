// Package aplombotel makes OpenTelemetry spans and metrics of HTTP requests and their
// retries, for the Transport of package transport.
//
//	telemetry, err := aplombotel.New(aplombotel.Config{})
//	tr, err := transport.New(transport.Config{Traces: []*transport.Trace{telemetry.Trace()}})
//	stop, err := telemetry.Observe(tr)
//
// # Spans
//
// Each request has a span of kind internal, named "aplomb GET" after its method. It ends
// with the response's body, or with RoundTrip if there is no body. It has the events
// retry and hedge.
//
// Below it each attempt has a span of kind client, named after the method. It ends at the time
// of the headers of the response. The attempts to continue a cut body belong to the same
// request. The trace context of the attempt's span is in the header that is sent.
// The attributes follow the semantic conventions for HTTP spans. URLs carry no secrets,
// as in the log of package transport. A span gets its attributes when it ends.
//
//	http.request.method, url.full, server.address, server.port
//	http.response.status_code
//	http.request.resend_count   attempts of the request before this one
//	error.type                  the status, or the kind of the error
//	aplomb.attempt.kind         first, retry, hedge or resume
//	network.peer.address, network.peer.port   of the connection, if it is known
//	aplomb.lane                 the number of the host's pool of connections, if it is not the base
//	aplomb.attempt.outrun       true if another attempt had its response first
//	aplomb.queued               seconds in the queues of the host's limits
//	aplomb.offset               where a reconnect continues a body
//	aplomb.reason               why there was no further attempt
//	aplomb.attempts             of the request, at its end
//	aplomb.resumes              reconnects that continued the body
//	http.response.body.size     bytes that the caller read
//
// If a caller never closes a body, the span of its request never ends and is not exported.
// Its memory is freed with the body.
//
// otelhttp may be around the Transport and below it, as its base. Its spans then are the
// parents and the children of these.
//
// # Metrics
//
//	aplomb.client.attempts         counter, by aplomb.attempt.kind and result
//	aplomb.client.attempt.duration histogram in s, until the headers
//	aplomb.client.requests         counter, by aplomb.reason and result
//	aplomb.client.retries          counter, by the error.type that is retried
//	aplomb.client.hedges           counter
//	aplomb.client.resumes          counter of reconnects that continued a body
//	aplomb.client.withheld         counter of retries that a limit withheld, by aplomb.reason
//	aplomb.client.wait             histogram in s, of the waits before retries
//	aplomb.client.queued           histogram in s, by aplomb.queue
//	aplomb.client.body.size        counter in bytes, of the bodies that callers read
//	aplomb.client.body.failures    counter of the bodies that ended with an error, by its error.type
//	aplomb.host.requests           gauge of the requests under way
//	aplomb.host.holds              gauge of the scopes that the server asked to wait
//	aplomb.host.budget             gauge of the retries that could be sent at once
//	aplomb.host.limiter.limit         gauge of the attempts that the limiter lets be in flight
//	aplomb.host.limiter.slots         gauge of the slots in use
//	aplomb.host.limiter.queue         gauge of the attempts that wait for a slot
//	aplomb.host.limiter.closed        gauge, 1 while the circuit is open
//	aplomb.host.lane               gauge of the number of the host's pool of connections; 0 is the base
//	aplomb.host.rate               gauge of the limit of attempts per second
//	aplomb.host.changes            counter, by aplomb.reason (see transport.HostChange), and by
//	                               aplomb.over, which is true for the end
//	aplomb.fleet.connected         gauge, 1 while the backend of the fleet answers
//	aplomb.fleet.members           gauge of the members, as far as is known
//	aplomb.fleet.heartbeat.age     gauge in s, of the time since the last heartbeat that succeeded
//	aplomb.fleet.commands          counter of the commands to the backend
//	aplomb.fleet.dropped           counter of the news and questions that were not sent or answered in time
//
// Those of the fleet have no attributes, and are there if the Transport has a Fleet that says how
// it is (transport.Snapshot). All others have server.address and server.port. These are of the
// host as the Transport counts it, in lower case and without userinfo. If a name is longer than
// 320 bytes, a hash stands for its beginning. The counters of attempts and requests also have
// http.request.method, http.response.status_code and error.type. A request that the retry budget
// refused a retry is in aplomb.client.withheld with the reason retry_budget.
//
// The counters are observable counters. They are read when metrics are collected, so that
// a request only adds to numbers in memory. They have no exemplars. The histograms have
// exemplars. Each counter keeps at most 1,999 sets of attributes, 200 of them for hosts that
// the rules of a watched Transport name. The counts of further sets are together under
// otel.metric.overflow, as in the SDK.
package aplombotel
