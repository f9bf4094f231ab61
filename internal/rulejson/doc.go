// Package rulejson reads rules from JSON. Package rulefile, which documents the contents of a file, is
// over it, and the command aplomb rules explains a [File] with it.
//
// The files:
//
//	load.go       Parse, and the fields of rules
//	value.go      numbers, durations, sizes, texts, modes and names
//	profile.go    rules over profiles
//	functions.go  back-offs, classifiers, waits, tests for methods, throttle keys and costs
//	tree.go       JSON values and their places
//	file.go       File, for tools that explain a file
//	settings.go   Settings: each value of a rule, and its source
//	error.go      Error and Errors
package rulejson
