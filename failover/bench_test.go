package failover_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/transport"
)

func Benchmark(b *testing.B) {
	base := rt(func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			req.Body.Close()
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	ours := transport.MustNew(transport.Config{Base: base})
	two := mustNew(b, failover.Endpoint{URL: "http://a.test", Transport: ours}, failover.Endpoint{URL: "http://b.test", Transport: ours, Allow: []string{"page"}})
	for name, tr := range map[string]http.RoundTripper{"ours": ours, "failover": two} {
		for _, kind := range []string{"GET", "key", "PUT"} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					req, _ := http.NewRequest(http.MethodGet, "http://a.test/x?page=2", nil)
					if kind == "PUT" {
						req, _ = http.NewRequest(http.MethodPut, "http://a.test/x?page=2", strings.NewReader("body"))
					}
					req.Header.Set("Accept", "x")
					req.Header.Set("User-Agent", "x")
					req.Header.Set("Content-Type", "x")
					if kind == "key" {
						req.Header.Set("Authorization", "Bearer x")
					}
					resp, _ := tr.RoundTrip(req)
					resp.Body.Close()
				}
			})
		}
	}
}
