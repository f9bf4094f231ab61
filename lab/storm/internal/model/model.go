// Package model defines the server, the clients and their strategies. The real
// experiment and package literature share it.
package model

import (
	"fmt"
	"math"
	"time"
)

// A Server says how long requests take. Up to Limit requests in progress take Base
// each. Beyond Limit the time of every request grows exponentially with the number
// in progress, like the time of a database under too many queries. Every Tick a
// request checks whether it has spent enough time.
type Server struct {
	Base   time.Duration
	Limit  int
	Factor float64
	Spread float64 // so many more requests make the server slower by Factor
	Tick   time.Duration
}

// DefaultServer is the server of the article.
func DefaultServer() Server {
	return Server{
		Base: 100 * time.Millisecond, Limit: 30, Factor: 1.05, Spread: 15,
		Tick: 50 * time.Millisecond,
	}
}

// Delay returns how long a request takes while so many are in progress.
func (s Server) Delay(concurrency int) time.Duration {
	over := concurrency - s.Limit
	if over <= 0 {
		return s.Base
	}
	d := float64(s.Base) * math.Pow(s.Factor, float64(over)/s.Spread)
	return time.Duration(min(d, math.MaxInt64/2))
}

// A Scenario is one run. The clients send in peace. Then the server is frozen. Then
// it is resumed and watched.
type Scenario struct {
	Clients int
	Think   time.Duration // mean time from a response to the next request, exponential
	Timeout time.Duration // of each attempt
	Steady  time.Duration
	Frozen  time.Duration
	Watched time.Duration
	Server  Server
	// Processes is how many processes the clients are spread over. Zero means that
	// each client is a process.
	Processes int
}

// DefaultScenario is the experiment of the article.
func DefaultScenario() Scenario {
	return Scenario{
		Clients: 1000, Think: 10 * time.Second, Timeout: 2 * time.Second,
		Steady: 10 * time.Second, Frozen: 20 * time.Second, Watched: 80 * time.Second,
		Server: DefaultServer(),
	}
}

// Stop returns when the server freezes, since the beginning.
func (s Scenario) Stop() time.Duration { return s.Steady }

// Resume returns when the server works again, since the beginning.
func (s Scenario) Resume() time.Duration { return s.Steady + s.Frozen }

// End returns how long the scenario takes.
func (s Scenario) End() time.Duration { return s.Steady + s.Frozen + s.Watched }

// Rate returns how many requests per second the clients send to a healthy server.
func (s Scenario) Rate() float64 {
	return float64(s.Clients) / (s.Think + s.Server.Base).Seconds()
}

// Check returns an error for a scenario that makes no sense.
func (s Scenario) Check() error {
	switch {
	case s.Clients < 1:
		return fmt.Errorf("%d clients: there must be one at least", s.Clients)
	case s.Think <= 0 || s.Timeout <= 0 || s.Steady <= 0 || s.Frozen <= 0 || s.Watched <= 0:
		return fmt.Errorf("every time must be more than 0")
	case s.Watched < 10*time.Second:
		return fmt.Errorf("watched for %v: it takes 7 s to say that the server has recovered; 10 s at least", s.Watched)
	case s.Processes < 0 || s.Processes > s.Clients:
		return fmt.Errorf("%d processes: must be 1 to the number of clients, or 0", s.Processes)
	}
	return nil
}
