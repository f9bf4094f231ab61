package waits

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

func TestTables(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-n", "4", "-all"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(curves, article...) {
		if !strings.Contains(out.String(), c.name+"\n"+c.about) {
			t.Errorf("no table of %s", c.name)
		}
	}
}

// TestOverviewTable: for any number of retries the table fits 80 columns, and a row for
// each back-off ends with the sum.
func TestOverviewTable(t *testing.T) {
	for _, n := range soak.Size([]string{"1", "100"}, []string{"1", "2", "12", "100"}) {
		var out bytes.Buffer
		if err := run([]string{"-n", n}, &out, &out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if wide := utf8.RuneCountInString(strings.TrimRight(line, "\n")); wide > 80 {
				t.Errorf("-n %s: %d columns: %s", n, wide, line)
			}
		}
		for _, c := range curves {
			bounds := backoff.Bounds(c.backoff, 1)
			if rows := strings.Count(out.String(), c.name+"  "); rows != 2 {
				t.Errorf("-n %s: %d rows for %s", n, rows, c.name)
			}
			if n == "1" && !strings.Contains(out.String(), Short(bounds[0].Mean)) {
				t.Errorf("the mean of %s is missing", c.name)
			}
		}
	}
}

// TestMarks: every axis has a label above its data.
func TestMarks(t *testing.T) {
	for _, high := range []float64{0.5, 59, 61, 266, 780, 4000} {
		p := panel("wait", 4, logTime{})
		marks(p, 0.07, high)
		ticks := logTime{}.Ticks(p.Y.Min, p.Y.Max)
		if len(ticks) < 2 || ticks[0].Value > 0.07 || ticks[len(ticks)-1].Value < high {
			t.Errorf("ticks for 0.07 to %v: %v", high, ticks)
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
	for _, hue := range append([]color.NRGBA{paper, ink, gridColor, faint}, colors...) {
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

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Nanosecond: "1.23µs", 12345 * time.Microsecond: "12.3ms", 1999 * time.Millisecond: "2s",
		time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90*time.Minute + 500*time.Millisecond: "1h30m",
	} {
		if got := Short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
