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
// # Security
//
//	ACL SETUSER fleet on >secret resetkeys resetchannels -@all
//	    ~aplomb:* &aplomb:news +eval +evalsha +subscribe +ping
//	    +time +publish +get +set +pttl +pexpire
//	    +hget +hset +hdel +hlen +hexists +hgetall
//	    +zadd +zrem +zremrangebyscore +zcard
//
// The files, in the order in which news meets them:
//
//	fleet.go    Config, New, Close, and the methods that the Transport calls
//	outbox.go   news that was not sent yet
//	tell.go     sending news and heartbeats
//	ask.go      sending questions
//	link.go     whether Redis can be used, and connections to it
//	scripts.go  the scripts, which change the state inside Redis
//	message.go  the messages to all members
//	listen.go   receiving messages
package fleet
