package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
)

const (
	quietTime = 5 * time.Second // after so long without a message, a ping tests the connection
	pongTime  = 2 * time.Second
	staleTime = 5 * time.Second // older news of a quota or an outage is dropped
)

var errSilent = errors.New("the connection for messages is silent")

// listenLoop receives messages, until Close.
func (f *Fleet) listenLoop() {
	last := ""
	for {
		var err error
		last, err = f.listen(last)
		select {
		case <-f.life.done:
			return
		default:
		}
		f.store.link.unsubscribed(err)
		select {
		case <-f.life.done:
		case <-time.After(pause()):
		}
	}
}

// An ear is the subscription of a member.
type ear struct {
	mu   sync.Mutex // guards the fields below
	node string     // of a cluster, that has the subscription
	end  func()     // ends it
}

// listen notes which node has the subscription, and what ends it.
func (e *ear) listen(node string, end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.node, e.end = node, end
}

// leave ends the subscription at a node of a cluster that was lost. Otherwise it would take
// seconds to see that no message comes from a node that stands still.
func (e *ear) leave(node string) {
	e.mu.Lock()
	end := e.end
	if node == "" || node != e.node {
		end = nil
	}
	e.mu.Unlock()
	if end != nil {
		end()
	}
}

// subscribe subscribes to the channel. All nodes of a cluster have all messages. So each member
// takes one of them at random that is not known to be lost, and another one than last time.
func (f *Fleet) subscribe(last string) (*redis.PubSub, string) {
	cluster, ok := f.store.client.(*redis.ClusterClient)
	if !ok {
		return f.store.client.Subscribe(f.store.ctx, f.store.channel), ""
	}
	var mu sync.Mutex
	var best *redis.Client
	order := 0.0 // of the best: 2 and more if it is lost, 1 and more if it is the last
	// Without any node the Subscribe below has the error.
	_ = cluster.ForEachMaster(f.store.ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		n := rand.Float64()
		if addr := node.Options().Addr; f.store.link.lost(addr) {
			n += 2
		} else if addr == last {
			n++
		}
		if best == nil || n < order {
			best, order = node, n
		}
		return nil
	})
	if best == nil {
		return f.store.client.Subscribe(f.store.ctx, f.store.channel), ""
	}
	return best.Subscribe(f.store.ctx, f.store.channel), best.Options().Addr
}

// listen receives messages until the connection fails. A new PubSub each time makes sure
// that nothing of a broken connection remains. It returns the node that it listened to, of a
// cluster.
func (f *Fleet) listen(last string) (node string, err error) {
	subscription, node := f.subscribe(last)
	f.ear.listen(node, func() { _ = subscription.Close() }) // see below
	// Close of a PubSub only says that it was closed before.
	defer func() { _ = subscription.Close() }()
	wait, pinged, joined := timeout, true, false // the first message says that the subscription is made
	for {
		v, err := subscription.ReceiveTimeout(f.store.ctx, wait)
		var n net.Error
		switch {
		case errors.As(err, &n) && n.Timeout() && !pinged:
			if err := subscription.Ping(f.store.ctx); err != nil {
				return node, err
			}
			wait, pinged = pongTime, true
			continue
		case errors.As(err, &n) && n.Timeout():
			return node, errSilent
		case err != nil:
			return node, err
		}
		wait, pinged = quietTime, false
		switch v := v.(type) {
		case *redis.Subscription:
			if err := subscription.Ping(f.store.ctx); err != nil {
				return node, err
			}
			wait, pinged = pongTime, true
		case *redis.Pong:
			if joined {
				continue
			}
			joined = true
			f.store.link.joined()
			f.meetAgain()
			// Members that joined since the last heartbeat were told to nobody here.
			f.life.beatSoon()
		case *redis.Message:
			f.receiveMessage(v.Payload)
		}
	}
}

// receiveMessage hands a message of Redis to the Transport.
func (f *Fleet) receiveMessage(text string) {
	m, err := parse(text)
	if err != nil || m.from == f.store.id {
		return
	}
	clock := f.roster.now()
	age := clock.age(m.at)
	stale := age > staleTime
	switch news := m.news; news.Kind {
	case fleetmsg.Hold:
		if news.Wait -= age; news.Wait > 0 {
			f.hearHold(news)
		}
	case fleetmsg.Quota:
		news.Wait -= age
		if !stale && news.Wait > 0 {
			f.hear(news)
		}
	case fleetmsg.Down:
		if !stale {
			f.hearDown(news.Host, news.Wait+age)
		}
	case fleetmsg.Up:
		f.news.setUp(news.Host, time.Now())
		f.hearUp(news.Host)
	case fleetmsg.Members:
		f.life.beatSoon() // Redis says how many there are
	}
}

// hearHold hands over a hold that all members know now.
func (f *Fleet) hearHold(h fleetmsg.Message) {
	now := time.Now()
	f.news.mu.Lock()
	f.rememberHold(topic{fleetmsg.Hold, h.Host, h.Scope, h.Status, ""}, h.Wait, now)
	f.news.mu.Unlock()
	f.hear(h)
}

