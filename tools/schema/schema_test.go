// Package schema compares docs/rules.schema.json with package rulefile. It is in this
// module, because the root module does not depend on a validator.
package schema

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("../../docs/rules.schema.json")
	require.NoError(t, err)
	require.Equal(t, 2020, s.DraftVersion, "draft")
	return s
}

// verdicts returns what the schema and the loader say about a file.
func verdicts(t *testing.T, s *jsonschema.Schema, text string) (bySchema, byLoader error) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err, text)
	names := rulefile.Names{RetryAfter: map[string]classify.RetryAfterFunc{"mine": classify.RetryAfter}}
	_, _, byLoader = rulefile.Load(strings.NewReader(text), names)
	return s.Validate(value), byLoader
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// The example files are judged the same.
func TestFiles(t *testing.T) {
	s := compile(t)
	for _, dir := range []string{"valid", "invalid"} {
		files, _ := filepath.Glob("testdata/" + dir + "/*.json")
		require.NotEmpty(t, files)
		for _, file := range files {
			bySchema, byLoader := verdicts(t, s, read(t, file))
			valid := dir == "valid"
			assert.True(t, (bySchema == nil) == valid && (byLoader == nil) == valid, "%s: the schema says %v; the loader says %v", file, bySchema, byLoader)
		}
	}
	for _, file := range []string{"../../examples/hosts/rules.json", "../../cmd/internal/rules/testdata/rules.json"} {
		bySchema, byLoader := verdicts(t, s, read(t, file))
		assert.True(t, bySchema == nil && byLoader == nil, "%s: the schema says %v; the loader says %v", file, bySchema, byLoader)
	}
}

// others are values of all kinds that a value of a valid file is replaced by.
var others = []string{
	`null`, `true`, `0`, `-1`, `1`, `7`, `99.95`, `0.5`, `1.5`, `200`, `1001`, `1000000001`, `""`, `"off"`, `"on"`, `"none"`, `"default"`, `"inherit"`, `"x"`, `"POST"`, `"post"`,
	`"5s"`, `"0s"`, `"-5s"`, `"1h30m0.5s"`, `".5s"`, `"5"`, `"5 s"`, `"64KiB"`, `"1 MiB"`, `"0MiB"`, `"1mib"`, `"1.5MiB"`, `"-"`, `"X-Y"`, `"X Y"`,
	`[]`, `{}`, `[1]`, `["x"]`, `["none"]`, `["POST", "GET"]`, `{"name": "none"}`, `{"name": "x"}`, `{"type": "constant"}`, `{"type": "normal"}`,
	`{"status": 500, "class": "final"}`, `{"status": [], "class": "final"}`, `{"error": ["dns"], "class": "refused"}`, `{"x": 1}`,
}

// stricter are the reasons of faults that a schema cannot state. They are about
// several values together, or about the names of the program.
var stricter = []string{
	"is never asked, because",
	"contradicts the profile",
	"is less than",
	"would earn no retries at all",
	"is not the name of a RetryAfter function",
}

// Each value of the valid files is replaced by each of the others, left out, and
// given another key. The schema and the loader judge the result the same, except
// for faults that only the loader knows.
func TestChangedFiles(t *testing.T) {
	s := compile(t)
	files, _ := filepath.Glob("testdata/valid/*.json")
	changed, known := 0, map[string]bool{}
	var texts []string
	for _, file := range files {
		texts = append(texts, parts(t, read(t, file))...)
	}
	for _, text := range texts {
		for i := range places(decode(t, text)) {
			for _, other := range append([]string{"remove", "rename"}, others...) {
				mutant := change(t, text, i, other)
				bySchema, byLoader := verdicts(t, s, mutant)
				changed++
				if (bySchema == nil) == (byLoader == nil) {
					continue
				}
				k := -1
				if byLoader != nil {
					k = slices.IndexFunc(stricter, func(reason string) bool { return strings.Contains(byLoader.Error(), reason) })
				}
				if k < 0 {
					t.Errorf("%s\nthe schema says %v; the loader says %v", mutant, bySchema, byLoader)
				} else {
					known[stricter[k]] = true
				}
			}
		}
	}
	assert.GreaterOrEqual(t, changed, 1000, "files compared")
	assert.Len(t, known, len(stricter), "stricter faults that were met")
}

// parts returns a small file for each key of the rules in a file, which is faster to
// compare than the whole. A profile stays with the other keys of its rule.
func parts(t *testing.T, text string) (texts []string) {
	var file struct {
		Rule  map[string]any
		Hosts map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(text), &file))
	for _, rule := range append(slices.Collect(maps.Values(file.Hosts)), file.Rule) {
		for key, value := range rule {
			part := map[string]any{key: value}
			if p, ok := rule["profile"]; ok {
				part["profile"] = p
			}
			out, err := json.Marshal(map[string]any{"rule": part})
			require.NoError(t, err)
			texts = append(texts, string(out))
		}
	}
	return append(texts, `{"$schema": "x", "rule": {"max_attempts": 2}, "hosts": {"h": {"max_attempts": 3}}}`)
}

func decode(t *testing.T, text string) any {
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// A place is where a value stands: in an object or an array, at a key or an index.
type place struct {
	in, value any
	key       string
	index     int
}

// places lists the places below v, in a fixed order.
func places(v any) (all []place) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(append(all, place{in: v, value: v[key], key: key}), places(v[key])...)
		}
	case []any:
		for i := range v {
			all = append(append(all, place{in: v, value: v[i], index: i}), places(v[i])...)
		}
	}
	return all
}

// change returns the text with another value at the place i.
func change(t *testing.T, text string, i int, other string) string {
	root := decode(t, text)
	p := places(root)[i]
	switch in := p.in.(type) {
	case map[string]any:
		switch other {
		case "remove":
			delete(in, p.key)
		case "rename":
			delete(in, p.key)
			in["other_"+p.key] = p.value
		default:
			in[p.key] = decode(t, other)
		}
	case []any:
		if other != "remove" && other != "rename" {
			in[p.index] = decode(t, other)
		}
	}
	out, err := json.Marshal(root)
	require.NoError(t, err)
	return string(out)
}

// The valid files together have every key of the schema, so that TestChangedFiles
// looks at each of them.
func TestValidFilesHaveEveryKey(t *testing.T) {
	have := map[string]bool{}
	files, _ := filepath.Glob("testdata/valid/*.json")
	for _, file := range files {
		for _, p := range places(decode(t, read(t, file))) {
			have[p.key] = true
		}
	}
	for _, p := range places(decode(t, read(t, "../../docs/rules.schema.json"))) {
		properties, ok := p.value.(map[string]any)
		for name := range properties {
			assert.False(t, ok && p.key == "properties" && !have[name], "no valid file has the key %s", name)
		}
	}
}
