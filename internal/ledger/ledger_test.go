package ledger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
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
		"a row that has just begun":         {[]row{{1, 9, 3 * sec}, {2, 9, 4 * sec}, {4, 9, sec}, {3, 9, 4 * sec}}, 50, true},
		"a row that is just old enough":     {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, 9, 2 * sec}}, 50, true},
		"a row that is yet to begin":        {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, 9, -time.Hour}}, 50, false},
		"a fleet of unknown size":           {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}}, 0, true},
		"absurd numbers":                    {[]row{{1, math.MaxInt, 3 * sec}, {2, math.MaxInt, 3 * sec}, {3, 1, 3 * sec}}, 50, true},
		"negative numbers":                  {[]row{{1, 9, 3 * sec}, {2, 9, 3 * sec}, {3, math.MinInt, 3 * sec}}, 50, true},
	} {
		t.Run(name, func(t *testing.T) {
			var h Host
			down, youngest := false, time.Hour
			for _, r := range tt.rows {
				require.False(t, down, "down too early")
				down, _ = h.Failing(start, r.member, r.failures, start.Add(-r.age), tt.members)
				if r.age >= 2*sec {
					youngest = min(youngest, r.age)
				}
			}
			assert.Equal(t, down, h.Since() == start.Add(-youngest), "since the last of the rows that count")
			assert.Equal(t, tt.down, down, "what Failing returns")
			assert.Equal(t, tt.down, h.IsDown(start), "what IsDown returns")
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
	granted, wait := h.Probe(now, member, members)
	return granted && wait == 0
}

// reported returns a host that three members report, so that it is down since then.
func reported(t *testing.T, h *Host, now, since instant.Instant) {
	t.Helper()
	for member := range int64(3) {
		h.Failing(now, 1+member, 10, since.Add(-time.Duration(2-member)*ms), 50)
	}
	require.Equal(t, []any{true, since}, []any{h.IsDown(now), h.Since()}, "down since")
}

// Reports count for 10 s. Of more than 16 members the first 16 count.
func TestReportsAreBounded(t *testing.T) {
	var h Host
	for age, down := range map[instant.Instant]bool{10 * sec: true, 10*sec + 1: false} {
		h = Host{}
		h.Failing(start, 1, 10, start-3*sec, 50)
		h.Failing(start, 2, 10, start-3*sec, 50)
		assert.Equal(t, down, fails(&h, start+age, 3, 10, start-3*sec, 50), "by reports of %v", age)
	}
	h = Host{}
	for member := range int64(1000) {
		h.Failing(start, member, 0, start-3*sec, 1000)
	}
	assert.Len(t, h.failing, 16, "reports")
	assert.False(t, h.IsDown(start), "down")
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
	assert.True(t, probes(&h, start+50*sec, 9, 50) && h.IsDown((start+50*sec).Add(DownTime)-1), "the probe does not make it last")
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
		g, w := h.Probe(now, member, 4)
		require.Equal(t, []any{granted, wait}, []any{g, w}, "at %v member %d", now, member)
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
			require.Equal(t, []bool{n > 0, n == 0}, []bool{again == 0, first == 0}, "seed %d: again after %v", seed, again)
			require.True(t, again >= 0 && again <= 2*each+FirstAhead+MoreAhead, "seed %d: again after %v", seed, again)
			now = now.Add(time.Duration(rng.Int64N(int64(100 * ms))))
		}
		// Between the tokens j and i there are (at[i]-at[j])/each others at most, beside the burst.
		latest := math.Inf(-1) // the largest at[j]/each - j
		for i := range at {
			require.False(t, i > 0 && at[i] < at[i-1], "seed %d: tokens out of order", seed)
			x := float64(at[i]-begin.Since())/float64(each) - float64(i)
			latest = max(latest, x)
			require.LessOrEqual(t, latest-x+1, float64(burst)+1e-6, "seed %d: tokens until %v; %v per second, burst %d", seed, at[i], perSecond, burst)
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
			n += got
			assert.True(t, got > 0 || again <= sec, "%v per second beside %v: again after %v", fast, slow, again)
		}
		assert.True(t, n >= int(20*fast/2) && n <= int(20.5*fast), "%v per second beside %v: %d tokens in 20 s", fast, slow, n)
	}
	// A member that had a slow rate itself, and then gets a faster rule.
	var tokens Tokens
	for range 2 {
		tokens.Take(start, 1.0/60, 1, 1)
	}
	n, _, _, again := tokens.Take(start, fast, 1, 1)
	assert.True(t, n == 0 && again <= sec, "%d tokens, again after %v", n, again)
	n, first, _, _ := tokens.Take(start+sec, fast, 1, 1)
	assert.True(t, n == 1 && first <= start+sec, "%d tokens at %v", n, first-start)
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
		assert.True(t, every == tt.every && 1 <= n && n <= tt.want && first <= start, "%s: %d tokens from %v, every %v", name, n, first-start, every)
		taken := n
		for range tt.burst {
			n, first, _, _ := tokens.Take(start, tt.perSecond, tt.burst, tt.want)
			if taken += n; n == 0 || first > start {
				break
			}
		}
		assert.LessOrEqual(t, float64(taken), float64(tt.burst)+float64(FirstAhead+MoreAhead)/float64(tt.every)+1, name)
	}
}

