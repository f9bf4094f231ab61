package rulefile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
)

const goodFile = `{"rule": {"max_attempts": 2}}`

// A watched is a file that is watched, the rules in force, and what was reported.
type watched struct {
	*Watcher
	inForce policy.Rule
	told    []error
}

func (f *watched) apply(rule policy.Rule, hosts map[string]policy.Rule) error {
	if _, bad := hosts["bad pattern"]; bad {
		return errors.Join(&policy.FieldError{Field: `Hosts["bad pattern"]`, Err: errors.New("two\nlines")})
	}
	f.inForce = rule
	return nil
}

func watchFile(t *testing.T, ctx context.Context, every time.Duration) *watched {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(path, []byte(goodFile), 0o600))
	f := &watched{}
	f.Watcher = &Watcher{Path: path, Interval: cmp.Or(every, policy.Off), Apply: f.apply, Report: func(err error) { f.told = append(f.told, err) }}
	require.NoError(t, f.Start(ctx))
	require.Equal(t, policy.Rule{MaxAttempts: 2}, f.inForce)
	return f
}

func (f *watched) last() error { return f.told[len(f.told)-1] }

// badFiles are the ways in which a file can be no rules. The argument is its path, at which
// there is nothing.
var badFiles = map[string]struct {
	make   func(path string) error
	reason string
}{
	"missing":     {func(string) error { return nil }, "no such file"},
	"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "it is a directory"},
	"empty":       {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "line 1, column 1"},
	"half": {func(path string) error {
		return os.WriteFile(path, []byte(goodFile[:len(goodFile)/2]), 0o600)
	}, "line 1"},
	"a broken link": {func(path string) error { return os.Symlink(path+".gone", path) }, "no such file"},
	"refused": {func(path string) error {
		return os.WriteFile(path, []byte(`{"hosts": {"bad pattern": {}}}`), 0o600)
	}, "line 1, column 12"},
	"too long": {func(path string) error {
		return os.WriteFile(path, []byte(goodFile+strings.Repeat(" ", 1<<20)), 0o600)
	}, "longer than 1 MiB"},
}

// A change and each fault are lines of their own.
func TestWatchWritesLines(t *testing.T) {
	var lines strings.Builder
	f := watchFile(t, t.Context(), 0)
	f.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "file" {
			return slog.Attr{}
		}
		return a
	}}))
	for _, row := range []struct{ content, lines string }{
		{`{"rule": {"max_attempts": 3, "hedge": {"delay": "1s"}, "idempotent": ["GET", "PUT"]}, "hosts": {"h": {}}}`,
			`level=INFO msg="rules changed" changes="[hosts[\"h\"]: {} rule.hedge.delay: \"1s\" rule.idempotent[0]: \"GET\" rule.idempotent[1]: \"PUT\" rule.max_attempts: 2 → 3]"`},
		{`{ "rule": {"max_attempts": 3, "hedge": {"delay": "1s"}, "idempotent": ["GET", "PUT"]}, "hosts": {"h": {}}}`, ""},
		{`{"rule": {"max_attempts": -1, "colour": true}}`,
			`level=ERROR msg="rules not in force" fault="line 1, column 27: rule.max_attempts: the number -1 is negative; write 1 to turn retries off"
level=ERROR msg="rules not in force" fault="line 1, column 31: rule.colour: unknown key; no key of a rule is like it"`},
		{goodFile, `level=INFO msg="rules in force"
level=INFO msg="rules changed" changes="[hosts[\"h\"]: removed rule.hedge.delay: removed rule.idempotent[0]: removed rule.idempotent[1]: removed rule.max_attempts: 3 → 2]"`},
	} {
		lines.Reset()
		require.NoError(t, os.WriteFile(f.Path, []byte(row.content), 0o600))
		_ = f.Check()
		assert.Equal(t, row.lines, strings.TrimSpace(lines.String()))
	}
}

