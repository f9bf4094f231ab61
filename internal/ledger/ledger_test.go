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
			assert.Equal(t, tt.down, h.IsDown(), "what IsDown returns")
		})
	}
}

// fails tells h of failures, and says whether it is down by that.
func fails(h *Host, now instant.Instant, member int64, failures int, since instant.Instant, members int) bool {
	down, _ := h.Failing(now, member, failures, since, members)
	return down
}

// reported returns a host that three members report, so that it is down since then.
func reported(t *testing.T, h *Host, now, since instant.Instant) {
	t.Helper()
	for member := range int64(3) {
		h.Failing(now, 1+member, 10, since.Add(-time.Duration(2-member)*ms), 50)
	}
	require.Equal(t, []any{true, since}, []any{h.IsDown(), h.Since()}, "down since")
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
	assert.False(t, h.IsDown(), "down")
	// A member that is among them can say more.
	assert.True(t, fails(&h, start, 3, 10, start-3*sec, 1000), "not down")
}

// A success withdraws all reports, and rows that began before it count no more.
func TestSuccessWithdrawsReports(t *testing.T) {
	var h Host
	h.Failing(start, 1, 10, start-3*sec, 50)
	h.Failing(start, 2, 10, start-3*sec, 50)
	assert.False(t, h.Working(start), "all have to hear of a success at a host that was not down")
	late := h
	assert.False(t, fails(&late, start+3*sec, 3, 10, start+ms, 50), "down by reports from before the success")
	for member := range int64(5) {
		require.False(t, fails(&h, start+5*sec, member, 10, start, 50), "down by rows from before the success")
	}
	reported(t, &h, start+5*sec, start+ms+2*ms)
}

// A success ends an outage, and withdraws the reports of the time before it. The next outage begins
// 10 s after the last did, also by reports that came before.
func TestOutagesAreApart(t *testing.T) {
	for ends, again := range map[time.Duration]time.Duration{
		ms:               MinApart, // the host was never down
		MinApart - 3*sec: MinApart,
		MinApart + sec:   MinApart + sec + MinTime + ms,
		time.Hour:        time.Hour + MinTime + ms,
	} {
		var h Host
		reported(t, &h, start, start-3*sec)
		end := start.Add(ends)
		for member := range int64(5) {
			require.False(t, fails(&h, end-1, member, 10, start-3*sec, 50), "a second outage")
		}
		require.True(t, h.IsDown() && h.Working(end) && !h.IsDown() && !h.Working(end), "the first success ends the outage")
		from := start.Add(again)
		for member := range int64(5) {
			require.False(t, fails(&h, from-1, member, 10, end, 50), "down by rows from before the success")
			require.False(t, fails(&h, from-1, member, 10, end+ms, 50), "ended after %v, and down again too early", ends)
		}
		assert.True(t, fails(&h, from, 9, 1, end+ms, 50), "ended after %v, and not down again", ends)
		assert.Equal(t, end+ms, h.Since())
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
	meet, working := fleetmsg.Message{Kind: fleetmsg.Meet}, fleetmsg.Message{Kind: fleetmsg.Working}
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
	assert.Equal(t, []any{3, 10, 2 * time.Second, 10 * time.Second, 10 * time.Second, 16, 5 * time.Second, 100 * time.Millisecond},
		[]any{Quorum, MinFailures, MinTime, MinApart, ReportTime, MaxReports, MaxReturn, ReturnEach}, "the figures that the comments name")
	assert.Equal(t, []any{500 * time.Millisecond, 250 * time.Millisecond, 24 * time.Hour, 256, 128, 8, 30 * 24 * time.Hour, time.Second, time.Minute},
		[]any{FirstAhead, MoreAhead, MaxEvery, MaxScopes, maxUsers, maxUnits, MaxWait, MinPeriod, MaxPeriod})
	assert.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{HoldSlack, Gap})
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
