// Command fleet shows three worker processes that share the quota of an API, first each on
// its own and then as a fleet. worker.go has the code that a real worker needs. The program
// starts the workers, the API and a redis-server itself.
//
//	go -C examples/fleet run .
//	make fleet
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/redisserver"
)

const quota = 10 // requests per second that the API allows to all workers together

func main() {
	log.SetFlags(0)
	if isWorker() {
		log.SetPrefix("worker " + os.Args[2] + ": ")
		if err := worker(); err != nil {
			log.Fatal(err)
		}
		return
	}
	err := run(os.Stdout, 6*time.Second)
	if errors.Is(err, redisserver.ErrMissing) {
		log.Fatal("redis-server is missing. The Debian package redis-server has it: apt install redis-server")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run plays each round for so long, and returns an error if the fleet was of no use.
func run(out io.Writer, long time.Duration) error {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Fprintf(out, "A fleet is several processes that behave like one client. Here are three workers\nand an API that allows %d requests per second to all of them together. Each line\nshows what the API sees within %v.\n", quota, long)
	for _, load := range []struct {
		text   string
		atOnce []int
	}{
		{"All are equally busy. Each has four requests waiting at any time.", []int{4, 4, 4}},
		{"The first is busy with 20 requests at a time, the others send one by one.", []int{20, 1, 1}},
	} {
		fmt.Fprintf(out, "\n%s\n%26s %10s %25s\n", load.text, "done/s", "429s", "done by each worker")
		alone, err := play("", load.atOnce, long)
		if err != nil {
			return err
		}
		alone.print(out, "each on its own")
		fleet, err := play(server.Addr, load.atOnce, long)
		if err != nil {
			return err
		}
		fleet.print(out, "as a fleet")
		if err := judge(alone, fleet); err != nil {
			return err
		}
	}
	fmt.Fprint(out, ending)
	return nil
}

const ending = `
A worker on its own cannot know what the others send. The API refuses what is
too much, and chance decides who gets the quota. A fleet shares the quota before
the API has to refuse anything, and every worker gets a part.

Read on in examples/fleet/worker.go, which is all that a worker needs, and in
docs/fleet.md, which says when you need a fleet.
`

// worker sends requests to an API until its standard input ends, which it also does if
// the first process dies. Its arguments are its name, the URL, the number of requests at
// a time, and the address of a Redis or nothing.
func worker() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		stop()
	}()
	atOnce, err := strconv.Atoi(os.Args[4])
	if err != nil {
		return err
	}
	client, leave, err := newClient(os.Args[5])
	if err != nil {
		return err
	}
	defer leave()
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := get(ctx, client, os.Args[3]); err != nil && ctx.Err() == nil {
					log.Print(err)
				}
			}
		})
	}
	all.Wait()
	return nil
}

func isWorker() bool { return len(os.Args) == 6 && os.Args[1] == "worker" }
