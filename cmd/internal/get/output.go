// How the bytes of a response get into the part, or to stdout. A response that comes from
// elsewhere is compared with the bytes that are there.

package get

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
)

// A filler writes a response to the part. If it begins with the first byte, and the part has
// bytes of another server, the filler first compares. The part stays as it is while all bytes
// are the same, so that it can still be continued where it came from. From the first
// difference on, or behind its last byte, the part is that of the response. In both cases the
// bytes so far are those of the response.
type filler struct {
	*part
	a       answer
	kept    int64 // the size of the part with which the response is compared
	at      int64 // how many bytes of the part are those of the response
	loyal   bool  // a difference is an error
	scratch []byte
}

// accept prepares the part for the response's bytes.
func (p *part) accept(a answer, loyal bool) (*filler, error) {
	f := &filler{part: p, a: a, loyal: loyal}
	switch {
	case a.compares:
		info, err := p.file.Stat()
		if err != nil {
			return nil, err
		}
		f.kept = info.Size()
		return f, nil
	case a.offset > 0 && !a.moved:
		p.ranges = a.Ranges
		return f, p.cutTo(a.offset)
	}
	f.at = a.offset
	return f, f.takeOver()
}

// comparing reports whether the part is still that of another server.
func (f *filler) comparing() bool { return f.at < f.kept }

// takeOver makes the part that of the response.
func (f *filler) takeOver() error {
	f.kept = 0
	if f.a.strong {
		return f.restart(&f.a.state, f.at)
	}
	return f.restart(nil, f.at)
}

func (f *filler) Write(b []byte) (n int, err error) {
	if f.comparing() {
		if n, err = f.compare(b); err != nil {
			return 0, err
		}
		f.at += int64(n)
		if n == len(b) && f.comparing() {
			return n, nil
		}
		if f.comparing() && f.loyal {
			return n, errOther
		}
		if err := f.takeOver(); err != nil {
			return n, err
		}
	}
	m, err := f.file.Write(b[n:])
	return n + m, err
}

// complete checks the end of a response.
func (f *filler) complete() error {
	if f.comparing() && f.loyal {
		return errOther
	}
	return nil
}

// compare returns how many bytes of b are the next bytes of the part.
func (f *filler) compare(b []byte) (int, error) {
	if len(f.scratch) < len(b) {
		f.scratch = make([]byte, len(b))
	}
	old := f.scratch[:min(int64(len(b)), f.kept-f.at)]
	if _, err := f.file.ReadAt(old, f.at); err != nil {
		return 0, err
	}
	if bytes.HasPrefix(b, old) {
		return len(old), nil
	}
	n := 0
	for old[n] == b[n] {
		n++
	}
	return n, nil
}

// errDiffers is about a response that is not what went to stdout.
var errDiffers = errors.New("it has another version than the one of which a part went to stdout already")

// A passer passes a file on and cannot take anything back. So if the file is fetched again,
// it has to begin with the bytes that were passed on.
type passer struct {
	out    io.Writer
	passed hash.Hash // of all bytes that were passed on
	n      int64     // their number

	again hash.Hash // of the bytes that came again in this response
	at    int64     // in this response
}

// rewind begins another response.
func (p *passer) rewind() { p.again, p.at = sha256.New(), 0 }

func (p *passer) Write(b []byte) (int, error) {
	old := min(int64(len(b)), max(p.n-p.at, 0))
	_, _ = p.again.Write(b[:old]) // a hash returns no error
	if p.at += old; old > 0 && p.at == p.n && !bytes.Equal(p.again.Sum(nil), p.passed.Sum(nil)) {
		return 0, errDiffers
	}
	fresh := b[old:]
	if len(fresh) == 0 {
		return len(b), nil
	}
	m, err := p.out.Write(fresh)
	_, _ = p.passed.Write(fresh[:m])
	p.n += int64(m)
	p.at += int64(m)
	return int(old) + m, err
}

// complete checks the end of a response.
func (p *passer) complete() error {
	if p.at < p.n {
		return errDiffers
	}
	return nil
}
