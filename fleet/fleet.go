package fleet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/ledger"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/transport"
)

// The bounds of a Fleet. See the package comment.
const (
	maxItems = 4096 // topics in each tray of the outbox
	maxScope = 1024 // holds of a host in the outbox, and as many quotas
	maxAsks  = 256  // questions that wait to be sent
	maxMet   = 1024 // hosts in an lru; those that were met are asked about again after an interruption
	maxBatch = 64   // commands in a round trip

	timeout  = time.Second            // of a command
	askLife  = time.Second            // an older question is not sent, because no Transport waits for longer
	leaving  = 500 * time.Millisecond // Close waits so long for the last news
	remember = time.Minute            // a hold that others know is told again after it
	minKey   = 16
	maxName  = 64 // bytes of the prefix
	downTime = 10 * time.Second
)

// Config configures a Fleet.
type Config struct {
	// Redis says where Redis is: a server, a cluster (several Addrs or IsClusterMode), or
	// a master that sentinels know (MasterName). Addrs are host:port, or paths of sockets.
	// They, the credentials, TLSConfig, DB, Dialer, OnConnect and the fields of clusters and
	// sentinels count. The Fleet makes a client of its own from them, with its own timeouts,
	// without retries, with two connections and a third for messages. Close closes it.
	// Required.
	Redis *redis.UniversalOptions

	// Key is the secret for the hash of credentials. All members need the same Key, or
	// they do not share the holds and quotas of requests with credentials. It has at
	// least 16 bytes, and they should be random, for instance the output of
	// "openssl rand -hex 32". Required.
	Key []byte

	// Prefix begins all keys in Redis and names the channel. Fleets with different
	// prefixes or in different databases share nothing. It has 1 to 64 bytes, without
	// spaces, control characters and braces. Default "aplomb".
	Prefix string

	// Logger gets a log line when Redis is lost or can't be used, and another when it is back.
	// It gets one per minute at most if news or questions are dropped because there are too
	// many, or if Redis refuses the news of a host. It gets one if another member has another
	// Key. A handler that blocks holds up nothing but the log. Default none.
	Logger *slog.Logger
}

// A Fleet is a transport.Fleet over Redis. It serves a single Transport, whose Snapshot says
// how it is. It is safe for
// concurrent use. Make it with New, and call Close at the end.
type Fleet struct {
	hash   hash                                   // of credentials
	member atomic.Pointer[func(fleetmsg.Message)] // the Transport that it serves
	store  store                                  // Redis
	roster roster                                 // the members
	news   news                                   // what is told, and what this member knows
	desk   desk                                   // what it asks
	ear    ear                                    // where it hears
	life   life                                   // its goroutines
}

// A desk has the questions that wait to be sent.
type desk struct {
	asks    chan ask
	buckets buckets // belongs to the goroutine that asks
}

// A life has the goroutines of a Fleet, and what wakes them.
type life struct {
	beatNow atomic.Bool   // the next heartbeat should come soon
	early   chan struct{} // there may be a reason for an early heartbeat
	wake    chan struct{} // there may be news to send, or a reason to do something else
	done    chan struct{} // closed by Close
	told    chan struct{} // closed when the last news is sent
	left    bool          // Redis has heard that this member leaves. The goroutine of the heartbeats sets it at its end
	group   sync.WaitGroup
}

// beatSoon lets the next heartbeat go as soon as the gap allows.
func (l *life) beatSoon() {
	l.beatNow.Store(true)
	nudge(l.early)
}

var _ transport.Fleet = (*Fleet)(nil)

var errNotMade = errors.New("fleet: a zero Fleet; make one with New")

// New returns a Fleet. The error names all faults of the Config. New does not wait for
// Redis, and it succeeds while Redis is away.
func New(c Config) (*Fleet, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f := &Fleet{
		hash: newHash(c.Key),
		news: news{out: newOutbox(), met: lru{at: map[string]*list.Element{}}},
		desk: desk{asks: make(chan ask, maxAsks), buckets: buckets{}},
		life: life{early: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{}), told: make(chan struct{})},
	}
	f.store.open(c)
	f.store.onReach = func() {
		f.roster.reach()
		f.tellSize()
	}
	f.store.onLoss = func(node string) {
		nudge(f.life.wake)
		nudge(f.life.early)
		f.ear.leave(node)
	}
	f.life.group.Go(f.listenLoop)
	f.life.group.Go(f.askLoop)
	f.life.group.Go(f.tellLoop)
	f.life.group.Go(f.beatLoop)
	return f, nil
}

