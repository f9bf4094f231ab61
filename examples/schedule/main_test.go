package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run([]string{"-n", "4", "-dir", dir}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range curves {
		if !strings.Contains(out.String(), c.name+"\n"+c.about) {
			t.Errorf("no table of %s", c.name)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * (len(curves) + 2); len(files) != want {
		t.Errorf("%d pictures, want %d", len(files), want)
	}
	// Every colour has one for dark paper.
	dark, err := os.ReadFile(filepath.Join(dir, "waits-all-dark.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, hue := range append([]color.NRGBA{paper, ink, gridColor}, colors...) {
		if bytes.Contains(dark, fmt.Appendf(nil, "#%02X%02X%02X", hue.R, hue.G, hue.B)) {
			t.Errorf("the dark picture has the colour %v", hue)
		}
	}
}

// The library's table is computed from rounded rows; it is right to half a
// percent of ours.
func TestPrintedTable(t *testing.T) {
	for i, b := range backoff.Bounds(backoff.Randomized{Literal: true}, len(printed)) {
		ours := [3]float64{b.Mean.Seconds(), b.Lowest.Seconds(), b.Highest.Seconds()}
		for j, want := range printed[i] {
			if got := ours[j]; got < want*0.995 || got > want*1.005 {
				t.Errorf("retry %d: %.4f, printed %.4f", i+1, got, want)
			}
		}
	}
}
