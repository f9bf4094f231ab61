// Package replay lets the body of a request be sent more than once.
//
// The caller of [New] hands a request's body over to a [Body]. For each attempt it
// asks for a reader with Next. Before the next attempt it takes the body back with
// TakeBack, and calls Renew just before that attempt is sent. Finish ends it all.
//
// A body is of one of three kinds:
//
//   - copies: the body is in memory, and each attempt has a copy that shares no
//     state with the others. There is nothing to wait for, to keep or to wrap.
//   - remade: the caller's GetBody makes the body anew. Two results of it may be the
//     same reader, so the old one is closed before.
//   - original: the body has no GetBody. It is sought back, or the bytes that were
//     read are kept, first in memory and then in a temporary file.
//
// Of the last two kinds, one attempt at a time has the body. A lease guards it, because
//
// base transports read and close the bodies of old attempts when they like.
//
// The package knows nothing of rules, reasons and responses. It starts no goroutine.
//
// The files:
//
//	body.go      Body, all that package transport sees
//	memory.go    which bodies share no state with their copies
//	lease.go     one goroutine at a time uses the caller's body
//	remade.go    a body that GetBody makes anew
//	original.go  a body that is sought back, or whose bytes are kept
//	buffer.go    the bytes in memory, and the pool that bounds memory and disk
//	spool.go     the bytes in a temporary file; one spool_*.go for each kind of system
package replay
