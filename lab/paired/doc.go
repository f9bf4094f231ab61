// Package paired plays the same random story twice in virtual time, over net/http alone and over
// aplomb, and compares what the callers get. What is on by default, and what a profile or a
// profile turns on, must never be worse than net/http alone.
//
//	make never-worse SEEDS=1000            # stories 1 to 1000
//	make never-worse SEED=42               # one story
//	make never-worse SEEDS=5000 ONLY=queue # only the stories of one theme
//
// A seed draws a world and its callers. The world has hosts with routes, limits, workers, slow
// reports, documents, streams and connections. Each play has servers, a network in memory and
// real http.Transports of its own. net/http alone is a Clone of http.DefaultTransport, in which only
// DialContext, Proxy, TLSClientConfig and Protocols belong to the world. aplomb has its default base
// there with all its own values, and with its own dialer, which gets the world's name server and network.
//
// What becomes of an arrival is drawn by its call and by how many arrivals the call had before.
// So a fate does not depend on the order of other requests. Faults of connections are triggered
// by the time, or by the arrival of a named call.
//
// # The judge
//
//  1. If net/http gave its caller a good answer, so does aplomb, with the same status, and not
//     later than judge.go allows for one request, for half of them, and at p99. A good answer is
//     whole, and README's table does not retry its status. If a rule gives attempts a timeout, net/http
//     has the same timeout and one attempt.
//  2. If net/http failed, the caller of aplomb has the final outcome within the schedule of
//     retries, and within 10 s after the last byte of a cut body.
//  3. What is delivered is one response.
//  4. Extra arrivals are retries of failures, within the budget, and the servers do the same
//     useful work.
//  5. A POST is acted upon no more often than over net/http.
//  6. The hosts that are well get no more connections, but for two or a tenth.
//
// If arrivals affect each other, as in queues and limits, the calls of a route and tenant are
// compared by count and quantile. Then net/http also plays with aplomb's extra arrivals at their
// times, and with other starts, and the worst of these plays is the reference. Attempts that never
// had a connection are among them, because they hold a place of MaxConnsPerHost.
//
// # Chance
//
// A client with a violation is played six times more, with starts that are up to 5 ms later. Beside
// each of these plays net/http plays with the same starts and the client's extra arrivals. Counts,
// quantiles and the useful work are compared with all plays of net/http, and more than half of the six
// plays have to be worse than each of these. A smaller part is chance: which request finds
// something left of a quota, or a worker that is free, changes with each start. Such a story is printed
// as chance, and the requests that its clause has judged count as excused. Any other violation is
// one, however few replays show it.
//
// The worlds don't leave to chance what it cannot decide for both. The requests that come over a
// connection of HTTP/2 behind one that gets GOAWAY are no arrivals, because net/http sends them again.
//
// A run prints the first story of each kind of violation, how many of the six replays show it,
// and how many requests each clause has judged, healed and excused.
//
// The files, in the order in which a story uses them:
//
//	plan.go    the choices of a seed, and texts
//	theme.go   the kinds of worlds
//	fate.go    what becomes of an arrival
//	kind.go    the clients: net/http alone, and aplomb
//	world.go   a play: servers, network, clock
//	wire.go    connections over a middlebox
//	answer.go  the servers
//	caller.go  the callers
//	judge.go   the judge
//	story.go   the plays of a plan
//
// sabotage_test.go shows that the judge sees clients that misbehave, and blames neither net/http nor
// a client that retries with measure. ITSELF=3000 plays more stories for that:
//
//	APLOMB_ITSELF=3000 go -C lab test -run 'TestItself|TestHonest' ./paired
package paired
