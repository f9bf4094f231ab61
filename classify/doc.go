// Package classify answers one question about a finished attempt to send an
// HTTP request: what happened? It states facts and decides nothing; what to do
// about them is package policy's question, and doing it is package transport's.
//
// A [Func] looks at an [Outcome] and gives a [Verdict]. There are four, and
// they are about the server, not about retrying:
//
//   - [Unknown]: this classifier has no opinion, ask the next one.
//   - [Final]: the caller should have this outcome.
//   - [Refused]: the server did not act on the request, so that any request may
//     be sent again.
//   - [Ambiguous]: the server may have acted, so that only an idempotent
//     request may be sent again.
//
// Which methods go with which statuses is thereby never left to the user.
//
// How long the server asked to wait is a second fact, read by a [Hint].
//
// The files, in the order in which an outcome meets them:
//
//	outcome.go     what a finished attempt left
//	peek.go        a look at its body that takes nothing from the reader
//	verdict.go     the four verdicts, and classifiers made of smaller ones
//	default.go     Default and Refusals, the verdicts for plain HTTP
//	kind.go        what sort of error this is, by type (errno.go: by number)
//	text.go        the few errors that only their text tells apart
//	text_http3.go  the same for HTTP/3
//	idempotent.go  may this request be sent twice?
//	signals.go     servers' own words about sending again
//	hint.go        how long the server asked to wait
//	retryafter.go  Retry-After, in all its forms
//	ratelimit.go   RateLimit fields and their older relatives
//	structured.go  the grammar that RateLimit is written in
//	provider.go    how single providers name a wait
//
// Everything in this package is a pure function or a plain value, safe for
// concurrent use. Nothing panics on what a server sent.
package classify
