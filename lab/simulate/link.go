// The network between a member and its fleet.

package simulate

import (
	"hash/fnv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetlink"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/fleettest"
	"github.com/aplomb-go/aplomb/internal/member"
	"github.com/aplomb-go/aplomb/lab/internal/dice"
)

// A link is the transport.Fleet of a member. It loses, delays and doubles messages.
type link struct {
	world   *world
	id      int // of the member
	process *process

	mu              sync.Mutex // guards the fields below
	backend         *fleettest.Member
	epoch           int  // of the backend
	mute            bool // the backend is changing
	hear            func(fleetmsg.Message)
	sent            uint64 // messages so far, for the dice
	counts, counted int    // how often the backend counted the members, and the last that the member heard of
	met             []string
	scopes          []uint64
}

// A said is a message that a member told or heard.
type said struct {
	at     time.Duration
	member int
	heard  bool
	fleetmsg.Message
}

func (l *link) link() *member.Backend {
	return &member.Backend{Join: l.meet, Tell: l.tell, Scope: l.scope, State: func() fleetlink.State { return fleetlink.State{} }}
}

// meet makes the member known to the backend.
func (l *link) meet(hear func(fleetmsg.Message)) error {
	l.mu.Lock()
	l.hear = hear
	l.mu.Unlock()
	return l.join()
}

// join joins the present backend.
func (l *link) join() error {
	w := l.world
	w.mu.Lock()
	backend := w.backend.Member()
	w.mu.Unlock()
	l.mu.Lock()
	l.epoch++
	epoch := l.epoch
	l.backend = backend
	l.mu.Unlock()
	return backend.Join(func(m fleetmsg.Message) {
		l.mu.Lock()
		old := epoch != l.epoch || l.mute && m.Kind == fleetmsg.Members
		hear := l.hear
		l.mu.Unlock()
		switch {
		case old:
		case m.Kind == fleetmsg.Leave:
			if l.process.closes { // else it was killed, and keeps its tokens
				hear(m)
			}
		case m.Kind == fleetmsg.Members:
			l.count(m)
		default:
			l.carry(func() { l.deliver(m, "hears") })
		}
	})
}

// heartbeat is the time after which the backend tells the number of members again.
const heartbeat = 2 * time.Second

// count tells the member how many members there are, until it has heard it.
func (l *link) count(m fleetmsg.Message) {
	l.mu.Lock()
	l.counts++
	n := l.counts
	l.mu.Unlock()
	var beat func()
	beat = func() {
		l.mu.Lock()
		over := l.counts > n || l.counted >= n || !l.process.alive(l.world.now())
		l.mu.Unlock()
		if over {
			return
		}
		l.carry(func() {
			l.mu.Lock()
			late := l.counted >= n
			l.counted = max(l.counted, n)
			l.mu.Unlock()
			if !late {
				l.deliver(m, "hears")
			}
		})
		time.AfterFunc(heartbeat, beat)
	}
	beat()
}

// tell sends a message to the backend.
func (l *link) tell(m fleetmsg.Message) {
	if m.Kind == fleetmsg.Unused { // within the Close of the backend
		l.present().Tell(m)
		return
	}
	if !l.process.alive(l.world.now()) {
		return
	}
	l.note(m, false)
	l.mu.Lock()
	if m.Kind == fleetmsg.Meet {
		l.met = append(l.met, m.Host)
	}
	l.mu.Unlock()
	l.send(m)
}

// send takes a message to the backend.
func (l *link) send(m fleetmsg.Message) { l.carry(func() { l.present().Tell(m) }) }

// present returns the member's place in the present backend.
func (l *link) present() *fleettest.Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.backend
}

// scope returns a hash that is the same for all members.
func (l *link) scope(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.scopes) < 8 {
		l.scopes = append(l.scopes, h.Sum64())
	}
	return h.Sum64()
}

