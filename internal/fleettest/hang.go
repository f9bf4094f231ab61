package fleettest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/internal/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// tooLong is far less than 10 ms for each of many calls, and far more than a slow machine needs.
const (
	manyCalls = 1000
	tooLong   = 4 * time.Second
)

// Hang runs the tests that a backend should pass while its server does not answer. newFleet is as
// for [Run], and returns a second function. From its call on until the end of the test the server
// answers no member.
func Hang(t *testing.T, newFleet func(t *testing.T) (newMember func() Fleet, hang func())) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, newMember func() Fleet, hang func())
	}{
		{"nobody waits for a backend that hangs", testHang},
		{"no request fails if a backend hangs", testRequestsGoOn},
		{"a backend that hangs can be closed", testHangClose},
	} {
		t.Run(test.name, func(t *testing.T) {
			newMember, hang := newFleet(t)
			test.run(t, newMember, hang)
		})
	}
}

// tellAll tells of everything that a Transport may tell.
func tellAll(w *witness, scope uint64) {
	for _, m := range []fleetmsg.Message{
		{Kind: fleetmsg.Meet}, {Kind: fleetmsg.Hold, Scope: scope, Status: 429, Wait: time.Minute},
		{Kind: fleetmsg.Quota, Scope: scope, Amount: 1, Wait: time.Minute}, failing, {Kind: fleetmsg.Working},
		{Kind: fleetmsg.AskTokens, PerSecond: 10, Burst: 1, Amount: 1},
	} {
		w.tell(m)
	}
}

func testHang(t *testing.T, newMember func() Fleet, hang func()) {
	w := crew(t, 1, newMember)[0]
	hang()
	begin := time.Now()
	for i := range uint64(manyCalls) {
		tellAll(w, i)
		if spent := time.Since(begin); spent > tooLong {
			t.Fatalf("%d holds and the like are told in %v", i+1, spent)
		}
	}
}

func testRequestsGoOn(t *testing.T, newMember func() Fleet, hang func()) {
	f := newMember()
	refusing := false
	tr, err := transport.New(transport.Config{Fleet: f, Base: roundTripper(func(*http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
		if refusing = !refusing; refusing {
			resp.StatusCode = http.StatusTooManyRequests
			resp.Header.Set("Retry-After", "1")
		}
		return resp, nil
	}), Rule: policy.Rule{
		MaxAttempts: 1, ShareRetryAfter: policy.Off, Concurrency: policy.Concurrency{Enabled: policy.On, Max: 100}, QuotaPacing: policy.On,
		RateLimit: policy.RateLimit{PerSecond: 1e6, Burst: 1000},
	}})
	if err != nil {
		t.Fatal(err)
	}
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), tooLong)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
		if err != nil {
			return err
		}
		begin := time.Now()
		resp, err := tr.RoundTrip(req)
		if spent := time.Since(begin); err == nil && spent > tooLong {
			err = fmt.Errorf("it takes %v", spent)
		}
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	hang()
	for i := range 100 {
		if err := send(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func testHangClose(t *testing.T, newMember func() Fleet, hang func()) {
	w := crew(t, 1, newMember)[0]
	hang()
	tellAll(w, 1)
	begin := time.Now()
	_ = w.fleet.Close() // perhaps with an error, because nobody has heard of it
	if spent := time.Since(begin); spent > tooLong {
		t.Errorf("Close takes %v", spent)
	}
}
