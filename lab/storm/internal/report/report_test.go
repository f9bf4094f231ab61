package report

import (
	"bytes"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// made returns a run that is back so long after the resume; negative: never.
func made(name string, back time.Duration) *record.Run {
	r := record.NewRun(50 * time.Second)
	r.Name, r.Words = name, "a rule in words"
	r.Stop, r.Resume, r.Rate, r.ServerLimit = 10*time.Second, 30*time.Second, 100, 30
	for i := range r.Samples {
		at := time.Duration(i) * record.Step
		r.Samples[i] = record.Sample{Sends: 10, Arrived: 10, Busy: i % 7, Limit: i % 5, Waiting: i}
		if at < r.Stop || back >= 0 && at >= r.Resume+back {
			r.Samples[i].Good = 10
		}
	}
	return r
}

// runsOf returns a run for each strategy. The server comes back with those that are
// coordinated.
func runsOf(strategies []model.Strategy) (all []*record.Run) {
	for _, st := range strategies {
		r := made(st.Name, map[bool]time.Duration{false: -1}[st.Coordinated()])
		r.Words, r.Aplomb, r.Coordinated = st.Words, st.Aplomb(), st.Coordinated()
		all = append(all, r)
	}
	return all
}

// storm returns runs as those of the experiment.
func storm() []*record.Run {
	all := runsOf(model.Strategies(time.Second))
	all[0].Files = 20_000
	for i := range all[0].Samples[400:] {
		all[0].Samples[400+i].Busy = 19_983
	}
	all[1].SentFrozen = 1_234_567
	return all
}

// The page needs nothing from elsewhere, and has colours for light and dark.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	files, err := Write(dir, "A set-up.", append(storm(), made("<two>", 0)))
	require.NoError(t, err)
	assert.Len(t, files, 4)
	page, err := os.ReadFile(filepath.Join(dir, "storm.html"))
	require.NoError(t, err)
	for _, want := range []string{"prefers-color-scheme: dark", "&lt;two&gt;", "--ours-fill:", "a rule in words", "Arrivals", "Attempts", "A set-up.",
		"A server may open 20,000 files here", "never"} {
		assert.True(t, bytes.Contains(page, []byte(want)), "the page lacks %q", want)
	}
	assert.Nil(t, regexp.MustCompile(`(?i)<script|(src|href)="|@import|url\(`).Find(page), "the page")
	// Every colour is a role's.
	assert.Nil(t, regexp.MustCompile(`[^-](fill|stroke): *#[0-9A-F]{6}`).Find(page), "the page has the colour")
	for _, theme := range []string{"light", "dark"} {
		svg, err := os.ReadFile(filepath.Join(dir, "storm-"+theme+".svg"))
		require.NoError(t, err)
		if other := map[string]string{"light": dark(ours), "dark": light(ours)}[theme]; bytes.Contains(svg, []byte(other)) {
			t.Errorf("the %s picture has the colour %s of the other", theme, other)
		}
	}
}

func TestFinding(t *testing.T) {
	const never = -1
	shared := func(back time.Duration) *record.Run {
		r := made("shared", back)
		r.Coordinated = true
		return r
	}
	own := func(back time.Duration) *record.Run { return made("own", back) }
	for _, c := range []struct {
		runs []*record.Run
		want string
	}{
		{[]*record.Run{own(never), own(8 * time.Second), shared(0)}, "only coordinated clients bring the server back at once"},
		{[]*record.Run{own(0), shared(0)}, "the server comes back with every strategy"},
		{[]*record.Run{own(never), shared(never)}, "the server comes back with none of these strategies"},
		{[]*record.Run{own(never), own(never), shared(8 * time.Second)}, "only coordinated clients bring the server back"},
		{[]*record.Run{own(never), own(8 * time.Second), shared(8 * time.Second)}, "the server comes back with 2 of 3 strategies"},
		{[]*record.Run{own(never), own(0), shared(0)}, "the server comes back with 2 of 3 strategies"},
		{[]*record.Run{shared(0)}, "the server comes back with every strategy"},
	} {
		assert.Equal(t, "After a 20 s freeze, "+c.want, Finding(c.runs))
	}
}

// The table of the experiment fits a terminal of 80 columns.
func TestTable(t *testing.T) {
	for _, more := range []bool{false, true} {
		var b strings.Builder
		require.NoError(t, Table(&b, storm(), more))
		for _, want := range append([]string{"aplomb, coordinated", "19,983*", "1,234,567", "0 s"}, columns...) {
			assert.Contains(t, b.String(), want, "the table")
		}
		for _, want := range append([]string{"100 %"}, details...)[:1] {
			assert.Equal(t, more, strings.Contains(b.String(), want), "the table with details %v has %q: %v", more, want, !more)
		}
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "columns: %s", line)
		}
	}
}

// A logarithmic axis has a place for 0 that is not the place of 1.
func TestZero(t *testing.T) {
	c := newChart(inProgress, storm())
	if zero, one, two := c.y(0), c.y(1), c.y(2); zero != 0 || one <= 0.1 || two <= one || c.y(c.top) != 1 {
		t.Errorf("0 at %v, 1 at %v, 2 at %v, %v at %v", zero, one, two, c.top, c.y(c.top))
	}
}

// Where a value is not known, its curve is interrupted.
func TestUnknown(t *testing.T) {
	r := made("one", 0)
	for i := 100; i < 300; i++ {
		r.Samples[i].Busy = -1
	}
	if curves := samples(inProgress, r); len(curves) != 2 || curves[0][len(curves[0])-1].at > r.Stop || curves[1][0].at < r.Resume {
		t.Errorf("%d curves", len(curves))
	}
	if curves := samples(succeeded, r); len(curves) != 1 || curves[0][0].value != 100 || curves[0][15].value != 0 {
		t.Errorf("%d curves of what is known: %v", len(curves), curves[0])
	}
}

