package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs has the program of a user for each released module.
//
//go:embed testdata
var programs embed.FS

// compiles has the modules that a program with a released module compiles, or an installed
// program, besides those of this repository. Each of them is a burden for users, so a new dependency has to be
// added here, too.
var compiles = map[string][]string{
	"root": {
		"github.com/dunglas/httpsfv",
		"github.com/hashicorp/go-cleanhttp",
		"golang.org/x/time",
	},
	"otel": { // the API of OpenTelemetry and not its SDK
		"github.com/cespare/xxhash/v2",
		"github.com/dunglas/httpsfv",
		"github.com/go-logr/logr",
		"github.com/go-logr/stdr",
		"github.com/hashicorp/go-cleanhttp",
		"go.opentelemetry.io/auto/sdk",
		"go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/log",
		"go.opentelemetry.io/otel/metric",
		"go.opentelemetry.io/otel/trace",
		"golang.org/x/time",
	},
	"fleet": {
		"github.com/cespare/xxhash/v2",
		"github.com/dunglas/httpsfv",
		"github.com/hashicorp/go-cleanhttp",
		"github.com/redis/go-redis/v9",
		"go.uber.org/atomic",
		"golang.org/x/sys",
		"golang.org/x/time",
	},
	"cmd": {
		"codeberg.org/go-fonts/liberation",
		"codeberg.org/go-latex/latex",
		"codeberg.org/go-pdf/fpdf",
		"git.sr.ht/~sbinet/gg",
		"github.com/ajstarks/svgo",
		"github.com/dunglas/httpsfv",
		"github.com/gofrs/flock",
		"github.com/golang/freetype",
		"github.com/hashicorp/go-cleanhttp",
		"github.com/mattn/go-runewidth",
		"github.com/rivo/uniseg",
		"golang.org/x/image",
		"golang.org/x/net",
		"golang.org/x/sys",
		"golang.org/x/term",
		"golang.org/x/text",
		"golang.org/x/time",
		"gonum.org/v1/plot",
	},
}

// A user is a module outside the repository that requires a released module.
type user struct {
	dir    string
	env    []string
	module *module
}

// environment returns an environment for the go command that neither reads nor fills the
// module cache of this machine. With -trimpath the build cache does not depend on the
// directory, so that a second check compiles no dependency again.
func environment(temp string) []string {
	return append(os.Environ(),
		"GOFLAGS=-modcacherw -trimpath", "GOMODCACHE="+filepath.Join(temp, "mod"), "GOBIN="+filepath.Join(temp, "bin"),
		"GOWORK=off", "GOTOOLCHAIN=local", "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=")
}

// newUser writes the program of a user. A user of programs needs none.
func newUser(dir string, env []string, m *module) (*user, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if m.work != nil {
		return &user{dir, env, m}, nil
	}
	text, err := programs.ReadFile("testdata/" + m.name() + "/main.go")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
		return nil, err
	}
	return &user{dir, env, m}, nil
}

// check builds and runs the program, and looks at the modules that it got.
func (u *user) check(w io.Writer, repo *repository) error {
	if u.module.work != nil {
		return u.install(w, repo)
	}
	wanted := u.module.path() + "@" + u.module.version
	for _, args := range [][]string{
		{"mod", "init", "example.com/user"},
		{"get", wanted},
		{"mod", "tidy"},
		{"vet", "."},
	} {
		if _, err := u.run(args...); err != nil {
			return err
		}
	}
	said, err := u.run("run", ".")
	if err != nil {
		return err
	}
	graph, err := u.run("mod", "graph")
	if err != nil {
		return err
	}
	all := unique(strings.Join(strings.Fields(graph), "\n"))
	all = slices.DeleteFunc(all, func(m string) bool {
		return m == "example.com/user" || strings.HasPrefix(m, "go@") || strings.HasPrefix(m, "toolchain@")
	})
	compiled, err := u.run("list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".")
	if err != nil {
		return err
	}
	if err := errors.Join(u.judge(repo, all, unique(compiled))...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: a user builds it and gets %d modules, of which %d are compiled; %s",
		wanted, len(all), len(unique(compiled)), said)
	return err
}

// judge returns the faults of the modules that the user got, and of those that it compiles.
func (u *user) judge(repo *repository, all, compiled []string) (faults []error) {
	expected := []string{repo.path, u.module.path()}
	for _, m := range all {
		path, version, _ := strings.Cut(m, "@")
		switch {
		case !repo.ours(path):
			if u.module.dir == "." && !repo.released[0].requires(path) {
				faults = append(faults, fmt.Errorf("the user gets %s, which go.mod does not require", path))
			}
		case !slices.Contains(expected, path):
			faults = append(faults, fmt.Errorf("the user gets %s, too", path))
		case version != u.module.version:
			faults = append(faults, fmt.Errorf("the user gets %s %s", path, version))
		}
	}
	got := slices.DeleteFunc(slices.Clone(compiled), repo.ours)
	if want := compiles[u.module.name()]; !slices.Equal(got, want) {
		faults = append(faults, fmt.Errorf("the user compiles %v, expected %v", got, want))
	}
	return faults
}

// requires reports whether the go.mod of m requires a module.
func (m *module) requires(path string) bool {
	for _, r := range m.file.Require {
		if r.Mod.Path == path {
			return true
		}
	}
	return false
}

// install installs the tool by its version, as a user does, and runs it. The go command
// refuses that if go.mod replaces a module.
func (u *user) install(w io.Writer, repo *repository) error {
	wanted := u.module.path() + "/aplomb@" + u.module.version
	bin := filepath.Join(u.dir, "bin")
	u.env = append(u.env, "GOBIN="+bin)
	if _, err := u.run("install", wanted); err != nil {
		return err
	}
	said, err := output(u.dir, u.env, filepath.Join(bin, "aplomb"), "waits", "-n", "1")
	if err != nil {
		return err
	}
	said, _, _ = strings.Cut(said, ".")
	// The lines are of the form "dep PATH VERSION HASH", and mod for the module itself.
	info, err := u.run("version", "-m", filepath.Join(bin, "aplomb"))
	if err != nil {
		return err
	}
	var all, compiled []string
	for line := range strings.Lines(info) {
		if words := strings.Fields(line); len(words) > 2 && (words[0] == "dep" || words[0] == "mod") {
			all, compiled = append(all, words[1]+"@"+words[2]), append(compiled, words[1])
		}
	}
	slices.Sort(compiled)
	if err := errors.Join(u.judge(repo, all, compiled)...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: a user installs it and compiles %d modules; it says: %s\n", wanted, len(compiled), said)
	return err
}

// run runs the go command as the user would.
func (u *user) run(args ...string) (string, error) { return output(u.dir, u.env, "go", args...) }

// output runs a command and returns its standard output. The error has its standard error.
func output(dir string, env []string, name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Dir, command.Env = dir, env
	out, err := command.Output()
	if err == nil {
		return string(out), nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s%s", err, out, exit.Stderr)
	}
	return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
}

// unique returns the lines of a text in order, each once.
func unique(text string) []string {
	list := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(list)
	return slices.Compact(list)
}
