package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

func TestForwarding(t *testing.T) {
	var got atomic.Pointer[http.Request]
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r)
		hello(w, r)
	})
	host := strings.TrimPrefix(to.URL, "http://")
	p := start(t, "-to", to.URL, "-to", "/pay/="+to.URL+"/v1", "-to", "/pay/eu/="+to.URL)
	for _, test := range []struct{ path, want string }{
		{"/", "/"},
		{"/a//b", "/a//b"},
		{"/../a", "/../a"},
		{"/a%2Fb/c?x=1;y=%zz&z", "/a%2Fb/c?x=1;y=%zz&z"},
		{"/pay/charges?n=1", "/v1/charges?n=1"},
		{"/pay/a%2Fb", "/v1/a%2Fb"},
		{"/pay/", "/v1/"},
		{"/pay/eu/charges", "/charges"},
		{"/pay", "/pay"},
		{"/pay/a..b/..c;x=../100%25/.", "/v1/a..b/..c;x=../100%25/."},
		{"/pay/a%252Fb", "/v1/a%252Fb"},
		{"/..;/a", "/..;/a"},
	} {
		t.Run(test.path, func(t *testing.T) {
			status, body := raw(t, p, "GET "+test.path+" HTTP/1.1")
			assert.Equal(t, 200, status)
			assert.Equal(t, "hello", body)
			assert.Equal(t, test.want, got.Load().RequestURI)
			assert.Equal(t, host, got.Load().Host)
		})
	}
}

// raw sends the line of a request as it is, because clients clean paths.
func raw(t *testing.T, p *running, request string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\nHost: shop.example\r\nConnection: close\r\n\r\n", request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestNotForwarded(t *testing.T) {
	var served atomic.Int64
	to := upstream(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	p := start(t, "-to", "/open/="+to.URL+"/public")
	for _, test := range []struct {
		request string
		status  int
	}{
		{"GET / HTTP/1.1", 404},
		{"GET /open HTTP/1.1", 404},
		{"GET /opener/ HTTP/1.1", 404},
		{"CONNECT 127.0.0.1:1 HTTP/1.1", 404},
		{"GET /open/../private HTTP/1.1", 400},
		{"GET /open/a/%2e%2E/../private HTTP/1.1", 400},
		{"GET /open/..%2fprivate HTTP/1.1", 400},
		{`GET /open/..%5cprivate HTTP/1.1`, 400},
		{"GET /open/..;/private HTTP/1.1", 400},
		{"GET /open/..;x=1/private HTTP/1.1", 400},
		{"GET /open/a/%2e%2e%3B/..;/private HTTP/1.1", 400},
		{"GET /open/%252e%252e/private HTTP/1.1", 400},
		{"GET /open/%25252e%25252e%25252fprivate HTTP/1.1", 400},
		{"GET /open/%2525252525252e/private HTTP/1.1", 400},
		{"GET /open/%25%32%65./private HTTP/1.1", 400},
		{"GET /open/%252e%252e/100%25 HTTP/1.1", 400},
		{"GET /open/..%00/private HTTP/1.1", 400},
		{"GET /open/..%20/private HTTP/1.1", 400},
		{"GET /open/.../private HTTP/1.1", 400},
	} {
		t.Run(test.request, func(t *testing.T) {
			status, _ := raw(t, p, test.request)
			assert.Equal(t, test.status, status)
		})
	}
	assert.Zero(t, served.Load())
}

func TestLoop(t *testing.T) {
	// The first proxy forwards to the second, and the second to the first.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	second := l.Addr().String()
	l.Close()
	p := start(t, "-to", "http://"+second)
	start(t, "-to", p.url, "-listen", second)
	resp, body := get(t, p.url)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, "passed this proxy before")
}

func TestForwardedHeaders(t *testing.T) {
	var got atomic.Pointer[http.Header]
	to := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) })
	send := func(p *running) http.Header {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
		require.NoError(t, err)
		req.Host = "shop.example"
		req.Header = http.Header{
			"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"}, "Forwarded": {"for=192.0.2.1"},
			"Connection": {"X-Hop"}, "X-Hop": {"1"}, "User-Agent": {""}, "Accept-Encoding": {"identity"},
		}
		resp, err := client(t).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		return *got.Load()
	}
	t.Run("of strangers are replaced", func(t *testing.T) {
		h := send(start(t, "-to", to.URL))
		assert.Equal(t, "127.0.0.1", h.Get("X-Forwarded-For"))
		assert.Equal(t, "http", h.Get("X-Forwarded-Proto"))
		assert.Equal(t, "shop.example", h.Get("X-Forwarded-Host"))
		assert.Regexp(t, `^1\.1 aplomb-\w+$`, h.Get("Via"))
		assert.Equal(t, "identity", h.Get("Accept-Encoding"))
		assert.NotContains(t, h, "Forwarded")
		assert.NotContains(t, h, "X-Hop")
		assert.NotContains(t, h, "User-Agent")
	})
	t.Run("of trusted proxies are kept", func(t *testing.T) {
		h := send(start(t, "-to", to.URL, "-trust"))
		assert.Equal(t, "192.0.2.1, 127.0.0.1", h.Get("X-Forwarded-For"))
		assert.Equal(t, "https", h.Get("X-Forwarded-Proto"))
		assert.Equal(t, "shop.example", h.Get("X-Forwarded-Host"))
		assert.Equal(t, "for=192.0.2.1", h.Get("Forwarded"))
	})
}

