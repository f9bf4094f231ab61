// Predicate tells "try again later" from "no" by a text in the answer's body.
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
	// A full queue took nothing in, so it is Refused and a POST, too, may be
	// sent again. A service that may have acted on it would be Ambiguous.
	t, err := transport.New(transport.Config{Rule: policy.Rule{
		Classify: classify.OnBodyText(classify.Refused, "queue capacity"),
		Backoff:  backoff.Geometric{First: 100 * time.Millisecond, Rate: 2, Max: time.Second},
	}})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: t}

	sends := 0 // of the job at hand; one request at a time here
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sends++
		if r.URL.Path == "/nonsense" {
			http.Error(w, "no such job", http.StatusBadRequest)
		} else if sends < 3 {
			http.Error(w, "over queue capacity", http.StatusBadRequest)
		}
	}))
	defer server.Close()

	want := map[string]int{"/job": 3, "/nonsense": 1}
	for _, path := range []string{"/job", "/nonsense"} {
		sends = 0
		resp, err := client.Post(server.URL+path, "text/plain", strings.NewReader("work"))
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body) // whole, although the predicate had a look
		resp.Body.Close()
		fmt.Printf("POST %s: sent %d×, then %s, %q\n", path, sends, resp.Status, text)
		if err != nil || sends != want[path] {
			log.Fatalf("expected %d× and no error: %v", want[path], err)
		}
	}
}
