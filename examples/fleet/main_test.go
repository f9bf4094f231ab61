package main

import (
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/redisserver"
)

func TestMain(m *testing.M) {
	if isWorker() {
		if err := worker(); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestRun: the fleet gets fewer 429s, and none of its workers starves.
func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(&out, 4*time.Second)
	if errors.Is(err, redisserver.ErrMissing) {
		t.Skip(err)
	}
	t.Log(out.String())
	if err != nil {
		t.Error(err)
	}
}

// TestJudge: run returns an error if a fleet is of no use.
func TestJudge(t *testing.T) {
	alone := result{done: []int{49, 2, 9}, refused: 10}
	for _, c := range []struct {
		name  string
		fleet result
		ok    bool
	}{
		{"useful", result{done: []int{20, 20, 19}}, true},
		{"on a slow machine", result{done: []int{16, 10, 11}, refused: 2}, true},
		{"as many 429s", result{done: []int{20, 20, 19}, refused: 10}, false},
		{"a worker starves", result{done: []int{30, 25, 5}}, false},
		{"slow", result{done: []int{9, 9, 9}}, false},
	} {
		if err := judge(alone, c.fleet); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
