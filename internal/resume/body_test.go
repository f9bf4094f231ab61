package resume

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
)

var errCut = errors.New("cut")

func getRequest(t testing.TB, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func response(req *http.Request, code int, body io.ReadCloser, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: body, ContentLength: -1, Request: req}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

// An ended is the end of a body that nothing continued.
type ended struct {
	offset     int64
	cut, cause error
}

func (e *ended) Error() string   { return e.cut.Error() + "; not resumed: " + e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.cut, e.cause} }

// A sender is a Fetcher that sends each continuation with a function.
type sender struct {
	from      *http.Request // the caller's
	send      func(*http.Request) (*http.Response, error)
	final     func(error) bool // whether nothing is sent after a cut; nil: never
	continued int
	told      *ended
}

func (s *sender) MayFetch(_ int64, err error) bool { return s.final == nil || !s.final(err) }

func (s *sender) Fetch(cut *Cut) error {
	for {
		rest, err := cut.Request(s.from)
		_ = cut.Part.Close()
		if err != nil {
			return err
		}
		resp, err := s.send(rest)
		if err != nil {
			return err
		}
		lost, err := cut.Use(resp)
		if err == nil {
			s.continued++
			return nil
		}
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		if !lost || !s.MayFetch(cut.Offset, err) {
			return err
		}
		cut.Err = err
	}
}

func (s *sender) Ended(offset int64, err, cause error) error {
	if cause == nil {
		return io.EOF
	}
	s.told = &ended{offset, err, cause}
	return s.told
}

// wrapped returns resp with a body that resumes through f, if it can.
func wrapped(f Fetcher, req *http.Request, resp *http.Response, limit int) *http.Response {
	if plan, err := Check(req, resp, &Terms{Max: limit}); err == nil {
		resp.Body = &Body{Plan: plan, Fetcher: f}
	}
	return resp
}

// A world is a server with one representation. It
// mixes honest responses with every kind of dishonest response.
type world struct {
	from  *http.Request
	truth []byte // the representation
	other []byte // what the resource becomes
	rand  *rand.Rand

	// named holds the ends that the server named under the validator, or without
	// a validator. They count only if no end was promised before. The body then
	// has to trust the server, which may lie.
	named map[int]bool
}

// name returns a total for a header, and remembers it.
func (w *world) name(total int) string {
	w.named[total] = true
	return fmt.Sprint(total)
}

// isFinal reports whether nothing is sent after a cut.
func isFinal(err error) bool { return !errors.Is(err, errCut) && !errors.Is(err, io.ErrUnexpectedEOF) }

func (w *world) send(req *http.Request) (*http.Response, error) {
	var first, last int
	last = len(w.truth) - 1
	_, _ = fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-%d", &first, &last)
	if req.Header.Get("If-Range") != `"v1"` {
		return nil, fmt.Errorf("a wrong request: %v", req.Header)
	}
	if first >= len(w.truth) {
		return response(w.from, 416, w.cut(nil), "Content-Range: bytes */"+w.name(len(w.truth))), nil
	}
	return w.response(first, last)
}

