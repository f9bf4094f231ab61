package report

import (
	"bytes"
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A role is the function of a part of a picture. A theme gives each role a colour.
// Pictures are drawn in the light colours, which are then replaced.
type role int

const (
	paper role = iota
	ink
	faint // text that explains
	rule
	shade // the time for which the server is frozen
	other // the curve of a strategy that is not aplomb's
	otherFill
	ours
	oursFill
)

// roles hold the colours of each role on light and on dark paper.
var roles = [...]struct{ light, dark uint32 }{
	paper:     {0xfffffe, 0x15181c},
	ink:       {0x1f2328, 0xe6e8ea},
	faint:     {0x59636e, 0xa2abb4},
	rule:      {0xd1d5da, 0x3d444d},
	shade:     {0xe8ebee, 0x2a3038},
	other:     {0x6e7781, 0x98a1ab},
	otherFill: {0xced3d8, 0x474f59},
	ours:      {0x0068b5, 0x5cb2ff},
	oursFill:  {0x9ccbf0, 0x1f5687},
}

func (r role) color() color.NRGBA {
	c := roles[r].light
	return color.NRGBA{uint8(c >> 16), uint8(c >> 8), uint8(c), 0xff}
}

// hues returns the colours of a panel's curve and of the area below it.
func (p panel) hues() (line, area role) {
	if p.ours {
		return ours, oursFill
	}
	return other, otherFill
}

// The sizes of a picture, in points. It is 600 pixels wide and still readable on a
// telephone, where it is 360.
const (
	wide       = 450
	margin     = 9
	verdictsTo = 92 // the panels begin here, right of the verdicts
	titleHigh  = 20
	aboutHigh  = 15
	nameHigh   = 16
	panelHigh  = 36
	rowGap     = 7
	axisHigh   = 16
)

// A sheet is the picture of the finding: a title, and a panel for each run.
type sheet struct {
	heading
	chart *chart
}

// A heading is the title of a picture, and a sentence or two below.
type heading struct {
	title, about string
	fonts        *font.Cache
}

func newHeading(title, about string) heading {
	return heading{title, about, font.NewCache(liberation.Collection())}
}

func newSheet(title, about string, c *chart) sheet {
	return sheet{newHeading(title, about), c}
}

func (s heading) style(size vg.Length, bold bool, hue role) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = 3
	}
	return text.Style{Color: hue.color(), Font: f, YAlign: draw.YTop, Handler: text.Plain{Fonts: s.fonts}}
}

// otherFont is how much wider the font of a reader may be who lacks that of the picture.
const otherFont = 1.18

// lines breaks a text into lines that fit.
func (s heading) lines(t string, style text.Style) (list []string) {
	for _, word := range strings.Fields(t) {
		if n := len(list); n > 0 && otherFont*style.Width(list[n-1]+" "+word) < wide-2*margin {
			list[n-1] += " " + word
		} else {
			list = append(list, word)
		}
	}
	return list
}

func (s heading) texts() (title, about []string) {
	return s.lines(s.title, s.style(15, true, ink)), s.lines(s.about, s.style(10.5, false, faint))
}

func (s heading) high() vg.Length {
	title, about := s.texts()
	return margin + vg.Length(len(title)*titleHigh+len(about)*aboutHigh) + 8
}

// draw fills the picture's ground and writes the heading. It returns where the heading
// ends.
func (s heading) draw(c draw.Canvas) (top vg.Length) {
	c.FillPolygon(paper.color(), box(c.Min.X, c.Min.Y, c.Max.X, c.Max.Y))
	top = c.Max.Y - margin
	title, about := s.texts()
	for _, l := range title {
		c.FillText(s.style(15, true, ink), vg.Point{X: margin, Y: top}, l)
		top -= titleHigh
	}
	top -= 2
	for _, l := range about {
		c.FillText(s.style(10.5, false, faint), vg.Point{X: margin, Y: top}, l)
		top -= aboutHigh
	}
	return top - 6
}

func (s sheet) high() vg.Length {
	return s.heading.high() + 2*axisHigh + margin + vg.Length(len(s.chart.panels)*(nameHigh+panelHigh+rowGap))
}

