package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

func init() { plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"} }

// A role is the function of a part of a picture. A theme gives each role a colour.
// Pictures are drawn in the light colours, which are then replaced.
type role int

const (
	paper role = iota
	ink
	rule
	shade // the time for which the server is frozen
	limit
	firstLine
)

// roles hold the colours of each role on light and on dark paper. The colours of the
// lines are those of Okabe and Ito, which most colour-blind readers can tell apart,
// and brighter colours for dark paper. Each strategy also has its own dashes.
var roles = [...]struct{ light, dark uint32 }{
	paper:         {0xfffffe, 0x15181c},
	ink:           {0x2b2b2b, 0xd6d6d6},
	rule:          {0xdcdcdc, 0x363b42},
	shade:         {0xebebeb, 0x262b31},
	limit:         {0x2c2c2c, 0xd7d7d7},
	firstLine:     {0xd55e00, 0xff8336},
	firstLine + 1: {0xe69f00, 0xf0b840},
	firstLine + 2: {0xcc79a7, 0xe69cc6},
	firstLine + 3: {0x888888, 0xa6a6a6},
	firstLine + 4: {0x009e73, 0x2fc99c},
	firstLine + 5: {0x0072b2, 0x5cb2ff},
}

var dashes = [][]vg.Length{nil, {7, 2}, {2, 2}, nil, {5, 4}, nil}

func (r role) color() color.NRGBA {
	c := roles[r].light
	return color.NRGBA{uint8(c >> 16), uint8(c >> 8), uint8(c), 0xff}
}

// line is the role of a run's curves.
func line(i int) role { return firstLine + role(i%(len(roles)-int(firstLine))) }

// A panel is a chart of a value over time, for all runs.
type panel struct {
	about string // the value on the vertical axis
	plot  *plot.Plot
}

// panels are the charts of a report.
func panels(runs []*record.Run) []panel {
	list := []panel{
		goodput(runs),
		rate("arrivals: requests that the server takes up, per second (logarithmic); those that waited in its sockets, at the resume", runs, true,
			func(s record.Sample) int { return s.Arrived }),
		rate("attempts: requests that the clients send, per second (logarithmic), whether or not the server is there to take them up", runs, true,
			func(s record.Sample) int { return s.Sends }),
		progress(runs),
	}
	for i, r := range runs {
		if gated(r) {
			list = append(list, gate(r, line(i)))
		}
	}
	return list
}

func gated(r *record.Run) bool {
	for _, s := range r.Samples {
		if s.Limit > 0 {
			return true
		}
	}
	return false
}

func goodput(runs []*record.Run) panel {
	return rate("requests that succeed, per second", runs, false, func(s record.Sample) int { return s.Good })
}

// perSecond is how many samples make a point of a curve.
const perSecond = 10

func rate(about string, runs []*record.Run, logarithmic bool, of func(record.Sample) int) panel {
	p := newPanel(about, runs[0], logarithmic)
	top := 0.0
	for i, r := range runs {
		var points plotter.XYs
		for at := 0; at+perSecond <= len(r.Samples); at += perSecond {
			n := 0
			for _, s := range r.Samples[at : at+perSecond] {
				n += of(s)
			}
			points = append(points, plotter.XY{X: seconds(at + perSecond/2), Y: float64(n)})
			top = max(top, float64(n))
		}
		p.curve(points, line(i), i)
	}
	p.scale(top, logarithmic)
	return p
}

// progress shows the requests in progress at the server.
func progress(runs []*record.Run) panel {
	p := newPanel("requests in progress at the server (logarithmic); dotted: its limit", runs[0], true)
	top := 0.0
	for i, r := range runs {
		var points plotter.XYs
		busy := 0
		for at, s := range r.Samples {
			if s.Busy >= 0 { // a frozen server reports nothing
				busy = s.Busy
			}
			points = append(points, plotter.XY{X: seconds(at), Y: float64(busy)})
			top = max(top, float64(busy))
		}
		p.curve(thin(points), line(i), i)
	}
	p.level(float64(runs[0].ServerLimit), runs[0].End)
	p.scale(top, true)
	return p
}

// gate shows the limit of a shared gate and the number of waiters.
func gate(r *record.Run, hue role) panel {
	p := newPanel("the gate of “"+r.Name+"”: its limit, and (thin) requests that wait for it (logarithmic)", r, true)
	var limits, waiting plotter.XYs
	top := 0.0
	var last record.Sample // a sample may be missing if the machine was busy
	for at, s := range r.Samples {
		if s.Limit > 0 {
			last = s
		}
		limits = append(limits, plotter.XY{X: seconds(at), Y: float64(last.Limit)})
		waiting = append(waiting, plotter.XY{X: seconds(at), Y: float64(last.Waiting)})
		top = max(top, float64(last.Limit), float64(last.Waiting))
	}
	p.curve(thin(limits), hue, 0)
	p.curve(thin(waiting), hue, 0).Width = 0.6
	p.level(float64(r.ServerLimit), r.End)
	p.scale(top, true)
	return p
}

// thin keeps the highest of several neighbours, so that about a thousand points are
// left.
func thin(points plotter.XYs) plotter.XYs {
	n := len(points)/1000 + 1
	var kept plotter.XYs
	for at := 0; at < len(points); at += n {
		best := points[at]
		for _, xy := range points[at:min(at+n, len(points))] {
			if xy.Y > best.Y {
				best = xy
			}
		}
		kept = append(kept, best)
	}
	return kept
}

func seconds(sample int) float64 { return float64(sample) * record.Step.Seconds() }

// logFloor is the begin of a logarithmic axis. A value of zero is drawn there.
const logFloor = 1

func newPanel(about string, r *record.Run, logarithmic bool) panel {
	p := plot.New()
	p.X.Label.Text = "seconds"
	p.X.Min, p.X.Max = 0, r.End.Seconds()
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 10, 9
		a.Label.TextStyle.Color, a.Tick.Label.Color, a.Color, a.Tick.Color = ink.color(), ink.color(), ink.color(), ink.color()
		a.Width, a.Tick.Width = 0.5, 0.5
		a.Label.Padding, a.Padding = 3, 0
		a.Tick.Length = 4
	}
	p.BackgroundColor = nil
	p.Add(ground{from: r.Stop.Seconds(), to: r.Resume.Seconds()})
	if logarithmic {
		p.Y.Scale = plot.LogScale{}
		p.Y.Tick.Marker = decades{}
	} else {
		p.Y.Tick.Marker = counts{}
	}
	p.X.Tick.Marker = counts{}
	return panel{about, p}
}

