// Package resume continues a response's body after its connection was cut.
//
// [Check] looks at the header of a response, and reports whether its body can be continued. A [Body]
// then stands in the place of the original body. As long as the body is whole, only its Read and its
// Close run. After a cut it plans: it makes the request for the missing bytes, and its [Fetcher]
// sends that.
//
// If the response has a strong validator, the request asks for a range. Its response is
// used only if it provably carries the missing bytes of the same representation. Otherwise the
// request is the caller's own once more. Its response is used only if it agrees with the
// first in its header and in all bytes that the reader has. If a check fails, the body
// ends with an error. No byte is delivered twice, and a body with bytes missing never
// ends cleanly.
//
// The words that the package uses:
//
//	part          the bytes that a single response adds to the body
//	cut           the end of a part before the end of the body
//	prefix        the bytes that the reader has
//	continuation  the request for the missing bytes, or for everything again, and its response
//
// The Fetcher decides when a continuation is sent. The package itself only bounds the Reads
// after a cut.
//
// The files:
//
//	plan.go      whether a body can be continued, also if it is coded, and the hash of its header
//	fields.go    the fields of a header: ranges, validators and encodings
//	body.go      the body that the caller reads
//	prefix.go    the checksum of the bytes that the reader has
//	cut.go       the request for the missing bytes, and the use of its response
//	part.go      whether a response continues the body
//	recovery.go  the state of a body after a cut, and how long a Read may take
package resume
