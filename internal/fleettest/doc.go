// Package fleettest helps to test fleets and Transports that are members of a fleet.
//
// [Memory] is a fleet within a process. [Run] runs the tests that each backend should pass:
//
//	func TestContract(t *testing.T) {
//		fleettest.Run(t, func(t *testing.T) func() fleettest.Fleet {
//			fleet := fleettest.NewMemory()
//			return func() fleettest.Fleet { return fleet.Member() }
//		})
//	}
//
// [Hang] runs those for a backend whose server does not answer.
//
// Some points about a backend are easy to miss. News goes into a bounded queue, because Tell
// must not wait for the network, and newer news of the same host and scope replaces older
// news. Answers to AskTokens come before other news, because a member waits for
// 10 ms only, or a little longer at the start. Messages carry durations and no times of
// day. Everything that a backend keeps needs an expiry. A unit is any text of up to 64 bytes.
//
// The files:
//
//	contract.go  Run, and the promises about each message (outage.go: about outages, tokens.go: about rates)
//	hang.go      Hang
//	member.go    a member that notes the messages that it hears
//	memory.go    Memory
package fleettest
