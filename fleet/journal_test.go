package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A handler calls a function for each log line.
type handler func()

func (handler) Enabled(context.Context, slog.Level) bool    { return true }
func (h handler) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }

// unreachable returns a Config of a Redis that cannot be reached, without a network.
func unreachable(t testing.TB, h slog.Handler) Config {
	c := options(t, "redis.example.com:6379")
	c.Redis.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused by the test") }
	c.Logger = slog.New(h)
	return c
}

func healthyTransport(t testing.TB, f *Fleet) *transport.Transport {
	tr, err := transport.New(transport.Config{
		Fleet: f,
		Rule:  policy.Rule{Gate: policy.Gate{Max: 50}, Pacing: policy.On},
		Base: roundTrip(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}),
	})
	require.NoError(t, err)
	return tr
}

// A log handler that blocks costs no request any time. Close takes no longer than it
// takes while Redis is away.
func TestLogThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblock := make(chan struct{})
		blocked := atomic.Bool{}
		f, err := New(unreachable(t, handler(func() {
			blocked.Store(true)
			<-unblock
		})))
		require.NoError(t, err)
		tr := healthyTransport(t, f)
		synctest.Wait()
		require.True(t, blocked.Load(), "there was no log line")
		begin := time.Now()
		for i := range 10 {
			req, err := http.NewRequest(http.MethodGet, name(i), nil)
			require.NoError(t, err)
			_, err = tr.RoundTrip(req)
			require.NoError(t, err)
			callAll(f)
			f.FleetState()
		}
		require.Zero(t, time.Since(begin))
		time.Sleep(time.Minute) // the heartbeats go on
		require.Greater(t, f.FleetState().Commands, uint64(30))
		begin = time.Now()
		f.Close()
		require.Equal(t, leaving, time.Since(begin))
		close(unblock)
	})
}

// A log handler may send its lines through the Transport that the Fleet serves, and may call
// the Fleet.
func TestLogOverTheSameTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr atomic.Pointer[transport.Transport]
		var shipped atomic.Int64
		var f *Fleet
		ready := make(chan struct{})
		f, err := New(unreachable(t, handler(func() {
			<-ready
			f.FleetState()
			req, err := http.NewRequest(http.MethodPost, "https://logs.example.com", nil)
			if err == nil {
				_, err = tr.Load().RoundTrip(req)
			}
			if err == nil {
				shipped.Add(1)
			}
		})))
		require.NoError(t, err)
		tr.Store(healthyTransport(t, f))
		close(ready)
		synctest.Wait()
		require.Positive(t, shipped.Load())
		f.Close()
	})
}

// The log is bounded, and lines keep their order.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		unblock := make(chan struct{})
		j := journal{logger: slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			<-unblock
			return lines.Write(b)
		}), nil))}
		for i := range 2 * maxLines {
			j.add(slog.LevelInfo, "line", "number", i)
			synctest.Wait()
		}
		close(unblock)
		synctest.Wait()
		require.Equal(t, maxLines+1, lines.count("\n"))
		require.Regexp(t, `(?s)number=0\n.*number=1\n.*number=16\n$`, lines.String())
		j.add(slog.LevelInfo, "again")
		j.close(t.Context())
		require.Equal(t, 1, lines.count("again"))
		j.add(slog.LevelInfo, "late")
		synctest.Wait()
		require.Zero(t, lines.count("late"))
	})
}

// A handler that panics ends neither the process nor the log.
func TestLogThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		j := journal{logger: slog.New(handler(func() {
			if calls++; calls == 1 {
				panic("of the handler")
			}
		}))}
		j.add(slog.LevelInfo, "line")
		j.add(slog.LevelInfo, "line")
		synctest.Wait()
		require.Equal(t, 2, calls)
		j.close(t.Context())
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
