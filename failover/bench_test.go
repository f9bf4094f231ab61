package failover_test

import (
	"net/http"
	"testing"

	"github.com/aplomb-go/aplomb/failover"
	"github.com/aplomb-go/aplomb/transport"
)

func Benchmark(b *testing.B) {
	base := transport.MustNew(transport.Config{Base: rt(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})})
	two := mustNew(b, failover.Endpoint{URL: "http://a.test", Transport: base}, failover.Endpoint{URL: "http://b.test", Transport: base, Allow: []string{"page"}})
	for name, tr := range map[string]http.RoundTripper{"ours": base, "failover": two} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequest(http.MethodGet, "http://a.test/x?page=2", nil)
				req.Header.Set("Accept", "x")
				req.Header.Set("User-Agent", "x")
				resp, _ := tr.RoundTrip(req)
				resp.Body.Close()
			}
		})
	}
}
