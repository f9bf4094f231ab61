// Rules from a file, reloaded when it changes.

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

// rules keeps the rules of a Transport the same as those in a file, and logs what becomes of
// the file. If the file does not hold rules, the last good rules stay in force.
type rules struct {
	path    string // empty: there is no file
	log     *slog.Logger
	watcher *rulefile.Watcher // nil: there is no file

	mu    sync.Mutex // guards state
	state rulesState
}

// rulesState is the part of rules that the debug page and the metrics show.
type rulesState struct {
	File    string    `json:"file"`
	Loaded  time.Time `json:"loaded,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the file is not in force
	Taken   uint64    `json:"taken"`             // changes that came into force
	Refused uint64    `json:"refused"`           // changes that did not
}

// newRules reads the rules, and then every time that poll is over, until ctx ends.
func newRules(ctx context.Context, path string, poll time.Duration, apply func(policy.Rule, map[string]policy.Rule) error, log *slog.Logger) (*rules, error) {
	r := &rules{path: path, log: log}
	if path == "" {
		return r, nil
	}
	r.state.File = filepath.Base(path)
	var err error
	r.watcher, err = rulefile.Watch(ctx, path, poll, func(rule policy.Rule, hosts map[string]policy.Rule) error {
		if err := apply(rule, hosts); err != nil {
			return err
		}
		r.applied()
		return nil
	}, r.refused)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, line(err))
	}
	return r, nil
}

// check reads the file at once.
func (r *rules) check() {
	if r.watcher != nil {
		_ = r.watcher.Check() // refused hears of an error
	}
}

// applied notes and logs that new rules are in force.
func (r *rules) applied() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Loaded, r.state.Problem = time.Now(), ""
	r.state.Taken++
	if r.state.Taken > 1 {
		r.log.Info("new rules are in force", "file", r.path)
	}
}

// refused notes and logs why the content of the file is not in force. A nil error means that
// the file has the rules that are in force.
func (r *rules) refused(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.log.Info("the rules are the same as before", "file", r.path)
		r.state.Problem = ""
		return
	}
	r.state.Problem = line(err)
	r.state.Refused++
	r.log.Error("the old rules stay in force", "file", r.path, "since", r.state.Loaded.Format(time.RFC3339), "reason", r.state.Problem)
}

// line returns an error as a single line without the path, which the log has already. It has
// the first of many faults.
func line(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if faults, ok := errors.AsType[rulefile.Errors](err); ok && len(faults) > 1 {
		return fmt.Sprintf("%s (and %d more)", line(faults[0]), len(faults)-1)
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(c rune) bool { return c == '\n' || c == '\r' }), "; ")
}

// now returns the state for the debug page and the metrics.
func (r *rules) now() rulesState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}
