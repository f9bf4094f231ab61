// How is it printed?

package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
)

// A table has a row for each fact and a column for each library.
type table struct {
	libs     []library
	versions []string
	names    []string
	cells    [][]string
}

func newTable(libs []library) *table {
	t := &table{libs: libs}
	deps := dependencies()
	for i := range libs {
		t.versions = append(t.versions, libs[i].version(deps))
	}
	return t
}

func (t *table) add(name string, cells []string) {
	t.names = append(t.names, name)
	t.cells = append(t.cells, cells)
}

// text prints each fact above its figures: the names are long.
func (t *table) text(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, lib := range t.libs {
		fmt.Fprintf(w, "%s\t%s\t%s\n", lib.name, t.versions[i], lib.setup)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s\n", t.conditions())
	for i, name := range t.names {
		fmt.Fprintf(out, "\n%s\n", name)
		for j, lib := range t.libs {
			fmt.Fprintf(w, "    %s\t%s\n", lib.name, t.cells[i][j])
		}
		_ = w.Flush()
	}
}

// markdown prints one table of figures, and below it how each was set up.
func (t *table) markdown(out io.Writer) {
	fmt.Fprint(out, "| |")
	for i, lib := range t.libs {
		fmt.Fprintf(out, " %s %s |", lib.name, t.versions[i])
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---|", len(t.libs)))
	for i, name := range t.names {
		fmt.Fprintf(out, "| %s | %s |\n", name, strings.Join(t.cells[i], " | "))
	}
	fmt.Fprintf(out, "\n%s\n\n", t.conditions())
	for _, lib := range t.libs {
		fmt.Fprintf(out, "- %s: %s.\n", lib.name, lib.setup)
	}
}

func (t *table) conditions() string {
	return fmt.Sprintf("Waits of %v where nobody asks for more; HTTP/1.1 over loopback; %s/%s, %d CPUs.",
		shortDelay, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}
