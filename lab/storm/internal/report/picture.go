package report

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// A theme has the colours of a picture.
type theme struct {
	name                    string
	paper, ink, faint, rule string
	shade                   string // the time for which the server is frozen
	other, otherFill        string // the curve of a strategy that is not aplomb's
	ours, oursFill          string
}

var themes = [...]theme{
	{"light", "#fffffe", "#1f2328", "#59636e", "#d1d5da", "#e8ebee", "#6e7781", "#ced3d8", "#0068b5", "#9ccbf0"},
	{"dark", "#15181c", "#e6e8ea", "#a2abb4", "#3d444d", "#2a3038", "#98a1ab", "#474f59", "#5cb2ff", "#1f5687"},
}

// The sizes of a picture, in points. It is 600 pixels wide and still readable on a
// telephone, where it is 360.
const (
	wide       = 450.
	margin     = 9.
	verdictsTo = 92. // the panels begin here, right of the verdicts
	titleHigh  = 20.
	aboutHigh  = 15.
	nameHigh   = 16.
	panelHigh  = 36.
	rowGap     = 7.
	axisHigh   = 16.
)

// These are how many letters of a title and of a sentence fit into a line, whatever the font of the reader.
const (
	titleLetters = 50
	aboutLetters = 78
)

// A sheet is a picture that is being drawn. It has a panel for each run, all on the same scale.
type sheet struct {
	theme
	strings.Builder
	runs  []*record.Run
	top   float64 // the highest rate
	y     float64 // where the next part begins
	ticks float64 // seconds between two marks of the axis
}

// picture returns a picture with a title, and a sentence or two below.
func picture(t theme, title, about string, runs []*record.Run) string {
	s := &sheet{theme: t, runs: runs, y: margin, ticks: 1, top: 1.05 * runs[0].Rate}
	for _, r := range runs {
		s.top = max(s.top, 1.05*float64(slices.Max(perSecond(r))))
	}
	for _, step := range []float64{2, 5, 10, 20, 50, 100, 200, 500, 1000} {
		if s.ticks < 0.16*runs[0].End.Seconds() {
			s.ticks = step
		}
	}
	for line := range strings.Lines(Wrap(title, "", titleLetters)) {
		s.text("start", "bold 15px", s.ink, margin, s.y+13, strings.TrimSpace(line))
		s.y += titleHigh
	}
	for line := range strings.Lines(Wrap(about, "", aboutLetters)) {
		s.text("start", "10.5px", s.faint, margin, s.y+12, strings.TrimSpace(line))
		s.y += aboutHigh
	}
	s.y += 8
	s.panels()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0fpt" height="%.0fpt" viewBox="0 0 %[1]g %.0[2]f">`+"\n"+
		`<rect width="100%%" height="100%%" fill="%s"/>`+"\n%s</svg>\n", wide, s.y+margin, s.paper, s.String())
}

// text writes a text whose start, middle or end is at x.
func (s *sheet) text(anchor, font, hue string, x, y float64, text string) {
	fmt.Fprintf(s, `<text text-anchor="%s" style="font:%s 'Liberation Sans',Arial,Helvetica,sans-serif;fill:%s" x="%.1f" y="%.1f">%s</text>`+"\n",
		anchor, font, hue, x, y, html.EscapeString(text))
}

// path draws a line, and fills what it encloses.
func (s *sheet) path(hue string, width float64, fill, more, format string, args ...any) {
	fmt.Fprintf(s, `<path stroke="%s" stroke-width="%g" fill="%s"%s d="%s"/>`+"\n", hue, width, fill, more, fmt.Sprintf(format, args...))
}

// x returns the place of a time in the panels.
func (s *sheet) x(at time.Duration) float64 {
	return verdictsTo + (wide-margin-verdictsTo)*at.Seconds()/s.runs[0].End.Seconds()
}

