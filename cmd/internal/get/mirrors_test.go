package get

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// other is another version of body, of the same length. It differs in two places, of which one comes
// after most cuts.
var other = func() []byte {
	b := slices.Clone(body)
	b[150_000] ^= 1
	b[250_000] ^= 1
	return b
}()

// A pair is a directory to download into, a server, and a mirror of it with another path.
type pair struct {
	*bench
	mirror *testserver.Server
}

const (
	first  = "http://a.test/a.bin"
	second = "http://m.test/pub/a/a.bin"
)

// newPair starts the servers. A request to a server takes its next step, and the last step
// counts for all further requests.
func newPair(t *testing.T, a, m testserver.Script) *pair {
	n := testserver.NewNet()
	p := &pair{newBench(t, testserver.Config{Net: n, Host: "a.test"}, a...), nil}
	p.mirror = testserver.Start(t, testserver.Config{Net: n, Host: "m.test"}, m...)
	p.args = append(p.args, "-mirrors")
	return p
}

// run runs the command, by default with both URLs.
func (p *pair) run(ctx context.Context, urls ...string) (code int, stdout, all string) {
	if urls == nil {
		urls = []string{first, second}
	}
	var out, errs bytes.Buffer
	code = run(ctx, append(slices.Clone(p.args), urls...), world{stdout: &out, stderr: &errs, base: p.server.Transport()})
	return code, out.String(), out.String() + errs.String()
}

// ends is run, whose exit status must be as given and whose output must contain the text.
func (p *pair) ends(want int, says string, urls ...string) {
	p.Helper()
	code, _, all := p.run(p.Context(), urls...)
	require.True(p, code == want && strings.Contains(all, says), "exit status %d: %s", code, all)
}

