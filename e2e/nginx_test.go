// nginx from Debian, with a configuration of our own. It is installed if it is
// missing and the tests run as root.

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/transport"
)

// nginxProgram returns the path of nginx. CI must have it.
var nginxProgram = sync.OnceValues(func() (string, error) {
	const path = "/usr/sbin/nginx" // which is not on the PATH of most users
	if _, err := exec.LookPath(path); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("nginx is not installed, and only root can install it")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "nginx"}} {
		c := exec.CommandContext(ctx, "apt-get", args...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1") // starts no service
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return exec.LookPath(path)
})

// nginxConf serves the folder files, over HTTP/1.1 at the first address and over
// TLS at the second. Requests to /app/ go to a server of Go. The last two lines are
// for the server and for each location.
const nginxConf = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log %[1]s/error.log;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 0;
	limit_req_zone $binary_remote_addr zone=limit:1m rate=20r/s;
	server {
		listen %[2]s;
		listen %[3]s ssl http2;
		ssl_certificate %[1]s/cert.pem;
		ssl_certificate_key %[1]s/key.pem;
		root %[1]s/files;
		%[5]s
		location /app/ {
			proxy_pass %[4]s;
			%[6]s
		}
	}
}`

// nginx is a running nginx.
type nginx struct {
	url     string
	files   string  // the folder that it serves
	plain   string  // its address for HTTP/1.1
	secure  string  // its address for HTTP/2
	backend *server // gets the requests to /app/
	cert    *x509.CertPool
}

// newNginx runs nginx until the test ends.
func newNginx(t *testing.T, server, app string) *nginx {
	program, err := nginxProgram()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	dir := t.TempDir()
	n := &nginx{files: filepath.Join(dir, "files"), cert: x509.NewCertPool()}
	require.NoError(t, os.Mkdir(n.files, 0o755))
	n.certify(t, dir)
	n.backend = newServer(t, func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = w.Write(sum(whole(req)))
		})
	})
	var log string
	for range 5 { // another program may take the ports in between
		n.plain, n.secure = freeAddress(t), freeAddress(t)
		text := fmt.Sprintf(nginxConf, dir, n.plain, n.secure, n.backend.url, server, app)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "conf"), []byte(text), 0o600))
		if log = n.start(t, program, dir); log == "" {
			n.url = "http://" + n.plain
			return n
		}
	}
	require.FailNow(t, "nginx doesn't start", log)
	return nil
}

// start runs nginx until the test ends. If it does not get its ports, start returns
// its log.
func (n *nginx) start(t testing.TB, program, dir string) string {
	var out bytes.Buffer
	c := exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "conf"))
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // even if the tests are killed
	require.NoError(t, c.Start())
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	stop := func() {
		_ = c.Process.Kill()
		<-ended
	}
	for range 3000 {
		select {
		case <-ended:
			return out.String()
		case <-time.After(10 * time.Millisecond):
		}
		// nginx writes the file when it has all of its ports. While another program has one of
		// them, nginx listens at the others, and tries again.
		if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
			t.Cleanup(stop)
			return ""
		}
	}
	stop()
	return "not ready: " + out.String()
}

// freeAddress returns an address that nobody listened at a moment ago.
func freeAddress(t testing.TB) string {
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// certify gives nginx the certificate of httptest, which n.cert trusts.
func (n *nginx) certify(t testing.TB, dir string) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	n.cert.AddCert(s.Certificate())
	cert := s.TLS.Certificates[0]
	secret := testkit.Must(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))(t)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// put makes nginx serve some content, as a new version.
func (n *nginx) put(t testing.TB, name string, b []byte) {
	file := filepath.Join(n.files, name)
	require.NoError(t, os.WriteFile(file+".new", b, 0o644))
	require.NoError(t, os.Rename(file+".new", file))
}

// fetch makes a request and returns the content of a response with status 200.
func fetch(ctx context.Context, hc *http.Client, method, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return finish(hc.Do(req))
}

// finish reads a response. A status other than 200 is an error.
func finish(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return b, err
}

// A statusError is a status that was not expected.
type statusError int

func (e statusError) Error() string { return http.StatusText(int(e)) }

// secureBase is a transport of net/http that speaks HTTP/2 over TLS through the
// network.
func (n *nginx) secureBase(t testing.TB, through *network) *http.Transport {
	b := base(t, through, false)
	b.Protocols.SetHTTP1(false)
	b.Protocols.SetHTTP2(true)
	b.TLSClientConfig = &tls.Config{RootCAs: n.cert}
	return b
}

// A download of 8 MiB continues after each cut, over both protocols.
func TestNginxDownload(t *testing.T) {
	n := newNginx(t, "", "")
	want := content(8 << 20)
	n.put(t, object, want)
	protocols := []struct {
		name, url, target string
		base              func(testing.TB, *network) *http.Transport
	}{
		{"HTTP 1", n.url, n.plain, func(t testing.TB, w *network) *http.Transport { return base(t, w, false) }},
		{"HTTP 2", "https://" + n.secure, n.secure, n.secureBase},
	}
	for _, p := range protocols {
		for name, cut := range map[string][]toxic{"reset": resetAfter(down, 3<<20), "limit_data": cutAfter(down, 3<<20)} {
			t.Run(p.name+" "+name, func(t *testing.T) {
				w := newNetwork(t, p.target)
				require.NoError(t, w.set(cut...))
				_, err := fetch(bounded(t), &http.Client{Transport: p.base(t, w)}, http.MethodGet, p.url+"/"+object, nil)
				require.Error(t, err)

				hc, r := under(t, p.base(t, w), policy.Rule{}, nil)
				got := testkit.Must(fetch(bounded(t), hc, http.MethodGet, p.url+"/"+object, nil))(t)
				require.True(t, bytes.Equal(want, got))
				require.GreaterOrEqual(t, len(r.told()), 2)
				for _, e := range r.told() {
					assert.Equal(t, transport.ReasonRetry, e.Reason)
				}
			})
		}
	}
}

// The rest of a download is asked for if its range is a single one, and its validator is
// strong. In the other cases it is fetched again. If it is always cut at the same byte, it
// then ends with an error, after the right bytes.
func TestNginxValidators(t *testing.T) {
	whole := content(1 << 20)
	old, now := time.Now().Add(-time.Hour), time.Now()
	tests := []struct {
		name, server      string
		header            http.Header
		mtime             time.Time
		want              []byte // nil: not compared
		continued, differ bool   // differ: so is each response
	}{
		{name: "a range of the caller", header: http.Header{"Range": {"bytes=1000-900000"}}, want: whole[1000:900001], continued: true},
		{name: "a range to the end", header: http.Header{"Range": {"bytes=1000-"}}, want: whole[1000:], continued: true},
		{name: "a range of the last bytes", header: http.Header{"Range": {"bytes=-900000"}}, want: whole[len(whole)-900000:], continued: true},
		{name: "two ranges", header: http.Header{"Range": {"bytes=0-500000,600000-1000000"}}, differ: true}, // each has its own boundary
		{name: "an old date", server: "etag off;", mtime: old, want: whole, continued: true},
		{name: "a date of now", server: "etag off;", mtime: now, want: whole},
		{name: "no date", server: "etag off; if_modified_since off; add_header Last-Modified '';", mtime: old, want: whole},
		{name: "no ranges", server: "max_ranges 0;", want: whole},
		{name: "a compressed file", server: "gzip_static on;", header: http.Header{"Accept-Encoding": {"gzip"}}, want: whole}, // has no ranges
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNginx(t, test.server, "")
			n.put(t, object, whole)
			n.put(t, object+".gz", whole) // nobody looks into it
			if !test.mtime.IsZero() {
				require.NoError(t, os.Chtimes(filepath.Join(n.files, object), test.mtime, test.mtime))
			}
			w := newNetwork(t, n.plain)
			require.NoError(t, w.set(cutAfter(down, 400_000)...))
			get := func(hc *http.Client) ([]byte, error) {
				req := testkit.Must(http.NewRequestWithContext(bounded(t), http.MethodGet, n.url+"/"+object, nil))(t)
				for name, values := range test.header {
					req.Header[name] = values
				}
				resp := testkit.Must(hc.Do(req))(t)
				defer func() { _ = resp.Body.Close() }()
				return io.ReadAll(resp.Body)
			}
			_, err := get(&http.Client{Transport: base(t, w, false)})
			require.Error(t, err, "bare")
			hc, r := under(t, base(t, w, false), policy.Rule{}, nil)
			got, err := get(hc)
			if test.continued {
				require.NoError(t, err)
				require.True(t, bytes.Equal(test.want, got))
				return
			}
			require.Error(t, err)
			if test.want != nil {
				assert.NotEmpty(t, got)
				assert.True(t, bytes.HasPrefix(test.want, got))
			}
			told := r.told()
			require.NotEmpty(t, told)
			if test.differ {
				assert.Equal(t, transport.ReasonNotResumable, told[len(told)-1].Reason)
				return
			}
			assert.Equal(t, transport.ReasonNotResumable, told[len(told)-1].Reason, "the bound of MaxRefetch")

			hc, _ = under(t, base(t, w, false), policy.Rule{}, func(int, transport.AttemptEnd) { assert.NoError(t, w.set()) })
			got, err = get(hc)
			require.NoError(t, err, "cut once")
			require.True(t, bytes.Equal(test.want, got))
		})
	}
}

// If the file is replaced during the download, the versions are not spliced.
func TestNginxNewVersion(t *testing.T) {
	n := newNginx(t, "", "")
	old := content(1 << 20)
	n.put(t, object, old)
	w := newNetwork(t, n.plain)
	require.NoError(t, w.set(cutAfter(down, 512<<10)...))
	hc, r := under(t, base(t, w, false), policy.Rule{}, func(i int, _ transport.AttemptEnd) {
		if i == 1 {
			n.put(t, object, bytes.Repeat([]byte("new"), len(old)))
		}
	})
	got, err := fetch(bounded(t), hc, http.MethodGet, n.url+"/"+object, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.NotEmpty(t, got)
	assert.True(t, bytes.HasPrefix(old, got))
	told := r.told()
	require.Len(t, told, 2)
	assert.Equal(t, transport.ReasonRetry, told[0].Reason)
	assert.Equal(t, transport.ReasonNotResumable, told[1].Reason)
}

// nginx compresses as it sends, without a length. net/http decompresses, so there is no
// rest to ask for, and the download is fetched again. If the client asks for plain
// content, the download continues.
func TestNginxGzip(t *testing.T) {
	n := newNginx(t, "gzip on; gzip_types *;", "")
	text := []byte(base64.StdEncoding.EncodeToString(content(1 << 20)))
	n.put(t, "text", text)
	w := newNetwork(t, n.plain)
	get := func(hc *http.Client, encoding string) ([]byte, error) {
		req := testkit.Must(http.NewRequestWithContext(bounded(t), http.MethodGet, n.url+"/text", nil))(t)
		if encoding != "" {
			req.Header.Set("Accept-Encoding", encoding)
		}
		return finish(hc.Do(req))
	}
	bare := &http.Client{Transport: base(t, w, false)}
	hc, r := under(t, base(t, w, false), policy.Rule{}, nil)
	got := testkit.Must(get(hc, ""))(t)
	require.True(t, bytes.Equal(text, got))

	require.NoError(t, w.set(cutAfter(down, 512<<10)...))
	for _, encoding := range []string{"", "gzip", "identity"} {
		_, err := get(bare, encoding)
		require.Error(t, err, "a bare client that accepts %q", encoding)
	}
	_, err := get(hc, "")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = get(hc, "gzip") // with a weak ETag
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	told := r.told()
	assert.Equal(t, transport.ReasonNotResumable, told[len(told)-1].Reason, "the bound of MaxRefetch")
	for _, encoding := range []string{"", "gzip"} {
		require.NoError(t, w.set(cutAfter(down, 512<<10)...))
		healed, again := under(t, base(t, w, false), policy.Rule{}, func(int, transport.AttemptEnd) { assert.NoError(t, w.set()) })
		_, err = get(healed, encoding)
		require.NoError(t, err, "cut once")
		assert.Len(t, again.told(), 1, "attempts told")
	}
	require.NoError(t, w.set(cutAfter(down, 512<<10)...))
	got = testkit.Must(get(hc, "identity"))(t)
	require.True(t, bytes.Equal(text, got))
	assert.NotEmpty(t, r.told())
}

// limit_req refuses requests before the backend sees them. A bare client loses
// some. With aplomb each is acted on once, POST as well, and waits as long as
// nginx asked.
func TestNginxLimitReq(t *testing.T) {
	for _, status := range []string{"429", "503"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(method+" "+status, func(t *testing.T) {
				t.Parallel()
				n := newNginx(t, "limit_req_status "+status+"; add_header Retry-After 1 always;", "limit_req zone=limit;")
				storm := func(hc *http.Client) (failed int) {
					n.backend.answer(nil)
					var mu sync.Mutex
					var group sync.WaitGroup
					for i := range 4 {
						group.Go(func() {
							b := content(1000 + i)
							got, err := fetch(bounded(t), hc, method, n.url+"/app/", b)
							assert.False(t, err == nil && !bytes.Equal(got, sum(b)), "the backend got another body")
							if err != nil {
								mu.Lock()
								defer mu.Unlock()
								failed++
							}
						})
					}
					group.Wait()
					return failed
				}
				w := newNetwork(t, n.plain)
				bare := &http.Client{Transport: base(t, w, false)}
				failed := 0
				for range 20 {
					failed += storm(bare)
				}
				require.NotZero(t, failed)

				// The storms so far leave no request free.
				hc, r := under(t, base(t, w, false), profile.API().Or(policy.Rule{MaxAttempts: 30, RetryBudget: policy.RetryBudget{Enabled: policy.Off}}), nil)
				assert.Zero(t, storm(hc))
				assert.Equal(t, 4, n.backend.seen(), "requests that arrived")
				require.NotEmpty(t, r.told())
				for _, e := range r.told() {
					assert.Equal(t, time.Second, e.Attempt.RetryAfter)
					assert.GreaterOrEqual(t, e.Attempt.Delay, e.Attempt.RetryAfter)
				}
			})
		}
	}
}

// nginx closes an idle connection, and the client hears of it only after it has
// sent the next request. This breaks a PUT and a POST, because net/http repeats
// only methods that change nothing. aplomb repeats the PUT. It repeats the POST only
// if the caller says that it may, because it cannot know whether the backend has
// acted.
func TestNginxKeepAlive(t *testing.T) {
	type result struct {
		err  error
		seen int // requests at the backend
		told []transport.AttemptEnd
	}
	// lost makes two requests on one connection, until the connection was lost in
	// between. nginx may be late on a busy machine.
	lost := func(t *testing.T, ctx context.Context, method string, bare bool) result {
		n := newNginx(t, "keepalive_timeout 20ms;", "")
		w := newNetwork(t, n.plain)
		require.NoError(t, w.set(newToxic("slow_close", down, "delay", 1000)))
		for range 20 {
			hc, r := under(t, base(t, w, false), policy.Rule{}, nil)
			if bare {
				hc.Transport = base(t, w, false)
			}
			n.backend.answer(nil)
			testkit.Must(fetch(ctx, hc, method, n.url+"/app/", []byte("first")))(t)
			time.Sleep(200 * time.Millisecond) // nginx closes, and the client does not hear of it yet
			_, err := fetch(ctx, hc, method, n.url+"/app/", []byte("second"))
			if err != nil || len(r.told()) > 0 {
				return result{err, n.backend.seen(), r.told()}
			}
		}
		require.FailNow(t, "the connection was never lost")
		return result{}
	}
	for _, method := range []string{http.MethodPut, http.MethodPost} {
		t.Run("bare "+method, func(t *testing.T) {
			t.Parallel()
			err := lost(t, bounded(t), method, true).err
			require.Error(t, err)
			assert.True(t, strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "reset"), "%v", err)
		})
	}
	for _, row := range []struct {
		name, method string
		ctx          func(context.Context) context.Context
		seen         int
		reason       transport.Reason
	}{
		{"PUT", http.MethodPut, nil, 2, transport.ReasonRetry},
		{"POST", http.MethodPost, nil, 1, transport.ReasonNotIdempotent},
		{"POST that may be repeated", http.MethodPost, transport.WithIdempotent, 2, transport.ReasonRetry},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			if row.ctx != nil {
				ctx = row.ctx(ctx)
			}
			got := lost(t, ctx, row.method, false)
			assert.Equal(t, row.seen == 1, got.err != nil, "%v", got.err)
			assert.Equal(t, row.seen, got.seen, "requests that arrived")
			assert.Equal(t, row.reason, got.told[0].Reason)
			assert.True(t, row.seen == 2 || len(got.told) == 1, "%d attempts told", len(got.told))
		})
	}
}

// Over HTTP/2 an upload that is refused is sent again whole, and so is an upload
// that is cut.
func TestNginxHTTP2(t *testing.T) {
	n := newNginx(t, "", "")
	w := newNetwork(t, n.secure)
	url := "https://" + n.secure + "/app/"
	bare := func() *http.Client { return &http.Client{Transport: n.secureBase(t, w)} }

	refused := content(1 << 20)
	busy := func(i int, w http.ResponseWriter, req *http.Request) bool {
		b, _ := io.ReadAll(req.Body) // or else nginx says 502
		req.Body = io.NopCloser(bytes.NewReader(b))
		return busyUntil(3)(i, w, req)
	}
	n.backend.answer(busy)
	_, err := fetch(bounded(t), bare(), http.MethodPost, url, refused)
	require.Equal(t, statusError(http.StatusServiceUnavailable), err)
	hc, r := under(t, n.secureBase(t, w), profile.API(), nil)
	n.backend.answer(busy)
	got := testkit.Must(fetch(bounded(t), hc, http.MethodPost, url, refused))(t)
	assert.Equal(t, sum(refused), got)
	require.Len(t, r.told(), 2, "attempts told")
	assert.Equal(t, 2, r.told()[0].Response.ProtoMajor)

	cut := content(4 << 20)
	n.backend.answer(nil)
	require.NoError(t, w.set(resetAfter(up, 1<<20)...))
	_, err = fetch(bounded(t), bare(), http.MethodPut, url, cut)
	require.Error(t, err)
	hc, r = under(t, n.secureBase(t, w), policy.Rule{}, func(i int, _ transport.AttemptEnd) {
		if i == 1 {
			assert.NoError(t, w.set())
		}
	})
	got = testkit.Must(fetch(bounded(t), hc, http.MethodPut, url, cut))(t)
	assert.Equal(t, sum(cut), got)
	assert.Len(t, r.told(), 1, "attempts told")
	assert.Equal(t, 1, n.backend.seen(), "nginx passes on whole requests only")
}
