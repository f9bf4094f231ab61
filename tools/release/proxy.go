package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	modpath "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxies writes the released modules to a directory and returns a GOPROXY that has it
// first. The module cache of this machine comes second, for the dependencies. So the versions
// that a check tries do not get into that cache. The proxy of this machine comes last, for the
// modules that only go mod tidy reads: older versions, and what the tests of dependencies import.
func (repo *repository) proxies(dir string) (string, error) {
	for _, m := range repo.released {
		if err := repo.publish(dir, m); err != nil {
			return "", fmt.Errorf("%s: %w", m.tag(), err)
		}
		// This downloads the dependencies into the cache if they are not there.
		if _, err := output(filepath.Join(repo.dir, m.dir), nil, "go", "list", "-deps", "./..."); err != nil {
			return "", err
		}
	}
	set, err := output(repo.dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return "", err
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(set), "\n")
	return fileURL(dir) + "," + fileURL(filepath.Join(cache, "cache", "download")) + "," + proxy, nil
}

func fileURL(dir string) string { return "file://" + filepath.ToSlash(dir) }

// publish writes the files of a version that the go command asks a proxy for.
func (repo *repository) publish(dir string, m *module) error {
	escaped, err := modpath.EscapePath(m.path())
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	committed, err := repo.git("show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(committed)))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": m.version, "Time": at.UTC()})
	if err != nil {
		return err
	}
	archive, err := repo.archive(m)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"list":              []byte(m.version + "\n"),
		m.version + ".info": info,
		m.version + ".mod":  m.text,
		m.version + ".zip":  archive,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// archive returns the zip of a module, as the go command makes it from a tag. It has no
// files of modules below, and the LICENSE of the root if the module has none.
// zip.CreateFromVCS does the same, but not in a worktree of git.
func (repo *repository) archive(m *module) ([]byte, error) {
	tree := "HEAD"
	if m.dir != "." {
		tree += ":" + m.dir
	}
	text, err := repo.git("archive", "--format=tar", tree)
	if err != nil {
		return nil, err
	}
	var files []zip.File
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, file{header.Name, header.FileInfo(), data})
	}
	if !slices.ContainsFunc(files, func(f zip.File) bool { return f.Path() == "LICENSE" }) {
		license, err := repo.show("LICENSE")
		if err != nil {
			return nil, fmt.Errorf("no licence: %w", err)
		}
		info := (&tar.Header{Name: "LICENSE", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(license))}).FileInfo()
		files = append(files, file{"LICENSE", info, license})
	}
	var buffer bytes.Buffer
	err = zip.Create(&buffer, modpath.Version{Path: m.path(), Version: m.version}, files)
	return buffer.Bytes(), err
}

// A file is a file of a commit, in memory.
type file struct {
	path string
	info fs.FileInfo
	data []byte
}

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (fs.FileInfo, error)  { return f.info, nil }
func (f file) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.data)), nil }
