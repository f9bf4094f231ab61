// Package transport is an http.RoundTripper that sends a request again when,
// and only when, that is safe and makes sense. It waits as long as the server
// asked or as long as the back-off says, never longer than the caller has
// time. When it gives up on what it sent, it returns what a plain transport would
// have returned, plus the reason; what a host asked not to get, or what cannot
// have its turn before its deadline, it refuses without sending it ([Error]).
//
//	client := &http.Client{Transport: transport.Default()}
//
// # The way of a request
//
//	RoundTrip
//	  host      which rule applies, what is known of the host
//	  loop      for attempt 1, 2, …
//	    admit     the host's limits: wait, or refuse at once
//	    send      the caller's own request at the first attempt, a copy later;
//	              perhaps a second time, as a hedge
//	    judge     classify the outcome, tell the host's machines, and decide:
//	              final, retry after a wait, or give up
//	    commit    take a retry from the budget, make the body ready again
//	    observe   one event: outcome, verdict, reason, wait
//	    discard   read the old answer's rest, within bounds; sleep
//	    renew     call the caller's GetBody, if that is how the body is made
//	  deliver   the last response as it is, or the error
//
// The files, in the order in which a request meets them:
//
//	transport.go  Config, New, Update
//	rules.go      which rule applies to this host?
//	context.go    what a caller says about one request
//	loop.go       RoundTrip and the loop
//	admit.go      may this attempt go now?
//	body.go       the request's body, which package internal/replay lends to each attempt
//	attempt.go    one send, and its timeout
//	hedge.go      when is a request sent a second time, and whose answer counts?
//	flight.go     a place in flight; what an outcome says about the host
//	decide.go     why is there a retry, or none? every Reason
//	observe.go    who is told?
//	trace.go      what they are told
//	drain.go      how a response is given up
//	error.go      what the caller gets
//	redact.go     what may be written about a URL?
//	resume_loop.go   how a cut body asks for its rest; the rest is internal/resume
//	resume_error.go  the errors of a response body
//	stall.go      when is a silent connection taken for a lost one?
//	snapshot.go   what is known of the hosts?
//
// # How the limits of a host act together
//
// An attempt passes, in this order: the cooldown (did the host ask for a wait?),
// pacing (is the server's quota nearly used up?), the gate (are too many in
// flight?), and the rate. A request waits in one line at a time, in the order of
// arrival, until its context ends; one whose turn would come after its deadline
// is refused at once. When a hold begins while a request waits for something
// else, it goes back to the cooldown. The budget is asked last, for a retry or a
// hedge that would otherwise happen, before the sleep, and gets back what is not
// sent. A hedge waits for nothing: it goes if all of them let it go at once.
//
//	request ─▶ cooldown ─▶ pacing ─▶ gate ─▶ rate ─▶ send ─▶ answer ─▶ caller
//	              ▲                                    │ slow?   │ to be retried
//	              │                                    └▶ hedge  ▼
//	              └──────────── sleep ◀──────────────────────  budget
//
// By default cooldown and budget are on, the others off.
//
// # What is sent again
//
// By default a request is sent again when the server surely did not act on it
// (the connection could not be made, HTTP/2 refused the stream, 421, 425), or
// when it may have acted (408, 429, most 5xx, a connection that was reset, an
// attempt that timed out) and the request is idempotent: GET, HEAD, OPTIONS,
// TRACE, PUT, DELETE (RFC 9110 §9.2.2), or any with an Idempotency-Key.
// A POST is thus not sent twice unless that is harmless. classify.Refusals, as
// the rule's Classify, adds the server's own word: a 429, or a 503 that names
// a wait, was not acted on.
//
// # Request bodies
//
// A body with GetBody (net/http sets it for bytes.Reader, bytes.Buffer and
// strings.Reader) is made anew for each attempt. Some libraries have a GetBody
// that seeks one reader back and returns it each time. So, except for net/http's
// own types in memory, GetBody is called only when the old body is closed, no
// Read of it is running, the old response is discarded and the wait is over. The
// bodies that net/http takes for resends of its own are guarded in the same way.
// If GetBody then fails, the caller gets the last response if the rest of its
// body was whole within the bounds of the discard, and otherwise an [Error] that
// holds the error of GetBody and names the last status.
//
// A body without GetBody that can seek, such as an *os.File, is replayed from the
// offset at which it was handed over; it must itself be the request's Body, since
// io.NopCloser hides Seek. Of any other body the bytes that are sent are kept, up
// to Rule.Upload.Memory, and beyond that in a file, up to Rule.Upload.Disk; past both
// the request is committed to the attempt under way, and Attempt.Err says which
// limit was reached. Nothing is read ahead. Uploaders that send large parts
// without GetBody, the AWS SDK among them, want an Upload.Memory of a part's size.
//
// net/http looks at the type of a body to decide how it is written. So bodies in
// memory reach it as they are, except that the attempt's timer watches those of
// more than 64 KiB.
//
// # Response bodies
//
// A GET whose answer has a strong ETag, or else a strong Last-Modified, is not
// over with the headers: when its body is cut, the rest is asked for by Range
// and If-Range, and the reader notices nothing. Only an answer that provably is
// the rest of the same representation is used. With any other the body ends
// with the error of the cut, bare if nothing was resumed before, and otherwise in
// a [ResumeError]. Length and digest (RFC 9530), the latter also in an announced
// trailer, are checked on the way ([IntegrityError]). A body that net/http
// decompressed itself is not resumed. Rule.StallTimeout takes a silent
// connection for a cut one.
//
// # What is not counted here
//
// net/http resends by itself: an idempotent request on a kept connection that
// turned out to be closed, anything of which no byte was written, and over
// HTTP/2 up to seven times what the server refused. The attempts counted here
// are calls of the base transport, not what was on the wire.
//
// When http.Client.Timeout fires, net/http replaces the error by a text of its
// own; use a [Trace] for the history then.
package transport
