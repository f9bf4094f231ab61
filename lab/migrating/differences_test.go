// Options that look alike and differ, measured in virtual time.

package migrating

import (
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func retryable(set func(*retryablehttp.Client)) func(*testing.T, http.RoundTripper) program {
	return made(ofClient, func(base http.RoundTripper) *http.Client {
		client := retryablehttp.NewClient()
		client.HTTPClient.Transport = base
		client.Logger = nil
		client.RetryMax = 4
		set(client)
		return client.StandardClient()
	})
}

func aplomb(rule policy.Rule, set func(*http.Client)) func(*testing.T, http.RoundTripper) program {
	return made(ofClient, func(base http.RoundTripper) *http.Client {
		client := &http.Client{Transport: transport.MustNew(transport.Config{Base: base, Rule: rule})}
		if set != nil {
			set(client)
		}
		return client
	})
}

// An ErrorHandler and the RoundTripper in its place make the same errors.
func TestHandler(t *testing.T) {
	for name, plan := range map[string]faults.Plan{
		"responses": faults.Always(faults.Status(503)),
		"errors":    faults.Always(faults.Refuse()),
	} {
		t.Run(name, func(t *testing.T) {
			var texts []string
			for _, build := range []func(*testing.T, http.RoundTripper) program{
				retryable(func(c *retryablehttp.Client) { c.ErrorHandler = handlerBefore }),
				aplomb(policy.Rule{Attempts: 5}, func(c *http.Client) { c.Transport = handled{c.Transport} }),
			} {
				measure(t, build, plan, func(t *testing.T, send program, server *faults.Transport) {
					r := send(t.Context(), http.MethodGet, url, nil)
					if r.err == nil || len(server.Records()) != 5 {
						t.Fatalf("%d attempts, %+v", len(server.Records()), r)
					}
					texts = append(texts, r.err.Error())
				})
			}
			for _, text := range texts {
				assert.Contains(t, text, "the shop is down after 5 attempts: ")
			}
		})
	}
}

// HTTPClient.Timeout of retryablehttp is for an attempt, the Timeout around aplomb for all.
func TestTimeoutOfTheClient(t *testing.T) {
	for _, row := range []struct {
		name     string
		build    func(*testing.T, http.RoundTripper) program
		attempts int
		fails    bool
	}{
		{"HTTPClient.Timeout", retryable(func(c *retryablehttp.Client) { c.HTTPClient.Timeout = time.Second }), 2, false},
		{"Timeout of http.Client", aplomb(policy.Rule{}, func(c *http.Client) { c.Timeout = time.Second }), 1, true},
		{"AttemptTimeout", aplomb(policy.Rule{AttemptTimeout: time.Second}, nil), 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			measure(t, row.build, faults.Script(faults.Hang(), faults.Status(200)), func(t *testing.T, send program, server *faults.Transport) {
				r := send(t.Context(), http.MethodGet, url, nil)
				if got := len(server.Records()); got != row.attempts || (r.err != nil) != row.fails {
					t.Errorf("%d attempts, %+v", got, r)
				}
			})
		})
	}
}

// A Backoff of retryablehttp that looks at the response can make a wait shorter. A Hint
// can not, unless the back-off is zero, and after a 429 or 503 it holds other requests.
func TestHintIsNoBackoff(t *testing.T) {
	const wait = 2 * time.Second
	hint := func(classify.Outcome) (time.Duration, bool) { return wait, true }
	for _, row := range []struct {
		name        string
		build       func(*testing.T, http.RoundTripper) program
		least, most time.Duration // until the retry
		holds       bool
	}{
		{"Backoff of retryablehttp", retryable(func(c *retryablehttp.Client) {
			c.Backoff = func(time.Duration, time.Duration, int, *http.Response) time.Duration { return wait }
		}), wait, wait, false},
		{"Hint that is shorter than the back-off", aplomb(policy.Rule{Hint: hint, Backoff: backoff.Constant(10 * time.Second)}, nil), 10 * time.Second, 10 * time.Second, true},
		{"Hint without a back-off", aplomb(policy.Rule{Hint: hint, Backoff: backoff.Constant(0)}, nil), wait, wait + time.Second, true},
		{"Hint without a cooldown", aplomb(policy.Rule{Hint: hint, Backoff: backoff.Constant(0), Cooldown: policy.Off}, nil), wait, wait + time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := faults.Script(faults.Status(503), faults.Pass())
			measure(t, row.build, plan, func(t *testing.T, send program, server *faults.Transport) {
				start := time.Now()
				send(t.Context(), http.MethodGet, url, nil)
				if took := server.Records()[1].Time.Sub(start); took < row.least || took > row.most {
					t.Errorf("came back after %v", took)
				}
			})
			plan = faults.Script(faults.Status(503), faults.Pass(), faults.Pass())
			measure(t, row.build, plan, func(t *testing.T, send program, server *faults.Transport) {
				start := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					send(t.Context(), http.MethodGet, url, nil)
				}()
				time.Sleep(time.Second)
				send(t.Context(), http.MethodHead, url, nil)
				<-done
				for _, r := range server.Records() {
					if r.Method == http.MethodHead && (r.Time.Sub(start) > time.Second) != row.holds {
						t.Errorf("the other request was sent after %v", r.Time.Sub(start))
					}
				}
			})
		})
	}
}
