package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

// TestQuestions: each question is answered for each client, and no cell is
// empty. The figures of a run this short mean nothing.
func TestQuestions(t *testing.T) {
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			clients := q.clients()
			answer := testkit.Must(q.ask(quick, clients))(t)
			var named []string
			for _, row := range answer.rows {
				assert.Len(t, row, len(answer.heads), "cells")
				for _, cell := range row {
					assert.NotEmpty(t, cell, "an empty cell: %q", row)
				}
				named = append(named, row[0])
			}
			if q.name == "facts" {
				named = answer.heads
			}
			all := "\n" + strings.Join(named, "\n") + "\n"
			for i := range clients {
				name := clients[i].name
				floor := name == bare.name || name == naive.name
				assert.False(t, !floor && !strings.Contains(all, "\n"+name), "no response for %s", name)
			}
		})
	}
}

// TestDescribe: the conditions name each client, and the pinned version of each
// library that comes from a module.
func TestDescribe(t *testing.T) {
	var got strings.Builder
	describe(&got, quick, compared())
	for _, l := range compared() {
		assert.True(t, strings.Contains(got.String(), "\n- "+l.name) && strings.Contains(got.String(), l.setup), "%s is missing in\n%s", l.name, got.String())
	}
}

// TestUpload: an upload arrives whole and once through every client.
func TestUpload(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		for _, from := range []kind{fromPipe, fromFile} {
			_, err := upload(l, 100<<10, from)
			assert.NoError(t, err, from)
		}
	})
}

// TestNaiveLoop: the floor of a retry sends a body again, gives up after three
// retries, and returns the last response.
func TestNaiveLoop(t *testing.T) {
	base := &flaky{failures: 9}
	req := testkit.Must(target{anyURL, []byte("order")}.request(t.Context(), http.MethodPost))(t)
	resp, err := naive.wrap(terms{base: base}).RoundTrip(req)
	require.True(t, err == nil && resp.StatusCode == http.StatusServiceUnavailable, "%v, %v", resp, err)
	resp.Body.Close()
	assert.Equal(t, 4, base.sent, "attempts")
}

func TestQuartiles(t *testing.T) {
	for _, row := range []struct {
		values            []float64
		low, median, high float64
	}{
		{[]float64{7}, 7, 7, 7},
		{[]float64{3, 1}, 1.5, 2, 2.5},
		{[]float64{5, 1, 4, 2, 3}, 2, 3, 4},
	} {
		low, median, high := quartiles(row.values)
		assert.True(t, low == row.low && median == row.median && high == row.high, "%v: %v, %v, %v", row.values, low, median, high)
	}
}

// TestDifferencesArePaired: a machine that is slow in one round slows both, and
// the difference stays.
func TestDifferencesArePaired(t *testing.T) {
	floor, call := []float64{100, 900, 110}, []float64{130, 930, 140}
	assert.Equal(t, []float64{30, 30, 30}, differences(call, floor))
}

func TestWhole(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 999.4: "999", 999.5: "1,000", 67108864: "67,108,864", -1234: "−1,234", -0.3: "0",
	} {
		assert.Equal(t, want, whole(f), "%v", f)
	}
}

// TestTimedCountsEverything: each contender has a time for each round, and its
// allocations. A call that fails ends the run.
func TestTimedCountsEverything(t *testing.T) {
	allocates := func() error { sink = new([64]byte); return nil }
	idle := func() error { return nil }
	cs := []*contender{{call: idle}, {call: allocates}}
	require.NoError(t, timed(cs, quick))
	for i, c := range cs {
		assert.True(t, len(c.times) == quick.rounds && len(c.used) == quick.rounds && c.alloc == float64(i), "contender %d: %v, %v allocations", i, c.times, c.alloc)
	}
	failed := errors.New("refused")
	assert.ErrorIs(t, timed([]*contender{{call: func() error { return failed }}}, quick), failed, "error")
}

var sink *[64]byte
