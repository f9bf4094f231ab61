// Api lists the exported API of packages, one line for each constant, variable,
// function, method, type and field. Comments are left out.
//
//	go -C tools run ./api -dir .. -out ../docs/api PACKAGE...
//	go -C tools run ./api -dir .. -out ../docs/api -check PACKAGE...
//
// The first form writes a file for each package. The second form compares the
// packages with the files, prints the lines that differ, and exits with status 1
// if there are any. The packages are paths of directories below dir. They may belong to
// several modules.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("dir", ".", "the root of the module")
	out := flag.String("out", "docs/api", "the directory of the listings")
	check := flag.Bool("check", false, "compare with the listings instead of writing them")
	flag.Parse()
	same, err := run(*dir, *out, *check, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(2)
	}
	if !same {
		fmt.Fprintln(os.Stderr, "the exported API has changed; if this is meant, run make api and commit the result")
		os.Exit(1)
	}
}

// run writes or compares the listings. It reports whether they are the same.
func run(dir, out string, check bool, names []string) (same bool, err error) {
	packages := map[string]*types.Package{}
	for module, below := range byModule(dir, names) {
		if err := load(packages, dir, module, below); err != nil {
			return false, err
		}
	}
	same = true
	for _, name := range names {
		p := packages[name]
		file := filepath.Join(out, strings.ReplaceAll(name, "/", "-")+".txt")
		now := listing(p)
		if !check {
			if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
				return false, err
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		if !compare(os.Stdout, name, strings.Split(strings.TrimSpace(string(text)), "\n"), now) {
			same = false
		}
	}
	return same, nil
}

// compare prints the lines that only one of two listings has. It reports whether
// there are none.
func compare(w io.Writer, name string, before, now []string) bool {
	same := true
	for _, line := range before {
		if !slices.Contains(now, line) {
			same = false
			fmt.Fprintf(w, "%s: - %s\n", name, line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			same = false
			fmt.Fprintf(w, "%s: + %s\n", name, line)
		}
	}
	return same
}

// byModule returns the packages of each module. A module is a directory with a go.mod.
func byModule(dir string, names []string) map[string][]string {
	modules := map[string][]string{}
	for _, name := range names {
		module := name
		for module != "." {
			if _, err := os.Stat(filepath.Join(dir, module, "go.mod")); err == nil {
				break
			}
			module = filepath.Dir(module)
		}
		modules[module] = append(modules[module], name)
	}
	return modules
}

// load compiles the packages of a module and reads their export data.
func load(packages map[string]*types.Package, dir, module string, names []string) error {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.DepOnly}}"}
	for _, name := range names {
		below, err := filepath.Rel(module, name)
		if err != nil {
			return err
		}
		args = append(args, "./"+filepath.ToSlash(below))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = filepath.Join(dir, module), os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var paths []string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		exports[f[0]] = f[1]
		if f[2] == "false" {
			paths = append(paths, f[0])
		}
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, name := range names {
		at := slices.IndexFunc(paths, func(path string) bool { return strings.HasSuffix(path, "/"+name) })
		if at < 0 {
			return fmt.Errorf("no package %s", name)
		}
		if packages[name], err = imports.Import(paths[at]); err != nil {
			return err
		}
	}
	return nil
}

// listing returns the lines of a package, sorted by name.
func listing(p *types.Package) (lines []string) {
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() {
		obj := p.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			lines = append(lines, types.ObjectString(obj, short)+" = "+obj.Val().String())
		case *types.TypeName:
			lines = append(lines, typeLines(obj, short)...)
		default:
			lines = append(lines, types.ObjectString(obj, short))
		}
	}
	return lines
}

// typeLines returns the lines of a type with its fields and methods.
func typeLines(obj *types.TypeName, short types.Qualifier) []string {
	under := obj.Type().Underlying()
	s, isStruct := under.(*types.Struct)
	if !isStruct || obj.IsAlias() {
		lines := []string{types.ObjectString(obj, short)}
		return append(lines, methodLines(obj, short)...)
	}
	lines := []string{"type " + obj.Name() + " struct"}
	for f := range s.Fields() {
		if f.Exported() {
			lines = append(lines, "field "+obj.Name()+"."+f.Name()+" "+types.TypeString(f.Type(), short))
		}
	}
	return append(lines, methodLines(obj, short)...)
}

// methodLines returns the exported methods that a type and its pointer declare.
func methodLines(obj *types.TypeName, short types.Qualifier) (lines []string) {
	named, ok := obj.Type().(*types.Named)
	if !ok {
		return nil
	}
	for m := range named.Methods() {
		if m.Exported() {
			lines = append(lines, types.ObjectString(m, short))
		}
	}
	slices.Sort(lines)
	return lines
}
