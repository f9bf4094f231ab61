// Package host keeps what a Transport knows about each host. The states of the
// hosts are in a bounded table. A request on its first try reads its state without
// a lock, a clock or an allocation.
//
// Nothing in this package sleeps, starts a goroutine or reads a clock. A method
// takes now and answers go, wait until, or refuse. Only the Transport waits. So a
// simulation can drive the same machines in virtual time.
//
// The files, in the order in which a request meets them:
//
//	instant/       the type of a point in time
//	key.go         the key of a request's host
//	table.go       the state of that host, found without a lock, and eviction
//	state.go       the state and its machines
//	lane/          over which connections its attempts go
//	queue/         how requests wait, and the machines' answers
//	scope.go       the scope of a request: its credentials, as a hash
//	cooldown/      which requests wait after a server said "try later", and how they return
//	pacing/        the server's quota, spread over its window
//	gate/          how many requests may be in flight: slots and the queue
//	rate/          how many requests per second this client may send
//	latency/       how long responses took lately
//	budget/        whether another retry may be sent
package host
