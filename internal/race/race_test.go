package race_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/race"
)

// A slow is an attempt that takes a while to say when it began.
type slow time.Duration

func (s slow) Began() time.Time {
	time.Sleep(time.Duration(s))
	return time.Now()
}

func (slow) Fly(*flight.Outgoing) (*http.Response, *flight.Slot, error) { return nil, nil, nil }
func (slow) Abort()                                                     {}
func (slow) Ended(time.Duration, *http.Response, error)                 {}

// A lasting is the context of an attempt that does not end.
type lasting struct{ context.Context }

func (lasting) Abandon() {}

// TestHookThatPanicsAsTheFirstEnds ends the first attempt while a hook of the second is about to
// panic, which nobody hears of yet when the second is abandoned.
func TestHookThatPanicsAsTheFirstEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := race.New(&race.Racer[slow]{Ctx: lasting{t.Context()}})
		go r.Hedge(slow(time.Second), func(*race.Racer[slow]) (*flight.Outgoing, func() bool) {
			time.Sleep(time.Second)
			panic("hook")
		})
		synctest.Wait()
		r.Land(&http.Response{StatusCode: http.StatusOK}, nil, nil)
		r.Winner = r.Await()
		assert.Same(t, r.First, r.Winner)
		assert.NotPanics(t, r.AbandonLosers)
	})
}
