// The name and the directory of a file.

package get

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aplomb-go/aplomb/internal/terminal"
	"github.com/aplomb-go/aplomb/transport"
)

// These suffixes are those of the files that exist until a file is whole.
const (
	partSuffix  = ".part"
	stateSuffix = ".part.json"
)

// A target is a file: where it comes from, and where it goes to. Every access to files uses
// dir, which no name and no symbolic link can leave. A symbolic link is resolved
// before dir is opened.
type target struct {
	urls   []*url.URL // the first names the file and its part, the others are mirrors
	digest string     // that the file must have, as in Repr-Digest; "": any
	dir    *os.Root   // nil for stdout
	path   string     // of dir
	name   string     // within dir
	part   string     // within dir, and the same for every run with the first URL
	out    io.Writer
}

// shown returns the name for people.
func (t *target) shown() string {
	if t.out == nil {
		return t.name
	}
	if name, err := nameOf(t.urls[0]); err == nil {
		return name
	}
	return t.urls[0].Host
}

// targetsOf returns the targets for the URLs of each file. The caller has to close them.
func targetsOf(files [][]string, output, digest string, stdout io.Writer) (targets []*target, err error) {
	defer func() {
		if err != nil {
			closeAll(targets)
			targets = nil
		}
	}()
	toStdout := output == "-"
	if toStdout && len(files) > 1 {
		return nil, errors.New("-o -: this takes a single URL, or several with -mirrors")
	}
	dir, file, err := splitOutput(output, len(files))
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool)
	for _, urls := range files {
		t, err := newTarget(urls, digest)
		switch {
		case err != nil:
			return targets, err
		case toStdout:
			t.out = stdout
			return []*target{t}, nil
		}
		if err := t.place(dir, file); err != nil {
			return targets, err
		}
		targets = append(targets, t)
		for _, name := range []string{t.name, t.part + partSuffix, t.part + stateSuffix} {
			if taken[t.in(name)] {
				return targets, fmt.Errorf("two of the URLs would be written to %s; if they serve the same file, say so with -mirrors", t.in(name))
			}
			taken[t.in(name)] = true
		}
	}
	return targets, nil
}

// splitOutput splits the value of -o. The file is "" if the URLs give the
// names.
func splitOutput(output string, files int) (dir, file string, err error) {
	if output == "" || output == "-" {
		return ".", "", nil
	}
	info, err := os.Stat(output)
	switch {
	case err == nil && info.IsDir():
		return output, "", nil
	case files > 1:
		return "", "", fmt.Errorf("-o %s: with several URLs it has to be a directory, unless they serve the same file (-mirrors)", output)
	case os.IsPathSeparator(output[len(output)-1]):
		return "", "", fmt.Errorf("-o %s: no such directory", output)
	}
	return filepath.Dir(output), filepath.Base(output), nil
}

func newTarget(urls []string, digest string) (*target, error) {
	t := &target{digest: digest}
	for _, s := range urls {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			return nil, errors.New(terminal.URL(s) + " is not a URL")
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			return nil, errors.New(terminal.URL(s) + " is not an http or https URL")
		}
		u.Fragment, u.RawFragment = "", ""
		switch {
		case t.has(withoutUser(u)):
			return nil, errors.New(terminal.URL(s) + " is given twice")
		case u.Scheme == "http" && digest == "" && len(t.urls) > 0 && t.urls[0].Scheme == "https":
			// Whoever can block the first URL could otherwise choose the file.
			return nil, errors.New(terminal.URL(s) + ": a mirror of an https URL must have https, unless -sha256 is given")
		}
		t.urls = append(t.urls, u)
	}
	return t, nil
}

// has reports whether a URL is one of the target's.
func (t *target) has(text string) bool {
	return slices.ContainsFunc(t.urls, func(u *url.URL) bool { return withoutUser(u) == text })
}

// place finds the file for the target and opens its directory. If file is "", the
// URL gives the name.
func (t *target) place(dir, file string) (err error) {
	hint := ""
	if file == "" {
		hint = "; name one with -o"
		if file, err = nameOf(t.urls[0]); err != nil {
			return fmt.Errorf("%s: %w%s", transport.SafeURL(t.urls[0]), err, hint)
		}
	}
	path := filepath.Join(dir, file)
	if t.path, t.name, err = resolve(path); err != nil {
		return fmt.Errorf("%s: %w%s", path, bare(err), hint)
	}
	if t.dir, err = os.OpenRoot(t.path); err != nil {
		return err
	}
	if err = t.replaceable(); err != nil {
		_ = t.dir.Close()
		return fmt.Errorf("%s: %w", path, bare(err))
	}
	t.part = partOf(t.urls[0], t.name)
	return nil
}

// maxLinks is the number of links after which Linux gives up as well.
const maxLinks = 40

// resolve returns the directory and the name of the file that a path means. It
// follows symbolic links, like a shell that redirects output, even to a file that
// does not exist yet. There must be a regular file or nothing.
func resolve(path string) (dir, name string, err error) {
	// The system decides whether the links may be followed. In /tmp, Linux does not
	// follow those of other users.
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", "", notRegular(info)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", "", err
	}
	for range maxLinks {
		dir, name = filepath.Split(path)
		if name == "" || name == "." || name == ".." {
			return "", "", errors.New("this is no name of a file")
		}
		// A ".." after a link is not the directory before the link, so the links are
		// resolved before the path is shortened.
		if dir, err = filepath.EvalSymlinks(cmp.Or(dir, ".")); err != nil {
			return "", "", err
		}
		path = filepath.Join(dir, name)
		to, err := os.Readlink(path)
		if err != nil {
			return dir, name, nil // there is no link, and Stat has seen no other file
		}
		if path = to; !filepath.IsAbs(to) {
			path = dir + string(filepath.Separator) + to
		}
	}
	return "", "", errors.New("too many symbolic links")
}

// replaceable checks that the target's name belongs to nothing, or to a regular
// file that may be written.
func (t *target) replaceable() error {
	info, err := t.dir.Lstat(t.name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return notRegular(info)
	}
	// A rename would replace a file that the user must not write. A program that is
	// running cannot be written either, and may be replaced.
	f, err := t.dir.OpenFile(t.name, os.O_WRONLY|noWait, 0)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}

// notRegular returns an error that says what a file is.
func notRegular(info os.FileInfo) error {
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		return errors.New("this is a directory and not a regular file")
	case mode&os.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&os.ModeSocket != 0:
		kind = "a socket"
	case mode&os.ModeDevice != 0:
		kind = "a device"
	case mode&os.ModeSymlink != 0:
		kind = "a symbolic link"
	}
	return fmt.Errorf("this is %s; only regular files are written, and stdout with -o -", kind)
}

// bare returns an error without the operation and the path, which the caller
// names.
func bare(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
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
	case terminal.Printable(name) != name:
		return "", fmt.Errorf("the URL's file name is %q, which cannot be printed", name)
	}
	return name, nil
}

// maxName is the length in bytes that most file systems allow for a name.
const maxName = 255

// partOf returns the name of a part without its suffix. The hash keeps the parts
// of different URLs apart.
func partOf(u *url.URL, name string) string {
	hash := fmt.Sprintf(".%x", sha256.Sum256([]byte(withoutUser(u)+"\n"+name)))[:9]
	room := maxName - len(hash) - len(stateSuffix)
	for len(name) > room {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name + hash
}

func (t *target) in(name string) string { return filepath.Join(t.path, name) }

func closeAll(targets []*target) {
	for _, t := range targets {
		if t.dir != nil {
			_ = t.dir.Close()
		}
	}
}
