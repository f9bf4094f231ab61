package fleet

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The scripts that change the shared state. Each begins with common.lua and ends with
// finish.lua. The scripts of a host's gate go on with gate.lua.
var (
	//go:embed scripts/common.lua
	common string
	//go:embed scripts/gate.lua
	gate string
	//go:embed scripts/failing.lua
	failingText string
	//go:embed scripts/working.lua
	workingText string
	//go:embed scripts/probe.lua
	probeText string
	//go:embed scripts/probefailed.lua
	probeFailedText string
	//go:embed scripts/hold.lua
	holdText string
	//go:embed scripts/quota.lua
	quotaText string
	//go:embed scripts/tokens.lua
	tokensText string
	//go:embed scripts/meet.lua
	meetText string
	//go:embed scripts/beat.lua
	beatText string

	//go:embed scripts/finish.lua
	finish string

	failingScript     = newScript(gate + failingText)
	workingScript     = newScript(gate + workingText)
	probeScript       = newScript(gate + probeText)
	probeFailedScript = newScript(gate + probeFailedText)
	holdScript        = newScript(holdText)
	quotaScript       = newScript(quotaText)
	tokensScript      = newScript(tokensText)
	meetScript        = newScript(gate + meetText)
	beatScript        = newScript(beatText)
)

// newScript makes the text the function run, which finish.lua calls.
func newScript(text string) *redis.Script {
	return redis.NewScript(common + "local function run()\n" + text + "\nend\n" + finish)
}

// A command runs a script. A script needs the channel only if it tells other members.
type command struct {
	script *redis.Script
	host   string // empty for a heartbeat
	keys   []string
	args   []any // after the time, the member and the channel
}
