// The faults that Parse reports, with their places in the input.

package rulejson

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// An Error is a rulefile.Error.
type Error struct {
	Line, Column int
	Key          string
	Err          error
}

// Error returns "line 7, column 15: key: what is wrong".
func (e *Error) Error() string {
	at := fmt.Sprintf("line %d, column %d: ", e.Line, e.Column)
	if e.Key != "" {
		at += e.Key + ": "
	}
	return at + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errors holds all faults of an input in the order of their places. If there are
// more than a hundred, a last Error says how many more.
type Errors []*Error

// Error returns one line per fault.
func (e Errors) Error() string {
	list := make([]error, len(e))
	for i, fault := range e {
		list[i] = fault
	}
	return fmt.Sprint(errors.Join(list...))
}

// A wrong tells a fault and, if Parse knows it, what to write instead.
type wrong struct {
	text string
	err  error // a *policy.FieldError, a *json.SyntaxError, or nil
}

func (w *wrong) Error() string { return w.text }
func (w *wrong) Unwrap() error { return w.err }

// A document is the input and the faults found in it.
type document struct {
	data   []byte
	faults Errors // at most maxFaults
	more   int    // faults beyond that
}

// fault notes a fault of the value n.
func (d *document) fault(n *node, reason string, args ...any) {
	d.note(n.pos, n, nil, reason, args...)
}

// faultKey notes a fault of the key of n.
func (d *document) faultKey(n *node, reason string, args ...any) {
	d.note(n.keyPos, n, nil, reason, args...)
}

// note notes a fault at an offset. n is nil if the fault is about the input as a
// whole. The work for a fault beyond maxFaults must stay small, because an input
// of 1 MiB has room for many.
func (d *document) note(pos int, n *node, err error, reason string, args ...any) {
	if len(d.faults) == maxFaults {
		d.more++
		return
	}
	before := d.data[:min(pos, len(d.data))]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	fault := &Error{
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(line) + 1,
		Err:    &wrong{fmt.Sprintf(reason, args...), err},
	}
	if n != nil {
		fault.Key = n.path()
	}
	d.faults = append(d.faults, fault)
}

// count returns the number of faults so far.
func (d *document) count() int { return len(d.faults) + d.more }

// err returns the faults in the order of their places, or nil.
func (d *document) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(d.faults, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if d.more > 0 {
		last := d.faults[len(d.faults)-1]
		d.faults = append(d.faults, &Error{
			Line: last.Line, Column: last.Column, Err: fmt.Errorf("there are %d more faults", d.more),
		})
	}
	return d.faults
}
