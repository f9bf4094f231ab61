// Package policy answers the question what should be done about a failed
// attempt: how long to wait, how often to try, when to stop. It holds plain
// values without state, which can be copied, compared by eye, merged, logged
// and loaded from a file; state and clocks are package transport's.
//
// The files, in the order in which a reader wants them:
//
//	rule.go        Rule, the unit of configuration; Or and Validate
//	limits.go      Budget, Gate, Hedge and the switches of a Rule
//	enum.go        the modes as text
//	backoff.go     the Backoff interface and what all formulas share
//	google.go      min(2^n s + random_ms, maximum_backoff)
//	jitter.go      full, equal and decorrelated jitter
//	randomized.go  Interval × Multiplier^n × (1 ± RandomizationFactor)
//	normal.go      MinDelay, Factor, MaxDelay and normally distributed jitter
//	exponential.go time × rate up to max
//	constant.go    always the same wait
//	adapter.go     from and to values with a NextBackOff method
//	bounds.go      lowest, highest, mean and cumulated waits, for tables and plots
//	preset.go      rules for services that answer in 30, 100 and 300 ms
//	load.go        rules from JSON
//	jsontree.go    where each JSON value stands, for faults with line and column
//	loadvalue.go   one JSON value into one field
//	loadbackoff.go, loadclassify.go  back-offs and classifiers from JSON
//	do.go          the same limits for what is not HTTP
package policy
