// aplomb proxy between the go command and a module proxy that fails.

package clients

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
)

const module = "example.com/m@v1.0.0"

// goModDownload downloads a module from a proxy that answers the first request for each file with
// a fault of its own. It runs on the wall clock.
func goModDownload(t *testing.T, healed bool) string {
	s := ts.Start(t, ts.Config{Routes: moduleFiles(t)}, ts.Status(404))
	url := s.URL
	if healed {
		url = aplombProxy(t, s.URL)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-x", module)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOPROXY="+url, "GONOPROXY=none", "GOPRIVATE=", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"GOFLAGS=-modcacherw", "GOMODCACHE="+t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, "go.mod"), []byte("module main\n"), 0o644))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	files := map[string]bool{}
	for _, a := range s.Log() {
		files[a.Target] = true
	}
	assert.Equal(t, healed, err == nil, "%s", out)
	assert.Equal(t, map[bool]int{false: 1, true: 3}[healed], len(files))
	return fmt.Sprintf("%s, sent %d", ends(err), len(s.Log()))
}

// moduleFiles has the files of a module on a proxy, each behind a fault.
func moduleFiles(t *testing.T) map[string]ts.Script {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range map[string]string{"go.mod": "module example.com/m\n", "m.go": "package m\n\n// " + strings.Repeat("long ", 20_000) + "\n"} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: module + "/" + name, Method: zip.Store})
		require.NoError(t, err)
		_, err = f.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	whole := ts.Content(archive.Bytes(), `"v1"`)
	return map[string]ts.Script{
		"/example.com/m/@v/v1.0.0.info": {ts.Status(503), ts.OK(`{"Version":"v1.0.0"}`)},
		"/example.com/m/@v/v1.0.0.mod":  {ts.ResetBeforeHeaders(), ts.OK("module example.com/m\n")},
		"/example.com/m/@v/v1.0.0.zip":  {whole.CutAt(50_000, ts.Reset), whole},
	}
}

// aplombProxy builds and starts aplomb proxy, and returns its URL.
func aplombProxy(t *testing.T, upstream string) string {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "aplomb"), "./aplomb")
	build.Dir = "../cmd"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	rules := filepath.Join(dir, "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"rule": {"backoff": {"type": "constant", "delay": "10ms"}}}`), 0o644))
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "aplomb"), "proxy", "-listen", "127.0.0.1:0", "-debug", "off", "-to", upstream, "-rules", rules)
	var log testkit.Text
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	var found []string
	require.Eventually(t, func() bool {
		found = regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(log.String())
		return found != nil
	}, time.Minute, 10*time.Millisecond, "the proxy does not listen")
	return "http://" + found[1]
}
