package get

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

const etag = `"v1"`

var body = testserver.Pattern(300_000)

func digestField(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// content is a file as a good server sends it.
func content(body []byte, etag string) testserver.Step {
	return testserver.Content(body, etag).Header("Repr-Digest", digestField(body))
}

// A bench is a directory to download into, and a server to download from.
type bench struct {
	*testing.T
	dir    string
	server *testserver.Server
	args   []string // in front of the URLs
}

func newBench(t *testing.T, cfg testserver.Config, steps ...testserver.Step) *bench {
	dir := t.TempDir()
	return &bench{t, dir, testserver.Start(t, cfg, steps...), []string{"-o", dir}}
}

// noRetries makes a cut stay a cut: the next run is to go on from it.
func (b *bench) noRetries() *bench {
	file := filepath.Join(b.TempDir(), "rules.json")
	b.must(os.WriteFile(file, []byte(`{"rule": {"attempts": "off"}}`), 0o600))
	b.args = append(b.args, "-rule", file)
	return b
}

// fetch downloads the named files and returns the exit status and the output.
func (b *bench) fetch(ctx context.Context, names ...string) (code int, stdout, stderr string) {
	b.Helper()
	args := b.args
	for _, name := range names {
		args = append(args, b.server.URL+"/"+name)
	}
	var out, errs bytes.Buffer
	code = run(ctx, args, world{stdout: &out, stderr: &errs, base: b.server.Transport()})
	return code, out.String(), errs.String()
}

// expect is fetch for one file, whose exit status must be as given and whose
// output must contain the texts.
func (b *bench) expect(code int, texts ...string) {
	b.Helper()
	got, stdout, stderr := b.fetch(b.Context(), "a.bin")
	all := stdout + stderr
	assert.Equal(b, code, got, "exit status\n%s", all)
	for _, text := range texts {
		assert.Contains(b, all, text)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	require.NoError(b, err)
}

func (b *bench) write(name string, content []byte) {
	b.Helper()
	b.must(os.WriteFile(filepath.Join(b.dir, name), content, 0o600))
}

func (b *bench) read(name string) []byte {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(b.dir, name))
	b.must(err)
	return content
}

// holds checks which files there are.
func (b *bench) holds(names ...string) {
	b.Helper()
	files, err := os.ReadDir(b.dir)
	b.must(err)
	var got []string
	for _, f := range files {
		got = append(got, f.Name())
	}
	assert.Equal(b, strings.Join(names, " "), strings.Join(got, " "))
}

func (b *bench) content(name string, want []byte) {
	b.Helper()
	if got := b.read(name); !bytes.Equal(got, want) {
		b.Errorf("%s has %d bytes that are not the %d wanted", name, len(got), len(want))
	}
}

// state writes the state of the part of a.bin.
func (b *bench) state(change func(*state)) {
	b.Helper()
	s := state{URL: b.server.URL + "/a.bin", From: b.server.URL + "/a.bin", ETag: etag, Total: int64(len(body))}
	change(&s)
	text, err := json.Marshal(s)
	b.must(err)
	b.write(b.part()+".json", text)
}

// part returns the name of the part of a.bin.
func (b *bench) part() string {
	u, err := url.Parse(b.server.URL + "/a.bin")
	b.must(err)
	return partOf(u, "a.bin") + partSuffix
}

func TestWhole(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag))
	b.write("a.bin", []byte("an older one"))
	b.expect(exitFine, "a.bin: 293.0 KiB to come\n", "done: 293.0 KiB", "sha-256 agrees")
	b.holds("a.bin")
	b.content("a.bin", body)
	request := b.server.Log()[0].Header
	if request.Get("Accept-Encoding") != "identity" || request.Get("Want-Repr-Digest") == "" || request.Get("Range") != "" {
		t.Errorf("the request said %v", request)
	}
}

func TestWholeInOtherShapes(t *testing.T) {
	for name, step := range map[string]testserver.Step{
		"no length":    content(body, etag).Chunked(),
		"no validator": testserver.OK(string(body)),
		"weak":         testserver.Content(body, `W/"v1"`),
		"no digest":    testserver.Content(body, etag),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testserver.Config{}, step)
			b.expect(exitFine, "done: 293.0 KiB")
			b.holds("a.bin")
			b.content("a.bin", body)
		})
	}
	t.Run("empty", func(t *testing.T) {
		b := newBench(t, testserver.Config{}, content(nil, etag))
		b.expect(exitFine, "done: 0 bytes")
		b.holds("a.bin")
		b.content("a.bin", nil)
	})
}

