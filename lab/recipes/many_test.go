// Recipes that do many things at a time and report what failed.

package recipes

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/transport"
)

// clientOf returns a client of a recipe over a base.
func clientOf(c transport.Config, base http.RoundTripper) *http.Client {
	c.Base = base
	return &http.Client{Transport: transport.MustNew(c)}
}

// Of 20 files one is refused, one is redirected to a form, and one does not exist. The third attempt of another succeeds. The
// server has the files whole, and the progress is that of the last attempt.
func TestUploads(t *testing.T) {
	t.Chdir(t.TempDir())
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("file%d", i))
		if i == 9 {
			names[i] = "what?#9"
		}
		if i != 7 {
			require.NoError(t, os.WriteFile(names[i], []byte(strings.Repeat("x", 100_000+i)), 0o600))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stored, attempts, progress := map[string]int64{}, map[string]int{}, map[string]int64{}
		server := faults.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			stored[filepath.Base(r.URL.Path)] = n
		}))
		base := faults.New(server, func(req *http.Request) faults.Step {
			mu.Lock()
			defer mu.Unlock()
			name := filepath.Base(req.URL.Path)
			attempts[name]++
			switch {
			case name == "file3":
				return faults.Status(403).Body("not yours")
			case name == "file4":
				return faults.Status(302).Header("Location", "/login")
			case name == "file5" && attempts[name] < 3:
				return faults.ConnReset()
			}
			return faults.Pass()
		})
		failed := uploadAll(t.Context(), clientOf(uploads(slog.New(slog.DiscardHandler)), base), "https://files.test/box", names, func(name string, sent int64) {
			mu.Lock()
			defer mu.Unlock()
			progress[name] = sent
		})
		assert.Len(t, failed, 3, "failed requests")
		assert.ErrorContains(t, failed["file3"], "403")
		assert.ErrorContains(t, failed["file3"], "not yours")
		assert.ErrorContains(t, failed["file4"], "302")
		assert.ErrorIs(t, failed["file7"], os.ErrNotExist)
		assert.Len(t, stored, 17)
		assert.Equal(t, int64(100_009), stored["what?#9"])
		assert.Equal(t, int64(100_005), stored["file5"])
		assert.Equal(t, int64(100_005), progress["file5"])
		testkit.Count(t, 3, attempts["file5"], "file5 sent")
	})
}

// Of 3000 hosts with two receivers each, 600 are down, 30 are gone, and 30 redirect. Each other
// receiver gets the event, although every tenth host loses its first response. The hosts that are
// down hold up the others for half a minute at most.
func TestWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts = 3000
		var mu sync.Mutex
		seen, others := map[string]string{}, time.Time{}
		base := faults.New(nil, func(req *http.Request) faults.Step {
			mu.Lock()
			defer mu.Unlock()
			host, before := req.URL.Host, seen[req.URL.Host]
			seen[host] = req.Header.Get("Webhook-Id")
			switch {
			case strings.HasSuffix(host, "1.test"), strings.HasSuffix(host, "6.test"):
				return down
			case strings.HasSuffix(host, "97.test"):
				return faults.Status(302).Header("Location", "https://elsewhere.test/")
			case strings.HasSuffix(host, "98.test"):
				return faults.Status(410)
			case strings.HasSuffix(host, "0.test") && before == "":
				return faults.ConnReset()
			}
			others = time.Now()
			return faults.Status(204)
		})
		var urls []*url.URL
		for i := range 2 * hosts {
			urls = append(urls, &url.URL{Scheme: "https", Host: fmt.Sprintf("host%02d.test", i%hosts), Path: fmt.Sprintf("/hook%d", i/hosts)})
		}
		start := time.Now()
		reports := deliver(t.Context(), clientOf(webhooks(slog.New(slog.DiscardHandler)), base), urls, "evt_1", []byte(`{}`))
		assert.Less(t, others.Sub(start), 30*time.Second)
		assert.LessOrEqual(t, time.Since(start), 3*time.Minute)
		require.Len(t, reports, hosts)
		delivered, failed := 0, 0
		for host, r := range reports {
			delivered += r.delivered
			failed += len(r.failed)
			assert.Equal(t, "evt_1", seen[host])
		}
		assert.Equal(t, 2*(hosts-660), delivered)
		assert.Equal(t, 2*660, failed)
		assert.ErrorContains(t, reports["host98.test"].failed["https://host98.test/hook0"], "410")
	})
}
