package transport_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A warmingUp server responds with 503 to the first two requests.
type warmingUp struct{ requests int }

func (s *warmingUp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests++
	fmt.Println("->", r.Method, r.URL)
	if s.requests <= 2 {
		http.Error(w, "warming up", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "hello")
}

func Example() {
	server := httptest.NewServer(&warmingUp{})
	defer server.Close()

	tr, err := transport.New(transport.Config{
		// The default waits 1 s, 2 s, 4 s … and a random part.
		Rule: policy.Rule{Backoff: backoff.Exponential{Base: time.Millisecond}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}

	resp, err := client.Get(server.URL + "/things")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s", resp.StatusCode, text)
	// Output:
	// -> GET /things
	// -> GET /things
	// -> GET /things
	// 200 hello
}
