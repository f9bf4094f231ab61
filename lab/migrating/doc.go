// Package migrating has the code of docs/migrating.md: for each way to retry, the same
// program before and after the change to aplomb.
//
//	go -C lab/migrating test .            # run all of it
//	go -C lab/migrating test . -update    # write the code and the figures to the document
//
// The tests run each pair against the same faulty server, and compare what the server
// saw. They measure the behaviours that change. They compare the document with the code,
// and the names in its tables with those of the libraries.
//
// newClient makes the client of those that had none of their own.
package migrating
