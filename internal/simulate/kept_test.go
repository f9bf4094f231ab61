package simulate

import (
	"fmt"
	"testing"

	"github.com/aplomb-go/aplomb/internal/soak"
)

// kept are seeds whose stories once found a defect, each with the defect. If
// the drawing of stories changes, these seeds give other stories. So each
// defect has a test beside its subject as well.
var kept = []struct {
	seed   uint64
	reason string
}{
	{27, "a failure whose body nobody closed kept its slot at the gate"},
	{65, "the drain of a discarded response did not see Request.Cancel"},
	{83, "the end of the base's goroutine under a hedge gave neither response nor error"},
	{131, "the slot of the only probe was lost, and no request was sent any more"},
	{194, "a base that returned nothing under a hedge made a nil pointer panic"},
	{199, "GetBody sought a reader back that the old attempt still read"},
	{207, "a look into a body did not see Request.Cancel"},
	{23097, "a classifier that waited for a stalled body delayed the hold of the others"},
	{1238, "the first request after an idle outage was refused, although no probe was under way"},
}

func TestKeptSeeds(t *testing.T) {
	for _, k := range kept {
		t.Run(fmt.Sprint(k.seed), func(t *testing.T) {
			t.Log(k.reason)
			for range soak.Size(1, 20) { // since the seed does not decide everything
				if r := play(t, newPlan(k.seed), aTransport, nil); len(r.Violations) > 0 {
					tellStory(t, r)
					return
				}
			}
		})
	}
}