func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("fleet: "+format, args...)) }
	switch {
	case c.Redis == nil:
		fault("Redis is nil")
	case len(c.Redis.Addrs) == 0:
		fault("Redis.Addrs is empty")
	default:
		for i, addr := range c.Redis.Addrs {
			if !isAddress(addr) { // and may have a password
				fault("Redis.Addrs[%d] is neither host:port nor the path of a socket", i)
			}
		}
	}
	if len(c.Key) < minKey {
		fault("Key has %d bytes, and needs at least %d", len(c.Key), minKey)
	}
	if len(c.Prefix) > maxName || strings.ContainsAny(c.Prefix, "{}") || c.Prefix != "" && !validHost(c.Prefix) {
		fault("Prefix %q has more than %d bytes, or a space, a control character or a brace", c.Prefix, maxName)
	}
	return errors.Join(faults...)
}

// isAddress reports whether a text can be the address of a server. A URL can't.
func isAddress(text string) bool {
	if strings.HasPrefix(text, "/") {
		return !strings.Contains(text, "@")
	}
	host, name, err := net.SplitHostPort(text)
	if err != nil || strings.ContainsAny(host, "@/ ") {
		return false
	}
	port, err := net.LookupPort("tcp", name)
	return err == nil && port > 0
}

// Close gives back the tokens of rates that this member has not used, sends the last news, leaves
// the fleet, and ends all goroutines and connections.
// It takes half a second at most if Redis or the Logger does not answer. Later calls of any
// method do nothing. The Transport can be used on. It goes on with its own knowledge, and with its
// part of each rate and of the budget's floor. The error says that Redis did not answer.
func (f *Fleet) Close() error {
	if f.life.done == nil {
		return errNotMade
	}
	f.hear(fleetmsg.Message{Kind: fleetmsg.Leave})
	first := f.news.close()
	ctx, cancel := context.WithTimeout(context.Background(), leaving)
	defer cancel()
	if first {
		close(f.life.done)
		defer context.AfterFunc(ctx, f.store.stop)()
	}
	f.life.group.Wait()
	if first {
		f.store.journal.close(ctx)
		f.store.stop()
		// The error says that the client is closed, or is about a connection that is
		// being closed. Neither is of use to the caller.
		_ = f.store.client.Close()
		if !f.life.left {
			return errors.New("fleet: Redis did not answer at the end, so the other members wait for what this member took")
		}
	}
	return nil
}

// Link connects the Transport. New of package transport calls it.
func (f *Fleet) Link() fleetlink.Fleet {
	return (&member.Backend{Join: f.join, Tell: f.tell, Scope: f.hash.scope, State: f.state}).Link()
}

// join makes a Transport the member.
func (f *Fleet) join(hear func(fleetmsg.Message)) error {
	if f.life.done == nil {
		return errNotMade
	}
	if !f.member.CompareAndSwap(nil, &hear) {
		return errors.New("fleet: a Fleet serves a single Transport, and this Fleet has another already")
	}
	// If the first heartbeat was faster, the goroutine that sends the heartbeats tells the
	// member the size.
	nudge(f.life.wake)
	return nil
}

// hear hands a message to the Transport, if one has joined.
func (f *Fleet) hear(m fleetmsg.Message) {
	if hear := f.member.Load(); hear != nil {
		(*hear)(m)
	}
}

// tell takes news and questions.
func (f *Fleet) tell(m fleetmsg.Message) {
	if !validHost(m.Host) || !ledger.Valid(m) {
		return
	}
	if m.Kind == fleetmsg.AskTokens {
		f.putQuestion(m)
		return
	}
	f.news.mu.Lock()
	defer f.news.mu.Unlock()
	switch m.Kind {
	case fleetmsg.Meet:
		f.news.met.add(m.Host)
		f.putNews(topic{kind: fleetmsg.Meet, host: m.Host}, always)
	case fleetmsg.Hold:
		f.putHold(m)
	case fleetmsg.Quota:
		f.putQuota(m)
	case fleetmsg.Failing:
		f.putFailing(m)
	case fleetmsg.Working:
		if h := f.news.met.get(m.Host); h != nil {
			h.down = time.Time{}
		}
		if it := f.news.out.get(topic{kind: fleetmsg.Failing, host: m.Host}); it != nil {
			f.news.out.withdraw(it)
		}
		f.putNews(topic{kind: fleetmsg.Working, host: m.Host}, always)
	case fleetmsg.Unused:
		f.putNews(topic{kind: fleetmsg.Unused, host: m.Host, unit: m.Unit}, func(it *item, _ time.Time) bool {
			it.quota = m
			return true
		})
	}
}

