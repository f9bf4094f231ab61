package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const root = "../.."

// parse makes a module from the text of a go.mod.
func parse(t *testing.T, dir, text string) *module {
	t.Helper()
	file, err := modfile.Parse(path.Join(dir, "go.mod"), []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &module{dir, []byte(text), file, nil, "v0.1.0"}
}

// example makes a repository of four modules. A line is added to one of them.
func example(t *testing.T, dir, line string) *repository {
	t.Helper()
	texts := map[string]string{
		".":    "module example.com/x\n\ngo 1.26.0\n\nrequire example.com/dep v1.0.0\n",
		"otel": "module example.com/x/otel\n\ngo 1.26.0\n\nrequire example.com/x v0.1.0\n\nreplace example.com/x => ../\n",
		"cmd":  "module example.com/x/cmd\n\ngo 1.26.0\n\nrequire example.com/x v0.1.0\n",
		"e2e":  "module example.com/x/e2e\n\ngo 1.26.0\n\nrequire example.com/x v0.0.0\n\nreplace example.com/x => ../\n",
	}
	if old, replacement, ok := strings.Cut(line, " -> "); ok {
		texts[dir] = strings.Replace(texts[dir], old, replacement, 1)
	} else {
		texts[dir] += line + "\n"
	}
	tool := parse(t, "cmd", texts["cmd"])
	var err error
	if tool.work, err = modfile.ParseWork("cmd/go.work", []byte("go 1.26.0\n\nuse .\n\nreplace example.com/x => ..\n"), nil); err != nil {
		t.Fatal(err)
	}
	return &repository{
		path: "example.com/x", version: "v0.1.0",
		released: []*module{parse(t, ".", texts["."]), parse(t, "otel", texts["otel"]), tool},
		others:   []*module{parse(t, "e2e", texts["e2e"])},
	}
}

// TestCheck: a go.mod that would fail for users is found.
func TestCheck(t *testing.T) {
	if err := errors.Join(example(t, ".", "").check()...); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ dir, line, want string }{
		{"otel", "v0.1.0 -> v0.0.0", "otel/go.mod: users would get example.com/x v0.0.0"},
		{"otel", "replace example.com/x => ../ -> ", "otel/go.mod: a checkout would not use its own example.com/x"},
		{"otel", "replace example.com/dep => ../dep", "otel/go.mod: the tests would use another example.com/dep"},
		{"otel", "exclude example.com/dep v1.1.0", "otel/go.mod: exclude example.com/dep"},
		{"otel", "x/otel -> x/telemetry", "otel/go.mod: the path is example.com/x/telemetry, not example.com/x/otel"},
		{"otel", "go 1.26.0 -> go 1.27.0", "otel/go.mod: it is for Go 1.27.0"},
		{".", "replace example.com/dep => ../dep", "go.mod: the tests would use another example.com/dep"},
		{".", "require example.com/x/otel v0.1.0", "go.mod: a checkout would not use its own example.com/x/otel"},
		{"cmd", "v0.1.0 -> v0.0.0", "cmd/go.mod: users would get example.com/x v0.0.0"},
		{"cmd", "replace example.com/x => ../", "cmd/go.mod: the go command does not install a module that replaces example.com/x"},
		{"cmd", "require example.com/x/otel v0.1.0", "cmd/go.mod: a checkout would not use its own example.com/x/otel"},
		{"e2e", "replace example.com/x => ../ -> ", "e2e/go.mod: a checkout would not use its own example.com/x"},
	} {
		faults := example(t, test.dir, test.line).check()
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), test.want) {
			t.Errorf("%s: %s: %v, want %s", test.dir, test.line, faults, test.want)
		}
	}
}

// TestJudge: a module is found that the user should not get or compile.
func TestJudge(t *testing.T) {
	repo := example(t, ".", "")
	compiled := append([]string{"example.com/x"}, compiles["root"]...)
	for _, test := range []struct {
		module        *module
		all, compiled []string
		want          string
	}{
		{repo.released[0], []string{"example.com/dep@v1.0.0", "example.com/x@v0.1.0"}, compiled, ""},
		{repo.released[0], []string{"example.com/sdk@v1.0.0"}, compiled, "the user gets example.com/sdk, which"},
		{repo.released[0], []string{"example.com/x/otel@v0.1.0"}, compiled, "the user gets example.com/x/otel, too"},
		{repo.released[0], []string{"example.com/x@v0.0.0"}, compiled, "the user gets example.com/x v0.0.0"},
		{repo.released[0], nil, compiled[:2], "the user compiles ["},
		{repo.released[1], []string{"example.com/x/e2e@v0.1.0"}, compiles["otel"], "the user gets example.com/x/e2e, too"},
		{repo.released[1], nil, append([]string{"example.com/sdk"}, compiles["otel"]...), "the user compiles [example.com/sdk "},
	} {
		err := errors.Join((&user{module: test.module}).judge(repo, test.all, test.compiled)...)
		if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.HasPrefix(got, test.want) {
			t.Errorf("%v: %v, want %s", test.all, err, test.want)
		}
	}
}

// checkout returns this repository.
func checkout(t *testing.T) *repository {
	t.Helper()
	if _, err := os.Stat(root + "/.git"); err != nil {
		t.Skip("this is not a checkout of git:", err)
	}
	repo, err := open(root, released)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// TestArchive: the zip of a module has a licence, and no file of another module.
func TestArchive(t *testing.T) {
	repo := checkout(t)
	for _, m := range repo.released {
		data, err := repo.archive(m)
		if err != nil {
			t.Fatal(err)
		}
		archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range archive.File {
			names = append(names, strings.TrimPrefix(f.Name, m.path()+"@"+m.version+"/"))
		}
		for _, name := range []string{"LICENSE", "go.mod"} {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %s", m.tag(), name)
			}
		}
		for _, other := range slices.Concat(repo.released, repo.others) {
			if m.dir == "." && other != m && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, other.dir+"/") }) {
				t.Errorf("%s has files of %s", m.tag(), other.dir)
			}
		}
	}
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (yes|no) \\|")

// TestTable: docs/releasing.md says of each module whether it is released.
func TestTable(t *testing.T) {
	repo := checkout(t)
	text, err := os.ReadFile(root + "/docs/releasing.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range repo.released {
		want = append(want, m.path()+" yes")
	}
	for _, m := range repo.others {
		want = append(want, m.path()+" no")
	}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, path.Join(repo.path, m[1])+" "+m[2])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/releasing.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
