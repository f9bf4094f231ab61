// Two responses that are joined to one body, from servers of all kinds.

package transport_test

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A changing server has another version of its resource now and then, and responds in the ways of
// many servers. It notes what it has sent, and so knows which bytes belong to which header.
type changing struct {
	r        *rand.Rand
	versions []resource
	now      int    // the version at present
	coding   string // of the responses at present; "": none
	coder    bool   // a compressor stands in front of a file server, and compresses parts as well
	constant bool   // the validators stay the same with other bytes. So no part may be believed, and none is sent.
	types    string // the media type
	requests int
	sent     []sending
}

// A resource is a version of the content, and the header that tells of it.
type resource struct {
	plain  string
	header http.Header
}

// A sending is a response to the caller's own request, or with the whole to one for the rest.
type sending struct {
	body   string // up to its end, although it may be cut
	status int
	header http.Header
}

func (s sending) String() string { return fmt.Sprintf("%d %v %.100q", s.status, s.header, s.body) }

func newChanging(r *rand.Rand) *changing {
	c := &changing{r: r, coder: r.IntN(3) == 0, constant: r.IntN(3) == 0}
	c.coding = []string{"", "", "gzip", "br", "Identity"}[r.IntN(5)]
	c.types = []string{"text/plain", "application/json", "application/octet-stream", "application/x-ndjson"}[r.IntN(4)]
	validators := r.IntN(6)
	text := scrambled(r, 1+r.IntN([]int{10, 600, 3000}[r.IntN(3)]))
	for i := range 1 + r.IntN(3) {
		h := http.Header{"Content-Type": {c.types}}
		if r.IntN(3) == 0 {
			h.Set("X-Page", fmt.Sprint(r.IntN(2)))
		}
		id := i
		if c.constant {
			id = 0
		}
		switch validators {
		case 0:
			h.Set("ETag", fmt.Sprintf(`W/"v%d"`, id))
		case 1, 2, 3:
			h.Set("ETag", fmt.Sprintf(`"v%d"`, id))
		case 4:
			h.Set("Last-Modified", fmt.Sprintf("Sat, 01 Jan 2000 0%d:00:00 GMT", id))
		}
		if r.IntN(4) == 0 {
			h.Set("Accept-Ranges", []string{"bytes", "none"}[r.IntN(2)])
		}
		c.versions = append(c.versions, resource{text, h})
		switch at := r.IntN(len(text)); r.IntN(3) {
		case 0: // another byte
			text = text[:at] + scrambled(r, 1) + text[at+1:]
		case 1: // other bytes at the end
			text = text[:at] + scrambled(r, len(text)-at)
		default: // another length
			text = text[:at] + scrambled(r, 1+r.IntN(800))
		}
	}
	return c
}

func scrambled(r *rand.Rand, n int) string {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return string(p)
}

// coded is how s looks in a coding. Texts that begin alike look alike at their beginning. A part
// looks like no part of the whole. In br it even has the same length.
func coded(s, coding string) string {
	if coding != "gzip" && coding != "br" {
		return s
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(s[:min(len(s), 4)] + coding))
	p := []byte(s)
	if coding == "gzip" {
		p = append([]byte{0x1f}, p...)
	}
	for i := range p {
		p[i] ^= byte(h.Sum32()) ^ byte(i)
	}
	return string(p)
}

// RoundTrip responds to the caller's request, or to one for the rest, which has If-Range. The body may
// be cut.
func (c *changing) RoundTrip(req *http.Request) (*http.Response, error) {
	r := c.r
	c.requests++
	if r.IntN(3) == 0 {
		c.now = r.IntN(len(c.versions))
	}
	if r.IntN(8) == 0 {
		c.coding = []string{"", "gzip", "br"}[r.IntN(3)]
	}
	resp := &http.Response{StatusCode: 200, Header: c.versions[c.now].header.Clone(), ContentLength: -1, Request: req, ProtoMajor: 1}
	resp.Header.Set("Date", fmt.Sprintf("Sat, 01 Jan 2020 00:00:%02d GMT", r.IntN(60)))
	resp.Header.Set("X-Request-Id", fmt.Sprint(r.Uint32()))
	if c.coding != "" {
		resp.Header.Set("Content-Encoding", c.coding)
	}
	body, counted, own := c.fill(resp)
	if counted && r.IntN(2) == 0 {
		resp.ContentLength = int64(len(body))
	}
	if own {
		c.sent = append(c.sent, sending{body: body, status: resp.StatusCode, header: resp.Header.Clone()})
	}
	end, err := len(body), io.EOF
	if c.requests == 1 && r.IntN(4) > 0 || r.IntN(3) == 0 {
		end, err = r.IntN(len(body)+1), io.ErrUnexpectedEOF
	}
	resp.Body = testkit.CutAt(body[:end], err)
	return resp, nil
}

