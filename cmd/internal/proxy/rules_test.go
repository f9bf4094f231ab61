package proxy

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
)

const good = `{"rule": {"attempts": 2}}`

// The tests of rulefile.Watch have all ways in which a file can be no rules.
func TestFaultsAtTheStart(t *testing.T) {
	for text, reason := range map[string]string{
		"":                 "no such file",
		good[:len(good)/2]: "line 1",
		"{\"rule\": {\"attempts\": 0,\n\"x\": 1}}": "(and 1 more)",
		`{"hosts": {"bad pattern": {}}}`:           "bad pattern",
	} {
		path := rulesFile(t, text)
		if text == "" {
			require.NoError(t, os.Remove(path))
		}
		log := newLogbook()
		code := run(t.Context(), []string{"-to", "http://127.0.0.1:1", "-rules", path}, world{stdout: log, stderr: log})
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, log.String(), reason)
	}
}

func TestNoFile(t *testing.T) {
	log := newLogbook()
	r, err := newRules(t.Context(), "", 0, nil, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	r.check()
	assert.Empty(t, log.String())
}

// Each result of a check is a log line and part of the state.
func TestResultsOfAChange(t *testing.T) {
	log := newLogbook()
	var inForce policy.Rule
	apply := func(rule policy.Rule, _ map[string]policy.Rule) error {
		inForce = rule
		return nil
	}
	path := rulesFile(t, good)
	r, err := newRules(context.Background(), path, 0, apply, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	assert.Zero(t, log.count("\n"))
	for i, step := range []struct {
		text, log, problem string
		attempts           int
	}{
		{`{"rule": {"attempts": 3}}`, "new rules are in force", "", 3},
		{`{"rule": {"attempts": 0}}`, "the old rules stay in force", "line 1, column 23", 3},
		{`{"rule": {"attempts": 3}}`, "the rules are the same as before", "", 3},
		{good, "new rules are in force", "", 2},
	} {
		require.NoError(t, os.WriteFile(path, []byte(step.text), 0o600))
		r.check()
		assert.Equal(t, i+1, log.count("\n"), log.String())
		assert.Contains(t, log.String(), step.log)
		assert.Contains(t, r.now().Problem, step.problem)
		assert.Equal(t, step.problem == "", r.now().Problem == "")
		assert.Equal(t, step.attempts, inForce.Attempts)
	}
	require.NoError(t, os.Remove(path))
	r.check()
	assert.Equal(t, "no such file or directory", r.now().Problem)
	assert.EqualValues(t, 3, r.now().Taken)
	assert.EqualValues(t, 2, r.now().Refused)
}
