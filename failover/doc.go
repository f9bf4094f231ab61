// Package failover has an http.RoundTripper over several endpoints that serve the same, such as regions or
// mirrors. A request goes to the first endpoint, and to the next if that fails. If an endpoint is down,
// requests go to the next at once.
//
//	base := transport.MustNew(transport.Config{Rule: policy.Rule{MaxAttempts: 2}})
//	t, err := failover.New(
//		failover.Endpoint{URL: "https://us.example.com", Transport: base},
//		failover.Endpoint{URL: "https://eu.example.com/api", Transport: base, Allow: []string{"page"}},
//	)
//	client := &http.Client{Transport: t}
//	resp, err := client.Get("https://us.example.com/items?page=2")
//
// The caller uses the URL of the first endpoint. What follows it in the URL of a request follows the URL
// of each other endpoint. So the request above goes to https://eu.example.com/api/items?page=2 if the first
// endpoint fails. A request for another URL goes to the RoundTripper of the first endpoint unchanged. The
// RoundTripper of an endpoint is usually a [transport.Transport]. It retries before the request goes on, so
// it needs few attempts.
//
// # When a request goes on
//
// A request goes to the next endpoint if its endpoint failed and [transport.MayGoElsewhere] allows it.
// Either nobody has acted on the request, or it may be acted on twice. Its body is none or made by GetBody,
// which is called when the last endpoint has closed its own. Nothing is kept in memory. The body of a
// response stays with its endpoint.
//
// A request with a query or with a header field that may be meant for one endpoint alone stays with the
// first, unless [Endpoint.Allow] of the next names it. A secret within the path or the body goes along. A
// CONNECT stays, and so does a request whose path has "/.." or a control character. An https request never
// goes to an http endpoint.
//
// # When an endpoint is down
//
// An endpoint is down when five requests in a row had no response from it, or a 502, 503 or 504. If the last of
// them timed out or was canceled, it must also have answered nobody for a second, or for its Timeout if that is
// shorter. A body that could not be read does not count, and neither does a request that is no HTTP. The
// requests that may go elsewhere then do so, and one at a time finds out whether the endpoint is back. The
// first of them goes 1 s later, or as much later as the last request took, and so does each further one. A
// request that could not go on after a silence waits 9 s longer, because others risk less. One response with
// another status ends the outage. [Endpoint.Notify] hears of its beginning and its end. While all endpoints are
// down, requests go to them as if none were.
//
// # What the caller gets
//
// If no endpoint answers, the caller gets the outcome of the first that was asked. The body of its response
// stays open until then. It is the same if another endpoint than the first answers 401, 403, 404, 405, 410
// or 501, because it may not have the resource, the client or the method. If such a response comes while
// the first is down, the caller gets an error that says so. But an endpoint that may have acted on a request
// that must not be acted on twice has the last word.
//
// A response of another endpoint than the first has the URL that it comes from in Response.Request. Its
// Location is absolute, and if its origin is another one, it has no Set-Cookie. [transport.HistoryOf] and
// [transport.Explain] tell of the attempts at the endpoint whose outcome it is.
package failover
