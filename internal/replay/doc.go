// Package replay lets the body of a request be sent more than once.
//
// Nobody but this package reads the caller's body. An attempt gets a reader of
// its own, and only the reader of the latest attempt delivers bytes. A body is
// sent again in one of these ways:
//
//   - A body in memory that net/http made shares nothing with its copies. Each
//     attempt has a copy, and nothing is wrapped.
//   - A body with a GetBody of the caller's own is made anew by GetBody.
//   - A body with a Seek method goes back to where it was handed over.
//   - Of any other body, the bytes that are read are kept, first in memory and
//     then in a temporary file.
//
// The files:
//
//	body.go    Body, the part that package transport sees
//	memory.go  which bodies share no state with each other
//	source.go  who may read a body now, and how it is produced again
//	buffer.go  the bytes that are kept in memory, and the pool that bounds them
//	spool.go   the temporary file, with one file for each kind of system
package replay
