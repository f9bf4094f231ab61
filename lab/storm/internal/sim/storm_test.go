package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// never stands for a recovery that was not seen. It sorts last.
const never = time.Duration(math.MaxInt64)

func said(back time.Duration) string {
	if back == never {
		return "never"
	}
	return back.String()
}

// few is the number of runs whose medians are judged. Medians of three runs scatter too
// much.
var few = soak.Size(5, 9)

// medians are the figures of a few runs.
type medians struct {
	attempts, peak, later, lost int
	back                        time.Duration
	worstPeak                   int
	last                        float64
}

func storm(t *testing.T, sc model.Scenario, st model.Strategy, runs int) medians {
	t.Helper()
	var list []record.Figures
	for seed := range runs {
		r, err := Run(t.Context(), sc, st, uint64(seed))
		require.NoError(t, err)
		f := r.Figures()
		if f.Recovered < 0 {
			f.Recovered = never
		}
		list = append(list, f)
	}
	m := medians{
		attempts: median(list, func(f record.Figures) int { return f.SentFrozen }),
		peak:     median(list, func(f record.Figures) int { return f.Peak }),
		later:    median(list, func(f record.Figures) int { return f.Later }),
		lost:     median(list, func(f record.Figures) int { return f.Lost }),
		back:     median(list, func(f record.Figures) time.Duration { return f.Recovered }),
		last:     median(list, func(f record.Figures) float64 { return f.LastGood }),
	}
	for _, f := range list {
		m.worstPeak = max(m.worstPeak, f.Peak)
	}
	t.Logf("%-26s frozen %v: %d attempts meanwhile, peak %d (worst %d), then %d, back after %v, lost %d, %.0f %% at the end",
		st.Name, sc.Frozen, m.attempts, m.peak, m.worstPeak, m.later, said(m.back), m.lost, 100*m.last)
	return m
}

