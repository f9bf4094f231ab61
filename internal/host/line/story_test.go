package line

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A story is a host in virtual time. Its requests ask when they were told to or woken.
type story struct {
	*testing.T
	hosttest.Clock
	l       Line
	c       Config
	waiting map[*storyRequest]bool
	answers func() (ok bool, status429, late bool, took time.Duration)
	went    int // retries
	waited  int // requests that waited
}

type storyRequest struct {
	s    *story
	p    *Place
	w    *queue.Waiter
	next instant.Instant // when it asks at the latest
	pend bool            // it was woken and has not asked yet
	key  uint64
	left int // attempts
}

func (s *story) start(attempts int, key uint64) {
	s.c.Budget.Requests++
	r := &storyRequest{s: s, p: &Place{}, key: key, left: attempts}
	if s.c.Breaker {
		r.enter()
	} else {
		r.send()
	}
}

// enter asks for the next attempt.
func (r *storyRequest) enter() {
	s := r.s
	r.w = &queue.Waiter{From: s.Now, By: s.Now.Add(time.Minute), Woken: func(*queue.Waiter) {
		r.pend = true
		s.At(s.Now, r.ask)
	}}
	w := r.w
	s.At(s.Now.Add(time.Minute), func() { // it gives up
		if s.waiting[r] && r.w == w {
			delete(s.waiting, r)
			s.l.Leave(r.p, w)
		}
	})
	s.waiting[r] = true
	r.ask()
}

func (r *storyRequest) ask() {
	s := r.s
	if r.pend = false; !s.waiting[r] {
		return
	}
	a := s.l.Enter(s.Now, r.p, r.w, &s.c)
	if a.Verb == queue.Go {
		delete(s.waiting, r)
		r.send()
		return
	}
	s.waited++
	if r.next = a.Ask; a.Ask != instant.Never {
		require.Greater(s, a.Ask, s.Now)
		s.At(a.Ask, func() {
			if r.next == a.Ask {
				r.ask()
			}
		})
	}
}

// send makes the attempt.
func (r *storyRequest) send() {
	s, sent := r.s, r.s.Now
	retry := r.p.Sent > 0
	r.p.Goes()
	if retry {
		s.went++
	}
	ok, told, late, took := s.answers()
	s.At(sent.Add(took), func() {
		left := r.p.Leaves()
		s.l.Over(r.p)
		if ok {
			s.l.Succeeded(s.Now, Success{Scopes: [2]uint64{r.key, 1000 + r.key%3}, Retry: retry, Left: left, Began: sent})
			return
		}
		f := Failure{Began: sent, Scope: r.key, Told: told, Late: late}
		if told {
			f.Scope, f.Wait = 1000+r.key%3, time.Second
		}
		s.l.Failed(s.Now, f)
		if r.left--; r.left == 0 {
			return
		}
		r.p = &Place{Sent: r.p.Sent + 1, Failed: s.Now, Scope: f.Scope}
		s.At(s.Now.Add(time.Second), r.enter)
	})
}

// check looks at all lines: the first of each asks soon, or somebody wakes it.
func (s *story) check() {
	l := &s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	by := map[*queue.Waiter]*storyRequest{}
	for r := range s.waiting {
		by[r.w] = r
	}
	waiting := 0
	scopes := []*scope{&l.host}
	for _, v := range l.scopes {
		scopes = append(scopes, v)
	}
	for _, v := range scopes {
		waiting += v.queues[0].Len() + v.queues[1].Len()
		if !v.waits() {
			continue
		}
		first := by[v.first()]
		require.NotNil(s, first, "the first has gone")
		if first.pend {
			continue
		}
		if v.window > 0 && float64(v.away) >= max(1, v.window) {
			continue // the end of an attempt wakes it
		}
		require.NotEqual(s, instant.Never, first.next, "nobody wakes the first: %+v", v)
		if !v.Down {
			require.LessOrEqual(s, first.next.Sub(s.Now), 10*time.Second)
		} else {
			require.LessOrEqual(s, first.next, max(s.Now, v.NextProbe(v.patience(nil), 4)), "the probe is due earlier")
		}
	}
	require.Equal(s, l.waiting, waiting)
	require.Len(s, s.waiting, waiting)
	for _, v := range scopes {
		require.GreaterOrEqual(s, v.away, 0)
		require.GreaterOrEqual(s, v.window, 0.)
		if !v.waits() {
			require.LessOrEqual(s, v.window, 1., "those who come begin anew")
		}
	}
}

