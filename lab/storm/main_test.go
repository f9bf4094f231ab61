package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// The experiment starts this program as its servers and clients.
func TestMain(m *testing.M) {
	var err error
	if asChild(os.Args[1:], os.Stdin, os.Stdout, &err) {
		os.Exit(status(err, os.Stderr))
	}
	os.Exit(m.Run())
}

// played returns the runs of an experiment.
func played(t *testing.T, args string) []*record.Run {
	t.Helper()
	o, err := parse(strings.Fields(args), io.Discard)
	require.NoError(t, err)
	runs, err := experiment(t.Context(), o, io.Discard)
	require.NoError(t, err)
	return runs
}

func TestExperiment(t *testing.T) {
	for _, r := range played(t, "-clients 30 -think 500ms -steady 2s -frozen 2s -watched 10s -strategies google,own,shared") {
		// The bounds are loose. The test is about all parts working together.
		f := r.Figures()
		assert.True(t, f.Peak > 0 && f.SentFrozen > 0 && f.LastGood >= 0.3, "%s: %+v", r.Name, f)
		// A frozen server reports nothing. Its last report may come late.
		for at := r.Stop + 5*record.Step; at < r.Resume; at += record.Step {
			assert.Negative(t, r.At(at).Busy, "%s: the server reported at %v, while it was frozen", r.Name, at)
		}
	}
}

// The program stops at once when it is interrupted, even while the server is
// frozen.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	args := []string{"-clients", "5", "-steady", "300ms", "-strategies", "own", "-out", ""}
	assert.ErrorIs(t, run(ctx, args, io.Discard, io.Discard), context.DeadlineExceeded)
}

func TestFlags(t *testing.T) {
	for _, args := range []string{"x", "-clients 0", "-strategies nope", "-watched 1s", "-processes x", "-processes 2000", "-processes 10 -strategies long", "-strategies alone"} {
		assert.Error(t, run(t.Context(), strings.Fields(args), io.Discard, io.Discard), "%s: no error", args)
	}
}

// The clients are in processes of their own, which form a fleet over a real Redis.
func TestProcesses(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	for _, r := range played(t, "-processes 4 -clients 40 -think 500ms -steady 2s -frozen 6s -watched 10s -strategies alone,fleet") {
		f := r.Figures()
		assert.True(t, f.Peak != 0 && f.SentFrozen != 0 && r.Open <= 40 && r.Sent >= f.SentFrozen, "%s: %+v", r.Name, f)
		assert.Equal(t, r.Coordinated, f.OpsStorm > 0, "%s: %v operations of the backend per request", r.Name, f.OpsStorm)
		begun, ended := 0, r.Open
		for _, s := range r.Samples {
			begun, ended = begun+s.Begun, ended+s.Good+s.Lost
		}
		assert.True(t, begun != 0 && begun == ended, "%s: %d requests began and %d ended or are open", r.Name, begun, ended)
	}
}

// A missing Redis is told before the experiment begins.
func TestNoRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), []string{"-processes", "2", "-clients", "4", "-out", ""}, io.Discard, io.Discard)
	assert.True(t, errors.Is(err, redisserver.ErrMissing) && status(err, io.Discard) == exitFailed, "%v", err)
}

// A process of clients that ends is told, and its siblings end as well.
func TestLostProcess(t *testing.T) {
	o, err := parse([]string{"-processes", "3", "-clients", "30", "-strategies", "alone"}, io.Discard)
	require.NoError(t, err)
	c := newCampaign(o.scenario, o.strategies[0])
	c.addrs = []string{"127.0.0.1:1"}
	require.NoError(t, c.startChildren(t.Context(), ""))
	for _, p := range c.children {
		require.NoError(t, p.ready())
		defer p.kill()
	}
	c.began = time.Now()
	c.children[1].kill()
	assert.ErrorContains(t, c.play(t.Context()), "has ended")
}

// The progress has the rates of the last 5 s.
func TestShow(t *testing.T) {
	sc := model.DefaultScenario()
	c := newCampaign(sc, model.Strategies(sc.Timeout)[0])
	c.began = time.Now().Add(-time.Minute)
	for at := time.Duration(0); at < 2*time.Minute; at += 10 * time.Millisecond {
		c.run.Success(at, at)
	}
	var b strings.Builder
	show(&b, []*campaign{c}, "the servers run again")
	assert.Contains(t, b.String(), " 60 of 110 s, the servers run again: fixed 10")
}

func TestStatus(t *testing.T) {
	for args, want := range map[string]int{"-h": exitFine, "-no-such-flag": exitUsage, "x": exitUsage, "-clients 0": exitUsage, "-clients x": exitUsage} {
		var stdout, stderr strings.Builder
		err := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		assert.Equal(t, want, status(err, &stderr), "%s: status", args)
		explains := strings.Count(stderr.String(), "\n") == 2 && strings.Contains(stderr.String(), "storm -h explains") && stdout.Len() == 0
		assert.True(t, explains || want != exitUsage, "%s: %q", args, &stderr)
		for line := range strings.Lines(stdout.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 88, "%s: %s", args, line)
		}
	}
	assert.Equal(t, exitFailed, status(errors.New("x"), io.Discard), "status")
}

// A system that does not allow the experiment is told before it begins.
func TestCheck(t *testing.T) {
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for files, want := range map[uint64]string{ // in the error, or in the notes if it begins with "note"
		1 << 20: "",
		64:      "ulimit -n 8900",
		20_000:  "note: a server may open 20000 files",
	} {
		var notes strings.Builder
		err := check(o, func(want uint64) uint64 { return min(want, files) }, &notes)
		switch {
		case want == "":
			assert.True(t, err == nil && notes.Len() == 0, "%v, %s", err, &notes)
		case strings.HasPrefix(want, "note"):
			assert.True(t, err == nil && strings.HasPrefix(notes.String(), want), "%v, %q", err, &notes)
		default:
			assert.ErrorContains(t, err, want)
		}
	}
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, writable(filepath.Join(dir, "a", "b")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	err := run(t.Context(), []string{"-out", filepath.Join(dir, "file", "x")}, io.Discard, io.Discard)
	assert.ErrorContains(t, err, "-out: ")
	assert.Equal(t, exitFailed, status(err, io.Discard))
	left, err := os.ReadDir(filepath.Join(dir, "a", "b"))
	assert.True(t, err == nil && len(left) == 0, "left %v, %v", left, err)
}
