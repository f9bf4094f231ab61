package debug

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browsers are the names of Chromium. make browser installs the first.
var browsers = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// A browser is a headless Chromium. The test talks to it over two pipes, in the
// DevTools protocol: JSON, and a zero byte at the end of each message.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	n       int
	console []string // errors on the console, such as a script that the policy forbids
}

// openBrowser starts a browser, which ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range browsers {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no headless Chromium is installed: make browser installs it with apt-get")
	}
	theirIn, in, err := os.Pipe()
	require.NoError(t, err)
	out, theirOut, err := os.Pipe()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "browser")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-proxy-server", "--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4 in the browser
	require.NoError(t, cmd.Start())
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait() // some versions end with a status other than 0
		in.Close()
		out.Close()
		// The other processes of the browser end a moment later, and may write
		// until then.
		for range 500 {
			if err = os.RemoveAll(dir); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return b
}

// A message is one in either direction.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// call calls a method and puts its result into result, if that is not nil.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.n++
	text, err := json.Marshal(message{ID: b.n, Session: b.session, Method: method, Params: params})
	require.NoError(b.t, err)
	_, err = b.in.Write(append(text, 0))
	require.NoError(b.t, err)
	for {
		text, err := b.out.ReadBytes(0)
		require.NoError(b.t, err, method)
		var m message
		require.NoError(b.t, json.Unmarshal(text[:len(text)-1], &m))
		if m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" && strings.Contains(string(text), `"level":"error"`) {
			b.console = append(b.console, string(text))
		}
		if m.ID != b.n {
			continue
		}
		require.Empty(b.t, string(m.Error), method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

type object = map[string]any

// open opens a page in a new window of a size, in a colour scheme.
func (b *browser) open(url string, width, height int, scheme string) {
	b.t.Helper()
	b.session = ""
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Runtime.enable", nil, nil)
	b.call("Log.enable", nil, nil)
	b.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", object{"url": url}, nil)
}

// eval evaluates an expression in the page, which may be a promise.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", object{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got)
	require.Empty(b.t, string(got.ExceptionDetails), expression)
	if result != nil {
		require.NoError(b.t, json.Unmarshal(got.Result.Value, result))
	}
}

// until waits until a condition holds in the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("new Promise(done => { const look = () => { if (%s) done(true); else setTimeout(look, 20); }; look(); })", condition), nil)
}

// shoot writes a picture of the whole page to a file.
func (b *browser) shoot(path string) {
	b.t.Helper()
	var got struct{ Data string }
	b.call("Page.captureScreenshot", object{"captureBeyondViewport": true}, &got)
	picture, err := base64.StdEncoding.DecodeString(got.Data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(path, picture, 0o600))
}