func TestWatchABadFile(t *testing.T) {
	for name, bad := range badFiles {
		t.Run(name, func(t *testing.T) {
			f := watchFile(t, t.Context(), 0)
			require.NoError(t, os.Remove(f.Path))
			require.NoError(t, bad.make(f.Path))
			assert.Error(t, f.check(false))
			assert.Empty(t, f.told, "it may be a file that is just being written")
			for range 5 {
				_ = f.check(false)
			}
			if assert.Len(t, f.told, 1) {
				assert.ErrorContains(t, f.last(), bad.reason)
			}
			assert.ErrorContains(t, f.Check(), bad.reason)
			assert.Len(t, f.told, 2, "Check asks for an answer")
			assert.Equal(t, policy.Rule{MaxAttempts: 2}, f.inForce)

			require.NoError(t, os.RemoveAll(f.Path))
			require.NoError(t, os.WriteFile(f.Path, []byte(`{"rule": {"max_attempts": 3}}`), 0o600))
			assert.NoError(t, f.check(false))
			assert.NoError(t, f.check(false))
			assert.Equal(t, policy.Rule{MaxAttempts: 3}, f.inForce)
			assert.Len(t, f.told, 3, "the first good content ends the fault")
			assert.NoError(t, f.last())
			assert.NoError(t, f.Check())
			assert.Len(t, f.told, 4, "attempts told")
			assert.NoError(t, f.last())

			require.NoError(t, os.Remove(f.Path))
			require.NoError(t, bad.make(f.Path))
			w := &Watcher{Path: f.Path, Interval: policy.Off, Apply: f.apply}
			assert.ErrorContains(t, w.Start(t.Context()), bad.reason)
			assert.ErrorContains(t, w.Check(), bad.reason, "nobody is told")
		})
	}
}

func TestStartReportsAllFaults(t *testing.T) {
	var none context.Context
	err := (&Watcher{Interval: 10}).Start(none)
	assert.EqualError(t, err, "ctx: is nil\nPath: is empty\nApply: is nil\nInterval: 10ns is less than 1 ms; policy.Off reads for Check only")
	assert.ErrorAs(t, err, new(*policy.FieldError))
	assert.ErrorContains(t, (&Watcher{Interval: -2}).Start(none), "Interval: -2ns is less")
	assert.EqualError(t, (&Watcher{Path: "x"}).Check(), "Apply: is nil")
}

// A program can start before its file is there.
func TestWatchAMissingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.json")
		var f watched
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		w := &Watcher{Path: path, Apply: f.apply, Report: func(err error) { f.told = append(f.told, err) }}
		require.ErrorIs(t, w.Start(ctx), fs.ErrNotExist)
		time.Sleep(5 * time.Second)
		assert.Empty(t, f.told, "the caller knows")
		require.NoError(t, os.WriteFile(path, []byte(`{"rule": {"max_attempts": 3}}`), 0o600))
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, policy.Rule{MaxAttempts: 3}, f.inForce)
		assert.Equal(t, []error{nil}, f.told, "the fault is over")
	})
}

// A fault is reported once, when it is there in two readings in a row. If the faults come by turns, none is reported.
// Another fault is reported, too, and so is the same fault after good rules.
func TestWatchReportsEachFaultOnce(t *testing.T) {
	f := watchFile(t, t.Context(), 0)
	for i, row := range []struct {
		text string
		told int
	}{
		{"{", 0}, {"{", 1}, {"[", 1}, {"{", 1}, {"[", 1}, {"{", 1}, {"[", 1}, {"[", 2}, {"[", 2}, {goodFile, 3}, {goodFile, 3}, {"[", 3}, {"[", 4},
	} {
		require.NoError(t, os.WriteFile(f.Path, []byte(row.text), 0o600))
		_ = f.check(false)
		assert.Len(t, f.told, row.told, "reading %d", i)
	}
	for i, err := range f.told {
		assert.Equal(t, i == 2, err == nil, "report %d", i)
	}
}