// A run that is cut leaves what the next one goes on from.
func TestContinues(t *testing.T) {
	const cut = 200_000
	b := newBench(t, testserver.Config{},
		content(body, etag).CutAt(cut, testserver.Close),
		content(body, etag)).noRetries()
	b.write("a.bin", []byte("an older one"))

	b.expect(exitFailed, "unexpected EOF; 195.3 KiB kept, the same command goes on from there\n")
	b.holds("a.bin", b.part(), b.part()+".json")
	b.content("a.bin", []byte("an older one"))
	b.content(b.part(), body[:cut])

	b.expect(exitFine, "goes on at 195.3 KiB of 293.0 KiB", "97.7 KiB of it now", "sha-256 agrees")
	b.holds("a.bin")
	b.content("a.bin", body)
	request := b.server.Log()[1].Header
	assert.True(t, request.Get("Range") == "bytes=200000-" && request.Get("If-Range") == etag, "the second request said %v", request)
}

// Between the last byte and the name there is room for a crash, too.
func TestContinuesAtTheEnd(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag))
	b.write(b.part(), body)
	b.state(func(s *state) { s.Digest = digestField(body) })
	b.expect(exitFine, "1 byte of it now", "sha-256 agrees")
	b.holds("a.bin")
	b.content("a.bin", body)
}

func TestContinuesByDate(t *testing.T) {
	const monday, tuesday = "Mon, 05 Jan 2026 10:00:00 GMT", "Tue, 06 Jan 2026 10:00:00 GMT"
	dated := func(s testserver.Step, modified string) testserver.Step {
		return s.Header("Last-Modified", modified).Header("Date", tuesday)
	}
	rest := testserver.Status(http.StatusPartialContent).Body(string(body[100:])).
		Header("Content-Range", fmt.Sprintf("bytes 100-%d/%d", len(body)-1, len(body)))
	b := newBench(t, testserver.Config{},
		dated(testserver.OK(string(body)), monday).CutAt(100, testserver.Close),
		dated(rest, monday)).noRetries()
	b.expect(exitFailed, "100 bytes kept")
	b.expect(exitFine, "goes on at 100 bytes")
	b.content("a.bin", body)
	assert.Equal(t, monday, b.server.Log()[1].Header.Get("If-Range"), "If-Range")
	assert.False(t, strongDate(tuesday, tuesday), "a file that was changed in the second of the response has a strong date")
}

// Whatever is not surely the rest of the same file makes a run start anew, with
// the right bytes in the end.
func TestStartsAnew(t *testing.T) {
	const kept = 100
	part := func(first, last, total int, tag string) testserver.Step {
		return testserver.Status(http.StatusPartialContent).Body(strings.Repeat("x", last-first+1)).
			Header("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, total)).
			Header("ETag", tag)
	}
	size := len(body)
	whole := content(body, etag)
	for _, c := range []struct {
		name      string
		state     func(*state)
		responses []testserver.Step
		requests  int
	}{
		{"another tag", nil, []testserver.Step{content(body, `"v2"`)}, 1},
		{"no ranges", nil, []testserver.Step{testserver.OK(string(body)).Header("ETag", etag)}, 1},
		{"416", nil, []testserver.Step{testserver.Status(416), whole}, 2},
		{"206 of another tag", nil, []testserver.Step{part(kept, size-1, size, `"v2"`), whole}, 2},
		{"206 of a weak tag", nil, []testserver.Step{part(kept, size-1, size, "W/"+etag), whole}, 2},
		{"206 of another length", nil, []testserver.Step{part(kept, size, size+1, etag), whole}, 2},
		{"206 from elsewhere", nil, []testserver.Step{part(kept+1, size-1, size, etag), whole}, 2},
		{"206 to elsewhere", nil, []testserver.Step{part(kept, size-2, size, etag), whole}, 2},
		{"206 without a range", nil, []testserver.Step{testserver.Status(206).Body("x").Header("ETag", etag), whole}, 2},
		{"206 compressed", nil, []testserver.Step{part(kept, size-1, size, etag).Header("Content-Encoding", "gzip"), whole}, 2},
		{"206 of another digest", func(s *state) { s.Digest = digestField(body) },
			[]testserver.Step{part(kept, size-1, size, etag).Header("Repr-Digest", digestField(nil)), whole}, 2},
		{"206 in parts", nil, []testserver.Step{part(kept, size-1, size, etag).Header("Content-Type", "multipart/byteranges; boundary=b"), whole}, 2},
		{"another URL of the same hash", func(s *state) { s.URL += "?other" }, []testserver.Step{whole}, 1},
		{"redirected elsewhere then", func(s *state) { s.From += "2" }, []testserver.Step{part(kept, size-1, size, etag), whole}, 2},
		{"kept under a weak tag", func(s *state) { s.ETag = "W/" + etag }, []testserver.Step{whole}, 1},
		{"kept under no header value", func(s *state) { s.ETag = "\"v\r\n\"" }, []testserver.Step{whole}, 1},
		{"kept under nothing", func(s *state) { s.ETag = "" }, []testserver.Step{whole}, 1},
		{"kept too much", func(s *state) { s.Total = kept - 1 }, []testserver.Step{whole}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testserver.Config{}, c.responses...)
			b.write(b.part(), bytes.Repeat([]byte("x"), kept))
			if c.state == nil {
				c.state = func(*state) {}
			}
			b.state(c.state)
			b.expect(exitFine)
			b.holds("a.bin")
			b.content("a.bin", body)
			assert.Equal(t, c.requests, b.server.Arrivals(), "requests")
		})
	}
	t.Run("torn state", func(t *testing.T) {
		b := newBench(t, testserver.Config{}, whole)
		b.write(b.part(), body[:kept])
		b.write(b.part()+".json", []byte(`{"url": "ht`))
		b.expect(exitFine)
		b.content("a.bin", body)
	})
}

