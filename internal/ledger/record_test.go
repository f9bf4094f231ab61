package ledger

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// chance tells a Record something at random.
func chance(r *Record, rng *rand.Rand, now instant.Instant) {
	kinds := []fleetmsg.Kind{fleetmsg.Hold, fleetmsg.Quota, fleetmsg.AskTokens, fleetmsg.AskProbe, fleetmsg.ProbeFailed, fleetmsg.Failing, fleetmsg.Failing, fleetmsg.Failing, fleetmsg.Failing}
	m := fleetmsg.Message{
		Kind: kinds[rng.IntN(len(kinds))], Host: "http://h.test", Scope: rng.Uint64N(3), Status: 429 + 74*rng.IntN(2),
		Wait: time.Duration(rng.Int64N(int64(time.Minute))) * time.Duration(rng.IntN(2)), Failures: 1 + rng.IntN(9),
		Amount: float64(1 + rng.IntN(50)), Limit: 100, PerSecond: 10, Burst: 5, Again: rng.IntN(4) == 0,
	}
	if rng.IntN(40) == 0 {
		m.Kind = fleetmsg.Working
	}
	r.Tell(now, 1+rng.Int64N(4), 4, m)
}

// A Record that was kept as JSON after each step goes on like one that was not.
func TestRecordIsKept(t *testing.T) {
	outages := 0
	for seed := range soak.Size[uint64](10, 50) {
		var plain, kept Record
		one, two := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1))
		now := instant.At(2 * MaxWait)
		for step := range 200 {
			now = now.Add(time.Duration(rand.New(rand.NewPCG(seed, uint64(step))).Int64N(int64(2 * time.Second))))
			chance(&plain, one, now)
			chance(&kept, two, now)
			b, err := json.Marshal(&kept)
			require.NoError(t, err)
			kept = Record{}
			require.NoError(t, json.Unmarshal(b, &kept))
			require.True(t, kept.Sane(now, 0), "seed %d, step %d: not sane: %s", seed, step, b)
			want, _ := json.Marshal(&plain)
			require.Equal(t, string(b), string(want), "seed %d, step %d: %s\nwant %s", seed, step, b, want)
		}
		outages += min(1, int(plain.Outage.Told))
		assert.True(t, len(plain.Holds) != 0 && len(plain.Quotas) != 0 && len(plain.Rates) != 0, "seed %d: nothing happened: %+v", seed, plain)
	}
	assert.GreaterOrEqual(t, outages, soak.Size(4, 20), "outages")
}

// The scopes, users and units of a host are bounded, also if a Fleet is told of more.
func TestRecordIsBounded(t *testing.T) {
	var r Record
	now := instant.At(2 * MaxWait)
	for i := range 2000 {
		scope := uint64(i)
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: scope, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: scope, Amount: 1, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: 1, Amount: 1, Wait: time.Hour})
		r.Tell(now, int64(i), 1, fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "h", Unit: time.Duration(i).String(), PerSecond: 1, Burst: 1, Amount: 1})
	}
	if len(r.Holds) != MaxScopes || len(r.Quotas) != MaxScopes/4 || len(r.Rates) != maxUnits || len(r.Quotas[1].Users) != MaxUsers {
		t.Errorf("%d holds, %d quotas, %d rates, %d users", len(r.Holds), len(r.Quotas), len(r.Rates), len(r.Quotas[1].Users))
	}
	// When they are over, there is room for others.
	later := now.Add(2 * time.Hour)
	r.Tell(later, 1, 1, fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: 5000, Wait: time.Hour})
	r.Tell(later, 1, 1, fleetmsg.Message{Kind: fleetmsg.Quota, Host: "h", Scope: 5000, Amount: 1, Wait: time.Hour})
	assert.True(t, len(r.Holds) == 1 && len(r.Quotas) == 1, "%d holds, %d quotas", len(r.Holds), len(r.Quotas))
}

// No member hears of a hold for longer than it was told, and none hears the same twice.
func TestRecordTellsNoMoreThanItWasTold(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var r Record
		now := instant.At(2 * MaxWait)
		heard := map[int64]instant.Instant{}
		ends := map[uint64]instant.Instant{} // the latest end that anybody was told
		for range 300 {
			now = now.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
			if rng.IntN(2) == 0 {
				m := fleetmsg.Message{Kind: fleetmsg.Hold, Host: "h", Scope: rng.Uint64N(3), Status: 429, Wait: time.Duration(rng.Int64N(int64(5 * time.Second)))}
				r.Tell(now, 1+rng.Int64N(4), 4, m)
				ends[m.Scope] = max(ends[m.Scope], now.Add(m.Wait))
				continue
			}
			member := 1 + rng.Int64N(4)
			for _, m := range r.News(now, member, 4, heard[member]) {
				if now.Add(m.Wait) > ends[m.Scope] {
					t.Fatalf("seed %d: a hold of %v, %v are left", seed, m.Wait, ends[m.Scope].Sub(now))
				}
			}
			heard[member] = r.Last()
			require.LessOrEqual(t, len(r.News(now, member, 4, heard[member])), 0, "seed %d: heard twice", seed)
		}
	}
}

// A member that was not answered sends its part of the rate, and a request at once. The tokens
// for that are taken from the bucket, so that all members together keep the rate. The bucket
// pays a debt over time, and another member pays for it, too.
func TestDebit(t *testing.T) {
	ask := fleetmsg.Message{Kind: fleetmsg.AskTokens, Host: "h", PerSecond: 100, Burst: 1, Amount: 50}
	const each = 10 * time.Millisecond
	for _, row := range []struct {
		silent time.Duration // of each of two members
		owed   time.Duration
	}{
		{0, 2 * each},
		{40 * time.Millisecond, 2*each + 80*time.Millisecond},
		{time.Hour, FirstAhead}, // nobody stops the others for longer
	} {
		var r Record
		now := instant.At(2 * MaxWait)
		last := instant.Instant(0) // token
		take := func() (n int) {
			answers, _ := r.Tell(now, 1, 4, ask)
			a := answers[0]
			if n = int(a.Amount); n > 0 {
				last = now.Add(a.First + time.Duration(n-1)*a.Every)
			} else if a.Wait <= 0 || a.Wait > FirstAhead {
				t.Fatalf("again after %v", a.Wait)
			}
			return n
		}
		r.Debit(ask, row.silent) // nobody has asked yet, so there is nothing to take from
		begin, n := now, take()
		for i := range 400 {
			if now = now.Add(each); i == 100 { // the tokens are used as fast as they come
				r.Debit(ask, row.silent)
				r.Debit(ask, row.silent)
			}
			n += take()
		}
		if got, want := time.Duration(n)*each+row.owed, last.Sub(begin)+each; got != want {
			t.Errorf("silent for %v: tokens of %v until %v, want %v less", row.silent, time.Duration(n)*each, want, row.owed)
		}
		// A bucket that was full for long is emptied by as much.
		now = now.Add(time.Hour)
		r.Debit(ask, row.silent)
		if take(); r.Rates[0].Debt != 0 {
			t.Errorf("silent for %v: a debt of %v is left", row.silent, r.Rates[0].Debt)
		}
	}
}
