// Package chain makes one function of several that are asked in turn. A chain can be made longer, and no function is in it twice.
package chain

import (
	"reflect"
	"slices"
	"time"
	"unsafe"

	"github.com/aplomb-go/aplomb/classify"
)

// Classify returns a function that asks first, and then next if first knows no class. Either may be nil.
// Nothing is asked after [classify.Default], which always knows a class.
func Classify(first, next classify.Func) classify.Func {
	return classifierOf(join(Classifiers(first), Classifiers(next), classify.Default))
}

// WithoutDefault returns f without [classify.Default], and nil if nothing else is in it.
func WithoutDefault(f classify.Func) classify.Func {
	isDefault := func(f classify.Func) bool { return SameCode(f, classify.Default) }
	return classifierOf(slices.DeleteFunc(slices.Clone(Classifiers(f)), isDefault))
}

// RetryAfter returns a function that asks first, and then next if first knows no wait. Either may be nil.
// Nothing is asked after [classify.RetryAfter].
func RetryAfter(first, next classify.RetryAfterFunc) classify.RetryAfterFunc {
	all := join(Readers(first), Readers(next), classify.RetryAfter)
	return only(all, readers(all).ask)
}

// Classifiers returns the functions that f asks.
func Classifiers(f classify.Func) []classify.Func {
	return partsOf(f, classifiers(nil).ask, func(q error) { f(classify.Outcome{Err: q}) })
}

// Readers returns the functions that f asks.
func Readers(f classify.RetryAfterFunc) []classify.RetryAfterFunc {
	return partsOf(f, readers(nil).ask, func(q error) { f(classify.Outcome{Err: q}) })
}

func classifierOf(all []classify.Func) classify.Func { return only(all, classifiers(all).ask) }

// only returns nil if there are no functions, a single function itself, and ask for more than one.
func only[F any](all []F, ask F) (none F) {
	switch len(all) {
	case 0:
		return none
	case 1:
		return all[0]
	}
	return ask
}

// A question asks a chain for its functions. It is the error of an outcome, which only chains get.
type question[F any] struct{ all []F }

func (*question[F]) Error() string { return "of which functions is the chain made?" }

type classifiers []classify.Func

func (all classifiers) ask(o classify.Outcome) classify.Class {
	if q, ok := o.Err.(*question[classify.Func]); ok {
		q.all, all = all, nil // the functions are not asked
	}
	for _, f := range all {
		if c := f(o); c != classify.Unknown {
			return c
		}
	}
	return classify.Unknown
}

type readers []classify.RetryAfterFunc

func (all readers) ask(o classify.Outcome) (time.Duration, bool) {
	if q, ok := o.Err.(*question[classify.RetryAfterFunc]); ok {
		q.all, all = all, nil
	}
	for _, f := range all {
		if wait, ok := f(o); ok {
			return wait, true
		}
	}
	return 0, false
}

// partsOf returns the functions of f, or f alone if it is no chain. All chains have the code of the parameter one.
func partsOf[F any](f, one F, ask func(error)) []F {
	switch {
	case reflect.ValueOf(f).IsNil():
		return nil
	case SameCode(f, one):
		var q question[F]
		ask(&q)
		return q.all
	}
	return []F{f}
}

// join returns the functions of both lists without those behind end. A function that is in both
// lists keeps its first place.
func join[F any](first, next []F, end F) (all []F) {
	for _, f := range slices.Concat(first, next) {
		if slices.ContainsFunc(all, func(g F) bool { return isSame(f, g) }) {
			continue
		}
		if all = append(all, f); SameCode(f, end) {
			break
		}
	}
	return all
}

// SameCode reports whether two functions without captured variables are the same.
func SameCode[F any](a, b F) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// isSame reports whether two functions are the same, with the same captured variables. Package reflect compares
// only their code. A variable of a function type is a pointer to the code and the captured variables.
func isSame[F any](a, b F) bool {
	return *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b))
}

// FirstRetryAfter asks the given functions in turn and returns the first wait. Nil functions are
// skipped. A rule takes it for a single function.
func FirstRetryAfter(funcs ...classify.RetryAfterFunc) classify.RetryAfterFunc {
	all := readers(slices.DeleteFunc(slices.Clone(funcs), func(f classify.RetryAfterFunc) bool { return f == nil }))
	return func(o classify.Outcome) (time.Duration, bool) { return all.ask(o) }
}