func TestDigestMismatch(t *testing.T) {
	wrong := testserver.Content(body, etag).Header("Repr-Digest", digestField([]byte("other")))
	for _, step := range []testserver.Step{wrong, wrong.Chunked()} {
		b := newBench(t, testserver.Config{}, step)
		b.write("a.bin", []byte("an older one"))
		b.expect(exitAltered, "not what was announced", "thrown away")
		b.holds("a.bin")
		b.content("a.bin", []byte("an older one"))
	}
}

// The digest is about the bytes of the earlier run, too. The response need not
// repeat it.
func TestDigestMismatchInEarlierPart(t *testing.T) {
	b := newBench(t, testserver.Config{}, testserver.Content(body, etag))
	b.write(b.part(), bytes.Repeat([]byte("x"), 100))
	b.state(func(s *state) { s.Digest = digestField(body) })
	b.expect(exitAltered, "goes on at 100 bytes", "thrown away")
	b.holds()
}

func TestNotFound(t *testing.T) {
	b := newBench(t, testserver.Config{}, testserver.Status(404))
	b.expect(exitFailed, "aplomb get: a.bin: the server answered 404 Not Found\n")
	b.holds()

	b.write(b.part(), body[:100])
	b.state(func(*state) {})
	b.expect(exitFailed, "404 Not Found; 100 bytes kept from an earlier run\n")
	b.holds(b.part(), b.part()+".json")
}

func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.Status(503))
		b.expect(exitFailed, "next try in", "503 Service Unavailable; gave up after 6 requests")
		b.holds()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.ResetBeforeHeaders())
		b.expect(exitFailed, "connection reset by peer; gave up after 6 requests\n")
		b.holds()
	})
}

// Until the body is whole its name belongs to the older file, and Ctrl-C leaves
// a part that the next run goes on from.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cut = 50_000
		b := newBench(t, testserver.Config{Net: testserver.NewNet()},
			content(body, etag).CutAt(cut, testserver.Stall),
			content(body, etag))
		b.write("a.bin", []byte("an older one"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan string)
		go func() {
			code, _, stderr := b.fetch(ctx, "a.bin")
			done <- fmt.Sprint(code, " ", stderr)
		}()
		synctest.Wait() // all that comes has come
		b.content("a.bin", []byte("an older one"))
		cancel()
		if got := <-done; !strings.HasPrefix(got, "130 aplomb get: a.bin: interrupted; 48.8 KiB kept") {
			t.Error(got)
		}
		b.holds("a.bin", b.part(), b.part()+".json")
		b.content("a.bin", []byte("an older one"))
		b.content(b.part(), body[:cut])

		b.expect(exitFine, "goes on at 48.8 KiB")
		b.holds("a.bin")
		b.content("a.bin", body)
	})
}

func TestSeveral(t *testing.T) {
	b := newBench(t, testserver.Config{Handler: func(r *testserver.Received) testserver.Step {
		if r.Path == "/missing" {
			return testserver.Status(404)
		}
		return content(append([]byte(r.Path), body...), etag)
	}})
	code, _, stderr := b.fetch(t.Context(), "a", "missing", "b", "dir/c")
	if code != exitFailed || stderr != "aplomb get: missing: the server answered 404 Not Found\n" {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	b.holds("a", "b", "c")
	for name, path := range map[string]string{"a": "/a", "b": "/b", "c": "/dir/c"} {
		b.content(name, append([]byte(path), body...))
	}
}

func TestPerHost(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"-per-host", "3"}, 3},
		{[]string{"-per-host", "5"}, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.Hang())
			b.args = append(b.args, c.args...)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan int)
			go func() {
				code, _, _ := b.fetch(ctx, "a", "b", "c", "d", "e")
				done <- code
			}()
			synctest.Wait()
			assert.Equal(t, c.want, b.server.Arrivals(), "%v requests at a time", c.args)
			cancel()
			assert.Equal(t, exitInterrupted, <-done, "exit status")
			b.holds()
		})
	}
}

