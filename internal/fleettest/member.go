package fleettest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/member"
)

// patience is how long a test waits for something that should come soon. A machine under
// load may need long. The tests of this package set the variable for backends that are
// broken on purpose, so that the time is over soon.
func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("APLOMB_PATIENCE")); err == nil {
		return d
	}
	return time.Minute
}

// A witness is a member that notes the messages that it hears.
type witness struct {
	t     *testing.T
	fleet Fleet
	link  *member.Backend

	mu    sync.Mutex // guards the fields below
	heard []note
	react func(fleetmsg.Message) // if not nil, it is called with each message that the witness hears

	unanswered int // questions; belongs to the goroutine that asks
}

// A note is a message and when it was heard.
type note struct {
	fleetmsg.Message
	at time.Time
}

// join makes a witness the member of a Fleet. It meets the host of the tests.
func join(t *testing.T, f Fleet) *witness {
	t.Helper()
	w := &witness{t: t, fleet: f, link: member.BackendOf(f)}
	if err := w.link.Join(w.hear); err != nil {
		t.Fatalf("Join: %v", err)
	}
	w.tell(fleetmsg.Message{Kind: fleetmsg.Meet})
	return w
}

// crew joins so many members and waits until each knows of all.
func crew(t *testing.T, n int, newMember func() Fleet) []*witness {
	t.Helper()
	var all []*witness
	for range n {
		all = append(all, join(t, newMember()))
	}
	for i, w := range all {
		w.await(fmt.Sprintf("member %d hears of %d members", i, n), func(m fleetmsg.Message) bool {
			return m.Kind == fleetmsg.Members && m.Members == n
		})
	}
	return all
}

func (w *witness) hear(m fleetmsg.Message) {
	if !answersMeet(m.Kind) && within("fleettest.(*witness).tell") {
		w.t.Errorf("%v is heard within a call of Tell", m)
	}
	w.mu.Lock()
	w.heard = append(w.heard, note{m, time.Now()})
	react := w.react
	w.mu.Unlock()
	if react != nil {
		react(m)
	}
}

// answersMeet reports whether a Fleet may answer a Meet with this.
func answersMeet(k fleetmsg.Kind) bool {
	return k == fleetmsg.Hold || k == fleetmsg.Quota || k == fleetmsg.Down
}

// within reports whether the goroutine is in a call of a function.
func within(name string) bool {
	stack := make([]byte, 1<<14)
	return bytes.Contains(stack[:runtime.Stack(stack, false)], []byte(name))
}

// tell tells the fleet. It is a function of its own, so that hear sees whether it is called
// within it.
//
//go:noinline
func (w *witness) tell(m fleetmsg.Message) {
	if m.Host == "" {
		m.Host = host
	}
	w.link.Tell(m)
}

// find returns the messages that match, in the order in which they were heard.
func (w *witness) find(match func(fleetmsg.Message) bool) (found []note) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.heard), func(n note) bool { return !match(n.Message) })
}

// await waits for a message and returns it.
func (w *witness) await(what string, match func(fleetmsg.Message) bool) note {
	w.t.Helper()
	for start := time.Now(); time.Since(start) < patience(); time.Sleep(time.Millisecond) {
		if found := w.find(match); len(found) > 0 {
			return found[0]
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.heard {
		w.t.Logf("heard: %v", n.Message)
	}
	w.t.Fatalf("it did not happen in %v: %s", patience(), what)
	return note{}
}

// ask asks a question and returns the answer.
func (w *witness) ask(question fleetmsg.Message, answer fleetmsg.Kind) note {
	w.t.Helper()
	before := len(w.find(is(answer)))
	for range 30 {
		w.tell(question)
		for start := time.Now(); time.Since(start) < patience()/30; time.Sleep(100 * time.Microsecond) {
			if found := w.find(is(answer)); len(found) > before {
				return found[before]
			}
		}
		w.unanswered++
	}
	w.t.Fatalf("no answer to: %v", question)
	return note{}
}

// is matches the messages of a kind about the host of the tests.
func is(k fleetmsg.Kind) func(fleetmsg.Message) bool {
	return func(m fleetmsg.Message) bool { return m.Kind == k && m.Host == host }
}

// settled waits until each member has heard of everything that was told before. Then a test
// can look for messages that a member should not have heard.
func settled(all ...*witness) {
	for i, w := range all {
		w.t.Helper()
		name := fmt.Sprintf("http://settled%d.test", time.Now().UnixNano())
		for _, o := range all {
			o.tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: name})
		}
		w.tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: name, Status: 429, Wait: time.Hour})
		for j, o := range all {
			if i != j {
				o.await(fmt.Sprintf("member %d hears of member %d", j, i), func(m fleetmsg.Message) bool { return m.Host == name && m.Kind == fleetmsg.Hold })
			}
		}
	}
}
