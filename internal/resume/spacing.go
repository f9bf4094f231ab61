// How far apart the reconnects of a body are.

package resume

import "time"

// Reconnects after progress are spaced out as long as the segments are short. The
// gap between two reconnects is FirstGap after the first short segment. It doubles
// with each further short segment up to MaxGap. After a segment of LongSegment
// bytes there is no gap. A server that cuts after every 64 KiB thus sees 4
// connections in 6 s, and then a connection every 8 s. A download that is cut once
// per MiB is not slowed down.
const (
	LongSegment = 1 << 20
	FirstGap    = time.Second
	MaxGap      = 8 * time.Second
)

// A Spacing says when a body may reconnect next.
type Spacing struct {
	Last time.Time     // when the last reconnect was sent; zero before the first
	From int64         // the offset of the last reconnect
	gap  time.Duration // between the last two reconnects
}

// Turn returns how long a reconnect at offset has to wait from now on. The time
// that the last segment took counts towards the gap.
func (s *Spacing) Turn(now time.Time, offset int64) time.Duration {
	if s.Last.IsZero() || offset-s.From >= LongSegment {
		s.gap = 0
		return 0
	}
	s.gap = min(max(2*s.gap, FirstGap), MaxGap)
	return max(s.gap-now.Sub(s.Last), 0)
}
