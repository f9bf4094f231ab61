// Package retry calls a function that sends no HTTP request until it succeeds, by the same rules as
// package transport.
//
// Use it for operations that a Transport does not see, such as connecting to a database or calling
// an SDK with a protocol of its own:
//
//	err := retry.Do(ctx, policy.Rule{MaxAttempts: 5}, isBusy, func(ctx context.Context) error {
//		return db.PingContext(ctx)
//	})
//
// [Do] may call the function several times. So the function has to be idempotent, or its error has
// to show that nothing was done. A function that sends HTTP requests needs no Do around it, because
// a Transport retries them, and knows more of them.
//
// A [policy.Rule] says how often and how long. Do uses these fields of it. If one is zero,
// [policy.Defaults] applies.
//
//   - MaxAttempts is the highest number of calls.
//   - Backoff computes the waits between the calls.
//   - MaxElapsedTime bounds the time from the first call to the start of the last.
//   - AttemptTimeout bounds the context of each call. That context ends when the call returns, so
//     do not use it after that. Its context.Cause is [policy.ErrAttemptTimeout].
//
// All other fields are about HTTP or about the state of hosts, and are ignored.
//
// The files:
//
//	retry.go    Do, DoValue and Permanent
//	error.go    LimitError
package retry
