// Pkgdoc checks the documentation of packages as users see it on pkg.go.dev.
//
//	go -C tools run ./pkgdoc DIRECTORY...
//
// It reports these faults:
//
//   - a package comment whose first sentence is too short or too long for a list of search
//     results
//   - an exported name without a comment
//   - a type that a user starts from, but that has no example of its own
//   - a function that no example of its package uses
//
// A user starts from a type if some function takes it and the user has to make it. Types
// that are only handed out, the types of enumerations and of errors, and types that a
// function makes do not count. A type has an example if the example bears the name of the
// type, of its method, or of a function that makes it.
//
// The form of the comments is left to staticcheck, which says nothing of a name without one.
//
// allowed.txt names the exceptions, each with its reason.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"
)

//go:embed allowed.txt
var allowed string

func main() {
	flag.Parse()
	faults, err := check(flag.Args(), exceptions(allowed))
	if err != nil {
		fmt.Fprintln(os.Stderr, "pkgdoc:", err)
		os.Exit(2)
	}
	for _, fault := range faults {
		fmt.Println(fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// check returns the faults of all packages, except those that may stay.
func check(dirs []string, allowed map[string]bool) (faults []string, err error) {
	var packages []*pkg
	for _, dir := range dirs {
		p, err := load(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		packages = append(packages, p)
	}
	used := map[string]bool{}
	report := func(name, text string) {
		if used[name] = true; !allowed[name] {
			faults = append(faults, name+": "+text)
		}
	}
	roles := rolesOf(packages)
	for _, p := range packages {
		p.comments(report)
		p.examples(roles, report)
	}
	for name := range allowed {
		if !used[name] {
			faults = append(faults, name+": allowed.txt names it for nothing")
		}
	}
	return faults, nil
}

// exceptions reads lines of a name and a reason. Other lines begin with #.
func exceptions(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, reason, _ := strings.Cut(strings.TrimSpace(line), " "); strings.TrimSpace(reason) != "" && name != "#" {
			names[name] = true
		}
	}
	return names
}
