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
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostFunctions is how many functions of this module a 503 with one retry may enter, from
// RoundTrip on. A reader who follows a request for the first time reads them all. Make it
// smaller if you can.
const mostFunctions = 146

// A request that is retried after a 503 enters few functions, as counted by coverage.
func TestFunctionsOfARetry(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command:", err)
	}
	const module = "github.com/aplomb-go/aplomb"
	var packages []string // that a Transport is made of
	for _, p := range []string{"transport", "classify", "policy/...", "internal/host/...", "internal/replay", "internal/resume", "internal/dial"} {
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
	for _, step := range []string{"ruleFor", "first", "loop", "admit", "send", "judge", "commit", "record", "discard", "pause", "renew", "deliver"} {
		assert.True(t, slices.ContainsFunc(own, func(name string) bool {
			return strings.HasPrefix(name, "transport/") && strings.HasSuffix(name, " "+step)
		}), "the step %s of doc.go is a function on the way", step)
	}
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
