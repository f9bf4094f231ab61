package ledger

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/host/instant"
)

const (
	ms  = 1_000_000
	sec = 1_000_000_000

	start = instant.Instant(time.Minute)
)

// A row is a report of a member whose failures began that long ago.
type row struct {
	member   int64
	failures int
	age      time.Duration
}

func TestOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		rows    []row
		members int
		down    bool
	}{
		"three members":                     {[]row{{1, 4, 3 * sec}, {2, 4, 3 * sec}, {3, 4, 3 * sec}}, 50, true},
		"two of two":                        {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}}, 2, true},
		"two of three":                      {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}}, 3, false},
		"a single member":                   {[]row{{1, 99, 3 * sec}}, 1, false},
		"a member that says it three times": {[]row{{1, 9, 3 * sec}, {1, 9, 3 * sec}, {1, 9, 3 * sec}, {2, 9, 3 * sec}}, 50, false},
		"nine failures":                     {[]row{{1, 3, 3 * sec}, {2, 3, 3 * sec}, {3, 3, 3 * sec}}, 50, false},
		"a young row":                       {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, 9, 2*sec - 1}}, 50, false},
		"a row that is just old enough":     {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, 9, 2 * sec}}, 50, true},
		"a row that is yet to begin":        {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, 9, -time.Hour}}, 50, false},
		"a fleet of unknown size":           {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}}, 0, true},
		"absurd numbers":                    {[]row{{1, math.MaxInt, 3 * sec}, {2, math.MaxInt, 3 * sec}, {3, 1, 3 * sec}}, 50, true},
		"negative numbers":                  {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, math.MinInt, 3 * sec}}, 50, true},
	} {
		t.Run(name, func(t *testing.T) {
			var h Host
			down := false
			for _, r := range tt.rows {
				require.False(t, down, "down too early")
				down, _ = h.Failing(start, r.member, r.failures, start.Add(-r.age), tt.members)
			}
			if down != tt.down || h.IsDown(start) != tt.down {
				t.Errorf("down %v, %v", down, h.IsDown(start))
			}
		})
	}
}

// fails tells h of failures, and says whether it is down by that.
func fails(h *Host, now instant.Instant, member int64, failures int, since instant.Instant, members int) bool {
	down, _ := h.Failing(now, member, failures, since, members)
	return down
}

// probes says whether a member gets the permit.
func probes(h *Host, now instant.Instant, member int64, members int) bool {
	granted, _ := h.Probe(now, member, members)
	return granted
}

// reported returns a host that three members report, so that it is down since then.
func reported(t *testing.T, h *Host, now, since instant.Instant) {
	t.Helper()
	for member := range int64(3) {
		h.Failing(now, 1+member, 10, since.Add(-time.Duration(2-member)*ms), 50)
	}
	if !h.IsDown(now) || h.Since() != since {
		t.Fatalf("down %v since %v", h.IsDown(now), h.Since())
	}
}

// Reports count for 10 s. Of more than 16 members the first 16 count.
func TestReportsAreBounded(t *testing.T) {
	var h Host
	h.Failing(start, 1, 10, start-3*sec, 50)
	h.Failing(start, 2, 10, start-3*sec, 50)
	assert.False(t, fails(&h, start.Add(ReportTime)+1, 3, 10, start-3*sec, 50), "by reports that are too old")
	h = Host{}
	for member := range int64(1000) {
		h.Failing(start, member, 0, start-3*sec, 1000)
	}
	if len(h.failing) != MaxReports || h.IsDown(start) {
		t.Errorf("%d reports, down %v", len(h.failing), h.IsDown(start))
	}
	// A member that is among them can say more.
	assert.True(t, fails(&h, start, 3, 10, start-3*sec, 1000), "not down")
}

// A success withdraws all reports, and rows that began before it count no more.
func TestSuccessWithdrawsReports(t *testing.T) {
	var h Host
	h.Failing(start, 1, 10, start-3*sec, 50)
	h.Failing(start, 2, 10, start-3*sec, 50)
	assert.False(t, h.Working(start, 4), "all have to hear of a success at a host that was not down")
	for member := range int64(5) {
		require.False(t, fails(&h, start+5*sec, member, 10, start, 50), "down by rows from before the success")
	}
	reported(t, &h, start+5*sec, start+ms+2*ms)
}

// After an objection there is no outage for 10 s. After the success of a probe there may
// be one at once.
func TestObjection(t *testing.T) {
	var h Host
	reported(t, &h, start, start-3*sec)
	require.True(t, h.Working(start+ms, 9) && !h.IsDown(start+ms), "the objection ends nothing")
	for member := range int64(5) {
		require.False(t, fails(&h, start.Add(Objection), member, 10, start+sec, 50), "down again in less than 10 s")
	}
	reported(t, &h, start.Add(Objection)+ms, start+sec)

	now := start.Add(time.Hour)
	h = Host{}
	reported(t, &h, now, now-3*sec)
	require.True(t, probes(&h, now, 9, 50), "no probe")
	require.True(t, h.Working(now+ms, 9) && !h.IsDown(now+ms), "the probe ends nothing")
	reported(t, &h, now+4*sec, now+sec)
}

