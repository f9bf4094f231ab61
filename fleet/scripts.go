package fleet

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/ledger"
)

// The scripts that change the shared state. Each begins with the constants and common.lua,
// and ends with finish.lua. The scripts of a host's outages go on with outage.lua,
// and those of a rate with bucket.lua.
var (
	//go:embed scripts/common.lua
	common string
	//go:embed scripts/outage.lua
	outage string
	//go:embed scripts/failing.lua
	failingText string
	//go:embed scripts/working.lua
	workingText string
	//go:embed scripts/hold.lua
	holdText string
	//go:embed scripts/quota.lua
	quotaText string
	//go:embed scripts/bucket.lua
	bucketText string
	//go:embed scripts/tokens.lua
	tokensText string
	//go:embed scripts/unused.lua
	unusedText string
	//go:embed scripts/meet.lua
	meetText string
	//go:embed scripts/beat.lua
	beatText string

	//go:embed scripts/finish.lua
	finish string

	failingScript = newScript(outage + failingText)
	workingScript = newScript(outage + workingText)
	holdScript    = newScript(holdText)
	quotaScript   = newScript(quotaText)
	tokensScript  = newScript(bucketText + tokensText)
	unusedScript  = newScript(bucketText + unusedText)
	meetScript    = newScript(outage + meetText)
	beatScript    = newScript(beatText)
)

// constants returns the constants of package ledger as local variables of a script that uses
// them. Times are in microseconds.
func constants(text string) string {
	var b strings.Builder
	for _, c := range []struct {
		name  string
		value any
	}{
		{"QUORUM", ledger.Quorum}, {"MIN_FAILURES", ledger.MinFailures}, {"MIN_TIME", ledger.MinTime},
		{"MIN_APART", ledger.MinApart}, {"REPORT_TIME", ledger.ReportTime}, {"MAX_REPORTS", ledger.MaxReports},
		{"FIRST_AHEAD", ledger.FirstAhead}, {"MORE_AHEAD", ledger.MoreAhead},
		{"HOLD_SLACK", ledger.HoldSlack}, {"MIN_PERIOD", ledger.MinPeriod}, {"MAX_PERIOD", ledger.MaxPeriod},
		{"MAX_WAIT", ledger.MaxWait},
	} {
		if d, ok := c.value.(time.Duration); ok {
			c.value = d.Microseconds()
		}
		if strings.Contains(text, c.name) {
			fmt.Fprintf(&b, "local %s = %d\n", c.name, c.value)
		}
	}
	return b.String()
}

// newScript makes the text the function run, which finish.lua calls.
func newScript(text string) *redis.Script {
	return redis.NewScript(constants(text) + common + "local function run()\n" + text + "\nend\n" + finish)
}

// A command runs a script. A script needs the channel only if it tells other members.
type command struct {
	script *redis.Script
	host   string // empty for a heartbeat
	keys   []string
	args   []any // after the time, the member and the channel
}
