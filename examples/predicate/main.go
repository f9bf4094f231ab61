// Predicate shows that a text in the body of a response can decide whether a
// request is sent again.
//
//	go run ./examples/predicate
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

func main() {
	fmt.Println("A text in the body of a response decides whether a request is sent again.")
	fmt.Println()
	// If the queue is full, the server has not accepted the job. The verdict is
	// Refused, so even a POST may be sent again. If the service might have
	// accepted it, the verdict would be Ambiguous.
	t, err := transport.New(transport.Config{Rule: policy.Rule{
		Classify: classify.OnBodyText(classify.Refused, "queue capacity"),
		Backoff:  backoff.Geometric{First: 100 * time.Millisecond, Rate: 2, Max: time.Second},
	}})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: t}

	attempts := 0 // for the current request; there is one request at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts++
		if r.URL.Path == "/nonsense" {
			http.Error(w, "no such job", http.StatusBadRequest)
		} else if attempts < 3 {
			http.Error(w, "over queue capacity", http.StatusBadRequest)
		}
	}))
	defer server.Close()

	want := map[string]int{"/job": 3, "/nonsense": 1}
	for _, path := range []string{"/job", "/nonsense"} {
		attempts = 0
		resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader("work"))
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body) // complete, although the classifier has read it
		resp.Body.Close()
		fmt.Printf("  POST %-9s %d sent, then %s, %q\n", path, attempts, resp.Status, text)
		if err != nil || attempts != want[path] {
			log.Fatalf("expected %d attempts and no error: %v", want[path], err)
		}
	}
	fmt.Println("\n" + `Only the POST that was refused with the text "queue capacity" was sent again.`)
}
