// Package host keeps what a Transport knows about each host it talks to, in a
// table that is bounded and that a request on its first try reads without a
// lock, a clock or an allocation.
//
// Nothing here sleeps, starts a goroutine or reads a clock: a method takes now
// and answers grant, wait until, or refuse. Only the transport's loop waits.
// The same machines can therefore be driven by a simulation in virtual time.
//
// The files:
//
//	key.go       which host is this request for?
//	table.go     the state of that host, found without a lock; eviction
//	state.go     what is kept per host
//	wait.go      how a request waits its turn when no machine sleeps
//	scope.go     whose requests are these? the credentials, as a hash
//	cooldown.go  the server said "try later": who waits, and how do they return?
//	pacing.go    the server's own quota, spread over its window
//	rate.go      how many requests per second may this client send?
//	gate.go      how many may be in flight?
//	latency.go   how long do answers take, lately?
//	budget.go    may one more retry be sent?
package host
