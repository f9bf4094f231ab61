package get

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// If a server gives no way to go on, a cut download starts over, as often as the
// rule allows.
func TestStartsOver(t *testing.T) {
	const noRest = "cut off at 97.7 KiB (unexpected EOF), the server did not send the rest, starts over (2 of 6), next try in "
	const weak = "cut off at 97.7 KiB (unexpected EOF), the server's file cannot be resumed, starts over (2 of 6), next try in "
	noRanges := testserver.OK(string(body)).Header("ETag", etag)
	for _, c := range []struct {
		name  string
		step  testserver.Step
		whole testserver.Step
		says  string
	}{
		{"no validator", testserver.OK(string(body)), testserver.OK(string(body)), weak},
		{"weak validator", testserver.Content(body, `W/"1"`), testserver.Content(body, `W/"1"`), weak},
		{"no ranges", noRanges, noRanges, noRest},
		{"says so", noRanges.Header("Accept-Ranges", "none"), noRanges, weak},
		{"the file changes", content(body, `"v0"`), content(body, etag), noRest},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := newBench(t, testserver.Config{Net: testserver.NewNet(), Handler: func(r *testserver.Received) testserver.Step {
					if n++; n == 1 {
						return c.step.CutAt(100_000, testserver.Close)
					}
					return c.whole
				}})
				code, _, stderr := b.fetch(t.Context(), "a.bin")
				if code != exitFine || !strings.HasPrefix(stderr, "aplomb get: a.bin: "+c.says) || strings.Count(stderr, "\n") != 1 {
					t.Errorf("exit status %d: %s", code, stderr)
				}
				b.holds("a.bin")
				b.content("a.bin", body)
			})
		})
	}
}

// The attempts of the rule bound the starts.
func TestStartsOverWithinTheRule(t *testing.T) {
	for _, c := range []struct {
		attempts string
		starts   int
		says     string
	}{
		{"1", 1, "aplomb get: a.bin: unexpected EOF\n"},
		{"2", 2, "unexpected EOF; gave up after 2 starts\n"},
		{"", 6, "unexpected EOF; gave up after 6 starts\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.OK(string(body)).CutAt(100_000, testserver.Close))
			if c.attempts != "" {
				b.args = append(b.args, "-attempts", c.attempts)
			}
			b.expect(exitFailed, c.says)
			assert.Equal(t, c.starts, b.server.Arrivals(), "requests")
			b.holds()
		})
	}
}

// If the transport has given up on the rest, a new start would multiply its
// retries. The part stays.
func TestNoStartAfterRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := newBench(t, testserver.Config{Net: testserver.NewNet(), Handler: func(*testserver.Received) testserver.Step {
			if n++; n == 1 {
				return content(body, etag).CutAt(100_000, testserver.Close)
			}
			return testserver.Status(503)
		}})
		code, _, stderr := b.fetch(t.Context(), "a.bin")
		if code != exitFailed || strings.Contains(stderr, "starts over") || !strings.Contains(stderr, "97.7 KiB kept") {
			t.Errorf("exit status %d: %s", code, stderr)
		}
		b.holds(b.part(), b.part()+".json")
	})
}

// The same command goes on only if the server sends parts, so only then a run says
// so.
func TestKept(t *testing.T) {
	const goesOn, tries = "97.7 KiB kept, the same command goes on from there\n", "97.7 KiB kept, the same command tries to go on from there\n"
	for name, c := range map[string]struct {
		step testserver.Step
		says string
		next string // of the same command
	}{
		"ranges":       {content(body, etag), goesOn, "goes on at 97.7 KiB"},
		"unknown":      {testserver.OK(string(body)).Header("ETag", etag), tries, "starts anew: the server sends no parts"},
		"no ranges":    {testserver.OK(string(body)).Header("ETag", etag).Header("Accept-Ranges", "none"), "unexpected EOF\n", "293.0 KiB to come"},
		"no validator": {testserver.OK(string(body)).Header("Accept-Ranges", "bytes"), "unexpected EOF\n", "293.0 KiB to come"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testserver.Config{}, c.step.CutAt(100_000, testserver.Close), c.step.CutAt(100_000, testserver.Close), c.step).noRetries()
			b.expect(exitFailed, c.says)
			if name == "unknown" { // the second run learns that there are no parts
				b.expect(exitFailed, c.next, "unexpected EOF\n")
				b.holds()
				return
			}
			code, stdout, _ := b.fetch(t.Context(), "a.bin")
			assert.Contains(t, stdout, c.next, "exit status %d, the output lacks %q", code, c.next)
		})
	}
}

// A server that sends a part without saying so beforehand has shown that it does.
func TestKeptAfterAPart(t *testing.T) {
	b := newBench(t, testserver.Config{},
		testserver.Status(206).Body(string(body[100_000:])).Header("ETag", etag).
			Header("Content-Range", "bytes 100000-299999/300000").CutAt(1000, testserver.Close)).noRetries()
	b.write(b.part(), body[:100_000])
	b.state(func(*state) {})
	b.expect(exitFailed, "98.6 KiB kept, the same command goes on from there\n")
}

