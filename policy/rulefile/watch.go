// Watch, which keeps rules the same as those in a file.

package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

// A Watcher keeps rules the same as those in a file (see [Watch]). It is safe for concurrent
// use.
type Watcher struct {
	path   string
	apply  func(policy.Rule, map[string]policy.Rule) error
	report func(error)
	names  Names

	mu      sync.Mutex // guards the fields below, and is held during apply and report
	data    []byte     // in force
	suspect string     // the bad content, or the error, of the last reading
	judged  string     // bad content, or an error, that was reported
}

// Watch reads rules from a file and puts them in force. Then it reads the file again at
// intervals of every, until ctx ends, and puts new rules in force. If every is not positive,
// only [Watcher.Check] does so. A program that catches SIGHUP calls Check.
//
// apply puts rules in force. It is usually the method Update of a transport.Transport. If it
// returns an error, the rules are not in force. The first rules are applied before Watch
// returns. If that fails, Watch returns the error, and watches nothing. But if there is no file
// (fs.ErrNotExist), Watch returns a Watcher besides the error, which waits for the file.
//
// report is told why a later content of the file is not in force. The last good rules stay
// in force then. A file that is just being written or replaced is missing or bad for a
// moment. So a fault is reported only if it is the same in two readings in a row, and once.
// Half a file is never taken, because the beginning of a JSON object is no valid JSON.
// report(nil) means that a fault is over: the rules of the file are in force. report may be nil.
//
// Watch compares the content of the file, because a file can change without a change of its
// size or time. It opens nothing but a regular file. apply and report are called one at a
// time, and must not call Check. The errors are those of [Load], and those of apply with
// their places in the file. names are those of Load. At most one may be given.
func Watch(ctx context.Context, path string, every time.Duration, apply func(policy.Rule, map[string]policy.Rule) error,
	report func(error), names ...Names) (*Watcher, error) {
	w := &Watcher{path: path, apply: apply, report: report}
	switch len(names) {
	case 0:
	case 1:
		w.names = names[0]
	default:
		return nil, errors.New("rulefile: Watch takes one Names")
	}
	if report == nil {
		w.report = func(error) {}
	}
	data, err := w.read()
	if err == nil {
		err = w.put(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		w.suspect = "error: " + err.Error()
		w.judged = w.suspect // the caller knows
	}
	if every > 0 {
		go w.watch(ctx, every)
	}
	return w, err
}

// watch reads the file again at each tick, until ctx ends.
func (w *Watcher) watch(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = w.check(false)
		}
	}
}

// Check reads the file at once, and returns why its content is not in force. Unlike the
// readings at intervals it reports every result: apply is called if the rules are new, and
// report if they are not, or if something is wrong.
func (w *Watcher) Check() error { return w.check(true) }

// check reads the file and puts its rules in force if they are good and new. asked means
// that somebody wants to hear the result in any case.
func (w *Watcher) check(asked bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := w.read()
	told := w.judged != ""
	if err == nil && w.data != nil && bytes.Equal(data, w.data) {
		w.suspect, w.judged = "", ""
		if asked || told {
			w.report(nil)
		}
		return nil
	}
	content := "content: " + string(data)
	if err != nil {
		content = "error: " + err.Error()
	}
	if content == w.judged && !asked {
		w.suspect = content
		return err
	}
	if err == nil {
		if err = w.put(data); err == nil {
			if told {
				w.report(nil)
			}
			return nil
		}
	}
	if content != w.suspect && !asked {
		w.suspect = content
		return err
	}
	w.suspect, w.judged = content, content
	w.report(err)
	return err
}

// put puts rules in force.
func (w *Watcher) put(data []byte) error {
	f, err := Parse(bytes.NewReader(data), w.names)
	if err != nil {
		return err
	}
	if err := w.apply(f.rules()); err != nil {
		return f.Locate(err)
	}
	w.data, w.suspect, w.judged = data, "", ""
	return nil
}

// read returns the content of the file, or a byte more than Load accepts. It opens nothing
// but a regular file, because to open a pipe would wait for somebody to write to it.
func (w *Watcher) read() ([]byte, error) {
	info, err := os.Stat(w.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rulefile: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("rulefile: %s: it is a directory", w.path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("rulefile: %s: it is not a regular file", w.path)
	}
	f, err := os.Open(w.path)
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	return data, nil
}
