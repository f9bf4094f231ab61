package report

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

func runs() []*record.Run {
	var all []*record.Run
	for _, name := range []string{"one", "<two>"} {
		r := record.NewRun(30 * time.Second)
		r.Name, r.Rule = name, "{a rule}"
		r.Stop, r.Resume, r.Rate, r.ServerLimit = 5*time.Second, 10*time.Second, 10, 3
		for i := range r.Samples {
			r.Samples[i] = record.Sample{Sends: 1, Arrived: 1, Good: 1, Busy: i % 7, Limit: i % 5, Waiting: i}
		}
		all = append(all, r)
	}
	return all
}

// The page needs nothing from elsewhere, and has colours for light and dark.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	files, err := Write(dir, "title", runs())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("files %v", files)
	}
	page, err := os.ReadFile(filepath.Join(dir, "storm.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"prefers-color-scheme: dark", "&lt;two&gt;", "var(--c5)", "{a rule}", "arrivals:", "attempts:"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if found := regexp.MustCompile(`(?i)<script|(src|href)="|@import|url\(`).Find(page); found != nil {
		t.Errorf("the page has %q", found)
	}
	// Every colour is a role's.
	if found := regexp.MustCompile(`(fill|stroke):#[0-9A-F]{6}`).Find(page); found != nil {
		t.Errorf("the page has the colour %q", found)
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, runs()); err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"<two>", "100 %"}, columns...) {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
}
