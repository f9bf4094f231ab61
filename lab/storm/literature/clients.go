// The clients of aplomb, and what the clients of the authors share.

package literature

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// gateOn is the name of the client that has the gate.
const gateOn = "aplomb, one Transport, gate on"

// ours returns the clients of aplomb with the model's timeouts.
func (m *Model) ours() []Arm {
	arm := func(name string, shared bool, rule policy.Rule) Arm {
		rule = m.Rule.Or(rule)
		return Arm{Name: name, Shared: shared, ours: true, New: func(_ *Run, server http.RoundTripper) http.RoundTripper {
			return transport.MustNew(transport.Config{
				Base: server,
				Rule: rule,
				Lane: func(string) http.RoundTripper { return server },
			})
		}}
	}
	return []Arm{
		arm("aplomb, default", false, policy.Rule{}),
		arm("aplomb, API", false, policy.API()),
		arm("aplomb, Service", false, policy.Service()),
		arm(gateOn, true, policy.Rule{Gate: policy.Gate{Mode: policy.GateWait}}),
	}
}

// arms returns all clients, the authors' first.
func (m *Model) arms() []Arm { return append(m.Arms[:len(m.Arms):len(m.Arms)], m.ours()...) }

// RoundTripper is a function that is an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Plain is a client without retries.
func Plain(_ *Run, server http.RoundTripper) http.RoundTripper { return server }

// Reply is a response with this status after the given time, or the error of the request's
// context if that ends before.
func Reply(req *http.Request, after time.Duration, status int) (*http.Response, error) {
	if err := Pause(req, after); err != nil {
		return nil, err
	}
	return Response(req, status), nil
}

// Response is an empty response.
func Response(req *http.Request, status int) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}
}

// Pause waits, or returns the error of the request's context if that ends before.
func Pause(req *http.Request, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}
