// Package resume continues a response's body after its connection was cut.
//
// [Check] reports whether a body can be continued at all, and how. [Body.Wrap] then puts
// a Body in the place of the original body. When the connection breaks, the Body sends a
// request through its [Sender].
//
// If the response has a strong validator, the request asks for the rest. Its response is
// used only if it provably carries the rest of the same representation. Otherwise the
// request is the caller's own once more. Its response is used only if it agrees with the
// first in its header and in all bytes that the reader has. If a check fails, the body
// ends with an error. No byte is delivered twice, and a body with bytes missing never
// ends cleanly.
//
// The words that the package uses:
//
//	segment    the bytes that a single response adds to the body
//	cut        the end of a segment before the end of the body
//	rest       the bytes that are missing after a cut
//	prefix     the bytes that the reader has
//	reconnect  the attempt to get the rest, or everything again
//
// The Sender decides when a reconnect is sent. The package itself only bounds the Reads
// after a cut.
//
// The files:
//
//	check.go      whether a body can be continued, and whether a response continues it
//	range.go      the fields of a header: ranges, validators and encodings
//	stream.go     responses that are streams
//	prefix.go     the hash of the bytes that the reader has
//	header.go     the hash of the header, and the fields that are not in it
//	body.go       the body that the caller reads
//	reconnect.go  the request for the rest, or for everything again
//	wait.go       how long a Read may take after a cut
package resume
