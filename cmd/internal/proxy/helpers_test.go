package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "s3cr3t"

// A logbook keeps what is written to it, and lets a test wait for a text in it.
type logbook struct {
	mu      sync.Mutex
	changed *sync.Cond
	text    bytes.Buffer
}

func newLogbook() *logbook {
	l := &logbook{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) count(text string) int { return strings.Count(l.String(), text) }

// wait returns when the text has been written n times.
func (l *logbook) wait(text string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for strings.Count(l.text.String(), text) < n {
		l.changed.Wait()
	}
}

// A running proxy runs in the test's own process.
type running struct {
	url, debug string
	log        *logbook
	hangup     chan os.Signal
	rules      string     // the file, if the test needs it
	stop       func() int // ends the proxy and returns its exit status
	expected   int        // the exit status
}

// start runs a proxy on free ports until the test ends.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{log: newLogbook(), hangup: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	up, status := make(chan struct{}), make(chan int, 1)
	w := world{stdout: r.log, stderr: r.log, hangup: r.hangup, ready: func(proxy, debug string) {
		r.url, r.debug = "http://"+proxy, "http://"+debug
		close(up)
	}}
	go func() {
		status <- run(ctx, append([]string{"-listen", "127.0.0.1:0", "-debug", "127.0.0.1:0"}, args...), w)
	}()
	r.stop = sync.OnceValue(func() int {
		cancel()
		return <-status
	})
	select {
	case <-up:
	case code := <-status:
		t.Fatalf("the proxy ended with status %d: %s", code, r.log)
	}
	t.Cleanup(func() {
		if code := r.stop(); code != r.expected && !t.Failed() {
			t.Errorf("exit status %d: %s", code, r.log)
		}
	})
	return r
}

// upstream starts a server that lasts as long as the test.
func upstream(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// client returns a client without retries, whose connections are closed with the test.
func client(t *testing.T) *http.Client {
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: base, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get returns the response to a GET, and its body.
func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := client(t).Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// rulesFile writes rules to a new file.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func assertLacksSecret(t *testing.T, text string) {
	t.Helper()
	assert.NotContains(t, text, secret)
}