// rememberHold remembers that all members know of a hold, so that this member need not tell it. It
// remembers nothing about hosts that this member does not use; the lock is held.
func (f *Fleet) rememberHold(t topic, wait time.Duration, now time.Time) {
	it := f.news.out.get(t)
	if it == nil {
		if f.news.met.get(t.host) == nil {
			return
		}
		if it = f.news.out.find(t, now); it == nil {
			return
		}
	}
	it.knownTo, it.forget = now.Add(wait), now.Add(remember)
}

// hearDown notes that a host is down for the fleet, and hands it over.
func (f *Fleet) hearDown(host string, lasts time.Duration) {
	f.news.setDown(host)
	f.hear(fleetmsg.Message{Kind: fleetmsg.Down, Host: host, Wait: lasts})
}

// hearUp hands over that a host works again for the fleet.
func (f *Fleet) hearUp(host string) {
	f.hear(fleetmsg.Message{Kind: fleetmsg.Up, Host: host, Wait: ledger.ReturnTime(f.roster.members())})
}

// hearHost hands over what the fleet knew of a host when it was asked, or later.
func (f *Fleet) hearHost(host string, asked time.Time, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		return
	}
	if lasts, ok := micros(v[0]); ok && lasts >= 0 {
		f.hearDown(host, lasts)
	} else {
		was := f.news.setUp(host, asked)
		// A Redis that has lost its memory knows nothing of the host. Then this process
		// finds out by itself.
		if was && lasts == -time.Microsecond {
			f.hearUp(host)
		}
	}
	holds, _ := v[1].([]any)
	for ; len(holds) >= 3; holds = holds[3:] {
		reply := fieldsOf(holds[:3])
		h := reply.hold()
		if reply.valid() && h.Wait > 0 {
			h.Host, h.Status = host, ledger.HoldStatus(h.Status)
			f.hearHold(h)
		}
	}
	quotas, _ := v[2].([]any)
	for ; len(quotas) >= 5; quotas = quotas[5:] {
		reply := fieldsOf(quotas[:5])
		q := reply.quota()
		if reply.valid() && q.Wait > 0 {
			q.Host = host
			f.hear(q)
		}
	}
}

// noteUsers notes the period in which this member was counted. It tells the Transport how
// many members use the quota, if that has changed.
func (f *Fleet) noteUsers(it *item, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		return
	}
	n, _ := v[1].(int64)
	gone, _ := v[2].(int64)
	f.store.dropped.Add(uint64(max(0, gone)))
	f.news.mu.Lock()
	if period, _ := v[0].(string); period != it.period {
		// The period may have begun earlier, so it is over by then.
		it.period, it.counted = period, time.Now().Add(min(max(ledger.MinPeriod, time.Until(it.resets)), ledger.MaxPeriod))
	}
	news := int(n) != it.members
	it.members = int(n)
	q := it.quota
	q.Wait, q.Members = time.Until(it.resets), int(n)
	f.news.mu.Unlock()
	if news && n > 0 && q.Wait > 0 {
		f.hear(q)
	}
}

// A clock estimates the time of Redis from the monotonic clock of this process and the
// heartbeats. It tells how old a message is. The time of day of this process does not
// matter.
type clock struct {
	base  time.Time // when Redis read its clock
	redis int64     // microseconds
	slack time.Duration
}

const (
	drift    = 1000 // two clocks differ by at most this part of the time between
	leastAge = 100 * time.Millisecond
)

// set notes that Redis read its clock between two times. A quick answer tells more than a slow
// one, and a new answer tells more than an old one. If they contradict each other, the clock of
// Redis has jumped, and the new answer counts. Then set returns true.
func (c *clock) set(start, end time.Time, redis int64) (jumped bool) {
	slack, at := end.Sub(start)/2, start.Add(end.Sub(start)/2)
	if !c.base.IsZero() {
		since := at.Sub(c.base)
		old := c.slack + since/drift
		off := sub(redis, c.redis) - since
		jumped = max(off, -off) > slack+old+leastAge
		if !jumped && slack > old {
			return false
		}
	}
	c.base, c.redis, c.slack = at, redis, slack
	return jumped
}

// deadline returns a time by the clock of Redis, or nothing if it is not known. Redis may be that
// late, or a little later.
func (c *clock) deadline(at time.Time) string {
	if c.base.IsZero() {
		return ""
	}
	since := at.Sub(c.base)
	return strconv.FormatInt(c.redis+(since+c.slack+since/drift).Microseconds(), 10)
}

// age returns how long ago a message was sent, at least. It returns 0 if that is less than the
// clock can tell.
func (c *clock) age(at int64) time.Duration {
	if c.base.IsZero() {
		return 0
	}
	since := time.Since(c.base)
	age := sub(c.redis, at) + since - c.slack - since/drift
	if age < leastAge || age > ledger.MaxWait {
		return 0
	}
	return age
}

// sub returns the duration between two times of Redis. It is bounded, because a message may
// have any time.
func sub(a, b int64) time.Duration {
	const most = 1 << 52
	return time.Duration(max(-most, min(a-b, most))) * time.Microsecond
}
