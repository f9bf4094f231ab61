package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/ledger"
)

// The gaps between two messages of a topic, and between two heartbeats, grow with the
// fleet. So the fleet as a whole sends a bounded number of commands.
const (
	minGap    = 100 * time.Millisecond
	holdSlack = 100 * time.Millisecond // a hold that ends so little later is not told

	beatEach = 2 * time.Second
	beatMost = time.Minute
	beatSize = 5 * time.Millisecond // for each member
	tellSize = 64                   // a larger fleet learns its size by heartbeats alone

	keptHolds  = 256 // scopes of a host
	keptQuotas = 256
)

// tellLoop sends the news and the heartbeats, until Close.
func (f *Fleet) tellLoop() {
	defer f.stop()
	beat := time.Now()
	for {
		if now := time.Now(); f.beatNow.Swap(false) || !now.Before(beat) {
			beat = now.Add(f.beat(f.ctx))
		}
		f.tellSize()
		if f.tell(f.ctx, time.Now()) {
			continue
		}
		if f.link.lost() && time.Until(beat) > 2*retryEach {
			beat = time.Now().Add(pause())
		}
		timer := time.NewTimer(time.Until(f.wakeTime(beat)))
		select {
		case <-timer.C:
		case <-f.wake:
		case <-f.done:
			timer.Stop()
			f.leave()
			return
		}
		timer.Stop()
	}
}

// wakeTime returns when there is something to do, if nothing else happens.
func (f *Fleet) wakeTime(beat time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next, ok := f.out.next(); ok && next.Before(beat) {
		return next
	}
	return beat
}

// beat sends a heartbeat, and returns the time until the next. While Redis is away, it is
// the only command that is sent.
func (f *Fleet) beat(ctx context.Context) time.Duration {
	every := min(max(beatEach, time.Duration(f.size.Load())*beatSize), beatMost)
	start := time.Now()
	replies := f.run(ctx, []command{f.beatCommand(3*every + time.Second)})
	n, at, err := beatReply(replies[0])
	if err != nil {
		return pause()
	}
	if f.link.good() {
		f.resync()
	}
	f.mu.Lock()
	f.clock.set(start, time.Now(), at)
	f.mu.Unlock()
	f.setSize(n, at)
	return every*4/5 + rand.N(every*2/5)
}

// setSize notes the number of members that Redis said at a time by its clock. The reply
// to a heartbeat and a message may overtake each other. So an older number counts only if
// it is so much older that the clock must have gone back.
func (f *Fleet) setSize(n int, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at >= f.sized || f.sized-at > staleTime.Microseconds() {
		f.sized = at
		f.size.Store(int64(n))
	}
}

func (f *Fleet) beatCommand(life time.Duration) command {
	return command{beatScript, []string{f.prefix + ":{members}"}, []any{life.Microseconds(), tellSize}}
}

func beatReply(r *redis.Cmd) (n int, at int64, err error) {
	v, err := r.Slice()
	if err != nil || len(v) != 2 {
		return 0, 0, errors.Join(err, errMessage)
	}
	size, _ := v[0].(int64)
	text, _ := v[1].(string)
	at, err = strconv.ParseInt(text, 10, 64)
	return int(min(size, maxSize)), at, err
}

// leave sends what is still to be sent, and says that this member ends.
func (f *Fleet) leave() {
	for f.tell(f.ctx, time.Now().Add(maxWait)) {
	}
	if !f.link.lost() {
		f.run(f.ctx, []command{f.beatCommand(0)})
	}
}

// tellSize tells the Transport the size of the fleet, if the size is new.
func (f *Fleet) tellSize() {
	p := f.member.Load()
	n := int(f.size.Load())
	if p == nil || n == 0 || f.share&Size == 0 {
		return
	}
	f.mu.Lock()
	news := n != f.told
	f.told = n
	f.mu.Unlock()
	if news {
		(*p).Size(n)
	}
}

// tell sends the news that is due at a time. It returns false if there was none.
func (f *Fleet) tell(ctx context.Context, due time.Time) bool {
	f.mu.Lock()
	if f.link.lost() {
		f.dropped.Add(uint64(f.out.drop()))
		f.mu.Unlock()
		return false
	}
	now := time.Now()
	items := f.out.take(due, f.link.batch())
	commands := make([]command, 0, len(items))
	for _, it := range items {
		commands = append(commands, f.commandOf(it, now))
	}
	f.mu.Unlock()
	if len(items) == 0 {
		return false
	}
	replies := f.run(ctx, commands)
	for i, it := range items {
		f.answered(it, replies[i])
	}
	return true
}

