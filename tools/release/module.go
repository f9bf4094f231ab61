package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A repository is its newest commit. Changes that are not committed do not count.
type repository struct {
	dir      string
	path     string // of the root module
	version  string // the version to release
	released []*module
	others   []*module
}

// A module is a directory with a go.mod.
type module struct {
	dir     string // relative to the root, with slashes; the root is "."
	text    []byte // of go.mod
	file    *modfile.File
	work    *modfile.WorkFile // the go.work of a module of programs; nil: it has none
	version string
}

// name returns a name for directories and messages.
func (m *module) name() string {
	if m.dir == "." {
		return "root"
	}
	return m.dir
}

// tag returns the tag of the module's version, in the way that Go wants it.
func (m *module) tag() string { return path.Join(m.dir, m.version) }

// path returns the path by which users require the module.
func (m *module) path() string { return m.file.Module.Mod.Path }

// heading finds the newest section of the changelog.
var heading = regexp.MustCompile(`(?m)^## (v\d+\.\d+\.\d+)\b`)

// open reads the go.mod of all modules and the version that the changelog announces.
func open(dir string, released []string) (*repository, error) {
	repo := &repository{dir: dir}
	changes, err := repo.show("CHANGELOG.md")
	if err != nil {
		return nil, err
	}
	found := heading.FindSubmatch(changes)
	if found == nil {
		return nil, errors.New("CHANGELOG.md has no section of a version")
	}
	repo.version = string(found[1])

	names, err := repo.git("ls-tree", "-r", "--name-only", "HEAD")
	if err != nil {
		return nil, err
	}
	files := strings.Split(strings.TrimSpace(string(names)), "\n")
	for _, name := range files {
		if path.Base(name) != "go.mod" || strings.Contains(name, "testdata/") {
			continue
		}
		text, err := repo.show(name)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		m := &module{path.Dir(name), text, file, nil, repo.version}
		if work := path.Join(m.dir, "go.work"); slices.Contains(files, work) {
			if text, err = repo.show(work); err != nil {
				return nil, err
			}
			if m.work, err = modfile.ParseWork(work, text, nil); err != nil {
				return nil, err
			}
		}
		if m.dir == "." {
			repo.path = m.path()
		}
		if slices.Contains(released, m.dir) {
			repo.released = append(repo.released, m)
		} else {
			repo.others = append(repo.others, m)
		}
	}
	if len(repo.released) != len(released) {
		return nil, fmt.Errorf("of the modules %v only %d were found", released, len(repo.released))
	}
	slices.SortFunc(repo.released, func(a, b *module) int {
		return slices.Index(released, a.dir) - slices.Index(released, b.dir)
	})
	return repo, nil
}

// ours reports whether a module belongs to this repository.
func (repo *repository) ours(path string) bool {
	return path == repo.path || strings.HasPrefix(path, repo.path+"/")
}

// replaced returns the modules that a checkout replaces.
func (m *module) replaced() []*modfile.Replace {
	if m.work != nil {
		return m.work.Replace
	}
	return m.file.Replace
}

// check returns the faults of all go.mod.
func (repo *repository) check() (faults []error) {
	for _, m := range slices.Concat(repo.released, repo.others) {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%s: %s", path.Join(m.dir, "go.mod"), fmt.Sprintf(format, args...)))
		}
		if want := path.Join(repo.path, m.dir); m.path() != want {
			fault("the path is %s, not %s", m.path(), want)
		}
		isReleased := slices.Contains(repo.released, m)
		for _, r := range m.file.Require {
			if !repo.ours(r.Mod.Path) {
				continue
			}
			if !slices.ContainsFunc(m.replaced(), func(other *modfile.Replace) bool { return other.Old.Path == r.Mod.Path }) {
				fault("a checkout would not use its own %s, because it is not replaced", r.Mod.Path)
			}
			if isReleased && r.Mod.Version != repo.version {
				fault("users would get %s %s, because replace does not count for them: require %s", r.Mod.Path, r.Mod.Version, repo.version)
			}
		}
		if !isReleased {
			continue
		}
		for _, r := range m.file.Replace {
			if m.work != nil {
				fault("the go command does not install a module that replaces %s", r.Old.Path)
				continue
			}
			if m.dir == "." || !repo.ours(r.Old.Path) {
				fault("the tests would use another %s than users, because replace does not count for them", r.Old.Path)
			}
		}
		for _, e := range m.file.Exclude {
			fault("exclude %s does not count for users", e.Mod.Path)
		}
		if root := repo.released[0]; m.file.Go.Version != root.file.Go.Version {
			fault("it is for Go %s, and the root for Go %s", m.file.Go.Version, root.file.Go.Version)
		}
	}
	return faults
}

// show returns a file of the newest commit.
func (repo *repository) show(name string) ([]byte, error) { return repo.git("show", "HEAD:"+name) }

// git runs a command of git and returns its output.
func (repo *repository) git(args ...string) ([]byte, error) {
	command := exec.Command("git", args...)
	command.Dir = repo.dir
	out, err := command.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
