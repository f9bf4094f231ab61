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

// mostFunctions is how many functions of this module a 503 with one retry may enter, from
// RoundTrip on. A reader who follows a request for the first time reads them all. Make it
// smaller if you can.
const mostFunctions = 142

// A request that is retried after a 503 enters few functions, as counted by coverage.
func TestFunctionsOfARetry(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command:", err)
	}
	const module = "github.com/aplomb-go/aplomb"
	var packages []string // that a Transport is made of
	for _, p := range []string{"transport", "classify", "policy/...", "internal/host/...", "internal/replay", "internal/resume", "internal/dial",
		"internal/flight", "internal/route", "internal/redact", "internal/rules", "internal/visit"} {
		packages = append(packages, module+"/"+p)
	}
	dir := t.TempDir()
	args := []string{"test", "-c", "-cover", "-coverpkg=" + strings.Join(packages, ","), "-o", dir + "/retry.test"}
	if raceDetector {
		args = append(args, "-race") // as the packages are compiled already
	}
	out, err := exec.Command(goTool, append(args, "./testdata/retry")...).CombinedOutput()
	require.NoError(t, err, string(out))

	entered := func(test string) map[string]bool {
		profile := filepath.Join(dir, test)
		cmd := exec.Command(dir+"/retry.test", "-test.run=^"+test+"$", "-test.coverprofile="+profile)
		cmd.Dir = "testdata/retry"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return functionsIn(t, profile, module)
	}
	before, all := entered("TestNothing"), entered("TestRetry")
	require.NotEmpty(t, all)
	var own []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !before[name] {
			own = append(own, name)
		}
	}
	t.Logf("%d functions:\n%s", len(own), strings.Join(own, "\n"))
	assert.LessOrEqual(t, len(own), mostFunctions)
	for _, step := range steps(t) {
		assert.True(t, step == "findRule" || slices.ContainsFunc(own, func(name string) bool {
			return strings.HasPrefix(name, "transport/") && strings.HasSuffix(name, " "+step)
		}), "the step %s of doc.go is a function on the way", step)
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
	assert.Equal(t, []string{"admit", "send", "loop"}, bodies["makeAttempts"])
	assert.Equal(t, []string{"askRule", "judge", "record", "deliver", "discard", "pause", "renew", "admit", "send"}, bodies["loop"])
	assert.Contains(t, bodies["judge"], "commit")
	assert.Equal(t, []string{"ruleFor", "findRule", "tryLight", "loop", "admit", "send", "askRule", "judge", "commit", "record", "discard", "pause", "renew", "deliver"}, names)
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
