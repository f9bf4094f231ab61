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
	assert.Equal(t, 8.0, c.Waited)
	c.Kinds["first"] = 99 // it is a copy
	assert.EqualValues(t, 5, counts.all()["h"].Kinds["first"])
	counts.add(event("h", transport.KindFirst, 404, transport.ReasonFinal))
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
		"not_sent":           {Attempt: transport.Attempt{Err: fmt.Errorf("no: %w", transport.ErrOverDeadline)}},
		"connection_refused": {Attempt: transport.Attempt{Err: fmt.Errorf("no: %w", syscall.ECONNREFUSED)}},
		"other":              {Attempt: transport.Attempt{Err: errors.New("no")}},
	} {
		assert.Equal(t, want, outcome(e))
	}
}
