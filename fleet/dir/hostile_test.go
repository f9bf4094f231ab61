package dir_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/fleet/dir"
	"github.com/aplomb-go/aplomb/fleetmsg"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	api    = "http://api.test"
	folder = "aplomb-fleet"
	long   = time.Minute // for what should come soon
)

// join returns a member whose hosts are always in use, and the holds that it has heard of.
func join(t *testing.T, c dir.Config) (f *dir.Fleet, heard func(host string) bool) {
	t.Helper()
	f, err := dir.New(c)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	var mu sync.Mutex
	uses, holds := 0.0, map[string]bool{}
	require.NoError(t, f.Join(func(m fleetmsg.Message) {
		mu.Lock()
		defer mu.Unlock()
		switch m.Kind {
		case fleetmsg.AskUse:
			uses++
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Use, Host: m.Host, Amount: uses})
		case fleetmsg.Hold:
			holds[m.Host] = true
		}
	}))
	return f, func(host string) bool {
		mu.Lock()
		defer mu.Unlock()
		return holds[host]
	}
}

// temporary is t.TempDir for a directory that a member may still be writing.
func temporary(t *testing.T) string {
	path, err := os.MkdirTemp("", "aplomb")
	require.NoError(t, err)
	t.Cleanup(func() { remove(t, path) })
	return path
}

// remove removes a directory that a member may be writing.
func remove(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { return os.RemoveAll(path) == nil }, long, time.Millisecond)
}

func holdHost(f *dir.Fleet, host string) {
	f.Tell(fleetmsg.Message{Kind: fleetmsg.Hold, Host: host, Status: 429, Wait: time.Hour})
}

func nameOf(host string) string {
	sum := sha256.Sum256([]byte(host))
	return fmt.Sprintf("%x.json", sum[:12])
}

type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answer(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

func send(t *testing.T, tr *transport.Transport, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// A process that has met many hosts still hears of the earlier ones.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(temporary(t), "fleet")
	a, err := dir.New(dir.Config{Path: path})
	require.NoError(t, err)
	defer a.Close()
	sent, status := 0, 200
	many, err := transport.New(transport.Config{Fleet: a, Rule: policy.Rule{Attempts: 1}, Base: base(func(req *http.Request) (*http.Response, error) {
		if strings.HasPrefix(req.URL.Host, "api.") {
			sent++
			return answer(status), nil
		}
		return answer(200), nil
	})})
	require.NoError(t, err)
	require.NoError(t, send(t, many, api, long))
	for i := range 256 {
		require.NoError(t, send(t, many, fmt.Sprintf("http://h%d.test", i), long))
	}
	b, err := dir.New(dir.Config{Path: path})
	require.NoError(t, err)
	defer b.Close()
	refused, err := transport.New(transport.Config{Fleet: b, Rule: policy.Rule{Attempts: 1}, Base: base(func(req *http.Request) (*http.Response, error) {
		return answer(429, "Retry-After", "20"), nil
	})})
	require.NoError(t, err)
	require.NoError(t, send(t, refused, api, long))
	sent, status = 0, 429 // without a wait, so only the fleet knows of one
	begin := time.Now()
	for time.Since(begin) < 3*time.Second {
		_ = send(t, many, api, time.Second) // it may wait for too long
		time.Sleep(6 * time.Millisecond)
	}
	t.Logf("%d requests in 3 s of a hold of 20 s", sent)
	assert.Less(t, sent, 100)
}

// The files of others stay, whatever their names are.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	path := temporary(t)
	require.NoError(t, os.Chmod(path, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(path, folder), 0o700))
	old := time.Now().Add(-time.Hour)
	record := `{"Host":%q,"At":1700000000000000000}`
	over := "http://over.test"
	var foreign []string
	for _, in := range []string{path, filepath.Join(path, folder)} {
		for i, content := range [][]byte{make([]byte, 3<<20), []byte("backup"), nil, fmt.Appendf(nil, record, over)} {
			name := filepath.Join(in, nameOf(fmt.Sprint("foreign", i)))
			require.NoError(t, os.WriteFile(name, content, 0o600))
			require.NoError(t, os.Chtimes(name, old, old))
			foreign = append(foreign, name)
		}
		dangling, empty := filepath.Join(in, nameOf("link")), filepath.Join(in, nameOf("directory"))
		require.NoError(t, os.Symlink(filepath.Join(in, nameOf("target")), dangling))
		require.NoError(t, os.Mkdir(empty, 0o700))
		require.NoError(t, os.Chtimes(empty, old, old))
		name := filepath.Join(in, nameOf(over))
		require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, record, over), 0o600))
		require.NoError(t, os.Chtimes(name, old, old))
		foreign = append(foreign, dangling, empty)
	}
	f, _ := join(t, dir.Config{Path: path})
	f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: api})
	require.Eventually(t, func() bool {
		_, outside := os.Lstat(filepath.Join(path, nameOf(over)))
		_, inside := os.Lstat(filepath.Join(path, folder, nameOf(over)))
		return outside != nil || inside != nil
	}, long, 10*time.Millisecond, "a file of the fleet that is over goes")
	time.Sleep(100 * time.Millisecond) // for the rest of the files
	gone := 0
	for _, name := range foreign {
		if _, err := os.Lstat(name); err != nil {
			gone++
		}
	}
	assert.Zero(t, gone, "of %d files of others", len(foreign))
	assert.FileExists(t, filepath.Join(path, nameOf(over)), "nothing outside the folder is touched")
}

