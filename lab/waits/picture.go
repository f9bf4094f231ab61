// The waits as pictures. A band reaches from the lowest to the highest wait and
// contains the mean.

package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/aplomb-go/aplomb/internal/curves"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// These are the colours of Okabe and Ito, which most colour-blind readers can
// tell apart. Each line also has its own marker.
var (
	paper     = color.NRGBA{0xff, 0xff, 0xfe, 0xff}
	ink       = color.NRGBA{0x33, 0x33, 0x33, 0xff}
	gridColor = color.NRGBA{0xdd, 0xdd, 0xdd, 0xff}
	faint     = color.NRGBA{0xb4, 0xb4, 0xb4, 0xff} // of what is there for comparison

	colors = []color.NRGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x10, 0x10, 0x10, 0xff}, {0x80, 0x80, 0x80, 0xff},
	}
	shapes = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{},
		draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
	}
)

// darkened replaces the colours with brighter colours for dark paper.
var darkened = strings.NewReplacer(
	"#FFFFFE", "#15181C", "#333333", "#D6D6D6", "#DDDDDD", "#363B42", "#B4B4B4", "#59606A",
	"#0072B2", "#3D9BFF", "#D55E00", "#FF8336", "#009E73", "#2FC99C", "#CC79A7", "#E69CC6",
	"#56B4E9", "#9AD8FF", "#E69F00", "#F0B840", "#101010", "#FFFFFF", "#808080", "#9A9A9A",
)

// logFloor is the height, in seconds, at which a wait of zero is drawn on a
// logarithmic axis.
const logFloor = 0.01

// pictures draws each back-off of the list, all of them in one picture, and the curves of
// the article.
func pictures(dir string, list []curves.Curve, n int) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, c := range list {
		file := strings.ToLower(strings.ReplaceAll(c.Name, ", ", "-"))
		if err := waitsOf(c.Name+": "+c.About, []curves.Curve{c}, n).save(dir, "waits-"+file); err != nil {
			return err
		}
	}
	if err := waitsOf("The two curves of the article. Their jitter, 0.1, comes after the cap", curves.Article(), max(n, 16)).save(dir, "waits-article"); err != nil {
		return err
	}
	return overview(list, n).save(dir, "waits-all")
}

// waitsOf draws waits on a linear scale, on a logarithmic one, and cumulated.
func waitsOf(title string, list []curves.Curve, n int) *picture {
	linear := panel("wait before the retry", n, linearTime{})
	logarithmic := panel("wait, logarithmic scale", n, logTime{})
	sum := panel("time since the first failure", n, linearTime{})
	out := &picture{title: title, panels: []*plot.Plot{linear, logarithmic, sum}}
	low, high := math.Inf(1), 0.0
	for i, c := range list {
		bounds := backoff.Bounds(c.Backoff, n)
		for _, b := range bounds {
			low, high = min(low, max(b.Lowest.Seconds(), logFloor)), max(high, b.Highest.Seconds())
		}
		means := line(bounds, i, mean)
		linear.Add(band(bounds, i, 0), means)
		logarithmic.Add(band(bounds, i, logFloor), means)
		sum.Add(line(bounds, i, func(b backoff.Bound) float64 { return b.Cumulated.Seconds() }))
		if len(list) > 1 {
			out.key(c.Name, swatch(i), means)
			continue
		}
		out.key("lowest to highest", swatch(i))
		out.key("mean; cumulated on the right", means)
	}
	linear.Y.Min, sum.Y.Min = 0, 0
	linear.Y.Max = aboveAll(high)
	marks(logarithmic, low, high)
	return out
}

// overview has a panel for each back-off, all on the same scale. The means of the other
// back-offs are grey in it.
func overview(list []curves.Curve, n int) *picture {
	var shown []curves.Curve
	for _, c := range list {
		if g, ok := c.Backoff.(backoff.Exponential); ok && g.Literal {
			continue // its means are those of the other within a few percent
		}
		shown = append(shown, c)
	}
	out := &picture{title: "How long each back-off waits, with its defaults", columns: 2, high: 150}
	low, high := math.Inf(1), 0.0
	for i, c := range shown {
		bounds := backoff.Bounds(c.Backoff, n)
		sum := bounds[len(bounds)-1].Cumulated.Round(time.Second)
		p := panel(fmt.Sprintf("%s: %d retries take %v", c.Name, n, sum), n, logTime{})
		for j, other := range shown {
			if j != i {
				p.Add(greyLine(backoff.Bounds(other.Backoff, n)))
			}
		}
		means := line(bounds, 0, mean)
		p.Add(band(bounds, 0, logFloor), means)
		for _, b := range bounds {
			low, high = min(low, max(b.Lowest.Seconds(), logFloor)), max(high, b.Highest.Seconds())
		}
		out.panels = append(out.panels, p)
		if i == 0 {
			out.key("from the lowest to the highest wait", swatch(0))
			out.key("mean", means)
			out.key("means of the others", greyLine(bounds))
		}
	}
	for _, p := range out.panels {
		marks(p, low, high)
	}
	return out
}

