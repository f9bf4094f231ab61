// Package commands checks the commands that documents and comments show: the directory,
// the target, the test and the flags exist, as seen from the place that a reader is at.
//
// In a document that is the root of the repository, or the directory that the document
// names by "to be run in DIRECTORY". In the comment of a program or in the README of a
// directory, it can also be that directory. The commands are not run.
package commands

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

const root = "../.."

// A command is shown in a file, and run in one of the directories.
type command struct {
	file string
	text string
	in   []string
}

var (
	fenced   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	span     = regexp.MustCompile("`([^`]+)`")
	indented = regexp.MustCompile(`(?m)^    ((?:go|make) .*)$`)
	comment  = regexp.MustCompile(`(?m)^//\t((?:go|make) .*)$`)
	shown    = regexp.MustCompile(`^(go (-C \S+ )?(run|test|build|install|get|vet|generate|mod) |make( |$))`)
	remark   = regexp.MustCompile(`(\s\s+|\s#).*$`)
	stated   = regexp.MustCompile(`to be run in ([\w/]+)`)
)

// collect returns the commands of all files.
func collect(t *testing.T) (list []command) {
	t.Helper()
	wants := func(path string) bool {
		extension := filepath.Ext(path)
		return extension == ".md" || extension == ".go" && !strings.HasSuffix(path, "_test.go")
	}
	err := testkit.Files(root, wants, func(path, text string) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		extension, in := filepath.Ext(path), []string{root}
		if m := stated.FindStringSubmatch(text); m != nil {
			in = append(in, filepath.Join(root, m[1]))
		} else if extension == ".go" || filepath.Base(path) == "README.md" {
			in = append(in, filepath.Dir(path))
		}
		for _, found := range commandsOf(text, extension) {
			list = append(list, command{name, found, in})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// commandsOf returns the commands of a text.
func commandsOf(text, extension string) (list []string) {
	add := func(found string) {
		found = remark.ReplaceAllString(found, "")
		if shown.MatchString(found) {
			list = append(list, found)
		}
	}
	if extension == ".go" {
		for _, m := range comment.FindAllStringSubmatch(text, -1) {
			add(m[1])
		}
		return list
	}
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(m[2]) {
			if m[1] == "go" {
				continue
			}
			for part := range strings.SplitSeq(line, "&&") {
				add(strings.TrimPrefix(strings.TrimSpace(part), "$ "))
			}
		}
	}
	text = fenced.ReplaceAllString(text, "")
	for _, m := range indented.FindAllStringSubmatch(text, -1) {
		add(m[1])
	}
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		add(strings.Join(strings.Fields(m[1]), " ")) // a span can go over the end of a line
	}
	return list
}

// check reports why a command does not work in a directory.
func check(text, dir string) error {
	words := strings.Fields(text)
	if words[0] == "make" {
		return checkMake(words[1:])
	}
	words = words[1:]
	if words[0] == "-C" {
		dir, words = filepath.Join(dir, words[1]), words[2:]
	}
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	switch verb, args := words[0], words[1:]; verb {
	case "run":
		return checkProgram(dir, args)
	case "build":
		if len(args) > 1 && args[0] == "-o" {
			args = args[2:]
		}
		return checkProgram(dir, args)
	case "test":
		return checkTest(dir, args)
	case "mod":
		return checkMod(args)
	case "install":
		if len(args) > 0 && strings.HasPrefix(args[0], "./") {
			return checkProgram(dir, args)
		}
		return checkPath(args, true)
	case "get":
		return checkPath(args, false)
	default:
		return fmt.Errorf("go %s is not known to this test", verb)
	}
}

// checkMake looks for targets and variables.
func checkMake(args []string) error {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	for _, arg := range args {
		name, _, isVariable := strings.Cut(arg, "=")
		pattern := `(?m)^` + regexp.QuoteMeta(name) + `:`
		if isVariable {
			pattern = `\$\([^)]*\b` + regexp.QuoteMeta(name) + `\b`
		}
		if !regexp.MustCompile(pattern).Match(makefile) {
			return fmt.Errorf("the Makefile has no %s", name)
		}
	}
	return nil
}

// checkProgram looks for a program of the module of dir, and for its flags.
func checkProgram(dir string, args []string) error {
	if len(args) == 0 {
		return errors.New("no package")
	}
	if parent, name := filepath.Split(args[0]); name == "NAME" { // stands for any of them
		_, err := os.Stat(filepath.Join(dir, parent))
		return err
	}
	program := filepath.Join(dir, args[0])
	source, err := sources(program, false)
	if err != nil {
		return err
	}
	if !strings.Contains(source, "\npackage main\n") {
		return fmt.Errorf("%s has no program", args[0])
	}
	if a, b := moduleOf(dir), moduleOf(program); a != b {
		return fmt.Errorf("%s is in the module %s, not in %s", args[0], b, a)
	}
	return checkFlags(args[1:], source)
}

// checkTest looks for the tests, the benchmarks and the flags of a package.
func checkTest(dir string, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"."}, args...)
	}
	where := filepath.Join(dir, args[0])
	source, err := sources(where, true)
	if err != nil {
		return err
	}
	if a, b := moduleOf(dir), moduleOf(where); a != b {
		return fmt.Errorf("%s is in the module %s, not in %s", args[0], b, a)
	}
	kinds := map[string]string{"-run": "(Test|Fuzz|Example)", "-bench": "Benchmark"}
	var own []string // flags that the test itself defines
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains([]string{"-benchmem", "-v", "-short", "-race"}, arg):
		case i+1 < len(args) && slices.Contains([]string{"-benchtime", "-count", "-timeout"}, arg):
			i++
		case i+1 < len(args) && kinds[arg] != "":
			i++
			name := strings.Trim(args[i], "'^$") // "-" and "^$" stand for none
			if name != "-" && !regexp.MustCompile(`\nfunc `+kinds[arg]+`\w*`+name).MatchString(source) {
				return fmt.Errorf("%s has no %s", args[0], args[i])
			}
		default:
			own = append(own, arg)
		}
	}
	return checkFlags(own, source)
}

