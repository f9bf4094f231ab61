// Package simulate plays random stories in virtual time to find defects that no
// other test looks for.
//
// A seed decides a story. A story has hosts, each with a random rule and a
// changing mood. It has callers with every bad habit that callers have. Its
// base transport has every bad habit of servers, networks and base transports.
//
// Oracles judge the story by what the server saw and what the callers got.
// There is at least one oracle for each promise of CONTRIBUTING.md that can be
// observed from outside. The oracles use no code of the packages under test to
// judge.
//
//	make simulate SEEDS=1000           # stories 1 to 1000
//	make simulate SEED=42 TIMES=20     # one story, again and again
//
// The seed does not decide everything. Goroutines run in any order, and the
// Transport has a jitter of its own. But each host, caller and attempt has its
// own dice. A story therefore stays nearly the same from run to run, and also
// if callers are left out of it. This is used to shorten a bad story before it
// is printed.
//
// The files, in the order in which a story uses them:
//
//	dice.go        random choices that depend on the seed alone
//	plan.go        the choices of a seed before time begins
//	rule.go        random rules
//	world.go       a running story and its record
//	caller.go      a caller and its request
//	reqbody.go     request bodies
//	base.go        the base transport
//	script.go      how one attempt is going to end
//	fault.go       the errors of attempts
//	hint.go        the waits that servers ask for
//	resource.go    the representations of a server
//	respbody.go    response bodies
//	logger.go      a log that is searched for secrets
//	oracle.go      the promises
//	check_call.go  checks when an attempt arrives and when a call returns
//	check_end.go   checks at the end of the story
//
// sabotage_test.go shows that each oracle complains if its promise is broken.
package simulate
