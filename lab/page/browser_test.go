package page

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// browsers are the names of Chromium. make browser installs the first.
var browsers = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// openBrowser starts a headless Chromium, and returns the context of its first tab. The context
// of the test ends before the cleanups run, so the browser has one of its own. Otherwise it
// would be killed before it is asked to close.
func openBrowser(t *testing.T) context.Context {
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("no-proxy-server", true))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, _ = chromedp.NewContext(ctx)
	require.NoError(t, chromedp.Do(ctx))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.NoError(t, chromedp.Cancel(ctx))
	})
	return ctx
}

// A tab is a tab of a browser, for a part of a test.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex // guards console
	console []string   // errors on the console, such as a script that the policy forbids
}

// open opens a page in a new tab of a size, in a colour scheme. The tab closes with the test.
func open(t *testing.T, browser context.Context, url string, width, height int64, scheme string) *tab {
	t.Helper()
	b := &tab{t: t}
	var end context.CancelFunc
	b.ctx, end = chromedp.NewContext(browser, chromedp.WithListener(b.listen))
	t.Cleanup(end)
	var size []chromedp.EmulateViewportOption
	if width < 600 {
		size = append(size, chromedp.EmulateMobile)
	}
	require.NoError(t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height, size...)))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate(url)))
	return b
}

// listen notes errors.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.console = append(b.console, fmt.Sprintf("%s in line %d", e.ExceptionDetails.Text, e.ExceptionDetails.LineNumber+1))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.console = append(b.console, e.Entry.Text)
		}
	}
}

// errors returns the errors on the console.
func (b *tab) errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.console
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return result
}

// until waits until a condition holds in the page.
func (b *tab) until(condition string) {
	b.t.Helper()
	for start := time.Now(); !eval[bool](b, condition); time.Sleep(20 * time.Millisecond) {
		require.Less(b.t, time.Since(start), time.Minute, condition)
	}
}

// shoot writes a picture of the whole page to a file.
func (b *tab) shoot(path string) {
	b.t.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(path, picture, 0o600))
}