// fill chooses one of many ways to respond. It returns the body, and whether its length may be told.
// own reports whether the body is a response to the caller's own request, and not a part of the rest.
func (c *changing) fill(resp *http.Response) (body string, counted, own bool) {
	r, plain, req := c.r, c.versions[c.now].plain, resp.Request
	stored := coded(plain, c.coding)
	file := stored // whose bytes a range counts
	if c.coder {
		file = plain
	}
	asks, check := req.Header.Get("Range"), req.Header.Get("If-Range")
	first, last, asked := parseRange(asks, file)
	way := r.IntN(16)
	if way == 15 || !asked && last > 0 { // another range than that which was asked for
		first = r.IntN(last + 1)
	}
	own = check == ""
	parts := asked && !c.constant && (own || r.IntN(16) > 0 || check == resp.Header.Get("Etag"))
	switch {
	case way == 1:
		resp.StatusCode = []int{404, 503, 203}[r.IntN(3)]
		return "no", true, own
	case way == 2 && !own && !c.constant && asks == fmt.Sprintf("bytes=%d-", len(stored)):
		resp.StatusCode = 416
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes */%d", len(stored)))
		return "", true, false
	case asked && way == 3: // a part that says nothing of it
		return stored[min(first, len(stored)):], true, own || first == 0
	case first <= last && way == 4: // a part with the wrong status
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
		return coded(plain[min(first, len(plain)):], c.coding), true, own
	case parts && way > 5:
		resp.StatusCode, body = 206, file[first:last+1]
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(file)))
		if c.coder {
			return coded(body, c.coding), c.coding != "br", own // a wrong length would be believed
		}
		return body, true, own
	case !asked && c.coding != "" && r.IntN(3) == 0: // net/http decompresses
		resp.Uncompressed = true
		resp.Header.Del("Content-Encoding")
		return plain, false, own
	}
	return stored, true, true // perhaps instead of the rest
}

// parseRange returns the range that a request asks for, if text has it.
func parseRange(s, text string) (first, last int, ok bool) {
	last = len(text) - 1
	n, _ := fmt.Sscanf(s, "bytes=%d-%d", &first, &last)
	last = min(last, len(text)-1)
	return first, last, n > 0 && first <= last
}

// belongs reports whether the body got, or at least its beginning, is that of a response with this
// status and header. Only the fields that tell of one response may differ.
func (c *changing) belongs(got string, whole bool, status int, header http.Header) bool {
	for _, s := range c.sent {
		s.header["Date"], s.header["X-Request-Id"] = header["Date"], header["X-Request-Id"]
		if s.status == status && reflect.DeepEqual(s.header, header) && (got == s.body || !whole && strings.HasPrefix(s.body, got)) {
			return true
		}
	}
	return false
}

// joins returns a function that downloads from a server that changes, and judges what came. The
// function reports whether a body ended cleanly that had needed a second response.
func joins(t testing.TB) func(t testing.TB, seed uint64) bool {
	var server *changing
	base := rt(func(req *http.Request) (*http.Response, error) { return server.RoundTrip(req) })
	tr := mustNew(t, transport.Config{Base: base, Rule: policy.Rule{MaxAttempts: 4}.Or(quick)})
	return func(t testing.TB, seed uint64) bool {
		r := rand.New(rand.NewPCG(seed, 24))
		server = newChanging(r)
		req := getRequest(t, "http://h.test/")
		switch size := len(server.versions[0].plain); r.IntN(4) {
		case 0:
			first := r.IntN(size)
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, first+r.IntN(size)))
		case 1:
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", r.IntN(size)))
		}
		resp := mustRoundTrip(t, tr, req)
		status, header, before := resp.StatusCode, resp.Header.Clone(), server.requests
		body, err := io.ReadAll(resp.Body)
		require.Equal(t, header, resp.Header)
		require.NoError(t, resp.Body.Close())
		require.True(t, server.belongs(string(body), err == nil, status, header),
			"seed %d: %d %v\nhas %d bytes of no response, and then %v: %.100q\nof %v", seed, status, header, len(body), err, body, server.sent)
		return err == nil && server.requests > before
	}
}

// FuzzJoin downloads from servers that change between two responses, or that send parts which are
// none. A reader gets bytes of one response only, and that response has the header which the caller
// has. A clean end is the end of that response.
func FuzzJoin(f *testing.F) {
	join := joins(f)
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { join(t, seed) })
}

// TestJoin is the fuzz target over many seeds, for the normal test.
func TestJoin(t *testing.T) {
	join, continued := joins(t), 0
	seeds := soak.Size[uint64](5_000, 1_000_000)
	for seed := range seeds {
		if join(t, seed) {
			continued++
		}
	}
	t.Logf("%d of %d bodies were continued", continued, seeds)
	assert.Greater(t, continued, int(seeds)/20)
}