// marks gives a panel a logarithmic axis that begins and ends at a mark, so that there
// are labels below and above the data.
func marks(p *plot.Plot, low, high float64) {
	p.Y.Scale = plot.LogScale{}
	p.Y.Min, p.Y.Max = clockMarks[0].Seconds(), clockMarks[len(clockMarks)-1].Seconds()
	for _, m := range clockMarks {
		if at := m.Seconds(); at <= low*1.0001 {
			p.Y.Min = at
		} else if at >= high*0.9999 {
			p.Y.Max = at
			return
		}
	}
}

// aboveAll returns the first tick of a linear axis that is not below the data.
func aboveAll(high float64) float64 {
	ticks := linearTime{}.Ticks(0, high)
	if len(ticks) < 2 {
		return high
	}
	step := ticks[1].Value - ticks[0].Value
	return math.Ceil(high/step*0.9999) * step
}

func panel(y string, n int, ticks plot.Ticker) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text = "retry"
	// The label stands above the panel, so it can be read without turning the
	// head. Beside a logarithmic axis the library would reserve space for it in
	// the wrong place.
	p.Title.Text = y
	p.X.Tick.Marker, p.Y.Tick.Marker = count{}, ticks
	p.X.Min, p.X.Max = 1, float64(max(n, 2))
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 10, 9
		a.Label.TextStyle.Color, a.Tick.Label.Color, a.Color, a.Tick.Color = ink, ink, ink, ink
		a.Label.Padding, a.Padding, a.Tick.Length = 4, 4, 4
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color, grid.Horizontal.Width = gridColor, 0.5
	p.Add(grid)
	return p
}

// band fills the range from the lowest to the highest wait.
func band(bounds []backoff.Bound, hue int, floor float64) *plotter.Polygon {
	high := points(bounds, func(b backoff.Bound) float64 { return max(b.Highest.Seconds(), floor) })
	low := points(bounds, func(b backoff.Bound) float64 { return max(b.Lowest.Seconds(), floor) })
	slices.Reverse(low)
	p, err := plotter.NewPolygon(append(high, low...))
	if err != nil {
		panic(err) // no points, or not numbers: every curve has one wait at least
	}
	p.Color, p.Width = translucent(colors[hue]), 0
	return p
}

func translucent(hue color.NRGBA) color.NRGBA {
	hue.A = 0x40
	return hue
}

// points has a point for each wait.
func points(bounds []backoff.Bound, y func(backoff.Bound) float64) (all plotter.XYs) {
	for i, b := range bounds {
		all = append(all, plotter.XY{X: float64(i + 1), Y: y(b)})
	}
	return all
}

func mean(b backoff.Bound) float64 { return b.Mean.Seconds() }

// greyLine is a line of means for comparison.
func greyLine(bounds []backoff.Bound) *plotter.Line {
	l, err := plotter.NewLine(points(bounds, mean))
	if err != nil {
		panic(err) // as above
	}
	l.Color, l.Width = faint, 0.75
	return l
}

// A marked is a line with a marker at each retry.
type marked struct {
	*plotter.Line
	marks *plotter.Scatter
}

func line(bounds []backoff.Bound, hue int, y func(backoff.Bound) float64) marked {
	l, s, err := plotter.NewLinePoints(points(bounds, y))
	if err != nil {
		panic(err) // as above
	}
	l.Color, l.Width = colors[hue], 1.5
	s.Color, s.Radius, s.Shape = colors[hue], 2.4, shapes[hue]
	return marked{l, s}
}

func (m marked) Plot(c draw.Canvas, p *plot.Plot) {
	m.Line.Plot(c, p)
	m.marks.Plot(c, p)
}

func (m marked) GlyphBoxes(p *plot.Plot) []plot.GlyphBox { return m.marks.GlyphBoxes(p) }

func (m marked) Thumbnail(c *draw.Canvas) {
	m.Line.Thumbnail(c)
	m.marks.Thumbnail(c)
}

// A swatch is a legend's sample of a band of this colour.
type swatch int

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(translucent(colors[s]), corners(c.Rectangle))
}

func corners(r vg.Rectangle) []vg.Point {
	return []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
}