// browsers are the names of Chromium. make browser installs the first.
var browsers = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// frame shows the page in a frame of a width, and writes measures of it into its own
// document, where the test reads them.
const frame = `<!doctype html><iframe width=%WIDTH% height=844 src=/page style="border: 0"></iframe><pre></pre><script>
onload = () => {
	const page = document.querySelector('iframe').contentDocument, box = e => e.getBoundingClientRect();
	const verdicts = [...page.querySelectorAll('.verdict')];
	const texts = [...page.querySelectorAll('h1, h3, p, span, b, td, th, li')].filter(e => e.textContent && !e.closest("details"));
	document.querySelector('pre').textContent = JSON.stringify({
		wide: page.documentElement.scrollWidth,
		lowest: Math.max(...verdicts.map(e => box(e).bottom)),
		smallest: Math.min(...verdicts.map(e => parseFloat(page.defaultView.getComputedStyle(e).fontSize))),
		least: Math.min(...texts.map(e => parseFloat(page.defaultView.getComputedStyle(e).fontSize))),
		verdicts: verdicts.map(e => e.textContent),
		overlaps: verdicts.filter(e => { const r = page.createRange(); r.selectNodeContents(e); return r.getBoundingClientRect().right > box(e.parentElement.querySelector('svg')).left; }).length,
		paper: page.defaultView.getComputedStyle(page.body).backgroundColor,
		outside: texts.filter(e => box(e).right > page.documentElement.clientWidth + 1).map(e => e.textContent),
	});
}</script>`

// A reader sees the finding and all verdicts without scrolling, on a telephone as well.
func TestBrowser(t *testing.T) {
	browser := ""
	for _, name := range browsers {
		if found, err := exec.LookPath(name); err == nil && browser == "" {
			browser = found
		}
	}
	if browser == "" {
		t.Skip("no headless Chromium is installed: make browser installs it with apt-get")
	}
	for _, c := range []struct {
		name, width, scheme, paper string
		runs                       []*record.Run
	}{
		{"wide", "1280", "1", "rgb(255, 255, 254)", storm()},
		{"narrow", "390", "1", "rgb(255, 255, 254)", storm()},
		{"dark", "390", "0", "rgb(21, 24, 28)", storm()},
		{"fleet, wide", "1280", "0", "rgb(21, 24, 28)", runsOf(model.Fleets(time.Second))},
		{"fleet, narrow", "390", "1", "rgb(255, 255, 254)", runsOf(model.Fleets(time.Second))},
	} {
		t.Run(c.name, func(t *testing.T) {
			content, err := page("1000 clients in 50 processes send a request every 10 s each, and wait 2 s for the response. Coordinated clients share a Transport.", c.runs)
			require.NoError(t, err)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				if r.URL.Path == "/page" {
					_, _ = w.Write(content)
					return
				}
				_, _ = w.Write([]byte(strings.Replace(frame, "%WIDTH%", c.width, 1)))
			}))
			defer srv.Close()
			out, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
				"--blink-settings=preferredColorScheme="+c.scheme, "--user-data-dir="+t.TempDir(), "--window-size=1400,900", "--timeout=20000", "--dump-dom", srv.URL).Output()
			require.NoError(t, err)
			var got struct {
				Wide, Lowest, Smallest, Least float64
				Verdicts, Outside             []string
				Overlaps                      int
				Paper                         string
			}
			_, text, _ := strings.Cut(string(out), "<pre>")
			text, _, _ = strings.Cut(text, "</pre>")
			require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(text)), &got), "%s", out)
			t.Logf("%+v", got)
			if n := len(got.Verdicts); n != len(c.runs) || got.Verdicts[0] != "never" || got.Verdicts[n-1] != "0 s" || got.Paper != c.paper {
				t.Errorf("verdicts %q on %s", got.Verdicts, got.Paper)
			}
			if got.Lowest > 844 || got.Smallest < 22 || got.Least < 11 {
				t.Errorf("the last verdict ends at %v, the smallest has %v pixels, the smallest text %v", got.Lowest, got.Smallest, got.Least)
			}
			if len(got.Outside) > 0 || got.Overlaps > 0 {
				t.Errorf("outside of the page: %q; %d verdicts lie on their curves", got.Outside, got.Overlaps)
			}
		})
	}
}

// points are those of a sweep: alone the server is back with 1 process only.
func points() (list []Point) {
	for _, n := range []int{1, 100, 10_000} {
		alone, fleet := made("alone", 0), made("fleet", time.Second)
		alone.Key, fleet.Key, fleet.Coordinated = "alone", "fleet", true
		if n > 1 {
			alone = made("alone", -1)
			alone.Key = "alone"
		}
		list = append(list, Point{n, max(1000, n), []*record.Run{alone, fleet}})
	}
	return list
}

func TestSweep(t *testing.T) {
	list := points()
	if a, b := survives(list, 0), survives(list, 1); a != 1 || b != 10_000 {
		t.Errorf("survives with %d and %d processes", a, b)
	}
	if got, want := sweepFinding(list), "Up to 1 processes on their own bring the server back, and 10,000 in a fleet"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := sweepFinding(list[:1]); !strings.HasPrefix(got, "After which time") {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	require.NoError(t, Sweep(&b, list, true))
	assert.True(t, regexp.MustCompile(`10,000 +10,000 +never +0.9 s\n`).MatchString(b.String()), "%s", &b)
	files, err := WriteSweep(t.TempDir(), list)
	assert.True(t, err == nil && len(files) == 3, "%v, %v", files, err)
}
