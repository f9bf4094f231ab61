// Rules from a file, reloaded when it changes.

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/rulefile"
)

// maxRules is a byte more than package rulefile accepts.
const maxRules = 1<<20 + 1

// rules keeps the rules of a Transport the same as those in a file. If the file does
// not hold rules, the last good rules stay in force.
type rules struct {
	path  string // empty: there is no file
	apply func(policy.Rule, map[string]policy.Rule) error
	log   *slog.Logger

	mu      sync.Mutex // guards the fields below
	data    []byte     // in force
	suspect string     // bad content, or an error, that was seen once
	judged  string     // bad content, or an error, that was logged
	state   rulesState
}

// rulesState is the part of rules that the debug page and the metrics show.
type rulesState struct {
	File    string    `json:"file"`
	Loaded  time.Time `json:"loaded,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the file is not in force
	Taken   uint64    `json:"taken"`             // changes that came into force
	Refused uint64    `json:"refused"`           // changes that did not
}

func newRules(path string, apply func(policy.Rule, map[string]policy.Rule) error, log *slog.Logger) *rules {
	r := &rules{path: path, apply: apply, log: log}
	if path != "" {
		r.state.File = filepath.Base(path)
	}
	return r
}

// load reads the rules at the start.
func (r *rules) load() error {
	if r.path == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := r.read()
	if err == nil {
		err = r.put(data)
	}
	if err != nil {
		return fmt.Errorf("%s: %s", r.path, line(err))
	}
	return nil
}

// watch reads the rules again at each tick and at each hangup, until ctx ends.
func (r *rules) watch(ctx context.Context, poll time.Duration, hangup <-chan os.Signal) {
	var tick <-chan time.Time
	if poll > 0 {
		ticker := time.NewTicker(poll)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			r.check(false)
		case <-hangup:
			r.check(true)
		}
	}
}

// check reads the file and puts its rules in force if they are good and new. It
// compares the content, because a file can change without a change of its size or
// time. asked means that somebody wants to hear the result in any case.
//
// Bad content is logged once, and only when it is the same in two checks in a row. A
// file that is just being written or replaced is bad for a moment. Half a file is
// never taken, because the beginning of a JSON object is not valid JSON.
func (r *rules) check(asked bool) {
	if r.path == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := r.read()
	if err == nil && bytes.Equal(data, r.data) {
		if asked || r.state.Problem != "" {
			r.log.Info("the rules are the same as before", "file", r.path)
		}
		r.clear()
		return
	}
	content := "content: " + string(data)
	if err != nil {
		content = "error: " + err.Error()
	}
	if content == r.judged && !asked {
		return
	}
	if err == nil {
		if err = r.put(data); err == nil {
			r.log.Info("new rules are in force", "file", r.path)
			return
		}
	}
	if content != r.suspect && !asked {
		r.suspect = content
		return
	}
	r.suspect, r.judged = content, content
	r.state.Problem = line(err)
	r.state.Refused++
	r.log.Error("the old rules stay in force", "file", r.path, "since", r.state.Loaded.Format(time.RFC3339), "reason", r.state.Problem)
}

// put puts rules in force.
func (r *rules) put(data []byte) error {
	rule, hosts, err := rulefile.Load(bytes.NewReader(data), rulefile.Names{})
	if err != nil {
		return err
	}
	if err := r.apply(rule, hosts); err != nil {
		return err
	}
	r.data = data
	r.state.Loaded = time.Now()
	r.state.Taken++
	r.clear()
	return nil
}

// clear forgets bad content.
func (r *rules) clear() { r.suspect, r.judged, r.state.Problem = "", "", "" }

// read returns the content of the file. It opens nothing but a regular file, because
// to open a pipe would wait for somebody to write to it.
func (r *rules) read() ([]byte, error) {
	info, err := os.Stat(r.path)
	switch {
	case err != nil:
		return nil, cause(err)
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(r.path)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRules))
	return data, cause(err)
}

// cause returns an error without the path, which the log has already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// line returns an error as a single line. It has the first of many faults.
func line(err error) string {
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
