package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// Package failover asks this before it sends a request to the next endpoint. A POST that the
// server may have acted on stays, unless the caller says that it may be acted on twice.
func ExampleMayGoElsewhere() {
	us := transport.MustNew(transport.Config{Base: server(0), Rule: policy.Rule{MaxAttempts: 1}}) // resets each connection
	for _, ctx := range []context.Context{context.Background(), transport.WithIdempotent(context.Background())} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://us.example.com/orders", strings.NewReader("{}"))
		if err != nil {
			panic(err)
		}
		resp, err := us.RoundTrip(req)
		fmt.Println(transport.MayGoElsewhere(us, req, resp, err, false))
	}
	// Output:
	// -> POST https://us.example.com/orders
	// false
	// -> POST https://us.example.com/orders
	// true
}
