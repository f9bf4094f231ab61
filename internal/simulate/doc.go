// Package simulate plays stories in virtual time to find what the other tests
// do not think of. A seed decides a story: hosts with a random rule each and a
// changing mood, callers with all bad habits that callers have, and a base
// transport with all bad habits that servers, networks and base transports
// have. Oracles, one or more for each promise of CONTRIBUTING.md that can be
// seen from outside, judge it by what the server saw and by what the callers
// got. They know nothing of the code under test.
//
//	make simulate SEEDS=1000           # stories 1 to 1000
//	make simulate SEED=42 TIMES=20     # one story, again and again
//
// The seed does not decide everything: goroutines run in any order, and the
// Transport has a jitter of its own. The choices of each host, caller and send
// have dice of their own, though, so that a story stays nearly the same from run
// to run, and also if callers are left out of it. That is how a bad story is
// made short before it is printed.
//
// The files, in the order in which a story uses them:
//
//	dice.go        choices that depend on the seed alone
//	plan.go        what a seed decides before time begins
//	rule.go        a rule at random
//	world.go       a story under way, and what is written down of it
//	caller.go      a caller and its request
//	reqbody.go     the request's body
//	base.go        how a send goes
//	script.go      what becomes of it
//	fault.go       by which error
//	hint.go        when the server wants to see the client again
//	resource.go    what the server has
//	respbody.go    the answer's body
//	logger.go      a log that is searched for secrets
//	oracle.go      the promises
//	check_call.go  those that are judged when a request arrives or returns
//	check_end.go   those that are judged when all is over
//
// sabotage_test.go shows that each oracle complains when its promise is broken.
package simulate
