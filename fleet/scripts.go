package fleet

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The scripts that change the shared state. Each begins with common.lua. The scripts of a
// host's gate go on with gate.lua.
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

	failingScript     = redis.NewScript(common + gate + failingText)
	workingScript     = redis.NewScript(common + gate + workingText)
	probeScript       = redis.NewScript(common + gate + probeText)
	probeFailedScript = redis.NewScript(common + gate + probeFailedText)
	holdScript        = redis.NewScript(common + holdText)
	quotaScript       = redis.NewScript(common + quotaText)
	tokensScript      = redis.NewScript(common + tokensText)
	meetScript        = redis.NewScript(common + gate + meetText)
	beatScript        = redis.NewScript(common + beatText)
)

// A script needs the channel only if it tells other members.
type command struct {
	script *redis.Script
	keys   []string
	args   []any // after the time, the member and the channel
}