// response returns one of many honest and dishonest responses.
func (w *world) response(first, last int) (*http.Response, error) {
	total, data, tag, code := len(w.truth), w.truth, `"v1"`, http.StatusPartialContent
	size := w.name(total)
	var header []string
	length := int64(-2)
	from, to := first, last+1
	switch w.rand.IntN(30) {
	default: // honest
	case 0: // less than the rest
		to = from + w.rand.IntN(to-from) + 1
		last = to - 1
	case 1: // everything again
		code, from, to = 200, 0, total
	case 2: // everything of the next version
		code, from, to, data, tag = 200, 0, len(w.other), w.other, `"v2"`
	case 3: // the next version
		data, tag, to = w.other, `"v2"`, min(to, len(w.other))
	case 4: // another start
		first = w.rand.IntN(total)
		from, last = first, max(last, first)
		to = last + 1
	case 5: // another total
		size = w.name(total + w.rand.IntN(3) - 1)
	case 6:
		size = "*"
	case 15: // less than the rest, and no total
		to = from + w.rand.IntN(to-from) + 1
		last, size = to-1, "*"
	case 16: // a total that ends with the segment
		to = from + w.rand.IntN(to-from) + 1
		last, size = to-1, w.name(to)
	case 17: // a total that ends after the segment
		to = from + w.rand.IntN(to-from) + 1
		last, size = to-1, w.name(to+w.rand.IntN(total-to+1))
	case 18: // no rest
		tag = []string{"", `"v1"`, `"v2"`, `W/"v1"`}[w.rand.IntN(4)]
		end := first + w.rand.IntN(3) - 1
		w.named[end] = w.named[end] || tag == "" || tag == `"v1"`
		header = append(header, fmt.Sprintf("Content-Range: bytes */%d", end))
		code = 416
	case 7:
		code = 416
	case 8:
		header = append(header, "Content-Type: multipart/byteranges; boundary=x")
	case 9:
		data, tag = w.other, `W/"v1"`
	case 10:
		data = w.other
		header = append(header, "Content-Encoding: gzip")
	case 11: // longer than promised
		data = append(bytes.Clone(data[:to]), w.other...)
		to = min(len(data), to+100)
		length = -1
	case 12:
		return nil, errors.New("no response")
	case 13:
		data, tag = w.other, ""
	case 14:
		length = int64(w.rand.IntN(total))
	}
	from, to = min(from, len(data)), min(to, len(data))
	body := w.cut(data[min(from, to):to])
	if code == http.StatusPartialContent {
		header = append(header, fmt.Sprintf("Content-Range: bytes %d-%d/%s", first, last, size))
	}
	if tag != "" {
		header = append(header, "ETag: "+tag)
	}
	resp := response(w.from, code, body, header...)
	switch {
	case length > -2:
		resp.ContentLength = length
	case w.rand.IntN(2) == 0:
		resp.ContentLength = int64(to - min(from, to))
	}
	if code == 200 && resp.ContentLength < 0 && body.Err == io.EOF && len(body.Data) < to-from {
		body.Err = errCut // an early clean end of what has no length would be the server's own word
	}
	return resp, nil
}

// cut makes a body that may end early.
func (w *world) cut(data []byte) *testkit.CutBody {
	b := &testkit.CutBody{Data: data, Err: io.EOF, Rand: w.rand}
	if w.rand.IntN(3) > 0 {
		b.Data = data[:w.rand.IntN(len(data)+1)]
		b.Err = []error{errCut, io.ErrUnexpectedEOF, io.EOF}[w.rand.IntN(3)]
	}
	if b.Err == io.EOF && len(b.Data) < len(data) && w.rand.IntN(2) == 0 {
		b.Err = errCut
	}
	return b
}

// FuzzResume reads a Body through a world. The oracle knows the representation and
// the promise of the first response, but nothing about the code. The bytes read must
// be a prefix of the promised range. A clean end may come only after the whole
// range. If nothing was promised, it may come only at an end that the server named.
func FuzzResume(f *testing.F) {
	f.Add(uint64(1), uint32(1000), uint8(0))
	f.Add(uint64(2), uint32(300_000), uint8(1))
	f.Add(uint64(3), uint32(1), uint8(2))
	f.Add(uint64(4), uint32(200_000), uint8(3))
	f.Add(uint64(5), uint32(150_000), uint8(0xff))
	f.Add(uint64(6), uint32(500), uint8(0x62))
	f.Add(uint64(7), uint32(500), uint8(0x40))
	f.Fuzz(func(t *testing.T, seed uint64, size uint32, flags uint8) { download(t, seed, size, flags) })
}

// TestResumeRandomly is the fuzz target over many seeds, for the normal test.
func TestResumeRandomly(t *testing.T) {
	whole, cut := 0, 0
	seeds := soak.Size[uint64](1_000, 3_000)
	for seed := range seeds {
		size := uint32(rand.IntN(500) + 1)
		if seed%50 == 0 {
			size = 300_000
		}
		if finished := download(t, seed, size, uint8(rand.Uint32())); finished {
			whole++
		} else {
			cut++
		}
	}
	require.Greater(t, whole, int(seeds)/4)
	require.Greater(t, cut, int(seeds)/10)
}

