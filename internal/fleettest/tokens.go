// The tokens of a rate.

package fleettest

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
)

func testTokens(t *testing.T, newMember func() Fleet) {
	const perSecond, burst = 50.0, 5.0
	all := crew(t, 3, newMember)
	ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, PerSecond: perSecond, Burst: burst, Amount: 20}
	var mu sync.Mutex
	var group sync.WaitGroup
	given := 0.0
	begun := time.Now()
	for _, w := range all {
		group.Go(func() {
			for time.Since(begun) < 2*time.Second {
				n := w.ask(ask, fleetmsg.Tokens)
				mu.Lock()
				given += n.Amount
				mu.Unlock()
				if every := time.Duration(float64(time.Second) / perSecond); n.Amount > 0 && (n.Every < every-time.Microsecond || n.Every > every+time.Microsecond) {
					t.Errorf("a token per %v, and %v per second were asked for", n.Every, perSecond)
				}
				if n.Amount < 0 || n.Amount > 20 || n.First > 10*time.Second {
					t.Errorf("got %v", n.Message)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	group.Wait()
	spent := time.Since(begun).Seconds()
	// Tokens may be given half a second ahead, and a few for a quarter of a second more.
	if most := burst + perSecond*(spent+1); given > most {
		t.Errorf("%v tokens in %.1f s, at most %v are due", given, spent, most)
	}
	if given < burst {
		t.Errorf("%v tokens in %.1f s", given, spent)
	}
}

func testNoTokens(t *testing.T, newMember func() Fleet) {
	w := crew(t, 1, newMember)[0]
	ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, PerSecond: 0.01, Burst: 3, Amount: 1}
	n := w.ask(ask, fleetmsg.Tokens)
	burst := 0
	for ; n.Amount == 1 && n.First <= 0 && burst < 10; burst++ {
		n = w.ask(ask, fleetmsg.Tokens)
	}
	// A member that got no answer may have sent a request by itself, and a Fleet may count it.
	if burst > 3 || burst+w.unanswered < 3 || burst == 0 {
		t.Fatalf("%d of a burst of 3, then %v; %d questions were not answered", burst, n.Message, w.unanswered)
	}
	cost := ask
	cost.Unit = "cost"
	n = w.ask(cost, fleetmsg.Tokens)
	for i := 0; n.Unit != "cost" && i < 20; i++ { // a late answer to an earlier question
		n = w.ask(cost, fleetmsg.Tokens)
	}
	if n.Unit != "cost" || w.unanswered == 0 && (n.Amount != 1 || n.First > 0) {
		t.Errorf("of the burst of another unit: %v", n.Message)
	}
	n = w.ask(ask, fleetmsg.Tokens)
	for n.Amount > 0 && n.First > 0 { // it may be used later
		n = w.ask(ask, fleetmsg.Tokens)
	}
	if n.Amount > 0 || n.Wait <= 0 || n.Wait > 10*time.Minute {
		t.Errorf("after the burst: %v", n.Message)
	}
}

// slowly asks for tokens of a rate that gives none while a test runs, beside its burst of 20.
var slowly = fleetmsg.Message{Kind: fleetmsg.AskTokens, PerSecond: 0.01, Burst: 20, Amount: 5}

// atOnce returns how many tokens of an answer can be used at once.
func atOnce(n note) float64 {
	if n.First > 0 || n.Amount == 0 {
		return 0
	}
	return min(n.Amount, math.Floor(float64(-n.First)/float64(n.Every))+1)
}

func testRepay(t *testing.T, newMember func() Fleet) {
	all := crew(t, 2, newMember)
	given := atOnce(all[0].ask(slowly, fleetmsg.Tokens))
	back := slowly
	back.Wait, back.Spent = 10*time.Millisecond, 10
	given += atOnce(all[1].ask(back, fleetmsg.Tokens))
	for range 4 {
		given += atOnce(all[0].ask(slowly, fleetmsg.Tokens))
	}
	if given > 11 { // 20 less 10, and a token may have come
		t.Errorf("%v tokens of a burst of 20, of which a member has used 10 by itself", given)
	}
}
