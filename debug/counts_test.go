package debug

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/transport"
)

// event returns an event with a status, or with an error if the status is 0.
func event(host string, kind transport.Kind, status int, reason transport.Reason) *transport.Event {
	e := &transport.Event{Host: host, Reason: reason, Attempt: transport.Attempt{Kind: kind, Status: status, Time: time.Now(), Wait: time.Second}}
	if status != 0 {
		e.Response = &http.Response{StatusCode: status}
	} else {
		e.Err = syscall.ECONNREFUSED
	}
	return e
}

func TestCounts(t *testing.T) {
	var counts tally
	for _, e := range []*transport.Event{
		event("h", transport.KindFirst, 200, transport.ReasonFinal),
		event("h", transport.KindFirst, 503, transport.ReasonRetry),
		event("h", transport.KindNone, 503, transport.ReasonDeadline), // the retry was not made after all
		event("h", transport.KindFirst, 0, transport.ReasonRetry),
		event("h", transport.KindRetry, 0, transport.ReasonAttempts),
		event("h", transport.KindFirst, 0, transport.ReasonCanceled),
		event("h", transport.KindHedge, 0, transport.ReasonOutrun),
		event("h", transport.KindFirst, 429, transport.ReasonMaxRetryAfter),
	} {
		counts.add(e)
	}
	c := counts.all()["h"]
	assert.Equal(t, map[string]uint64{"first": 5, "retry": 1, "hedge": 1}, c.Kinds)
	assert.Equal(t, map[string]uint64{"200": 1, "503": 1, "429": 1, "connection_refused": 4}, c.Outcomes)
	assert.EqualValues(t, 2, c.retries())
	assert.EqualValues(t, 3, c.Failed)
	assert.EqualValues(t, 4, c.Failing)
	assert.Equal(t, 8.0, c.Waited)
	c.Kinds["first"] = 99 // it is a copy
	assert.EqualValues(t, 5, counts.all()["h"].Kinds["first"])
	counts.add(event("h", transport.KindFirst, 404, transport.ReasonFinal))
	assert.Zero(t, counts.all()["h"].Failing)
}

// An attempt counts at the endpoint that it went to, and the end of its request at the request's
// own host. So a host that is down does not have the successes of its alternate.
func TestAlternates(t *testing.T) {
	var counts tally
	for range 5 {
		counts.add(event("home", transport.KindFirst, 0, transport.ReasonRetry))
		e := event("home", transport.KindRetry, 200, transport.ReasonFinal)
		e.Alternate = "away"
		e.Queued.Gate = time.Second
		counts.add(e)
	}
	home, away := counts.all()["home"], counts.all()["away"]
	assert.Equal(t, map[string]uint64{"connection_refused": 5}, home.Outcomes)
	assert.Equal(t, map[string]uint64{"200": 5}, away.Outcomes)
	assert.EqualValues(t, 5, home.Failing)
	assert.Zero(t, away.Failing)
	assert.Equal(t, 5.0, away.Queued["gate"])
	assert.Zero(t, home.Queued["gate"])
	failed := event("home", transport.KindRetry, 0, transport.ReasonAttempts)
	failed.Alternate = "away"
	counts.add(failed)
	assert.EqualValues(t, 1, counts.all()["home"].Failed)
	assert.Zero(t, counts.all()["away"].Failed)
}

// The host without an event for the longest time makes room.
func TestHostsAreBounded(t *testing.T) {
	var counts tally
	now := time.Now()
	for i := range maxCounted + 5 {
		for _, host := range []string{"busy", fmt.Sprint("h", i)} {
			e := event(host, transport.KindFirst, 200, transport.ReasonFinal)
			e.Time = now.Add(time.Duration(i) * time.Second)
			counts.add(e)
		}
	}
	all := counts.all()
	assert.Len(t, all, maxCounted)
	assert.EqualValues(t, maxCounted+5, all["busy"].Kinds["first"])
	assert.NotContains(t, all, "h0")
	assert.Contains(t, all, fmt.Sprint("h", maxCounted+4))
}

func TestOutcome(t *testing.T) {
	for want, e := range map[string]*transport.Event{
		"503":                {Attempt: transport.Attempt{Status: 503}, Response: &http.Response{}},
		"none":               {},
		"not_sent":           {Attempt: transport.Attempt{Err: fmt.Errorf("no: %w", transport.ErrCooldown)}},
		"connection_refused": {Attempt: transport.Attempt{Err: fmt.Errorf("no: %w", syscall.ECONNREFUSED)}},
		"other":              {Attempt: transport.Attempt{Err: errors.New("no")}},
	} {
		assert.Equal(t, want, outcome(e))
	}
}
