// Watcher, which keeps rules the same as those in a file.

package rulefile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/rulejson"
	"github.com/aplomb-go/aplomb/policy"
)

// A Watcher keeps rules the same as those in a file. Its methods are safe for concurrent use.
// Set its fields before the first call.
//
// It compares the content of the file, because a file can change without a change of its size or
// time. It opens nothing but a regular file. Apply and Report are called one at a time, and must
// not call Check. The errors are those of [Load], and those of Apply with their places in the
// file.
type Watcher struct {
	// Path is the name of the file. Required.
	Path string

	// Interval is the time between two readings, at least 1 ms. Default 1 s. policy.Off: only
	// Check reads.
	Interval time.Duration

	// Names are those of Load. Default none.
	Names Names

	// Apply puts rules in force, such as the method Update of a transport.Transport. If it
	// returns an error, the rules are not in force. Required.
	Apply func(policy.Rule, map[string]policy.Rule) error

	// Report is told why a later content of the file is not in force. The last good rules
	// stay in force then. A file that is just being written or replaced is missing or bad for
	// a moment. So a fault is reported only if it is the same in two readings in a row, and
	// once. Half a file is never taken, because the beginning of a JSON object is no valid
	// JSON. A nil error means that a fault is over: the rules of the file are in force.
	// Default nobody.
	Report func(error)

	// Logger gets an Info line for each later content that is put in force, with what changed, and when
	// a fault is over. What Report is told is an Error line for each fault. Default none.
	Logger *slog.Logger

	mu      sync.Mutex     // guards the fields below, and is held during Apply and Report
	file    *rulejson.File // in force; nil: none
	data    []byte         // that of file
	suspect string         // the bad content, or the error, of the last reading
	judged  string         // bad content, or an error, that was reported
}

// Start puts the rules of the file in force. Then it reads the file again at each Interval,
// until ctx ends, and puts new rules in force. If the first rules are bad, Start returns the
// error, and watches nothing. But if there is no file (fs.ErrNotExist), the Watcher waits for
// it all the same. If a field or ctx is wrong, Start reads nothing, and returns all faults as
// *policy.FieldErrors that are joined.
func (w *Watcher) Start(ctx context.Context) error {
	if err := w.validate(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := w.read()
	if err == nil {
		_, err = w.put(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		w.suspect = "error: " + err.Error()
		w.judged = w.suspect // the caller knows
	}
	if every := cmp.Or(w.Interval, time.Second); every > 0 {
		go w.watch(ctx, every)
	}
	return err
}

// validate returns the faults of the fields and of ctx.
func (w *Watcher) validate(ctx context.Context) error {
	var faults []error
	fault := func(wrong bool, field, why string) {
		if wrong {
			faults = append(faults, &policy.FieldError{Field: field, Err: errors.New(why)})
		}
	}
	fault(ctx == nil, "ctx", "is nil")
	fault(w.Path == "", "Path", "is empty")
	fault(w.Apply == nil, "Apply", "is nil")
	fault(w.Interval < time.Millisecond && w.Interval != 0 && w.Interval != policy.Off, "Interval",
		w.Interval.String()+" is less than 1 ms; policy.Off reads for Check only")
	return errors.Join(faults...)
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
// readings at intervals it reports every result: Apply is called if the rules are new, and
// Report if they are not, or if something is wrong. A program that catches SIGHUP calls it.
// Wrong fields are faults here as well.
func (w *Watcher) Check() error {
	if err := w.validate(context.Background()); err != nil {
		return err
	}
	return w.check(true)
}

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
		var changes []string
		if changes, err = w.put(data); err == nil {
			if told {
				w.report(nil)
			}
			if len(changes) > 0 {
				w.log(slog.LevelInfo, "rules changed", slog.Any("changes", changes))
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

// report tells the result of a reading.
func (w *Watcher) report(err error) {
	if w.Report != nil {
		w.Report(err)
	}
	faults := []error{err}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		faults = all.Unwrap()
	}
	for _, fault := range faults {
		if fault == nil {
			w.log(slog.LevelInfo, "rules in force")
		} else {
			w.log(slog.LevelError, "rules not in force", slog.String("fault", fault.Error()))
		}
	}
}

// log writes a line.
func (w *Watcher) log(level slog.Level, message string, attrs ...slog.Attr) {
	if w.Logger != nil {
		w.Logger.LogAttrs(context.Background(), level, message, append([]slog.Attr{slog.String("file", w.Path)}, attrs...)...)
	}
}

// put puts rules in force, and returns what changes.
func (w *Watcher) put(data []byte) (changes []string, err error) {
	f, err := rulejson.Parse(bytes.NewReader(data), rulejson.Names(w.Names))
	if err != nil {
		return nil, joined(err)
	}
	if err := w.Apply(f.Rules()); err != nil {
		return nil, joined(f.Locate(err))
	}
	changes = f.Changes(w.file)
	w.file, w.data, w.suspect, w.judged = f, data, "", ""
	return changes, nil
}

// read returns the content of the file, or a byte more than Load accepts. It opens nothing
// but a regular file, because to open a pipe would wait for somebody to write to it.
func (w *Watcher) read() ([]byte, error) {
	info, err := os.Stat(w.Path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rulefile: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("rulefile: %s: it is a directory", w.Path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("rulefile: %s: it is not a regular file", w.Path)
	}
	f, err := os.Open(w.Path)
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, rulejson.MaxInput+1))
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	return data, nil
}
