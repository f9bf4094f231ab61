package rulefile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
)

func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse(strings.NewReader(text), Names{})
	require.NoError(t, err)
	return f
}

func TestSchemaKey(t *testing.T) {
	_, _, err := Load(strings.NewReader(`{"$schema": "rules.schema.json", "rule": {"attempts": 3}}`), Names{})
	require.NoError(t, err)
	for input, want := range map[string]string{
		`{"$schema": 1}`:                       "$schema\"]: the number 1 where the address of a JSON Schema is wanted",
		`{"$schema": "a", "$schema": "b"}`:     "the key is there twice",
		`{"rule": {"$schema": "a"}}`:           "unknown key",
		`{"hosts": {"h": {"$schema": "a"}}}`:   "unknown key",
		`{"rule": {"rate": {"$schema": "a"}}}`: "unknown key",
	} {
		_, _, err := Load(strings.NewReader(input), Names{})
		assert.ErrorContains(t, err, want, input)
	}
}

func TestParseTellsProfileAndKeysApart(t *testing.T) {
	f := parsed(t, `{"hosts": {"h": {"profile": {"name": "github"}, "attempts": 4}}}`)
	part := f.Hosts["h"]
	assert.Equal(t, "github", part.Profile)
	assert.Equal(t, policy.Rule{Attempts: 4}, part.Keys)
	assert.NotNil(t, part.Base.Classify)
	assert.Zero(t, part.Base.Attempts)
	assert.Equal(t, 4, part.Rule.Attempts)
	assert.NotNil(t, part.Rule.Classify)
}

func TestLocate(t *testing.T) {
	f := parsed(t, "{\n \"rule\": {\"attempts\": 3},\n \"hosts\": {\"a \\\"]b\": {\n  \"gate\": {\"start\": 9}}}}")
	here := func(field string) string {
		return f.Locate(policy.Errors{{Field: field, Value: 1, Reason: "is wrong"}}).Error()
	}
	assert.Equal(t, "line 2, column 23: rule.attempts: 1 is wrong", here("Rule.Attempts"))
	assert.Equal(t, "line 2, column 10: rule: Gate.Max: 1 is wrong", here("Rule.Gate.Max"))
	assert.Equal(t, "line 4, column 21: hosts[\"a \\\"]b\"].gate.start: 1 is wrong", here(`Hosts["a \"]b"].Gate.Start`))
	assert.Equal(t, "line 3, column 12: hosts[\"a \\\"]b\"]: 1 is wrong", here(`Hosts["a \"]b"]`))
	assert.Equal(t, "line 1, column 1: 1 is wrong", here("Base"))
	other := errors.New("another error")
	assert.Equal(t, other, f.Locate(other))
	assert.NoError(t, f.Locate(nil))
}

func TestSettings(t *testing.T) {
	f := parsed(t, `{
	  "rule": {"backoff": {"type": "constant", "delay": "2s"}, "profile": "aws", "stall": "off", "gate": {"max": 7}},
	  "hosts": {"h": {"hint": ["retry_info"], "profile": "github", "upload": {"memory": 1000}, "budget": {"per_second": "off"}, "rate": {"per_second": 0.5}}}
	}`)
	for pattern, want := range map[string]map[string][2]string{
		"": {
			"attempts":      {"6", "default"},
			"backoff":       {`{"type":"constant","delay":"2s"}`, "rule"},
			"classify":      {"of the profile", `profile "aws" of rule`},
			"hint":          {"of the profile", `profile "aws" of rule`},
			"stall.timeout": {"off", "rule"},
			"gate.mode":     {"wait", "default"},
			"gate.max":      {"7", "rule"},
			"budget.burst":  {"30", "default"},
		},
		"h": {
			"classify":      {"of the profile", `profile "github" of host "h"`},
			"hint":          {`["retry_info"], then profile "github"`, `host "h"`},
			"upload.memory": {"1000", `host "h"`},
			"budget.burst":  {"10", "default"},
			"rate.burst":    {"1", "default"},
			"gate.max":      {"7", "rule"},
		},
	} {
		got := map[string][2]string{}
		for _, s := range f.Settings(pattern) {
			got[s.Key] = [2]string{s.Value, s.Source}
		}
		for key, pair := range want {
			assert.Equal(t, pair, got[key], "%q %s", pattern, key)
		}
	}
}

// The cost of the faults of a file grows with the file, not with its square. With the
// square this test would take minutes.
func TestLocateInALargeFile(t *testing.T) {
	n := soak.Size(1<<15, 1<<18)
	var text strings.Builder
	text.WriteString(`{"hosts":{"h":{}`)
	for i := range n {
		fmt.Fprintf(&text, `,"*%d":{}`, i)
	}
	text.WriteString(`,"*7":{}}}`)
	l := &loader{document: document{data: []byte(text.String())}}
	f := &File{data: l.data, root: l.parse()}
	faults := make(policy.Errors, n)
	for i := range faults {
		faults[i] = &policy.FieldError{Field: fmt.Sprintf("Hosts[%q]", "*"+strconv.Itoa(i)), Value: i, Reason: "is wrong"}
	}
	err := f.Locate(faults)
	located, ok := errors.AsType[Errors](err)
	require.True(t, ok)
	assert.Len(t, located, maxFaults+1)
	assert.Equal(t, `line 1, column 26: hosts["*1"]: 1 is wrong`, located[1].Error())
	assert.Contains(t, located[7].Error(), `hosts["*7"]: 7 is wrong`, "the first member counts")
	assert.Contains(t, err.Error(), fmt.Sprintf("there are %d more faults", n-maxFaults))
}

// The rule of a path lies over that of its host, and has no limits of the host.
func TestRulesOfPaths(t *testing.T) {
	f := parsed(t, `{"rule": {"attempts": 2}, "hosts": {
	  "h": {"max_elapsed": "1m", "rate": {"per_second": 5}},
	  "POST h/v1/": {"profile": "openai", "attempts": 4}
	}}`)
	got := map[string]string{}
	for _, s := range f.Settings("POST h/v1/", "h") {
		got[s.Key] = s.Source
	}
	for key, source := range map[string]string{
		"attempts": `path "POST h/v1/"`, "max_elapsed": `host "h"`, "rate.per_second": `host "h"`,
		"classify": `profile "openai" of path "POST h/v1/"`, "upload.memory": "default",
	} {
		assert.Equal(t, source, got[key], key)
	}
	_, _, err := Load(strings.NewReader(`{"hosts": {"h": {"rate": {"per_second": 5}}, "GET h/v1/": {"attempts": 4, "pacing": "on"}}}`), Names{})
	var faults Errors
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 1)
	assert.Equal(t, `hosts["GET h/v1/"].pacing`, faults[0].Path)
	assert.Contains(t, faults[0].Reason, "is a limit of the host")
}
