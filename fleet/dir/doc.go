// Package dir is a fleet of the processes of one machine, by way of a directory. It needs no
// server.
//
//	f, err := dir.New(dir.Config{Path: "/var/lib/worker/fleet"})
//	defer f.Close()
//	tr, err := transport.New(transport.Config{Fleet: f})
//
// The members of the fleet are the processes that use the same directory: the workers of a
// prefork server, cron jobs, command-line tools. They share what the members of any fleet
// share (see module fleet). A hold or a quota also outlives the process that was told.
//
// # How it works
//
// A host has a file with what the fleet knows of it, by the rules of package internal/ledger.
// A change reads the file, writes a new one and renames it, under a lock for the directory.
// The lock is a file that is never renamed or removed. Its content is the number of hosts that
// have a file. A single goroutine of a Fleet touches the files. The first request to a host
// waits until its file is read, and a response with a hold until the hold is written.
//
// While a process uses a host, and for 10 s after that, it looks every 25 ms whether the file
// has changed. At other times it touches no file. So a process that was idle hears of a hold
// 25 ms after it begins to send again.
//
// # Failures
//
// A request waits for 10 ms at most. Then it goes on with its own knowledge, and the process
// tries to tell its news for 5 s more. If the disk stands still, no further request waits until
// it has answered. A process waits for the lock for 10 ms. So a process that was stopped or
// killed while it had the lock holds up nobody. If a question for tokens is not answered, the
// process sends its part of the rate, and these tokens are taken from the rate afterwards. A
// file that cannot be read, is malformed or comes from the future counts as not there, and so
// does a full disk. Everything expires. Files that are over are removed. There are 1024 files of
// hosts at most, and those that were changed longest ago make room.
//
// Times in the files are those of the system's clock. If it jumps forward, holds end early.
// If it jumps back by more than a second, what was known before is forgotten.
//
// A folder or a key that is gone is noticed within 2 s of use. The members make it anew with
// the key that they have.
//
// # Security
//
// The files are in the folder aplomb-fleet of the directory. Both have the mode 0700. New
// refuses a directory that others can write, because whoever can write it can slow the members
// down. It opens the folder once, so a part of the path can be swapped without an effect. No
// link is followed, and nothing is opened but regular files. The directory must be on a local
// disk, because locks and renames of network file systems do not suffice. The files have the
// names of hosts, and credentials only as an HMAC-SHA256. Its key is random and in the folder.
// A system that cannot lock files, such as js/wasm, shares nothing.
//
// The files of the package:
//
//	dir.go     Config, New, Close, and what the Transport tells and asks
//	poll.go    the goroutine that touches the files, and what others wrote
//	hosts.go   the bound of the files, and the removal of those that are over
//	files.go   the folder, the key, the files and the lock
//	lock_*.go  what differs from system to system
package dir