func (p panel) scale(top float64, logarithmic bool) {
	p.plot.Y.Min, p.plot.Y.Max = 0, max(1, top*1.05)
	if logarithmic {
		p.plot.Y.Min, p.plot.Y.Max = logFloor, max(10, top*1.2)
	}
}

func (p panel) curve(points plotter.XYs, hue role, dash int) *plotter.Line {
	if _, logarithmic := p.plot.Y.Scale.(plot.LogScale); logarithmic {
		for i := range points {
			points[i].Y = max(points[i].Y, logFloor)
		}
	}
	if len(points) == 0 {
		points = plotter.XYs{{X: 0, Y: logFloor}}
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		panic(err) // only NaN fails, and all values are counts
	}
	l.Color, l.Width, l.Dashes = hue.color(), 1.4, dashes[dash%len(dashes)]
	p.plot.Add(l)
	return l
}

// level draws a horizontal line.
func (p panel) level(y float64, end interface{ Seconds() float64 }) {
	l, err := plotter.NewLine(plotter.XYs{{X: 0, Y: y}, {X: end.Seconds(), Y: y}})
	if err != nil {
		panic(err) // as above
	}
	l.Color, l.Width, l.Dashes = limit.color(), 0.8, []vg.Length{1, 2}
	p.plot.Add(l)
}

// ground draws the background of the curves: the time of the freeze, and a grid.
type ground struct{ from, to float64 }

func (g ground) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	box := vg.Rectangle{Min: vg.Point{X: x(g.from), Y: c.Min.Y}, Max: vg.Point{X: x(g.to), Y: c.Max.Y}}
	c.FillPolygon(shade.color(), corners(box))
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if t.Label != "" && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
			c.StrokeLine2(draw.LineStyle{Color: rule.color(), Width: 0.5}, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
	if style := label(8); x(g.to)-x(g.from) > style.Width("frozen") {
		style.XAlign = draw.XCenter
		c.FillText(style, vg.Point{X: (x(g.from) + x(g.to)) / 2, Y: c.Max.Y - 2}, "frozen")
	}
}

// counts and decades mark axes of numbers.
type (
	counts  struct{}
	decades struct{}
)

func (counts) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, d := range []float64{10, 5, 2} {
		if (high-low)/(step/d) <= 10 {
			step /= d
			break
		}
	}
	for at := math.Ceil(low/step) * step; at <= high*1.0001; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: short(at)})
	}
	return ticks
}

