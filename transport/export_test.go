package transport

import (
	"crypto/tls"
	"net/http"

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
