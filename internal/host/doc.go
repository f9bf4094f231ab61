// Package host keeps a Transport's knowledge about each host. The states of the
// hosts are in a bounded table. A request on its first try reads its state without
// a lock, a clock or an allocation.
//
// Nothing in this package sleeps, starts a goroutine or reads a clock. A method
// takes now and answers go or wait until. Only the Transport waits. So a
// simulation can drive the same machines in virtual time.
//
// Each machine is a package of its own. This package finds the machines of a host. The
// files and the packages, in the order in which a request meets them:
//
//	key.go       the key of a request's host
//	table.go     the state of that host, found without a lock, and eviction
//	state.go     the state and its machines
//	pool         over which connections its attempts go
//	throttle     which requests wait after a server said "try later", and how they return
//	pacing       the server's quota, spread over its window
//	rate         how many requests per second this client may send, alone or in a fleet
//	concurrency  how many requests may be in flight
//	latency      how long responses took lately
//	line         which attempt may go, and in which order the others wait
//	budget       how many retries the requests, the time and the successes have earned
//	outage       whether the host is down, and when a request probes it
//	news         which changes of the others were told
//
// Only outage says that a host fails. The line, the circuit breaker, the news and a fleet take its word. A pool
// that is left, and an address that comes last, are no more notions of that: they say that some connections fail.
//
// They stand on two packages. The package instant has points in time. The package queue has
// the queues in which requests wait, the answers of the machines, the order of the locks,
// and which scope makes room for another. The package hosttest has a clock for the tests.
//
//	instant ◀── queue ◀── news, throttle, pacing, concurrency
//	   ▲                                               │
//	   ├── rate ◀──────────────────────────────────────┘
//	   ├── outage ◀── budget ◀── line, which stands on queue, too
//	   └── pool
package host