func median[T int | float64 | time.Duration](list []record.Figures, of func(record.Figures) T) T {
	var all []T
	for _, f := range list {
		all = append(all, of(f))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func strategy(t *testing.T, key string) model.Strategy {
	t.Helper()
	timeout := model.DefaultScenario().Timeout
	for _, st := range append(model.Strategies(timeout), model.Others(timeout)...) {
		if st.Key == key {
			return st
		}
	}
	t.Fatalf("no strategy %q", key)
	return model.Strategy{}
}

// The server sees no request while it is frozen, and then all that waited.
func TestArrivals(t *testing.T) {
	r, err := Run(t.Context(), model.DefaultScenario(), strategy(t, "google"), 1)
	require.NoError(t, err)
	var before, frozen, total int
	for i, s := range r.Samples {
		total += s.Arrived
		switch at := time.Duration(i) * record.Step; {
		case at < r.Stop:
			before += s.Arrived
		case at < r.Resume:
			frozen += s.Arrived
		}
	}
	if first := r.Samples[r.Resume/record.Step].Arrived; before == 0 || frozen > 0 || r.Found == 0 || first < r.Found {
		t.Errorf("%d arrived before, %d while it was frozen, %d at the resume, where %d waited", before, frozen, first, r.Found)
	}
	assert.Equal(t, r.Sent, total, "arrived")
}

// The article's results: with a fixed delay the server never recovers. With the
// exponential back-off of the article's program it does.
func TestArticle(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Watched = 120 * time.Second // it takes most of a minute
	if m := storm(t, sc, strategy(t, "fixed"), soak.Size(1, 5)); m.back != never || m.last > 0.05 {
		t.Errorf("with a fixed delay it was back after %v", m.back)
	}
	assert.LessOrEqual(t, storm(t, sc, strategy(t, "long"), few).back, 90*time.Second, "with the program's back-off it was back after")
}

// If all clients share a Transport with the gate, hardly anything is sent to the
// frozen server, and it recovers at once.
func TestShared(t *testing.T) {
	sc := model.DefaultScenario()
	fixed := storm(t, sc, strategy(t, "fixed"), soak.Size(1, 5))
	m := storm(t, sc, strategy(t, "shared"), few)
	limit := float64(sc.Server.Limit)
	switch {
	case m.back > 5*time.Second:
		t.Errorf("back after %v", m.back)
	case m.attempts > fixed.attempts/20:
		t.Errorf("%d attempts while frozen, with a fixed delay %d", m.attempts, fixed.attempts)
	case float64(m.peak) > 1.5*limit || float64(m.worstPeak) > 1.75*limit:
		t.Errorf("peak %d, at worst %d", m.peak, m.worstPeak)
	}
}

// Clients that know nothing of each other, with the default rule, in outages that
// such clients can survive (see TestWhatNobodyAloneSurvives): a short freeze, and
// the usual one of a server that sheds load. They are no worse than with Google's
// formula, which the rule uses, back sooner than with the article's back-off and
// after fewer attempts than that prints, and make no second peak.
func TestSeparate(t *testing.T) {
	short, shedding := model.DefaultScenario(), model.DefaultScenario()
	short.Frozen = 5 * time.Second
	shedding.Server.RetryAfter = 10 * time.Second
	for name, sc := range map[string]model.Scenario{"short freeze": short, "server that sheds load": shedding} {
		t.Run(name, func(t *testing.T) {
			google, own := storm(t, sc, strategy(t, "google"), few), storm(t, sc, strategy(t, "own"), few)
			printed, program := storm(t, sc, strategy(t, "short"), few), storm(t, sc, strategy(t, "long"), few)
			// Two seconds hold 200 requests, give or take 14: chance alone moves a
			// recovery that was at once by more than a tenth.
			const chance = time.Second
			if own.back > google.back+google.back/10+chance {
				t.Errorf("back after %v, Google's formula %v", said(own.back), said(google.back))
			}
			if own.attempts > google.attempts*105/100 { // as many, but for the random numbers
				t.Errorf("%d attempts while frozen, Google's formula %d", own.attempts, google.attempts)
			}
			if own.back >= printed.back || own.back >= program.back {
				t.Errorf("back after %v, the article's formula %v, its program %v", said(own.back), said(printed.back), said(program.back))
			}
			assert.Less(t, own.attempts, printed.attempts*8/10, "attempts while frozen, the article's formula %d", printed.attempts)
			assert.LessOrEqual(t, own.later, sc.Server.Limit, "a second peak")
			assert.LessOrEqual(t, own.lost, 0, "requests were given up")
		})
	}
}

// Clients that know nothing of each other wait longer after silence. So they survive a freeze of 8 s,
// and one of 5 s as well as ever. With Google's formula alone they survive 6 s.
func TestSeparateAfterSilence(t *testing.T) {
	sc := model.DefaultScenario()
	google, own := strategy(t, "google"), strategy(t, "own")
	for _, sc.Frozen = range []time.Duration{5 * time.Second, 8 * time.Second} {
		m := storm(t, sc, own, few)
		assert.LessOrEqual(t, m.back, time.Second, "back after")
		assert.LessOrEqual(t, m.lost, 0, "requests were given up")
		assert.Less(t, m.attempts, storm(t, sc, google, 1).attempts*9/10, "attempts while frozen")
	}
	assert.Equal(t, never, storm(t, sc, google, few).back, "with Google's formula it was back after")
}

// A server that takes every request does not survive 20 s of its own normal load
// piling up, even if no client ever retries. So separate clients are tested with a
// shorter freeze.
func TestWhatNobodyAloneSurvives(t *testing.T) {
	sc := model.DefaultScenario()
	for _, key := range []string{"once", "own"} {
		assert.Equal(t, never, storm(t, sc, strategy(t, key), soak.Size(1, 5)).back, "back after")
	}
}

// A server that drops expired requests comes back from freezes of any length that was
// tried, although its clients know nothing of each other. Without that it does not come
// back from 10 s.
func TestDrop(t *testing.T) {
	sc := model.DefaultScenario()
	own := strategy(t, "own")
	for _, sc.Frozen = range soak.Size([]time.Duration{20 * time.Second}, []time.Duration{10 * time.Second, 20 * time.Second, 60 * time.Second}) {
		sc.Server.Drop = model.DropNothing
		if m := storm(t, sc, own, soak.Size(1, 5)); m.back != never {
			t.Errorf("nothing dropped: back after %v from %v", m.back, sc.Frozen)
		}
		for _, sc.Server.Drop = range []model.Drop{model.DropQueued, model.DropBegun, model.DropBoth} {
			if m := storm(t, sc, own, few); m.back > 5*time.Second {
				t.Errorf("%s dropped: back after %v from %v", sc.Server.Drop, said(m.back), sc.Frozen)
			}
		}
	}
}

// A server sheds load with Retry-After. The clients come back spread over the
// window of the jitter, and the server stays healthy.
func TestRetryAfter(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Server.RetryAfter = 5 * time.Second
	if m := storm(t, sc, strategy(t, "own"), few); m.back > 10*time.Second || m.peak > sc.Server.Limit {
		t.Errorf("back after %v, peak %d", m.back, m.peak)
	}
	r, err := Run(t.Context(), sc, strategy(t, "own"), 1)
	require.NoError(t, err)
	// Clients that were told to wait at the resume return within a second after it.
	at := int((sc.Resume() + sc.Server.RetryAfter) / record.Step)
	most, all := 0, 0
	for _, s := range r.Samples[at : at+10] {
		most, all = max(most, s.Sends), all+s.Sends
	}
	t.Logf("%d attempts in the second after the wait, at most %d in a tenth of it", all, most)
	assert.True(t, all >= 100 && most <= all*3/10, "%d of %d attempts in the same tenth of a second", most, all)
}

// The same server, and a Transport that all clients share. While the server responds
// 503 it works on thirty requests. Whatever wait the server asks for, the load comes back, because
// the clients share no waits.
func TestRetryAfterShared(t *testing.T) {
	sc := model.DefaultScenario()
	for _, key := range []string{"shared", "ungated"} {
		for _, sc.Server.RetryAfter = range soak.Size([]time.Duration{5 * time.Second}, []time.Duration{time.Second, 5 * time.Second, 10 * time.Second}) {
			if m := storm(t, sc, strategy(t, key), few); m.last < 0.95 || m.peak > sc.Server.Limit {
				t.Errorf("%s, Retry-After %v: rate at the end %.2f, peak %d", key, sc.Server.RetryAfter, m.last, m.peak)
			}
		}
	}
}

// At ten times the load, and in a soak at a hundred times, the orders are the same.
func TestLarge(t *testing.T) {
	times := soak.Size(10., 100)
	sc := model.DefaultScenario()
	sc.Clients = int(times * 1000)
	sc.Server = sc.Server.Sized(times)
	sc.Watched = 30 * time.Second
	fixed, err := Run(t.Context(), sc, strategy(t, "fixed"), 1)
	require.NoError(t, err)
	shared, err := Run(t.Context(), sc, strategy(t, "shared"), 1)
	require.NoError(t, err)
	assert.True(t, fixed.Figures().Recovered < 0, "with a fixed delay it was back")
	if f := shared.Figures(); f.SentFrozen > fixed.SentFrozen/20 || f.Peak > 2*sc.Server.Limit {
		t.Errorf("shared: %d attempts while frozen, peak %d", f.SentFrozen, f.Peak)
	}
}

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

// arm returns a strategy of many processes.
func arm(t *testing.T, key string) model.Strategy {
	t.Helper()
	for _, st := range model.Fleets(model.DefaultScenario().Timeout) {
		if st.Key == key {
			return st
		}
	}
	t.Fatalf("no arm %q", key)
	return model.Strategy{}
}

// A thousand processes that hear from each other after 100 ms bring the server back within
// 5 s, and do not overload it. If they share nothing, it never comes back.
// If they all return at once, it has to take a heap of requests.
func TestFleet(t *testing.T) {
	sc := model.DefaultScenario()
	for _, sc.Processes = range soak.Size([]int{1000}, []int{50, 100, 1000}) {
		alone := storm(t, sc, arm(t, "alone"), few)
		probe, fleet := storm(t, sc, arm(t, "probe"), few), storm(t, sc, arm(t, "fleet"), few)
		switch {
		case alone.back != never:
			t.Errorf("%d processes: back after %v", sc.Processes, said(alone.back))
		case fleet.back > 5*time.Second || fleet.peak > 10*sc.Server.Limit || fleet.attempts > alone.attempts/5:
			t.Errorf("%d processes in a fleet: back after %v, peak %d, %d attempts while frozen", sc.Processes, said(fleet.back), fleet.peak, fleet.attempts)
		case sc.Processes == 1000 && probe.peak < 2*fleet.peak:
			t.Errorf("%d processes: peak %d without a spread return, and %d with it", sc.Processes, probe.peak, fleet.peak)
		}
	}
}

// In peace the processes of a fleet tell each other nothing.
func TestFleetInPeace(t *testing.T) {
	sc := model.DefaultScenario()
	sc.Processes = 100
	r, err := Run(t.Context(), sc, arm(t, "fleet"), 1)
	require.NoError(t, err)
	if f := r.Figures(); f.OpsPeace != 0 || f.OpsStorm == 0 {
		t.Errorf("%v operations per request in peace, %v in the storm", f.OpsPeace, f.OpsStorm)
	}
}

// The fleet may be slow. A process waits for it for 250 ms at most.
func TestFleetDelay(t *testing.T) {
	for _, delay := range soak.Size([]time.Duration{2 * time.Millisecond}, []time.Duration{0, 2 * time.Millisecond, 200 * time.Millisecond}) {
		sc := model.DefaultScenario()
		sc.Processes, sc.FleetDelay = 1000, delay
		if m := storm(t, sc, arm(t, "fleet"), few); m.back > 5*time.Second || m.peak > 10*sc.Server.Limit {
			t.Errorf("delay %v: back after %v, peak %d", delay, said(m.back), m.peak)
		}
	}
}
