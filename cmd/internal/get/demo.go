// The -demo flag. It downloads from a server that cuts every response, and
// checks the result.

package get

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

const (
	demoSize = 16 << 20
	demoCut  = 3 << 20 // bytes of each response before its connection is reset
	demoPace = 8 << 20 // bytes per second, so that there is something to see
)

func demo(ctx context.Context, w world, plain bool) int {
	dir, err := os.MkdirTemp("", "aplomb-get-demo")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = demonstrate(ctx, w, plain, dir, demoPace)
	}
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(w.stderr, "aplomb get: NOT AS PROMISED: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(w.stdout, "\nAll of this is as promised.")
	return exitFine
}

// demonstrate downloads a file in two runs, of which the first is interrupted. It
// does so again with a file that changes in between. It also downloads a file that
// does not match its digest.
func demonstrate(ctx context.Context, w world, plain bool, dir string, pace int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	good, old, changed, bad := newDemoFile(1, pace), newDemoFile(2, pace), newDemoFile(3, 0), newDemoFile(4, 0)
	bad.digest = good.digest
	bad.cut, changed.cut = demoSize, demoSize
	var late atomic.Bool // the file has changed
	mux := http.NewServeMux()
	mux.Handle("/good.bin", good)
	mux.Handle("/bad.bin", bad)
	mux.HandleFunc("/changing.bin", func(w http.ResponseWriter, r *http.Request) {
		if late.Load() {
			changed.ServeHTTP(w, r)
		} else {
			old.ServeHTTP(w, r)
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()

	fetch := func(ctx context.Context, w world, name string) int {
		args := []string{"-o", dir, fmt.Sprintf("-plain=%t", plain), "http://" + l.Addr().String() + "/" + name}
		return run(ctx, args, w)
	}
	say := func(text string) { fmt.Fprintf(w.stdout, "\n%s\n\n", text) }

	interrupted := func(name string) error {
		half, cancel := context.WithCancel(ctx)
		defer cancel()
		w := w
		w.wrap = func(r reporter) reporter { return &interrupter{r, cancel} }
		code := fetch(half, w, name)
		u := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/" + name}
		part := partOf(u, name) + partSuffix
		return demoCheck(ctx, code, exitInterrupted, dir, part, part+".json")
	}
	again := func(name string, want []byte) error {
		code := fetch(ctx, w, name)
		if err := demoCheck(ctx, code, exitFine, dir, name); err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			return errors.Join(errors.New(name+" is not what was served"), err)
		}
		return os.Remove(filepath.Join(dir, name))
	}

	say(fmt.Sprintf("A server cuts each connection after %s. The first run is interrupted:", sizeText(demoCut)))
	if err := interrupted("good.bin"); err != nil {
		return err
	}
	say("The same command again:")
	if err := again("good.bin", good.body); err != nil {
		return err
	}

	say("Another run is interrupted, and then the file changes on the server:")
	if err := interrupted("changing.bin"); err != nil {
		return err
	}
	say("The same command again does not mix the two versions:")
	late.Store(true)
	if err := again("changing.bin", changed.body); err != nil {
		return err
	}

	say("A file that is not what the server's digest says is thrown away:")
	return demoCheck(ctx, fetch(ctx, w, "bad.bin"), exitAltered, dir)
}

// demoCheck compares an exit status and the files in a directory with the
// expected ones.
func demoCheck(ctx context.Context, code, want int, dir string, names ...string) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if code != want {
		return fmt.Errorf("exit status %d instead of %d", code, want)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if got, want := strings.Join(files, ", "), strings.Join(names, ", "); err != nil || got != want {
		return fmt.Errorf("the directory holds %s instead of %s", got, want)
	}
	return nil
}

// An interrupter takes the place of a user who presses Ctrl-C when part of a
// file has arrived.
type interrupter struct {
	reporter
	cancel func()
}

func (r *interrupter) track(name string) tracker {
	return &interruptingTracker{tracker: r.reporter.track(name), cancel: r.cancel}
}

type interruptingTracker struct {
	tracker
	cancel func()
	got    int
}

func (t *interruptingTracker) wrote(n int) {
	t.tracker.wrote(n)
	if t.got += n; t.got >= demoCut*2/3 {
		t.cancel()
	}
}

// A demoFile is served with a validator and a digest, in pieces.
type demoFile struct {
	body   []byte
	etag   string
	digest string
	cut    int
	pace   int // bytes per second; 0: no limit
}

func newDemoFile(seed byte, pace int) *demoFile {
	f := &demoFile{body: make([]byte, demoSize), etag: fmt.Sprintf("\"%d\"", seed), cut: demoCut, pace: pace}
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(f.body)
	sum := sha256.Sum256(f.body)
	f.digest = "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	return f
}

func (f *demoFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", f.etag)
	w.Header().Set("Repr-Digest", f.digest)
	http.ServeContent(&cutWriter{w, f, time.Now(), 0}, r, "", time.Time{}, bytes.NewReader(f.body))
}

// A cutWriter writes at the file's pace and ends the connection at its cut.
type cutWriter struct {
	http.ResponseWriter
	file  *demoFile
	start time.Time
	sent  int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.sent+len(b) > w.file.cut {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	n, err := w.ResponseWriter.Write(b)
	w.sent += n
	if w.file.pace > 0 {
		due := time.Duration(float64(w.sent) / float64(w.file.pace) * float64(time.Second))
		time.Sleep(time.Until(w.start.Add(due)))
	}
	return n, err
}
