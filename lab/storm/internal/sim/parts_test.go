package sim

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// A million clients are to fit into a gigabyte.
func TestClientIsSmall(t *testing.T) {
	n := unsafe.Sizeof(client{}) + unsafe.Sizeof(link{}) + unsafe.Sizeof(machines{})
	t.Logf("%d bytes per client", n)
	assert.True(t, n <= 1024, "%d bytes per client", n)
}

func TestWheel(t *testing.T) {
	const clients, end = 50, 200
	w := newWheel(clients, end)
	want := map[int32]int64{} // the plain way to do it
	for range 5000 {
		i, at := rand.Int32N(clients), rand.Int64N(end+50)
		switch rand.IntN(4) {
		case 0:
			w.clear(i)
			delete(want, i)
		default:
			w.set(i, at)
			if want[i] = at; at > end {
				delete(want, i)
			}
		}
	}
	for at := range int64(end + 1) {
		for {
			i, ok := w.take(at)
			if !ok {
				break
			}
			require.Equal(t, at, want[i], "client %d at", i)
			delete(want, i)
		}
	}
	assert.Empty(t, want, "never came")
}

// took lets n requests arrive at once and returns when the first and the last
// of them got a response.
func took(t *testing.T, n int, freeze bool) (first, last int64) {
	t.Helper()
	const end = 100_000
	var now int64
	left := n
	s := newServer(model.DefaultServer(), end, time.Hour, func(send, time.Duration) {
		if first == 0 {
			first = now
		}
		last = now
		left--
	})
	s.frozen = freeze
	for i := range n {
		s.arrive(0, send{client: int32(i)})
	}
	if freeze {
		s.wake(0)
	}
	for now = 0; now < end && left > 0; now++ {
		s.run(now)
	}
	assert.True(t, left <= 0 && s.busy == 0, "%d requests: %d without a response, %d in progress", n, left, s.busy)
	return first, last
}

func TestServer(t *testing.T) {
	for _, c := range []struct {
		n           int
		first, last int64
	}{
		{1, 100, 100},
		{30, 100, 100},
		{45, 150, 150},  // 105 ms: at the next look
		{330, 300, 300}, // 100 · 1.05^20 = 265 ms
		{630, 750, 750}, // 100 · 1.05^40 = 704 ms
	} {
		for _, freeze := range []bool{false, true} {
			if first, last := took(t, c.n, freeze); first != c.first || last != c.last {
				t.Errorf("%d at once: responses from %d to %d ms, want %d to %d", c.n, first, last, c.first, c.last)
			}
		}
	}
}

// A server that is frozen until all requests are sent drops those whose clients have left,
// as far as it knows, and answers the others.
func TestServerDrops(t *testing.T) {
	type outcome struct {
		answered, busy int
		at             int64 // of the answers
	}
	for _, load := range []struct {
		n, every, wait int64 // ms
		want           map[model.Drop]outcome
	}{
		// The first 101 have left. 300 take 100 · 1.05^18 = 240 ms, and 199 take 173 ms, in
		// which 20 more leave.
		{300, 10, 2000, map[model.Drop]outcome{
			model.DropNothing: {300, 0, 3250}, model.DropQueued: {199, 0, 3200},
			model.DropBegun: {300, 0, 3250}, model.DropBoth: {179, 0, 3200},
		}},
		// The first has left. 1999 take a minute, and 749 take 1037 ms.
		{2000, 1, 2000, map[model.Drop]outcome{
			model.DropNothing: {0, 2000, 0}, model.DropQueued: {0, 1999, 0},
			model.DropBegun: {0, 0, 0}, model.DropBoth: {749, 0, 3250},
		}},
		// The clients leave between two looks.
		{2000, 1, 2010, map[model.Drop]outcome{model.DropBegun: {0, 0, 0}}},
	} {
		for drop, want := range load.want {
			var got outcome
			var now int64
			m := model.DefaultServer()
			m.Drop = drop
			s := newServer(m, 10_000, time.Duration(load.wait)*time.Millisecond, func(send, time.Duration) {
				got.answered++
				got.at = now
			})
			s.frozen = true
			for ; now < 10_000; now++ {
				switch {
				case now < load.n*load.every && now%load.every == 0:
					s.arrive(now, send{})
				case now == load.n*load.every:
					s.wake(now)
				}
				s.run(now)
			}
			if got.busy = s.busy; got != want {
				t.Errorf("%d requests, dropped %q: %+v, want %+v", load.n, drop, got, want)
			}
		}
	}
}
