package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/curves"
	"github.com/aplomb-go/aplomb/internal/soak"
)

// TestMarks: every axis has a label above its data.
func TestMarks(t *testing.T) {
	for _, high := range []float64{0.5, 59, 61, 266, 780, 4000} {
		p := panel("wait", 4, logTime{})
		marks(p, 0.07, high)
		ticks := logTime{}.Ticks(p.Y.Min, p.Y.Max)
		assert.True(t, len(ticks) >= 2 && ticks[0].Value <= 0.07 && ticks[len(ticks)-1].Value >= high, "ticks for 0.07 to %v: %v", high, ticks)
	}
}

// Most of the time goes into the compression of the PNG files. So only a soak draws
// them all.
func TestPictures(t *testing.T) {
	dir, list := t.TempDir(), soak.Size(curves.All()[:1], curves.All())
	require.NoError(t, pictures(dir, list, 4))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 3*(len(list)+2), "pictures")
	// Every colour has one for dark paper.
	dark, err := os.ReadFile(filepath.Join(dir, "waits-all-dark.svg"))
	require.NoError(t, err)
	for _, hue := range append([]color.NRGBA{paper, ink, gridColor, faint}, colors...) {
		name := fmt.Sprintf("#%02X%02X%02X", hue.R, hue.G, hue.B)
		assert.True(t, !bytes.Contains(dark, []byte(name)) && darkened.Replace(name) != name, "the dark picture has the colour %v", hue)
	}
}

// TestFlags: a wrong command line is refused, and nothing is drawn.
func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-out DIRECTORY says where to write the pictures": {},
		"-n 101: must be 1 to 100":                        {"-out", "x", "-n", "101"},
		`"x": there are no arguments, only flags; see -h`: {"x"},
		"flag provided but not defined: -nonsense":        {"-nonsense"},
	} {
		var out bytes.Buffer
		assert.EqualError(t, run(args, &out, &out), want)
	}
}
