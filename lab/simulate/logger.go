// A log that is searched for secrets.

package simulate

import (
	"context"
	"log/slog"
	"strings"
)

// A searcher is a slog.Handler that reads every log line.
type searcher struct {
	slog.Handler
	world *world
}

func newLogger(w *world) *slog.Logger {
	s := &searcher{world: w}
	s.Handler = slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})
	return slog.New(s.Handler)
}

// Write gets one log line at a time.
func (s *searcher) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.world.secret) {
		s.world.violate(Secret, nil, "in the log: %s", p)
	}
	return len(p), nil
}

func (s *searcher) Enabled(context.Context, slog.Level) bool { return true }
