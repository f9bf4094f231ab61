package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

// The gaps between two messages of a topic, and between two heartbeats, grow with the
// fleet. So the fleet as a whole sends a bounded number of commands.
const (
	minGap = 100 * time.Millisecond
	maxGap = 10 * time.Second // however many members there are said to be

	beatEach = 2 * time.Second
	beatMost = time.Minute
	beatSize = 5 * time.Millisecond // for each member
	tellSize = 64                   // a larger fleet learns its size by heartbeats alone

	meetEach = 2 * time.Millisecond // for each member and host that it asks again about
	meetMost = 10 * time.Minute     // what Redis knows of a host may be over then
)

// tellLoop sends the news, until Close.
func (f *Fleet) tellLoop() {
	defer close(f.life.told)
	for {
		f.tellSize()
		if f.sendNews(f.store.ctx, time.Now()) {
			continue
		}
		select {
		case <-time.After(time.Until(f.wakeTime())):
		case <-f.life.wake:
		case <-f.life.done:
			for f.sendNews(f.store.ctx, time.Now().Add(ledger.MaxWait)) { // what is still to be sent
			}
			return
		}
	}
}

// wakeTime returns when there is something to do, if nothing else happens.
func (f *Fleet) wakeTime() time.Time {
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	if next, ok := f.news.out.next(); ok {
		return next
	}
	return time.Now().Add(beatMost)
}

// beatLoop sends the heartbeats, until Close. It has a goroutine of its own, so that a node
// that does not answer the heartbeat does not hold up the news for other nodes.
func (f *Fleet) beatLoop() {
	defer f.store.stop()
	var due, soonest time.Time // of the next heartbeat
	for {
		if f.life.beatNow.Swap(false) && soonest.Before(due) {
			due = soonest
		}
		if !time.Now().Before(due) {
			wait := f.sendHeartbeat(f.store.ctx)
			due, soonest = time.Now().Add(wait), time.Now().Add(f.roster.beatGap())
		}
		if f.store.link.faulty() && time.Until(due) > 2*retryEach {
			due = time.Now().Add(pause())
		}
		select {
		case <-time.After(time.Until(due)):
		case <-f.life.early:
		case <-f.life.done:
			<-f.life.told
			f.life.left = f.sendLeave()
			return
		}
	}
}

// sendHeartbeat sends a heartbeat, and returns the time until the next. It also tries the nodes that
// are lost. While all of Redis is away, nothing else is sent.
func (f *Fleet) sendHeartbeat(ctx context.Context) time.Duration {
	var tries sync.WaitGroup
	defer tries.Wait()
	for node, host := range f.store.link.toTry() {
		tries.Go(func() { f.tryNode(ctx, node, host) })
	}
	every := f.roster.beatEvery()
	start := time.Now()
	replies := f.store.run(ctx, []command{f.beatCommand(3*every + time.Second)})
	n, at, keys, err := beatReply(replies[0])
	if err != nil {
		f.store.askForNodes(ctx)
		return pause()
	}
	beaten := time.Now()
	f.roster.beaten.Store(&beaten)
	if f.store.link.good() {
		f.meetAgain()
	}
	if f.roster.setClock(start, time.Now(), at) {
		f.meetAgain() // messages may have been taken for old ones
	}
	f.roster.setSize(n, f.store.link.breaks())
	if f.roster.setKeys(keys) {
		f.store.journal.add(slog.LevelWarn, "fleet: members have different values of Key, so they do not share holds and quotas of requests with credentials",
			"keys", keys, "key_of_this_member", f.keyID())
	}
	nudge(f.life.wake)
	return every*4/5 + rand.N(every*2/5)
}

// tryNode asks a node that was lost about a host. If the host has moved to another node, the
// next command about it tells how that node is.
func (f *Fleet) tryNode(ctx context.Context, node, host string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := f.meetCommand(host)
	if f.store.nodeOf(ctx, c) == node {
		replies := make([]*redis.Cmd, 1)
		f.store.runAt(ctx, node, []command{c}, []int{0}, replies)
		if err := replies[0].Err(); err != nil && !aboutAHost(err) {
			f.store.askForNodes(ctx)
			return
		}
	}
	f.store.link.served(node)
	f.meetAgain()
}

// keyID returns a number by which members see that their keys differ. It is short, so that it
// helps little to guess the Key.
func (f *Fleet) keyID() string {
	return hex(uint64(binary.BigEndian.Uint32(f.hash("the key of a fleet"))))
}

func (f *Fleet) beatCommand(life time.Duration) command {
	key := f.store.prefix + ":{members}"
	proves := life > 0 && f.store.link.faulty()
	return command{beatScript, "", []string{key, key + ":keys", key + ":proof"}, []any{life.Microseconds(), tellSize, f.keyID(), proves}}
}

func beatReply(r *redis.Cmd) (n int, at, keys int64, err error) {
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		return 0, 0, 0, errors.Join(err, errMessage)
	}
	size, _ := v[0].(int64)
	text, _ := v[1].(string)
	keys, _ = v[2].(int64)
	at, err = strconv.ParseInt(text, 10, 64)
	return int(max(0, min(size, maxSize))), at, keys, err
}

// sendLeave says that this member ends. It reports whether Redis has taken that.
func (f *Fleet) sendLeave() bool {
	c := f.beatCommand(0)
	return !f.store.link.lost(f.store.nodeOf(f.store.ctx, c)) && f.store.run(f.store.ctx, []command{c})[0].Err() == nil
}

