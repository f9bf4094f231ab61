// The counts for the metrics.

package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/tally"
	"github.com/aplomb-go/aplomb/transport"
)

// buckets are the bounds of the durations of requests, in seconds.
var buckets = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// stats counts the responses to clients and, by host, the attempts.
type stats struct {
	hosts *tally.Tally

	mu sync.Mutex // guards counted
	counted
}

// counted has the counts at a moment.
type counted struct {
	responses map[int]uint64 // by status
	cut       uint64         // responses with a cut body
	durations [len(buckets) + 1]uint64
	seconds   float64
}

func newStats() *stats {
	return &stats{hosts: tally.New(), counted: counted{responses: map[int]uint64{}}}
}

// trace returns the Trace that feeds s.
func (s *stats) trace() *transport.Trace {
	return &transport.Trace{Event: func(e transport.Event) { s.hosts.Add(&e) }}
}

// responded counts a response to a client.
func (s *stats) responded(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses[status]++
}

// served counts a request that is done. whole is false if the body of its response was
// cut.
func (s *stats) served(d time.Duration, whole bool) {
	i, _ := slices.BinarySearch(buckets[:], d.Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durations[i]++
	s.seconds += d.Seconds()
	if !whole {
		s.cut++
	}
}

// now returns a copy of the counts.
func (s *stats) now() counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counted
	c.responses = maps.Clone(c.responses)
	return c
}
