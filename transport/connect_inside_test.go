package transport

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/host/lane"
)

// A base transport that calls no hooks may send a request whose attempt had waited for the
// connection of another. Only an attempt that ends while it waits is surely unsent.
func TestWaitForALaneProvesNothing(t *testing.T) {
	for _, row := range []struct {
		name        string
		ready, ends bool
		unsent      bool
	}{
		{"the lane is connected", true, false, false},
		{"nobody connects the lane", false, false, false},
		{"the attempt ends", false, true, true},
	} {
		bubble(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if row.ends {
				end()
			}
			to := lane.New(nil)
			if row.ready {
				to.Connected()
			}
			l := &link{ctx: new(attemptContext)}
			a := attempt{req: new(http.Request), way: way{lane: to, link: l}}
			a.await(ctx)
			assert.Equal(t, row.unsent, l.unsent(), row.name)
		})
	}
}