func hexDigest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func TestMirrors(t *testing.T) {
	const tag = `"1"` // both servers count their versions
	plain, plainOther := testserver.Content(body, tag), testserver.Content(other, tag)
	good, goodOther := content(body, tag), content(other, tag)
	down := testserver.Status(503)
	cut := func(s testserver.Step) testserver.Step { return s.CutAt(200_000, testserver.Close) }
	lie := testserver.Content(other, tag).Header("Repr-Digest", digestField(body))
	page := testserver.OK("<p>try again later")
	type script = testserver.Script
	for _, c := range []struct {
		name    string
		a, m    script
		args    []string
		code    int
		want    []byte   // the file; nil: none
		says    string   // part of the output
		ranges  []string // of the mirror's requests
		atFirst int      // requests to the first server; 0: any number
	}{
		{name: "the first is well", a: script{good}, m: script{good}, want: body, says: "done: 293.0 KiB", atFirst: 1},
		{name: "the first is down", a: script{down}, m: script{good}, want: body, ranges: []string{""},
			says: "aplomb get: a.bin: http://a.test/a.bin: the server answered 503 Service Unavailable; gave up after "},
		{name: "the first resets", a: script{testserver.ResetBeforeHeaders()}, m: script{good}, want: body, ranges: []string{""},
			says: "; asks http://m.test/pub/a/a.bin\n"},
		{name: "the first has not got it", a: script{testserver.Status(404)}, m: script{good}, want: body, ranges: []string{""},
			says: "http://a.test/a.bin: the server answered 404 Not Found; asks", atFirst: 1},
		{name: "the first asks to wait", a: script{down.Header("Retry-After", "20")}, m: script{good}, want: body, ranges: []string{""},
			says: "max elapsed", atFirst: 1},
		{name: "the first is silent", a: script{testserver.Hang()}, m: script{good}, want: body, ranges: []string{""}},
		{name: "both are down", a: script{down}, m: script{down}, code: exitFailed,
			says: "none of the 2 URLs has sent the file\n"},
		{name: "neither has it", a: script{testserver.Status(404)}, m: script{testserver.Status(404)}, code: exitFailed,
			says: "a.bin: http://m.test/pub/a/a.bin: the server answered 404 Not Found; none of the 2 URLs has sent", ranges: []string{""}, atFirst: 1},
		{name: "both are down at first", a: script{down, down, down, good}, m: script{down}, want: body},

		{name: "cut, the same digest", a: script{cut(good), down}, m: script{good}, want: body, ranges: []string{"bytes=200000-"},
			says: "a.bin: goes on at 195.3 KiB of 293.0 KiB\n"},
		{name: "cut, no digest", a: script{cut(plain), down}, m: script{plain}, want: body, ranges: []string{""},
			says: "compares the part with it"},
		{name: "cut, only the first has a digest", a: script{cut(good), down}, m: script{plain}, want: body, ranges: []string{"bytes=200000-", ""}},
		{name: "cut, only the mirror has a digest", a: script{cut(plain), down}, m: script{good}, want: body, ranges: []string{""}},
		{name: "cut, the mirror sends no parts", a: script{cut(good), down}, m: script{testserver.OK(string(body))}, want: body, ranges: []string{"bytes=200000-"}},
		{name: "cut, the mirror has no validator", a: script{cut(plain), down}, m: script{testserver.OK(string(body)).Chunked()}, want: body},
		{name: "cut, the mirror is cut before it has as much", a: script{cut(plain), down, down, down, plain}, m: script{plain.CutAt(100_000, testserver.Close), down}, want: body,
			says: "goes on at 195.3 KiB of 293.0 KiB"},
		{name: "cut, the mirror is cut when it has more", a: script{cut(plain), down}, m: script{plain.CutAt(250_000, testserver.Close), plain}, want: body},
		{name: "cut, no validator", a: script{cut(testserver.OK(string(body))), down}, m: script{plainOther}, want: other, ranges: []string{""}},

		{name: "another version, the same tag", a: script{cut(plain), down}, m: script{plainOther}, want: other, ranges: []string{"", ""},
			says: "http://m.test/pub/a/a.bin: it has another version than the part; asks http://a.test/a.bin\n"},
		{name: "another version, and the first comes back", a: script{cut(plain), down, down, down, plain}, m: script{plainOther}, want: body, ranges: []string{""}},
		{name: "another digest", a: script{cut(good), down}, m: script{goodOther}, want: other, ranges: []string{"bytes=200000-", "", "bytes=200000-", ""},
			says: "it has another version than the part"},
		{name: "another length", a: script{cut(plain), down}, m: script{testserver.Content(body[:250_000], tag)}, want: body[:250_000], ranges: []string{"", ""}},
		{name: "the beginning only", a: script{cut(plain), down}, m: script{testserver.OK(string(body[:100_000])).Chunked()}, want: body[:100_000], ranges: []string{"", ""}},
		{name: "a page instead of the file", a: script{cut(plain), down, down, down, plain}, m: script{page}, want: body, ranges: []string{""}},
		{name: "a false digest", a: script{cut(good), down, down, down, good}, m: script{lie}, want: body, ranges: []string{"bytes=200000-", ""},
			says: "starts anew: not what was announced"},
		{name: "a false digest, and no other", a: script{testserver.Status(404)}, m: script{lie}, code: exitAltered, ranges: []string{""},
			says: "thrown away; none of the 2 URLs has sent the file"},
		{name: "the first has a false digest", a: script{lie}, m: script{good}, want: body, ranges: []string{""}, atFirst: 1,
			says: "thrown away; asks"},

		{name: "-sha256, no digest", a: script{cut(plain), down}, m: script{plain}, want: body, ranges: []string{"bytes=200000-"},
			args: []string{"-sha256", hexDigest(body)}, says: "sha-256 agrees"},
		{name: "-sha256, the mirror has another version", a: script{cut(plain), down, down, down, plain}, m: script{plainOther.Header("X", "")}, want: body,
			args: []string{"-sha256", strings.ToUpper(hexDigest(body))}, says: "starts anew: not what was announced", ranges: []string{"bytes=200000-", ""}},
		{name: "-sha256, the first has another version", a: script{cut(plainOther), down}, m: script{plain}, want: body,
			args: []string{"-sha256", hexDigest(body)}, ranges: []string{"bytes=200000-", ""}},
		{name: "-sha256, the servers say otherwise", a: script{goodOther}, m: script{goodOther}, code: exitAltered,
			args: []string{"-sha256", hexDigest(body)}, says: "the server has a file with another digest", ranges: []string{""}, atFirst: 1},
		{name: "-sha256, a digest with a mistake", a: script{plainOther.Header("Repr-Digest", "?")}, m: script{plain}, want: body,
			args: []string{"-sha256", hexDigest(body)}, ranges: []string{""}, atFirst: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, c.a, c.m)
				p.args = append(p.args, c.args...)
				code, _, all := p.run(t.Context())
				if code != c.code || !strings.Contains(all, c.says) {
					t.Errorf("exit status %d, want %d; the output has to contain %q:\n%s", code, c.code, c.says, all)
				}
				if c.want != nil {
					p.holds("a.bin")
					p.content("a.bin", c.want)
				} else {
					p.holds()
				}
				var ranges []string
				for _, r := range p.mirror.Log() {
					ranges = append(ranges, r.Header.Get("Range"))
					if got := r.Header.Get("If-Range"); got != "" && r.Header.Get("Range") == "bytes=200000-" {
						t.Errorf("the mirror got the tag %s of the first server", got)
					}
				}
				assert.False(t, c.ranges != nil && !slices.Equal(ranges, c.ranges), "the mirror was asked for %q, want %q\n%s", ranges, c.ranges, all)
				if max := 3 + 6; len(ranges) > max || p.server.Arrivals() > max+1 {
					t.Errorf("%d and %d requests", p.server.Arrivals(), len(ranges))
				}
				if got := p.server.Arrivals(); c.atFirst > 0 && got != c.atFirst {
					t.Errorf("the first server got %d requests, want %d", got, c.atFirst)
				}
			})
		})
	}
}

