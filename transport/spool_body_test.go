package transport_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/replay"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// spooling keeps a KiB in memory and a MiB on disk.
var spooling = policy.Rule{Upload: policy.Upload{Memory: 1 << 10, Disk: 1 << 20}}.Or(quick)

func noisy(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7, byte(n), byte(n >> 8), byte(n >> 16)}).Read(p)
	return p
}

// An upload from a pipe is sent again whole, and the file goes, whatever
// becomes of the request.
func TestSpooledUpload(t *testing.T) {
	for _, row := range []struct {
		name     string
		rule     policy.Rule
		size     int
		attempts int
		dir      string
		steps    []answer
	}{
		{"a response at once", spooling, 100_000, 1, "", []answer{status(200)}},
		{"a response later", spooling, 100_000, 3, "", []answer{status(503), faults.Fail(syscall.ECONNRESET), status(200)}},
		{"never a response", spooling, 100_000, 6, "", []answer{faults.Fail(syscall.ECONNRESET)}},
		{"nothing in memory", policy.Rule{Upload: policy.Upload{Memory: -1}}.Or(spooling), 100_000, 2, "", []answer{status(503), status(200)}},
		{"just fits", spooling, 1<<20 + 1<<10, 2, "", []answer{status(503), status(200)}},
		{"too large", spooling, 1<<20 + 1<<10 + 1, 1, "", []answer{status(503), status(200)}},
		{"no such directory", spooling, 100_000, 1, "/nonexistent", []answer{status(503), status(200)}},
		{"small enough for memory", spooling, 1 << 10, 2, "/nonexistent", []answer{status(503), status(200)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			if row.dir != "" {
				dir = row.dir
			}
			want := noisy(row.size)
			base := script(row.steps...)
			src := oneShot(string(want))
			tr := over(t, transport.Config{Rule: row.rule, TempDir: dir}, base)
			_, _ = tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", src))
			require.Equal(t, row.attempts, base.attempts())
			for i, got := range base.bodies {
				require.True(t, got == string(want), "attempt %d: %d bytes", i+1, len(got))
			}
			assert.Equal(t, 1, src.closed())
			assert.Zero(t, tr.Kept().Memory.Load())
			assert.Zero(t, testkit.Files(t, dir))
		})
	}
}

// The file is removed when a body is given up half-way.
func TestSpoolIsRemoved(t *testing.T) {
	half := func(req *http.Request) { _, _ = io.CopyN(io.Discard, req.Body, 50_000) }
	for name, next := range map[string]rt{
		"final response after half of it": func(req *http.Request) (*http.Response, error) {
			half(req)
			_ = req.Body.Close()
			return play(req, status(400))
		},
		"final response, body closed later": func(req *http.Request) (*http.Response, error) {
			half(req)
			go func() { _ = req.Body.Close() }()
			return play(req, status(200))
		},
		"panic in the base": func(req *http.Request) (*http.Response, error) {
			half(req)
			_ = req.Body.Close()
			panic("base")
		},
		"canceled": func(req *http.Request) (*http.Response, error) {
			half(req)
			_ = req.Body.Close()
			return nil, context.Canceled
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tr := over(t, transport.Config{Rule: spooling, TempDir: dir}, next)
			func() {
				defer func() { _ = recover() }()
				_, _ = tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", oneShot(string(noisy(100_000)))))
			}()
			require.Eventually(t, func() bool { return testkit.Files(t, dir) == 0 && tr.Kept().Memory.Load() == 0 }, waitFor, tick)
		})
	}
}

// Bytes in the file come after bytes in memory, also when there is room in memory
// again.
func TestSpoolStaysInOrder(t *testing.T) {
	want := string(noisy(300_000))
	base := script(status(503), status(200))
	tr := over(t, transport.Config{Rule: policy.Rule{Upload: policy.Upload{Memory: 1 << 20}}.Or(spooling), TempDir: t.TempDir()}, base)
	src := oneShot(want)
	reads := 0
	src.onRead = func() {
		switch reads++; reads {
		case 5:
			tr.Kept().Memory.Add(replay.MaxMemory)
		case 10:
			tr.Kept().Memory.Add(-replay.MaxMemory)
		}
	}
	resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", src))
	require.Equal(t, 200, resp.StatusCode)
	assert.True(t, base.bodies[1] == want)
	assert.Zero(t, tr.Kept().Memory.Load())
}

// A spooled upload arrives whole under both protocols, also after a reset in the
// middle of the upload.
func TestSpooledUploadOverTheWire(t *testing.T) {
	for name, config := range map[string]testserver.Config{"http1": {}, "http2": {HTTP2: true, TLS: testserver.Trusted}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			srv := testserver.Start(t, config, testserver.Status(503), testserver.ResetBeforeHeaders(), testserver.Status(429).Early(10_000), testserver.OK("ok"))
			tr := over(t, transport.Config{Rule: policy.Rule{Upload: policy.Upload{Disk: 64 << 20}}.Or(spooling), TempDir: dir}, srv.Transport())
			t.Cleanup(tr.CloseIdleConnections)
			want := noisy(5 << 20)
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, srv.URL, io.MultiReader(bytes.NewReader(want))))
			require.NoError(t, resp.Body.Close())
			if resp.StatusCode == 200 { // else HTTP/1 sat in a Read of the body
				log := srv.Log()
				assert.Equal(t, testserver.Hash(want), log[len(log)-1].BodySHA256)
			}
			require.Eventually(t, func() bool { return testkit.Files(t, dir) == 0 }, waitFor, tick)
		})
	}
}