func always(*item, time.Time) bool { return true }

// putHold tells the fleet of a hold, unless all members know it; the lock is held.
func (f *Fleet) putHold(m fleetmsg.Message) {
	f.putNews(topic{fleetmsg.Hold, m.Host, m.Scope, ledger.HoldStatus(m.Status), ""}, func(it *item, now time.Time) bool {
		it.until = now.Add(min(m.Wait, ledger.MaxWait))
		return it.until.Sub(it.knownTo) > ledger.HoldSlack || !now.Before(it.forget)
	})
}

// putQuota tells the fleet of a quota; the lock is held.
func (f *Fleet) putQuota(m fleetmsg.Message) {
	m.Amount, m.Limit = math.Floor(min(m.Amount, ledger.MaxAmount)), math.Floor(min(m.Limit, ledger.MaxAmount))
	f.putNews(topic{kind: fleetmsg.Quota, host: m.Host, scope: m.Scope, unit: m.Unit}, func(it *item, now time.Time) bool {
		it.quota, it.resets = m, now.Add(min(m.Wait, ledger.MaxWait))
		return true
	})
}

// putFailing tells the fleet how a host fails, unless the fleet knows that the host is down;
// the lock is held.
func (f *Fleet) putFailing(m fleetmsg.Message) {
	if h := f.news.met.get(m.Host); h != nil && time.Since(h.down) < downTime {
		return
	}
	f.putNews(topic{kind: fleetmsg.Failing, host: m.Host}, func(it *item, now time.Time) bool {
		it.failures, it.since = m.Failures, now.Add(-m.Wait)
		return true
	})
}

// putNews hands news over to the goroutine that sends it, if set says that there is news; the
// lock is held.
func (f *Fleet) putNews(t topic, set func(*item, time.Time) bool) {
	if f.news.closed {
		return
	}
	if f.store.link.lost("") {
		f.store.dropped.Add(1)
		return
	}
	f.news.met.get(t.host) // it is in use
	now := time.Now()
	it := f.news.out.find(t, now)
	if it == nil {
		f.noteDropped(t.kind, t.host, now)
		return
	}
	if set(it, now) {
		f.news.out.push(it, now)
		nudge(f.life.wake)
	}
}

// noteDropped drops news or a question, and says so in the log; the lock is held.
func (f *Fleet) noteDropped(what fmt.Stringer, host string, now time.Time) {
	f.store.dropped.Add(1)
	if n := f.news.full.pass(now); n > 0 {
		f.store.journal.add(slog.LevelWarn, "fleet: some news or questions are dropped, because there are too many", "dropped", n, "last", what.String(), "host", host)
	}
}

// nudge wakes the goroutine that looks at a channel: wake or early.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// putQuestion hands a question over to the goroutine that asks.
func (f *Fleet) putQuestion(m fleetmsg.Message) {
	select {
	case <-f.life.done:
	case f.desk.asks <- ask{m, time.Now()}:
	default:
		f.news.mu.Lock()
		defer f.news.mu.Unlock()
		f.noteDropped(m.Kind, m.Host, time.Now())
	}
}

// state returns how the Fleet is at this moment.
func (f *Fleet) state() fleetlink.State {
	f.news.mu.Lock()
	closed := f.news.closed
	f.news.mu.Unlock()
	s := fleetlink.State{
		Connected: f.store.link.connected() && !closed,
		Members:   int(f.roster.size.Load()),
		Commands:  f.store.commands.Load(),
		Dropped:   f.store.dropped.Load(),
	}
	if at := f.roster.beaten.Load(); at != nil {
		s.LastHeartbeat = *at
	}
	return s
}
