package main

import (
	"go/ast"
)

// A role says how users meet a type. A type can have both roles.
type role struct {
	taken  bool // a function takes it
	handed bool // a function returns it, or hands it to a function of the user
}

// rolesOf returns the roles of all exported types, by package and name.
func rolesOf(packages []*pkg) map[string]role {
	roles := map[string]role{}
	changed := true
	mark := func(name string, taken bool) {
		old := roles[name]
		now := role{old.taken || taken, old.handed || !taken}
		changed = changed || now != old
		roles[name] = now
	}
	for _, p := range packages {
		for _, f := range p.functions() {
			walk(p.Name, f.Decl.Type, false, mark)
		}
		for _, t := range p.Types {
			for _, m := range t.Methods {
				walk(p.Name, m.Decl.Type, false, mark)
			}
		}
	}
	// The types of the parts of a type have the role of the type. A type with both roles is taken.
	each := func(taken bool) {
		for changed = true; changed; {
			changed = false
			for _, p := range packages {
				for name, t := range p.types {
					if r := roles[p.Name+"."+name]; taken && r.taken || !taken && r == (role{handed: true}) {
						walk(p.Name, t.Type, taken, mark)
					}
				}
			}
		}
	}
	each(true)
	each(false)
	return roles
}

// walk marks the types that a type mentions. A function that is handed out takes its
// parameters. A function that is taken hands them out.
func walk(pkg string, t ast.Expr, taken bool, mark func(name string, taken bool)) {
	next := func(t ast.Expr) { walk(pkg, t, taken, mark) }
	switch t := t.(type) {
	case *ast.Ident:
		if t.IsExported() {
			mark(pkg+"."+t.Name, taken)
		}
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok {
			mark(x.Name+"."+t.Sel.Name, taken)
		}
	case *ast.StarExpr:
		next(t.X)
	case *ast.ArrayType:
		next(t.Elt)
	case *ast.Ellipsis:
		next(t.Elt)
	case *ast.MapType:
		next(t.Key)
		next(t.Value)
	case *ast.FuncType:
		for _, f := range t.Params.List {
			walk(pkg, f.Type, !taken, mark)
		}
		if t.Results != nil {
			for _, f := range t.Results.List {
				next(f.Type)
			}
		}
	case *ast.InterfaceType:
		for _, f := range t.Methods.List {
			next(f.Type)
		}
	case *ast.StructType:
		for _, f := range t.Fields.List {
			if len(f.Names) == 0 || f.Names[0].IsExported() {
				next(f.Type)
			}
		}
	}
}

// examples reports the starting types without an example, and the functions that no
// example uses.
func (p *pkg) examples(roles map[string]role, report func(name, text string)) {
	for _, f := range p.functions() {
		if len(f.Examples) == 0 && !p.shown[f.Name] {
			report(p.Name+"."+f.Name, "no example uses it")
		}
	}
	for _, t := range p.Types {
		r := roles[p.Name+"."+t.Name]
		n := len(t.Examples)
		isError, made := false, false
		for _, m := range t.Methods {
			n += len(m.Examples)
			isError = isError || m.Name == "Error"
		}
		for _, f := range t.Funcs {
			n += len(f.Examples)
			made = true
		}
		isEnumeration := len(t.Consts) > 0
		isStarting := (r.taken || !r.handed) && !isError && !isEnumeration && (!made || p.visible(t.Name))
		if isStarting && n == 0 {
			report(p.Name+"."+t.Name, "a user starts from it, and it has no example")
		}
	}
}

// visible reports whether a user can make a value of the type without a function.
func (p *pkg) visible(name string) bool {
	t, ok := p.types[name].Type.(*ast.StructType)
	if !ok {
		return true
	}
	for _, f := range t.Fields.List {
		for _, n := range f.Names {
			if n.IsExported() {
				return true
			}
		}
	}
	return false
}
