package fleet

import (
	"bytes"
	"errors"
	"net"
	"strconv"
)

// The bounds of a reply of Redis. The largest replies are the list of the nodes of a cluster,
// and a message that somebody else has sent.
const (
	maxReply = 4 << 20 // bytes, and 16 more for each element
	maxWord  = 64      // bytes of the line that begins a reply
)

var errReply = errors.New("fleet: a reply of Redis is malformed or larger than 4 MiB")

// bounded is a connection whose replies have a bound. go-redis makes room for as many bytes
// and elements as a reply names, before it has read them.
type bounded struct {
	net.Conn
	replies replies
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if !b.replies.pass(p[:n]) {
		return 0, errReply
	}
	return n, err
}

// replies follows the replies on a connection. Sentinels speak version 3 of the protocol, of
// which attributes and streams are not known. The zero value is before the first reply.
type replies struct {
	bad  bool
	line []byte // the line that has begun; not more than maxWord bytes
	skip int    // bytes of a text that are still to come, with the end of its line
	left int    // elements of the reply that are still to come
	size int    // of the reply, as it was named
}

// pass reads bytes, and reports whether the replies are within the bounds.
func (r *replies) pass(p []byte) bool {
	for len(p) > 0 && !r.bad {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			r.skip -= n
			p = p[n:]
			if r.skip == 0 {
				r.element()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		p = p[len(part):]
		r.size += len(part)
		r.line = append(r.line, part[:min(len(part), maxWord-len(r.line))]...)
		switch {
		case r.size > maxReply:
			r.bad = true
		case end >= 0:
			r.begin()
			r.line = r.line[:0]
		}
	}
	return !r.bad
}

// begin reads the line that begins a reply or an element of it.
func (r *replies) begin() {
	switch r.line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		r.element()
		return
	case '$', '=', '!', '*', '~', '>', '%':
	default:
		r.bad = true
		return
	}
	n, err := strconv.Atoi(string(bytes.TrimRight(r.line[1:], "\r\n")))
	switch {
	case err != nil || n < -1 || n > maxReply:
		r.bad = true
	case bytes.IndexByte([]byte("$=!"), r.line[0]) >= 0 && n >= 0:
		r.size += n
		r.skip = n + 2
	case n > 0:
		if r.line[0] == '%' { // of pairs
			n *= 2
		}
		r.size += 16 * n
		r.left = max(r.left, 1) + n
		r.element()
	default: // nothing, or an empty list
		r.element()
	}
	r.bad = r.bad || r.size > maxReply
}

// element notes the end of an element. A list is an element itself, and its own elements come
// after it.
func (r *replies) element() {
	r.left = max(0, r.left-1)
	if r.left == 0 {
		r.size = 0
	}
}
