package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A store is Redis, as the member reaches it: the names of its keys, the commands, and how they go.
type store struct {
	client  redis.UniversalClient
	prefix  string
	channel string
	id      string // of this member, hexadecimal
	journal journal
	link    link
	ctx     context.Context
	stop    context.CancelFunc // ends every connection
	onLoss  func(node string)  // is called after a command that failed
	onReach func()             // is called when a connection is made

	mu      sync.Mutex // guards refused
	refused rarely     // log lines about hosts whose news Redis refuses

	commands, failed, dropped atomic.Uint64
}

// open makes a client, which does not wait for Redis.
func (s *store) open(c Config) {
	s.prefix = cmp.Or(c.Prefix, "aplomb")
	s.channel = channelOf(s.prefix, c.Redis.DB)
	s.id = strconv.FormatInt(1+rand.Int64N(1<<63-1), 16)
	s.journal.logger = c.Logger
	s.ctx, s.stop = context.WithCancel(context.Background())
	options, hidden := withoutSecrets(*c.Redis)
	s.client = newClient(s.ctx, options, func() { s.onReach() })
	_, cluster := s.client.(*redis.ClusterClient)
	s.link = link{journal: &s.journal, hidden: hidden, cluster: cluster}
}

var errLost = errors.New("the node of the host is lost")

// run sends commands in a round trip. The replies have the errors. Commands for different
// nodes go separately, so that a node that does not answer spoils no reply of another. A
// command about a host is not sent if its node is lost.
func (s *store) run(ctx context.Context, commands []command) []*redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make([]*redis.Cmd, len(commands))
	nodes := map[string][]int{}
	for i, c := range commands {
		node := s.nodeOf(ctx, c)
		if c.host != "" && s.link.lost(node) {
			replies[i] = redis.NewCmd(ctx)
			replies[i].SetErr(errLost)
			s.dropped.Add(1)
			continue
		}
		nodes[node] = append(nodes[node], i)
	}
	var group sync.WaitGroup
	for node, list := range nodes {
		send := func() { s.runAt(ctx, node, commands, list, replies) }
		if len(nodes) == 1 {
			send()
		} else {
			group.Go(send)
		}
	}
	group.Wait()
	return replies
}

// runAt sends those commands of a list that go to a node.
func (s *store) runAt(ctx context.Context, node string, commands []command, list []int, replies []*redis.Cmd) {
	pipe := s.client.Pipeline()
	sent := make([]*redis.Cmd, 0, len(list))
	for _, i := range list {
		replies[i] = commands[i].script.EvalSha(ctx, pipe, commands[i].keys, s.args(commands[i])...)
		sent = append(sent, replies[i])
	}
	s.exec(ctx, pipe, sent)
	sent = sent[:0]
	pipe = s.client.Pipeline()
	for _, i := range list {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			replies[i] = commands[i].script.Eval(ctx, pipe, commands[i].keys, s.args(commands[i])...)
			sent = append(sent, replies[i])
		}
	}
	if len(sent) > 0 {
		s.exec(ctx, pipe, sent)
	}
	for _, i := range list {
		s.judge(node, commands[i].host, replies[i].Err())
	}
}

// exec sends a pipeline. If there is no connection, not every reply gets the error from
// go-redis.
func (s *store) exec(ctx context.Context, pipe redis.Pipeliner, replies []*redis.Cmd) {
	s.commands.Add(uint64(len(replies)))
	failed := func(r *redis.Cmd) bool { return r.Err() != nil }
	if _, err := pipe.Exec(ctx); err != nil && !slices.ContainsFunc(replies, failed) {
		for _, r := range replies {
			r.SetErr(err)
		}
	}
}

func (s *store) args(c command) []any { return append([]any{"", s.id, s.channel}, c.args...) }

// judge tells the link how a command went. The host is empty for a heartbeat.
func (s *store) judge(node, host string, err error) {
	if err == nil {
		return
	}
	s.failed.Add(1)
	switch {
	case s.ctx.Err() != nil: // Close has ended the connection
	case host != "" && aboutAHost(err):
		s.mu.Lock()
		n := s.refused.pass(time.Now())
		s.mu.Unlock()
		if n > 0 {
			s.journal.add(slog.LevelWarn, "fleet: Redis refuses the news of a host", "refused", n, "host", host, "error", s.link.hidden.reason(err))
		}
	default:
		s.link.failed(err, node, host)
		s.onLoss(node)
	}
}

// nodeOf returns the node of a command's keys, and "" for a single server. It waits for the
// network only as long as no node of a cluster has said who has which keys.
func (s *store) nodeOf(ctx context.Context, c command) string {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	node, err := cluster.MasterForKey(ctx, c.keys[0])
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// askForNodes asks a cluster who has which keys, because a replica may have become a master.
// It does not wait for the answer.
func (s *store) askForNodes(ctx context.Context) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// keyOf returns a key of a host. The braces make Redis Cluster keep all keys of a host at
// one node, so that a script can use several of them.
func (s *store) keyOf(host, what string) string { return s.prefix + ":{" + host + "}:" + what }

// channelOf returns the name of the channel. Channels do not belong to a database, so the
// name has its number. Otherwise members of two databases would hear each other.
func channelOf(prefix string, db int) string {
	if db == 0 {
		return prefix + ":news"
	}
	return prefix + ":news:" + strconv.Itoa(db)
}