// commandOf returns the command that tells the news of an item. The caller holds the lock.
func (f *Fleet) commandOf(it *item, now time.Time) command {
	key := []string{f.keyOf(it.host, "gate")}
	switch it.kind {
	case meet:
		return command{meetScript, []string{key[0], f.keyOf(it.host, "holds"), f.keyOf(it.host, "quotas")}, nil}
	case hold:
		wait := max(0, it.until.Sub(now))
		it.sent = it.until
		return command{holdScript, []string{f.keyOf(it.host, "holds")},
			[]any{it.host, hex(it.scope), it.status, wait.Microseconds(), f.gap(hold).Microseconds(), keptHolds}}
	case quota:
		return command{quotaScript, []string{f.keyOf(it.host, "quotas")},
			[]any{it.host, hex(it.scope), it.quota.Remaining, it.quota.Limit, max(1, it.resets.Sub(now).Microseconds()),
				it.period, f.gap(quota).Microseconds(), keptQuotas}}
	case failing:
		return command{failingScript, key, []any{it.host, it.failures, now.Sub(it.since).Microseconds(), f.members()}}
	case working:
		return command{workingScript, key, []any{it.host}}
	default:
		return command{probeFailedScript, key, []any{it.host}}
	}
}

// answered notes that the news of an item was sent, and hands the reply to the Transport.
func (f *Fleet) answered(it *item, r *redis.Cmd) {
	now := time.Now()
	f.mu.Lock()
	f.out.done(it, now, f.gap(it.kind))
	if it.kind == hold && r.Err() == nil {
		it.knownTo = it.sent
	}
	f.mu.Unlock()
	if r.Err() != nil {
		return
	}
	switch it.kind {
	case meet:
		f.fetched(it.host, r)
	case quota:
		f.counted(it, r)
	case failing:
		if v, err := r.Slice(); err == nil && len(v) == 2 {
			if since, ok := micros(v[1]); ok && since >= 0 {
				f.isDown(it.host, since)
			}
		}
	}
}

// gap returns the least time between two messages of this member about a topic.
func (f *Fleet) gap(k kind) time.Duration {
	n := time.Duration(f.members())
	switch k {
	case hold:
		return max(minGap, n*time.Millisecond)
	case quota:
		return max(minGap, n*2*time.Millisecond)
	case failing:
		// At random, so that many members that fail at the same moment do not report
		// again at the same moment.
		return 2*minGap + rand.N(max(1, n*5*time.Millisecond))
	}
	return minGap
}

func (f *Fleet) members() int { return max(1, int(f.size.Load())) }

// returnTime is the time within which the members return to a host.
func (f *Fleet) returnTime() time.Duration {
	if f.spread == 0 {
		return ledger.Spread(f.members())
	}
	return max(0, f.spread)
}

// run sends commands in a round trip. The replies have the errors. An error means that
// Redis is lost.
func (f *Fleet) run(ctx context.Context, commands []command) []*redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replies := make([]*redis.Cmd, len(commands))
	pipe := f.client.Pipeline()
	for i, c := range commands {
		replies[i] = c.script.EvalSha(ctx, pipe, c.keys, f.args(c)...)
	}
	f.exec(ctx, pipe, replies)
	var again []*redis.Cmd
	pipe = f.client.Pipeline()
	for i, c := range commands {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			replies[i] = c.script.Eval(ctx, pipe, c.keys, f.args(c)...)
			again = append(again, replies[i])
		}
	}
	if len(again) > 0 {
		f.exec(ctx, pipe, again)
	}
	f.judge(replies)
	return replies
}

// exec sends a pipeline. If there is no connection, not every reply gets the error from
// go-redis.
func (f *Fleet) exec(ctx context.Context, pipe redis.Pipeliner, replies []*redis.Cmd) {
	f.commands.Add(uint64(len(replies)))
	if _, err := pipe.Exec(ctx); err != nil {
		for _, r := range replies {
			if r.Err() != nil {
				return
			}
		}
		for _, r := range replies {
			r.SetErr(err)
		}
	}
}

func (f *Fleet) args(c command) []any { return append([]any{"", f.id, f.channel}, c.args...) }

// judge tells the link how the commands went.
func (f *Fleet) judge(replies []*redis.Cmd) {
	var err error
	for _, r := range replies {
		if r.Err() != nil {
			f.failed.Add(1)
			err = r.Err()
		}
	}
	if err != nil && f.ctx.Err() == nil { // else Close has ended the connection
		f.link.failed(err, false)
		f.nudge()
	}
}

// resync asks again about the hosts that were met, because news may have been lost. In a
// large fleet the members do this at random times.
func (f *Fleet) resync() {
	if !f.link.connected() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	within := min(time.Duration(f.members())*time.Millisecond, 10*time.Second)
	for host := range f.met {
		if it := f.out.find(topic{kind: meet, host: host}, now); it != nil && !f.closed {
			f.out.push(it, now.Add(rand.N(within)))
		}
	}
	f.nudge()
}

func hex(n uint64) string { return strconv.FormatUint(n, 16) }

// micros reads a duration in microseconds from a reply.
func micros(v any) (time.Duration, bool) {
	s, ok := v.(string)
	n, err := strconv.ParseFloat(s, 64)
	if !ok || err != nil || n > float64(maxWait.Microseconds()) || n < -float64(maxWait.Microseconds()) {
		return 0, false
	}
	return time.Duration(n * float64(time.Microsecond)), true
}