// Reads, closes, rewinds and the end of the request may happen at the same time.
func TestSpoolConcurrently(t *testing.T) {
	want := string(noisy(200_000))
	dir := t.TempDir()
	var late sync.WaitGroup
	tr := over(t, transport.Config{Rule: spooling, TempDir: dir}, rt(func(req *http.Request) (*http.Response, error) {
		n := rand.IntN(2 * len(want))
		got, err := io.ReadAll(io.LimitReader(req.Body, int64(n)))
		assert.True(t, bytes.HasPrefix([]byte(want), got))
		late.Go(func() { _, _ = io.Copy(io.Discard, req.Body) })
		late.Go(func() { _ = req.Body.Close() })
		if err != nil {
			return nil, err
		}
		return play(req, status(503))
	}))
	for range soak.Size(40, 200) {
		src := oneShot(want)
		mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", src))
		late.Wait()
		assert.Equal(t, 1, src.closed())
	}
	assert.Zero(t, testkit.Files(t, dir))
	assert.Zero(t, tr.Kept().Memory.Load())
}

// All files of a Transport together stay below TempTotal, and give their share back.
func TestTempTotal(t *testing.T) {
	const each = 100_000
	bubble(t, func(t *testing.T) {
		var seen recorder
		var attempts atomic.Int32
		base := rt(func(req *http.Request) (*http.Response, error) {
			_, err := io.Copy(io.Discard, req.Body)
			assert.NoError(t, err)
			_ = req.Body.Close()
			attempts.Add(1)
			if transport.AttemptNumber(req.Context()) > 1 {
				return play(req, status(200))
			}
			time.Sleep(time.Second)
			return play(req, status(503))
		})
		tr := over(t, transport.Config{Rule: spooling, TempDir: t.TempDir(), TempTotal: 250_000, Trace: seen.trace()}, base)
		together(5, func(i int) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			resp, err := tr.RoundTrip(newRequest(t, http.MethodPut, "http://h.test/", oneShot(string(noisy(each)))))
			if assert.NoError(t, err) {
				_ = resp.Body.Close()
			}
		})
		assert.EqualValues(t, 7, attempts.Load(), "two of five could be kept")
		assert.Zero(t, tr.Kept().Disk.Load())
		refused := 0
		for _, e := range seen.all {
			if e.Reason == transport.ReasonNotReplayable {
				refused++
				assert.ErrorContains(t, e.Err, "TempTotal (250000 bytes)")
			}
		}
		assert.Equal(t, 3, refused)
		resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", oneShot(string(noisy(each)))))
		assert.Equal(t, 200, resp.StatusCode, "the others' room is free again")
	})
}

func TestNegativeTempTotal(t *testing.T) {
	_, err := transport.New(transport.Config{TempTotal: -1})
	assert.ErrorContains(t, err, "TempTotal")
}

// The event and the log name the limit that kept an upload from being repeated,
// and the fields that would help.
func TestTheLimitOfABodyIsNamed(t *testing.T) {
	broken := errors.New("disk on fire")
	breaks := &body{Reader: io.MultiReader(strings.NewReader("12"), readFunc(func([]byte) (int, error) { return 0, broken }))}
	for name, row := range map[string]struct {
		rule policy.Rule
		dir  string
		body io.ReadCloser
		says []string
	}{
		"in memory":        {policy.Rule{}, "", oneShot(string(noisy(1<<20 + 1))), []string{"Upload.Memory (1048576 bytes)", "Upload.Disk", "GetBody"}},
		"off":              {policy.Rule{Upload: policy.Upload{Memory: -1}}, "", oneShot("x"), []string{"Upload.Memory", "Upload.Disk", "off"}},
		"in a file":        {spooling, "", oneShot(string(noisy(2 << 20))), []string{"Upload.Memory (1024 bytes)", "Upload.Disk (1048576 bytes)"}},
		"without a file":   {spooling, "/nonexistent", oneShot(string(noisy(10_000))), []string{"Upload.Disk", "no such file"}},
		"the body's error": {policy.Rule{}, "", breaks, []string{"disk on fire"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log testkit.Text
			var seen recorder
			tr := over(t, transport.Config{
				Rule: row.rule.Or(quick), TempDir: cmp.Or(row.dir, t.TempDir()),
				Logger: slog.New(slog.NewTextHandler(&log, nil)), Trace: seen.trace(),
			}, rt(func(req *http.Request) (*http.Response, error) {
				_, _ = io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
				return play(req, status(503))
			}))
			resp := mustRoundTrip(t, tr, newRequest(t, http.MethodPut, "http://h.test/", row.body))
			_, attempts, ok := unretried(resp)
			require.True(t, ok)
			require.Equal(t, []transport.Reason{transport.ReasonNotReplayable}, seen.reasons())
			for _, says := range row.says {
				assert.ErrorContains(t, attempts[0].Err, says)
				assert.ErrorContains(t, seen.all[0].Err, says)
				assert.Contains(t, log.String(), says)
			}
		})
	}
}
