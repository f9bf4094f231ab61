// The experiments behind the table of features in README.md.

package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
)

// bubble returns what f finds in virtual time.
func bubble[T any](t *testing.T, f func(*testing.T) T) (found T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { found = f(t) })
	return found
}

// in runs a probe over a server that plays a plan, in virtual time.
func in[T any](t *testing.T, l *library, plan faults.Plan, delay time.Duration, use func(*testing.T, doer, *faults.Transport) T) T {
	t.Helper()
	return bubble(t, func(t *testing.T) T {
		server := faults.New(nil, plan)
		return use(t, l.newClient(terms{base: server, delay: delay}), server)
	})
}

// send sends a request, and returns the result.
func send(ctx context.Context, client doer, method, body string) outcome {
	return exchange{method: method, body: body}.ask(ctx, client, "http://shop.example.com/"+strings.ToLower(method))
}

func asked(ok bool) string {
	if ok {
		return yes
	}
	return no
}

func sent(t *testing.T, l *library, method, body string, step faults.Step) int {
	return in(t, l, faults.Script(step), shortDelay, func(t *testing.T, client doer, server *faults.Transport) int {
		send(t.Context(), client, method, body)
		return len(server.Records())
	})
}

func sendsAgain(t *testing.T, l *library) string {
	return asked(sent(t, l, http.MethodGet, "", faults.Status(503)) > 1)
}

func sendsOnce(t *testing.T, l *library) string {
	return asked(sent(t, l, http.MethodPost, "order", faults.Status(503)) == 1 && sent(t, l, http.MethodPost, "order", faults.ConnReset()) == 1)
}

func obeys(t *testing.T, l *library) string {
	earliest := time.Hour
	for range 10 { // because of jitter
		earliest = min(earliest, in(t, l, faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass()), shortDelay, func(t *testing.T, client doer, server *faults.Transport) time.Duration {
			start := time.Now()
			send(t.Context(), client, http.MethodGet, "")
			return server.Records()[1].Time.Sub(start)
		}))
	}
	return asked(earliest >= 10*time.Second)
}

func holdsOthers(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass()), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		return waits(t, client, client, server)
	})
}

// waits sends a GET that is told to wait for 10 s, and a HEAD by other a second later.
func waits(t *testing.T, client, other doer, server *faults.Transport) (cell string) {
	start := time.Now()
	var both sync.WaitGroup
	both.Go(func() { send(t.Context(), client, http.MethodGet, "") })
	both.Go(func() {
		time.Sleep(time.Second)
		send(t.Context(), other, http.MethodHead, "")
	})
	both.Wait()
	for _, r := range server.Records() {
		if r.Method == http.MethodHead {
			cell = asked(r.Time.Sub(start) >= 10*time.Second)
		}
	}
	return cell
}

// foresees is about a wait that the server asks for, or otherwise the client's own.
func foresees(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503).RetryAfter(30*time.Second)), 30*time.Second, func(t *testing.T, client doer, _ *faults.Transport) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		send(ctx, client, http.MethodGet, "")
		return asked(time.Since(start) < time.Second)
	})
}

func endsWaits(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503)), 30*time.Second, func(t *testing.T, client doer, _ *faults.Transport) string {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		send(ctx, client, http.MethodGet, "")
		return asked(time.Since(start) <= time.Second)
	})
}

func returnsTheLast(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503).Body("sorry")), shortDelay, func(t *testing.T, client doer, _ *faults.Transport) string {
		o := send(t.Context(), client, http.MethodGet, "")
		if resp := l.carriedBy(o.err); resp != nil {
			_ = resp.Body.Close()
			return "in the error"
		}
		return asked(o.err == nil && o.read == int64(len("sorry")))
	})
}

// limitsRetries has 100 requests at once. A response takes 100 ms, because some budgets are
// for the retries that are under way.
func limitsRetries(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503).Delay(100*time.Millisecond)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		testkit.Together(100, func(int) { send(t.Context(), client, http.MethodGet, "") })
		return asked(len(server.Records()) < 200)
	})
}

// continues is about a download that is whole if it is asked for a second time.
func continues(etag string) func(*testing.T, *library) string {
	return func(t *testing.T, l *library) string {
		return bubble(t, func(t *testing.T) string {
			whole := testserver.Content(testserver.Pattern(1<<20), etag)
			server := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, whole.CutAt(256<<10, testserver.Close), whole)
			o := exchange{}.ask(t.Context(), l.newClient(terms{base: server.Transport(), delay: shortDelay}), server.URL)
			log := server.Log()
			switch {
			case o.err != nil || o.readErr != nil || o.read != 1<<20:
				return no
			case log[1].Header.Get("Range") == "" && etag != "":
				return "starts again"
			}
			return yes
		})
	}
}

func streams(t *testing.T, l *library) string {
	ahead := func(from kind) bool {
		u, err := upload(l, 1<<20, from)
		assert.NoError(t, err)
		return u.before > 0
	}
	switch {
	case !ahead(fromPipe):
		return yes
	case !ahead(fromFile):
		return "if it can seek"
	}
	return no
}

func upgrades(t *testing.T, l *library) string {
	return bubble(t, func(t *testing.T) string {
		server := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, testserver.SwitchProtocols("echo"))
		e := exchange{header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}}
		defer time.AfterFunc(time.Minute, server.Close).Stop() // some read until the end of the connection
		o := e.ask(t.Context(), l.newClient(terms{base: server.Transport(), delay: shortDelay}), server.URL)
		if o.err != nil || o.resp == nil {
			return no
		}
		_, writable := o.resp.Body.(io.Writer)
		return asked(writable)
	})
}