// A stranger says nothing about the way of its request in a field that the proxy does not set,
// nor under a name that CGI and WSGI take for the same.
func TestForwardingFieldsOfStrangers(t *testing.T) {
	var got atomic.Pointer[http.Header]
	to := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) })
	fields := []string{
		"X-Real-Ip", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Ssl", "X-Original-Url", "X-Rewrite-Url", "True-Client-Ip",
		"X_Forwarded_For", "X_forwarded-Host", "X-Forwarded_Proto", "x_real_ip", "X_Original_URL", "X.Real.IP", "x!forwarded~for",
	}
	send := func(p *running) http.Header {
		lines := ""
		for _, name := range fields {
			lines += "\r\n" + name + ": stranger"
		}
		status, _ := raw(t, p, "GET / HTTP/1.1\r\nX-Own: 1\r\nX_own: 1"+lines)
		require.Equal(t, http.StatusOK, status)
		return *got.Load()
	}
	h := send(start(t, "-to", to.URL))
	assert.Equal(t, "127.0.0.1", h.Get("X-Forwarded-For"))
	assert.Equal(t, "shop.example", h.Get("X-Forwarded-Host"))
	for name, values := range h {
		assert.NotContains(t, values, "stranger", name)
	}
	assert.Contains(t, h, "X-Own")
	assert.Contains(t, h, "X_own")
	h = send(start(t, "-to", to.URL, "-trust"))
	for _, name := range fields {
		assert.Equal(t, "stranger", h.Get(name), name)
	}
}

func TestRetriesAreInvisible(t *testing.T) {
	var n atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(body)
	})
	p := start(t, "-to", to.URL, "-rules", rulesFile(t, demoRules))
	resp, body := send(t, http.MethodPut, p.url, strings.NewReader("whole body"), nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "whole body", body)
	assert.EqualValues(t, 3, n.Load())
	assert.NotContains(t, resp.Header, "Proxy-Status")
}

// send sends a request whose body has no length and cannot be made anew.
func send(t *testing.T, method, url string, body io.Reader, trailer http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, io.NopCloser(body))
	require.NoError(t, err)
	req.Trailer = trailer
	resp, err := client(t).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestCutDownloadIsContinued(t *testing.T) {
	body := testserver.Pattern(300_000)
	var n atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if n.Add(1) == 1 {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body[:100_000])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
	p := start(t, "-to", to.URL, "-rules", rulesFile(t, demoRules))
	resp, got := get(t, p.url)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, string(body), got)
	assert.EqualValues(t, 2, n.Load())
}

func TestCutDownloadStaysCut(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half") // without a validator
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	p := start(t, "-to", to.URL, "-rules", rulesFile(t, demoRules))
	resp, err := client(t).Get(p.url)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "a cut body must not look whole")
	p.stop()
}

func TestTrailers(t *testing.T) {
	var n atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Trailer", "X-Announced")
		_, _ = w.Write(body)
		w.Header().Set("X-Announced", r.Trailer.Get("X-Sum"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	})
	p := start(t, "-to", to.URL, "-rules", rulesFile(t, demoRules))
	resp, body := send(t, http.MethodPut, p.url, strings.NewReader("with a trailer"), http.Header{"X-Sum": {"7"}})
	assert.Equal(t, "with a trailer", body)
	assert.EqualValues(t, 2, n.Load())
	assert.Equal(t, "7", resp.Trailer.Get("X-Announced"))
	assert.Equal(t, "late", resp.Trailer.Get("X-Late"))
}