// download reads a body and checks it. It reports whether the body ended cleanly.
func download(t *testing.T, seed uint64, size uint32, flags uint8) (finished bool) {
	r := rand.New(rand.NewPCG(seed, uint64(size)))
	n := int(size%400_000) + 1
	req := getRequest(t, "http://h.test/")
	w := &world{from: req, truth: noise(r, n), other: noise(r, n), rand: r, named: map[int]bool{n: true}}
	want, code, promised := w.truth, 200, true
	header := []string{`ETag: "v1"`}
	if flags&2 != 0 { // the caller's own range
		first := r.IntN(n)
		last := first + r.IntN(n-first)
		want, code = w.truth[first:last+1], 206
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, last))
		size := fmt.Sprint(n)
		if flags&32 != 0 {
			size = "*"
		}
		header = append(header, fmt.Sprintf("Content-Range: bytes %d-%d/%s", first, last, size))
	}
	if flags&4 != 0 && code == 200 {
		header = append(header, "Repr-Digest: sha-256=:AAAA:")
	}
	first := w.cut(want)
	resp := response(req, code, first, header...)
	switch {
	case flags&8 != 0:
		resp.ContentLength = int64(len(want))
	case code == 200 && first.Err != io.EOF:
		promised = false
	}
	if first.Err == io.EOF { // a clean end of the first response is the end: the word of the base transport
		want = first.Data
	}
	resp = wrapped(&sender{from: req, send: w.send, final: isFinal}, req, resp, int(flags>>6*3))
	var got bytes.Buffer
	_, err := got.ReadFrom(resp.Body)
	require.True(t, bytes.HasPrefix(want, got.Bytes()), "seed %d: bytes that are not the representation's: %d of %d", seed, got.Len(), len(want))
	switch {
	case err == nil && promised:
		require.Len(t, got.Bytes(), len(want), "seed %d: a clean end too early", seed)
	case err == nil:
		require.True(t, w.named[got.Len()], "seed %d: a clean end after %d of %d bytes, which nobody named", seed, got.Len(), n)
	}
	var again [1]byte
	k, err2 := resp.Body.Read(again[:])
	require.Zero(t, k, "bytes after the end")
	require.Error(t, err2)
	return err == nil
}

