// Package retry makes a request whose first response is a 503, for TestFunctionsOfARetry.
package retry

import (
	"net/http"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A base answers with a 503 first, and then with 200.
type base struct{ sent int }

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{}, Body: http.NoBody, Request: req}
	if b.sent++; b.sent == 1 {
		resp.StatusCode = http.StatusServiceUnavailable
	}
	return resp, nil
}

func made(t *testing.T) (*transport.Transport, *base) {
	b := new(base)
	tr, err := transport.New(transport.Config{Base: b, Rule: policy.Rule{Backoff: backoff.Constant(time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	return tr, b
}

func TestNothing(t *testing.T) { made(t) }

func TestRetry(t *testing.T) {
	tr, b := made(t)
	req, err := http.NewRequest(http.MethodGet, "http://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK || b.sent != 2 {
		t.Fatalf("%v, %v after %d attempts", resp, err, b.sent)
	}
	_ = resp.Body.Close()
}
