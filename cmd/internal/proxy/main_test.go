package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With this variable the test binary is the proxy itself.
const asProxy = "APLOMB_TEST_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(asProxy) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestCommandLine(t *testing.T) {
	const to = "http://127.0.0.1:1"
	for _, test := range []struct {
		args string
		code int
		text string
	}{
		{"-h", exitFine, "Exit status:"},
		{"", exitUsage, "no upstream"},
		{"-to " + to + " more", exitUsage, `unexpected argument "more"`},
		{"-nonsense", exitUsage, "-nonsense"},
		{"-to ftp://a.example", exitUsage, "http://HOST"},
		{"-to a.example", exitUsage, "http://HOST"},
		{"-to http://", exitUsage, "http://HOST"},
		{"-to http://me:" + secret + "@a.example", exitUsage, "no user"},
		{"-to http://me:" + secret + "@a.example:port", exitUsage, "cannot be read"},
		{"-to http://a.example/?key=" + secret, exitUsage, "no query"},
		{"-to /a=" + to, exitUsage, "end with a slash"},
		{"-to " + to + " -to /=" + to, exitUsage, "twice"},
		{"-to " + to + " -no-upgrade /a/", exitUsage, "no -to has the prefix /a/"},
		{"-to " + to + " -poll -1s", exitUsage, "-poll is negative"},
		{"-to " + to + " -grace -1s", exitUsage, "-grace is negative"},
		{"-to " + to + " -log loud", exitUsage, "loud"},
		{"-demo -to " + to, exitUsage, "-demo takes no other flag"},
		{"-to " + to + " -listen 127.0.0.1:port", exitFailed, "port"},
		{"-to " + to + " -listen 127.0.0.1:0 -debug 127.0.0.1:port", exitFailed, "port"},
	} {
		t.Run(test.args, func(t *testing.T) {
			log := newLogbook()
			code := run(t.Context(), strings.Fields(test.args), world{stdout: log, stderr: log})
			assert.Equal(t, test.code, code)
			assert.Contains(t, log.String(), test.text)
			if test.code == exitUsage {
				assert.Contains(t, log.String(), "aplomb proxy -h explains")
			}
		})
	}
}

func TestCommandLineKeepsSecrets(t *testing.T) {
	for _, to := range []string{"http://me:" + secret + "@a.example", "http://me:" + secret + "@a.example:port", "http://a.example/?key=" + secret} {
		log := newLogbook()
		run(t.Context(), []string{"-to=" + to}, world{stdout: log, stderr: log})
		assertLacksSecret(t, log.String())
	}
}

func TestDemo(t *testing.T) {
	out := newLogbook()
	code := run(t.Context(), []string{"-demo"}, world{stdout: out, stderr: out})
	assert.Equal(t, exitFine, code, out.String())
	assert.Contains(t, out.String(), "All of this is as promised.")
}

// slow is a proxy whose upstream has a request under way.
func slow(t *testing.T, args ...string) (p *running, release chan struct{}, response *bufio.Reader) {
	arrived := make(chan struct{})
	release = make(chan struct{})
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-release:
			hello(w, r)
		case <-r.Context().Done():
		}
	})
	p = start(t, append(args, "-to", to.URL)...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	<-arrived
	return p, release, bufio.NewReader(conn)
}

func TestEndWaitsForRequests(t *testing.T) {
	p, release, response := slow(t)
	code := make(chan int, 1)
	go func() { code <- p.stop() }()
	p.log.wait("proxy ends", 1)
	close(release)
	resp, err := http.ReadResponse(response, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(body))
	assert.Equal(t, exitFine, <-code)
}

func TestEndOfTheGrace(t *testing.T) {
	p, _, response := slow(t, "-grace", "1ms")
	p.expected = exitFailed
	assert.Equal(t, exitFailed, p.stop())
	assert.Contains(t, p.log.String(), "requests were cut off")
	resp, err := http.ReadResponse(response, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}
