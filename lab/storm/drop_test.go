package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

// The server drops a request before or after its beginning, if it knows that the client
// has left.
func TestServerDrops(t *testing.T) {
	now := time.Now()
	soon, past := now.Add(time.Second), now.Add(-time.Second)
	for _, c := range []struct {
		drop          model.Drop
		until         time.Time
		begun, looked bool // dropped then
	}{
		{model.DropNothing, past, false, false},
		{model.DropQueued, past, true, false},
		{model.DropQueued, soon, false, false},
		{model.DropBegun, past, false, true},
		{model.DropBegun, soon, false, true},
		{model.DropBoth, past, true, false},
		{model.DropBoth, soon, false, true},
		{model.DropBoth, time.Time{}, false, false},
	} {
		m := model.DefaultServer()
		m.Drop, m.Base = c.drop, time.Minute
		w := &works{model: m, added: make(chan struct{}, 1)}
		x := w.begin(now, c.until)
		begun := x.dropped
		w.look(now.Add(2 * time.Second))
		if looked := x.dropped && !begun; begun != c.begun || looked != c.looked {
			t.Errorf("%q, %v: dropped at the beginning: %v, later: %v", c.drop, c.until.Sub(now), begun, looked)
		}
		assert.Equal(t, begun || x.dropped, w.busy == 0, "%q, %v: %d in progress", c.drop, c.until.Sub(now), w.busy)
	}
}

// The clients' hook and the server understand each other. Without -drop nothing is told.
func TestDeadlineTravels(t *testing.T) {
	const wait = time.Hour
	for _, drop := range []model.Drop{model.DropNothing, model.DropQueued, model.DropBegun, model.DropBoth} {
		heard := make(chan time.Time, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			heard <- deadlineOf(req.Header, time.Now())
		}))
		defer srv.Close()
		o, err := parse([]string{"-drop", string(drop), "-timeout", wait.String(), "-strategies", "own"}, io.Discard)
		require.NoError(t, err)
		c := newCampaign(o.scenario, o.strategies[0], 1)
		c.addrs = []string{srv.Listener.Addr().String()}
		c.began = time.Now()
		tr, err := c.transport(nil)
		require.NoError(t, err)
		require.NoError(t, (&person{campaign: c, transport: tr}).ask(t.Context()))
		until := <-heard
		if drop == model.DropNothing {
			assert.True(t, until.IsZero(), "told %v", until)
			continue
		}
		if left := until.Sub(c.began); left < wait-time.Minute || left > wait+time.Minute {
			t.Errorf("%q: the client waits for %v, want %v", drop, left, wait)
		}
	}
}
