// The attributes of a line.

package transport

import (
	"log/slog"
	"time"
)

// attrs are the attributes of a log line.
type attrs []slog.Attr

// Add adds an attribute if it is set.
func (all *attrs) Add(set bool, attr slog.Attr) {
	if set {
		*all = append(*all, attr)
	}
}

// AddTime adds a time, unless it is not known or zero.
func (all *attrs) AddTime(key string, d time.Duration) {
	d = d.Round(time.Millisecond)
	all.Add(d > 0, slog.Duration(key, d))
}
