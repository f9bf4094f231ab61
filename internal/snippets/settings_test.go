package snippets

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// The tables of docs/settings.md have each field of a Rule and of a Config once, and mark ten.
func TestSettingsAreComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "settings.md"))
	require.NoError(t, err)
	_, tables, found := strings.Cut(string(text), "\n## All settings\n")
	require.True(t, found)
	tables, _, _ = strings.Cut(tables, "\n## ")
	var shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| (?:★ )?(`.*?`) \\|").FindAllStringSubmatch(tables, -1) {
		shown = append(shown, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
	}
	fields := fieldsOf(reflect.TypeFor[policy.Rule]())
	for i := range reflect.TypeFor[transport.Config]().NumField() {
		fields = append(fields, reflect.TypeFor[transport.Config]().Field(i).Name)
	}
	assert.ElementsMatch(t, fields, shown)
	assert.Equal(t, 10, strings.Count(tables, "| ★ "))
}

// fieldsOf returns the fields of a struct, with those of its groups.
func fieldsOf(group reflect.Type) (all []string) {
	for i := range group.NumField() {
		field := group.Field(i)
		if field.Type.Kind() != reflect.Struct {
			all = append(all, field.Name)
			continue
		}
		for _, name := range fieldsOf(field.Type) {
			all = append(all, field.Name+"."+name)
		}
	}
	return all
}