// A trailer cannot set a field that the proxy replaces or removes in the header.
func TestTrailersOfStrangers(t *testing.T) {
	var got atomic.Pointer[http.Header]
	to := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		trailer := r.Trailer.Clone()
		got.Store(&trailer)
	})
	p := start(t, "-to", to.URL)
	call := func(announced string, fields ...string) http.Header {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n1\r\nx\r\n0\r\n%s\r\n\r\n",
			announced, strings.Join(fields, "\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return *got.Load()
	}
	assert.Equal(t, http.Header{"X-Amz-Checksum-Sha256": {"1", "2"}}, call("x-amz-checksum-sha256", "x-amz-checksum-sha256: 1", "X-Amz-Checksum-Sha256: 2"))
	bad := []string{"X-Forwarded-For", "X_forwarded-For", "Content_Type", "HTTP2-Settings", "authorization", "Via", "Cookie", "X-Real-IP", "Forwarded", "If-Match", "X-Forwarded-Proto", "Proxy-Authorization"}
	fields := []string{"X-Sum: 1"}
	for _, name := range bad {
		fields = append(fields, name+": 192.0.2.1")
	}
	assert.Equal(t, http.Header{"X-Sum": {"1"}}, call("X-Sum, "+strings.Join(bad, ", "), fields...))
	assert.Equal(t, http.Header{"X-Sum": {"1"}}, call("X-Sum", fields...), "not announced")
}

// net/http takes such a response, and panics when it is to send it.
func TestNonsenseStatus(t *testing.T) {
	for _, status := range []string{"000", "001", "099"} {
		to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 %s what\r\nContent-Length: 0\r\n\r\n", status)
		})
		p := start(t, "-to", to.URL)
		code, body := raw(t, p, "GET / HTTP/1.1")
		assert.Equal(t, http.StatusBadGateway, code)
		assert.Contains(t, body, status)
		assert.NotContains(t, p.log.String(), "panic")
		_, metrics := get(t, p.debug+"/metrics")
		assert.Contains(t, metrics, `proxy_responses_total{code="502"} 1`)
		assert.NotContains(t, metrics, `proxy_responses_total{code="0`)
	}
}

// The upstream sends each piece only when the client has the piece before.
func TestStreaming(t *testing.T) {
	next := make(chan struct{})
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		for _, piece := range "abc" {
			_, _ = io.WriteString(w, string(piece))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	})
	p := start(t, "-to", to.URL)
	resp, err := client(t).Get(p.url)
	require.NoError(t, err)
	defer resp.Body.Close()
	for _, piece := range "abc" {
		var b [1]byte
		_, err := io.ReadFull(resp.Body, b[:])
		require.NoError(t, err)
		assert.Equal(t, string(piece), string(b[:]))
		next <- struct{}{}
	}
}

// The client sends each piece only when it has the piece before.
func TestUpgrade(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	})
	p := start(t, "-to", to.URL)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	for range 3 {
		fmt.Fprint(conn, "ping\n")
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "ping\n", line)
	}
	// The end of the proxy ends the connection.
	assert.Equal(t, exitFine, p.stop())
	_, err = r.ReadByte()
	require.Error(t, err)
}

// An upgrade to HTTP would be a tunnel for requests that the proxy does not see. It never
// passes. A route can turn off the others.
func TestNoTunnelForRequests(t *testing.T) {
	upgraded := make(chan string, 1)
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Http2-Settings"]; ok || r.Header["Http2_settings"] != nil {
			http.Error(w, "HTTP2-Settings", http.StatusBadRequest)
			return
		}
		name := r.Header.Get("Upgrade")
		if name == "" && r.URL.Path != "/forced" {
			hello(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		upgraded <- name
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n")
		if name != "" {
			fmt.Fprintf(conn, "Connection: Upgrade\r\nUpgrade: %s\r\n", name)
		}
		fmt.Fprint(conn, "\r\n")
	})
	p := start(t, "-to", to.URL, "-to", "/plain/="+to.URL, "-no-upgrade", "/plain/")
	for _, test := range []struct {
		path, fields string
		status       int
	}{
		{"/", "Connection: Upgrade\r\nUpgrade: websocket", 101},
		{"/", "Connection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1", 101},
		{"/plain/", "Connection: Upgrade\r\nUpgrade: websocket", 200},
		{"/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: H2C\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: websocket\r\nHTTP2_Settings: AAMAAABkAARAAAAAAAIAAAAA", 101},
		{"/", "Connection: Upgrade\r\nUpgrade: websocket, h2c", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: h2c,websocket", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: h2c ;x", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: h2c-14", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: HTTP/2.0", 200},
		{"/", "Connection: Upgrade\r\nUpgrade: TLS/1.0", 200},
		{"/forced", "X-None: 1", 502},
		{"/plain/forced", "Connection: Upgrade\r\nUpgrade: websocket", 502},
	} {
		t.Run(test.path+" "+test.fields, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", test.path, test.fields)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, test.status, resp.StatusCode)
			if test.status != 200 {
				<-upgraded
			}
		})
	}
}

func TestLargeUpload(t *testing.T) {
	const size = 64 << 20
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
	})
	p := start(t, "-to", to.URL)
	sum := sha256.New()
	body := io.TeeReader(io.LimitReader(zeros{}, size), sum)
	_, got := send(t, http.MethodPut, p.url, body, nil)
	assert.Equal(t, fmt.Sprintf("%d %x", size, sum.Sum(nil)), got)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