// carry takes a message over the network, or loses it.
func (l *link) carry(arrive func()) {
	w, now := l.world, l.world.now()
	l.mu.Lock()
	l.sent++
	d := dice.Roll(w.plan.seed, ofMessage, uint64(l.id), l.sent)
	l.mu.Unlock()
	a := l.process.air(now)
	if d.Chance(a.lost) {
		return
	}
	takes := func() time.Duration {
		delay := time.Duration(0)
		if a.delay > 0 {
			delay = time.Duration(d.Int64N(int64(a.delay)))
		}
		return l.process.resumes(now+delay) - now
	}
	again := d.Chance(a.double)
	if first := takes(); first == 0 && w.plan.fleet.direct {
		arrive()
	} else {
		time.AfterFunc(first, arrive)
	}
	if again {
		time.AfterFunc(takes()+time.Millisecond, arrive)
	}
}

// deliver lets the member hear a message, unless its process has died.
func (l *link) deliver(m fleetmsg.Message, how string) {
	if !l.process.alive(l.world.now()) {
		return
	}
	l.note(m, true)
	if how != "hears" {
		l.world.tell(news, "member %d %s", l.id, how)
	}
	l.mu.Lock()
	hear := l.hear
	l.mu.Unlock()
	hear(m)
}

// note notes a message for the oracles and the story.
func (l *link) note(m fleetmsg.Message, heard bool) {
	w := l.world
	verb := "tells"
	if heard {
		verb = "hears"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, said{w.now(), l.id, heard, m})
	w.story = append(w.story, entry{w.now(), news, "member %d %s: %v", []any{l.id, verb, m}})
}

// liveFleet plays what happens to the fleet: deaths, lost knowledge and lies.
func (w *world) liveFleet() {
	f := w.plan.fleet
	for _, l := range w.links {
		if dies := l.process.dies; dies < never {
			if !l.process.closes {
				dies += deadTime
			}
			time.AfterFunc(dies, func() {
				if backend := l.present(); backend != nil {
					backend.Close()
				}
			})
		}
	}
	for _, at := range f.forgets {
		time.AfterFunc(at, w.forget)
	}
	for i, lie := range f.lies {
		l := w.links[lie.member]
		time.AfterFunc(lie.at, func() { l.lie(dice.Roll(w.plan.seed, ofMessage, uint64(len(w.links)), uint64(i))) })
	}
}

// forget replaces the backend by one that knows nothing. The members ask it about the hosts
// that they use.
func (w *world) forget() {
	w.tell(news, "the fleet forgets everything")
	w.mu.Lock()
	w.backend = fleettest.NewMemory()
	w.mu.Unlock()
	for i, l := range w.links {
		l.mu.Lock()
		joined := l.hear != nil
		l.mu.Unlock()
		if !joined || !l.process.alive(w.now()) {
			continue
		}
		l.setMute(i+1 < len(w.links)) // nobody believes a fleet that has just begun to count
		if err := l.join(); err != nil {
			w.violate(Panics, nil, "a member cannot join: %v", err)
		}
		l.mu.Lock()
		met := l.met
		l.mu.Unlock()
		for _, host := range met {
			l.send(fleetmsg.Message{Kind: fleetmsg.Meet, Host: host})
		}
	}
	for _, l := range w.links {
		l.setMute(false)
	}
}

func (l *link) setMute(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = mute
}

// lie tells the member something that is not so.
func (l *link) lie(d dice.Dice) {
	l.mu.Lock()
	if len(l.met) == 0 || l.hear == nil {
		l.mu.Unlock()
		return
	}
	m := fleetmsg.Message{Host: dice.One(d, l.met...), Status: dice.One(d, 429, 503), Wait: d.Between(time.Millisecond, 30*24*time.Hour)}
	if len(l.scopes) > 0 {
		m.Scope = dice.One(d, l.scopes...)
	}
	l.mu.Unlock()
	if d.Chance(30) {
		m.Wait = 0
	}
	m.Kind = dice.One(d, fleetmsg.Hold, fleetmsg.Hold, fleetmsg.Quota, fleetmsg.Down, fleetmsg.Up, fleetmsg.Tokens, fleetmsg.Members)
	m.Amount, m.Limit, m.Members = float64(d.IntN(5)), dice.One(d, 0, 100.0), dice.One(d, 0, 1, 1<<20)
	m.First, m.Every = d.Between(1, time.Minute), d.Between(1, time.Minute)
	l.deliver(m, "hears a lie")
}
