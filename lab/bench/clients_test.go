package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// twice responds with 503 to the first two requests.
func twice(t *testing.T) *testserver.Server {
	return testserver.Start(t, testserver.Config{}, testserver.Status(503), testserver.Status(503), testserver.OK("thanks"))
}

// each runs a test for each client.
func each(t *testing.T, test func(*testing.T, *library)) {
	for _, l := range compared() {
		t.Run(l.name, func(t *testing.T) { test(t, &l) })
	}
}

// wantAttempts is how often a client sends a GET to a server that fails twice.
func wantAttempts(l *library) int {
	if l.name == bare.name {
		return 1
	}
	return 3
}

// TestClientsRetry: given a server that fails twice, when a client that retries
// sends a GET, then three requests arrive and the caller gets the third response.
func TestClientsRetry(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		srv := twice(t)
		client := l.newClient(terms{base: srv.Transport(), delay: time.Millisecond})
		o := exchange{}.ask(context.Background(), client, srv.URL)
		assert.Equal(t, wantAttempts(l), srv.Arrivals(), "attempts")
		assert.True(t, o.err == nil && (l.name == bare.name || o.resp.StatusCode == 200 && o.read == int64(len("thanks"))), "%s with %d bytes, %v", o.result(), o.read, o.err)
	})
}

// TestCallersRetry: the same through the calls that are timed, in each shape
// that a client is called in, with no wait and with no limit on retries.
func TestCallersRetry(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		shapesOf := []shape{l.shape()}
		if l.name == bare.name || l.name == naive.name {
			shapesOf = []shape{roundTrip, do, build}
		}
		for _, s := range shapesOf {
			srv := twice(t)
			call := l.caller(s, terms{base: srv.Transport(), unbounded: true}, http.MethodGet, target{url: srv.URL})
			assert.NoError(t, call(), s)
			assert.Equal(t, wantAttempts(l), srv.Arrivals(), "attempts, %s", s)
		}
	})
}

// TestUnboundedRetriesEveryRequest: given terms without a limit over time, when
// many requests fail twice each, then all of them are sent three times.
func TestUnboundedRetriesEveryRequest(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		const requests = 100
		base := &flaky{failures: 2}
		call := l.caller(l.shape(), terms{base: base, unbounded: true}, http.MethodGet, target{url: anyURL})
		for range requests {
			require.NoError(t, call())
		}
		assert.Equal(t, wantAttempts(l)*requests, base.sent, "attempts")
	})
}

// TestCallersSendTheirBody: a timed POST arrives with its body each time, also
// when a library has replaced the body of the caller's request.
func TestCallersSendTheirBody(t *testing.T) {
	body := []byte("an order")
	each(t, func(t *testing.T, l *library) {
		srv := testserver.Start(t, testserver.Config{}, testserver.OK("thanks"))
		call := l.caller(l.shape(), terms{base: srv.Transport()}, http.MethodPost, target{srv.URL, body})
		for range 3 {
			require.NoError(t, call())
		}
		log := srv.Log()
		require.Len(t, log, 3)
		for _, arrived := range log {
			assert.Equal(t, testserver.Hash(body), arrived.BodySHA256)
		}
	})
}

// TestClientsSend: every client delivers a success once, with its body whole.
func TestClientsSend(t *testing.T) {
	each(t, func(t *testing.T, l *library) {
		const body = "an order"
		o, err := exchange{
			method: http.MethodPost, body: body, steps: script(testserver.OK("thanks")),
		}.run(l)
		require.True(t, err == nil && o.err == nil && o.responded, "%s: %v, %v", o.result(), err, o.err)
		assert.True(t, o.resp.StatusCode == http.StatusOK && o.read == int64(len("thanks")), "response %d with %d bytes", o.resp.StatusCode, o.read)
		assert.True(t, len(o.log) == 1 && o.log[0].BodySHA256 == testserver.Hash([]byte(body)), "arrived: %+v", o.log)
	})
}
