package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"regexp"
)

// The first sentence of a package comment stands in lists of search results.
const (
	shortest = 50
	longest  = 140
)

// comments reports the names without a comment, and a bad package comment.
func (p *pkg) comments(report func(name, text string)) {
	p.headline(report)
	values := p.Consts
	values = append(values[:len(values):len(values)], p.Vars...)
	for _, t := range p.Types {
		values = append(append(values, t.Consts...), t.Vars...)
		if t.Doc == "" {
			report(p.Name+"."+t.Name, "has no comment")
		}
		for _, m := range t.Methods {
			if m.Doc == "" && !promises[m.Name] {
				report(p.Name+"."+t.Name+"."+m.Name, "has no comment")
			}
		}
		p.fields(p.Name+"."+t.Name, t.Doc, p.types[t.Name].Type, report)
	}
	for _, f := range p.functions() {
		if f.Doc == "" {
			report(p.Name+"."+f.Name, "has no comment")
		}
	}
	for _, v := range values {
		p.values(v, report)
	}
}

// promises has the methods whose name says everything, because the standard library
// defines what they do.
var promises = map[string]bool{"Error": true, "Unwrap": true, "String": true, "MarshalText": true, "UnmarshalText": true}

// headline looks at the length of the first sentence of the package comment. Its form is
// checked by staticcheck.
func (p *pkg) headline(report func(name, text string)) {
	if n := len(p.Package.Synopsis(p.Doc)); n < shortest || n > longest {
		report(p.Name, fmt.Sprintf("the first sentence of the package comment has %d letters, not %d to %d", n, shortest, longest))
	}
}

// values looks at constants or variables. A comment on the group is enough.
func (p *pkg) values(v *doc.Value, report func(name, text string)) {
	for _, spec := range v.Decl.Specs {
		s := spec.(*ast.ValueSpec)
		for _, name := range s.Names {
			if name.IsExported() && v.Doc == "" && s.Doc == nil && s.Comment == nil {
				report(p.Name+"."+name.Name, "has no comment")
			}
		}
	}
}

// fields looks at the fields of a struct and at the methods of an interface. A name that
// the comment of the type or of another field explains needs no comment of its own. The
// comment of an interface with a single method is about this method.
func (p *pkg) fields(name, text string, t ast.Expr, report func(name, text string)) {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		if list = t.Methods; len(list.List) == 1 {
			return
		}
	default:
		return
	}
	for _, f := range list.List {
		text += "\n" + f.Doc.Text() + f.Comment.Text()
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			explained := regexp.MustCompile(`\b` + n.Name + `\b`).MatchString(text)
			if n.IsExported() && f.Doc == nil && f.Comment == nil && !explained {
				report(name+"."+n.Name, "has no comment")
			}
		}
	}
}
