// Attempts that hang.

package flight

import (
	"net/http"
	"time"

	"github.com/aplomb-go/aplomb/internal/host/instant"
	"github.com/aplomb-go/aplomb/internal/host/lane"
)

// A Hedge starts another attempt beside one that hangs. It has what the other attempt needs.
type Hedge struct {
	After time.Duration // an attempt hangs that has waited so long for its headers; 0: nothing starts another
	By    hedger

	// The rest is for By, which may know it.
	Req                  *http.Request // the caller's
	State, Rule, Options any
	Heard                instant.Instant // when something had come over the lane last before the attempt
}

// A hedger is told that an attempt hangs. Begin must not block, because the attempt is locked. If
// the attempt ends at the same time, either Begin is not called, or it has returned before. The
// function that it returns runs in a goroutine of its own.
type hedger interface {
	Begin(first *Hanging, h Hedge) func()
}

// A Hanging is an attempt that hangs.
type Hanging struct {
	*attemptContext
	Race any // for the hedger
}

// Lane returns the lane of the attempt.
func (h *Hanging) Lane() *lane.Lane { return h.lane }

// Hanging returns the attempt if it hangs, or else nil. A nil copy was not sent.
func (o *Outgoing) Hanging() *Hanging {
	if o == nil {
		return nil
	}
	return o.Ctx.hangs
}
