package get

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/internal/testserver"
)

// worst has the longest texts of every column.
func worst(name string) row {
	return row{
		name: name, started: true, at: 999 << 30, earlier: 100 << 30, total: 1000 << 30,
		rate: 1000 << 20, left: 277*time.Hour + 59*time.Minute + 59*time.Second, resumes: "100 resumes",
	}
}

func waiting(name string) row {
	return row{name: name, why: "dial tcp 203.0.113.255:65535: connect: connection refused", next: 32 * time.Second}
}

var rows = []row{
	worst("a.bin"),
	{name: "b.bin", status: "asks the server"},
	{name: "c.bin", started: true, at: 1 << 20, total: -1, rate: 1 << 20, left: -1},
	waiting("a-name-that-is-longer-than-its-column.bin"),
	worst("名前名前名前名前名前名前名前.bin"),
	{name: "d.bin", started: true, status: "checking", at: 5, total: 5},
	{name: "empty", started: true, left: -1},
}

// No line fills the last column or is wrapped, at any width, and no frame is higher
// than the screen.
func TestFrameFits(t *testing.T) {
	for width := 1; width < 200; width++ {
		for _, height := range []int{1, 2, 5, 24} {
			for _, queued := range []int{0, 1, 40} {
				lines := frame(rows, queued, width, height)
				require.LessOrEqual(t, len(lines), max(height/2, 1), "lines on a screen of %d", height)
				for _, line := range lines {
					require.Less(t, runewidth.StringWidth(line), width, "columns: %s", line)
				}
			}
		}
	}
}

func TestFrame(t *testing.T) {
	for _, c := range []struct {
		rows          []row
		queued        int
		width, height int
		want          []string
	}{
		{nil, 0, 80, 24, nil},
		{nil, 3, 80, 24, []string{"… and 3 more"}},
		{rows[:1], 0, 80, 24, []string{
			"a.bin  99 % of 1000.0 GiB ═━━━━━━━━─ 1000.0 MiB/s, 277h59m59s left, 100 resumes",
		}},
		{rows[1:3], 0, 80, 24, []string{
			"b.bin asks the server",
			"c.bin 1.0 MiB ────────────────────────────── 1.0 MiB/s",
		}},
		{rows[3:6], 1, 80, 24, []string{
			"a-name-that-is-lon… next try in 32s: dial tcp 203.0.113.255:65535: connect: co…",
			"名前名前名前名前名…  99 % of 1000.0 GiB 1000.0 MiB/s, 277h59m59s left",
			"d.bin               100 % of 5 bytes    checking",
			"… and 1 more",
		}},
		{rows[:1], 0, 40, 24, []string{"a.bin  99 % of 1000.0 GiB 1000.0 MiB/s"}},
		{rows[3:4], 0, 40, 24, []string{"a-name-t… next try in 32s: dial tcp 20…"}},
		{rows[3:4], 0, 20, 24, []string{"next try in 32s: d…"}},
		{rows, 0, 80, 6, []string{
			"a.bin  99 % of 1000.0 GiB ═━━━━━━━━─ 1000.0 MiB/s, 277h59m59s left, 100 resumes",
			"b.bin asks the server",
			"… and 5 more",
		}},
		{rows, 2, 80, 1, []string{"… and 9 more"}},
	} {
		got := frame(c.rows, c.queued, c.width, c.height)
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%d rows at %dx%d:\n%s\nwant\n%s", len(c.rows), c.width, c.height, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// The time until the next try is on the screen whatever the name and the reason
// are.
func TestNextTryIsNeverCutOff(t *testing.T) {
	for width := 30; width < 120; width++ {
		for _, r := range rows {
			r.why, r.next = strings.Repeat("a long reason ", 20), 32*time.Second
			line := frame(append(rows[:len(rows):len(rows)], r), 0, width, 24)[len(rows)]
			assert.Contains(t, line, "next try in 32s: ", "%d columns", width)
		}
	}
}

func TestBar(t *testing.T) {
	for want, r := range map[string]row{
		"──────────": {total: 100},
		"═════─────": {total: 100, earlier: 50, at: 50},
		"══━━━─────": {total: 100, earlier: 20, at: 50},
		"━━━━━━━━━━": {total: 100, at: 100},
		"━━━━━━━━━─": {total: 1 << 62, at: 1<<62 - 1<<58},
	} {
		assert.Equal(t, want, r.bar(10), "%+v", r)
	}
}

// A terminal that has been used up to its last column and is then made smaller
// holds nothing of the old frame after the next drawing. A frame begins at the
// cursor, so it does not matter how many lines the old frame has become.
func TestFrameIsReplaced(t *testing.T) {
	var out bytes.Buffer
	width := 80
	b := &bars{out: &out, errs: &out, oneScreen: true, size: func() (int, int) { return width, 24 }}
	trackers := []*barTracker{b.track("a.bin").(*barTracker), b.track("b.bin").(*barTracker)}
	for _, tr := range trackers {
		tr.asks()
	}
	draw := func() string {
		out.Reset()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.draw()
		return out.String()
	}
	const both = "a.bin asks the server\nb.bin asks the server\x1b[1A\r"
	assert.Equal(t, both, draw())
	width = 20
	assert.Equal(t, eraseFrame+"a.b… asks the serv…\nb.b… asks the serv…\x1b[1A\r", draw())
	width = 0 // a terminal that no longer tells its size
	assert.Equal(t, eraseFrame+both, draw())
	out.Reset()
	trackers[0].note("some news")
	assert.Equal(t, eraseFrame+"a.bin: some news\n"+both, out.String())
	trackers[0].failed(errAltered, summary{})
	out.Reset()
	trackers[1].done("")
	if got := out.String(); !strings.HasPrefix(got, eraseFrame+"b.bin: done") || !strings.HasSuffix(got, "\n") {
		t.Errorf("%q", got)
	}
}

// A failure shows at once, and not when all other downloads have ended.
func TestFailureShowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, testserver.Config{Net: testserver.NewNet(), Routes: map[string]testserver.Script{
			"/missing": {testserver.Status(404)},
			"/slow":    {content(body, etag).CutAt(100_000, testserver.Stall)},
		}})
		var screen testkit.Text
		w := world{stdout: &screen, stderr: &screen, base: b.server.Transport(), screen: func(io.Writer) (int, int) { return 80, 24 }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"-o", b.dir, b.server.URL + "/slow", b.server.URL + "/missing"}, w)
		}()
		synctest.Wait()
		assert.Contains(t, screen.String(), "aplomb get: missing: the server answered 404 Not Found\n", "the screen shows")
		time.Sleep(2 * drawPause)
		synctest.Wait()
		if got := screen.String(); !strings.Contains(got, eraseFrame+"slow  33 % of 293.0 KiB ━━━━━━━━━───────────────────\r") {
			t.Errorf("the screen shows %q", got)
		}
		cancel()
		assert.Equal(t, exitInterrupted, <-done, "exit status")
		if got := screen.String(); !strings.HasSuffix(got, eraseFrame+"aplomb get: slow: interrupted; 97.7 KiB kept, the same command goes on from there\n") {
			t.Errorf("the screen ends with %q", got[max(0, len(got)-200):])
		}
	})
}

