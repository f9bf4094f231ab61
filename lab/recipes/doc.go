// Package recipes has the code of docs/recipes.md.
//
//	go -C lab test ./recipes            # compares the document with the code
//	go -C lab test ./recipes -update    # writes code, lines and figures to the document
//
// The tests run each recipe in virtual time against a server with faults, and show what the
// log says. They compare the document with the code, with these lines, and with the figures
// of latency_test.go.
package recipes
