package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A system that does not allow the experiment is told before it begins.
func TestCheck(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		files        uint64
		queue, ports int
		want         string // in the error, or in the notes if it begins with "note"
	}{
		"all is well":        {1 << 20, 4096, 28232, ""},
		"nothing is known":   {1 << 20, 0, 0, ""},
		"few files":          {64, 4096, 28232, "ulimit -n 6700"},
		"some files":         {20_000, 4096, 28232, "note: a server may open 20000 files"},
		"a short queue":      {1 << 20, 10, 28232, "net.core.somaxconn"},
		"a rather short one": {1 << 20, 512, 28232, "note: the queues"},
		"few ports":          {1 << 20, 4096, 100, "ip_local_port_range"},
	} {
		t.Run(name, func(t *testing.T) {
			l := limits{files: func(want uint64) uint64 { return min(want, c.files) }, queue: c.queue, ports: c.ports, demand: demandOf(o.scenario)}
			var notes strings.Builder
			err := l.check(o, &notes)
			switch {
			case c.want == "" && (err != nil || notes.Len() > 0):
				t.Errorf("%v, %s", err, &notes)
			case strings.HasPrefix(c.want, "note"):
				assert.True(t, err == nil && strings.HasPrefix(notes.String(), c.want), "%v, %q", err, &notes)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, writable(filepath.Join(dir, "a", "b")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, sim := range []string{"-sim", "-speed=1"} {
		err := run(t.Context(), []string{sim, "-out", filepath.Join(dir, "file", "x")}, io.Discard, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), "-out: ") || status(err, io.Discard) != exitFailed {
			t.Errorf("%s into a file: %v", sim, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "a", "b"))
	assert.True(t, err == nil && len(left) == 0, "left %v, %v", left, err)
}
