package fleet

import (
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/transport"
)

const (
	quietTime = 5 * time.Second // after so long without a message, a ping tests the connection
	pongTime  = 2 * time.Second
	staleTime = 5 * time.Second // older news of a quota or an outage is dropped
)

var errSilent = errors.New("the connection for messages is silent")

// listenLoop receives messages, until Close.
func (f *Fleet) listenLoop() {
	for {
		err := f.listen()
		select {
		case <-f.done:
			return
		default:
		}
		f.link.failed(err, true)
		timer := time.NewTimer(pause())
		select {
		case <-f.done:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// listen receives messages until the connection fails. A new PubSub each time makes sure
// that nothing of a broken connection remains.
func (f *Fleet) listen() error {
	subscription := f.client.Subscribe(f.ctx, f.channel)
	// Close of a PubSub only says that it was closed before.
	defer func() { _ = subscription.Close() }()
	wait, pinged := timeout, true // the first message says that the subscription is made
	for {
		v, err := subscription.ReceiveTimeout(f.ctx, wait)
		var n net.Error
		switch {
		case errors.As(err, &n) && n.Timeout() && !pinged:
			if err := subscription.Ping(f.ctx); err != nil {
				return err
			}
			wait, pinged = pongTime, true
			continue
		case errors.As(err, &n) && n.Timeout():
			return errSilent
		case err != nil:
			return err
		}
		wait, pinged = quietTime, false
		switch v := v.(type) {
		case *redis.Subscription:
			f.link.joined()
			f.resync()
			// Members that joined since the last heartbeat were told to nobody here.
			f.beatNow.Store(true)
			f.nudge()
		case *redis.Message:
			f.hear(v.Payload)
		}
	}
}

// hear hands a message to the Transport.
func (f *Fleet) hear(text string) {
	f.messages.Add(1)
	m, err := parse(text)
	if err != nil || m.from == f.id {
		return
	}
	f.mu.Lock()
	age := f.clock.age(m.at)
	f.mu.Unlock()
	stale := age > staleTime
	switch m.kind {
	case 'h':
		if m.hold.Wait > 0 {
			m.hold.Wait -= age
			if m.hold.Wait <= 0 {
				return
			}
		}
		f.heldBy(m.hold)
	case 'q':
		m.quota.Reset -= age
		if f.share&Quotas != 0 && !stale && m.quota.Reset > 0 {
			f.peer().Quota(m.quota)
		}
	case 'd':
		if !stale {
			f.isDown(m.host, m.since+age)
		}
	case 'u':
		if f.share&Probes != 0 {
			f.mu.Lock()
			delete(f.down, m.host)
			f.mu.Unlock()
			f.peer().Up(m.host, f.returnTime())
		}
	case 's':
		if m.size > 0 && !stale {
			f.setSize(m.size, m.at)
			f.nudge()
		}
	}
}

// heldBy hands over a hold that all members know now.
func (f *Fleet) heldBy(h transport.FleetHold) {
	if f.share&Holds == 0 {
		return
	}
	now := time.Now()
	f.mu.Lock()
	if it := f.out.find(topic{hold, h.Host, h.Scope, h.Status}, now); it != nil {
		it.knownTo = now.Add(h.Wait)
		if h.Wait == 0 {
			it.knownTo = time.Time{}
		}
	}
	f.mu.Unlock()
	f.peer().Hold(h)
}

// isDown says that a host is down for the fleet.
func (f *Fleet) isDown(host string, since time.Duration) {
	if f.share&Probes == 0 {
		return
	}
	f.mu.Lock()
	if len(f.down) >= maxMet {
		clear(f.down)
	}
	f.down[host] = time.Now()
	f.mu.Unlock()
	f.peer().Down(host, since)
}

// fetched hands over what the fleet knows of a host.
func (f *Fleet) fetched(host string, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 3 {
		return
	}
	switch since, ok := micros(v[0]); {
	case ok && since >= 0:
		f.isDown(host, since)
	default:
		f.mu.Lock()
		_, was := f.down[host]
		delete(f.down, host)
		f.mu.Unlock()
		// A Redis that has lost its memory knows nothing of the host. Then this process
		// finds out by itself.
		if was && since == -time.Microsecond {
			f.peer().Up(host, f.returnTime())
		}
	}
	holds, _ := v[1].([]any)
	for ; len(holds) >= 3; holds = holds[3:] {
		fields := reader{v: holds}
		h := transport.FleetHold{Host: host, Scope: fields.hex(0), Status: int(fields.number(1)), Wait: fields.duration(2)}
		if !fields.bad && h.Wait > 0 {
			h.Status = holdStatus(h.Status)
			f.heldBy(h)
		}
	}
	quotas, _ := v[2].([]any)
	for ; len(quotas) >= 5; quotas = quotas[5:] {
		fields := reader{v: quotas}
		q := transport.FleetQuota{Host: host, Scope: fields.hex(0), Remaining: fields.number(1), Limit: fields.number(2),
			Reset: fields.duration(3), Members: int(fields.number(4))}
		if !fields.bad && f.share&Quotas != 0 && q.Reset > 0 {
			f.peer().Quota(q)
		}
	}
}

// counted notes the period in which this member was counted. It tells the Transport how
// many members use the quota, if that has changed.
func (f *Fleet) counted(it *item, r *redis.Cmd) {
	v, err := r.Slice()
	if err != nil || len(v) != 2 {
		return
	}
	n, _ := v[1].(int64)
	f.mu.Lock()
	it.period, _ = v[0].(string)
	news := int(n) != it.members
	it.members = int(n)
	q := it.quota
	q.Reset, q.Members = time.Until(it.resets), int(n)
	f.mu.Unlock()
	if news && n > 0 && q.Reset > 0 {
		f.peer().Quota(q)
	}
}

// reader reads the fields of a reply.
type reader struct {
	v   []any
	bad bool
}

func (r *reader) fields(i int) fields {
	s, _ := r.v[i].(string)
	return fields{rest: s}
}

func (r *reader) hex(i int) uint64 {
	f := r.fields(i)
	n := f.hex()
	r.bad = r.bad || f.bad
	return n
}

func (r *reader) number(i int) int64 {
	f := r.fields(i)
	n := f.number(1 << 62)
	r.bad = r.bad || f.bad
	return n
}

func (r *reader) duration(i int) time.Duration {
	f := r.fields(i)
	d := f.duration()
	r.bad = r.bad || f.bad
	return d
}

// A clock estimates the time of Redis from the monotonic clock of this process and the
// last heartbeat. It tells how old a message is. The time of day of this process does not
// matter.
type clock struct {
	base  time.Time // when Redis read its clock
	redis int64     // microseconds
}

// set notes that Redis read its clock between two times. A slow answer tells little.
func (c *clock) set(start, end time.Time, redis int64) {
	if took := end.Sub(start); took < 100*time.Millisecond || c.base.IsZero() {
		c.base, c.redis = start.Add(took/2), redis
	}
}

// age returns how long ago a message was sent. It returns 0 if that is less than the
// clock can tell.
func (c *clock) age(at int64) time.Duration {
	if c.base.IsZero() {
		return 0
	}
	age := time.Duration(c.redis-at)*time.Microsecond + time.Since(c.base)
	if age < 100*time.Millisecond || age > maxWait {
		return 0
	}
	return age
}