// An outage lasts for a minute after the last probe.
func TestOutageLapses(t *testing.T) {
	var h Host
	reported(t, &h, start, start-3*sec)
	assert.False(t, fails(&h, start+sec, 7, 10, start-3*sec, 50), "a second outage")
	if granted, _ := h.Probe(start+50*sec, 9, 50); !granted || !h.IsDown((start+50*sec).Add(DownTime)-1) {
		t.Error("the probe does not make it last")
	}
	assert.False(t, h.IsDown((start + 50*sec).Add(DownTime)), "down for ever")
	assert.False(t, h.Working((start+50*sec).Add(DownTime), 8), "the success is news although the outage has lapsed")
}

// A member that asks again gets its permit for another second, up to 10 s in all. If it does
// not ask, because it died, another member has its turn.
func TestPermitsAreLent(t *testing.T) {
	var h Host
	at := start
	for ; at < start.Add(ProbeTime); at += 300 * ms {
		require.True(t, probes(&h, at, 1, 4), "lost after %v", at-start)
		require.False(t, probes(&h, at+ms, 2, 4), "two probes")
	}
	assert.True(t, probes(&h, start.Add(ProbeTime), 2, 4), "a probe that does not end keeps the permit")
	assert.False(t, probes(&h, start.Add(ProbeTime).Add(LendTime)-1, 3, 4), "two probes")
	assert.True(t, probes(&h, start.Add(ProbeTime).Add(LendTime), 3, 4), "a member that died keeps the permit")
}

// A member whose probe does not end lets the others have their turn.
func TestProbe(t *testing.T) {
	var h Host
	ask := func(now instant.Instant, member int64, granted bool, wait time.Duration) {
		t.Helper()
		if g, w := h.Probe(now, member, 4); g != granted || w != wait {
			t.Fatalf("at %v member %d: %v, wait %v; want %v, %v", now, member, g, w, granted, wait)
		}
	}
	ask(start, 1, true, 0)
	ask(start+9*sec, 1, true, 0)
	ask(start+9*sec, 2, false, ProbeGap)
	ask(start.Add(ProbeTime), 1, false, ProbeGap)
	h.ProbeFailed(start.Add(ProbeTime), 2) // not its probe
	ask(start.Add(ProbeTime), 2, true, 0)

	failed := start.Add(ProbeTime) + sec
	h.ProbeFailed(failed, 2)
	h.ProbeFailed(failed+sec/4, 2) // a second time
	ask(failed.Add(ProbeGap)-100*ms, 3, false, 100*ms)
	ask(failed.Add(ProbeGap), 2, false, ProbeGap)
	ask(failed.Add(2*ProbeGap), 2, true, 0) // nobody else wanted to
	h.ProbeFailed(failed.Add(2*ProbeGap), 2)
	ask(failed.Add(3*ProbeGap), 3, true, 0)
}

// However the members ask, there is one permit at a time, the gap after a failed probe is
// kept, and a host that nobody probes can be probed after 1 s.
func TestPermitsAreAlone(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h Host
		var holder int64 // whose permit counts; 0: nobody's
		var since, until, failed instant.Instant
		now, members, permits := start, 1+rng.IntN(6), 0
		for range 500 {
			now = now.Add([]time.Duration{0, ms, 100 * ms, 700 * ms, 4 * sec}[rng.IntN(5)])
			if now >= until {
				holder = 0
			}
			member := 1 + rng.Int64N(int64(members))
			switch rng.IntN(6) {
			case 0:
				if h.ProbeFailed(now, member); member == holder {
					holder, failed = 0, now
				}
			case 1:
				if h.Working(now, member) {
					holder, failed = 0, 0
				}
			case 2:
				h.Failing(now, member, 5, now-3*sec, members)
			default:
				granted, wait := h.Probe(now, member, members)
				switch {
				case granted && holder != 0 && holder != member:
					t.Fatalf("seed %d: %d and %d probe", seed, holder, member)
				case granted && holder == 0 && failed > 0 && now < failed.Add(ProbeGap):
					t.Fatalf("seed %d: a probe %v after a failed probe", seed, now.Sub(failed))
				case granted && holder == 0:
					holder, since, until, permits = member, now, now.Add(LendTime), permits+1
				case granted: // it is renewed
					until = min(now.Add(LendTime), since.Add(ProbeTime))
				case !granted && (wait <= 0 || wait > ProbeGap+time.Duration(members)*AskEach):
					t.Fatalf("seed %d: wait %v", seed, wait)
				}
			}
		}
		assert.GreaterOrEqual(t, permits, 10, "seed %d: %d permits", seed, permits)
		assert.True(t, probes(&h, now.Add(ProbeTime).Add(ProbeGap), 7, members), "seed %d: nobody may probe", seed)
	}
}

