package transport

import "github.com/aplomb-go/aplomb/internal/host"

// Evict does with the lanes of a host what the eviction of the host does.
func (t *Transport) Evict(url string) {
	t.hosts.All(func(s *host.State[resolved]) {
		if s.Name() == url {
			t.hosts.Evicted(s)
		}
	})
}
