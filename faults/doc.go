// Package faults plays the faults of networks and HTTP servers, to test how a program
// retries and gives up. A [Transport] is an http.RoundTripper that takes the place of the
// network, or stands in front of a real transport:
//
//	base := faults.New(nil, faults.Script(
//		faults.Status(503).RetryAfter(2*time.Second),
//		faults.ConnReset(),
//		faults.Pass(),
//	))
//	rt, err := transport.New(transport.Config{Base: base, Rule: rule})
//
// A [Plan] chooses the [Step] for each request. [Script] plays steps in the order
// of arrival, and [Random] draws them with a rate and a seed. A function of the
// program can choose as well, for instance by host or by method.
//
// # In tests
//
// Without a base, requests that pass get 200 from the Transport itself. With
// [Handler] as the base, an http.Handler serves them without a connection. Nothing
// blocks on the network then. So waits, timeouts and stalls take no time under
// testing/synctest, and the test can check how long they were:
//
//	func TestWaitsAsTold(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			base := faults.New(nil, faults.Script(faults.Status(429).RetryAfter(time.Minute), faults.Pass()))
//			client := NewClient(base) // of the program, with its rules
//			start := time.Now()
//			if err := client.Refresh(t.Context()); err != nil {
//				t.Fatal(err)
//			}
//			if waited := time.Since(start); waited < time.Minute {
//				t.Errorf("came back after %v", waited)
//			}
//		})
//	}
//
// [Transport.Records] has the step and the time of each request.
//
// A Transport has no connections. To let the connections of a host die without a word,
// let one Transport stand for the old connections, and another for new ones:
//
//	rt, err := transport.New(transport.Config{
//		Base: faults.New(nil, faults.Script(faults.Pass(), faults.Hang())),
//		NewPool: func(host string) http.RoundTripper { return faults.New(nil, nil) },
//		Rule: policy.Rule{AttemptTimeout: time.Second},
//	})
//
// # In staging
//
// With a real transport as the base, most requests pass, and a share of them meets
// faults:
//
//	faults.New(http.DefaultTransport, faults.Random(1,
//		faults.Chance{Rate: 0.01, Step: faults.ConnReset()},
//		faults.Chance{Rate: 0.02, Step: faults.Status(503).RetryAfter(time.Second)},
//		faults.Chance{Rate: 0.01, Step: faults.Pass().CutAt(10_000)},
//	))
//
// The errors are those of net/http, so package classify and other code that looks
// at errors cannot tell them from real ones.
//
// The files:
//
//	step.go       Step, which says what happens to a request
//	plan.go       Plan, which chooses the steps
//	transport.go  Transport, which plays them
//	body.go       bodies of responses that are cut, stand still or are slow
//	handler.go    Handler, which serves requests without a connection
package faults
