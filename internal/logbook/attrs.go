// The attributes of a line.

package logbook

import (
	"log/slog"
	"time"
)

// Attrs are the attributes of a log line.
type Attrs []slog.Attr

// Add adds an attribute if it is set.
func (all *Attrs) Add(set bool, attr slog.Attr) {
	if set {
		*all = append(*all, attr)
	}
}

// AddTime adds a time, unless it is not known or zero.
func (all *Attrs) AddTime(key string, d time.Duration) {
	d = d.Round(time.Millisecond)
	all.Add(d > 0, slog.Duration(key, d))
}
