// A plain store of objects, for clients that come without a fake.

package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy"
)

// A store keeps the body of a PUT under its path and answers with its hash. It
// serves a GET with an ETag.
type store struct {
	mu      sync.Mutex
	objects map[string][]byte
}

// newStore returns a store with some content at /object.
func newStore(b []byte) *store {
	return &store{objects: map[string][]byte{"/" + object: b}}
}

func (s *store) get(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

func (s *store) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.Method {
	case http.MethodGet:
		b := s.get(req.URL.Path)
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sum(b)))
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b))
	case http.MethodPut:
		b := whole(req)
		s.mu.Lock()
		s.objects[req.URL.Path] = b
		s.mu.Unlock()
		_, _ = w.Write(sum(b))
	default:
		http.Error(w, "", http.StatusMethodNotAllowed)
	}
}

// whole returns the body of a request. If it is cut, the handler ends.
func whole(req *http.Request) []byte {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return b
}

// sum returns the hash of b.
func sum(b []byte) []byte {
	h := sha256.Sum256(b)
	return h[:]
}

// hundredUploads sends a hundred bodies of 8 MiB to a server that answers each of
// them 503 at first, before it reads the body. All of them must arrive whole. The
// budget is off, because half of all attempts fail.
func hundredUploads(t *testing.T, c client) {
	b := newBench(t, c)
	firstRefused := func(n int, w http.ResponseWriter, req *http.Request) bool {
		return n%2 == 1 && busyUntil(n+1)(n, w, req)
	}
	want := bytes.Clone(content(8 << 20))
	b.answer(firstRefused)
	require.Error(t, b.bare(t, false, 0).upload(bounded(t), want))

	s, r := b.under(t, policy.Rule{RetryBudget: policy.RetryBudget{Enabled: policy.Off}}, false, nil)
	b.answer(firstRefused)
	for i := range 100 {
		want[0] = byte(i)
		require.NoError(t, s.upload(bounded(t), want), "upload %d", i)
	}
	assert.Len(t, r.told(), 100, "attempts told")
	assert.Equal(t, 200, b.seen(), "requests that arrived")
}
