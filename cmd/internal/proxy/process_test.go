//go:build unix

package proxy

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fetchWith returns a function that fetches a URL with curl. Without curl it uses
// net/http.
func fetchWith(t *testing.T) func(url string) (status, body string) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Log("there is no curl: net/http takes its place")
		return func(url string) (string, string) {
			resp, body := get(t, url)
			return resp.Status[:3], body
		}
	}
	return func(url string) (string, string) {
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), curl, "-sS", "--noproxy", "*", "-w", "\n%{http_code}", url)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, errs.String())
		i := bytes.LastIndexByte(out, '\n')
		return string(out[i+1:]), string(out[:i])
	}
}

// A program with a process of its own is asked by curl, gets signals, and ends.
func TestProcess(t *testing.T) {
	var n atomic.Int64
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		hello(w, r)
	})
	fetch := fetchWith(t)
	path := rulesFile(t, demoRules)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // kills the process if the test fails
	cmd := exec.CommandContext(ctx, os.Args[0], "-to", to.URL, "-rules", path, "-poll", "0", "-listen", "127.0.0.1:0", "-debug", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), asProxy+"=1")
	log := newLogbook()
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	log.wait("proxy is up", 1)
	found := regexp.MustCompile(`listen=(\S+) debug=(\S+)`).FindStringSubmatch(log.String())
	require.Len(t, found, 3, log.String())
	proxy, debug := "http://"+found[1], "http://"+found[2]

	status, body := fetch(proxy)
	assert.Equal(t, "200", status)
	assert.Equal(t, "hello", body)

	require.NoError(t, replace(path, offRules))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	log.wait("new rules are in force", 1)
	status, _ = fetch(proxy)
	assert.Equal(t, "503", status)

	require.NoError(t, replace(path, badRules))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	log.wait("the old rules stay in force", 1)
	_, body = fetch(debug + "/metrics")
	assert.Contains(t, body, "proxy_rules_in_force 0\n")

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), log.String())
}
