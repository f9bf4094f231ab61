package literature

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/policy"
)

const (
	uploads     = 801_560
	uploadRate  = 3500.0 // uploads per second that the store takes
	uploadNodes = 64     // clients
	uploadLanes = 16     // uploads of a client at a time
)

// refusals is what a change of ScyllaDB is about, whose authors say that a backup failed because
// the store asked to slow down. How the refusals are smoothed is our choice.
func refusals() *Model {
	const before, after = "waits from 25 ms", "waits from 1 s, and a brake"
	return &Model{
		Name:   "A store that asks to slow down",
		Source: "https://github.com/scylladb/scylladb/pull/30775",
		About: "64 clients with 16 uploads at a time bring 801,560 uploads to a store that takes 3500 per second and 350 at once, in 100 ms each, and answers 503 " +
			"SlowDown beyond that, after 10 ms. It names no wait. We chose the rate and the number of clients. All clients make ten attempts, and an upload that fails then is lost. The authors' double " +
			"their waits. The first is the one before their change. The second waits at most 60 s, and sends nothing for 4 s if more than a fifth of 50 attempts, smoothed, are refused.",
		Arms: []Arm{
			{Name: before, New: patient(25*time.Millisecond, time.Hour, false)},
			{Name: after, New: patient(time.Second, time.Minute, true)},
		},
		Rule:      policy.Rule{MaxAttempts: 10},
		Settings:  []Setting{{Name: "801,560 uploads", Length: time.Hour}},
		Play:      playRefusals,
		Counted:   true,
		Published: []Published{{"801,560 uploads", before, Lost, 1}, {"801,560 uploads", after, Lost, 0}},
		Why: []Reason{
			{Arm: "aplomb, Service", Text: "Service waits 50 to 100 ms before its first retry, and gives up after 3 s, because a caller waits. Here a lost upload is followed " +
				"by the next at once. For uploads take profile.AWS or the default."},
			{Arm: limitOn, Text: "One Transport loses uploads in the first seconds. It has saved up 30 retries, and 1024 uploads begin at once. The limit does not slow them " +
				"down, because others succeed meanwhile. With a RetryBudget.Burst of 1000 and ten attempts none is lost, with the limit or without."},
		},
	}
}

func playRefusals(r *Run) {
	var mu sync.Mutex
	left := r.Part(uploads)
	tokens, at := uploadRate/10, time.Duration(0)
	allow := func() bool {
		mu.Lock()
		defer mu.Unlock()
		now := r.Now()
		tokens, at = min(uploadRate/10, tokens+(now-at).Seconds()*uploadRate), now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
	next := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	server := r.Server(func(req *http.Request) (*http.Response, error) {
		if allow() {
			return Reply(req, 50*time.Millisecond+Seconds(0.05*r.ExpFloat64()), http.StatusOK)
		}
		resp, err := Reply(req, 10*time.Millisecond, http.StatusServiceUnavailable)
		if err == nil {
			resp.Header.Set("Content-Type", "application/xml")
			resp.Body = io.NopCloser(strings.NewReader("<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"))
		}
		return resp, err
	})
	for range uploadNodes {
		client := r.Client(server)
		for range uploadLanes {
			r.Go(func() {
				for next() {
					r.Send(client, r.NewRequest(http.MethodPut))
				}
			})
		}
	}
}

// patient tries ten times. Before the next it waits base, then twice that, and so on up to most.
// If it brakes, and a fifth of its attempts are refused, nothing is sent for 4 s.
func patient(base, most time.Duration, brakes bool) func(*Run, http.RoundTripper) http.RoundTripper {
	return func(r *Run, server http.RoundTripper) http.RoundTripper {
		b := new(brake)
		braked := RoundTripper(func(req *http.Request) (*http.Response, error) {
			for d := b.frozen(r.Now()); d > 0; d = b.frozen(r.Now()) {
				time.Sleep(d)
			}
			return server.RoundTrip(req)
		})
		return tries(never, func(*Run) judge {
			return func(n int, resp *http.Response, err error) (time.Duration, bool) {
				refused := err == nil && resp.StatusCode == http.StatusServiceUnavailable
				if brakes {
					b.note(r.Now(), refused)
				}
				return min(base<<(n-1), most), refused && n < 10
			}
		})(r, braked)
	}
}

// A brake counts the refusals among 50 attempts.
type brake struct {
	mu             sync.Mutex
	until          time.Duration
	share          float64
	known          bool
	count, refused int
}

func (b *brake) frozen(now time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until - now
}

func (b *brake) note(now time.Duration, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	if refused {
		b.refused++
	}
	if b.count < 50 {
		return
	}
	share := float64(b.refused) / 50
	if b.known {
		share = (share + b.share) / 2
	}
	b.share, b.known, b.count, b.refused = share, true, 0, 0
	if share > 0.2 {
		b.until, b.known = max(b.until, now+4*time.Second), false
	}
}
