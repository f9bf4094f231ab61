package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/transport"
)

// noop responds at once with the same response, so that what is measured is
// ours.
type noop struct{ resp *http.Response }

func (n noop) RoundTrip(*http.Request) (*http.Response, error) { return n.resp, nil }

func newNoop() noop {
	return noop{&http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
}

func getRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func postRequest(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("body"))
	require.NoError(t, err)
	return req
}

func TestFirstTryAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	for name, req := range map[string]*http.Request{
		"GET":               getRequest(t, "https://api.example.com/v1/things"),
		"POST with GetBody": postRequest(t, "https://api.example.com/v1/things"),
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, _ = tr.RoundTrip(req)
		}), name)
	}
}

func TestFirstTryOfManyHostsAllocatesNothing(t *testing.T) {
	tr := mustNew(t, transport.Config{Base: newNoop()})
	reqs := manyRequests(1000)
	for _, req := range reqs {
		_, _ = tr.RoundTrip(req)
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(len(reqs), func() {
		_, _ = tr.RoundTrip(reqs[i%len(reqs)])
		i++
	}))
}

func manyRequests(n int) []*http.Request {
	reqs := make([]*http.Request, n)
	for i := range reqs {
		reqs[i] = &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Scheme: "https", Host: fmt.Sprintf("host-%d.example.com", i)},
			Header: http.Header{},
		}
	}
	return reqs
}

// TestUploadStreams: the first byte is with the base before the second is read.
func TestUploadStreams(t *testing.T) {
	sent := make(chan struct{})
	first := true
	src := oneShot("ab")
	src.Reader = iotestOneByte{strings.NewReader("ab")}
	src.onRead = func() {
		if !first {
			select {
			case <-sent:
			default:
				t.Error("the second byte is read before the first is sent")
			}
		}
		first = false
	}
	base := rt(func(req *http.Request) (*http.Response, error) {
		p := make([]byte, 1)
		n, err := req.Body.Read(p)
		assert.NoError(t, err)
		assert.Equal(t, "a", string(p[:n]))
		close(sent)
		rest, err := io.ReadAll(req.Body)
		assert.NoError(t, err)
		assert.Equal(t, "b", string(rest))
		_ = req.Body.Close()
		return play(req, status(200))
	})
	resp, err := mustNew(t, transport.Config{Base: base}).RoundTrip(newRequest(t, http.MethodPut, "http://h", src))
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, 1, src.closed())
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

func BenchmarkFirstTry(b *testing.B) {
	base := newNoop()
	tr := mustNew(b, transport.Config{Base: base})
	for _, row := range []struct {
		name string
		req  *http.Request
	}{
		{"GET", getRequest(b, "https://api.example.com/v1/things")},
		{"POST", postRequest(b, "https://api.example.com/v1/things")},
	} {
		for _, over := range []struct {
			name string
			rt   http.RoundTripper
		}{{"base", base}, {"aplomb", tr}} {
			b.Run(row.name+"/"+over.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = over.rt.RoundTrip(row.req)
				}
			})
		}
	}
}

func BenchmarkParallel(b *testing.B) {
	tr := mustNew(b, transport.Config{Base: newNoop()})
	b.Run("serial", func(b *testing.B) {
		req := getRequest(b, "https://api.example.com/v1/things")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = tr.RoundTrip(req)
		}
	})
	b.Run(fmt.Sprintf("parallel=%d", runtime.GOMAXPROCS(0)), func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			req := getRequest(b, "https://api.example.com/v1/things")
			for pb.Next() {
				_, _ = tr.RoundTrip(req)
			}
		})
	})
}

// BenchmarkManyHosts compares with a bare sync.Map lookup of the same keys in
// the same order. One request is used for all hosts: a real one has just been
// made, and is not what is cold.
func BenchmarkManyHosts(b *testing.B) {
	reqs := manyRequests(100_000)
	keys := make([]string, len(reqs))
	var bare sync.Map
	tr := mustNew(b, transport.Config{Base: newNoop()})
	for i, req := range reqs {
		keys[i] = req.URL.Host
		bare.Store(keys[i], new(int))
		_, _ = tr.RoundTrip(req)
	}
	b.Run("syncmap", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v, _ := bare.Load(keys[i%len(keys)])
			_ = v.(*int)
		}
	})
	b.Run("aplomb", func(b *testing.B) {
		b.ReportAllocs()
		req := reqs[0]
		for i := 0; b.Loop(); i++ {
			req.URL.Host = keys[i%len(keys)]
			_, _ = tr.RoundTrip(req)
		}
	})
}
