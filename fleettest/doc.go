// Package fleettest helps to test a transport.Fleet, and code that uses one.
//
// [Memory] is a fleet within a process. [Run] runs the tests that each backend should pass:
//
//	func TestContract(t *testing.T) {
//		fleettest.Run(t, func(t *testing.T) func() transport.Fleet {
//			fleet := fleettest.NewMemory()
//			return func() transport.Fleet { return fleet.Member() }
//		})
//	}
//
// [Hang] runs those for a backend whose server or disk does not answer.
//
// The files:
//
//	contract.go  Run, and what is promised of each message
//	hang.go      Hang
//	member.go    a member that notes what it hears
//	memory.go    Memory
package fleettest
