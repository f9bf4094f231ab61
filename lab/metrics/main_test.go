package main

import "testing"

// TestRun: the page counts as many attempts as the server gets.
func TestRun(t *testing.T) {
	if err := run(); err != nil {
		t.Error(err)
	}
}