// Whoever can write a directory above swaps the path. The members go on with the folder that they
// have open, and follow no link.
func TestSwappedDirectory(t *testing.T) {
	t.Parallel()
	above := filepath.Join(temporary(t), "above")
	require.NoError(t, os.Mkdir(above, 0o700))
	require.NoError(t, os.Chmod(above, 0o777))
	path, victim := filepath.Join(above, "fleet"), filepath.Join(temporary(t), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	a, _ := join(t, dir.Config{Path: path})
	b, heard := join(t, dir.Config{Path: path})
	b.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: api})
	holdHost(a, "http://first.test")
	require.NoError(t, os.Rename(path, path+".away"))
	for _, in := range []string{path, filepath.Join(path, folder)} {
		require.NoError(t, os.Mkdir(in, 0o700))
		for _, name := range []string{"new", "lock", "members.json", nameOf(api), nameOf("http://second.test")} {
			require.NoError(t, os.Symlink(victim, filepath.Join(in, name)))
		}
	}
	if os.Geteuid() == 0 { // as another user does it
		require.NoError(t, os.Chown(path, 12345, -1))
		require.NoError(t, os.Chown(filepath.Join(path, folder), 12345, -1))
	}
	for i := range 50 {
		holdHost(a, fmt.Sprintf("http://h%d.test", i))
		time.Sleep(50 * time.Millisecond) // the swap is noticed meanwhile
	}
	holdHost(a, api)
	if os.Geteuid() == 0 {
		assert.Eventually(t, func() bool { return heard(api) }, long, 10*time.Millisecond, "the members go on")
	}
	content, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(content))
}

// logs returns a logger, and how many lines with a text it has written.
func logs() (*slog.Logger, func(text string) int) {
	var mu sync.Mutex
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return b.Write(p)
		}), nil)), func(text string) int {
			mu.Lock()
			defer mu.Unlock()
			return strings.Count(b.String(), text)
		}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Somebody who can write a directory above without a sticky bit is told once, and New succeeds.
func TestDirectoryAboveIsTold(t *testing.T) {
	t.Parallel()
	for mode, lines := range map[os.FileMode]int{0o700: 0, 0o777 | os.ModeSticky: 0, 0o777: 1, 0o770: 1} {
		above := filepath.Join(temporary(t), "above")
		require.NoError(t, os.Mkdir(above, 0o700))
		require.NoError(t, os.Chmod(above, mode))
		logger, count := logs()
		f, _ := join(t, dir.Config{Path: filepath.Join(above, "deep", "fleet"), Logger: logger})
		holdHost(f, api)
		about := "writable=" + above
		if lines > 0 {
			assert.Eventually(t, func() bool { return count(about) > 0 }, long, time.Millisecond, mode)
		}
		assert.Equal(t, lines, count(about), mode)
	}
	// One line names all of them.
	above := filepath.Join(temporary(t), "above")
	below := filepath.Join(above, "below")
	require.NoError(t, os.MkdirAll(below, 0o700))
	require.NoError(t, os.Chmod(above, 0o777))
	require.NoError(t, os.Chmod(below, 0o777))
	logger, count := logs()
	join(t, dir.Config{Path: filepath.Join(below, "fleet"), Logger: logger})
	assert.Eventually(t, func() bool { return count(below+", "+above) == 1 }, long, time.Millisecond)
}