// The members that are refused ask again one after the other. If they all waited equally
// long, a large fleet would ask all at once, and then not for minutes.
func TestTurns(t *testing.T) {
	const members = 10_000
	var h Host
	now := instant.At(time.Minute)
	require.True(t, probes(&h, now, 0, members), "refused")
	var last time.Duration
	for member := range int64(members - 1) {
		granted, wait := h.Probe(now, member+1, members)
		require.False(t, granted, "two probes at a time")
		require.Equal(t, max(ProbeGap, min(last+AskEach, members*AskEach)), wait, "the member before waits %v", last)
		last = wait
	}
	// After a success they begin anew.
	h.Working(now, 0)
	h.Probe(now.Add(time.Second), 1, members)
	_, wait := h.Probe(now.Add(time.Second), 2, members)
	assert.Equal(t, ProbeGap, wait, "the wait in the next outage")
}

// A member whose probe failed comes after a member that has sent none and that asks.
func TestTriedComesLast(t *testing.T) {
	var h Host
	now := instant.At(time.Minute)
	fail := func(member int64) {
		t.Helper()
		require.True(t, probes(&h, now, member, 3), "member %d does not get the permit", member)
		now = now.Add(10 * time.Millisecond)
		h.ProbeFailed(now, member)
	}
	fail(1)
	now = now.Add(sec)
	fail(2)
	granted, wait := h.Probe(now, 3, 3) // too early
	require.False(t, granted, "a probe right after a failed probe")
	now = now.Add(500 * ms)
	assert.False(t, probes(&h, now, 1, 3), "a member whose probe failed goes before a member that has sent none")
	now = max(now, instant.At(time.Minute+wait))
	assert.True(t, probes(&h, now, 3, 3), "the member that has sent none does not go")
	h.ProbeFailed(now, 3)
	now = now.Add(500 * ms)
	assert.True(t, probes(&h, now, 1, 3), "nobody else asks, and the member does not go")
	// If the member that asked does not come back within 100 ms, the others go on.
	h.ProbeFailed(now, 1)
	h.Probe(now, 4, 3)
	assert.False(t, probes(&h, now+600*ms-1, 2, 3))
	assert.True(t, probes(&h, now+600*ms, 2, 3), "a member that left keeps the others from the probe")
	// After the probe of a member that had sent none, and after a success, no member waits for another.
	h.Probe(now+sec, 5, 1000)
	h.ProbeFailed(now+sec, 2)
	h.others = now + 10*sec
	assert.True(t, probes(&h, now+1500*ms, 6, 3))
	h.ProbeFailed(now+1500*ms, 6)
	assert.True(t, probes(&h, now+2*sec, 2, 3), "a probe of another was the last")
	h.others = now + 10*sec
	h.Working(now+2*sec, 2)
	h.ProbeFailed(now+2*sec, 2) // it has ended
	assert.True(t, probes(&h, now+2*sec, 1, 3))
	// 32 members are known.
	for member := range int64(33) {
		now += 10 * sec
		fail(member + 1)
	}
	assert.Len(t, h.tried, 32)
	assert.Equal(t, []int64{2, 33}, []int64{h.tried[0], h.tried[31]})
}

