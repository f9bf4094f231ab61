// Package transport is an http.RoundTripper that retries requests when that is
// safe. It waits as long as the server asked, or as long as the back-off says, a little
// longer after a timeout, but never longer than the caller has time. A host that fails is sent few
// retries, and the others wait in line. When it gives up,
// the caller gets the original response or error, plus the reason.
//
//	client := &http.Client{Transport: transport.Default()}
//
// # The way of a request
//
//	RoundTrip
//	  HostRule  find the rule of the host, and its state in a table
//	  findRule  find the rule of the path and of the request, if there is one
//	  tryLight  if no limit makes it wait and there is nobody to tell, send the request
//	            and return a success at once; everything else goes to the loop
//	  loop      for attempt 1, 2, …
//	    admit     ask the limits of the host: wait, or refuse at once; wait for a
//	              connection that another attempt makes
//	    send      send the caller's own request if nothing has to watch the attempt,
//	              and else a copy; perhaps another copy beside it, as a hedge
//	    askRule   ask the rule for the class of the outcome
//	    judge     tell the limits; decide (decide.go) says final, retry and its wait, or give up
//	    commit    rewind the body
//	    record    one attempt: outcome, class, reason, wait
//	    Keep      drain the old response within bounds, and keep it if it is short
//	    Sleep     wait as long as was decided
//	    awaitTurn stand in the line of the host, if it has no room for a retry (line.go)
//	    GetBody   call the caller's GetBody, if the body is made that way
//	  deliver   return the last response as it is, or the error
//
// # How the limits of a host act together
//
// An attempt passes the limits in this order. The throttle holds it if the rule shares
// waits and the host asked its scope for one. Pacing holds it if the server's quota is nearly used up. The
// rate holds it if it has no token. The limiter comes last, and holds it if too many
// requests are in flight. Token and slot are taken at the same moment. A request
// waits for one limit at a time, in the order of arrival, until its context ends. If
// its turn would come after its deadline, it is refused at once. If a hold begins
// while a request waits for another limit, the request goes back to the throttle.
//
// Before that, a retry takes a token of the retry budget. If there is none, or if the host is down, it waits in
// the line of the host, for as long as the rest of its attempts would have taken. This is after the
// sleep, so the time of the sleep earns tokens, too. If the attempt does not go, Permit.Cancel gives the token back. With
// Rule.CircuitBreaker a first attempt to a host that is down waits in the same line. A hedge
// never waits. It goes if the line and all limits let it go at once.
//
//	request ─▶ throttle ─▶ pacing ─▶ rate ─▶ limiter ─▶ attempt ─▶ response ─▶ caller
//	              ▲                                    │ slow?     │ failed?
//	              │                                    └▶ hedge    ▼
//	              └──────────── line ◀──────────────────────────  sleep
//
// A request whose time in line is over gets its last response, if that was short enough to be kept, or else an
// [Error] with its status and header. By default the budget is on, and the others are off.
//
// # Connections
//
// A host has one pool of connections, at first the base transport itself. If that has proven bad,
// the next attempts try another pool, which is a copy of an *http.Transport or comes from
// Config.NewPool. The host moves with the first good response there, and attempts under way go on.
// A retry also takes another pool after a timeout, after a stream error, or after two failures of
// its request over the same pool. So does a hedge over HTTP/2. docs/network.md has the rules.
//
// # Many processes
//
// The limits know the requests of one Transport. With Config.Fleet the Transports of
// several processes share what servers tell them, and act like one client. If the rule
// shares waits, a hold that one of them is told binds all. A rate is for all of them together. If a host goes down,
// they know it together, and return one after the other. The first try at a
// healthy host asks nobody, and a Fleet that does not answer stops nobody (see [Fleet]).
//
// # What is retried
//
// By default a request is retried in two cases. In the first case the server
// surely did not act on it: it never had a connection, HTTP/2 refused the stream, the
// status is 421 or 425, or a 413 names a wait. A 417 to Expect: 100-continue belongs
// here as well, and the retry goes without that field. In the second case the server
// may have acted, and the request is idempotent (RFC 9110 §9.2.2). The second case
// covers 408, 429, most 5xx, a connection that was reset, and an attempt that timed
// out. GET, HEAD, OPTIONS, TRACE, PUT, DELETE and the further methods that IANA's
// registry calls idempotent are so, and any request with an Idempotency-Key.
//
// A request with a nonce that counts once (see classify.Idempotent) is sent again only if
// no response came and no server can have seen it.
//
// So a POST is not sent twice unless that is harmless. With classify.Refusals as
// the rule's Classify, a 429, and a 503 that names a wait, also mean that the server
// did not act. Package policy/profile has rules for well-known providers, which know
// this and more from the provider's documentation.
//
// A proxy that answers CONNECT with a 503 or the like has made no connection either. The
// default base sees its status and its Retry-After. A base that is an *http.Transport of
// the caller's reports the text of the status only. So the text must be a usual one, such
// as "Service Unavailable", and the wait of the proxy is not known. If another base is
// around net/http, such an error may be that of a server, and only an idempotent request
// is retried.
//
// # Request bodies
//
// A body with GetBody is made anew for each attempt. net/http sets GetBody for
// bytes.Reader, bytes.Buffer and strings.Reader. Some libraries have a GetBody that
// seeks one reader back and returns it each time. So for every other body, GetBody
// is called only when the old body is closed, no Read of it is running, the old
// response is discarded and the wait is over. The bodies that net/http takes for
// its own resends are guarded in the same way. If GetBody fails then, the caller
// gets the last response, provided that the rest of its body was drained whole.
// Otherwise the caller gets an [Error] that holds the error of GetBody and names
// the last status.
//
// A body without GetBody that can seek, such as an *os.File, is rewound to the
// offset at which it was handed over. It must be the request's Body itself, because
// io.NopCloser hides Seek. Of any other body the bytes that are sent are kept, up
// to Rule.ReplayBuffer. If the body is larger, the attempt under way is the last, and
// Attempt.Err says so. Nothing is read ahead. If an SDK sends large parts without
// GetBody, as the AWS SDK does, set ReplayBuffer to the size of a part.
//
// net/http looks at the type of a body to decide how to write it. So bodies in
// memory reach it as they are. The timer of an attempt only watches bodies of more
// than 64 KiB.
//
// # Response bodies
//
// If the body of a GET or QUERY is cut and its response had a strong ETag, or else a strong
// Last-Modified, aplomb asks for the rest with Range and If-Range. The reader
// notices nothing. A response is used only if it provably is the rest of the same
// representation. Otherwise the body ends with the error of the cut. The error is
// bare as long as no byte came from a second response, and otherwise it is in an
// [Error].
//
// If there is no rest to ask for, as with JSON that has no validator, aplomb sends the
// GET again as a retry, up to Rule.MaxRefetch bytes. It compares the bytes that the
// reader has with those of the second response, and goes on after them if they are the
// same. So the reader gets exactly the body of the second response. If they differ, the
// body ends with the error of the cut. A response that may be a stream is never fetched again.
//
// Over net/http alone the reader has its error at once. So from the first cut on, a Read of the
// body takes at most 10 s, with all of its requests.
//
// With Rule.StallTimeout a silent connection counts as cut.
//
// # What is not counted
//
// net/http resends some requests by itself: an idempotent request on a kept
// connection that turned out to be closed, a request of which no byte was written,
// and over HTTP/2 a refused request, up to seven times. If a server ends each new
// connection of HTTP/2 with GOAWAY before it looks at the request, net/http makes
// another connection at once, without an end. An attempt is one call of the base
// transport, so these resends do not count. The deadline and the AttemptTimeout end
// them. Without both, the first attempt goes on as it does over net/http alone.
//
// When http.Client.Timeout fires, net/http replaces the error by a text of its own.
// Use a [Trace] for the history in that case.
package transport
