// Package report shows the records of a storm as tables and pictures.
package report

import (
	"os"
	"path/filepath"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// Write writes the picture into a directory, in light and in dark colours. It makes the
// directory if it is missing, and returns the names of the files. The set-up is a sentence.
func Write(dir, setup string, runs []*record.Run) (paths []string, err error) {
	return save(dir, "storm", newSheet(Finding(runs), setup+" Curves: requests that succeed, per second.", newChart(runs)))
}

// save writes a picture.
func save(dir, name string, d drawing) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for i, theme := range []string{"light", "dark"} {
		data, err := svg(d, i == 1)
		if err != nil {
			return paths, err
		}
		path := filepath.Join(dir, name+"-"+theme+".svg")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
