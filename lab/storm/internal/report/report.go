// Package report shows the records of a storm as tables and pictures.
package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// Write writes the picture into a directory, in light and in dark colours. It makes the
// directory if it is missing, and returns the names of the files. The set-up is a sentence.
func Write(dir, setup string, runs []*record.Run) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for _, t := range themes {
		svg := picture(t, Finding(runs), setup+" Curves: requests that succeed, per second.", runs)
		path := filepath.Join(dir, "storm-"+t.name+".svg")
		if err := os.WriteFile(path, []byte(svg), 0o666); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// atOnce is the longest time after which a server counts as back at once. Chance alone
// moves the time by a second.
const atOnce = 3 * time.Second

// Finding returns the headline of the report.
func Finding(runs []*record.Run) string {
	// How many are back, and how many at once, of those that are coordinated and of the
	// others.
	var all, back, quick struct{ coordinated, others int }
	for _, r := range runs {
		after := r.Median().Recovered
		number := func(n *struct{ coordinated, others int }) *int {
			if r.Coordinated {
				return &n.coordinated
			}
			return &n.others
		}
		*number(&all)++
		if after >= 0 {
			*number(&back)++
		}
		if after >= 0 && after <= atOnce {
			*number(&quick)++
		}
	}
	freeze := "After a " + Seconds(runs[0].Resume-runs[0].Stop) + " freeze, "
	compared := all.coordinated > 0 && all.others > 0
	switch {
	case compared && quick.coordinated == all.coordinated && quick.others == 0:
		return freeze + "only coordinated clients bring the server back at once"
	case compared && back.coordinated == all.coordinated && back.others == 0:
		return freeze + "only coordinated clients bring the server back"
	case back == all:
		return freeze + "the server comes back with every strategy"
	case back.coordinated+back.others == 0:
		return freeze + "the server comes back with none of these strategies"
	}
	return freeze + fmt.Sprintf("the server comes back with %d of %d strategies", back.coordinated+back.others, len(runs))
}

// verdict says after which time the server was back.
func verdict(r *record.Run) string {
	f := r.Median()
	switch {
	case f.Recovered < 0:
		return "never"
	case f.Recovered >= 10*time.Second:
		return Seconds(f.Recovered.Round(time.Second))
	}
	return Seconds(f.Recovered.Round(100 * time.Millisecond))
}

func back(r *record.Run) bool { return r.Median().Recovered >= 0 }

// Seconds writes a time in seconds.
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// count writes a number with a comma for each thousand.
func count(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// notes returns sentences about single runs, such as a server that is out of files.
func notes(runs []*record.Run) (list []string) {
	var names []string
	var files int
	for _, r := range runs {
		if at := r.Exhausted(); at >= 0 {
			names = append(names, fmt.Sprintf("%q after %s", r.Name, Seconds((at-r.Resume).Round(time.Second))))
			files = r.Files
		}
	}
	if len(names) > 0 {
		list = append(list, fmt.Sprintf("* A server may open %s files here. These servers had used them up, counted from the resume: %s. From then on such a server takes up no more requests, so its arrivals end and its peak is too low.",
			count(files), strings.Join(names, ", ")))
	}
	return list
}

// starred marks a peak that is too low.
func starred(r *record.Run) string {
	peak := count(r.Median().Peak)
	if r.Exhausted() >= 0 {
		peak += "*"
	}
	return peak
}
