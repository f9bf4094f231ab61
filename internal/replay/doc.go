// Package replay lets the body of a request be sent more than once.
//
// The caller of [New] hands a request's body over to a [Body]. For each attempt it
// asks for a reader with Next. Before the next attempt it takes the body from the last one with
// Rewind, and calls GetBody, if that is due, just before that attempt is sent. Finish
// ends it all. A request without a body has a nil Body.
//
// There are three kinds of bodies:
//
//   - A memoryBody is in memory, and each attempt has a copy that shares no state
//     with other copies. There is nothing to wait for, to keep or to wrap.
//   - A getBodyBody is made anew by the caller's GetBody. Two results may be the
//     same reader, so the old body is closed first.
//   - A streamBody has no GetBody. It is sought back, or the bytes that were
//     read are kept in memory.
//
// A single attempt at a time has a body of the last two kinds. A lease guards it, because
// base transports read and close the bodies of old attempts when they like.
//
// The package knows nothing of rules, reasons and responses. It starts no goroutine but
// for each call of the caller's GetBody, and the timer that ends a blocked Read.
//
// The files:
//
//	body.go     Body
//	memory.go   bodies in memory, and which of them share no state with their copies
//	lease.go    a lock on the caller's body, held during a Read
//	getbody.go  a body that GetBody makes anew
//	stream.go   a body that is sought back, or whose bytes are kept
//	buffer.go   the bytes in memory, and the pool that bounds them
package replay
