package transport

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"sync"

	"github.com/aplomb-go/aplomb/internal/host"
)

// Trust makes the default base use a TLS configuration. It is called before the first request.
func (t *Transport) Trust(c *tls.Config) { t.base.(*http.Transport).TLSClientConfig = c }

// Evict does with the lanes of a host what the eviction of the host does.
func (t *Transport) Evict(url string) {
	t.hosts.All(func(s *host.State[resolved]) {
		if s.Name() == url {
			t.hosts.Evicted(s)
		}
	})
}

// A LogText keeps log lines. Lines that were summed up come from a goroutine of their own.
type LogText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *LogText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *LogText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