func (s sheet) draw(c draw.Canvas) {
	top := s.heading.draw(c)
	left, width := vg.Length(verdictsTo), vg.Length(wide-margin-verdictsTo)
	x := func(share float64) vg.Length { return left + vg.Length(share)*width }
	label := s.style(10, false, faint)
	label.XAlign = draw.XCenter
	c.FillText(s.style(10, false, faint), vg.Point{X: margin, Y: top}, "back after")
	c.FillText(label, vg.Point{X: (x(s.chart.stop) + x(s.chart.woken)) / 2, Y: top}, "frozen")
	woken := s.style(10, true, ink)
	c.FillText(woken, vg.Point{X: x(s.chart.woken), Y: top}, "resumed")
	top -= axisHigh
	bottom := top - vg.Length(len(s.chart.panels)*(nameHigh+panelHigh+rowGap)) + rowGap
	for _, t := range s.chart.times {
		c.FillText(label, vg.Point{X: min(x(t.at), wide-margin-8), Y: bottom - 3}, t.text)
	}
	for i, p := range s.chart.panels {
		c.FillText(s.style(12, false, ink), vg.Point{X: margin, Y: top}, p.run.Name)
		top -= nameHigh
		hue := ink
		if p.ours && back(p.run) {
			hue = ours
		}
		c.FillText(s.style(23, true, hue), vg.Point{X: margin, Y: top - 5}, verdict(p.run))
		s.panel(c, p, x, top-panelHigh)
		if i == 0 {
			usual := s.style(9, false, faint)
			usual.XAlign, usual.YAlign = draw.XRight, draw.YBottom
			c.FillText(usual, vg.Point{X: x(1), Y: top - panelHigh + vg.Length(s.chart.usual/s.chart.top)*panelHigh + 2}, fmt.Sprintf("usual: %.0f/s", p.run.Rate))
		}
		top -= panelHigh + rowGap
	}
}

// panel draws the curve of a run.
func (s sheet) panel(c draw.Canvas, p panel, x func(float64) vg.Length, bottom vg.Length) {
	y := func(share float64) vg.Length { return bottom + vg.Length(share)*panelHigh }
	line, area := p.hues()
	c.FillPolygon(shade.color(), box(x(s.chart.stop), bottom, x(s.chart.woken), bottom+panelHigh))
	for _, t := range s.chart.times {
		c.StrokeLine2(stroke(rule, 0.5), x(t.at), bottom, x(t.at), bottom+panelHigh)
	}
	usual := stroke(faint, 0.6)
	usual.Dashes = []vg.Length{1.5, 2}
	c.StrokeLine2(usual, x(0), y(s.chart.usual/s.chart.top), x(1), y(s.chart.usual/s.chart.top))
	points := make([]vg.Point, 0, len(p.curve)+2)
	for _, at := range p.curve {
		points = append(points, vg.Point{X: x(at.x), Y: y(at.y)})
	}
	c.FillPolygon(area.color(), append([]vg.Point{{X: points[0].X, Y: bottom}}, append(points, vg.Point{X: points[len(points)-1].X, Y: bottom})...))
	c.StrokeLines(stroke(line, 1.2), points)
	c.StrokeLine2(stroke(rule, 0.7), x(0), bottom, x(1), bottom)
	c.StrokeLine2(stroke(ink, 1), x(s.chart.woken), bottom, x(s.chart.woken), bottom+panelHigh)
}

func stroke(hue role, width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: hue.color(), Width: width}
}

func box(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// A drawing is a picture of any height.
type drawing interface {
	high() vg.Length
	draw(c draw.Canvas)
}

// svg returns a picture in light or dark colours.
func svg(d drawing, dark bool) ([]byte, error) {
	canvas := vgsvg.New(wide, d.high())
	d.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	out := b.Bytes()
	for _, r := range roles {
		if dark {
			out = bytes.ReplaceAll(out, fmt.Appendf(nil, "#%06X", r.light), fmt.Appendf(nil, "#%06X", r.dark))
		}
	}
	// If the reader's system lacks the font, it takes the next of the same kind.
	return bytes.ReplaceAll(out, []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif")), nil
}
