// Package policy has rules for retrying HTTP requests: how long to wait, how often to
// retry, and when to stop. A [Rule] is a plain value without state, so it can be copied,
// compared by eye, laid over another rule, and logged. Package transport has the state
// and the clocks.
//
// Package policy/backoff has formulas for the waits. Package policy/profile has rules
// for common kinds of services and well-known providers. Package policy/rulefile reads rules from JSON.
//
// Package retry puts the same limits around a function that does not send HTTP requests.
//
// The files:
//
//	rule.go        Rule, with Or, and the errors of its timeouts
//	validate.go    Validate and FieldError
//	limits.go      Off, Switch, and the groups of a Rule's fields
//	key.go         UUIDKey, KeyByCredentials and KeyByRoute
package policy
