// One request that meets a faulty server.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// shortDelay is the wait between tries if a fact is not about waits.
const shortDelay = 10 * time.Millisecond

// An exchange is a request and the server's part in it.
type exchange struct {
	method string // GET if empty
	body   string
	header http.Header
	steps  []testserver.Step
	delay  time.Duration // shortDelay if zero

	deadline time.Duration // the caller's, 0 for none
	cancel   time.Duration // when the caller cancels, 0 for never
	limit    time.Duration // how long to watch; 5 s if zero
}

// An outcome is the observed result up to the end of the response's body, or up
// to the limit.
type outcome struct {
	responded bool
	took      time.Duration // until the response, without its body
	resp      *http.Response
	err       error
	read      int64 // bytes of body, at most readMost
	readErr   error

	attempts int
	log      []testserver.Arrival
}

const readMost = 16 << 20

// run sends the request through lib to a server of its own.
func (e exchange) run(lib *library) (outcome, error) {
	srv, err := testserver.New(testserver.Config{}, e.steps...)
	if err != nil {
		return outcome{}, err
	}
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	limit := time.NewTimer(cmp.Or(e.limit, 5*time.Second))
	defer limit.Stop()

	client := lib.newClient(terms{base: srv.Transport(), delay: cmp.Or(e.delay, shortDelay)})
	done := make(chan outcome, 1)
	go func() { done <- e.ask(ctx, client, srv.URL) }()
	var o outcome
	select {
	case o = <-done:
	case <-limit.C:
	}
	o.attempts, o.log = srv.Arrivals(), srv.Log()
	return o, nil
}

// ask sends the request and reads the response.
func (e exchange) ask(ctx context.Context, client doer, url string) outcome {
	if e.deadline > 0 {
		limited, cancel := context.WithTimeout(ctx, e.deadline)
		defer cancel()
		ctx = limited
	}
	if e.cancel > 0 {
		canceled, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(e.cancel, cancel).Stop()
		ctx = canceled
	}
	req, err := e.request(ctx, url)
	if err != nil {
		return outcome{responded: true, err: err}
	}
	start := time.Now()
	resp, err := client.Do(req)
	o := outcome{responded: true, took: time.Since(start), resp: resp, err: err}
	if resp == nil {
		return o
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		o.read, o.readErr = io.Copy(io.Discard, io.LimitReader(resp.Body, readMost))
	}
	return o
}

func (e exchange) request(ctx context.Context, url string) (*http.Request, error) {
	method := cmp.Or(e.method, http.MethodGet)
	var body io.Reader
	if e.body != "" {
		body = strings.NewReader(e.body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	for name, values := range e.header {
		req.Header[name] = values
	}
	return req, nil
}

// result describes the caller's result.
func (o outcome) result() string {
	switch {
	case !o.responded:
		return "no response"
	case o.err == nil:
		return fmt.Sprint(o.resp.StatusCode)
	case errors.Is(o.err, context.Canceled):
		return "error, Is Canceled"
	case errors.Is(o.err, context.DeadlineExceeded):
		return "error, Is DeadlineExceeded"
	}
	return "error"
}

// delivery describes how much of the response's body the caller could read.
func (o outcome) delivery() string {
	switch {
	case !o.responded || o.err != nil:
		return fmt.Sprintf("%s; %d", o.result(), o.attempts)
	case o.readErr != nil:
		return fmt.Sprintf("%d, then an error; %d", o.read, o.attempts)
	}
	return fmt.Sprintf("%d; %d", o.read, o.attempts)
}
