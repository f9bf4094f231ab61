package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// call runs the command line.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestHelp: aplomb -h names every command, and each command explains itself.
func TestHelp(t *testing.T) {
	code, all, stderr := call(t, "-h")
	assert.Zero(t, code)
	assert.Empty(t, stderr)
	_, list, _ := strings.Cut(all, "Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	n := 0
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		code, stdout, stderr := call(t, name, "-h")
		assert.Zero(t, code, name)
		assert.Contains(t, stdout+stderr, "Usage: aplomb "+name)
		n++
	}
	assert.Equal(t, commands, n)

	code, stdout, stderr := call(t, "help")
	assert.Zero(t, code)
	assert.Equal(t, all, stdout)
	assert.Empty(t, stderr)
	_, want, _ := call(t, "rules", "-h")
	_, stdout, _ = call(t, "help", "rules")
	assert.Equal(t, want, stdout)
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := call(t, "version")
	assert.Zero(t, code)
	assert.Regexp(t, `^aplomb \S+ go1\.\S+\n$`, stdout)
	assert.Empty(t, stderr)
	code, stdout, _ = call(t, "version", "please")
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
}

// commands is how many commands there are.
const commands = 3

func TestWrongCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"nonsense"}, {"-nonsense"}, {"-nonsense", "demo"}, {"-nonsense\x1b[31m"}, {"\x1b[31m"}} {
		code, stdout, stderr := call(t, args...)
		assert.Equal(t, 2, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, "aplomb: ", args)
		assert.NotContains(t, stderr, "\x1b", args)
	}
}

// TestCommandsKeepTheirStatus: a wrong command line has the exit status of the command.
func TestCommandsKeepTheirStatus(t *testing.T) {
	for name, want := range map[string]int{"rules": 2, "waits": 2, "demo": 2} {
		code, stdout, stderr := call(t, name, "-nonsense")
		assert.Equal(t, want, code, name)
		assert.Empty(t, stdout, name)
		assert.Contains(t, stderr, "aplomb "+name+": ")
		code, stdout, stderr = call(t, name, "-n=https://me:secret@host.example/", "https://me:secret@host.example/", "too", "many")
		assert.Equal(t, 2, code, name)
		assert.Empty(t, stdout, name)
		assert.NotContains(t, stderr, "secret", name)
		code, stdout, stderr = call(t, name, "https://me:secret@host.example/", "https://me:secret@host.example/", "too many")
		assert.NotZero(t, code, name)
		assert.Empty(t, stdout, name)
		assert.NotContains(t, stderr, "secret", name)
	}
}