// Each URL has a part of its own, and a part of an older version of this program,
// FILE.part, is left alone.
func TestPartOfAnotherURL(t *testing.T) {
	b := newBench(t, testserver.Config{Routes: map[string]testserver.Script{
		"/a.bin":       {content(body, etag).CutAt(100_000, testserver.Close), content(body, etag)},
		"/other/a.bin": {content(body[1:], etag)},
	}}).noRetries()
	b.write("a.bin.part", []byte("of an older version"))
	b.write("a.bin.part.json", []byte("{}"))
	b.expect(exitFailed, "97.7 KiB kept")
	if code, _, stderr := b.fetch(t.Context(), "other/a.bin"); code != exitFine {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	b.content("a.bin", body[1:])
	b.content(b.part(), body[:100_000])
	b.expect(exitFine, "goes on at 97.7 KiB")
	b.content("a.bin", body)
	b.holds("a.bin", "a.bin.part", "a.bin.part.json")
	b.content("a.bin.part", []byte("of an older version"))
}

// With the longest name that a file system allows, the part has a shorter name.
func TestLongName(t *testing.T) {
	name := strings.Repeat("ä", 127)
	b := newBench(t, testserver.Config{}, content(body, etag).CutAt(1000, testserver.Close), content(body, etag)).noRetries()
	for _, want := range []int{exitFailed, exitFine} {
		if code, _, stderr := b.fetch(t.Context(), name); code != want {
			t.Errorf("exit status %d: %s", code, stderr)
		}
	}
	b.holds(name)
}

func TestStdout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag))
		b.args = []string{"-o", "-"}
		here, err := os.ReadDir(".")
		b.must(err)
		code, stdout, stderr := b.fetch(t.Context(), "a.bin")
		assert.True(t, code == exitFine && stdout == string(body), "exit status %d, %d bytes\n%s", code, len(stdout), stderr)
		assert.Equal(t, "a.bin: 293.0 KiB to come\na.bin: done: 293.0 KiB, sha-256 agrees\n", stderr, "stderr")
		if after, err := os.ReadDir("."); err != nil || len(after) != len(here) {
			t.Errorf("there are %d files instead of %d (%v)", len(after), len(here), err)
		}
	})
}

func TestStdoutGoesOnWithinARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, content(body, etag).CutAt(100_000, testserver.Close))
		b.args = []string{"-o", "-"}
		code, stdout, stderr := b.fetch(t.Context(), "a.bin")
		if code != exitFine || stdout != string(body) || !strings.Contains(stderr, "2 resumes, sha-256 agrees") {
			t.Errorf("exit status %d, %d bytes\n%s", code, len(stdout), stderr)
		}
	})
}

func TestStdoutFaults(t *testing.T) {
	noValidator := testserver.OK(string(body))
	for _, c := range []struct {
		name string
		step testserver.Step
		code int
		says string
		sent int // bytes on stdout
	}{
		{"cut", noValidator.CutAt(100_000, testserver.Close), exitFailed,
			"aplomb get: a.bin: unexpected EOF; gave up after 6 starts\n", 100_000},
		{"another file", testserver.Content(body, etag).Header("Repr-Digest", digestField(nil)), exitAltered,
			"; stdout has it already\n", len(body)},
		{"another file of unknown length", testserver.Content(body, "").Header("Repr-Digest", digestField(nil)).Chunked(), exitAltered,
			"; stdout has it already\n", len(body)},
		{"404", testserver.Status(404), exitFailed, "aplomb get: a.bin: the server answered 404 Not Found\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, testserver.Config{Net: testserver.NewNet()}, c.step)
				b.args = []string{"-o", "-"}
				code, stdout, stderr := b.fetch(t.Context(), "a.bin")
				assert.True(t, code == c.code && strings.HasSuffix(stderr, c.says), "exit status %d: %s", code, stderr)
				assert.Equal(t, string(body[:c.sent]), stdout, "stdout has %d bytes, want %d", len(stdout), c.sent)
			})
		})
	}
}

// Before the first byte it is possible to start over.
func TestStdoutStartsOverAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := testserver.OK(string(body))
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, whole.CutAt(0, testserver.Close), whole)
		b.args = []string{"-o", "-"}
		code, stdout, stderr := b.fetch(t.Context(), "a.bin")
		if code != exitFine || stdout != string(body) || !strings.Contains(stderr, "starts over (2 of 6)") {
			t.Errorf("exit status %d, %d bytes: %s", code, len(stdout), stderr)
		}
	})
}

// A reader of stdout that has gone is the end. It is no reason to start over.
func TestStdoutCloses(t *testing.T) {
	b := newBench(t, testserver.Config{}, content(body, etag))
	var errs bytes.Buffer
	code := run(t.Context(), []string{"-o", "-", b.server.URL + "/a.bin"},
		world{stdout: closedPipe{}, stderr: &errs, base: b.server.Transport()})
	if code != exitFailed || !strings.Contains(errs.String(), "broken pipe") || b.server.Arrivals() != 1 {
		t.Errorf("exit status %d after %d requests: %s", code, b.server.Arrivals(), errs.String())
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// An interruption ends the wait for a new start.
func TestInterruptedBeforeAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet()}, testserver.OK(string(body)).CutAt(1000, testserver.Close))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() {
			code, _, _ := b.fetch(ctx, "a.bin")
			done <- code
		}()
		synctest.Wait() // it waits for the second start
		cancel()
		assert.Equal(t, exitInterrupted, <-done, "exit status")
		assert.Equal(t, 1, b.server.Arrivals(), "requests")
		b.holds()
	})
}
