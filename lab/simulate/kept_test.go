package simulate

import (
	"fmt"
	"os"
	"testing"

	"github.com/aplomb-go/aplomb/internal/soak"
)

// A keptSeed is a seed whose story once found a defect of the library or of an oracle. If the
// drawing of stories changes, these seeds give other stories. So each defect of the library
// has a test beside its subject as well.
type keptSeed struct {
	seed   uint64
	reason string
}

// keptBasic know the basic plan only.
var keptBasic = []keptSeed{
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

// kept know everything but fleets.
var kept = []keptSeed{
	{11580, "a 503 with a date in the past counted as a refusal, and a POST was sent again"},
	{61640, "the same"},
	{303440, "the same"},
	{54387, "a retry followed although Request.Cancel was closed before the first attempt had failed"},
	{59004, "a Transport around another asked for the rest of a body again, after the inner one had given up"},
	{302008, "the same, and came back within a hold"},
	{314823, "the same, and came back earlier than told"},
	{316585, "the same, and came back earlier than told"},
	{1006869, "the same, and came back earlier than told"},
	{1021978, "the same, with more reconnects than the rule allows"},
	{1000832, "a limit of the inner Transport was final for the outer one, whose error named no limit"},
	{1001235, "the same"},
	{316653, "the oracle did not know that a wrong total ends a body of unknown length too early"},
	{1009087, "the same"},
	{61, "the oracle did not know that a hedge may wait for the connection that another attempt makes"},
	{2004684, "an Idempotent that panicked before the first attempt left the request's body open"},
	{50504, "a spare lane was taken for a silent one, and had died with it"},
	{1008712, "the oracle did not know that three refusals in a row by chance confirm a hold"},
	{1013595, "the same"},
	{1013803, "the same, with 5 % refused"},
	{3000218, "the same"},
	{1040419, "a POST was sent again, although its connection had come in the moment in which the time for it was over"},
	{1045793, "a canceled request waited for the Close of a body that nobody got"},
	{1053592, "an Idempotent that panicked after a success left the response's body open"},
	{1043688, "the oracle took two holds with a success between them for one"},
	{1051188, "the oracle did not know that probes of a single lane may take a dead connection"},
	{1067123, "the oracle did not know how an attempt learns of a connection if the base calls no hooks"},
	{1070009, "a POST that had waited for the connection of a lane was sent again, because the base called no hooks"},
	{1006588, "the oracle did not know that idle connections may have died in both lanes"},
	{1008067, "the same"},
	{1031479, "the oracle did not know that refusals of most requests confirm a hold, too"},
	{1010711, "the connection of a 101 died, and only its caller could have noticed"},
	{1015759, "the oracle did not know that an attempt may arrive later than its hedge"},
	{1002689, "the oracle took bytes that the Transport had compared for bytes that the caller got"},
	{50941, "the oracle did not know that Close ends a reconnect as well"},
	{1098114, "the oracle did not know that a Transport reconnects while another around it reads the body"},
	{1092440, "the oracle did not know that a success that was under way does not contradict a hold"},
	{1106892, "the oracle did not know that a request which waits for its connection no longer hears of a hold"},
	{3490, "those who had waited for a lane all dialled the next one at once"},
	{9139225, "a look into a body did not see Request.Cancel if the request had a deadline, too"},
	{1179949, "after a panic of the caller's hook RoundTrip waited for the Close of a body"},
	{1150401, "a reconnect earned a retry while it waited, and then it did not go"},
	{9003590, "the oracle did not know that a host stays with connections of which half are sick, until the retries are used up"},
	{8015353, "the same, with a sick connection in each of two lanes"},
	{8116251, "the same, with a connection that was made just after all others had become sick"},
	{8120695, "the oracle did not know that retries go back and forth between two lanes that became sick one after the other"},
	{9053699, "the oracle took a success that was sent in the instant of a refusal for a later one"},
	{8021580, "the second lane kept a connection for a minute that nothing had used, and the bad one was no better"},
	{9015118, "the same"},
	{2000535, "the oracle did not know that a body cut before its first byte may come whole from a second response"},
	{8199827, "the oracle took an attempt that went over another lane for a retry that started late"},
	{9094490, "the oracle took the response to a POST for an event stream"},
	{9037657, "the oracle took an attempt that went over another lane, beside its hedge, for one after the hedge"},
	{30010175, "a Transport took a refusal of the one below it for silence, and closed idle connections"},
	{40007201, "the same, when the one below let the request wait for too long"},
	{40002919, "the oracle did not know that a success ends a hold that was sent before the refusal came, and after what was refused"},
	{70053830, "a first try did not see Request.Cancel while it waited for a stale lane"},
	{90002333, "the oracle did not know that a classifier may wait for a body while a hedge fails beside it"},
}

// keptFleets are stories of fleets.
var keptFleets = []keptSeed{
	{4268, "a request waited behind others until its deadline, because a quota was told to others"},
	{1209, "the oracle did not know for how long a token can be used"},
	{2690, "the oracle did not know that a request with a deadline may go before the end of a hold"},
	{2904, "the oracle did not know that a member dies for all its callers in the same instant"},
	{1020753, "a hedge that waited for a connection did not notice the end of the context"},
	{1131525, "a fleet that seemed to be large for a moment gave back retries that were used"},
	{1107219, "the oracle did not know that a member may wait for a hold of hours that others were told"},
	{1152952, "the oracle did not know that a process that stands still sends nothing"},
	{1140314, "a hold that was told a second time put off a probe, as the refusal of another probe does"},
	{1187492, "a request asked the cooldown and the pacing in turn for as long as the clock stood still"},
	{1192342, "a gate took the deadline of a caller for a cancellation, if the context had a cause of its own"},
	{1162184, "the oracle did not know that a member without news waits for as long as others are refused"},
	{1100140, "a request took a second token, because the fleet told of a quota while it waited for the first"},
	{1142011, "the oracle did not know that the many who are refused keep the few waiting"},
	{1079260, "the oracle did not know that a member may hear late of the success of another"},
	{1002791, "the oracle did not know that a hold which was made up may have no bound"},
	{1093296, "a size of the fleet that was not true put the end of a hold off for hours"},
	{9008929, "the fleet took tokens from a full bucket for a debt of two hours before"},
	{8005213, "the same"},
	{8041188, "the oracle did not know that a quota which was made up slows a member down"},
	{8177523, "the oracle did not know that a hold which is told twice puts off who would doubt it"},
	{9053985, "the oracle did not know that a limit may refuse a request in the moment in which its context ends"},
	{10005302, "the oracle did not know that a request for the rest of a body may have a hedge of its own"},
	{90037452, "a member whose process began late was not told of the others, and used the whole rate when it was cut off"},
}

// TestKeptSeeds plays the kept stories. make test plays every fourth, because the race
// detector makes them slow, and make simulate plays all.
func TestKeptSeeds(t *testing.T) {
	plans := []func(uint64) *plan{basicPlan, wiredPlan, loyalPlan, newPlan}
	step := soak.Size(4, 1)
	if os.Getenv("APLOMB_SEEDS") != "" {
		step = 1
	}
	for own, group := range [][]keptSeed{keptBasic, kept, keptFleets} {
		for i := 0; i < len(group); i += step {
			k := group[i]
			t.Run(fmt.Sprint(k.seed), func(t *testing.T) {
				t.Parallel()
				t.Log(k.reason)
				for range soak.Size(1, 20) { // since the seed does not decide everything
					for _, plan := range soak.Size(plans[own:own+1], plans) {
						if r := play(t, plan(k.seed), aTransport, nil); len(r.Violations) > 0 {
							tellStory(t, r)
							return
						}
					}
				}
			})
		}
	}
}