// What a record answers, and what it tells the others.
func TestRecordTells(t *testing.T) {
	var r Record
	now := instant.At(2 * MaxWait)
	fails := fleetmsg.Message{Kind: fleetmsg.Failing, Failures: 4, Wait: 3 * sec}
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 7, Status: 503, Wait: time.Minute}
	quota := fleetmsg.Message{Kind: fleetmsg.Quota, Scope: 7, Unit: "u", Amount: 5, Limit: 9, Wait: time.Minute}
	short, long := quota, quota
	short.Wait, long.Wait, long.Amount = 1, 999*time.Hour, 1e300
	tokens := func(kind fleetmsg.Kind, amount, spent float64, silence time.Duration) fleetmsg.Message {
		return fleetmsg.Message{Kind: kind, Unit: "x", PerSecond: 10, Burst: 3, Amount: amount, Spent: spent, Wait: silence}
	}
	meet, working, ask := fleetmsg.Message{Kind: fleetmsg.Meet}, fleetmsg.Message{Kind: fleetmsg.Working}, fleetmsg.Message{Kind: fleetmsg.AskProbe}
	for i, row := range []struct {
		after  time.Duration
		member int64
		tells  fleetmsg.Message
		want   string // the answers and the news
	}{
		{0, 1, fails, "[] []"},
		{0, 2, fails, "[] []"},
		{0, 3, fails, "[down wait=3s] [down wait=3s]"},
		{sec, 4, fails, "[down wait=4s] []"},
		{0, 3, meet, "[down wait=4s] []"},
		{0, 3, ask, "[probe granted=true] []"},
		{0, 4, ask, "[probe wait=500ms] []"},
		{0, 3, fleetmsg.Message{Kind: fleetmsg.ProbeFailed}, "[] []"},
		{500 * ms, 4, ask, "[probe granted=true] []"},
		{0, 4, working, "[] [up wait=400ms]"},
		{0, 4, working, "[] []"},
		{0, 1, hold, "[] [hold scope=7 status=503 wait=1m0s]"},
		{0, 2, hold, "[] []"},
		{0, 2, fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 7, Wait: 2 * time.Minute}, "[] [hold scope=7 status=429 wait=2m0s]"},
		{0, 1, fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 7, Wait: 2*time.Minute + HoldSlack}, "[] []"},
		{0, 2, fleetmsg.Message{Kind: fleetmsg.Hold, Scope: 7, Wait: 2*time.Minute + HoldSlack + 1}, "[] [hold scope=7 status=429 wait=2m0.100000001s]"},
		{0, 2, quota, "[] [quota scope=7 unit=u wait=1m0s members=1 amount=5 limit=9]"},
		{Gap - 1, 1, quota, "[quota scope=7 unit=u wait=1m0s members=2 amount=5 limit=9] []"},
		{0, 1, quota, "[] []"},
		{1, 2, quota, "[quota scope=7 unit=u wait=1m0s members=2 amount=5 limit=9] [quota scope=7 unit=u wait=1m0s members=2 amount=5 limit=9]"},
		{0, 1, fleetmsg.Message{Kind: fleetmsg.Down}, "[] []"},
		{0, 1, meet, "[hold scope=7 status=429 wait=2m0.000000001s quota scope=7 unit=u wait=1m0s members=2 amount=5 limit=9] []"},
		{0, 2, meet, "[hold scope=7 status=503 wait=59.9s] []"},
		{time.Minute, 2, meet, "[] []"},
		{0, 1, meet, "[hold scope=7 status=429 wait=1m0.000000001s] []"},
		{time.Minute + 1, 1, meet, "[] []"},
		{0, 2, fleetmsg.Message{Kind: fleetmsg.Hold, Wait: 999 * time.Hour}, "[] [hold status=429 wait=720h0m0s]"},

		{0, 1, short, "[] [quota scope=7 unit=u wait=1ns members=1 amount=5 limit=9]"},
		{sec - 1, 2, long, // a user counts for 1 s at least, and for 1 min at most
			"[quota scope=7 unit=u wait=720h0m0s members=2 amount=9.007199254740992e+15 limit=9] [quota scope=7 unit=u wait=720h0m0s members=2 amount=9.007199254740992e+15 limit=9]"},
		{time.Minute - 1, 3, short, "[quota scope=7 unit=u wait=1ns members=2 amount=5 limit=9] [quota scope=7 unit=u wait=1ns members=2 amount=5 limit=9]"},
		{sec, 1, short, "[] [quota scope=7 unit=u wait=1ns members=1 amount=5 limit=9]"},

		{0, 1, tokens(fleetmsg.Unused, 9, 0, 0), "[] []"}, // nobody has taken any
		{0, 1, tokens(fleetmsg.AskTokens, 2, 0, 0), "[tokens unit=x first=-200ms every=100ms amount=2] []"},
		{0, 1, tokens(fleetmsg.AskTokens, 9, 0, 0), "[tokens unit=x every=100ms amount=3] []"},
		{0, 1, tokens(fleetmsg.AskTokens, 9, 0, 0), "[tokens unit=x first=300ms every=100ms amount=1] []"},
		{0, 1, tokens(fleetmsg.Unused, 1, 0, 0), "[] []"},
		{0, 1, tokens(fleetmsg.AskTokens, 9, 0, 0), "[tokens unit=x first=300ms every=100ms amount=1] []"},
		{0, 1, tokens(fleetmsg.AskTokens, 9, 1, 0), "[tokens unit=x first=500ms every=100ms amount=1] []"},
		{0, 1, tokens(fleetmsg.AskTokens, 9, 0, 0), "[tokens unit=x wait=350ms every=100ms] []"},
		{time.Hour, 1, tokens(fleetmsg.AskTokens, 9, 3, sec), "[tokens unit=x first=-200ms every=100ms amount=5] []"}, // all were silent
		{0, 1, tokens(fleetmsg.Unused, 1e9, 0, 0), "[] []"},                                                           // the bucket is full at most
		{0, 1, tokens(fleetmsg.AskTokens, 9, 0, 0), "[tokens unit=x first=-200ms every=100ms amount=5] []"},
	} {
		now = now.Add(row.after)
		row.tells.Host = "h"
		answers, news := r.Tell(now, row.member, 4, row.tells)
		assert.Equal(t, row.want, strings.NewReplacer(" host=h", "", `"`, "").Replace(fmt.Sprint(answers, news)), "row %d", i)
	}
	r.Tell(now+1, 1, 4, fleetmsg.Message{Kind: fleetmsg.Meet, Host: "h"})
	assert.Equal(t, now, r.Told, "the last member only met the host")
}