// play plays a story, one byte per step, and then lets the host be well until nobody waits.
func play(t *testing.T, steps []byte) *story {
	s := &story{T: t, waiting: map[*storyRequest]bool{}}
	s.c = Config{Budget: budget.Config{}.Complete(), Probers: 1}
	var up, told, late, slow = true, false, false, false
	rng := rand.New(rand.NewPCG(1, 1))
	s.answers = func() (bool, bool, bool, time.Duration) {
		took := 20 * time.Millisecond
		if slow {
			took = 900 * time.Millisecond
		}
		if up || rng.IntN(20) == 0 {
			return true, false, false, took
		}
		return false, told, late, took
	}
	s.Now = instant.At(time.Hour)
	for _, b := range steps {
		n := int(b >> 3)
		switch b & 7 {
		case 0, 1:
			for range n {
				s.start(1+n%6, uint64(1+n%4))
			}
		case 2:
			up, told, late, slow = n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0
		case 3:
			s.c.Breaker = n&1 > 0
			s.c.Budget.PerSecond = []float64{3, -1, 0.1, 20}[n>>1&3]
			s.c.Probers = 1 + n>>3 // up to 4
		case 4:
			if n&1 > 0 {
				s.l.Hear(func(o *outage.Outage) { o.Hear(s.Now.Add(-time.Second), s.Now, time.Second) })
			} else {
				s.l.Hear(func(o *outage.Outage) { o.Hear(0, s.Now.Add(time.Duration(n)*50*time.Millisecond), 0) })
			}
		case 5: // some leave
			for r := range s.waiting {
				if n--; n < 0 {
					break
				}
				delete(s.waiting, r)
				s.l.Leave(r.p, r.w)
			}
		default:
			s.RunTo(s.Now.Add(time.Duration(n*n) * 10 * time.Millisecond))
		}
		s.RunTo(s.Now)
		s.check()
	}
	up, slow = true, false
	for range 100 { // new requests find out that the host is back
		s.start(1, 1)
		s.start(1, 2)
		s.start(1, 3)
		s.start(1, 4)
		s.RunTo(s.Now.Add(time.Second))
		s.check()
	}
	require.Zero(t, len(s.waiting), "nobody waits for ever: %+v", &s.l.host)
	return s
}

// Whatever happens in which order, the first of each line has a time at which it asks, or somebody wakes it.
func TestNobodyIsStuck(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	went, waited := 0, 0
	for range soak.Size(100, 3000) {
		steps := make([]byte, 60)
		for i := range steps {
			steps[i] = byte(rng.Uint32())
		}
		s := play(t, steps)
		went, waited = went+s.went, waited+s.waited
	}
	assert.Greater(t, went, 1000, "retries")
	assert.Greater(t, waited, 1000)
}

func FuzzLine(f *testing.F) {
	f.Add([]byte{0x02, 0xf8, 0xff, 0xf8, 0xff, 0x0a, 0xff, 0xff})
	f.Add([]byte{0x13, 0x22, 0xf8, 0xff, 0xfd, 0xf8, 0xff, 0x0c, 0x04, 0xff})
	f.Add([]byte{0x0b, 0x62, 0xf8, 0xff, 0xf8, 0x0a, 0xff, 0x62, 0xf8, 0xff})
	f.Fuzz(func(t *testing.T, steps []byte) { play(t, steps[:min(len(steps), 100)]) })
}