// tellSize tells the Transport the size of the fleet, if the size is new.
func (f *Fleet) tellSize() {
	if f.member.Load() == nil {
		return
	}
	f.roster.telling.Lock()
	defer f.roster.telling.Unlock()
	if n, news := f.roster.toTell(); news {
		f.hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: n})
	}
}

// sendNews sends the news that is due at a time. It returns false if there was none. News for a
// node that is lost is dropped.
func (f *Fleet) sendNews(ctx context.Context, due time.Time) bool {
	f.news.mu.Lock()
	if f.store.link.lost("") {
		f.store.dropped.Add(uint64(f.news.out.drop()))
		f.news.mu.Unlock()
		return false
	}
	now := time.Now()
	items := f.news.out.take(due, f.store.link.batch())
	commands := make([]command, 0, len(items))
	for _, it := range items {
		commands = append(commands, f.commandOf(it, now))
	}
	f.news.mu.Unlock()
	if len(items) == 0 {
		return false
	}
	replies := f.store.run(ctx, commands)
	for i, it := range items {
		f.noteSent(it, now, replies[i])
	}
	return true
}

// commandOf returns the command that tells the news of an item; the lock is held.
func (f *Fleet) commandOf(it *item, now time.Time) command {
	key := []string{f.store.keyOf(it.host, "outage")}
	switch it.kind {
	case fleetmsg.Meet:
		return f.meetCommand(it.host)
	case fleetmsg.Hold:
		it.sent = it.until
		return command{holdScript, it.host, []string{f.store.keyOf(it.host, "holds")},
			[]any{it.host, hex(it.scope), it.status, max(1, it.until.Sub(now).Microseconds()), f.gap(fleetmsg.Hold).Microseconds(), ledger.MaxScopes}}
	case fleetmsg.Quota:
		return command{quotaScript, it.host, []string{f.store.keyOf(it.host, "quotas")},
			[]any{it.host, scopeText(it.scope, it.unit), int64(it.quota.Amount), int64(it.quota.Limit), max(1, it.resets.Sub(now).Microseconds()),
				it.period, f.gap(fleetmsg.Quota).Microseconds(), ledger.MaxScopes}}
	case fleetmsg.Failing:
		return command{failingScript, it.host, key, []any{it.host, it.failures, now.Sub(it.since).Microseconds(), f.roster.members()}}
	case fleetmsg.Working:
		return command{workingScript, it.host, key, []any{it.host}}
	default: // Unused
		return command{unusedScript, it.host, []string{f.store.keyOf(it.host, rateOf(it.quota))}, bucketArgs(it.quota)}
	}
}

func (f *Fleet) meetCommand(host string) command {
	return command{meetScript, host, []string{f.store.keyOf(host, "outage"), f.store.keyOf(host, "holds"), f.store.keyOf(host, "quotas")}, nil}
}

// noteSent notes that the news of an item was sent at a time, and hands the reply to the Transport.
func (f *Fleet) noteSent(it *item, sent time.Time, r *redis.Cmd) {
	now := time.Now()
	f.news.mu.Lock()
	f.news.out.done(it, now, f.gap(it.kind))
	if it.kind == fleetmsg.Hold && r.Err() == nil {
		it.knownTo, it.forget = it.sent, now.Add(remember)
	}
	f.news.mu.Unlock()
	if r.Err() != nil {
		return
	}
	switch it.kind {
	case fleetmsg.Hold:
		if n, err := r.Int(); err == nil {
			f.store.dropped.Add(uint64(max(0, n-1)))
		}
	case fleetmsg.Meet:
		f.hearHost(it.host, sent, r)
	case fleetmsg.Quota:
		f.noteUsers(it, r)
	case fleetmsg.Failing:
		if v, err := r.Slice(); err == nil && len(v) == 2 {
			if lasts, ok := micros(v[1]); ok && lasts >= 0 {
				f.hearDown(it.host, lasts)
			}
		}
	}
}

// gap returns the least time between two messages of this member about a topic.
func (f *Fleet) gap(k fleetmsg.Kind) time.Duration {
	n := time.Duration(f.roster.members())
	switch k {
	case fleetmsg.Hold:
		return min(max(minGap, n*time.Millisecond), maxGap)
	case fleetmsg.Quota:
		return min(max(minGap, n*2*time.Millisecond), maxGap)
	case fleetmsg.Failing:
		// At random, so that many members that fail at the same moment do not report
		// again at the same moment.
		return 2*minGap + rand.N(min(max(1, n*5*time.Millisecond), maxGap))
	}
	return minGap
}

// meetAgain asks again about the hosts that were met, because news may have been lost. The
// members do this at random times, so that a slow Redis is not lost once more.
func (f *Fleet) meetAgain() {
	if !f.store.link.usable() {
		return
	}
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	now := time.Now()
	within := min(time.Duration(f.roster.members()*len(f.news.met.at))*meetEach, meetMost)
	for host := range f.news.met.at {
		if it := f.news.out.find(topic{kind: fleetmsg.Meet, host: host}, now); it != nil && !f.news.closed {
			f.news.out.push(it, now.Add(rand.N(within)))
		}
	}
	nudge(f.life.wake)
}

func hex(n uint64) string { return strconv.FormatUint(n, 16) }

// micros reads a duration in microseconds from a reply.
func micros(v any) (time.Duration, bool) {
	s, ok := v.(string)
	n, err := strconv.ParseFloat(s, 64)
	if !ok || err != nil || !(math.Abs(n) <= float64(ledger.MaxWait.Microseconds())) { // it may be no number
		return 0, false
	}
	return time.Duration(n * float64(time.Microsecond)), true
}
