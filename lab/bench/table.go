// Tables, and the machine, the versions and the settings of a run.

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A table answers one question.
type table struct {
	heads []string
	rows  [][]string
	note  string // printed below the table
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// markdown prints the table. Its figures are aligned to the right.
func (t *table) markdown(out io.Writer) {
	fmt.Fprintf(out, "| %s |\n|---|%s\n", strings.Join(t.heads, " | "), strings.Repeat("--:|", len(t.heads)-1))
	for _, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	if t.note != "" {
		fmt.Fprintf(out, "\n%s\n", t.note)
	}
}

// describe prints the conditions of the run.
func describe(out io.Writer, s scale, libs []library) {
	fmt.Fprintf(out, "- Machine: %s, %d CPUs (GOMAXPROCS %d), %s/%s%s.\n",
		processor(), runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH,
		firstLine(", kernel ", "/proc/sys/kernel/osrelease"))
	fmt.Fprintf(out, "- Time: %s%s.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		firstLine(", load at the start ", "/proc/loadavg"))
	fmt.Fprintf(out, "- %s; aplomb at %s.\n", runtime.Version(), revision())
	fmt.Fprintf(out, "- Times are medians of %d rounds in random order, with batches of about %v.\n", s.rounds, s.batch)
	versions := dependencies()
	for i := range libs {
		l := &libs[i]
		fmt.Fprintf(out, "- %s: %s.\n", strings.TrimSpace(l.name+" "+l.version(versions)), l.setup)
	}
}

// version returns the version of the library in this build, "" for a part of
// this program.
func (l *library) version(deps map[string]string) string {
	if l.name == bare.name {
		return runtime.Version()
	}
	return deps[l.module]
}

// dependencies returns the versions of the modules in this build.
func dependencies() map[string]string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			versions[m.Path] = m.Version
		}
	}
	return versions
}

// revision returns the commit of the work tree. go run does not record it in
// the program.
func revision() string {
	name, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "an unknown commit"
	}
	return "commit " + strings.TrimSpace(string(name))
}

// processor returns the processor's name, if the system tells it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// firstLine returns label and the first line of a file, "" if there is none.
func firstLine(label, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return label + line
}
