// The name and the directory of a file.

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// These files exist beside a file until it is complete.
const (
	partSuffix  = ".part"
	stateSuffix = ".part.json"
)

// A target is a URL and the file for its content. Every access to files uses
// dir, which no name and no symbolic link can leave.
type target struct {
	url  *url.URL
	dir  *os.Root
	path string // of dir, as the user named it
	name string // within dir
}

// targetsOf returns the files for the URLs. The caller has to close the
// targets.
func targetsOf(urls []string, output string) (targets []*target, err error) {
	defer func() {
		if err != nil {
			closeAll(targets)
			targets = nil
		}
	}()
	dir, file, err := splitOutput(output, len(urls))
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool)
	for _, s := range urls {
		t, err := newTarget(s, dir, file)
		if err != nil {
			return targets, err
		}
		targets = append(targets, t)
		for _, name := range []string{t.name, t.name + partSuffix, t.name + stateSuffix} {
			if taken[name] {
				return targets, fmt.Errorf("two of the URLs would be written to %s", name)
			}
			taken[name] = true
		}
	}
	return targets, nil
}

// splitOutput splits the value of -o. The file is "" if the URLs give the
// names.
func splitOutput(output string, urls int) (dir, file string, err error) {
	if output == "" {
		return ".", "", nil
	}
	info, err := os.Stat(output)
	switch {
	case err == nil && info.IsDir():
		return output, "", nil
	case urls > 1:
		return "", "", fmt.Errorf("-o %s: with several URLs it has to be a directory", output)
	case os.IsPathSeparator(output[len(output)-1]):
		return "", "", fmt.Errorf("-o %s: no such directory", output)
	}
	return filepath.Dir(output), filepath.Base(output), nil
}

func newTarget(s, dir, file string) (*target, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("not a URL: " + fmt.Sprintf("%q", s))
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%q is not an http or https URL", u.Redacted())
	}
	u.Fragment, u.RawFragment = "", ""
	if file == "" {
		if file, err = nameOf(u); err != nil {
			return nil, fmt.Errorf("%s: %w; name one with -o", u.Redacted(), err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &target{url: u, dir: root, path: dir, name: file}, nil
}

// nameOf returns the file name in a URL. The author of the URL chooses it, so
// it must be a plain name. It must not be a path on any system, and must have
// no characters that a terminal would act on.
func nameOf(u *url.URL) (string, error) {
	path := u.EscapedPath()
	name, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", errors.New("the URL's path ends without a file name")
	case strings.ContainsAny(name, `/\`), !filepath.IsLocal(name), name == ".":
		return "", fmt.Errorf("the URL's file name is %q, which is a path", name)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("the URL's file name is %q, which cannot be printed", name)
	}
	return name, nil
}

func closeAll(targets []*target) {
	for _, t := range targets {
		_ = t.dir.Close()
	}
}
