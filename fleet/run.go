package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var errLost = errors.New("the node of the host is lost")

// run sends commands in a round trip. The replies have the errors. Commands for different
// nodes go separately, so that a node that does not answer spoils no reply of another. A
// command about a host is not sent if its node is lost.
func (f *Fleet) run(ctx context.Context, commands []command) []*redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make([]*redis.Cmd, len(commands))
	nodes := map[string][]int{}
	for i, c := range commands {
		node := f.nodeOf(ctx, c)
		if c.host != "" && f.link.lost(node) {
			replies[i] = redis.NewCmd(ctx)
			replies[i].SetErr(errLost)
			f.dropped.Add(1)
			continue
		}
		nodes[node] = append(nodes[node], i)
	}
	var group sync.WaitGroup
	for node, list := range nodes {
		send := func() { f.runAt(ctx, node, commands, list, replies) }
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
func (f *Fleet) runAt(ctx context.Context, node string, commands []command, list []int, replies []*redis.Cmd) {
	pipe := f.client.Pipeline()
	sent := make([]*redis.Cmd, 0, len(list))
	for _, i := range list {
		replies[i] = commands[i].script.EvalSha(ctx, pipe, commands[i].keys, f.args(commands[i])...)
		sent = append(sent, replies[i])
	}
	f.exec(ctx, pipe, sent)
	sent = sent[:0]
	pipe = f.client.Pipeline()
	for _, i := range list {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			replies[i] = commands[i].script.Eval(ctx, pipe, commands[i].keys, f.args(commands[i])...)
			sent = append(sent, replies[i])
		}
	}
	if len(sent) > 0 {
		f.exec(ctx, pipe, sent)
	}
	for _, i := range list {
		f.judge(node, commands[i].host, replies[i].Err())
	}
}

// exec sends a pipeline. If there is no connection, not every reply gets the error from
// go-redis.
func (f *Fleet) exec(ctx context.Context, pipe redis.Pipeliner, replies []*redis.Cmd) {
	f.commands.Add(uint64(len(replies)))
	failed := func(r *redis.Cmd) bool { return r.Err() != nil }
	if _, err := pipe.Exec(ctx); err != nil && !slices.ContainsFunc(replies, failed) {
		for _, r := range replies {
			r.SetErr(err)
		}
	}
}

func (f *Fleet) args(c command) []any { return append([]any{"", f.id, f.channel}, c.args...) }

// judge tells the link how a command went. The host is empty for a heartbeat.
func (f *Fleet) judge(node, host string, err error) {
	if err == nil {
		return
	}
	f.failed.Add(1)
	switch {
	case f.ctx.Err() != nil: // Close has ended the connection
	case host != "" && aboutAHost(err):
		f.mu.Lock()
		n := f.refuse.pass(time.Now())
		f.mu.Unlock()
		if n > 0 {
			f.journal.add(slog.LevelWarn, "fleet: Redis refuses the news of a host", "refused", n, "host", host, "err", f.link.hidden.reason(err))
		}
	default:
		f.link.failed(err, node, host)
		nudge(f.wake)
		nudge(f.early)
		f.listenElsewhere(node)
	}
}

// listenElsewhere ends the subscription at a node of a cluster that was lost. Otherwise it would
// take seconds to see that no message comes from a node that stands still.
func (f *Fleet) listenElsewhere(node string) {
	f.mu.Lock()
	unlisten := f.unlisten
	if node == "" || node != f.heardAt {
		unlisten = nil
	}
	f.mu.Unlock()
	if unlisten != nil {
		unlisten()
	}
}

// nodeOf returns the node of a command's keys, and "" for a single server. It waits for the
// network only as long as no node of a cluster has said who has which keys.
func (f *Fleet) nodeOf(ctx context.Context, c command) string {
	cluster, ok := f.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	node, err := cluster.MasterForKey(ctx, c.keys[0])
	if err != nil {
		return ""
	}
	return node.Options().Addr
}
