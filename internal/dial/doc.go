// Package dial connects to the addresses of a name in an order of its own. Package
// net dials them one after the other, and gives each a part of the time that the
// dial may take. With the usual 30 s a request gives up before the second address
// has its turn. Here the next address gets its turn after 250 ms, or when an address
// fails. Addresses that failed lately come last.
//
// The files, in the order in which a dial meets them:
//
//	dial.go    a Dialer, and which transports can have one
//	lookup.go  the addresses of a name
//	order.go   the order of the addresses
//	race.go    one address after the other, until one connects
//	memory.go  what is known of a name: its addresses, and which of them failed lately
package dial