// panels draws a panel for each run, with its name and verdict, and the axis.
func (s *sheet) panels() {
	first := s.runs[0]
	s.text("start", "10px", s.faint, margin, s.y+10, "back after")
	s.text("middle", "10px", s.faint, (s.x(first.Stop)+s.x(first.Resume))/2, s.y+10, "frozen")
	s.text("start", "bold 10px", s.ink, s.x(first.Resume), s.y+10, "resumed")
	s.y += axisHigh
	// If all strategies are aplomb's, those that are coordinated have its colour.
	allOurs := !slices.ContainsFunc(s.runs, func(r *record.Run) bool { return !r.Aplomb })
	for i, r := range s.runs {
		line, area, said := s.other, s.otherFill, s.ink
		if r.Aplomb && (r.Coordinated || !allOurs) {
			line, area = s.ours, s.oursFill
			if back(r) {
				said = s.ours
			}
		}
		s.text("start", "12px", s.ink, margin, s.y+11, r.Name)
		s.y += nameHigh + panelHigh
		s.text("start", "bold 23px", said, margin, s.y-10, verdict(r))
		s.curve(r, line, area)
		if i == 0 {
			s.text("end", "9px", s.faint, wide-margin, s.high(r.Rate)-2, fmt.Sprintf("usual: %.0f/s", r.Rate))
		}
		s.y += rowGap
	}
	for at := s.ticks; at <= (first.End - first.Resume).Seconds(); at += s.ticks {
		text := fmt.Sprintf("+%g", at)
		if at == s.ticks {
			text += " s"
		}
		s.text("middle", "10px", s.faint, min(s.x(s.tick(at)), wide-margin-8), s.y+6, text)
	}
	s.y += axisHigh - rowGap
}

// tick returns the time so many seconds after the resume.
func (s *sheet) tick(at float64) time.Duration {
	return s.runs[0].Resume + time.Duration(at*float64(time.Second))
}

// high returns the place of a rate in the panel that ends at s.y.
func (s *sheet) high(rate float64) float64 { return s.y - panelHigh*rate/s.top }

// curve draws the curve of a run, in the panel that ends at s.y.
func (s *sheet) curve(r *record.Run, line, area string) {
	s.path("none", 0, s.shade, "", "M%.1f,%.1fH%.1fv%gH%.1fZ", s.x(r.Stop), s.y, s.x(r.Resume), -panelHigh, s.x(r.Stop))
	for at := s.ticks; at <= (r.End - r.Resume).Seconds(); at += s.ticks {
		s.path(s.rule, 0.5, "none", "", "M%.1f,%.1fv%g", s.x(s.tick(at)), s.y, -panelHigh)
	}
	s.path(s.faint, 0.6, "none", ` stroke-dasharray="1.5,2"`, "M%.1f,%.1fH%.1f", s.x(0), s.high(r.Rate), s.x(r.End))
	var points []string
	for i, n := range perSecond(r) {
		points = append(points, fmt.Sprintf("%.1f,%.1f", s.x(time.Duration(2*i+1)*time.Second/2), s.high(float64(n))))
	}
	along := strings.Join(points, "L")
	s.path("none", 0, area, "", "M%s V%.1fH%.1fZ", along, s.y, s.x(time.Second/2))
	s.path(line, 1.2, "none", "", "M%s", along)
	s.path(s.rule, 0.7, "none", "", "M%.1f,%.1fH%.1f", s.x(0), s.y, s.x(r.End))
	s.path(s.ink, 1, "none", "", "M%.1f,%.1fv%g", s.x(r.Resume), s.y, -panelHigh)
}

// perSecond returns the successes in each whole second.
func perSecond(r *record.Run) (all []int) {
	const second = int(time.Second / record.Step)
	for part := range slices.Chunk(r.Samples, second) {
		n := 0
		for _, s := range part {
			n += s.Good
		}
		all = append(all, n)
	}
	return all[:len(r.Samples)/second]
}
