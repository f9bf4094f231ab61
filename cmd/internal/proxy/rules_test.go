package proxy

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
)

const good = `{"rule": {"attempts": 2}}`

// A fixture is a file with rules, and the rules in force.
type fixture struct {
	*rules
	log     *logbook
	inForce policy.Rule
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{log: newLogbook()}
	apply := func(rule policy.Rule, hosts map[string]policy.Rule) error {
		if _, bad := hosts["bad pattern"]; bad {
			return errors.New("two\nlines")
		}
		f.inForce = rule
		return nil
	}
	f.rules = newRules(rulesFile(t, good), apply, slog.New(slog.NewTextHandler(f.log, nil)))
	require.NoError(t, f.load())
	return f
}

func (f *fixture) lines() int { return f.log.count("\n") }

// faults are the ways in which a file can be no rules. The argument is its path, at
// which there is nothing.
var faults = map[string]struct {
	make   func(path string) error
	reason string
}{
	"missing":     {func(string) error { return nil }, "no such file"},
	"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "it is a directory"},
	"empty":       {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "line 1, column 1"},
	"half": {func(path string) error {
		return os.WriteFile(path, []byte(good[:len(good)/2]), 0o600)
	}, "line 1"},
	"a broken link": {func(path string) error { return os.Symlink(path+".gone", path) }, "no such file"},
	"two faults": {func(path string) error {
		return os.WriteFile(path, []byte("{\"rule\": {\"attempts\": 0,\n\"x\": 1}}"), 0o600)
	}, "(and 1 more)"},
	"refused by the transport": {func(path string) error {
		return os.WriteFile(path, []byte(`{"hosts": {"bad pattern": {}}}`), 0o600)
	}, "two; lines"},
	"too long": {func(path string) error {
		return os.WriteFile(path, []byte(good+strings.Repeat(" ", 1<<20)), 0o600)
	}, "longer than 1 MiB"},
}

func TestFaultsOfTheFile(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			require.NoError(t, os.Remove(f.path))
			require.NoError(t, fault.make(f.path))

			f.check(false)
			assert.Zero(t, f.lines(), "it may be a file that is just being written")
			for range 5 {
				f.check(false)
			}
			assert.Equal(t, 1, f.lines(), f.log.String())
			assert.Contains(t, f.log.String(), fault.reason)
			assert.Contains(t, f.log.String(), "the old rules stay in force")
			assert.Equal(t, policy.Rule{Attempts: 2}, f.inForce)
			assert.Contains(t, f.now().Problem, fault.reason)
			assert.EqualValues(t, 1, f.now().Refused)

			f.check(true)
			assert.Equal(t, 2, f.lines(), "a hangup asks for an answer")
			assert.Equal(t, policy.Rule{Attempts: 2}, f.inForce)

			require.NoError(t, os.RemoveAll(f.path))
			require.NoError(t, os.WriteFile(f.path, []byte(`{"rule": {"attempts": 3}}`), 0o600))
			f.check(false)
			f.check(false)
			assert.Equal(t, policy.Rule{Attempts: 3}, f.inForce)
			assert.Equal(t, 3, f.lines())
			assert.Empty(t, f.now().Problem)
		})
	}
}

// Another fault is another line, and the same fault after good rules is, too.
func TestEachFaultIsToldOnce(t *testing.T) {
	f := newFixture(t)
	write := func(text string) {
		require.NoError(t, os.WriteFile(f.path, []byte(text), 0o600))
		for range 3 {
			f.check(false)
		}
	}
	write("{")
	assert.Equal(t, 1, f.lines())
	write("[")
	assert.Equal(t, 2, f.lines())
	write(good)
	assert.Equal(t, 3, f.lines())
	assert.Contains(t, f.log.String(), "the same as before")
	write("[")
	assert.Equal(t, 4, f.lines())
	assert.EqualValues(t, 3, f.now().Refused)
}

func TestFileOfTheSameSizeAndTime(t *testing.T) {
	f := newFixture(t)
	before, err := os.Stat(f.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.path, []byte(strings.Replace(good, "2", "5", 1)), 0o600))
	require.NoError(t, os.Chtimes(f.path, before.ModTime(), before.ModTime()))
	f.check(false)
	assert.Equal(t, policy.Rule{Attempts: 5}, f.inForce)
}

// A file that is written piece by piece is taken when it is whole, and not before.
func TestFileThatGrows(t *testing.T) {
	f := newFixture(t)
	const next = `{"rule": {"attempts": 7}}`
	for i := range len(next) {
		require.NoError(t, os.WriteFile(f.path, []byte(next[:i]), 0o600))
		f.check(false)
		assert.Equal(t, policy.Rule{Attempts: 2}, f.inForce)
	}
	assert.Zero(t, f.lines(), f.log.String())
	require.NoError(t, os.WriteFile(f.path, []byte(next), 0o600))
	f.check(false)
	assert.Equal(t, policy.Rule{Attempts: 7}, f.inForce)
	assert.Equal(t, 1, f.lines())
}

// As Kubernetes replaces a file of a ConfigMap.
func TestLinkThatChanges(t *testing.T) {
	f := newFixture(t)
	other := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(other, []byte(`{"rule": {"attempts": 9}}`), 0o600))
	require.NoError(t, os.Symlink(other, f.path+".new"))
	require.NoError(t, os.Rename(f.path+".new", f.path))
	f.check(false)
	assert.Equal(t, policy.Rule{Attempts: 9}, f.inForce)
}

func TestFaultsAtTheStart(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rules.json")
			require.NoError(t, fault.make(path))
			log := newLogbook()
			code := run(t.Context(), []string{"-to", "http://127.0.0.1:1", "-rules", path}, world{stdout: log, stderr: log})
			if name == "refused by the transport" {
				fault.reason = "bad pattern"
			}
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, log.String(), fault.reason)
		})
	}
}

func TestNoFile(t *testing.T) {
	log := newLogbook()
	r := newRules("", nil, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, r.load())
	r.check(true)
	assert.Empty(t, log.String())
}