// Bars go to stderr if stdout gets the file. If both are the same terminal, there
// are no bars.
func TestBarsBesideStdout(t *testing.T) {
	for _, same := range []bool{false, true} {
		b := newBench(t, testserver.Config{}, content(body, etag))
		var out, errs bytes.Buffer
		w := world{stdout: &out, stderr: &errs, base: b.server.Transport()}
		w.screen = func(x io.Writer) (int, int) {
			if same || x == &errs {
				return 80, 24
			}
			return 0, 0
		}
		code := run(t.Context(), []string{"-o", "-", b.server.URL + "/a.bin"}, w)
		assert.True(t, code == exitFine && out.String() == string(body), "exit status %d, %d bytes", code, out.Len())
		if got := errs.String(); !strings.Contains(got, "a.bin: done: 293.0 KiB") || strings.Contains(got, "to come") != same {
			t.Errorf("stderr: %q", got)
		}
	}
}

func Example_frame() {
	for _, line := range frame([]row{
		{name: "go1.26.0.src.tar.gz", started: true, at: 20 << 20, earlier: 8 << 20, total: 32 << 20, rate: 4 << 20, left: 3 * time.Second},
		{name: "debian.iso", why: "the server answered 503", next: 4 * time.Second},
	}, 3, 80, 24) {
		fmt.Println(line)
	}
	// Output:
	// go1.26.0.src.tar.gz  62 % of 32.0 MiB ═══━━━━━────── 4.0 MiB/s, 3s left
	// debian.iso          next try in 4s: the server answered 503
	// … and 3 more
}
