// Package classify says whether a server acted on an HTTP request, and how long it
// asked to wait, by the response or the error. It states facts and decides nothing.
// Package policy describes what to do about them, and package transport does it.
//
// A [Func] looks at an [Outcome] and returns a [Class]. A class is about
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
// The wait that the server asked for is a second fact. A [RetryAfterFunc] reads it.
//
// To write rules for a host, combine classifiers with [First]:
//
//	classify.First(
//		classify.OnStatus(classify.Refused, http.StatusLocked),
//		classify.OnBody(classify.Ambiguous, "try again"),
//		classify.Default,
//	)
//
// The files, in the order in which an outcome meets them:
//
//	class.go       what one attempt returned, the four classes, and classifiers made of smaller classifiers
//	default.go     Default and Refusals, the classes for plain HTTP, and whether a request may be sent twice
//	kind.go        the types of errors (errno.go: by number)
//	text.go        the few errors that only their text tells apart
//	text_http3.go  the same for HTTP/3
//	retryafter.go  RetryAfter, functions made of smaller functions, and what else forbids or asks for a retry
//
// Everything in this package is a pure function or a plain value and is safe
// for concurrent use. Nothing that a server sends makes it panic.
package classify
