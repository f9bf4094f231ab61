// Package resume continues a response body whose connection was cut.
//
// The transport asks [Check] whether a response can be continued and wraps its
// body in a [Body]. When the connection breaks, the Body sends a request for the
// rest through its [Sender], and appends a response only if that response
// provably carries the rest of the same representation.
//
// The files:
//
//	body.go    the body that the caller reads, and its reconnects
//	check.go   can a response be continued, and does another one continue it?
//	range.go   Content-Range and validators
//	digest.go  digests in headers and trailers
package resume