// What has no strong validator cannot be continued, and so is not kept.
func TestWeakIsNotKept(t *testing.T) {
	weak := testserver.Content(body, `W/"v1"`)
	b := newBench(t, testserver.Config{}, weak.CutAt(100_000, testserver.Close), weak).noRetries()
	b.expect(exitFailed, "a.bin: unexpected EOF\n")
	b.holds()
	b.expect(exitFine, "293.0 KiB to come")
	b.content("a.bin", body)
	assert.Empty(t, b.server.Log()[1].Header.Get("Range"), "a part was asked for")
}

func TestPartIsLink(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag))
	elsewhere := filepath.Join(t.TempDir(), "precious")
	b.must(os.WriteFile(elsewhere, []byte("precious"), 0o600))
	link := filepath.Join(b.dir, b.part())
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Skip(err)
	}
	b.expect(exitFailed, "is not a regular file")
	// In the place of the state it is not read, and gives way.
	b.must(os.Rename(link, filepath.Join(b.dir, b.part()+".json")))
	b.expect(exitFine)
	b.holds("a.bin")
	if got, _ := os.ReadFile(elsewhere); string(got) != "precious" {
		t.Error("a link was followed out of the directory")
	}
}

func TestOneFile(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag))
	b.args = []string{"-o", filepath.Join(b.dir, "named")}
	b.expect(exitFine, "named: done")
	b.holds("named")
}

// screenFor makes a writer a terminal of 80 columns and 24 lines.
func screenFor(terminal io.Writer) func(io.Writer) (int, int) {
	return func(w io.Writer) (int, int) {
		if w == terminal {
			return 80, 24
		}
		return 0, 0
	}
}

func TestBars(t *testing.T) {
	b := newBench(t, testserver.Config{Routes: map[string]testserver.Script{
		"/a": {content(body, etag)},
		"/b": {testserver.Status(404)},
		"/c": {testserver.Content(body, etag).Header("Repr-Digest", digestField(nil))},
	}})
	var out, errs bytes.Buffer
	w := world{stdout: &out, stderr: &errs, screen: screenFor(&out), base: b.server.Transport()}
	code := run(t.Context(), []string{"-o", b.dir, b.server.URL + "/a", b.server.URL + "/b", b.server.URL + "/c"}, w)
	assert.True(t, code == exitAltered && strings.Count(errs.String(), "\n") == 2, "exit status %d: %s", code, errs.String())
	for _, text := range []string{"a: done: 293.0 KiB", "sha-256 agrees\n", "b: failed\n", "c: failed\n"} {
		assert.Contains(t, out.String(), text, "nothing shows %q", text)
	}
	b.holds("a")
}

// Within a run a cut is the transport's business: the download only counts it.
func TestResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag).CutAt(100_000, testserver.Close))
		b.expect(exitFine, "cut off at 97.7 KiB (unexpected EOF), taken up again", "2 resumes", "sha-256 agrees")
		b.holds("a.bin")
		b.content("a.bin", body)
	})
}

// So is a server that falls silent.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag).CutAt(100_000, testserver.Stall))
		b.expect(exitFine, "cut off at 97.7 KiB", "2 resumes", "sha-256 agrees")
		b.content("a.bin", body)
	})
}

func TestDemo(t *testing.T) {
	var out, errs bytes.Buffer
	if err := demonstrate(t.Context(), world{stdout: &out, stderr: &errs}, true, t.TempDir(), 0); err != nil {
		t.Errorf("%v\n%s%s", err, out.String(), errs.String())
	}
}

// TestVerbose: -v tells the story of each request, and no other output does.
func TestVerbose(t *testing.T) {
	for _, verbose := range []bool{true, false} {
		b := newBench(t, testserver.Config{}, testserver.Status(503), content(body, etag))
		if verbose {
			b.args = append(b.args, "-v")
		}
		code, stdout, stderr := b.fetch(t.Context(), "a.bin?key=SECRET")
		require.Zero(t, code, "exit status %d: %s", code, stderr)
		for _, text := range []string{"GET " + b.server.URL + "/a.bin?key=xxxxx", "attempt 1, at 0s: 503", "attempt 2, at ", "status 200, the caller has it"} {
			assert.Equal(t, verbose, strings.Contains(stdout, text), "-v is %v: %q in\n%s", verbose, text, stdout)
		}
		assert.NotContains(t, stdout+stderr, "SECRET", "a secret in\n%s%s", stdout, stderr)
	}
}
