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
// The stories have a script of their own and not the steps of package faults. An attempt here
// draws an outcome, a fate of its request's body and an end of its response's body
// at the same time. Its outcomes break the contract of http.RoundTripper as well, which package
// faults keeps: they panic, end the goroutine, or return a response and an error. The script
// also says whether the server acted, which the oracles have to know.
//
// The hosts have no connections. Package paired has them, and judges what the callers of a host
// notice of each other.
//
// In every fifth story or so, the callers belong to several Transports, which are a fleet. They
// are spread over processes that die, with and without a word, stand still for a while and go
// on, or come later. Each process has a network of its own to the backend of the fleet, which
// is fleettest.Memory. The network delays, loses, doubles and reorders messages, and is away for
// some time or always. The backend may forget everything, and some members hear lies. Members
// of a calm fleet have none of this, so the oracles are stricter with them.
//
// Most of the fleets have a scene: a host of their own with a crowd of callers who come at regular
// times. It is well, has a rate that is shared or far away, an outage, members that it refuses while
// it serves others, or a wait that it tells all of them.
//
// In every seventh story or so, some rules have a Cost.
//
//	make simulate SEEDS=1000                 # stories 1 to 1000
//	make simulate SEED=42 TIMES=20           # one story, again and again
//	make simulate SEEDS=5000 ONLY=fleets     # only the stories of fleets
//
// The first bad story of each kind is printed, and at the end the seeds of all kinds. A long
// range of seeds is played fastest in one process for each core, with GOMAXPROCS=1 and
// GOGC=400 in the environment of make simulate.
//
// The seed does not decide everything. Goroutines run in any order, and the
// Transport has a jitter of its own. But each host, caller and attempt has its
// own dice. A story therefore stays nearly the same from run to run, and also
// if callers are left out of it. This is used to shorten a bad story before it
// is printed.
//
// The files, in the order in which a story uses them:
//
//	plan.go         the choices of a seed before time begins
//	rule.go         random rules
//	cost.go         rates that count costs, and their checks
//	fleet.go        the processes of a fleet, and what happens to them
//	world.go        a running story, its record, and a log that is searched for secrets
//	link.go         the network between a member and its fleet
//	caller.go       a caller and its request
//	reqbody.go      request bodies
//	base.go         the base transport
//	script.go       how one attempt is going to end, and the errors of attempts
//	scene.go        a crowd for each member of a fleet
//	hint.go         the waits that servers ask for
//	resource.go     the representations of a server, and their bytes
//	respbody.go     response bodies
//	oracle.go       the promises
//	check_call.go   checks when an attempt arrives and when a call returns, and of hedges
//	check_end.go    checks at the end of the story
//	check_idle.go   the check of waits for a host that has nothing to do
//	check_fleet.go  the checks of fleets
//
// sabotage_test.go shows that each oracle complains if its promise is broken.
package simulate
