// Package classify says whether a server acted on an HTTP request, and how long it
// asked to wait, by the response or the error. It states facts and decides nothing.
// Package policy describes what to do about them, and package transport does it.
//
// A [Func] looks at an [Outcome] and returns a [Class]. A verdict is about
// the server, not about retrying. There are four:
//
//   - [Unknown]: this classifier has no opinion, so the next classifier is asked.
//   - [Final]: the caller gets this outcome.
//   - [Refused]: the server did not act on the request, so any request may be
//     sent again.
//   - [Ambiguous]: the server may have acted on the request, so only an
//     idempotent request may be sent again.
//
// The user therefore never has to say which methods may be retried after which
// status.
//
// The wait that the server asked for is a second fact. A [Hint] reads it.
//
// To write rules for a host, combine classifiers with [First]:
//
//	classify.First(
//		classify.OnStatus(classify.Refused, http.StatusLocked),
//		classify.OnBodyText(classify.Ambiguous, "try again"),
//		classify.Default,
//	)
//
// The files, in the order in which an outcome meets them:
//
//	outcome.go     what one attempt returned
//	peek.go        reads the beginning of a body without taking it from the reader
//	events.go      the first event of an event stream
//	verdict.go     the four verdicts, and classifiers made of smaller classifiers
//	default.go     Default and Refusals, the verdicts for plain HTTP
//	kind.go        the kinds of errors, by type (errno.go: by number)
//	text.go        the few errors that only their text tells apart
//	text_http3.go  the same for HTTP/3
//	idempotent.go  whether a request may be sent twice
//	signals.go     header fields and texts that forbid or ask for a retry
//	hint.go        hints made of smaller hints
//	retryafter.go  Retry-After, in all its forms
//	ratelimit.go   RateLimit fields and their older relatives
//	quotafields.go the fields that name quotas
//	structured.go  structured fields, the syntax of RateLimit
//	provider.go    the hints of single providers
//
// Everything in this package is a pure function or a plain value and is safe
// for concurrent use. Nothing that a server sends makes it panic.
package classify
