package debug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/aplomb-go/aplomb/debug"
	"github.com/aplomb-go/aplomb/transport"
)

// The page is a handler like any other. This program would serve it at
// http://localhost:6060/debug/aplomb.
func Example() {
	page := &debug.Page{}
	tr := transport.MustNew(transport.Config{Traces: []*transport.Trace{page.Trace()}})
	http.DefaultClient.Transport = tr
	mux := http.NewServeMux()
	mux.Handle("GET /debug/aplomb", page.Handler(tr))
	// go http.ListenAndServe("localhost:6060", mux)

	for _, host := range []string{"localhost:6060", "evil.example"} {
		req := httptest.NewRequest(http.MethodGet, "/debug/aplomb", nil)
		req.Host = host
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		fmt.Println(host, w.Code)
	}
	http.DefaultClient.Transport = nil
	// Output:
	// localhost:6060 200
	// evil.example 403
}

// A page that others may reach under a name.
func ExamplePage() {
	page := &debug.Page{AllowedHosts: []string{"debug.internal"}}
	h := page.Handler(transport.Default())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://debug.internal/", nil))
	fmt.Println(w.Code)
	// Output: 200
}