func TestValid(t *testing.T) {
	good := []fleetmsg.Message{
		{Host: "h", Kind: fleetmsg.AskTokens, PerSecond: 1e-9, Burst: 1, Amount: 1},
		{Host: strings.Repeat("h", 512), Unit: strings.Repeat("u", 64), Kind: fleetmsg.Unused, Wait: MaxWait, Spent: 1 << 53, PerSecond: 1e300, Burst: 1 << 53, Amount: 1 << 53},
		{Host: "h", Kind: fleetmsg.Hold, Wait: 1},
		{Host: "h", Kind: fleetmsg.Quota, Wait: 1},
		{Host: "h", Kind: fleetmsg.Failing, Failures: 1},
		{Host: "h", Kind: fleetmsg.Failing, Failures: 1, Wait: MaxWait},
		{Host: "h", Kind: fleetmsg.Meet},
	}
	for i, m := range good {
		assert.True(t, Valid(m), i)
	}
	for _, row := range []struct {
		of    int
		field string
		bad   any
	}{
		{0, "Host", ""}, {0, "Wait", -1}, {0, "Spent", -1}, {0, "PerSecond", 0}, {0, "PerSecond", math.Inf(1)}, {0, "Burst", 0}, {0, "Amount", 0},
		{1, "Host", good[1].Host + "h"}, {1, "Unit", good[1].Unit + "u"}, {1, "Wait", MaxWait + 1}, {1, "Spent", 1 << 54}, {1, "Burst", 1 << 54}, {1, "Amount", 1 << 54},
		{2, "Wait", 0}, {3, "Wait", 0}, {3, "Amount", -1}, {3, "Limit", -1}, {4, "Failures", 0}, {4, "Wait", -1}, {5, "Wait", MaxWait + 1}, {6, "Kind", fleetmsg.Down},
	} {
		m := good[row.of]
		f := reflect.ValueOf(&m).Elem().FieldByName(row.field)
		f.Set(reflect.ValueOf(row.bad).Convert(f.Type()))
		assert.False(t, Valid(m), row)
	}
	assert.Equal(t, []any{3, 10, 2 * time.Second, 10 * time.Second, 10 * time.Second, 16, time.Minute, 10 * time.Second, time.Second, 500 * time.Millisecond},
		[]any{Quorum, MinFailures, MinTime, Objection, ReportTime, MaxReports, DownTime, ProbeTime, LendTime, ProbeGap}, "the figures that the comments name")
	assert.Equal(t, []any{10 * time.Millisecond, 32, 500 * time.Millisecond, 250 * time.Millisecond, 24 * time.Hour, 256, 128, 8, 30 * 24 * time.Hour, time.Second, time.Minute},
		[]any{AskEach, MaxTried, FirstAhead, MoreAhead, MaxEvery, MaxScopes, maxUsers, maxUnits, MaxWait, MinPeriod, MaxPeriod})
	assert.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{AskSlack, HoldSlack, Gap})
}

