package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
)

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
	if len(r.holds) != MaxScopes || len(r.quotas) != MaxScopes || len(r.rates) != maxUnits || users != maxUsers {
		t.Errorf("%d holds, %d quotas, %d rates, %d users", len(r.holds), len(r.quotas), len(r.rates), users)
	}
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

// No member hears of a hold for longer than it was told, and none hears of its own when it meets
// the host.
func TestRecordTellsNoMoreThanItWasTold(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var r Record
		now := instant.At(2 * MaxWait)
		ends := map[uint64]instant.Instant{} // the latest end that anybody was told
		last := map[uint64]int64{}           // who told the last news
		heard := 0
		for range 300 {
			now = now.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
			m := fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: rng.Uint64N(3), Status: 429, Wait: time.Duration(1 + rng.Int64N(int64(5*time.Second)))}
			member := 1 + rng.Int64N(4)
			if rng.IntN(2) == 0 {
				m.Kind = fleetmsg.Meet
			} else {
				ends[m.Scope] = max(ends[m.Scope], now.Add(m.Wait))
			}
			answers, news := r.Tell(now, member, 4, m)
			if len(news) > 0 {
				last[m.Scope] = member
			}
			for _, a := range answers {
				require.NotEqual(t, member, last[a.Scope], "seed %d: a member hears of its own hold", seed)
			}
			for _, a := range append(answers, news...) {
				heard++
				require.LessOrEqual(t, now.Add(a.Wait), ends[a.Scope], "seed %d: a hold of %v", seed, a.Wait)
			}
		}
		require.Greater(t, heard, 50)
	}
}

// A hold that is hardly longer is no news, and neither is a quota that was told a moment ago.
func TestRecordTellsNothingTwice(t *testing.T) {
	var r Record
	now := instant.At(2 * MaxWait)
	tell := func(m fleetmsg.Message) int {
		m.Host = "h"
		_, news := r.Tell(now, 1, 4, m)
		return len(news)
	}
	hold := fleetmsg.Message{Kind: fleetmsg.Hold, Wait: time.Minute}
	assert.Equal(t, 1, tell(hold))
	hold.Wait += HoldSlack
	assert.Equal(t, 0, tell(hold))
	hold.Wait++
	assert.Equal(t, 1, tell(hold))
	assert.Equal(t, 0, tell(fleetmsg.Message{Kind: fleetmsg.Hold}), "no wait")

	quota := fleetmsg.Message{Kind: fleetmsg.Quota, Amount: 5, Limit: 10, Wait: time.Minute}
	assert.Equal(t, 1, tell(quota))
	now = now.Add(Gap - 1)
	assert.Equal(t, 0, tell(quota))
	now = now.Add(1)
	assert.Equal(t, 1, tell(quota))
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
			} else if a.Wait <= 0 || a.Wait > FirstAhead {
				t.Fatalf("again after %v", a.Wait)
			}
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
		if got, want := time.Duration(total)*each+row.owed, last.Sub(begin)+each; got != want {
			t.Errorf("%v spent: tokens of %v until %v, want %v less", row.spent, time.Duration(total)*each, want, row.owed)
		}
		// A bucket that was full for long is emptied by as much.
		now = now.Add(time.Hour)
		take(0, 0)
		now = now.Add(time.Hour)
		take(row.spent, each)
		take(0, 0)
		if debt := r.rates[0].tokens.debt; debt > 0 {
			t.Errorf("%v spent: a debt of %v is left", row.spent, debt)
		}
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
}

// Tokens that are given back can be taken again, and the bucket is full at most.
func TestGiveBack(t *testing.T) {
	var r Record
	now := instant.At(2 * MaxWait)
	ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "h", PerSecond: 100, Burst: 10, Amount: 30}
	unused := ask
	unused.Kind = fleetmsg.Unused
	take := func() int {
		answers, _ := r.Tell(now, 1, 4, ask)
		return int(answers[0].Amount)
	}
	r.Tell(now, 1, 4, unused) // nobody has taken any
	require.Equal(t, 30, take())
	unused.Amount = 20
	r.Tell(now, 1, 4, unused)
	assert.Equal(t, 25, take()) // 5 had been left within 250 ms
	unused.Amount = 1e9
	r.Tell(now, 1, 4, unused)
	assert.Equal(t, 30, take())
	assert.Equal(t, 5, take())
}
