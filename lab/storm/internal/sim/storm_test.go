package sim

import (
	"math"
	"slices"
	"testing"
	"time"

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