// A mirror is asked within a few seconds.
func TestMirrorIsAskedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, testserver.Script{testserver.Status(503)}, testserver.Script{content(body, etag)})
		begin := time.Now()
		p.ends(exitFine, "")
		assert.LessOrEqual(t, time.Since(begin), brief)
	})
}

// A wait that a server asked for is kept, also when it is asked again at the end.
func TestMirrorsKeepRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, testserver.Script{testserver.Status(503).Header("Retry-After", "20"), content(body, etag)},
			testserver.Script{testserver.Status(404)})
		begin := time.Now()
		p.ends(exitFine, "")
		assert.GreaterOrEqual(t, time.Since(begin), 20*time.Second)
		p.content("a.bin", body)
	})
}

// noRetries makes each URL be asked twice, and a cut stay a cut.
func (p *pair) noRetries() *pair {
	p.bench.noRetries()
	return p
}

// The next run goes on where the part came from, with the validator of that server.
func TestMirrorsAcrossRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, down := testserver.Content(body, `"of-m"`), testserver.Status(503)
		p := newPair(t, testserver.Script{down}, testserver.Script{plain.CutAt(200_000, testserver.Close), down, plain}).noRetries()
		p.ends(exitFailed, "195.3 KiB kept, the same command goes on from there")
		p.holds(p.part(), p.part()+".json")
		var s state
		if err := json.Unmarshal(p.read(p.part()+".json"), &s); err != nil || s.URL != second || s.ETag != `"of-m"` {
			t.Errorf("%+v, %v", s, err)
		}
		before := p.server.Arrivals()
		p.ends(exitFine, "")
		assert.Equal(t, before, p.server.Arrivals(), "requests to the first server")
		p.content("a.bin", body)
		log := p.mirror.Log()
		if got := log[len(log)-1].Header; got.Get("Range") != "bytes=200000-" || got.Get("If-Range") != `"of-m"` {
			t.Errorf("the mirror got %v", got)
		}
	})
}

// A run without mirrors does not go on with the part of a mirror, and a run with mirrors goes on
// with a part of the first URL.
func TestPartWithAndWithoutMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, down := testserver.Content(body, etag), testserver.Status(503)
		for _, c := range []struct {
			a, m testserver.Script
			runs [2][]string
			says string
		}{
			{testserver.Script{down, down, testserver.Content(other, etag)}, testserver.Script{plain.CutAt(200_000, testserver.Close), down},
				[2][]string{{"-mirrors", first, second}, {first}}, "293.0 KiB to come"},
			{testserver.Script{testserver.Content(other, etag).CutAt(200_000, testserver.Close), testserver.Content(other, etag)}, testserver.Script{plain},
				[2][]string{{first}, {"-mirrors", first, second}}, "goes on at 195.3 KiB"},
		} {
			p := newPair(t, c.a, c.m).noRetries()
			p.args = slices.DeleteFunc(p.args, func(s string) bool { return s == "-mirrors" })
			p.ends(exitFailed, "", c.runs[0]...)
			p.ends(exitFine, c.says, c.runs[1]...)
			p.content("a.bin", other)
			p.server.Close()
			p.mirror.Close()
		}
	})
}

