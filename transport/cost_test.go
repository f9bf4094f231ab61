package transport

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// costSettings are the settings whose cost is measured and pinned.
func costSettings() map[string]policy.Rule {
	return map[string]policy.Rule{
		"default": {},
		"functions": {
			Classify:   func(o classify.Outcome) classify.Verdict { return classify.Refusals(o) },
			Hint:       func(o classify.Outcome) (time.Duration, bool) { return classify.DefaultHint(o) },
			Idempotent: func(r *http.Request) bool { return classify.Idempotent(r) },
			MaxElapsed: time.Minute,
		},
		"API": policy.API(),
		"everything": {
			AttemptTimeout: 10 * time.Second,
			Stall:          policy.Stall{Timeout: 30 * time.Second, MinBytesPerSecond: 1 << 10},
			MaxElapsed:     time.Minute,
			Classify:       classify.Refusals,
			Upload:         policy.Upload{Memory: 16 << 20},
			AttemptHeader:  "X-Attempt",
			Rate:           policy.Rate{PerSecond: 1e6, Burst: 1e6, Mode: policy.RateAdaptive},
			Cooldown:       policy.On,
			Pacing:         policy.On,
			Gate:           policy.Gate{Mode: policy.GateWait},
		},
	}
}

var costOrder = []string{"default", "functions", "API", "everything"}

// failing answers n times with 503 and then once with 200, and so on.
type failing struct{ n, sent int }

func (f *failing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	f.sent++
	if f.sent%(f.n+1) == 0 {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	}
	return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("later")), ContentLength: 5, Request: req}, nil
}

func costOf(t testing.TB, setting string, failures int) *Transport {
	rule := costSettings()[setting]
	rule.Backoff = backoff.Constant(0)
	rule.Budget = policy.Budget{Burst: policy.Off}
	return mustNew(t, Config{Base: &failing{n: failures}, Rule: rule})
}

func BenchmarkCost(b *testing.B) {
	for _, failures := range []int{0, 2} {
		kind := map[int]string{0: "first", 2: "two failures"}[failures]
		base := &failing{n: failures}
		b.Run(kind+"/floor", func(b *testing.B) {
			req := getRequest(b, "https://api.example.com/v1/things")
			b.ReportAllocs()
			for b.Loop() {
				for range failures + 1 {
					resp, _ := base.RoundTrip(req)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
		for _, setting := range costOrder {
			b.Run(kind+"/"+setting, func(b *testing.B) {
				tr := costOf(b, setting, failures)
				req := getRequest(b, "https://api.example.com/v1/things")
				b.ReportAllocs()
				for b.Loop() {
					resp, _ := tr.RoundTrip(req)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		}
	}
}
