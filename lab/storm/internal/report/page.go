// Package report shows the records of a storm as tables, pictures and a page.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// Write writes the page and its pictures into a directory, which it makes if it is
// missing. It returns the names of the files. The set-up is a sentence.
func Write(dir, setup string, runs []*record.Run) (files []string, err error) {
	page, err := page(setup, runs)
	if err != nil {
		return nil, err
	}
	s := newSheet(Finding(runs), setup+" "+shown(), newChart(succeeded, runs))
	pictures, err := render("storm", s)
	if err != nil {
		return nil, err
	}
	return save(dir, append([]file{{"storm.html", page}}, pictures...))
}

// A file is to be written.
type file struct {
	name string
	data []byte
}

// render returns a picture as files.
func render(name string, d drawing) ([]file, error) {
	lightSVG, err := svg(d, light)
	if err != nil {
		return nil, err
	}
	darkSVG, err := svg(d, dark)
	if err != nil {
		return nil, err
	}
	pixels, err := png(d)
	return []file{{name + "-light.svg", lightSVG}, {name + "-dark.svg", darkSVG}, {name + ".png", pixels}}, err
}

func save(dir string, files []file) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.data, 0o666); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// shown describes the first chart.
func shown() string {
	return "Curves: requests that succeed, per second."
}

// A tabled is a table of the page.
type tabled struct {
	Columns []string
	Rows    [][]string
	Texts   int // cells that are text and not numbers
	Notes   []string
}

func page(setup string, runs []*record.Run) ([]byte, error) {
	short := tabled{Columns: columns, Texts: 2, Notes: explained(runs)}
	long := tabled{Columns: details, Texts: 1, Notes: explainedDetails}
	for _, r := range runs {
		short.Rows, long.Rows = append(short.Rows, row(r)), append(long.Rows, detailsOf(r))
	}
	data := struct {
		Title, Setup, Shown string
		Finding, Reason     *chart
		More                []*chart
		Short, Long         tabled
		Runs                []*record.Run
		Light, Dark         template.CSS
	}{
		Title: Finding(runs), Setup: setup, Shown: shown(),
		Finding: newChart(succeeded, runs), Reason: newChart(inProgress, runs),
		Short: short, Long: long, Runs: runs, Light: theme(light), Dark: theme(dark),
	}
	for _, v := range further {
		if c := newChart(v, runs); c != nil {
			data.More = append(data.More, c)
		}
	}
	var b bytes.Buffer
	t, err := template.New("page").Funcs(template.FuncMap{"verdict": verdict, "back": back, "list": func(a ...any) []any { return a }}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	err = t.Execute(&b, data)
	return b.Bytes(), err
}

// theme lists the colours for the style sheet.
func theme(as func(role) string) template.CSS {
	var b strings.Builder
	for r := range roles {
		fmt.Fprintf(&b, "--%s:%s;", roles[r].name, as(role(r)))
	}
	return template.CSS(b.String())
}

//go:embed page.html
var pageText string

// The methods of charts and panels for the page. A panel there is 1000 wide and 100 high,
// and is stretched. All texts are beside it, so that they are not.

func (c *chart) Name() string  { return c.name }
func (c *chart) About() string { return c.about }

// Log reports whether the axis is logarithmic.
func (c *chart) Log() bool { return c.log }

// Panels returns the panels.
func (c *chart) Panels() []panel { return c.panels }

// Stop and Woken are percentages of the width.
func (c *chart) Stop() string   { return percent(c.stop) }
func (c *chart) Woken() string  { return percent(c.woken) }
func (c *chart) Frozen() string { return percent(c.woken - c.stop) }

// Level is the height of the marked value in a panel, or "".
func (c *chart) Level() string {
	if c.level == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", 100*(1-c.y(c.level)))
}

// A Mark is a tick with its place in percent. The last stands at the end of its axis.
type Mark struct {
	At, Text string
	Last     bool
}

// Times and Values are the ticks of the axes.
func (c *chart) Times() []Mark  { return marks(c.times) }
func (c *chart) Values() []Mark { return marks(c.values) }

func marks(ticks []tick) (list []Mark) {
	for _, t := range ticks {
		list = append(list, Mark{percent(t.at), t.text, t.at > 0.95})
	}
	return list
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

// Run returns the run of the panel.
func (p panel) Run() *record.Run { return p.run }

// Ours reports whether the panel has aplomb's colour.
func (p panel) Ours() bool { return p.ours }

// Line and Area are the paths of the curves and of the areas below them.
func (p panel) Line() string { return p.path(false) }
func (p panel) Area() string { return p.path(true) }

func (p panel) path(closed bool) string {
	var b strings.Builder
	for _, curve := range p.curves {
		for i, at := range curve {
			fmt.Fprintf(&b, "%c%.1f %.1f", "LM"[map[bool]int{true: 1}[i == 0]], 1000*at.x, 100*(1-at.y))
		}
		if closed {
			fmt.Fprintf(&b, "L%.1f 100L%.1f 100Z", 1000*curve[len(curve)-1].x, 1000*curve[0].x)
		}
	}
	return b.String()
}
