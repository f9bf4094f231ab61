package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	wide := strings.Repeat("é", columns)
	for _, test := range []struct {
		name, output string
		problems     int
	}{
		{"a sentence and a table", "The gate helps.\n\n  a  b\n", 0},
		{"a sentence of two lines", "The gate\nhelps.\n\n  a  b\n", 0},
		{"a policy.Rule first", "policy.Do retries functions.\n", 0},
		{"as wide as a terminal", "It fits.\n\n" + wide + "\n", 0},
		{"wider", "It fits.\n\n" + wide + "!\n" + wide + "!", 2},
		{"a table first", "  a.  b\n", 1},
		{"a sentence too late", "a b\n\nThe gate helps.\n", 1},
		{"nothing", "", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := check(test.output); len(got) != test.problems {
				t.Errorf("%d problems, want %d: %q", len(got), test.problems, got)
			}
		})
	}
}
