package get

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"rule": {"attempts": "many"}}`), 0o600))
	for _, c := range []struct {
		name, args, says string
		code             int
	}{
		{"help", "-h", "Exit status:", exitFine},
		{"nothing", "", "no URL", exitUsage},
		{"no downloads", "-per-host 0 http://a/b", "aplomb get: -per-host 0: it must be a whole number of at least 1\n", exitUsage},
		{"negative downloads", "-per-host -1 http://a/b", "-per-host -1: it must be", exitUsage},
		{"half a download", "-per-host 1.5 http://a/b", "-per-host 1.5: it must be", exitUsage},
		{"no attempts", "-attempts 0 http://a/b", "-attempts 0: it must be a whole number of at least 1\n", exitUsage},
		{"negative attempts", "-attempts -2 http://a/b", "-attempts -2: it must be", exitUsage},
		{"no requests", "-rate 0 http://a/b", "-rate 0: it must be a number above 0\n", exitUsage},
		{"negative requests", "-rate -1 http://a/b", "-rate -1: it must be", exitUsage},
		{"no number of requests", "-rate NaN http://a/b", "-rate NaN: it must be", exitUsage},
		{"infinite requests", "-rate Inf http://a/b", "-rate Inf: it must be", exitUsage},
		{"no bytes", "-limit 0 http://a/b", "-limit 0: it must be a number of bytes per second, at least 1, such as 500K or 2M\n", exitUsage},
		{"no kilobytes", "-limit 0K http://a/b", "-limit 0K: it must be", exitUsage},
		{"negative bytes", "-limit -5M http://a/b", "-limit -5M: it must be", exitUsage},
		{"a unit alone", "-limit K http://a/b", "-limit K: it must be", exitUsage},
		{"too many bytes", "-limit 99999999999T http://a/b", "it must be", exitUsage},
		{"no silence", "-stall 0 http://a/b", "-stall 0: it must be a time above 0, such as 30s or 2m\n", exitUsage},
		{"negative silence", "-stall -1s http://a/b", "-stall -1s: it must be", exitUsage},
		{"silence without a unit", "-stall 30 http://a/b", "-stall 30: it must be", exitUsage},
		{"all faults at once", "-rate 0 -limit 0 -stall x", "-rate 0: it must be a number above 0\n-limit 0: it must be a number of bytes per second, at least 1, such as 500K or 2M\n-stall x: it must be a time above 0, such as 30s or 2m\nno URL\n", exitUsage},
		{"two files", "-o a http://a/b -o c http://a/d", "-o is given twice", exitUsage},
		{"flag after the URL", "http://a/b -rate 0", "-rate 0: it must be", exitUsage},
		{"two URLs to stdout", "-o - http://a/b http://a/c", "-o -: this takes a single URL", exitUsage},
		{"no mirror", "-mirrors http://a/b", "-mirrors: there is no mirror after the URL\n", exitUsage},
		{"the same mirror", "-mirrors http://a/b http://me@a/b#c", "is given twice\n", exitUsage},
		{"a mirror that can be forged", "-mirrors https://a/b http://c/b", "\"http://c/b\": a mirror of an https URL must have https, unless -sha256 is given\n", exitUsage},
		{"a mirror of another scheme", "-mirrors http://a/b ftp://c/b", "\"ftp://c/b\" is not an http or https URL\n", exitUsage},
		{"half a digest", "-sha256 ab http://a/b", "-sha256 ab: it must be 64 hexadecimal digits\n", exitUsage},
		{"a digest of two files", "-sha256 " + strings.Repeat("ab", 32) + " http://a/b http://a/c", "-sha256: this takes a single file\n", exitUsage},
		{"no CA file", "-cacert " + filepath.Join(dir, "none") + " http://a/b", "-cacert: open " + filepath.Join(dir, "none") + ": ", exitUsage},
		{"no certificate in it", "-cacert " + rules + " http://a/b", "rules.json: there is no certificate in it", exitUsage},
		{"unknown flag", "-x http://a/b", "-x", exitUsage},
		{"demo of a URL", "-demo http://a/b", "no URL", exitUsage},
		{"no rules", "-rule " + filepath.Join(dir, "none") + " http://a/b", "none", exitUsage},
		{"wrong rules", "-rule " + rules + " http://a/b", "line 1", exitUsage},
		{"other scheme", "ftp://a/b", "not an http or https URL", exitUsage},
		{"no host", "http:///b", "not an http or https URL", exitUsage},
		{"no name", "http://a/", "without a file name; name one with -o", exitUsage},
		{"twice", "-o " + dir + " http://a/b http://c/b", "two of the URLs would be written to " + filepath.Join(dir, "b") + "; if they serve the same file, say so with -mirrors\n", exitUsage},
		{"twice in part", "-o " + dir + " http://a/b http://c/b." + strings.TrimPrefix(partOf(&url.URL{Scheme: "http", Host: "a", Path: "/b"}, "b"), "b.") + ".part", "two of the URLs", exitUsage},
		{"several in a file", "-o " + rules + " http://a/b http://a/c", "has to be a directory", exitUsage},
		{"no directory", "-o " + filepath.Join(dir, "none") + string(filepath.Separator) + " http://a/b", "no such directory", exitUsage},
		{"no directory above", "-o " + filepath.Join(dir, "none", "b") + " http://a/b", "none", exitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			w := world{stdout: &out, stderr: &out, base: refuseAll{t}}
			assert.Equal(t, c.code, run(t.Context(), strings.Fields(c.args), w), "exit status")
			assert.Contains(t, out.String(), c.says)
		})
	}
}

// refuseAll fails the test when something is sent.
type refuseAll struct{ *testing.T }

func (r refuseAll) RoundTrip(req *http.Request) (*http.Response, error) {
	r.Errorf("%s was sent", req.URL)
	return nil, errors.New("refused")
}

func TestStatus(t *testing.T) {
	failed := errors.New("some failure")
	for _, c := range []struct {
		errs []error
		want int
	}{
		{[]error{nil, nil}, exitFine},
		{[]error{nil, failed}, exitFailed},
		{[]error{errAltered, failed, nil}, exitAltered},
		{[]error{errInterrupted, errAltered, failed}, exitInterrupted},
	} {
		assert.Equal(t, c.want, status(c.errs), "%v", c.errs)
	}
}

func TestNameOf(t *testing.T) {
	for path, want := range map[string]string{
		"/a.bin":                "a.bin",
		"/x/y/a%20b.bin?name=c": "a b.bin",
		"/.hidden":              ".hidden",
		"/a..b":                 "a..b",
		"":                      "",
		"/x/":                   "",
		"/..":                   "",
		"/.":                    "",
		"/x/%2e%2e":             "",
		"/..%2f..%2fpasswd":     "",
		"/%2fetc%2fpasswd":      "",
		"/..%5c..%5cpasswd":     "",
		"/a%00b":                "",
		"/%1b[2J":               "",
		"/a%0ab":                "",
		"/%e2%80%ae.bin":        "",
	} {
		u, err := url.Parse("http://host" + path)
		require.NoError(t, err)
		if got, err := nameOf(u); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// No password is written to the disk.
func TestStateWithoutPassword(t *testing.T) {
	u, _ := url.Parse("http://me:secret@host/a?b=c")
	resp := &http.Response{Request: &http.Request{URL: u}, Header: http.Header{}}
	s, ok := stateOf(u, resp, 1)
	assert.True(t, s.URL == "http://host/a?b=c" && s.From == "http://host/a" && !ok, "%+v, %t", s, ok)
}

func TestLock(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" || runtime.GOOS == "js" {
		t.Skip("no locks here")
	}
	targets, err := targetsOf([][]string{{"http://a/b"}}, t.TempDir(), "", nil)
	require.NoError(t, err)
	defer closeAll(targets)
	first, err := openPart(targets[0])
	require.NoError(t, err)
	if _, err := openPart(targets[0]); !errors.Is(err, errBusy) {
		t.Errorf("a second run: %v", err)
	}
	assert.NoError(t, first.finish())
	second, err := openPart(targets[0])
	if err != nil {
		t.Fatal("after the first run: ", err)
	}
	// What the first run still holds has its name already: it is no part.
	assert.ErrorIs(t, first.lock(), errBusy, "locking a finished file")
	first.close()
	second.close()
}

func TestDigests(t *testing.T) {
	sum256, sum512 := base64.StdEncoding.EncodeToString(make([]byte, 32)), base64.StdEncoding.EncodeToString(make([]byte, 64))
	for field, want := range map[string]int{
		"":                         0,
		"sha-256=:" + sum256 + ":": 1,
		"sha-512=:" + sum512 + ":": 1,
		"md5=:AAAA:,sha-256=:" + sum256 + ":, sha-512=:" + sum512 + ":": 2,
		"sha-256=:" + strings.TrimRight(sum256, "=") + ":":              1,
		"sha-256=:" + sum512 + ":":                                      0,
		"sha-256=" + sum256:                                             0,
		"sha-256=:" + sum256:                                            0,
		"sha-256=:" + sum256 + ":, x":                                   0,
		"sha-256=:!" + sum256[1:] + ":":                                 0,
		"SHA-256=:" + sum256 + ":":                                      0,
	} {
		if got := digests(field); len(got) != want {
			t.Errorf("%q: %d digests, want %d", field, len(got), want)
		}
	}
}

func TestCheckSeveralDigests(t *testing.T) {
	file := strings.NewReader("hello")
	good := "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
	bad512 := "sha-512=:" + base64.StdEncoding.EncodeToString(make([]byte, 64)) + ":"
	if got, err := check(t.Context(), file, 5, good); got != "sha-256" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := check(t.Context(), file, 5, good+", "+bad512); !errors.Is(err, errAltered) {
		t.Errorf("one of two differs: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := check(ended, file, 5, good); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestEmptyFlags(t *testing.T) {
	for _, name := range []string{"-o", "-rule", "-cacert"} {
		var out bytes.Buffer
		w := world{stdout: &out, stderr: &out, base: refuseAll{t}}
		assert.Equal(t, exitUsage, run(t.Context(), []string{name, "", "http://a/b"}, w), "%s: exit status", name)
		assert.Contains(t, out.String(), name+` "": it must not be empty`, "the output")
	}
}

// Each flag of the usage exists, and the usage fits a terminal.
func TestHelpFits(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(usage, "\n"), "\n")
	if len(lines) > 23 { // the last line of the screen has the prompt
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 80, "columns: %s", line)
		flag, ok := strings.CutPrefix(line, "  -")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(flag, " ")
		args := []string{"-" + name, "1", "http://a/b"}
		if _, err := parse(args, world{}); err != nil && strings.Contains(err.Error(), "not defined") {
			t.Error(err)
		}
	}
}

func TestParse(t *testing.T) {
	o, err := parse(strings.Fields("-rate 0.5 http://a/b -limit 1.5M http://a/c -stall 1m -- -attempts"), world{})
	assert.True(t, err == nil && o.rate == 0.5 && o.limit == 1.5*1024*1024 && o.stall == time.Minute, "%+v, %v", o, err)
	assert.Equal(t, "http://a/b http://a/c -attempts", strings.Join(o.urls, " "), "the URLs")
}

func TestBytesOf(t *testing.T) {
	for text, want := range map[string]float64{
		"1": 1, "500": 500, "500B": 500, "1k": 1024, "2K": 2048, "2KiB": 2048, "2KB": 2048, "1.5MiB": 1.5 * 1024 * 1024,
		"1G": 1 << 30, "1T": 1 << 40, "": 0, "0": 0, "0.5": 0, "-1": 0, "K": 0, "KiB": 0, "1X": 0, "NaN": 0, "InfK": 0, "1e300G": 0,
	} {
		if got, ok := bytesOf(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %t; want %v", text, got, ok, want)
		}
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "unknown", 0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1.0 KiB", 300_000: "293.0 KiB",
		1<<20 - 1: "1.0 MiB", 16 << 20: "16.0 MiB", 1 << 40: "1.0 TiB", 1 << 60: "1048576.0 TiB",
	} {
		assert.Equal(t, want, sizeText(n), "%d", n)
	}
}

func FuzzDigests(f *testing.F) {
	f.Add("sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:")
	f.Add("md5=:AAAA:, sha-512=::")
	f.Fuzz(func(t *testing.T, field string) {
		for name, sum := range digests(field) {
			assert.Equal(t, len(sum), algorithms[name]().Size(), "%q: %s of %d bytes", field, name, len(sum))
		}
	})
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-0/1")
	f.Add("bytes */1")
	f.Add("bytes 5-4/-1")
	f.Fuzz(func(t *testing.T, field string) {
		resp := &http.Response{Header: http.Header{"Content-Range": {field}}}
		first, last, total, ok := contentRange(resp)
		assert.False(t, ok && (first < 0 || last < first || total <= last), "%q: %d-%d/%d", field, first, last, total)
	})
}

func TestMeter(t *testing.T) {
	var m meter
	now := time.Unix(0, 0)
	m.start(1000, 11_000, now)
	if perSecond, left := m.pace(now); perSecond != 0 || left >= 0 {
		t.Errorf("at first: %d/s, %v left", perSecond, left)
	}
	for range 4 {
		now = now.Add(time.Second)
		m.add(1000, now)
	}
	if perSecond, left := m.pace(now); perSecond != 1000 || left != 6*time.Second {
		t.Errorf("at a steady pace: %d/s, %v left", perSecond, left)
	}
	now = now.Add(3 * time.Second)
	if perSecond, _ := m.pace(now); math.Abs(float64(perSecond)-1000/math.E) > 1 {
		t.Errorf("three seconds without a byte: %d/s", perSecond)
	}
	m.resumed()
	assert.Equal(t, "45 % of 10.7 KiB, 367 bytes/s, 16s left, 1 resume", m.progress(now))
	assert.Equal(t, "done: 4.9 KiB, 3.9 KiB of it now, in 7s, 571 bytes/s, 1 resume, sha-256 agrees", m.result(now, "sha-256"))
}
