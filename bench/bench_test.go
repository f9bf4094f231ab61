package main

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// nothing answers 200 to everything, once it has read and closed the body.
type nothing struct{}

func (nothing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
	}
	// A new one each time: some wrap its body in place.
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// post is a request whose body is put back before each send.
type post struct {
	*http.Request
	body []byte
}

func newRequest(b *testing.B, method string) post {
	b.Helper()
	p := post{body: bytes.Repeat([]byte("x"), 1024)}
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(p.body)
	}
	req, err := http.NewRequestWithContext(b.Context(), method, "http://api.example.com/orders", body)
	if err != nil {
		b.Fatal(err)
	}
	p.Request = req
	return p
}

func (p post) again() *http.Request {
	if p.GetBody != nil {
		p.Body = io.NopCloser(bytes.NewReader(p.body))
	}
	return p.Request
}

// BenchmarkFirstTry is the cost of a first try that succeeds over a base that
// does nothing, as a caller of Do sees it. The difference to net/http is the
// library's; where the library is a RoundTripper, Do is http.Client's.
func BenchmarkFirstTry(b *testing.B) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for i := range libraries {
			l := &libraries[i]
			b.Run(method+"/"+l.name, func(b *testing.B) {
				client := l.newClient(nothing{}, shortDelay)
				p := newRequest(b, method)
				b.ReportAllocs()
				for b.Loop() {
					resp, err := client.Do(p.again())
					if err != nil {
						b.Fatal(err)
					}
					resp.Body.Close()
				}
			})
		}
	}
}

// BenchmarkRoundTrip is the same without http.Client, for the RoundTrippers.
func BenchmarkRoundTrip(b *testing.B) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for i := range libraries {
			l := &libraries[i]
			if l.wrap == nil {
				continue
			}
			b.Run(method+"/"+l.name, func(b *testing.B) {
				rt := l.wrap(nothing{}, shortDelay)
				p := newRequest(b, method)
				b.ReportAllocs()
				for b.Loop() {
					resp, err := rt.RoundTrip(p.again())
					if err != nil {
						b.Fatal(err)
					}
					resp.Body.Close()
				}
			})
		}
	}
}

// BenchmarkUpload posts 64 MiB from a pipe over loopback. B/op includes the
// server's part, which net/http's line shows.
func BenchmarkUpload(b *testing.B) {
	for i := range libraries {
		l := &libraries[i]
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(uploadSize)
			var most uploaded
			for b.Loop() {
				u, err := upload(l, uploadSize)
				if err != nil {
					b.Fatal(err)
				}
				most.before, most.peak = max(most.before, u.before), max(most.peak, u.peak)
			}
			b.ReportMetric(float64(most.before), "read-before-B")
			b.ReportMetric(mebi(most.peak), "peak-MiB")
		})
	}
}
