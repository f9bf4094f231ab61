// Package resume continues a response's body after its connection was cut.
//
// [Check] reports whether a body can be resumed at all. [Body.Wrap] then puts a
// Body in the place of the original body. When the connection breaks, the Body
// sends a request for the rest through its [Sender]. It uses the response only if
// the response provably carries the rest of the same representation. Otherwise
// the body ends with an error. No byte is delivered twice, and a body with bytes
// missing never ends cleanly.
//
// The words that the package uses:
//
//	segment    the bytes that a single response adds to the body
//	cut        the end of a segment before the end of the body
//	rest       the bytes that are missing after a cut
//	reconnect  the attempt to get the rest
//
// The package does not sleep and does not read a clock. The Sender decides when a
// reconnect is sent.
//
// The files:
//
//	check.go      whether a body can be resumed, and whether a response continues it
//	range.go      Content-Range, validators and encodings
//	digest.go     digests in headers and trailers
//	body.go       the body that the caller reads
//	reconnect.go  the request for the rest
//	writeto.go    WriteTo, for a base transport whose bodies have it
package resume
