package pacing

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/hosttest"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/queue"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// A server with a quota of 100 per 10 s and a client that wants 20 per second.
func TestPacingAvoidsThe429(t *testing.T) {
	run := func(pace bool) (ok, refused int) {
		rng := rand.New(rand.NewPCG(1, 1))
		var p Pacing
		cl := &hosttest.Clock{}
		used, end := 0, instant.Instant(0)
		serve := func(mark uint64) {
			for cl.Now >= end {
				end, used = end.Add(10*sec), 0
			}
			used++
			if used > 100 {
				refused++
			} else {
				ok++
			}
			left, reset := max(0, 100-used), end.Sub(cl.Now)
			reset = (reset + sec - 1) / sec * sec // whole seconds
			cl.At(cl.Now.Add(time.Duration(rng.IntN(200))*ms), func() {
				p.Note(cl.Now, 1, Pass{Mark: mark}, Named{Remaining: int64(left), Limit: 100, Reset: reset}, Config{})
			})
		}
		for at := instant.Instant(0); at < instant.At(5*time.Minute); at += 50 * ms {
			w := &queue.Waiter{}
			done := false
			var ask func()
			ask = func() {
				if done {
					return
				}
				a := queue.Answer{}
				if pace {
					a = p.Enter(cl.Now, 1, w, Config{})
				}
				switch {
				case a.Verb == queue.Go:
					done = true
					cl.At(cl.Now+20*ms, func() { serve(a.Mark) })
				case a.Ask != instant.Never:
					cl.At(a.Ask, ask)
				}
			}
			w.Woken = func(*queue.Waiter) { cl.At(cl.Now, ask) }
			cl.At(at, ask)
		}
		cl.RunTo(instant.At(5 * time.Minute))
		return ok, refused
	}
	ok, refused := run(false)
	pok, prefused := run(true)
	t.Logf("as they come: %d served, %d refused; paced: %d served, %d refused", ok, refused, pok, prefused)
	if prefused*20 > refused || pok < ok*9/10 {
		t.Errorf("as they come: %d served, %d refused; paced: %d served, %d refused", ok, refused, pok, prefused)
	}
}

func TestPacingIsBounded(t *testing.T) {
	var p Pacing
	for i := range soak.Size[uint64](8*queue.MaxScopes, 20_000) {
		p.Note(instant.At(time.Duration(i)), i, Pass{}, Named{Remaining: 5, Limit: 100, Reset: time.Hour}, Config{})
		require.LessOrEqual(t, len(p.quotas), queue.MaxScopes, "quotas")
	}
}

// Whatever is noted, nothing raises the quota within a window, and the wait for the next
// request is bounded.
func FuzzPacing(f *testing.F) {
	f.Add([]byte{1, 200, 10, 3, 0, 40, 7, 1, 90})
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Pacing
		var now instant.Instant
		for len(data) >= 3 {
			kind, a, b := data[0]%4, int64(data[1]), time.Duration(data[2])
			data = data[3:]
			left, end, known := p.Left(now, 1, "")
			switch kind {
			case 0:
				now = now.Add(time.Duration(a) * b * ms)
				continue
			case 1:
				p.Note(now, 1, Pass{}, Named{Remaining: a - 10, Limit: 200, Reset: (b - 5) * 100 * ms}, Config{})
			default:
				if ans := p.Enter(now, 1, nil, Config{}); ans.Verb == queue.Wait && ans.Ask.Sub(now) > time.Minute {
					t.Fatalf("at %v: %+v", now, ans)
				}
			}
			if l, e, ok := p.Left(now, 1, ""); known && ok && e <= end.Add(slack) && l > left {
				t.Fatalf("at %v: from %d to %d left in the window until %v", now, left, l, end)
			}
		}
	})
}
