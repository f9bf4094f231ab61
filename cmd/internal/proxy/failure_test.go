package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

func TestFailures(t *testing.T) {
	const once = `"attempts": "off"`
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "http://" + l.Addr().String()
	l.Close()
	for _, test := range []struct {
		name, rule string
		upstream   http.HandlerFunc // nil: nothing listens
		status     int
		kind, text string
	}{
		{"refused", `{"rule": {` + once + `}}`, nil, 502, "connection_refused", "refused"},
		{"refused again and again", demoRules, nil, 502, "connection_refused", "gave up after 4 attempts"},
		{"no response in time", `{"rule": {` + once + `, "attempt_timeout": "20ms"}}`, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, 504, "http_response_timeout", "no response within"},
		{"cut before the header", `{"rule": {` + once + `}}`, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, 502, "connection_terminated", "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := closed
			if test.upstream != nil {
				to = upstream(t, test.upstream).URL
			}
			p := start(t, "-to", to, "-rules", rulesFile(t, test.rule))
			resp, body := get(t, p.url+"/"+"?token="+secret)
			assert.Equal(t, test.status, resp.StatusCode)
			assert.Contains(t, body, test.text)
			assert.Contains(t, resp.Header.Get("Proxy-Status"), "aplomb; error="+test.kind+`; details="`)
			assertLacksSecret(t, body)
			assertLacksSecret(t, p.log.String())
		})
	}
}

func TestRefusedUnsent(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	p := start(t, "-to", to.URL)
	// The first request learns that the host asks for an hour, which is more than
	// the rule allows.
	resp, _ := get(t, p.url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "3600", resp.Header.Get("Retry-After"))
	assert.Equal(t, `aplomb; details="max_retry_after, attempts: 1"`, resp.Header.Get("Proxy-Status"))
	// The second is not sent.
	resp, body := get(t, p.url)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Contains(t, body, "not sent")
	assert.Regexp(t, `^(3600|35\d\d)$`, resp.Header.Get("Retry-After"))
	assert.Contains(t, resp.Header.Get("Proxy-Status"), "error=destination_unavailable")
}

func TestClientGone(t *testing.T) {
	arrived := make(chan struct{})
	to := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	p := start(t, "-to", to.URL)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	require.NoError(t, err)
	go func() {
		<-arrived
		cancel()
	}()
	_, err = client(t).Do(req) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, context.Canceled)
	// The end of the proxy waits for the request.
	require.Equal(t, exitFine, p.stop())
}

func TestStatusOf(t *testing.T) {
	one := make([]transport.Attempt, 1)
	for _, test := range []struct {
		name  string
		err   *transport.Error
		ended error
		want  int
		kind  string
	}{
		{"the gate is full", &transport.Error{Err: transport.ErrGateFull, Reason: transport.ReasonGateFull}, nil, 503, "destination_unavailable"},
		{"cooldown", &transport.Error{Err: transport.ErrCooldown}, nil, 503, "destination_unavailable"},
		{"its turn would be late", &transport.Error{Err: transport.ErrOverDeadline}, nil, 503, "destination_unavailable"},
		{"attempt timeout", &transport.Error{Err: policy.ErrAttemptTimeout, Attempts: one}, nil, 504, "http_response_timeout"},
		{"dial timeout", &transport.Error{Err: &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, Attempts: one}, nil, 504, "connection_timeout"},
		{"no such host", &transport.Error{Err: &net.DNSError{IsNotFound: true}, Attempts: one}, nil, 502, "dns_error"},
		{"DNS timeout", &transport.Error{Err: &net.DNSError{IsTimeout: true}, Attempts: one}, nil, 504, "dns_timeout"},
		{"no route", &transport.Error{Err: &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, Attempts: one}, nil, 502, "destination_ip_unroutable"},
		{"reset", &transport.Error{Err: fmt.Errorf("read: %w", syscall.ECONNRESET), Attempts: one}, nil, 502, "connection_terminated"},
		{"cut", &transport.Error{Err: io.ErrUnexpectedEOF, Attempts: one}, nil, 502, "connection_terminated"},
		{"nonsense", &transport.Error{Err: errors.New("malformed HTTP response"), Attempts: one}, nil, 502, "http_protocol_error"},
		{"the client has gone", &transport.Error{Err: context.Canceled, Attempts: one}, context.Canceled, 499, "http_request_error"},
		{"the proxy ends", &transport.Error{Err: context.Canceled, Attempts: one}, errEnding, 503, "http_request_error"},
		{"the client has gone from the queue", &transport.Error{Err: context.Canceled}, context.Canceled, 499, "destination_unavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, statusOf(test.err, test.ended))
			assert.Equal(t, test.kind, errorType(test.err))
		})
	}
}

func TestSecondsUntil(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	assert.Zero(t, secondsUntil(time.Time{}, now))
	assert.Zero(t, secondsUntil(now, now))
	assert.Zero(t, secondsUntil(now.Add(-time.Hour), now))
	assert.EqualValues(t, 1, secondsUntil(now.Add(time.Nanosecond), now))
	assert.EqualValues(t, 60, secondsUntil(now.Add(time.Minute), now))
	assert.EqualValues(t, 61, secondsUntil(now.Add(time.Minute+time.Nanosecond), now))
}

// The error of a single attempt comes without its history.
func TestBareError(t *testing.T) {
	e := described(fmt.Errorf("Get %q: no luck", "http://user:"+secret+"@api.example/?key="+secret))
	assert.True(t, strings.Contains(e.Error(), "no luck") && strings.Contains(e.Error(), "1 attempt"), e.Error())
	assertLacksSecret(t, e.Error())
}
