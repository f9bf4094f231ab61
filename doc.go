// Package aplomb is the front page of a module whose package transport has an
// http.RoundTripper. It retries a request only when that is safe, waits as long as the server
// asks, and bounds the load that retries add. It continues cut downloads, and says why it gave
// up.
//
// Most programs need two lines:
//
//	client := &http.Client{Transport: transport.Default()}
//	fmt.Println(transport.Explain(resp, err)) // after a failure: each attempt, and why there was no other
//
// Default sends requests as http.DefaultTransport does. transport.Wrap does so over another
// base, and transport.New takes a Config with rules. Make one Transport for the whole program.
//
// # Where to go on
//
//   - [github.com/aplomb-go/aplomb/transport] has the Transport, and what it tells: hooks,
//     history, log and state.
//   - [github.com/aplomb-go/aplomb/policy] has the settings. Package policy/profile has ready
//     ones for well-known APIs, policy/backoff the formulas for waits, and policy/rulefile
//     reads all of them from a file.
//   - [github.com/aplomb-go/aplomb/retry] retries a function that sends no HTTP request.
//   - [github.com/aplomb-go/aplomb/classify] says what a response or an error means for a retry.
//   - [github.com/aplomb-go/aplomb/faults] plays faults in tests.
//   - [github.com/aplomb-go/aplomb/failover] sends requests to another region or mirror.
//   - [github.com/aplomb-go/aplomb/debug] has a page that shows a Transport.
//
// Modules of their own are github.com/aplomb-go/aplomb/otel for OpenTelemetry,
// github.com/aplomb-go/aplomb/fleet for many processes that act like one client, and
// github.com/aplomb-go/aplomb/cmd with the tool aplomb.
//
// README.md begins with a program that runs, and the folder docs has pages by task.
package aplomb