// A part that goes on because of -sha256 keeps that digest. A later run without the flag would
// otherwise trust the validator of one server for the bytes of two.
func TestPartKeepsTheDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, plainOther, down := testserver.Content(body, etag), testserver.Content(other, etag), testserver.Status(503)
		p := newPair(t, testserver.Script{plain.CutAt(100_000, testserver.Close), down, down, plain},
			testserver.Script{plainOther.CutAt(100_000, testserver.Close), down}).noRetries()
		mirrors := p.args
		p.args = slices.DeleteFunc(slices.Clone(mirrors), func(s string) bool { return s == "-mirrors" })
		p.ends(exitFailed, "97.7 KiB kept", first)
		p.args = append(slices.Clone(mirrors), "-sha256", hexDigest(body))
		p.ends(exitFailed, "195.3 KiB kept")
		p.args = mirrors
		p.ends(exitFine, "")
		p.content("a.bin", body)
	})
}

func TestMirrorsToStdout(t *testing.T) {
	whole, down := testserver.OK(string(body)), testserver.Status(503)
	cut := whole.CutAt(200_000, testserver.Close)
	for _, c := range []struct {
		name string
		a, m testserver.Script
		code int
		sent int // bytes of body on stdout
		says string
	}{
		{"the same", testserver.Script{cut, down}, testserver.Script{whole}, exitFine, len(body), "done: 293.0 KiB"},
		{"the same, cut again", testserver.Script{cut, down, down, whole}, testserver.Script{whole.CutAt(100_000, testserver.Close), down}, exitFine, len(body), ""},
		{"another version", testserver.Script{cut, down, down, down, whole}, testserver.Script{testserver.OK(string(other))}, exitFine, len(body),
			"http://m.test/pub/a/a.bin: it has another version than the one of which a part went to stdout already; asks"},
		{"a shorter version", testserver.Script{cut, down}, testserver.Script{testserver.OK(string(body[:100]))}, exitFailed, 200_000, "none of the 2 URLs"},
		{"altered", testserver.Script{whole.Header("Repr-Digest", digestField(other))}, testserver.Script{whole}, exitAltered, len(body), "stdout has it already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, c.a, c.m)
				p.args = []string{"-o", "-", "-mirrors"}
				code, stdout, all := p.run(t.Context())
				if code != c.code || stdout != string(body[:c.sent]) || !strings.Contains(all[len(stdout):], c.says) {
					t.Errorf("exit status %d, %d bytes: %s", code, len(stdout), all[len(stdout):])
				}
			})
		})
	}
}

// A fault of the disk or of the reader of stdout is no reason to ask another server.
func TestMirrorsAreNoHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, testserver.Script{content(body, etag)}, testserver.Script{content(body, etag)})
		var errs bytes.Buffer
		code := run(t.Context(), []string{"-mirrors", "-o", "-", first, second},
			world{stdout: closedPipe{}, stderr: &errs, base: p.server.Transport()})
		if code != exitFailed || !strings.Contains(errs.String(), "broken pipe") || p.mirror.Arrivals() != 0 {
			t.Errorf("exit status %d, %d requests to the mirror: %s", code, p.mirror.Arrivals(), errs.String())
		}
	})
}

// These are the secrets of one URL.
func TestMirrorsGetNoCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, testserver.Script{content(body, etag).CutAt(100, testserver.Close), testserver.Status(503)}, testserver.Script{content(body, etag)})
		code, _, all := p.run(t.Context(), "http://me:secret@a.test/a.bin?sig=secret", second)
		assert.True(t, code == exitFine && !strings.Contains(all, "secret"), "exit status %d: %s", code, all)
		if got := p.server.Log()[0].Header.Get("Authorization"); !strings.HasPrefix(got, "Basic ") {
			t.Errorf("the first server got %q", got)
		}
		log := p.mirror.Log()
		require.NotEmpty(t, log, "the mirror was not asked")
		for _, r := range log {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Referer") != "" || strings.Contains(r.Target, "secret") {
				t.Errorf("the mirror got %s, %v", r.Target, r.Header)
			}
		}
	})
}
