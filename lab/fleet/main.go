// Fleet shows three worker processes that share the quota of an API, first each on its own
// and then as a fleet. It starts the workers, the API and a redis-server.
//
//	go -C lab run ./fleet
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/aplomb-go/aplomb/fleet"
	"github.com/aplomb-go/aplomb/internal/redisserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const quota = 10 // requests per second that the API allows to all workers together

var atOnce = []int{20, 1, 1} // requests at a time, by worker

func main() {
	if isWorker() {
		work(os.Args[2], os.Args[3], os.Args[4])
	} else if err := run(os.Stdout, 6*time.Second); err != nil {
		log.Fatal(err)
	}
}

func isWorker() bool { return len(os.Args) == 5 && os.Args[1] == "worker" }

// newClient is all that a worker of a fleet needs. With the address of a Redis, all workers
// keep to the quota together, and share the waits that the API asks for. Without it, each
// worker believes that the quota is its own. Call stop at the end.
func newClient(redisAddr string) (client *http.Client, stop func(), err error) {
	config := transport.Config{Rule: policy.Rule{ShareRetryAfter: policy.On, RateLimit: policy.RateLimit{PerSecond: quota, Burst: 1}}}
	stop = func() {}
	if redisAddr != "" {
		servers := &redis.UniversalOptions{Addrs: []string{redisAddr}}
		f, err := fleet.New(fleet.Config{Redis: servers, Key: []byte("the same secret in all workers")})
		if err != nil {
			return nil, nil, err
		}
		config.Fleet, stop = f, func() { _ = f.Close() }
	}
	t, err := transport.New(config)
	return &http.Client{Transport: t}, stop, err
}

// work sends requests, some at a time, until its standard input ends.
func work(url, atOnce, redisAddr string) {
	n, _ := strconv.Atoi(atOnce)
	client, stop, err := newClient(redisAddr)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	for range n {
		go func() {
			for {
				if resp, err := client.Get(url); err == nil {
					_ = resp.Body.Close()
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// run returns an error if the fleet was of no use.
func run(out io.Writer, long time.Duration) error {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Fprintf(out, "A fleet is several processes that behave like one client. Here are three workers\nand an API that allows %d requests per second to all of them together. The first\nworker has %d requests waiting at any time, the others one each. Within %v:\n\n", quota, atOnce[0], long)
	alone, refusals := play("", long)
	fmt.Fprintf(out, "  each on its own  %2d 429s, and done by each worker %v\n", refusals, alone)
	done, refused := play(server.Addr, long)
	fmt.Fprintf(out, "  as a fleet       %2d 429s, and done by each worker %v\n\n", refused, done)
	fmt.Fprint(out, "A worker on its own cannot know what the others send. A fleet shares the quota\nbefore the API has to refuse anything, and every worker gets a part.\n")
	if fair := (done[0] + done[1] + done[2]) / 3; refused >= refusals || slices.Min(done) < fair/3 {
		err = errors.New("expected fewer 429s from the fleet, and a part of the quota for each worker")
	}
	return err
}

// play runs an API and a process for each worker. It returns how many requests of each
// worker the API answered, and how many requests it refused.
func play(redisAddr string, long time.Duration) (done []int, refused int64) {
	limit := rate.NewLimiter(quota, 3) // the time between requests differs at the ends of a network
	counts, refusals := make([]atomic.Int64, len(atOnce)), atomic.Int64{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i, _ := strconv.Atoi(r.URL.Path[1:]); limit.Allow() {
			counts[i].Add(1)
		} else {
			refusals.Add(1)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	for i, n := range atOnce {
		w := exec.Command(os.Args[0], "worker", fmt.Sprintf("%s/%d", api.URL, i), strconv.Itoa(n), redisAddr)
		w.Stderr = os.Stderr
		input, err := w.StdinPipe()
		defer func() { _ = input.Close(); _ = w.Wait() }()
		if err != nil || w.Start() != nil {
			log.Fatal("the worker does not start")
		}
	}
	time.Sleep(long)
	for i := range counts {
		done = append(done, int(counts[i].Load()))
	}
	return done, refusals.Load()
}
