package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRun: the page counts as many attempts as the server gets.
func TestRun(t *testing.T) {
	assert.NoError(t, run())
}

// TestDocument: docs/observability.md shows withMetrics as it is.
func TestDocument(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "\nfunc withMetrics")
	code, _, found := strings.Cut(code, "\n}\n")
	require.True(t, found)
	text, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), "\nfunc withMetrics"+code+"\n}\n```\n")
}
