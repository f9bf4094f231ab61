// Pictures as files. A picture has a title and a legend above its panels.
// It is written as SVG for light and dark paper and as PNG.

package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A picture is rows of panels under a common title and legend. A panel's title
// names its vertical axis.
type picture struct {
	title   string
	keys    []key
	panels  []*plot.Plot
	columns int       // 0: all panels in a row
	high    vg.Length // of a panel; 0: panelHigh
}

// grid returns the number of rows and columns.
func (p *picture) grid() (rows, columns int) {
	columns = cmp.Or(p.columns, len(p.panels))
	return (len(p.panels) + columns - 1) / columns, columns
}

// A key is one entry of the legend.
type key struct {
	name   string
	thumbs []plot.Thumbnailer
}

func (p *picture) key(name string, thumbs ...plot.Thumbnailer) {
	p.keys = append(p.keys, key{name, thumbs})
}

const (
	margin     = 12
	panelWide  = 250
	panelHigh  = 210
	titleHigh  = 22
	legendHigh = 16
	thumbWide  = 22
)

// save writes name-light.svg, name-dark.svg and name.png.
func (p *picture) save(dir, name string) error {
	rows, columns := p.grid()
	wide := vg.Length(columns*panelWide + 2*margin)
	high := vg.Length(rows)*cmp.Or(p.high, panelHigh) + titleHigh + legendHigh*vg.Length(p.legend(nil, wide)) + 2*margin + 6
	svg := vgsvg.New(wide, high)
	p.draw(draw.New(svg))
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(wide, high), vgimg.UseDPI(144))}
	p.draw(draw.New(png))
	var vector, pixels bytes.Buffer
	if _, err := svg.WriteTo(&vector); err != nil {
		return err
	}
	if _, err := png.WriteTo(&pixels); err != nil {
		return err
	}
	// If the reader does not have the font, another font of the same kind is
	// used.
	light := strings.ReplaceAll(vector.String(), "font-family:Liberation Sans", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif")
	for file, data := range map[string][]byte{
		name + "-light.svg": []byte(light),
		name + "-dark.svg":  []byte(darkened.Replace(light)),
		name + ".png":       pixels.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (p *picture) draw(c draw.Canvas) {
	c.FillPolygon(paper, corners(c.Rectangle))
	c = draw.Crop(c, margin, -margin, margin, -margin)
	style := label(12)
	style.Font.Weight = 3 // bold
	c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.title)
	c = draw.Crop(c, 0, 0, 0, -titleHigh)
	legend := p.legend(&c, c.Size().X)
	c = draw.Crop(c, 0, 0, 0, -legendHigh*vg.Length(legend)-6)
	rows, columns := p.grid()
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: 16, PadY: 6}
	for i, panel := range p.panels {
		tile := tiles.At(c, i%columns, i/columns)
		c.FillText(label(10), vg.Point{X: tile.Min.X, Y: tile.Max.Y}, panel.Title.Text)
		bare := *panel
		bare.Title.Text = ""
		bare.Draw(draw.Crop(tile, 0, 0, 0, -18))
	}
}

// legend writes the keys in lines from the top of c, which may be nil, and
// returns how many lines it takes.
func (p *picture) legend(c *draw.Canvas, wide vg.Length) (rows int) {
	style := label(9.5)
	var x vg.Length
	rows = 1
	for _, k := range p.keys {
		// Another font may be a good deal wider.
		need := thumbWide + 5 + style.Width(k.name)*1.15 + 14
		if x > 0 && x+need > wide-2*margin {
			x, rows = 0, rows+1
		}
		if c != nil {
			at := vg.Point{X: c.Min.X + x, Y: c.Max.Y - vg.Length(rows-1)*legendHigh}
			box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: at.X, Y: at.Y - 11}, Max: vg.Point{X: at.X + thumbWide, Y: at.Y}}}
			for _, t := range k.thumbs {
				t.Thumbnail(&box)
			}
			c.FillText(style, vg.Point{X: at.X + thumbWide + 5, Y: at.Y}, k.name)
		}
		x += need
	}
	return rows
}

func label(size vg.Length) text.Style {
	return text.Style{Color: ink, Font: font.From(plot.DefaultFont, size), XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}