func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for at := 1.0; at <= high; at *= 10 {
		if at >= low {
			ticks = append(ticks, plot.Tick{Value: at, Label: short(at)})
		}
	}
	return ticks
}

// short writes a number with k and M.
func short(x float64) string {
	unit := ""
	switch {
	case x >= 1e6:
		x, unit = x/1e6, " M"
	case x >= 1e4:
		x, unit = x/1e3, " k"
	}
	return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) + unit
}

func label(size vg.Length) text.Style {
	return text.Style{
		Color: ink.color(), Font: font.From(plot.DefaultFont, size),
		XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler,
	}
}

func corners(r vg.Rectangle) []vg.Point {
	return []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
}

// Sizes in points.
const (
	wide       = 720
	panelHigh  = 190
	titleHigh  = 24
	legendHigh = 16
	aboutHigh  = 22
	margin     = 12
)

// A sheet is a title, a legend and panels below each other.
type sheet struct {
	title  string
	runs   []*record.Run // for the legend; none: no legend
	panels []panel
}

func (s sheet) high() vg.Length {
	h := vg.Length(len(s.panels)*panelHigh) + 2*margin
	if s.title != "" {
		h += titleHigh
	}
	if s.runs != nil {
		h += legendHigh*vg.Length(s.legend(nil)) + 6
	}
	return h
}

func (s sheet) draw(c draw.Canvas) {
	c.FillPolygon(paper.color(), corners(c.Rectangle))
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if s.title != "" {
		style := label(12)
		style.Font.Weight = 3 // bold
		c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y}, s.title)
		c = draw.Crop(c, 0, 0, 0, -titleHigh)
	}
	if s.runs != nil {
		c = draw.Crop(c, 0, 0, 0, -legendHigh*vg.Length(s.legend(&c))-6)
	}
	// The axes of the panels are aligned, however wide their numbers are.
	tiles := draw.Tiles{Rows: len(s.panels), Cols: 1, PadTop: aboutHigh, PadY: aboutHigh, PadRight: 4}
	var rows [][]*plot.Plot
	for _, p := range s.panels {
		rows = append(rows, []*plot.Plot{p.plot})
	}
	for i, row := range plot.Align(rows, tiles, c) {
		p, tile := s.panels[i], tiles.At(c, 0, i)
		// The title is above the panel, so that it is read without turning
		// the head.
		c.FillText(label(10), vg.Point{X: c.Min.X, Y: tile.Max.Y + aboutHigh - 4}, p.about)
		p.plot.Draw(row[0])
	}
}

// legend writes a key per run at the top of c, which may be nil, and returns
// how many lines that takes.
func (s sheet) legend(c *draw.Canvas) (rows int) {
	style := label(9.5)
	var x vg.Length
	rows = 1
	for i, r := range s.runs {
		// If this font is missing, another one may be much wider.
		need := 28 + style.Width(r.Name)*1.15 + 14
		if x > 0 && x+need > wide-2*margin {
			x, rows = 0, rows+1
		}
		if c != nil {
			left, top := c.Min.X+x, c.Max.Y-vg.Length(rows-1)*legendHigh
			c.StrokeLine2(draw.LineStyle{Color: line(i).color(), Width: 1.8, Dashes: dashes[i%len(dashes)]}, left, top-6, left+24, top-6)
			c.FillText(style, vg.Point{X: left + 28, Y: top}, r.Name)
		}
		x += need
	}
	return rows
}

// svg returns the sheet in the colours that as gives to each role.
func (s sheet) svg(as func(role) string) ([]byte, error) {
	canvas := vgsvg.New(wide, s.high())
	s.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	out := b.Bytes()
	for r := range roles {
		out = bytes.ReplaceAll(out, fmt.Appendf(nil, "#%06X", roles[r].light), []byte(as(role(r))))
	}
	// If the reader's system lacks the font, it takes the next of the same kind.
	return bytes.ReplaceAll(out, []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif")), nil
}

func (s sheet) png() ([]byte, error) {
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(wide, s.high()), vgimg.UseDPI(144))}
	s.draw(draw.New(canvas))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func light(r role) string { return fmt.Sprintf("#%06X", roles[r].light) }
func dark(r role) string  { return fmt.Sprintf("#%06X", roles[r].dark) }

// variable names a colour that the page's style sheet gives.
func variable(r role) string { return fmt.Sprintf("var(--c%d)", r) }