// bounds is about an attempt without a response.
func bounds(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Hang(), faults.Status(200)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		o := send(ctx, client, http.MethodGet, "")
		return asked(o.err == nil && o.resp.StatusCode == 200 && len(server.Records()) == 2)
	})
}

func hedges(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(200).Delay(10*time.Second), faults.Status(200)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		o := send(t.Context(), client, http.MethodGet, "")
		return asked(o.err == nil && o.took < 5*time.Second && len(server.Records()) == 2)
	})
}

// limitsRate sends 30 requests at once. At most 10 per second are allowed, in bursts of
// at most 10.
func limitsRate(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(200)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		start := time.Now()
		testkit.Together(30, func(int) { send(t.Context(), client, http.MethodGet, "") })
		n := 0
		for _, r := range server.Records() {
			if r.Time.Sub(start) < 500*time.Millisecond {
				n++
			}
		}
		return asked(n <= 15)
	})
}

// breaks sends a request every 10 ms for 10 s to a host that is down.
func breaks(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for ctx.Err() == nil {
			all.Go(func() { send(ctx, client, http.MethodGet, "") })
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		return asked(len(server.Records()) < 500)
	})
}

// shares has two clients, as two processes have. Both know the host. Then one is told to
// wait.
func shares(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(200), faults.Status(429).RetryAfter(10*time.Second), faults.Status(200)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		other := l.newClient(terms{base: server, delay: shortDelay})
		send(t.Context(), other, http.MethodGet, "")
		return waits(t, client, other, server)
	})
}

// knowsProviders names the providers whose wait is obeyed although it is not in
// Retry-After.
func knowsProviders(t *testing.T, l *library) string {
	providers := []struct {
		name, host string
		answer     func() faults.Step
		wait       time.Duration
	}{
		{"Azure's", "azure.example.com", func() faults.Step { return faults.Status(503).Header("x-ms-retry-after-ms", "9500") }, 9500 * time.Millisecond},
		{"OpenAI's", "openai.example.com", func() faults.Step { return faults.Status(429).Header("retry-after-ms", "9500") }, 9500 * time.Millisecond},
		{"GitHub's", "github.example.com", func() faults.Step {
			reset := strconv.FormatInt(time.Now().Add(30*time.Second).Unix(), 10)
			return faults.Status(403).Header("x-github-request-id", "C0FF:EE").Header("x-ratelimit-remaining", "0").Header("x-ratelimit-reset", reset)
		}, 29 * time.Second},
	}
	var known []string
	for _, p := range providers {
		synctest.Test(t, func(t *testing.T) {
			server := faults.New(nil, faults.Script(p.answer(), faults.Status(200)))
			start := time.Now()
			exchange{}.ask(t.Context(), l.newClient(terms{base: server, delay: shortDelay}), "http://"+p.host+"/")
			if log := server.Records(); len(log) == 2 && log[1].Time.Sub(start) >= p.wait {
				known = append(known, p.name)
			}
		})
	}
	switch len(known) {
	case 0:
		return no
	case len(providers):
		return yes
	}
	return strings.Join(known, " and ")
}

// distinguishesHosts has a client that should retry at one host and not at another.
func distinguishesHosts(t *testing.T, l *library) string {
	return distinguishes(t, l, "http://"+unretried+"/")
}

// distinguishesPaths has a client that should retry at one path of a host and not at another.
func distinguishesPaths(t *testing.T, l *library) string {
	return distinguishes(t, l, "http://"+retried+unretriedPath)
}

func distinguishes(t *testing.T, l *library, not string) string {
	return in(t, l, faults.Script(faults.Status(503)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		exchange{}.ask(t.Context(), client, "http://"+retried+"/")
		n := len(server.Records())
		exchange{}.ask(t.Context(), client, not)
		switch {
		case n < 2 || len(server.Records()) != n+1:
			return no
		case l.name == ours[0].name:
			return yes
		}
		return "in a callback"
	})
}

const retried, unretried, unretriedPath = "good.example.com", "bad.example.com", "/bad"

// A teller is a client that says more than its result does.
type teller interface {
	doer
	reason() string
}

// saysWhy ends a request in three ways: the attempts are used up, the server asks for a
// wait that is too long, the response is final.
func saysWhy(t *testing.T, l *library) string {
	said := 0
	for _, step := range []faults.Step{faults.Status(503), faults.Status(503).RetryAfter(24 * time.Hour), faults.Status(404)} {
		if in(t, l, faults.Script(step), shortDelay, func(t *testing.T, client doer, _ *faults.Transport) bool {
			o := send(t.Context(), client, http.MethodGet, "")
			told, ok := client.(teller)
			return o.err != nil || ok && told.reason() != ""
		}) {
			said++
		}
	}
	switch {
	case said == 0:
		return no
	case said < 3:
		return "in part"
	case l.name == "azcore":
		return "in its log"
	}
	return yes
}

func fallsBack(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(503)), shortDelay, func(t *testing.T, client doer, _ *faults.Transport) string {
		o := send(t.Context(), client, http.MethodGet, "")
		return asked(o.err == nil && o.resp.StatusCode == 200)
	})
}

func caches(t *testing.T, l *library) string {
	return in(t, l, faults.Script(faults.Status(200).Header("Cache-Control", "max-age=60")), shortDelay, func(t *testing.T, client doer, server *faults.Transport) string {
		send(t.Context(), client, http.MethodGet, "")
		send(t.Context(), client, http.MethodGet, "")
		return asked(len(server.Records()) == 1)
	})
}
