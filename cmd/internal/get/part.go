// The partial file of an earlier run, and how a file gets its final name.
//
// NAME.HASH.part holds the first bytes of a representation. NAME.HASH.part.json
// describes that representation. The two never disagree, because the state is
// removed before the bytes and written before the first byte. HASH stands for the
// URL, so each URL has a part of its own.

package get

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/aplomb-go/aplomb/internal/resume"
)

// A state is the content of NAME.HASH.part.json.
type state struct {
	URL string `json:"url"` // as asked for, without a password
	// From is the URL of the response after redirects, without its query. A
	// validator is valid for one resource only (RFC 9110 §8.8.1).
	From         string `json:"from"`
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"` // where there is no ETag
	Encoding     string `json:"encoding,omitempty"`
	Total        int64  `json:"total"`                 // -1: not known
	Digest       string `json:"repr_digest,omitempty"` // of the server, and that of -sha256
	// Ranges reports whether the server said that it sends parts, or has sent one.
	Ranges bool `json:"ranges,omitempty"`
}

// stateOf describes the representation of a 200 or 206 to a request for a URL. ok is false if the file
// cannot be continued later. Without a strong validator no later response can be
// matched with this response (RFC 9110 §13.1.5). The server may also say that it
// sends no parts (§14.3).
func stateOf(asked *url.URL, resp *http.Response, total int64) (state, bool) {
	s := state{
		URL:      withoutUser(asked),
		From:     whereFrom(resp),
		Encoding: resp.Header.Get("Content-Encoding"),
		Total:    total,
		Digest:   reprDigest(resp.Header),
	}
	h := resp.Header
	s.Ranges = resp.StatusCode == http.StatusPartialContent || hasToken(h, "Accept-Ranges", "bytes")
	if hasToken(h, "Accept-Ranges", "none") {
		return s, false
	}
	if tags := h.Values("ETag"); len(tags) > 0 {
		s.ETag = tags[0]
		return s, len(tags) == 1 && resume.IsStrongTag(s.ETag)
	}
	s.LastModified = h.Get("Last-Modified")
	return s, strongDate(s.LastModified, h.Get("Date"))
}

