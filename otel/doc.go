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
// hedge, and retry with aplomb.attempt.number, aplomb.delay in seconds, and the result.
//
// Below it each attempt has a span of kind client, named after the method. It ends at the time
// of the headers of the response. The attempts to continue a cut body belong to the same
// request. The trace context of the attempt's span is in the header that is sent.
// The attributes follow the semantic conventions for HTTP spans. URLs carry no secrets,
// as in the log of package transport. A span gets its attributes when it ends.
//
//	http.request.method, url.full, server.address, server.port
//	http.response.status_code, network.protocol.version
//	http.request.resend_count   attempts of the request before this one
//	error.type                  the status, or the kind of the error
//	aplomb.attempt.kind         first, retry, hedge or resume
//	network.peer.address, network.peer.port   of the connection, if it is known
//	aplomb.pool                 the number of the host's pool of connections, if it is not the base
//	aplomb.waited               seconds in the queues of the host's limits
//	aplomb.offset               where an attempt continues a body
//	aplomb.reason               why there was no further attempt; of an attempt: outrun, if another
//	                            had its response first
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
//	http.client.request.duration    histogram in s, one value for each attempt, until the headers
//	http.client.response.body.size  histogram in bytes, of the bodies that callers read
//	http.client.active_requests     requests under way
//	aplomb.attempts                 counter, by aplomb.attempt.kind and error.type
//	aplomb.request.duration         histogram in s, with all attempts and waits, by aplomb.reason
//	                                and error.type; its count is the number of requests
//	aplomb.wait.duration            histogram in s, by aplomb.reason: retry is the back-off, throttled the
//	                                wait that the server asked for, retry_budget and circuit_open the
//	                                line for a retry and that of a host that is down, or another limit
//	aplomb.body.failures            counter of the bodies that ended with an error, by its error.type
//	aplomb.host.throttled_keys      gauge of the throttle keys that the server asked to wait
//	aplomb.host.retry_budget        gauge of the retries that could be sent at once
//	aplomb.host.concurrency.limit   gauge of the attempts that may be in flight
//	aplomb.host.concurrency.usage   gauge of the attempts that count against the limit
//	aplomb.host.concurrency.waiting gauge of the attempts that wait for the limit
//	aplomb.host.down                gauge, 1 while the host is down
//	aplomb.host.circuit_open        gauge, 1 while the host is down and a CircuitBreaker withholds requests
//	aplomb.host.retries_waiting     gauge of the requests that wait for a retry, or for the end of an outage
//	aplomb.host.pool                gauge of the number of the host's pool of connections; 0 is the base
//	aplomb.host.rate_limit          gauge of the limit of attempts per second
//	aplomb.host.changes             counter, by aplomb.reason (see transport.HostChange), and by
//	                                aplomb.over, which is true for the end
//	aplomb.fleet.connected          gauge, 1 while the backend of the fleet answers
//	aplomb.fleet.members            gauge of the members, as far as is known
//	aplomb.fleet.heartbeat.age      gauge in s, of the time since the last heartbeat that succeeded
//	aplomb.fleet.commands           counter of the commands to the backend
//	aplomb.fleet.dropped            counter of the news and questions that were not sent or answered in time
//
// Those of the fleet have no attributes, and are there if the Transport has a Fleet that says how
// it is (transport.Snapshot). All others have server.address and server.port. These are of the
// host as the Transport counts it, in lower case and without userinfo. If a name is longer than
// 320 bytes, a hash stands for its beginning. Those of requests, attempts, waits and bodies have
// http.request.method, too, and http.client.request.duration has http.response.status_code,
// network.protocol.version and error.type. The aplomb.reason of a request says which limit withheld a
// retry, such as retry_budget.
//
// The counters are observable counters. They are read when metrics are collected, so that
// a request only adds to numbers in memory. They have no exemplars. The histograms have
// exemplars. Each counter and histogram keeps at most 1,999 sets of attributes, 200 of them for hosts that
// the rules of a watched Transport name. Further sets are together under otel.metric.overflow, as in
// the SDK. A histogram has http.request.method there, too.
package aplombotel
