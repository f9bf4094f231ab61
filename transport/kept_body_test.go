package transport_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/transport"
)

// Given many uploads at once whose bytes are kept, when the server responds before it
// has the whole body, and so net/http reads on during the retry, then no request brings
// a byte of another request.
func TestKeptBodiesAreNotMixed(t *testing.T) {
	for _, p := range []protocol{http1[0], http2[1]} {
		t.Run(p.name, func(t *testing.T) {
			var mu sync.Mutex
			attempts := map[string]int{}
			cfg := p.cfg
			cfg.Handler = func(r *ts.Received) ts.Step {
				mu.Lock()
				defer mu.Unlock()
				attempts[r.Target]++
				if n := attempts[r.Target]; n < 3 {
					return ts.Status(503).Early(int64(n * 30_000))
				}
				return ts.OK("ok")
			}
			server := ts.Start(t, cfg)
			tr := mustNew(t, transport.Config{Base: server.Transport(), Rule: quick})
			t.Cleanup(tr.CloseIdleConnections)
			text := func(id int) []byte { return bytes.Repeat([]byte{byte('a' + id)}, 100_000+id) }
			var uploads sync.WaitGroup
			var whole atomic.Int32
			for id := range 8 {
				uploads.Go(func() {
					for i := range 3 {
						req := newRequest(t, http.MethodPut, fmt.Sprintf("%s/%d/%d", server.URL, id, i), reader(bytes.NewReader(text(id))))
						resp, err := tr.RoundTrip(req)
						if !assert.NoError(t, err) {
							return
						}
						if _ = resp.Body.Close(); resp.StatusCode == http.StatusOK {
							whole.Add(1)
						}
					}
				})
			}
			uploads.Wait()
			assert.NotZero(t, whole.Load())
			for _, a := range server.Log() {
				var id, i int
				_, err := fmt.Sscanf(strings.TrimPrefix(a.Target, "/"), "%d/%d", &id, &i)
				assert.NoError(t, err)
				want := text(id)[:a.BodyLength]
				assert.Equal(t, ts.Hash(want), a.BodySHA256, a.Target)
			}
		})
	}
}