// hasToken reports whether a field is a list with a token in it.
func hasToken(h http.Header, field, token string) bool {
	for _, value := range h.Values(field) {
		for item := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(item, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// validator returns the value for If-Range.
func (s state) validator() string {
	if s.ETag != "" {
		return s.ETag
	}
	return s.LastModified
}

// same reports whether two states are about the same bytes, because a server says so by its
// validator. If one of them lacks a length or a digest, that is not a difference.
func (s state) same(t state) bool {
	_, differ := compared(s.Digest, t.Digest)
	return s.URL == t.URL && s.From == t.From && s.ETag == t.ETag && s.LastModified == t.LastModified &&
		s.alike(t) && !differ
}

// equal reports whether two states are about the same bytes, because a digest of the whole
// says so. An ETag is no proof, because two servers may give the same ETag to two versions.
func (s state) equal(t state) bool {
	agree, _ := compared(s.Digest, t.Digest)
	return agree && s.alike(t)
}

func (s state) alike(t state) bool {
	return s.Encoding == t.Encoding && (s.Total < 0 || t.Total < 0 || s.Total == t.Total)
}

// strongDate reports whether a file was last changed long enough before it was
// sent for the date to mean one version (RFC 9110 §8.8.2.2). A minute covers
// the clocks of servers that disagree.
func strongDate(modified, sent string) bool {
	m, err1 := http.ParseTime(modified)
	d, err2 := http.ParseTime(sent)
	return err1 == nil && err2 == nil && d.Sub(m) >= time.Minute
}

func withoutUser(u *url.URL) string {
	c := *u
	c.User = nil
	return c.String()
}

func whereFrom(resp *http.Response) string {
	c := *resp.Request.URL
	c.User, c.RawQuery, c.ForceQuery, c.Fragment, c.RawFragment = nil, "", false, "", ""
	return c.String()
}

// A part is NAME.HASH.part, open and locked against other runs.
type part struct {
	*target
	file   *os.File
	locked *flock.Flock // holds the same file open
	gone   bool         // it has its name, or was thrown away
	weak   bool         // no later run can go on from it
	ranges bool         // the server has sent a part, or says that it sends parts
}

var (
	errBusy    = errors.New("another download is writing it")
	errNotOurs = errors.New("it is not a regular file")
)

// maxState is more than the state of any download.
const maxState = 1 << 20

// openPart opens or creates the part.
func openPart(t *target) (*part, error) {
	name := t.part + partSuffix
	// The part of a file that only its owner may read is no more open than the file.
	mode := os.FileMode(0o666)
	if info, err := t.dir.Lstat(t.name); err == nil && info.Mode().IsRegular() {
		mode = info.Mode().Perm() | 0o600
	}
	f, err := t.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		f, err = openOwn(t.dir, name, os.O_RDWR)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.in(name), bare(err))
	}
	lock := flock.New(filepath.Join(t.dir.Name(), name), flock.SetFlag(os.O_RDWR|noWait))
	p := &part{target: t, file: f, locked: lock}
	if err := p.lock(); err != nil {
		p.unlock()
		return nil, fmt.Errorf("%s: %w", t.in(name), err)
	}
	return p, nil
}

// openOwn opens a file that an earlier run has made. Where others may write as well, such
// as in /tmp, they may have put a file there under the same name. Such a file would become
// the download, or be written through. The checks are of the open file, because the name
// may lead to another file by then.
func openOwn(dir *os.Root, name string, flag int) (*os.File, error) {
	there, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !there.Mode().IsRegular() {
		return nil, errNotOurs
	}
	f, err := dir.OpenFile(name, flag|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular(), !os.SameFile(info, there):
		err = errNotOurs
	default:
		err = foreign(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lock locks the file for this run. Another run may have renamed or removed the file between
// the open and the lock. The locked file is then no longer a part. The user has to avoid two
// runs for the same file on a system without locks, and on Windows, where a locked file
// cannot be written through p.file.
func (p *part) lock() error {
	mine, err := p.file.Stat()
	if err != nil {
		return errBusy
	}
	locked := mine
	if runtime.GOOS != "windows" {
		ok, err := p.locked.TryLock()
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if !ok || err != nil {
			return errBusy
		}
		if locked, err = p.locked.Stat(); err != nil {
			return errBusy
		}
	}
	there, err := p.dir.Lstat(p.part + partSuffix)
	if err != nil || !os.SameFile(mine, there) || !os.SameFile(mine, locked) {
		return errBusy
	}
	return nil
}

// rest returns the state of an earlier run and the offset at which to continue.
// ok is false if there is nothing to continue. If the part is already complete,
// the last byte is requested again, so that the server confirms it.
func (p *part) rest() (s state, offset int64, ok bool) {
	text, err1 := p.readState()
	info, err2 := p.file.Stat()
	if err1 != nil || err2 != nil || info.Size() == 0 || json.Unmarshal(text, &s) != nil {
		return state{}, 0, false
	}
	_, err := http.ParseTime(s.LastModified)
	strong := resume.IsStrongTag(s.ETag) || s.ETag == "" && err == nil // no other text from a file may get into a header field
	p.ranges = p.ranges || s.Ranges
	if !strong || !p.has(s.URL) || s.Total >= 0 && info.Size() > s.Total {
		return state{}, 0, false
	}
	offset = info.Size()
	if offset == s.Total {
		offset--
	}
	return s, offset, true
}

func (p *part) readState() ([]byte, error) {
	f, err := openOwn(p.dir, p.part+stateSuffix, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxState))
}

// writeState writes the state to a new file. A state that was written only in part does
// not parse and does no harm. It may hold a signed URL, so only its owner may read it.
func (p *part) writeState(text []byte) error {
	f, err := p.dir.OpenFile(p.part+stateSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// keeps returns how many bytes the next run can go on from. sure is false if the
// server has not shown yet that it sends parts.
func (p *part) keeps() (n int64, sure bool) {
	_, n, ok := p.rest()
	if !ok || p.gone || p.weak {
		return 0, false
	}
	return n, p.ranges
}

// restart makes the part one for s, of which it has n bytes already. If s is nil, the part
// cannot be continued later.
func (p *part) restart(s *state, n int64) error {
	p.weak = s == nil
	p.ranges = s != nil && s.Ranges
	if err := remove(p.dir, p.part+stateSuffix); err != nil {
		return err
	}
	if err := p.cutTo(n); err != nil || s == nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	return p.writeState(append(text, '\n'))
}

// cutTo truncates the part to n bytes and moves to its end.
func (p *part) cutTo(n int64) error {
	if err := p.file.Truncate(n); err != nil {
		return err
	}
	_, err := p.file.Seek(n, io.SeekStart)
	return err
}

// finish gives the complete file its name. The bytes are synced to the disk
// before the rename, so a crash never leaves the name on an incomplete file.
func (p *part) finish() error {
	if err := p.file.Sync(); err != nil {
		return err
	}
	// Another program may have made a file of that name since the beginning.
	if err := p.replaceable(); err != nil {
		return err
	}
	if info, err := p.dir.Lstat(p.name); err == nil {
		_ = p.file.Chmod(info.Mode().Perm()) // not every file system has permissions
	}
	p.letGo()
	if err := p.dir.Rename(p.part+partSuffix, p.name); err != nil {
		return err
	}
	p.gone = true
	syncDir(p.dir)
	return remove(p.dir, p.part+stateSuffix)
}

// discard removes the part.
func (p *part) discard() {
	p.gone = true
	p.letGo()
	_ = remove(p.dir, p.part+stateSuffix)
	_ = remove(p.dir, p.part+partSuffix)
}

// close keeps the part if the next run can continue it.
func (p *part) close() {
	if info, err := p.file.Stat(); err == nil && !p.gone && (p.weak || info.Size() == 0) {
		p.discard()
	}
	_ = p.file.Sync()
	p.unlock()
}

// unlock closes the file, and with it the lock.
func (p *part) unlock() {
	_ = p.file.Close()
	_ = p.locked.Close()
}

// letGo closes the file early on Windows, which does not rename or remove open files.
func (p *part) letGo() {
	if runtime.GOOS == "windows" {
		_ = p.file.Close()
	}
}

func remove(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes a rename durable. Not every system can do that. Without it the
// file is still complete under one of its two names.
func syncDir(dir *os.Root) {
	if d, err := dir.Open("."); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