// The scopes, users and units of a host are bounded, also if a Fleet is told of more.
func TestRecordIsBounded(t *testing.T) {
	var r Record
	now := instant.At(2 * MaxWait)
	for i := range 2000 {
		scope := uint64(i)
		now = now.Add(Gap)
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: scope, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: scope, Amount: 1, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: 1, Amount: 1, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "h", Unit: time.Duration(i).String(), PerSecond: 1, Burst: 1, Amount: 1})
	}
	users := 0
	for _, q := range r.quotas {
		users = max(users, len(q.users))
	}
	assert.Equal(t, [4]int{MaxScopes, MaxScopes, maxUnits, maxUsers}, [4]int{len(r.holds), len(r.quotas), len(r.rates), users}, "holds, quotas, rates, users")
	has := func(scope uint64) bool {
		return slices.ContainsFunc(r.holds, func(h hold) bool { return h.scope == scope }) && slices.ContainsFunc(r.quotas, func(q quota) bool { return q.scope == scope })
	}
	assert.True(t, has(1999) && has(2000-MaxScopes+1) && !has(2000-MaxScopes-1), "what was told longest ago goes")
	assert.EqualValues(t, 2*2000-2*MaxScopes, r.Dropped, "those that made room are counted")
	// When they are over, there is room for others.
	later := now.Add(2 * time.Hour)
	r.Tell(later, 1, 1, fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: 5000, Wait: time.Hour})
	r.Tell(later, 1, 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: 5000, Amount: 1, Wait: time.Hour})
	assert.True(t, len(r.holds) == 1 && len(r.quotas) == 1, "%d holds, %d quotas", len(r.holds), len(r.quotas))
}

// For a bucket that was lost, the token that is due later counts, but for one that is too far ahead.
func TestDue(t *testing.T) {
	for i, row := range []struct {
		bucket Tokens
		a      Absence
		first  time.Duration
	}{
		{Tokens{}, Absence{}, -200 * ms},
		{Tokens{}, Absence{Due: 300 * ms}, -200 * ms},
		{Tokens{}, Absence{Due: 300 * ms, Sure: true}, 300 * ms},
		{Tokens{}, Absence{Due: time.Hour, Sure: true}, 500 * ms},
		{Tokens{next: start + 100*ms, used: true}, Absence{Due: 300 * ms, Sure: true}, 300 * ms},
		{Tokens{next: start + 400*ms, used: true}, Absence{Due: 300 * ms, Sure: true}, 400 * ms},
		// Nobody was answered for 0.6 of 1 s. The bucket is as full as before, or has what came since.
		{Tokens{next: start - 400*ms, used: true, asked: start - 600*ms}, Absence{Silence: sec, Spent: 5}, 100 * ms},
		{Tokens{next: start - 900*ms, used: true, asked: start - 600*ms}, Absence{Silence: sec}, -200 * ms},
		{Tokens{next: start - 100*ms, used: true, asked: start - 500*ms}, Absence{Silence: sec}, -100 * ms}, // others were
		{Tokens{next: start - 100*ms, used: true, asked: start, debt: -200 * ms, resumed: start - 50*ms}, Absence{Spent: 1}, -100 * ms},
	} {
		row.bucket.Repay(start, 10, 3, row.a)
		_, first, every, _ := row.bucket.Take(start, 10, 3, 1)
		assert.Equal(t, []time.Duration{row.first, 100 * ms}, []time.Duration{first.Sub(start), every}, "row %d", i)
	}
}

