package transport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func TestSnapshot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := script(func(req *http.Request) (*http.Response, error) {
			switch req.URL.Path {
			case "/told":
				return play(req, status(429, "Retry-After: 30"))
			case "/fails":
				return play(req, status(503))
			}
			return play(req, status(200))
		})
		tr := mustNew(t, transport.Config{Base: server, Rule: policy.Rule{
			Cooldown: policy.On, Backoff: backoff.Constant(0), Attempts: 3, Rate: policy.Rate{PerSecond: 50}, Gate: policy.Gate{Start: 2, Max: 2},
		}, Hosts: map[string]policy.Rule{
			"plain.test": {Budget: policy.Budget{Burst: policy.Off}, Rate: policy.Rate{PerSecond: -1}, Gate: policy.Gate{Mode: policy.Off}},
		}})
		assert.Empty(t, tr.Snapshot())

		responds(t, tr, http.MethodGet, "http://plain.test/")
		plain, ok := tr.SnapshotOf(&url.URL{Scheme: "http", Host: "PLAIN.test:80"})
		require.True(t, ok)
		assert.Equal(t, transport.HostState{Host: "http://plain.test", Requests: 1, BudgetLeft: -1}, plain)
		assert.Equal(t, "http://plain.test: 1 requests, 0 under way", plain.String())

		_, err := send(t, tr, http.MethodGet, "http://h.test/fails") // two retries
		require.NoError(t, err)
		resp, err := get(t, tr, t.Context()) // its body keeps a slot
		require.NoError(t, err)
		responds(t, tr, http.MethodPost, "http://h.test/told", "Authorization: Bearer x")
		other := mustGet(t, tr)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = send(t, tr, http.MethodGet, "http://h.test/")
		}()
		time.Sleep(time.Millisecond)
		s := stateOf(t, tr)
		assert.InDelta(t, 28+3*0.2, s.BudgetLeft, 0.5)
		assert.WithinRange(t, s.HeldUntil, time.Now().Add(29*time.Second), time.Now().Add(31*time.Second))
		s.BudgetLeft, s.HeldUntil = 0, time.Time{}
		assert.Equal(t, transport.HostState{
			Host: "http://h.test", Requests: 5, InFlight: 1, HeldScopes: 1, GateLimit: 2, GateSlots: 2, GateQueue: 1, RatePerSecond: 50,
		}, s)
		_ = resp.Body.Close()
		_ = other.Body.Close()
		<-done

		all := tr.Snapshot()
		require.Len(t, all, 2)
		assert.Equal(t, "http://h.test", all[0].Host)
		assert.Equal(t, "http://plain.test", all[1].Host)
	})
}

func TestSnapshotOfNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: script(status(200))})
	for _, u := range []*url.URL{nil, {}, {Scheme: "http", Host: "unknown.test"}} {
		s, ok := tr.SnapshotOf(u)
		assert.False(t, ok)
		assert.Zero(t, s)
	}
	assert.Empty(t, tr.Snapshot(), "asking makes no host")
	zero := &transport.Transport{}
	assert.Nil(t, zero.Snapshot())
	_, ok := zero.SnapshotOf(&url.URL{Scheme: "http", Host: "h.test"})
	assert.False(t, ok)
}

func TestSnapshotPrints(t *testing.T) {
	until := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	full := transport.HostState{
		Host: "https://api.example.com", Requests: 7, InFlight: 2, BudgetLeft: 12.34, HeldScopes: 1, HeldUntil: until,
		GateLimit: 10, GateSlots: 1, GateQueue: 3, GateClosed: true, RatePerSecond: 12.5,
	}
	assert.Equal(t, "https://api.example.com: 7 requests, 2 under way, 12.3 retries left, 1 held until 2026-05-01T12:00:00Z, "+
		"gate closed at 10 with 1 slots in use and 3 waiting, 12.5 attempts/s", full.String())
	assert.Equal(t, full.String(), fmt.Sprint(full))
	full.GateClosed = false
	assert.Contains(t, full.String(), "gate open at 10")

	text, err := json.Marshal(full)
	require.NoError(t, err)
	assert.JSONEq(t, `{"host":"https://api.example.com","requests":7,"in_flight":2,"budget_left":12.34,"held_scopes":1,
		"held_until":"2026-05-01T12:00:00Z","gate_limit":10,"gate_slots":1,"gate_queue":3,"gate_closed":false,"rate_per_second":12.5}`, string(text))
	var back transport.HostState
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, full, back)
	text, err = json.Marshal(transport.HostState{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "held_until")
}

// A limit that Update turned off is no longer in the Snapshot.
func TestSnapshotAfterUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		tr := over(t, transport.Config{Rule: policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}, Rate: policy.Rate{PerSecond: 10}}}, script(faults.Status(200)))
		mustGet(t, tr)
		s := stateOf(t, tr)
		assert.NotZero(t, s.GateLimit)
		assert.Equal(t, 10., s.RatePerSecond)
		require.NoError(t, tr.Update(policy.Rule{}, nil))
		mustGet(t, tr)
		s = stateOf(t, tr)
		assert.Zero(t, s.GateLimit)
		assert.Zero(t, s.RatePerSecond)
	})
}

// A snapshot tells how many requests wait for a quota and for the rate.
func TestSnapshotOfQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		quota := faults.Status(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60")
		tr := mustNew(t, transport.Config{Base: script(quota), Hosts: map[string]policy.Rule{
			"paced.test": {Pacing: policy.On},
			"rated.test": {Rate: policy.Rate{PerSecond: 0.1, Burst: 1}},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, url := range []string{"http://paced.test/", "http://rated.test/"} {
			mustFetch(t, tr, ctx, url)
			for range 3 {
				all.Go(func() { _, _ = fetch(t, tr, ctx, url) })
			}
		}
		synctest.Wait()
		states := tr.Snapshot()
		assert.Equal(t, []int{3, 0}, []int{states[0].PacingQueue, states[0].RateQueue})
		assert.Equal(t, []int{0, 3}, []int{states[1].PacingQueue, states[1].RateQueue})
		assert.Contains(t, states[0].String(), ", 3 waiting for a quota")
		assert.Contains(t, states[1].String(), ", 0.1 attempts/s with 3 waiting")
		cancel()
		all.Wait()
		states = tr.Snapshot()
		assert.Zero(t, states[0].PacingQueue+states[1].RateQueue)
	})
}
