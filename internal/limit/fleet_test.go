package limit

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/internal/host/line"
	"github.com/aplomb-go/aplomb/internal/host/outage"
	"github.com/aplomb-go/aplomb/policy"
)

var breaking = policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}

// heard returns the messages that the fleet has got since the last call.
func (s *site) heard() []fleetmsg.Message {
	defer func() { s.sent = nil }()
	return s.sent
}

// A member reports that a host is down every 250 ms at most, as long as attempts fail, and its first success. A host that fails
// now and then is not reported.
func TestFailingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, policy.Rule{})
		s.join()
		s.request(t, 0)
		s.heard()
		for range 3 {
			for range outage.Row - 1 {
				s.ends(t, http.StatusInternalServerError, classify.Final)
				time.Sleep(time.Second)
			}
			s.ends(t, http.StatusOK, classify.Final)
		}
		assert.Empty(t, s.heard(), "now and then")
		for range 500 {
			s.ends(t, http.StatusInternalServerError, classify.Final)
			time.Sleep(10 * time.Millisecond)
		}
		all := s.heard()
		assert.Len(t, all, 16, "reports in 4 s")
		assert.Equal(t, fleetmsg.Message{Kind: fleetmsg.Failing, Host: "http://h.test", Failures: 101, Wait: time.Second}, all[0])
		s.ends(t, http.StatusOK, classify.Final)
		s.ends(t, http.StatusOK, classify.Final)
		assert.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Working, Host: "http://h.test"}}, s.heard())
	})
}

// Members share the probes of an outage. A member whose own requests have not failed probes at once, and its success ends the
// outage for all.
func TestDownAndUpOfAFleet(t *testing.T) {
	down := fleetmsg.Message{Kind: fleetmsg.Down, Host: "http://h.test", Wait: 3 * time.Second}
	up := fleetmsg.Message{Kind: fleetmsg.Up, Host: "http://h.test", Wait: 2 * time.Second}
	goes := func(t *testing.T, s *site) bool { return new(Permit).TryLine(s.request(t, 0), line.Place{}) }
	until := func(t *testing.T, s *site) time.Duration {
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if took := time.Since(begun); goes(t, s) || took > time.Hour {
				return took
			}
		}
	}
	for name, row := range map[string]struct {
		failures, members int
		least, most       time.Duration // from Down to the first probe
	}{
		"healthy":               {0, 40, 0, 0},
		"failing":               {3, 2, 2 * time.Second, 2 * time.Second},
		"failing, in a crowd":   {3, 40, 20 * time.Second, 20 * time.Second},
		"failing, and nonsense": {3, 1 << 30, 20 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, breaking)
				s.join()
				s.registry.Hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: row.members})
				for range row.failures {
					s.ends(t, http.StatusInternalServerError, classify.Final)
				}
				assert.True(t, goes(t, s))
				s.registry.Hear(down)
				took := until(t, s)
				assert.GreaterOrEqual(t, took, row.least)
				assert.LessOrEqual(t, took, row.most)
				assert.False(t, goes(t, s), "a second request, before the first has ended")
				s.heard()
				s.ends(t, http.StatusOK, classify.Final)
				assert.Equal(t, []fleetmsg.Message{{Kind: fleetmsg.Working, Host: "http://h.test"}}, s.heard())
				assert.True(t, goes(t, s))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, breaking)
		s.join()
		s.registry.Hear(fleetmsg.Message{Kind: fleetmsg.Members, Members: 40})
		back := map[time.Duration]bool{}
		for range 20 {
			s.ends(t, http.StatusInternalServerError, classify.Final)
			s.registry.Hear(down)
			assert.False(t, goes(t, s))
			s.registry.Hear(up)
			took := until(t, s)
			assert.LessOrEqual(t, took, 2050*time.Millisecond)
			back[took] = true
			s.ends(t, http.StatusOK, classify.Final)
		}
		assert.Greater(t, len(back), 5, "the members come back at random times")
	})
}