func TestReturnTime(t *testing.T) {
	for members, want := range map[int]time.Duration{1: 100 * ms, 10: sec, 50: 5 * sec, 10_000: 5 * sec} {
		assert.Equal(t, want, ReturnTime(members), "%d members", members)
	}
}

// In each window the tokens are at most the rate times its length, and the burst. Members
// that keep asking get nearly all of them.
func TestTokensKeepTheRate(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var tokens Tokens
		perSecond, burst := []float64{0.5, 3, 10, 100, 1000}[rng.IntN(5)], 1+rng.IntN(20)
		each := time.Duration(float64(sec) / perSecond)
		begin := start.Add(time.Duration(rng.Int64N(int64(time.Hour))))
		now, end := begin, (begin + 20*sec).Add(20*each)
		var at []time.Duration // when each token may be used first
		for now < end {
			n, first, every, again := tokens.Take(now, perSecond, burst, 1+rng.IntN(30)+int(perSecond))
			for i := range n {
				at = append(at, max(now, first.Add(time.Duration(i)*every)).Since())
			}
			require.False(t, n == 0 && (again <= 0 || again > 2*each+FirstAhead+MoreAhead), "seed %d: again after %v", seed, again)
			now = now.Add(time.Duration(rng.Int64N(int64(100 * ms))))
		}
		// Between the tokens j and i there are (at[i]-at[j])/each others at most, beside the burst.
		latest := math.Inf(-1) // the largest at[j]/each - j
		for i := range at {
			require.False(t, i > 0 && at[i] < at[i-1], "seed %d: tokens out of order", seed)
			x := float64(at[i]-begin.Since())/float64(each) - float64(i)
			if latest = max(latest, x); latest-x+1 > float64(burst)+1e-6 {
				t.Fatalf("seed %d: %v more tokens than the rate until %v; %v per second, burst %d", seed, latest-x+1, at[i], perSecond, burst)
			}
		}
		assert.GreaterOrEqual(t, float64(len(at)), 0.9*(perSecond*now.Sub(begin).Seconds()), "seed %d: %d tokens", seed, len(at))
	}
}

// Members with different rates stop each other for a second at most. Together they get no
// more than the fastest of them alone.
func TestTokensOfDifferentRates(t *testing.T) {
	const fast = 50.0
	for _, slow := range []float64{0.001, 1.0 / 60, 0.5, 5} {
		var tokens Tokens
		n := 0
		for now := start; now < start+20*sec; now += 130 * ms {
			if (now-start)%(3*sec) < 130*ms {
				tokens.Take(now, slow, 1, 1)
			}
			got, _, _, again := tokens.Take(now, fast, 1, 20)
			if n += got; got == 0 && again > sec {
				t.Errorf("%v per second beside %v: again after %v", fast, slow, again)
			}
		}
		assert.True(t, n >= int(20*fast/2) && n <= int(20.5*fast), "%v per second beside %v: %d tokens in 20 s", fast, slow, n)
	}
	// A member that had a slow rate itself, and then gets a faster rule.
	var tokens Tokens
	for range 2 {
		tokens.Take(start, 1.0/60, 1, 1)
	}
	if n, _, _, again := tokens.Take(start, fast, 1, 1); n != 0 || again > sec {
		t.Errorf("%d tokens, again after %v", n, again)
	}
	if n, first, _, _ := tokens.Take(start+sec, fast, 1, 1); n != 1 || first > start+sec {
		t.Errorf("%d tokens at %v", n, first-start)
	}
}

func TestTokensAtTheLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		perSecond   float64
		burst, want int
		every       time.Duration
	}{
		"a token in a long time":      {1e-300, 5, 10, MaxEvery},
		"none":                        {0, 5, 10, MaxEvery},
		"not a number":                {math.NaN(), 5, 10, MaxEvery},
		"a token per nanosecond":      {1e300, 5, 10, 1},
		"a burst for ever":            {1e-5, math.MaxInt32, 10, MaxEvery},
		"a burst and a wish for ever": {1000, math.MaxInt32, math.MaxInt32, ms},
		"a rate and a wish for ever":  {math.Inf(1), 1, math.MaxInt32, 1},
	} {
		var tokens Tokens
		n, first, every, _ := tokens.Take(start, tt.perSecond, tt.burst, tt.want)
		if every != tt.every || n < 1 || n > tt.want || first > start {
			t.Errorf("%s: %d tokens from %v, every %v", name, n, first-start, every)
		}
		taken := n
		for range tt.burst {
			n, first, _, _ := tokens.Take(start, tt.perSecond, tt.burst, tt.want)
			if taken += n; n == 0 || first > start {
				break
			}
		}
		if float64(taken) > float64(tt.burst)+float64(FirstAhead+MoreAhead)/float64(tt.every)+1 {
			t.Errorf("%s: %d tokens at once", name, taken)
		}
	}
}