// A file that is written piece by piece is taken when it is whole, and not before.
func TestWatchAFileThatGrows(t *testing.T) {
	f := watchFile(t, t.Context(), 0)
	const next = `{"rule": {"max_attempts": 7}}`
	for i := range len(next) {
		require.NoError(t, os.WriteFile(f.Path, []byte(next[:i]), 0o600))
		assert.Error(t, f.check(false))
		assert.Equal(t, policy.Rule{MaxAttempts: 2}, f.inForce)
	}
	assert.Empty(t, f.told)
	require.NoError(t, os.WriteFile(f.Path, []byte(next), 0o600))
	require.NoError(t, f.check(false))
	assert.Equal(t, policy.Rule{MaxAttempts: 7}, f.inForce)
}

// A link changes as Kubernetes replaces a file of a ConfigMap, and a file of the same size and time.
func TestWatchALinkThatChanges(t *testing.T) {
	f := watchFile(t, t.Context(), 0)
	before, err := os.Stat(f.Path)
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(other, []byte(strings.Replace(goodFile, "2", "9", 1)), 0o600))
	require.NoError(t, os.Chtimes(other, before.ModTime(), before.ModTime()))
	require.NoError(t, os.Symlink(other, f.Path+".new"))
	require.NoError(t, os.Rename(f.Path+".new", f.Path))
	require.NoError(t, f.check(false))
	assert.Equal(t, policy.Rule{MaxAttempts: 9}, f.inForce)
}

// The file is read at each interval until the context ends.
func TestWatchReadsAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := watchFile(t, ctx, time.Minute)
		write := func(text string) {
			require.NoError(t, os.WriteFile(f.Path, []byte(text), 0o600))
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		write(`{"rule": {"max_attempts": 4}}`)
		assert.Equal(t, 4, f.inForce.MaxAttempts)
		write(`{`)
		assert.Empty(t, f.told)
		write(`{`)
		assert.Len(t, f.told, 1, "attempts told")
		cancel()
		synctest.Wait()
		write(`{"rule": {"max_attempts": 5}}`)
		assert.Equal(t, 4, f.inForce.MaxAttempts)
		require.NoError(t, f.Check())
		assert.Equal(t, 5, f.inForce.MaxAttempts)
	})
}

// Only a missing file is waited for. A bad one may stay bad for ever.
func TestWatchNoBadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.json")
		require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
		var f watched
		w := &Watcher{Path: path, Apply: f.apply}
		require.Error(t, w.Start(t.Context()))
		require.NoError(t, os.WriteFile(path, []byte(goodFile), 0o600))
		time.Sleep(time.Minute)
		assert.Zero(t, f.inForce)
	})
}

func TestWatchKnowsNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"rule": {"profile": "ours"}}`), 0o600))
	f := &watched{}
	w := &Watcher{Path: path, Interval: policy.Off, Apply: f.apply, Names: Names{Profile: map[string]policy.Rule{"ours": {MaxAttempts: 7}}}}
	require.NoError(t, w.Start(t.Context()))
	assert.Equal(t, 7, f.inForce.MaxAttempts)
	other := errors.New("other")
	w = &Watcher{Path: path, Interval: policy.Off, Names: w.Names, Apply: func(policy.Rule, map[string]policy.Rule) error { return other }}
	assert.ErrorIs(t, w.Start(t.Context()), other)
}

// The faults are Errors with their places and their causes.
func TestFaults(t *testing.T) {
	_, _, err := Load(strings.NewReader("{\"rule\": {\"max_attempts\": 3,\n \"attempt_timeout\": \"1000000h\", \"odd\": 1}}"), Names{})
	all := err.(interface{ Unwrap() []error }).Unwrap()
	require.Len(t, all, 2)
	first, last := all[0].(*Error), all[1].(*Error)
	assert.Equal(t, []any{2, "rule.attempt_timeout", 2, "rule.odd"}, []any{first.Line, first.Key, last.Line, last.Key})
	_, ok := errors.AsType[*policy.FieldError](first)
	assert.True(t, ok)
	assert.Equal(t, "line 2, column 33: rule.odd: "+last.Err.Error(), last.Error())
	_, _, err = Load(strings.NewReader("{"), Names{})
	var syntax *json.SyntaxError
	assert.ErrorAs(t, err, &syntax)
}
