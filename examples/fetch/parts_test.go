package main

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
)

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.json")
	if err := os.WriteFile(rules, []byte(`{"rule": {"attempts": "many"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, args, says string
		code             int
	}{
		{"help", "-h", "Exit status:", exitFine},
		{"nothing", "", "no URL", exitUsage},
		{"unknown flag", "-x http://a/b", "-x", exitUsage},
		{"negative limit", "-per-host -1 http://a/b", "negative", exitUsage},
		{"demo of a URL", "-demo http://a/b", "no URL", exitUsage},
		{"no rules", "-rule " + filepath.Join(dir, "none") + " http://a/b", "none", exitUsage},
		{"wrong rules", "-rule " + rules + " http://a/b", "line 1", exitUsage},
		{"other scheme", "ftp://a/b", "not an http or https URL", exitUsage},
		{"no host", "http:///b", "not an http or https URL", exitUsage},
		{"no name", "http://a/", "without a file name; name one with -o", exitUsage},
		{"twice", "-o " + dir + " http://a/b http://c/b", "two of the URLs", exitUsage},
		{"twice in part", "-o " + dir + " http://a/b http://c/b.part", "two of the URLs", exitUsage},
		{"several in a file", "-o " + rules + " http://a/b http://a/c", "has to be a directory", exitUsage},
		{"no directory", "-o " + filepath.Join(dir, "none") + string(filepath.Separator) + " http://a/b", "no such directory", exitUsage},
		{"no directory above", "-o " + filepath.Join(dir, "none", "b") + " http://a/b", "none", exitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			w := world{stdout: &out, stderr: &out, base: refuseAll{t}}
			if code := run(t.Context(), strings.Fields(c.args), w); code != c.code {
				t.Errorf("exit status %d, want %d", code, c.code)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("the output lacks %q:\n%s", c.says, out.String())
			}
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
		if got := status(c.errs); got != c.want {
			t.Errorf("%v: %d, want %d", c.errs, got, c.want)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if s.URL != "http://host/a?b=c" || s.From != "http://host/a" || ok {
		t.Errorf("%+v, %t", s, ok)
	}
}

func TestLock(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" || runtime.GOOS == "js" {
		t.Skip("no locks here")
	}
	targets, err := targetsOf([]string{"http://a/b"}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(targets)
	first, err := openPart(targets[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openPart(targets[0]); !errors.Is(err, errBusy) {
		t.Errorf("a second run: %v", err)
	}
	if err := first.finish(); err != nil {
		t.Error(err)
	}
	second, err := openPart(targets[0])
	if err != nil {
		t.Fatal("after the first run: ", err)
	}
	// What the first run still holds has its name already: it is no part.
	if err := first.lock(); !errors.Is(err, errBusy) {
		t.Errorf("locking a finished file: %v", err)
	}
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

func FuzzDigests(f *testing.F) {
	f.Add("sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:")
	f.Add("md5=:AAAA:, sha-512=::")
	f.Fuzz(func(t *testing.T, field string) {
		for name, sum := range digests(field) {
			if algorithms[name]().Size() != len(sum) {
				t.Errorf("%q: %s of %d bytes", field, name, len(sum))
			}
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
		if ok && (first < 0 || last < first || total <= last) {
			t.Errorf("%q: %d-%d/%d", field, first, last, total)
		}
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
	if got, want := m.progress(now), "45 % of 10.7 KiB, 367 bytes/s, 16s left, 1 resume"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := m.result(now, "sha-256"), "done: 4.9 KiB, 3.9 KiB of it now, in 7s, 571 bytes/s, 1 resume, sha-256 agrees"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
