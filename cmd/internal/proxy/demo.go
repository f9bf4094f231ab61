// The -demo flag. It forwards requests to an upstream that has faults, changes the
// rules meanwhile, and checks the result.

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// demoTime bounds the demonstration, which takes about a second.
const demoTime = 30 * time.Second

func demo(ctx context.Context, w world) int {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "aplomb-proxy-demo")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = demonstrate(ctx, w, filepath.Join(dir, "rules.json"))
	}
	if err != nil {
		fmt.Fprintf(w.stderr, "aplomb proxy: NOT AS PROMISED: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(w.stdout, "\nAll of this is as promised.")
	return exitFine
}

const (
	demoRules = `{"rule": {"attempts": 4, "backoff": {"type": "constant", "delay": "10ms"}}}`
	offRules  = `{"rule": {"attempts": "off"}}`
	badRules  = `{"rule": {"attempts": "four"}}`
)

// A demonstration is a client of a proxy that runs in this program.
type demonstration struct {
	w            world
	proxy, debug string // URLs
	rules        string
}

func demonstrate(ctx context.Context, w world, rules string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	upstream := &http.Server{Handler: &flaky{}}
	go func() { _ = upstream.Serve(l) }()
	defer func() { _ = upstream.Close() }()
	if err := replace(rules, demoRules); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	d := &demonstration{w: w, rules: rules}
	up, ended := make(chan struct{}), make(chan int, 1)
	inner := world{stdout: w.stdout, stderr: w.stdout, base: w.base, ready: func(proxy, debug string) {
		d.proxy, d.debug = "http://"+proxy, "http://"+debug
		close(up)
	}}
	go func() {
		args := []string{"-to", "http://" + l.Addr().String(), "-rules", rules, "-listen", "127.0.0.1:0", "-debug", "127.0.0.1:0", "-poll", "10ms"}
		ended <- run(running, args, inner)
	}()
	select {
	case <-up:
	case code := <-ended:
		return fmt.Errorf("the proxy ended with status %d", code)
	}
	err = d.show(ctx)
	stop()
	if code := <-ended; err == nil && code != exitFine {
		err = fmt.Errorf("the proxy ended with status %d", code)
	}
	return err
}

func (d *demonstration) show(ctx context.Context) error {
	d.say("An upstream fails every second time. The client of the proxy does not notice:")
	for range 3 {
		if err := d.get(ctx, "/", http.StatusOK); err != nil {
			return err
		}
	}
	d.say("New rules turn the retries off. They are in force without a restart:")
	if err := d.change(ctx, offRules, `proxy_rules_reloads_total{result="taken"} 2`); err != nil {
		return err
	}
	if err := d.get(ctx, "/down", http.StatusServiceUnavailable); err != nil {
		return err
	}
	d.say("Rules with a mistake change nothing, and the log says why:")
	if err := d.change(ctx, badRules, `proxy_rules_reloads_total{result="refused"} 1`); err != nil {
		return err
	}
	d.say("Some of the metrics at " + d.debug + "/metrics:")
	text, err := d.metrics(ctx)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "aplomb_attempts_total") || strings.HasPrefix(line, "aplomb_outcomes_total") || strings.HasPrefix(line, "proxy_r") && !strings.Contains(line, "duration") {
			fmt.Fprint(d.w.stdout, line)
		}
	}
	return err
}

func (d *demonstration) say(text string) { fmt.Fprintf(d.w.stdout, "\n%s\n\n", text) }

// get sends a request through the proxy.
func (d *demonstration) get(ctx context.Context, path string, want int) error {
	status, body, err := fetch(ctx, d.proxy+path)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.w.stdout, "GET %s: %d %s\n", path, status, strings.TrimSpace(body))
	if status != want {
		return fmt.Errorf("status %d instead of %d", status, want)
	}
	return nil
}

// change writes rules, and waits until the metrics say that they were judged.
func (d *demonstration) change(ctx context.Context, rules, sample string) error {
	if err := replace(d.rules, rules); err != nil {
		return err
	}
	for {
		text, err := d.metrics(ctx)
		if err != nil || strings.Contains(text, sample+"\n") {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("the proxy did not notice the new rules")
		}
	}
}

func (d *demonstration) metrics(ctx context.Context) (string, error) {
	_, body, err := fetch(ctx, d.debug+"/metrics")
	return body, err
}

// replace writes a file beside the old one and renames it, so that nobody reads half
// of it.
func replace(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func fetch(ctx context.Context, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// A flaky server fails every second time, and always at /down.
type flaky struct{ served atomic.Int64 }

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.served.Add(1)%2 == 1 || r.URL.Path == "/down" {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "a good response")
}
