// Trace prints the functions of this repository that a request over the default base enters, from
// RoundTrip to the end of the body, and how many packages, files and functions they are. A jump is
// a step from one file to another. A reader who follows a request for the first time reads them all.
//
//	go -C tools run ./trace            # without a failure, and after one
//	go -C tools run ./trace 2 short    # after two failures, with a short body
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "trace")
	check(err)
	program := traced(dir)
	if len(os.Args) > 2 {
		follow(program, os.Args[1], os.Args[2])
	} else {
		follow(program, "0", "long")
		follow(program, "0", "short")
		follow(program, "1", "short")
	}
	check(os.RemoveAll(dir))
}

// follow prints the way of one request.
func follow(program, failures, body string) {
	out, err := exec.Command(program, failures, body).CombinedOutput()
	if err != nil {
		log.Fatalf("%v\n%s", err, out)
	}
	_, way, _ := strings.Cut(string(out), "\nbegin\n")
	jumps, last, packages, files, functions := -1, "", map[string]bool{}, map[string]bool{}, map[string]bool{}
	for name := range strings.Lines(way) {
		file, _, _ := strings.Cut(name, ":")
		if file != last {
			jumps++
		}
		last, files[file], functions[name], packages[path.Dir(file)] = file, true, true, true
	}
	fmt.Printf("after %s failures, a %s body: %d packages, %d files, %d functions, %d jumps\n%s\n",
		failures, body, len(packages), len(files), len(functions), jumps, way)
}

// traced builds testdata/traced as a program of the root module, each function of which says at its entry
// where it is.
func traced(dir string) string {
	root, err := filepath.Abs("..")
	check(err)
	replaced := map[string]string{root + "/traced/main.go": root + "/tools/trace/testdata/traced/main.go"}
	goTool := func(args ...string) string {
		overlay, err := json.Marshal(map[string]any{"Replace": replaced})
		check(err)
		check(os.WriteFile(dir+"/overlay.json", overlay, 0o600))
		cmd := exec.Command("go", slices.Insert(args, 1, "-overlay", dir+"/overlay.json")...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			log.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
		return string(out)
	}
	for _, file := range strings.Fields(goTool("list", "-deps", "-f", `{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}} {{end}}`, "./traced")) {
		own, ok := strings.CutPrefix(file, root+"/")
		if !ok || replaced[file] != "" {
			continue
		}
		text, err := os.ReadFile(file)
		check(err)
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, text, 0)
		check(err)
		for _, d := range slices.Backward(f.Decls) {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				at := set.Position(fn.Body.Lbrace).Offset + 1
				text = slices.Insert(text, at, fmt.Appendf(nil, " println(%q);", fmt.Sprintf("%s:%d %s", own, set.Position(fn.Pos()).Line, fn.Name.Name))...)
			}
		}
		replaced[file] = filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		check(os.WriteFile(replaced[file], text, 0o600))
	}
	goTool("build", "-o", dir+"/program", "./traced")
	return dir + "/program"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
