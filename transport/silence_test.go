package transport_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
)

// The connection of a host over HTTP/2 dies, for the first time. Each caller loses one POST, and no further.
func TestFirstSilenceOfAHost(t *testing.T) {
	for callers := 2; callers < 10; callers++ {
		inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
			cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(10 * time.Millisecond) }
			w := wireTo(t, ts.Start(t, cfg), cfg.Net, policy.Rule{AttemptTimeout: attemptTime, MaxAttempts: 1}, lateDial(20*time.Millisecond))
			time.AfterFunc(time.Second, w.die)
			var failed atomic.Int32
			together(callers, func(int) {
				for range 100 {
					if w.send(http.MethodPost).err != nil {
						failed.Add(1)
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			assert.LessOrEqual(t, failed.Load(), int32(callers), "failed requests of %d callers", callers)
			w.tr.CloseIdleConnections()
		})
	}
}

// The connection of a busy host dies. The requests after the first timeout wait until another pool has a
// connection, instead of being lost as well.
func TestSilenceOfABusyHost(t *testing.T) {
	const every = 5 * time.Millisecond
	for _, dial := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond} {
		inMemory(t, http2[:1], func(t *testing.T, cfg ts.Config) {
			cfg.Handler = func(*ts.Received) ts.Step { return ts.OK("well").Delay(10 * time.Millisecond) }
			w := wireTo(t, ts.Start(t, cfg), cfg.Net, policy.Rule{AttemptTimeout: attemptTime, MaxAttempts: 1}, lateDial(dial))
			var failed atomic.Int32
			var all sync.WaitGroup
			for i := range 256 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * every)
					if i == 100 {
						w.die()
					}
					if w.send(http.MethodPost).err != nil {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			assert.LessOrEqual(t, failed.Load(), int32((attemptTime+10*time.Millisecond)/every+4), "failed requests")
			w.tr.CloseIdleConnections()
		})
	}
}
