package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

func TestTables(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-n", "4"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range curves {
		if !strings.Contains(out.String(), c.name+"\n"+c.about) {
			t.Errorf("no table of %s", c.name)
		}
	}
}

// Most of the time goes into the compression of the PNG files. So only a soak draws
// them all.
func TestPictures(t *testing.T) {
	all := curves
	curves = soak.Size(curves[:1], curves)
	defer func() { curves = all }()
	dir := t.TempDir()
	if err := run([]string{"-n", "4", "-dir", dir}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
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
		name := fmt.Sprintf("#%02X%02X%02X", hue.R, hue.G, hue.B)
		if bytes.Contains(dark, []byte(name)) || darkened.Replace(name) == name {
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
