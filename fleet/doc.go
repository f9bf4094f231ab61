// Package fleet lets the Transports of several processes behave like one client, by way
// of Redis.
//
//	f, err := fleet.New(fleet.Config{
//		Redis: &redis.UniversalOptions{Addrs: []string{"redis.internal:6379"}},
//		Key:   key,
//	})
//	defer f.Close()
//	tr, err := transport.New(transport.Config{Fleet: f})
//
// # What is shared
//
// The members of a fleet are the processes that use the same Redis and the same Prefix.
// They share:
//
//   - the waits that servers ask for
//   - the quotas that servers name
//   - that a host is down, and the return after a success
//   - the tokens of Rule.RateLimit
//   - the number of members
//
// The rule of a host decides which of these. News about a setting that is off has no effect.
//
// Rule.Concurrency is not shared. The
// retry budget is not shared, but its floor is divided by the number of members.
//
// # How it works
//
// The state of a host is in a few keys in Redis. Scripts change it, by the rules of package
// internal/ledger and by the clock of Redis. They publish news on one channel. All
// members get all news. Each key of a host has the host in braces, so that Redis Cluster
// keeps them together.
//
// News of a Transport goes into an outbox in memory. Newer news of the same
// host and scope replaces older news. The first goes at once, the next after 100 ms
// or, in a large fleet, later, but after 10 s at most. News is not sent if all members know
// it. The outbox has 4096 places each for holds, for quotas, for the news of outages and for
// questions about new hosts. A host gets 1024 places for its holds, and as many for its
// quotas. If there is no place, the oldest topic makes room that has no news to be sent. Else
// the news is dropped, as is a question if too many wait, and the Logger gets a line.
//
// # Failures of Redis
//
// A Transport waits 10 ms for tokens at most, in the 250 ms after its first question for some
// until their end. The first 250 ms are a
// second if there is a connection to Redis, which may be slow to answer many processes that start
// together. Nothing else waits for Redis. A command takes a second at most. If a command fails, Redis counts as lost. News
// and questions are dropped then. A heartbeat every second finds out when Redis is back. Then
// the process asks again about up to 1024 hosts that it used, all members together 500 times
// per second, or within 10 minutes. In a Redis Cluster this holds for each node alone, so the
// hosts of the other nodes are shared as before. An error about the keys of a host is no lost
// Redis. If somebody else has written such a key, the scripts forget it.
//
// The Logger gets one log line when Redis is lost, or can't be used for its password, its
// rights or another reason, and one when it is back. The first has the error. No wrong
// clock of a process has any effect, because no time of day is used.
//
// # Sizing
//
// A process has two connections, and a third while it asks for tokens. It sends
// a heartbeat every 2 s, and when another member comes or goes. All heartbeats together are 200
// per second at most.
// A healthy host without a rate costs one command, when the process first uses it. A rate
// costs up to 10 commands per second, process and host.
//
// All keys expire. A host takes up to 0.7 KiB, and 30 KiB more if 256 of its scopes have
// holds and quotas. No more of them are kept.
//
// # Security
//
// The members trust each other, and Redis. Keys and messages contain the names of hosts,
// and credentials only as an HMAC-SHA256 with Config.Key. The user in Redis needs these
// rights:
//
//	ACL SETUSER fleet on >secret resetkeys resetchannels -@all
//	    ~aplomb:* &aplomb:news +eval +evalsha +subscribe +ping
//	    +time +publish +get +set +pttl +pexpire
//	    +hget +hset +hdel +hlen +hgetall
//	    +zadd +zrem +zremrangebyscore +zcard
//
// The document docs/fleet.md says when a fleet is needed. lab/fleet/README.md has measured
// figures.
//
// The files, in the order in which news meets them:
//
//	fleet.go    Config, New, Close, and what the Transport tells and asks
//	outbox.go   news that was not sent yet
//	lru.go      the hosts that this member uses
//	tell.go     sending news and heartbeats
//	ask.go      sending questions
//	roster.go   how many members there are
//	store.go    the commands, and the node that each goes to
//	link.go     whether Redis can be used, and connections to it
//	replies.go  the bounds of what Redis replies
//	secrets.go  the hash of credentials, and what is not printed
//	journal.go  the log
//	scripts.go  the scripts, which change the state inside Redis
//	message.go  the messages to all members
//	listen.go   receiving messages
package fleet
