package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/policy"
)

func (f *memFleet) setAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// A member whose part of the rate is too small for the deadlines of its requests asks the
// fleet again, so that it notices when the fleet is back.
func TestFleetIsBack(t *testing.T) {
	for _, gate := range []policy.Gate{{}, {Mode: policy.GateWait}} {
		inBubble(t, fmt.Sprint("gate ", gate.Enabled()), func(t *testing.T) {
			f := newMemFleet(2 * time.Millisecond)
			c := newCrew(t, 100, f, policy.Rule{Rate: policy.Rate{PerSecond: 1, Burst: 5}, Gate: gate}, func(_ int, req *http.Request) (*http.Response, error) { return play(req, status(200)) })
			f.setAway(true)
			assert.Equal(t, 200, c.get(t, 0)) // its part
			try := func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return closing(get(t, c.transports[0], ctx)) == nil
			}
			for range 5 {
				assert.False(t, try(), "the next token of its part comes after 100 s")
				time.Sleep(time.Second)
			}
			f.setAway(false)
			try()
			time.Sleep(time.Second)
			assert.True(t, try(), "the fleet has tokens")
		})
	}
}