// checkFlags looks for the names of flags in the source of a program.
func checkFlags(args []string, source string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && name != "h" && !strings.Contains(source, `"`+name+`"`) {
			return fmt.Errorf("there is no flag %s", arg)
		}
	}
	return nil
}

// checkMod knows the commands that let a module use a checkout or the newest commit.
func checkMod(args []string) error {
	if slices.Equal(args, []string{"tidy"}) {
		return nil
	}
	flags := strings.Join(args, " ")
	if dir, ok := strings.CutPrefix(flags, "edit -replace "+moduleOf(root)+"="); ok && (filepath.Base(dir) == "aplomb" || dir == moduleOf(root)+"@main") {
		return nil
	}
	return fmt.Errorf("go mod %s is not known to this test", flags)
}

// checkPath looks for a package of this repository, for a program if that is wanted.
func checkPath(args []string, program bool) error {
	if len(args) != 1 {
		return errors.New("not one package")
	}
	path, _, _ := strings.Cut(args[0], "@")
	dir, ok := strings.CutPrefix(path, moduleOf(root))
	if !ok {
		return fmt.Errorf("%s is of another module", path)
	}
	if !program && dir == "" {
		return nil
	}
	source, err := sources(filepath.Join(root, dir), false)
	if err == nil && program && !strings.Contains(source, "\npackage main\n") {
		err = fmt.Errorf("%s has no program", path)
	}
	return err
}

// sources returns the Go files of a directory, with or without its tests.
func sources(dir string, tests bool) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") && !tests {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "\n%s", text)
	}
	if all.Len() == 0 {
		return "", fmt.Errorf("%s has no Go files", dir)
	}
	return all.String(), nil
}

// moduleOf returns the path of the module that a directory belongs to.
func moduleOf(dir string) string {
	for dir = filepath.Clean(dir); ; dir = filepath.Join(dir, "..") {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			return strings.TrimSpace(regexp.MustCompile(`(?m)^module (.*)$`).FindStringSubmatch(string(text))[1])
		}
		if dir == filepath.Clean(root) {
			return ""
		}
	}
}

// TestCommands: every command that a document or a comment shows would work.
func TestCommands(t *testing.T) {
	list := collect(t)
	for _, c := range list {
		var errs []error
		for _, dir := range c.in {
			err := check(c.text, dir)
			if err == nil {
				errs = nil
				break
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %s: %v", c.file, c.text, err)
		}
	}
	if len(list) < 60 || !slices.ContainsFunc(list, func(c command) bool { return c.file == "README.md" && c.text == "make demo" }) {
		t.Errorf("only %d commands were found", len(list))
	}
}

// TestBadCommands: the check finds what does not work at the root of the repository.
func TestBadCommands(t *testing.T) {
	for _, text := range []string{
		"make nonsense", "make test NONSENSE=1", "go run ./examples/nonsense", "go run ./examples/nonsense/NAME",
		"go run .", "go run ./policy", "go run ./fleet", "go -C lab/bench run . -nonsense=1", "go run",
		"go -C examples/nonsense run .", "go -C lab/bench run . -nonsense", "go test ./policy -run Nonsense",
		"go -C otel test -run - -bench Nonsense -benchtime 2x", "go test ./policy -nonsense", "go test ./docs", "go test ./otel", "go mod nonsense", "go mod edit -replace example.com/x=../aplomb",
		"go install github.com/aplomb-go/aplomb/policy@latest", "go install example.com/x@latest", "go install ./policy",
		"go get github.com/aplomb-go/aplomb/nonsense",
	} {
		if check(text, root) == nil {
			t.Errorf("not found: %s", text)
		}
	}
	for _, text := range []string{
		"make test", "make simulate SEED=1 TIMES=2", "go run ./examples/NAME", "go -C cmd run ./aplomb demo",
		"go -C lab/bench run . -only retry", "go -C lab/bench test . -run Features -update", "go test ./internal/rulejson -run Schema -update",
		"go -C otel test -run - -bench FirstTry -benchtime 50x", "go get github.com/aplomb-go/aplomb",
		"go get github.com/aplomb-go/aplomb@main", "go mod edit -replace github.com/aplomb-go/aplomb=../aplomb", "go mod tidy",
		"go mod edit -replace github.com/aplomb-go/aplomb=github.com/aplomb-go/aplomb@main",
	} {
		if err := check(text, root); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
