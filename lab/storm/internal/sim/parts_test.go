package sim

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// A million clients are to fit into a gigabyte.
func TestClientIsSmall(t *testing.T) {
	n := unsafe.Sizeof(client{}) + unsafe.Sizeof(link{}) + unsafe.Sizeof(machines{})
	t.Logf("%d bytes per client", n)
	if n > 1024 {
		t.Errorf("%d bytes per client", n)
	}
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
			if want[i] != at {
				t.Fatalf("client %d at %d, want %d", i, at, want[i])
			}
			delete(want, i)
		}
	}
	if len(want) > 0 {
		t.Errorf("never came: %v", want)
	}
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
	if left > 0 || s.busy != 0 {
		t.Errorf("%d requests: %d without a response, %d in progress", n, left, s.busy)
	}
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
