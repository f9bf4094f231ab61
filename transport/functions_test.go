package transport_test

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A request over the default base enters few functions of this module, from RoundTrip to the end of
// the body, as counted by coverage. A reader who follows a request for the first time reads them
// all. Make the bounds smaller if you can.
func TestFunctionsOfARequest(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command:", err)
	}
	const module = "github.com/aplomb-go/aplomb"
	goOut := func(args ...string) string {
		out, err := exec.Command(goTool, args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	own := slices.DeleteFunc(strings.Fields(goOut("list", "-deps", "./testdata/retry")), func(p string) bool { return !strings.HasPrefix(p, module) })
	dir := t.TempDir()
	goOut("build", "-cover", "-covermode=atomic", "-coverpkg="+strings.Join(own, ","), "-o", dir+"/retry", "./testdata/retry")

	var names []string
	for _, row := range []struct {
		failures         int
		body             string
		functions, files int
	}{{0, "long", 27, 18}, {0, "short", 29, 19}, {1, "short", 168, 47}} {
		covered := t.TempDir()
		cmd := exec.Command(dir+"/retry", fmt.Sprint(row.failures), row.body)
		cmd.Env = append(os.Environ(), "GOCOVERDIR="+covered)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		goOut("tool", "covdata", "textfmt", "-i="+covered, "-o="+covered+"/profile")
		names = slices.Sorted(maps.Keys(functionsIn(t, covered+"/profile", module)))
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "transport/testdata/") })
		files, ofResume := map[string]bool{}, 0
		for _, name := range names {
			file, _, _ := strings.Cut(name, ":")
			files[file] = true
			if strings.HasPrefix(file, "internal/resume/") {
				ofResume++
			}
		}
		t.Logf("after %d failures, a %s body: %d functions in %d files:\n%s", row.failures, row.body, len(names), len(files), strings.Join(names, "\n"))
		assert.NotEmpty(t, names)
		assert.LessOrEqual(t, len(names), row.functions, "functions after %d failures", row.failures)
		assert.LessOrEqual(t, len(files), row.files, "files after %d failures", row.failures)
		assert.LessOrEqual(t, ofResume, 5, "functions of internal/resume for a whole %s body", row.body)
	}
	for _, step := range steps(t) {
		assert.True(t, step == "findRule" || slices.ContainsFunc(names, func(name string) bool {
			return strings.HasPrefix(name, "transport/") && strings.HasSuffix(name, " "+step)
		}), "the step %s of doc.go is a function on the way of a retry", step)
	}
}

// steps returns the steps of a request in doc.go, in their order.
func steps(t *testing.T) (names []string) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, way, _ := strings.Cut(string(text), "//	RoundTrip\n")
	way, _, _ = strings.Cut(way, "//\n")
	for _, m := range regexp.MustCompile(`(?m)^//\t {2,4}([a-zA-Z]+) {2,}`).FindAllStringSubmatch(way, -1) {
		names = append(names, m[1])
	}
	require.Contains(t, names, "deliver")
	return names
}

// The steps of doc.go are called in its order.
func TestStepsAreInTheOrderOfTheDoc(t *testing.T) {
	names := steps(t)
	bodies := map[string][]string{} // of functions, the steps that they call
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			var calls []string
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(names, s.Sel.Name) {
						calls = append(calls, s.Sel.Name)
					}
				}
				return true
			})
			bodies[fn.Name.Name] = append(bodies[fn.Name.Name], calls...)
		}
	}
	assert.Equal(t, []string{"ruleFor", "findRule", "tryLight"}, bodies["RoundTrip"])
	assert.Equal(t, []string{"loop"}, bodies["run"])
	assert.Equal(t, []string{"admit", "send", "askRule", "judge", "record", "deliver", "discard", "pause", "getBody"}, bodies["loop"])
	assert.Contains(t, bodies["judge"], "commit")
	assert.Equal(t, []string{"ruleFor", "findRule", "tryLight", "loop", "admit", "send", "askRule", "judge", "commit", "record", "discard", "pause", "getBody", "deliver"}, names)
}

// functionsIn returns the functions whose code was entered according to a profile of the
// coverage, without the literals in them.
func functionsIn(t *testing.T, profile, module string) map[string]bool {
	file, err := os.Open(profile)
	require.NoError(t, err)
	defer file.Close()
	lines := map[string][]int{} // of blocks that were entered, by file
	for s := bufio.NewScanner(file); s.Scan(); {
		path, block, ok := strings.Cut(s.Text(), ":")
		if !ok || path == "mode" {
			continue
		}
		var line, column, toLine, toColumn, statements, count int
		_, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d", &line, &column, &toLine, &toColumn, &statements, &count)
		require.NoError(t, err, s.Text())
		if count > 0 {
			path = strings.TrimPrefix(path, module+"/")
			lines[path] = append(lines[path], line)
		}
	}
	entered := map[string]bool{}
	for path, in := range lines {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, filepath.Join("..", path), nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			from, to := set.Position(fn.Body.Pos()).Line, set.Position(fn.Body.End()).Line
			if slices.ContainsFunc(in, func(line int) bool { return from <= line && line <= to }) {
				entered[fmt.Sprintf("%s:%d %s", path, set.Position(fn.Pos()).Line, fn.Name.Name)] = true
			}
		}
	}
	return entered
}
