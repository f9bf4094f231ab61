// Release checks that a user outside this repository can require the modules that are
// released. From the newest commit it makes a directory that the go command can use as a
// module proxy. Modules outside the repository then require the tagged versions from it,
// and their programs are built and run. The tool aplomb is installed by its version.
//
//	go -C tools run ./release
//	go -C tools run ./release -proxy URL
//
// The second form takes the published versions instead, after a release. The version is
// that of the newest section of CHANGELOG.md.
//
// The files:
//
//	main.go    flags, and the order of the checks
//	module.go  the modules of the repository, and faults in their go.mod
//	proxy.go   the directory for the go command
//	user.go    the modules that require the released modules, and the installed tool
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// released has the directories of the modules that get a tag. Each has the program of a
// user in testdata, apart from a module of programs.
var released = []string{".", "otel", "fleet", "cmd"}

func main() {
	dir := flag.String("dir", "..", "the root of the repository")
	proxy := flag.String("proxy", "", "require the modules from this proxy, instead of from the newest commit")
	flag.Parse()
	if err := run(os.Stdout, *dir, *proxy); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes the proxy in a temporary directory, and lets each user require its modules.
func run(w io.Writer, dir, proxy string) error {
	repo, err := open(dir, released)
	if err != nil {
		return err
	}
	if err := errors.Join(repo.check()...); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "aplomb-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()

	env := environment(temp)
	if proxy != "" {
		env = append(env, "GOPROXY="+proxy)
	} else {
		proxies, err := repo.proxies(filepath.Join(temp, "proxy"))
		if err != nil {
			return err
		}
		env = append(env, "GOPROXY="+proxies, "GOSUMDB=off", "GOVCS=*:off")
	}
	for _, m := range repo.released {
		u, err := newUser(filepath.Join(temp, "user", m.name()), env, m)
		if err != nil {
			return err
		}
		if err := u.check(w, repo); err != nil {
			return fmt.Errorf("a user of %s: %w", m.tag(), err)
		}
	}
	return nil
}
