package rulefile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

// A program sets Apply to the method Update of its Transport, and calls Check when it gets
// SIGHUP.
func ExampleWatcher() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "rules.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	write(`{"rule": {"max_attempts": 4}}`)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &rulefile.Watcher{
		Path:     path,
		Interval: time.Hour,
		Apply: func(rule policy.Rule, hosts map[string]policy.Rule) error {
			fmt.Println("in force:", rule)
			return nil
		},
		Report: func(err error) {
			if err == nil {
				fmt.Println("the file is good again")
				return
			}
			fmt.Println("not in force:", err)
		},
	}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	write(`{"rule": {"max_attempts": "many"}}`)
	_ = w.Check() // Report has told the error
	write(`{"rule": {"max_attempts": 2}}`)
	if err := w.Check(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// in force: {MaxAttempts: 4}
	// not in force: line 1, column 27: rule.max_attempts: the string "many" where a whole number is wanted
	// in force: {MaxAttempts: 2}
	// the file is good again
}
