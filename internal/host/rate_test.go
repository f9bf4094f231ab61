package host

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRateReserve(t *testing.T) {
	r := NewRate(RateConfig{PerSecond: 10, Burst: 2})
	for i, want := range []time.Duration{0, 0, 100 * ms, 200 * ms} {
		if got := r.Peek(epoch); got != want {
			t.Errorf("peek %d: %v, want %v", i, got, want)
		}
		if got, _ := r.Reserve(epoch); got != want {
			t.Errorf("place %d: %v, want %v", i, got, want)
		}
	}
	if got := r.Peek(epoch.Add(250 * ms)); got != 50*ms {
		t.Errorf("250 ms later: %v", got)
	}
	if got := r.Peek(epoch.Add(time.Hour)); got != 0 {
		t.Errorf("an hour later: %v", got)
	}
}

func TestRateCancel(t *testing.T) {
	r := NewRate(RateConfig{PerSecond: 10, Burst: 1})
	r.Reserve(epoch)
	_, ticket := r.Reserve(epoch)
	r.Cancel(epoch.Add(50*ms), ticket)
	if got := r.Peek(epoch.Add(50 * ms)); got != 50*ms {
		t.Errorf("after the cancel: %v", got)
	}
	r.Cancel(epoch, Ticket{}) // none
}

func TestRateTake(t *testing.T) {
	r := NewRate(RateConfig{PerSecond: 10, Burst: 1})
	if !r.Take(epoch) || r.Take(epoch) || r.Take(epoch.Add(99*ms)) || !r.Take(epoch.Add(100*ms)) {
		t.Error("not one per 100 ms")
	}
}

func TestRateBurst(t *testing.T) {
	for _, tt := range []struct {
		conf RateConfig
		want int
	}{
		{RateConfig{PerSecond: 0.1}, 1},
		{RateConfig{PerSecond: 2.5}, 3},
		{RateConfig{PerSecond: 10}, 10},
		{RateConfig{PerSecond: 10, Burst: 4}, 4},
	} {
		r := NewRate(tt.conf)
		got := 0
		for r.Take(epoch) {
			got++
		}
		if got != tt.want {
			t.Errorf("%+v: %d at once, want %d", tt.conf, got, tt.want)
		}
	}
}

func TestRateAdapts(t *testing.T) {
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	near := func(t *testing.T, r *Rate, want float64) {
		t.Helper()
		if got := r.PerSecond(); got < want*0.999 || got > want*1.001 {
			t.Fatalf("%v per second, want %v", got, want)
		}
	}
	t.Run("not unless told", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 10})
		r.Throttled(at(sec), at(0))
		near(t, r, 10)
	})
	t.Run("once per flight", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 10, Adaptive: true})
		for range 20 {
			r.Throttled(at(sec), at(0))
		}
		near(t, r, 7)
		r.Throttled(at(2*sec), at(sec)) // sent in the instant of the cut
		near(t, r, 7)
		r.Throttled(at(2*sec), at(sec+ms))
		near(t, r, 4.9)
	})
	t.Run("down to a floor", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 10, Adaptive: true})
		for i := range time.Duration(50) {
			r.Throttled(at((i+1)*sec), at(i*sec+ms))
		}
		near(t, r, 0.5)
		r = NewRate(RateConfig{PerSecond: 1, Adaptive: true})
		for i := range time.Duration(50) {
			r.Throttled(at((i+1)*sec), at(i*sec+ms))
		}
		near(t, r, 0.1)
	})
	t.Run("what was really sent counts", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 1000, Adaptive: true})
		for i := range time.Duration(40) {
			r.Take(at(i * 100 * ms))
		}
		r.Throttled(at(4*sec), at(3900*ms))
		near(t, r, 7)
	})
	t.Run("up again in 30 s, by successes only", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 30, Adaptive: true})
		r.Throttled(at(0), at(-sec))
		near(t, r, 21)
		for i := range time.Duration(30) {
			r.Succeeded(at((i + 1) * 100 * ms))
		}
		near(t, r, 24)
		r.Succeeded(at(time.Hour)) // a pause counts for one second
		near(t, r, 25)
		for i := range time.Duration(100) {
			r.Succeeded(at(time.Hour + i*sec))
		}
		near(t, r, 30)
	})
	t.Run("a new configuration", func(t *testing.T) {
		r := NewRate(RateConfig{PerSecond: 10, Adaptive: true})
		r.Set(at(0), RateConfig{PerSecond: 20, Adaptive: true})
		near(t, r, 20)
		r.Throttled(at(sec), at(0))
		r.Set(at(sec), RateConfig{PerSecond: 40, Adaptive: true})
		near(t, r, 14)
		r.Set(at(sec), RateConfig{PerSecond: 10, Adaptive: true})
		near(t, r, 10)
		r.Throttled(at(2*sec), at(1500*ms))
		r.Set(at(2*sec), RateConfig{PerSecond: 10})
		near(t, r, 10)
	})
}

// A server takes 20 per second; the client is configured for 100. Adaptive, it
// wastes few sends and still uses what there is.
func TestRateFindsTheServers(t *testing.T) {
	for _, adaptive := range []bool{false, true} {
		r := NewRate(RateConfig{PerSecond: 100, Burst: 1, Adaptive: adaptive})
		cl := &clock{}
		rng := rand.New(rand.NewPCG(1, 1))
		tokens, last := 20.0, time.Duration(0)
		ok, refused := 0, 0
		var send func()
		send = func() {
			sent := cl.now
			tokens = min(20, tokens+20*(cl.now-last).Seconds())
			last = cl.now
			accepted := tokens >= 1
			if accepted {
				tokens--
			}
			cl.at(cl.now+time.Duration(20+rng.IntN(30))*ms, func() {
				if accepted {
					ok++
					r.Succeeded(epoch.Add(cl.now))
				} else {
					refused++
					r.Throttled(epoch.Add(cl.now), epoch.Add(sent))
				}
			})
			wait, _ := r.Reserve(epoch.Add(cl.now))
			cl.at(cl.now+wait, send)
		}
		cl.at(0, send)
		cl.runTo(5 * time.Minute)
		t.Logf("adaptive %v: %d answered, %d refused", adaptive, ok, refused)
		if ok < 5000 || adaptive && refused > ok/5 {
			t.Errorf("adaptive %v: %d answered, %d refused", adaptive, ok, refused)
		}
	}
}

func TestRateCosts(t *testing.T) {
	r := NewRate(RateConfig{PerSecond: 1e9, Adaptive: true})
	if n := testing.AllocsPerRun(100, func() {
		_, ticket := r.Reserve(epoch)
		r.Peek(epoch)
		r.Succeeded(epoch)
		r.Cancel(epoch, ticket)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := unsafe.Sizeof(*r); n > 176 {
		t.Errorf("%d bytes", n)
	}
}
