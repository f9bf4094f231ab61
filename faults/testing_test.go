// The test that docs/testing.md shows. Package internal/snippets compares the two.

package faults_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

func TestWaitsAsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := faults.New(nil, faults.Script(
			faults.ConnRefused(),
			faults.Status(429).RetryAfter(time.Minute),
			faults.Status(200).Body("back"),
		))
		client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Hosts: map[string]policy.Rule{
			"api.test":    profile.API(),
			"search.test": {Hedge: policy.Hedge{Delay: 50 * time.Millisecond}}, // a second attempt beside a slow one
		}})}
		start := time.Now()
		resp, err := client.Get("http://api.test/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if waited := time.Since(start); waited < time.Minute {
			t.Errorf("came back after %v", waited)
		}
		if n := len(base.Records()); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}
