// Whether the host is down, and which requests try it then.

package visit

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/flight"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/gate"
	"github.com/aplomb-go/aplomb/policy"
)

// AvoidIfDown reports whether the request avoids the host because it is down, also because of its
// gate. repeatable says whether an attempt that fails can be followed by one elsewhere.
func (r *Request) AvoidIfDown(repeatable func() bool) bool {
	m := r.State.MachinesMade()
	return m != nil && (r.AvoidIfOut(m, repeatable) || r.hasClosedGate(m))
}

// AvoidIfOut reports whether the request avoids a host that is down, and does not try it. A closed
// gate chooses by itself which request is a probe, of those that may be repeated. Without a
// gate one such request per second tries the host. The others do so only if there are none.
func (r *Request) AvoidIfOut(m *host.Machines, repeatable func() bool) bool {
	switch o, now := m.OutageMade(), r.Ground.Now(); {
	case o.Down():
		return !o.Try(now, repeatable(), m.Cooldown.Holding(now))
	case r.hasClosedGate(m):
		g, _ := m.Made()
		return m.Outage().Spares(now, g.State().Since, repeatable())
	}
	return false
}

// IsDown reports whether the host is down, also because of its gate.
func (r *Request) IsDown() bool {
	m := r.State.MachinesMade()
	return m != nil && (m.OutageMade().Down() || r.hasClosedGate(m))
}

func (r *Request) hasClosedGate(m *host.Machines) bool {
	g, _ := m.Made()
	return r.Rule.Gate && g != nil && g.Closed()
}

// NoteOutage notes whether an outcome shows that the host is up or down, and reports whether it
// is down without a gate. With a gate, the gate knows that, apart from a 503 that names a wait.
func (l *Limits) NoteOutage(e *Ending, took, hint time.Duration) (down bool) {
	sure := e.Resp != nil && e.Resp.StatusCode == http.StatusServiceUnavailable && hint > 0 && l.Rule.Policy.Cooldown == policy.On
	o, now := l.State.Machines().Outage(), l.Ground.Now()
	switch result := flight.ResultOf(l.Ctx, e.Resp, e.Err); {
	case result == gate.Success:
		o.Succeeded(took)
	case result == gate.Neutral, l.Rule.Gate && !sure:
	case e.Err != nil && l.Ctx.Err() != nil:
		o.Expired(now, took)
	default:
		o.Failed(now, sure)
	}
	return !l.Rule.Gate && o.Down()
}