// A key or a folder that is gone is made anew by all members, and they share again.
func TestGoneFolderAndKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(temporary(t), "fleet")
	logger, count := logs()
	a, heardA := join(t, dir.Config{Path: path, Logger: logger})
	b, heardB := join(t, dir.Config{Path: path, Logger: logger})
	both := []*dir.Fleet{a, b}
	scope := a.Scope("Bearer abc")
	for round, gone := range []string{filepath.Join(path, folder, "key.json"), filepath.Join(path, folder), path} {
		remove(t, gone)
		ha, hb := fmt.Sprintf("http://a%d.test", round), fmt.Sprintf("http://b%d.test", round)
		for _, f := range both {
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: ha})
			f.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: hb})
		}
		require.Eventually(t, func() bool {
			holdHost(a, ha)
			holdHost(b, hb)
			_, err := os.Stat(filepath.Join(path, folder, "key.json"))
			return err == nil && heardA(hb) && heardB(ha)
		}, long, 20*time.Millisecond, "%s is gone", gone)
		late, err := dir.New(dir.Config{Path: path})
		require.NoError(t, err)
		late.Close()
		assert.Equal(t, scope, late.Scope("Bearer abc"), "it has the same key")
		info, err := os.Stat(filepath.Join(path, folder))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	assert.Positive(t, count("the key of the folder was gone"))
	assert.Positive(t, count("the folder was removed or swapped, so"))
	// Another key is taken by all.
	require.NoError(t, os.WriteFile(filepath.Join(path, folder, "key.json"), []byte(`"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`), 0o600))
	require.Eventually(t, func() bool { return a.Scope("Bearer abc") != scope && a.Scope("Bearer abc") == b.Scope("Bearer abc") }, long, 20*time.Millisecond)
	// What is made anew is checked like at the beginning.
	remove(t, path)
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Chmod(path, 0o777))
	require.Eventually(t, func() bool { return count("cannot be made anew") > 0 }, long, 20*time.Millisecond)
	assert.NoDirExists(t, filepath.Join(path, folder))
}

// A member whose directory was removed, and cannot be made anew, is alone until it can be.
func TestMemberWithoutAFolderIsAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(temporary(t), "fleet")
	a, _ := join(t, dir.Config{Path: path})
	b, heard := join(t, dir.Config{Path: path})
	require.Eventually(t, func() bool { // a member may be faster
		return os.RemoveAll(path) == nil && os.WriteFile(path, nil, 0o600) == nil
	}, long, time.Millisecond)
	const h = "http://h.test"
	b.Tell(fleetmsg.Message{Kind: fleetmsg.Meet, Host: h})
	connected := func(f *dir.Fleet) bool {
		holdHost(f, h)
		return f.FleetState().Connected
	}
	require.Eventually(t, func() bool { return !connected(a) }, long, 20*time.Millisecond)
	require.NoError(t, os.Remove(path))
	require.Eventually(t, func() bool { return connected(a) && connected(b) && heard(h) }, long, 20*time.Millisecond)
}

// A process that meets ever more hosts keeps to the bound, and so do several.
func TestFilesAreBounded(t *testing.T) {
	path := filepath.Join(temporary(t), "fleet")
	one, _ := join(t, dir.Config{Path: path})
	count := func() int {
		entries, err := os.ReadDir(filepath.Join(path, folder))
		if err != nil {
			entries, err = os.ReadDir(path)
		}
		require.NoError(t, err)
		return len(entries)
	}
	const own = 4 // the key, the lock, the members, and what is being written
	most, last := 0, ""
	for i := range 1500 {
		last = fmt.Sprintf("http://h%d.test", i)
		holdHost(one, last)
		if i%50 == 49 {
			require.Eventually(t, func() bool {
				_, err := os.Stat(filepath.Join(path, folder, nameOf(last)))
				return err == nil
			}, long, time.Millisecond, "the latest host has its file")
			most = max(most, count())
		}
	}
	t.Logf("1500 hosts: at most %d files", most)
	assert.LessOrEqual(t, most, 1024+own)
	assert.Greater(t, most, 900)
	others := []*dir.Fleet{one}
	for range 2 {
		f, _ := join(t, dir.Config{Path: path})
		others = append(others, f)
	}
	for i := range 1500 {
		holdHost(others[i%3], fmt.Sprintf("http://o%d.test", i))
		if i%50 == 49 {
			most = max(most, count())
		}
	}
	assert.LessOrEqual(t, most, 1024+own+len(others))
}