func noise(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// TestResumeForgedResponses is a table of single responses to a reconnect at byte 400
// of 1000.
func TestResumeForgedResponses(t *testing.T) {
	truth := strings.Repeat("0123456789", 100)
	wrong := strings.Repeat("abcdefghij", 100)
	const tag, date = `ETag: "v1"`, "Date: Mon, 06 Jan 2025 10:00:00 GMT"
	part := func(r string) string { return "Content-Range: " + r }
	for _, row := range []struct {
		name   string
		code   int
		body   string
		header []string
		length int64
		total  int64  // what the first response says; 0: 1000
		flaws  string // "": it is the rest
		change func(*http.Response)
	}{
		{name: "the rest", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/1000")}, length: 600},
		{name: "the rest, in chunks", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/1000"), "Content-Type: application/octet-stream"}},
		{name: "wrong start", code: 206, body: truth[300:], header: []string{tag, part("bytes 300-999/1000")}, flaws: "begins at 300"},
		{name: "start after the cut", code: 206, body: truth[401:], header: []string{tag, part("bytes 401-999/1000")}, flaws: "begins at 401"},
		{name: "from the beginning", code: 206, body: truth, header: []string{tag, part("bytes 0-999/1000")}, flaws: "begins at 0"},
		{name: "wrong total", code: 206, body: wrong[400:], header: []string{tag, part("bytes 400-999/1001")}, flaws: "of 1001 bytes"},
		{name: "unknown total", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/*")}},
		{name: "unknown total, with its length", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/*")}, length: 600},
		{name: "unknown total, a part of the rest", code: 206, body: wrong[400:999], header: []string{tag, part("bytes 400-998/*")}, flaws: "goes to 998 instead of 999"},
		{name: "unknown total, more than the rest", code: 206, body: wrong[400:] + "x", header: []string{tag, part("bytes 400-1000/*")}, flaws: "goes to 1000 instead of 999"},
		{name: "unknown total, another length", code: 206, body: truth[400:999], header: []string{tag, part("bytes 400-999/*")}, length: 599, flaws: "Content-Length is 599"},
		{name: "unknown total, other tag", code: 206, body: wrong[400:], header: []string{`ETag: "v2"`, part("bytes 400-999/*")}, flaws: "validator"},
		{name: "no Content-Range", code: 206, body: wrong[400:], header: []string{tag}, flaws: "Content-Range"},
		{name: "broken Content-Range", code: 206, body: wrong[400:], header: []string{tag, part("bytes=400-999/1000")}, flaws: "Content-Range"},
		{name: "two of them", code: 206, body: wrong[400:], header: []string{tag, part("bytes 400-999/1000"), part("bytes 400-999/1000")}, flaws: "Content-Range"},
		{name: "unsatisfied range", code: 206, body: wrong[400:], header: []string{tag, part("bytes */1000")}, flaws: "Content-Range"},
		{name: "beyond the end", code: 206, body: wrong[400:] + "x", header: []string{tag, part("bytes 400-1000/1000")}, flaws: "Content-Range"},
		{name: "weak tag", code: 206, body: wrong[400:], header: []string{`ETag: W/"v1"`, part("bytes 400-999/1000")}, flaws: "validator"},
		{name: "other tag", code: 206, body: wrong[400:], header: []string{`ETag: "v2"`, part("bytes 400-999/1000")}, flaws: "validator"},
		{name: "no tag", code: 206, body: wrong[400:], header: []string{part("bytes 400-999/1000")}, flaws: "validator"},
		{name: "two tags", code: 206, body: wrong[400:], header: []string{tag, `ETag: "v2"`, part("bytes 400-999/1000")}, flaws: "validator"},
		{name: "200", code: 200, body: truth, header: []string{tag}, length: 1000, flaws: "status is 200"},
		{name: "200 of another version", code: 200, body: wrong, header: []string{`ETag: "v2"`}, flaws: "status is 200"},
		{name: "204", code: 204, header: []string{tag}, flaws: "status is 204"},
		{name: "404", code: 404, body: wrong, header: []string{tag}, flaws: "status is 404"},
		{name: "416", code: 416, header: []string{tag, part("bytes */1000")}, flaws: "status is 416"},
		{name: "multipart", code: 206, body: wrong, header: []string{tag, "Content-Type: multipart/byteranges; boundary=x"}, flaws: "several parts"},
		{name: "multipart with a range", code: 206, body: wrong, header: []string{tag, "Content-Type: Multipart/ByteRanges", part("bytes 400-999/1000")}, flaws: "several parts"},
		{name: "gzip", code: 206, body: wrong[400:], header: []string{tag, "Content-Encoding: gzip", part("bytes 400-999/1000")}, flaws: "Content-Encoding"},
		{name: "decompressed", code: 206, body: wrong[400:], header: []string{tag, part("bytes 400-999/1000")}, flaws: "decompressed",
			change: func(r *http.Response) { r.Uncompressed = true }},
		{name: "another length", code: 206, body: truth[400:999], header: []string{tag, part("bytes 400-999/1000")}, length: 599, flaws: "Content-Length is 599"},
		{name: "another digest", code: 206, body: wrong[400:], header: []string{tag, part("bytes 400-999/1000"), "Repr-Digest: sha-256=:BBBB:"}, flaws: "Repr-Digest"},
		{name: "the same digest", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/1000"), "Repr-Digest: sha-256=:AAAA:"}},
		{name: "the rest of what had no length", code: 206, body: truth[400:], header: []string{tag, part("bytes 400-999/1000")}, total: -1},
		{name: "no total at all", code: 206, body: wrong[400:], header: []string{tag, part("bytes 400-999/*")}, total: -1, flaws: "where the whole ends"},
		{name: "no body", code: 206, header: []string{tag, part("bytes 400-999/1000")}, flaws: "no body",
			change: func(r *http.Response) { r.Body = nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := getRequest(t, "http://h.test/")
			attempts := 0
			s := &sender{from: req, send: func(*http.Request) (*http.Response, error) {
				attempts++
				resp := response(req, row.code, io.NopCloser(strings.NewReader(row.body)), append(row.header, date)...)
				if row.length > 0 {
					resp.ContentLength = row.length
				}
				if row.change != nil {
					row.change(resp)
				}
				return resp, nil
			}}
			first := response(req, 200, testkit.CutAt(truth[:400], io.ErrUnexpectedEOF),
				tag, "Repr-Digest: sha-256=:AAAA:", "Content-Digest: sha-256=:AAAA:")
			first.ContentLength = cmp.Or(row.total, 1000)
			got, err := io.ReadAll(wrapped(s, req, first, 5).Body)
			require.Equal(t, 1, attempts, "attempts")
			if row.flaws == "" {
				require.NoError(t, err)
				require.Equal(t, truth, string(got))
				return
			}
			require.Equal(t, truth[:400], string(got))
			e := s.told
			require.True(t, e != nil && err == e)
			require.EqualValues(t, 400, e.offset)
			require.Equal(t, io.ErrUnexpectedEOF, e.cut)
			require.Zero(t, s.continued, "continuations")
			require.ErrorContains(t, e.cause, row.flaws)
			require.ErrorContains(t, e.cause, "transport: the response is not the rest: ")
		})
	}
}

// Given a response that promised its end, when a reconnect names another end, then
// the body never ends cleanly before the promised end.
func TestResumeKeepsThePromisedEnd(t *testing.T) {
	truth := strings.Repeat("0123456789", 100)
	for _, row := range []struct {
		name   string
		first  string // range of the first response, which is cut after 100 bytes; "": it is a 200
		length int64  // of the first response
		parts  string // ranges of the others
		want   int    // bytes
		flaw   string // of the last part
	}{
		{"no total, and one below the end", "0-499/*", -1, "100-199/200", 100, "it is of 200 bytes, and the body goes to 499"},
		{"the same, at the end itself", "0-499/*", -1, "100-498/499", 100, "it is of 499 bytes, and the body goes to 499"},
		{"a total that is the range's end", "0-499/*", -1, "100-499/500", 500, ""},
		{"a total above the range's end", "0-499/*", -1, "100-499/1000", 500, ""},
		{"no total at all", "0-499/*", -1, "100-199/* 200-499/*", 500, ""},
		{"a total below the end, later", "0-499/*", -1, "100-199/* 200-299/300", 200, "it is of 300 bytes, and the body goes to 499"},
		{"a total that shrinks", "0-499/*", -1, "100-199/600 200-499/500", 200, "it is of 500 bytes instead of 600"},
		{"a length, and a total below it", "", 1000, "100-199/200", 100, "it is of 200 bytes instead of 1000"},
		{"no length, and a total that shrinks", "", -1, "100-199/1000 200-299/300", 200, "it is of 300 bytes instead of 1000"},
		{"no length, and a total", "", -1, "100-199/1000 200-999/1000", 1000, ""},
		{"a total, and then none", "0-499/1000", -1, "100-499/*", 500, ""},
		{"then none for a part", "0-499/1000", -1, "100-299/*", 100, "it is of unknown length, and goes to 299 instead of 499"},
		{"more than the range", "0-499/1000", -1, "100-500/1000", 100, "it goes to 500 instead of 499"},
		{"a length, and no total for the last part", "", 1000, "100-199/1000 200-999/*", 1000, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := getRequest(t, "http://h.test/")
			code, header := 200, []string{`ETag: "v1"`}
			if row.first != "" {
				code = 206
				req.Header.Set("Range", "bytes=0-499")
				header = append(header, "Content-Range: bytes "+row.first)
			}
			parts := strings.Fields(row.parts)
			s := &sender{from: req, send: func(*http.Request) (*http.Response, error) {
				if len(parts) == 0 {
					return nil, errors.New("no further response")
				}
				part := "bytes " + parts[0]
				r, ok := parseContentRange(part)
				require.True(t, ok)
				parts = parts[1:]
				return response(req, 206, testkit.CutAt(truth[r.first:r.last+1], io.EOF), `ETag: "v1"`, "Content-Range: "+part), nil
			}}
			first := response(req, code, testkit.CutAt(truth[:100], io.ErrUnexpectedEOF), header...)
			first.ContentLength = row.length
			got, err := io.ReadAll(wrapped(s, req, first, 5).Body)
			assert.Equal(t, truth[:row.want], string(got))
			if row.flaw == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.ErrorContains(t, s.told.cause, row.flaw)
			}
		})
	}
}
