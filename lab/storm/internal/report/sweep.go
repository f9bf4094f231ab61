package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// A Point has the runs for a number of processes.
type Point struct {
	Processes, Clients int
	Runs               []*record.Run
}

// inTime is the longest time after which a server still counts as back.
const inTime = 5 * time.Second

// survives returns the largest number of processes up to which the server is back in time,
// or 0. The arm is the index of a run.
func survives(points []Point, arm int) (processes int) {
	for _, p := range points {
		if after := p.Runs[arm].Median().Recovered; after < 0 || after > inTime {
			break
		}
		processes = p.Processes
	}
	return processes
}

// sweepFinding returns the headline of a sweep.
func sweepFinding(points []Point) string {
	last := points[len(points)-1].Processes
	alone, fleet := last, 0
	for i, r := range points[0].Runs {
		if n := survives(points, i); r.Coordinated {
			fleet = max(fleet, n)
		} else {
			alone = min(alone, n)
		}
	}
	if fleet == last && alone < last {
		return fmt.Sprintf("Up to %s processes on their own bring the server back, and %s in a fleet", count(alone), count(fleet))
	}
	return "After which time the server is back, by the number of processes"
}

// A figure is a table of a sweep: a row for each number of processes, and a column for
// each run.
type figure struct {
	about string
	of    func(r *record.Run) string
	more  bool // only with all figures
}

var figures = []figure{
	{"Back after:", verdict, false},
	{"Sent while frozen:", func(r *record.Run) string { return count(r.Median().SentFrozen) }, false},
	{"Of these, sent later than 3 s after the freeze:", func(r *record.Run) string { return count(r.Median().SentLate) }, true},
	{"Peak at the server, as a multiple of its limit:", func(r *record.Run) string {
		return fmt.Sprintf("%.1f", float64(r.Median().Peak)/float64(r.ServerLimit))
	}, false},
	{"Requests that were given up:", func(r *record.Run) string { return count(r.Median().Lost) }, true},
	{"Operations of the fleet's backend per request, in peace:", func(r *record.Run) string { return fmt.Sprintf("%.2f", r.Median().OpsPeace) }, true},
	{"The same from the freeze until 10 s after the resume:", func(r *record.Run) string { return fmt.Sprintf("%.2f", r.Median().OpsStorm) }, true},
}

// Sweep writes the figures of all points.
func Sweep(w io.Writer, points []Point, more bool) error {
	out := bufio.NewWriter(w)
	heads := []string{"processes", "clients"}
	for _, r := range points[0].Runs {
		heads = append(heads, r.Key)
	}
	for _, f := range figures {
		if f.more && !more {
			continue
		}
		rows := [][]string{heads}
		for _, p := range points {
			cells := []string{count(p.Processes), count(p.Clients)}
			for _, r := range p.Runs {
				cells = append(cells, f.of(r))
			}
			rows = append(rows, cells)
		}
		_, _ = fmt.Fprintln(out, f.about)
		align(out, rows, 0)
		_, _ = fmt.Fprintln(out)
	}
	for _, r := range points[0].Runs {
		_, _ = fmt.Fprintln(out, wrap(fmt.Sprintf("%s: %s; %s.", r.Key, r.Name, r.Words), 80))
	}
	return out.Flush()
}

// WriteSweep writes the picture of a sweep, and returns the names of the files.
func WriteSweep(dir string, points []Point) ([]string, error) {
	first := points[0].Runs[0]
	about := fmt.Sprintf("A server is frozen for %s. Large: the most processes with which it is back within %s. Dots: the time until it is back, by the number of processes.",
		Seconds(first.Resume-first.Stop), Seconds(inTime))
	return save(dir, "storm-fleet", sweepSheet{newHeading(sweepFinding(points), about), points})
}

// A sweepSheet is the picture of a sweep: a panel for each run, with the time until the
// server is back over the number of processes.
type sweepSheet struct {
	heading
	points []Point
}

func (s sweepSheet) high() vg.Length {
	return s.heading.high() + 2*axisHigh + margin + vg.Length(len(s.points[0].Runs)*(nameHigh+panelHigh+rowGap))
}

func (s sweepSheet) draw(c draw.Canvas) {
	top := s.heading.draw(c)
	c.FillText(s.style(10, false, faint), vg.Point{X: margin, Y: top}, "most processes")
	top -= axisHigh
	const left, right = verdictsTo + 42, wide - margin - 12
	last := math.Log(float64(s.points[len(s.points)-1].Processes))
	first := math.Log(float64(s.points[0].Processes))
	x := func(p Point) vg.Length {
		return left + vg.Length((math.Log(float64(p.Processes))-first)/(last-first))*(right-left)
	}
	longest := inTime
	for _, p := range s.points {
		for _, r := range p.Runs {
			longest = max(longest, r.Median().Recovered)
		}
	}
	never := longest * 3 / 2 // the place of never
	for i, r := range s.points[0].Runs {
		c.FillText(s.style(12, false, ink), vg.Point{X: margin, Y: top}, r.Name)
		top -= nameHigh
		bottom := top - panelHigh
		y := func(d time.Duration) vg.Length { return bottom + vg.Length(share(d, never))*(panelHigh-4) }
		hue, text := other, "none"
		if n := survives(s.points, i); n > 0 {
			text = count(n)
		}
		if r.Coordinated {
			hue = ours
		}
		verdictHue := ink
		if r.Coordinated {
			verdictHue = ours
		}
		c.FillText(s.style(21, true, verdictHue), vg.Point{X: margin, Y: top - 6}, text)
		label := s.style(9, false, faint)
		label.XAlign, label.YAlign = draw.XRight, draw.YCenter
		for _, mark := range []struct {
			at   time.Duration
			text string
		}{{0, "0 s"}, {inTime, Seconds(inTime)}, {never, "never"}} {
			if mark.at == inTime && share(inTime, never) < 0.3 {
				continue // no room for the text
			}
			c.StrokeLine2(stroke(rule, 0.5), left, y(mark.at), right, y(mark.at))
			c.FillText(label, vg.Point{X: left - 8, Y: y(mark.at)}, mark.text)
		}
		var dots []vg.Point
		for _, p := range s.points {
			after := p.Runs[i].Median().Recovered
			if after < 0 {
				after = never
			}
			dots = append(dots, vg.Point{X: x(p), Y: y(after)})
		}
		c.StrokeLines(stroke(hue, 1.2), dots)
		for _, d := range dots {
			c.DrawGlyph(draw.GlyphStyle{Color: hue.color(), Radius: 2.8, Shape: draw.CircleGlyph{}}, d)
		}
		top = bottom - rowGap
	}
	label := s.style(10, false, faint)
	label.XAlign = draw.XCenter
	for _, p := range s.points {
		c.FillText(label, vg.Point{X: x(p), Y: top + rowGap - 6}, short(float64(p.Processes)))
	}
}