// A member that was not answered used tokens by itself. They are taken from the bucket, so that
// all members together keep the rate. The bucket pays over time, and another member pays for
// it, too.
func TestRepay(t *testing.T) {
	ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "h", PerSecond: 100, Burst: 1, Amount: 50}
	const each = 10 * time.Millisecond
	for _, row := range []struct {
		spent float64
		owed  time.Duration
	}{
		{2, 2 * each},
		{10, 10 * each},
		{1e9, FirstAhead}, // nobody stops the others for longer
	} {
		var r Record
		now := instant.At(2 * MaxWait)
		last, total := instant.Instant(0), 0 // the last token, and how many there were
		take := func(spent float64, silence time.Duration) {
			m := ask
			m.Spent, m.Wait = spent, silence
			answers, _ := r.Tell(now, 1, 4, m)
			a := answers[0]
			if n := int(a.Amount); n > 0 {
				last, total = now.Add(a.First+time.Duration(n-1)*a.Every), total+n
			}
			require.Equal(t, a.Amount == 0, a.Wait > 0 && a.Wait <= FirstAhead, "again after %v", a.Wait)
		}
		take(0, 0)
		begin := now
		for i := range 400 {
			spent, silence := 0.0, time.Duration(0)
			if now = now.Add(each); i == 100 { // the tokens are used as fast as they come
				spent, silence = row.spent, time.Second
			}
			take(spent, silence)
		}
		assert.Equal(t, time.Duration(total)*each+row.owed, last.Sub(begin)+each, "%v spent", row.spent)
		// A bucket that was full for long is emptied by as much.
		now = now.Add(time.Hour)
		take(0, 0)
		now = now.Add(time.Hour)
		take(row.spent, each)
		take(0, 0)
		assert.LessOrEqual(t, r.rates[0].tokens.debt, time.Duration(0), "%v spent", row.spent)
	}
}

// Tokens for which a full bucket has no room pay for what is owed.
func TestRepayInAPause(t *testing.T) {
	const perSecond, burst, full = 10, 5, -400 * time.Millisecond // the first token of a full bucket
	begin := instant.At(2 * MaxWait)
	for pause, want := range map[time.Duration]time.Duration{time.Hour: full, 1200 * time.Millisecond: full + 300*time.Millisecond} {
		var b Tokens
		ask := func(now instant.Instant, spent float64) (first time.Duration) {
			b.Repay(now, perSecond, burst, Absence{Spent: spent})
			_, at, _, _ := b.Take(now, perSecond, burst, 1)
			return at.Sub(now)
		}
		ask(begin, 100)
		ask(begin, 100) // the bucket is as far ahead as it may be
		require.Equal(t, 500*time.Millisecond, b.debt)
		require.Equal(t, begin.Add(600*time.Millisecond), b.next)
		assert.Equal(t, want, ask(begin.Add(pause), 0), pause)
	}
}

// If nobody was answered, the parts of all members were the rate. So the bucket is as full as
// before, and the members pay only for what they sent when others got tokens again.
func TestRepayAfterAnInterruption(t *testing.T) {
	const members, perSecond, burst, each = 10, 100.0, 200, 10 * time.Millisecond
	var b Tokens
	begin := instant.At(2 * MaxWait)
	b.Take(begin, perSecond, burst, 1) // 1 of 200, so the bucket is full
	b.next = begin.Add(-50 * each)     // 51 are left
	left := func(now instant.Instant) float64 { return float64(now.Sub(b.next)) / float64(each) }
	for i := range members {
		now := begin.Add(2*time.Second + time.Duration(i)*10*time.Millisecond) // they come back one after the other
		before := left(now)
		silence := now.Sub(begin)
		b.Repay(now, perSecond, burst, Absence{Silence: silence, Spent: silence.Seconds() * perSecond / members})
		n, _, _, _ := b.Take(now, perSecond, burst, 1)
		if i == 0 {
			require.InDelta(t, 51, left(now)+float64(n), 1.01, "after an interruption")
		}
		require.LessOrEqual(t, left(now), before)
	}
	// The others sent 45 tokens of a tenth of 10 ms each while the first was back, beside one
	// token for each that came back.
	now := begin.Add(2090 * time.Millisecond)
	require.InDelta(t, 50+9-10-4.5, left(now), 1)
	// A member that falls silent later pays for all.
	now = now.Add(time.Second)
	b.Take(now, perSecond, burst, 1)
	before := left(now)
	b.debt = -time.Second // some members have not come back
	b.Repay(now, perSecond, burst, Absence{Silence: 500 * time.Millisecond, Spent: 5})
	require.InDelta(t, before-5, left(now), 0.01)
	// The tokens that were given ahead are used first.
	b = Tokens{next: begin.Add(40 * each), asked: begin, used: true}
	b.Repay(begin.Add(2*time.Second), perSecond, burst, Absence{Silence: 2 * time.Second})
	require.InDelta(t, 0, left(begin.Add(2*time.Second)), 0.01)
}
