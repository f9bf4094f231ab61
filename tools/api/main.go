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
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
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
	only := func(sign string, list, other []string) {
		for _, line := range list {
			if !slices.Contains(other, line) {
				same = false
				fmt.Fprintf(w, "%s: %s %s\n", name, sign, line)
			}
		}
	}
	only("-", before, now)
	only("+", now, before)
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
func load(into map[string]*types.Package, dir, module string, names []string) error {
	var patterns []string
	for _, name := range names {
		below, err := filepath.Rel(module, name)
		if err != nil {
			return err
		}
		patterns = append(patterns, "./"+filepath.ToSlash(below))
	}
	found, err := packages.Load(&packages.Config{Dir: filepath.Join(dir, module), Mode: packages.LoadTypes}, patterns...)
	if err != nil {
		return err
	}
	for _, p := range found {
		if len(p.Errors) > 0 {
			return p.Errors[0]
		}
		for _, name := range names {
			if strings.HasSuffix(p.PkgPath, "/"+name) {
				into[name] = p.Types
			}
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
