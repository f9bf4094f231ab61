package main

import (
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is a package with its documentation and its examples.
type pkg struct {
	*doc.Package
	types map[string]*ast.TypeSpec // the exported types
	shown map[string]bool          // the names of the package that its examples use
}

// load parses the files of a directory for this system, tests included.
func load(dir string) (*pkg, error) {
	found, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	set := token.NewFileSet()
	for _, name := range slices.Concat(found.GoFiles, found.CgoFiles, found.TestGoFiles, found.XTestGoFiles) {
		file, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	p := &pkg{types: map[string]*ast.TypeSpec{}, shown: map[string]bool{}}
	for _, file := range files {
		if strings.HasSuffix(set.File(file.Pos()).Name(), "_test.go") {
			p.show(file, found.Name)
		}
	}
	if p.Package, err = doc.NewFromFiles(set, files, found.Name); err != nil {
		return nil, err
	}
	for _, t := range p.Types {
		for _, spec := range t.Decl.Specs {
			if s := spec.(*ast.TypeSpec); s.Name.Name == t.Name {
				p.types[t.Name] = s
			}
		}
	}
	return p, nil
}

// show notes the names that the examples of a file use. pkg.go.dev shows the body of an
// example, or the whole file if it has a single example and nothing else to run.
func (p *pkg) show(file *ast.File, name string) {
	for _, example := range doc.Examples(file) {
		code := example.Code
		if example.Play != nil {
			code = example.Play
		}
		ast.Inspect(code, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
					p.shown[s.Sel.Name] = true
				}
			}
			return true
		})
	}
}

// functions returns all functions that are not methods.
func (p *pkg) functions() []*doc.Func {
	list := slices.Clone(p.Funcs)
	for _, t := range p.Types {
		list = append(list, t.Funcs...)
	}
	return list
}
