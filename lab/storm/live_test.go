package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
)

func TestSparkline(t *testing.T) {
	assert.Equal(t, "·▁▁▂▄████"[:len("·▁▁▂▄██")], sparkline([]float64{0, 1, 25, 50, 100, 200, 1000}, 100))
}

// campaignsAt returns campaigns that had 100 successes per second until now.
func campaignsAt(now time.Duration) (sc model.Scenario, all []*campaign) {
	sc = model.DefaultScenario()
	for _, st := range model.Strategies(sc.Timeout) {
		c := newCampaign(sc, st, 1)
		for at := time.Duration(0); at < now; at += 10 * time.Millisecond {
			c.run.Success(at, at)
		}
		all = append(all, c)
	}
	return sc, all
}

// The lines fit the terminal, however wide it is.
func TestCurves(t *testing.T) {
	sc, campaigns := campaignsAt(60 * time.Second)
	for _, width := range []int{20, 40, 79, 200} {
		var b strings.Builder
		l := &curves{w: &b, sc: sc, campaigns: campaigns, size: func() (int, int, error) { return width, 24, nil }}
		rows := l.draw(60*time.Second, "the servers run again", width)
		require.Len(t, rows, len(campaigns)+2, "lines")
		for _, r := range rows {
			assert.LessOrEqual(t, utf8.RuneCountInString(r), width, "columns of %d: %s", width, r)
		}
		if width == 79 && (!strings.Contains(rows[0], "│frozen│resumed") || !strings.HasSuffix(rows[1], " 100/s") || !strings.Contains(rows[1], "▄▄▄▄")) {
			t.Errorf("%q", rows)
		}
		l.show(60*time.Second, "x")
		l.show(60*time.Second, "x")
		assert.Contains(t, b.String(), "\x1b[8A", "the second time is not in the place of the first")
	}
}

func TestLines(t *testing.T) {
	sc, campaigns := campaignsAt(60 * time.Second)
	var b strings.Builder
	l := newLive(&b, sc, campaigns)
	l.show(60*time.Second, "the servers run again")
	if !strings.Contains(b.String(), " 60 of 110 s, the servers run again: fixed 100 short 100") || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q", b.String())
	}
}

func TestStatus(t *testing.T) {
	for args, want := range map[string]int{"-h": exitFine, "-no-such-flag": exitUsage, "x": exitUsage, "-clients 0": exitUsage, "-clients x": exitUsage} {
		var stdout, stderr strings.Builder
		err := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		assert.Equal(t, want, status(err, &stderr), "%s: status", args)
		if want == exitUsage && (strings.Count(stderr.String(), "\n") != 2 || !strings.Contains(stderr.String(), "storm -h explains") || stdout.Len() > 0) {
			t.Errorf("%s: %q", args, &stderr)
		}
		for line := range strings.Lines(stdout.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 88, "%s: %s", args, line)
		}
	}
	assert.Equal(t, exitFailed, status(errors.New("x"), io.Discard), "status")
}
