package resume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

// A step is what a Read of a script returns.
type step struct {
	text string
	err  error
	wait time.Duration // before it; ended by Close
}

// A script is a body that is written down. It tells its name when it is closed.
type script struct {
	name   string
	steps  []step
	closed chan struct{}
	log    *[]string
	below  bool // a Transport below has asked for its rest
	deaf   bool // Close does not end its Read
}

func (s *script) Read(p []byte) (int, error) {
	next := &s.steps[0]
	select {
	case <-time.After(next.wait):
	case <-s.closed:
		if !s.deaf {
			return 0, errors.New("read of the closed " + s.name)
		}
		time.Sleep(next.wait)
	}
	next.wait = 0
	n := copy(p, next.text)
	if next.text = next.text[n:]; next.text != "" || next.err == nil && len(s.steps) == 1 {
		return n, nil
	}
	err := next.err
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	return n, err
}

func (s *script) Close() error {
	*s.log = append(*s.log, "close "+s.name)
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func (s *script) ResumeTried() bool { return s.below }

// A play is a body with the requests that were sent for it.
type play struct {
	sender
	*http.Response
	sent []*http.Request
	log  []string
}

// begin returns a body whose first response has the header and the steps. Further responses are
// made by then, in turn.
func begin(t *testing.T, may Terms, length int64, header []string, first []step, then ...func(*play) *http.Response) *play {
	p := new(play)
	p.from = getRequest(t, "http://h.test/")
	p.send = func(req *http.Request) (*http.Response, error) {
		p.sent = append(p.sent, req)
		if len(p.sent) > len(then) {
			return nil, errors.New("no further response")
		}
		return then[len(p.sent)-1](p), nil
	}
	p.Response = response(p.from, 200, p.script("the first", first...), header...)
	p.ContentLength = length
	plan, err := Check(p.from, p.Response, &may)
	require.NoError(t, err)
	p.Body = &Body{Plan: plan, Fetcher: &p.sender}
	return p
}

func (p *play) script(name string, steps ...step) *script {
	return &script{name: name, steps: steps, closed: make(chan struct{}), log: &p.log}
}

// part is a response with the range of a body of ten bytes that begins with text.
func part(contentRange string, steps ...step) func(*play) *http.Response {
	return func(p *play) *http.Response {
		return response(p.from, 206, p.script("the part", steps...), tag, "Content-Range: bytes "+contentRange)
	}
}

// again is a response that brings everything again.
func again(steps ...step) func(*play) *http.Response {
	return func(p *play) *http.Response {
		return response(p.from, 200, p.script("the second", steps...))
	}
}

const tag = `ETag: "v1"`

var lost = io.ErrUnexpectedEOF

func (p *play) read() (string, error) {
	all, err := io.ReadAll(p.Body)
	return string(all), err
}

// As long as a body is whole, nothing is sent, and nobody is asked or told.
func TestWholeBody(t *testing.T) {
	for name, row := range map[string]struct {
		length int64
		header []string
		steps  []step
		want   string
	}{
		"with the last byte":       {4, []string{tag}, []step{{text: "ab"}, {text: "cd", err: io.EOF}}, "abcd"},
		"after the last byte":      {4, []string{tag}, []step{{text: "abcd"}, {err: io.EOF}}, "abcd"},
		"without a length":         {-1, []string{tag}, []step{{text: "abcd"}, {err: io.EOF}}, "abcd"},
		"that would be compared":   {4, nil, []step{{text: "a"}, {text: "bcd", err: io.EOF}}, "abcd"},
		"shorter than announced":   {9, []string{tag}, []step{{text: "abcd", err: io.EOF}}, "abcd"}, // as the base transport says
		"longer than it announced": {3, []string{tag}, []step{{text: "ab"}, {text: "cd"}, {err: io.EOF}}, "abcd"},
		"shorter, without a tag":   {9, nil, []step{{text: "abcd", err: io.EOF}}, "abcd"},
		"longer, without a tag":    {3, nil, []step{{text: "abcd", err: io.EOF}}, "abcd"},
	} {
		p := begin(t, Terms{Max: 5, Again: 100}, row.length, row.header, row.steps)
		text, err := p.read()
		assert.NoError(t, err, name)
		assert.Equal(t, row.want, text, name)
		_, err = p.Body.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, name)
		assert.False(t, Tried(p.Body), name)
		require.NoError(t, p.Body.Close(), name)
		_, err = p.Body.Read(make([]byte, 1))
		assert.Equal(t, http.ErrBodyReadAfterClose, err, name)
		assert.Empty(t, p.sent, name)
		assert.Nil(t, p.told, name)
		assert.Equal(t, []string{"close the first"}, p.log, name)
	}
	p := begin(t, Terms{Max: 5, Again: 100}, 4, nil, []step{{text: "abcd"}, {err: io.EOF}})
	_, err := p.read()
	assert.NoError(t, err)
	assert.Zero(t, p.Body.(*Body).prefix, "nothing is compared with all bytes")
}

// A body ends with the error of its connection if nothing may be sent. Its Fetcher hears why.
func TestEndOfABodyThatIsNotFetched(t *testing.T) {
	other := errors.New("another error")
	for name, row := range map[string]struct {
		change func(*play, *script)
		steps  []step
		want   string
		err    error // nil: a clean end
		cause  error
	}{
		"a final error":      {func(p *play, _ *script) { p.final = func(err error) bool { return err == other } }, []step{{text: "ab", err: other}}, "ab", other, ErrFinal},
		"a Transport below":  {func(_ *play, s *script) { s.below = true }, []step{{text: "ab", err: lost}}, "ab", lost, ErrBelow},
		"after the end":      {nil, []step{{text: "abcd"}, {err: lost}}, "abcd", nil, nil},
		"a trailer is lost":  {func(p *play, _ *script) { p.Trailer = http.Header{"X": nil} }, []step{{text: "abcd"}, {err: lost}}, "abcd", lost, ErrFinal},
		"of a body below":    {func(p *play, s *script) { s.below, p.Trailer = true, http.Header{"X": nil} }, []step{{text: "abcd"}, {err: lost}}, "abcd", lost, ErrBelow},
		"no continuation":    {func(p *play, _ *script) { p.Body.(*Body).limit = 0 }, []step{{text: "ab", err: lost}}, "ab", lost, ErrLimit},
		"more than it says":  {nil, []step{{text: "abcdef"}, {err: lost}}, "abcdef", lost, ErrLimit}, // nobody knows its rest
		"the reader is away": {func(p *play, s *script) { p.final = func(error) bool { _ = p.Body.Close(); return true } }, []step{{text: "ab"}, {err: lost}}, "ab", lost, nil},
	} {
		p := begin(t, Terms{Max: 5}, 4, []string{tag}, row.steps)
		if row.change != nil {
			row.change(p, p.Body.(*Body).part.(*script))
		}
		text, err := p.read()
		assert.Equal(t, row.want, text, name)
		assert.Empty(t, p.sent, name)
		if row.cause == nil {
			assert.Equal(t, row.err, err, name)
			assert.Nil(t, p.told, name)
			continue
		}
		assert.Equal(t, p.told, err, name)
		assert.Equal(t, &ended{int64(len(row.want)), row.err, row.cause}, p.told, name)
		assert.Equal(t, row.cause == ErrLimit, Tried(p.Body), name)
		_, err = p.Body.Read(make([]byte, 1))
		assert.Equal(t, p.told, err, name)
	}
}

// The request for missing bytes names them and the representation, and is the caller's else.
func TestRequestForMissingBytes(t *testing.T) {
	for name, row := range map[string]struct {
		asked, has string // by the caller, and of the first response
		first      int64
		want       string
	}{
		"of a whole":   {"", "", 0, "bytes=2-"},
		"of a range":   {"bytes=5-9", "bytes 5-9/100", 5, "bytes=7-9"},
		"to some end":  {"bytes=5-9", "bytes 5-9/*", 5, "bytes=7-9"},
		"to the end":   {"bytes=5-", "bytes 5-9/10", 5, "bytes=7-9"},
		"of the suffx": {"bytes=-5", "bytes 5-9/10", 5, "bytes=7-9"},
	} {
		type key struct{}
		var rest *http.Request
		s := &sender{from: getRequest(t, "http://h.test/x?y").WithContext(context.WithValue(t.Context(), key{}, 1))}
		s.send = func(req *http.Request) (*http.Response, error) { rest = req; return nil, errCut }
		s.from.Header.Set("Accept", "a/b")
		s.from.Body = http.NoBody // without a GetBody
		code, header := 200, []string{tag}
		if row.asked != "" {
			s.from.Header.Set("Range", row.asked)
			code, header = 206, append(header, "Content-Range: "+row.has)
		}
		resp := response(s.from, code, testkit.CutAt("ab", lost), header...)
		_, err := io.ReadAll(wrapped(s, s.from, resp, 5).Body)
		assert.Equal(t, &ended{row.first + 2, lost, errCut}, err, name)
		assert.Equal(t, http.Header{"Accept": {"a/b"}, "Range": {row.want}, "If-Range": {`"v1"`}}, rest.Header, name)
		assert.Equal(t, s.from.URL, rest.URL, name)
		assert.Equal(t, 1, rest.Context().Value(key{}), name)
		assert.Equal(t, context.Canceled, rest.Context().Err(), "%s: the body has ended", name)
		assert.Equal(t, row.asked, s.from.Header.Get("Range"), "%s: the caller's request is not changed", name)
	}
}

// A request with a body in memory has it again.
func TestRequestHasItsBodyAgain(t *testing.T) {
	s := &sender{from: query("text")}
	var bodies []string
	s.send = func(req *http.Request) (*http.Response, error) {
		all, _ := io.ReadAll(req.Body)
		bodies = append(bodies, string(all))
		return response(req, 206, testkit.CutAt("", lost), tag, "Content-Range: bytes 2-9/10"), nil
	}
	resp := response(s.from, 200, testkit.CutAt("ab", lost), tag)
	_, err := io.ReadAll(wrapped(s, s.from, resp, 2).Body)
	assert.Equal(t, &ended{2, lost, ErrLimit}, err)
	assert.Equal(t, []string{"text", "text"}, bodies)
}

// A body is continued by parts, each of which closes the last. It gets the trailer of the last part.
func TestBodyOfParts(t *testing.T) {
	last := func(p *play) *http.Response {
		resp := part("6-9/10", step{text: "ghij", err: io.EOF})(p)
		resp.Trailer = http.Header{"X": {"y"}}
		return resp
	}
	p := begin(t, Terms{Max: 3}, -1, []string{tag}, []step{{text: "abc"}, {err: lost}},
		part("3-4/10", step{text: "de", err: io.EOF}), part("5-9/10", step{text: "f"}, step{err: lost}), last)
	text, err := p.read()
	assert.NoError(t, err)
	assert.Equal(t, "abcdefghij", text)
	assert.Equal(t, 3, p.continued, "continuations")
	assert.True(t, Tried(p.Body))
	assert.Equal(t, http.Header{"X": {"y"}}, p.Trailer)
	assert.Equal(t, []string{"close the first", "close the part", "close the part"}, p.log)
	for i, want := range []string{"bytes=3-", "bytes=5-", "bytes=6-"} {
		assert.Equal(t, want, p.sent[i].Header.Get("Range"))
		assert.Error(t, p.sent[i].Context().Err(), "the context of part %d is over", i)
	}
}

// A range without a validator is fetched again as a range.
func TestRangeThatIsFetchedAgain(t *testing.T) {
	s := &sender{from: getRequest(t, "http://h.test/")}
	s.from.Header.Set("Range", "bytes=500-1499")
	text := strings.Repeat("0123456789", 100)
	s.send = func(req *http.Request) (*http.Response, error) {
		assert.Equal(t, s.from.Header, req.Header)
		resp := response(s.from, 206, io.NopCloser(strings.NewReader(text)), "Content-Range: bytes 500-1499/9000")
		resp.ContentLength = 1000
		return resp, nil
	}
	first, _ := s.send(s.from)
	first.Body = testkit.CutAt(text[:600], lost)
	plan, err := Check(s.from, first, &Terms{Max: 1, Again: 600})
	require.NoError(t, err)
	got, err := io.ReadAll(&Body{Plan: plan, Fetcher: s})
	assert.NoError(t, err)
	assert.Equal(t, text, string(got))
	assert.Equal(t, 1, s.continued, "continuations")
}

// The context of the last request ends with the body, however that ends.
func TestContextOfTheLastRequest(t *testing.T) {
	final := errors.New("final")
	for _, last := range []step{{text: "cdefghij", err: io.EOF}, {text: "cdefghij", err: lost}, {text: "cd", err: final}} {
		p := begin(t, Terms{Max: 1}, 10, []string{tag}, []step{{text: "ab", err: lost}}, part("2-9/10", last))
		p.final = func(err error) bool { return err == final }
		_, _ = p.read()
		assert.Error(t, p.sent[0].Context().Err(), last.err)
	}
}

// A part that is longer than its range ends the body.
func TestPartWithTooManyBytes(t *testing.T) {
	p := begin(t, Terms{Max: 3}, 4, []string{tag}, []step{{text: "ab"}, {err: lost}}, part("2-3/4", step{text: "cdef"}))
	text, err := p.read()
	assert.Equal(t, "abcd", text)
	assert.Equal(t, &ended{4, errLong, ErrFinal}, err)
}

// cutParts reads a body that begins at first and is cut after ten bytes. Each part of it has as many bytes as size says, and is cut
// as well. If size says 0, no part comes. It returns how many parts were sent for, where the body ended, and why.
func cutParts(t *testing.T, first int64, limit int, size func(part int) int) (parts int, at int64, err error) {
	at = first + 10
	s := &sender{from: getRequest(t, "http://h.test/")}
	rest := func(from int64) string { return fmt.Sprintf("Content-Range: bytes %d-9999999/10000000", from) }
	s.send = func(req *http.Request) (*http.Response, error) {
		parts++
		n := size(parts)
		if n == 0 {
			return nil, errCut
		}
		from := at
		at += int64(n)
		return response(req, 206, testkit.CutAt(strings.Repeat("x", n), lost), tag, rest(from)), nil
	}
	resp := response(s.from, 200, testkit.CutAt("0123456789", lost), tag)
	if first > 0 {
		s.from.Header.Set("Range", fmt.Sprintf("bytes=%d-", first))
		resp = response(s.from, 206, resp.Body, tag, rest(first))
	}
	_, err = io.ReadAll(wrapped(s, s.from, resp, limit).Body)
	return parts, at, err
}

// Only parts of MinProgress bytes are progress, after which as many continuations may follow again. The bytes before a range are none.
func TestProgress(t *testing.T) {
	for size, most := range map[int]int{64 << 10: 9, 64<<10 - 1: 3} {
		parts, at, err := cutParts(t, 0, 3, func(part int) int { return map[bool]int{true: size}[part <= 8] })
		assert.Equal(t, most, parts, "parts of %d bytes", size)
		assert.Equal(t, &ended{at, lost, map[bool]error{true: ErrLimit, false: errCut}[size < 64<<10]}, err)
	}
	const first = 4 * MinProgress
	parts, at, err := cutParts(t, first, 2, func(part int) int { return map[bool]int{true: MinProgress, false: 1}[part == 2] })
	assert.Equal(t, &ended{at, lost, ErrLimit}, err)
	assert.Equal(t, 5, parts, "two without progress, of which the last has some; one after it, and two without")
	parts, _, err = cutParts(t, first, 0, func(int) int { return 1 })
	assert.Equal(t, &ended{first + 10, lost, ErrLimit}, err)
	assert.Zero(t, parts)
}

// A 416 that names the bytes that came proves that the body is whole.
func TestA416EndsABody(t *testing.T) {
	unsatisfied := func(p *play) *http.Response {
		return response(p.from, 416, p.script("the 416", step{err: io.EOF}), "Content-Range: bytes */4")
	}
	p := begin(t, Terms{Max: 1}, -1, []string{tag}, []step{{text: "abcd"}, {err: lost}}, unsatisfied)
	text, err := p.read()
	assert.NoError(t, err)
	assert.Equal(t, "abcd", text)
	assert.Zero(t, p.continued, "continuations")
	assert.Equal(t, []string{"close the first", "close the 416"}, p.log)
	assert.Error(t, p.sent[0].Context().Err(), "the context of the request is over")
	p = begin(t, Terms{Max: 1}, -1, []string{tag}, []step{{text: "abcd"}, {err: lost}}, func(p *play) *http.Response {
		return response(p.from, 416, p.script("the 416", step{err: io.EOF}), "Content-Range: bytes */4", tag)
	})
	_, err = p.read()
	assert.NoError(t, err, "the same representation")
	for what, change := range map[string]func(*play, http.Header){
		"a trailer is lost":      func(p *play, _ http.Header) { p.Trailer = http.Header{"X": nil} },
		"another representation": func(_ *play, h http.Header) { h.Set("Etag", `"v2"`) },
		"another unit":           func(_ *play, h http.Header) { h.Set("Content-Range", "items */4") },
		"no number":              func(_ *play, h http.Header) { h.Set("Content-Range", "bytes */x") },
		"no total":               func(_ *play, h http.Header) { h.Set("Content-Range", "bytes 4") },
	} {
		p = begin(t, Terms{Max: 1}, -1, []string{tag}, []step{{text: "abcd"}, {err: lost}}, func(p *play) *http.Response {
			resp := unsatisfied(p)
			change(p, resp.Header)
			return resp
		})
		_, err = p.read()
		assert.ErrorContains(t, err, "status is 416", what)
	}
}

// A body without a validator is compared with a second response, and goes on behind the same bytes.
func TestBodyThatIsCompared(t *testing.T) {
	long := strings.Repeat("0123456789", 100)
	for name, row := range map[string]struct {
		again  int64
		length int64
		first  []step
		then   []func(*play) *http.Response
		want   string
		cause  error // nil: a clean end
		sent   int
	}{
		"the same":             {2000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"in many Reads":        {2000, 1000, []step{{text: long[:10]}, {text: long[10:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:20]}, step{text: long[20:], err: io.EOF})}, long, nil, 1},
		"cut again":            {2000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:300]}, step{err: lost}), again(step{text: long, err: io.EOF})}, long, nil, 2},
		"cut again, for good":  {2000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:300]}, step{err: errCut})}, long[:600], errCut, 1},
		"others":               {2000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: "x" + long[1:], err: io.EOF})}, long[:600], errDiffers, 1},
		"others at the end":    {2000, 1000, []step{{text: long[:100]}, {text: long[100:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:599] + "x" + long[600:], err: io.EOF})}, long[:600], errDiffers, 1},
		"too short":            {2000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:500], err: io.EOF})}, long[:600], errDiffers, 1},
		"too many bytes":       {599, 1000, []step{{text: long[:600]}, {err: lost}}, nil, long[:600], ErrAgain, 0},
		"just as many":         {600, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"too many in all":      {1000, 1000, []step{{text: long[:600]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long[:500]}, step{err: lost})}, long[:600], ErrAgain, 1},
		"little":               {2000, -1, []step{{text: long[:511]}, {err: lost}}, nil, long[:511], ErrMayStream, 0},
		"little, but a length": {2000, 1000, []step{{text: long[:5]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"not so little":        {2000, -1, []step{{text: long[:512]}, {err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"with a pause":         {2000, -1, []step{{text: long[:600]}, {text: "01", wait: 201 * time.Millisecond}, {text: "2"}, {err: lost}}, nil, long[:600] + "012", ErrMayStream, 0},
		"a short pause":        {2000, -1, []step{{text: long[:600]}, {text: "01", wait: 199 * time.Millisecond}, {err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"a pause, and a cut":   {2000, -1, []step{{text: long[:600]}, {text: "01", wait: time.Minute, err: lost}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"a pause at the cut":   {2000, -1, []step{{text: long[:600]}, {err: lost, wait: time.Minute}}, []func(*play) *http.Response{again(step{text: long, err: io.EOF})}, long, nil, 1},
		"too often":            {2000, 1000, []step{{text: long[:1]}, {err: lost}}, []func(*play) *http.Response{again(step{err: lost}), again(step{err: lost}), again(step{err: lost})}, long[:1], ErrLimit, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := begin(t, Terms{Max: 2, Again: row.again}, row.length, nil, row.first, row.then...)
			p.final = func(err error) bool { return err == errCut }
			inner := p.send
			p.send = func(req *http.Request) (*http.Response, error) {
				resp, err := inner(req)
				if err == nil {
					resp.ContentLength = row.length
				}
				return resp, err
			}
			text, err := p.read()
			assert.Equal(t, row.want, text, name)
			assert.Len(t, p.sent, row.sent, name)
			for _, req := range p.sent {
				assert.Empty(t, req.Header, name)
			}
			if row.cause == nil {
				assert.NoError(t, err, name)
				return
			}
			require.NotNil(t, p.told, name)
			assert.Equal(t, row.cause, p.told.cause, name)
			assert.EqualValues(t, len(row.want), p.told.offset, name)
		})
	}
}

// From the first cut on, a Read takes 10 s at most. The time between two Reads does not count, nor
// does that before the cut.
func TestReadAfterACutHasABound(t *testing.T) {
	hang := step{wait: time.Hour}
	for name, row := range map[string]struct {
		first []step
		then  []func(*play) *http.Response
		want  string
		took  time.Duration
	}{
		"in the response":  {[]step{{text: "ab", wait: time.Minute}, {err: lost}}, []func(*play) *http.Response{part("2-9/10", hang)}, "ab", 10 * time.Second},
		"after more bytes": {[]step{{text: "ab"}, {err: lost}}, []func(*play) *http.Response{part("2-9/10", step{text: "c", wait: 9 * time.Second}, hang)}, "abc", 10 * time.Second},
		"in a second part": {[]step{{text: "ab"}, {err: lost}}, []func(*play) *http.Response{part("2-9/10", step{err: lost, wait: 6 * time.Second}), part("2-9/10", hang)}, "ab", 10 * time.Second},
		"in the request": {[]step{{text: "ab"}, {err: lost}}, []func(*play) *http.Response{func(p *play) *http.Response {
			time.Sleep(10*time.Second + 1)
			return part("2-9/10", step{text: "cdefghij", err: io.EOF})(p)
		}}, "ab", 10*time.Second + 1},
		"while comparing": {[]step{{text: "ab"}, {err: lost}}, []func(*play) *http.Response{func(p *play) *http.Response {
			resp := again(step{text: "abcdefghij", err: io.EOF, wait: 10*time.Second + 1})(p)
			resp.Body.(*script).deaf, resp.ContentLength = true, 10
			resp.Header.Set("Etag", `"v1"`)
			return resp
		}}, "ab", 0},
		"with an end after": {[]step{{text: "ab"}, {err: lost}}, []func(*play) *http.Response{part("2-9/10", step{text: "cdefghij", wait: 9 * time.Second, err: io.EOF})}, "abcdefghij", 9 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := begin(t, Terms{Max: 5, Again: 10}, 10, []string{tag}, row.first, row.then...)
			var text []byte
			var began time.Time
			var err error
			for err == nil {
				time.Sleep(time.Minute) // the reader takes its time
				began = time.Now()
				var n int
				buf := make([]byte, 10)
				n, err = p.Body.Read(buf)
				text = append(text, buf[:n]...)
				if n == 10-2 {
					break
				}
			}
			assert.Equal(t, row.want, string(text), name)
			if row.took > 0 { // or the part does as it likes
				assert.Equal(t, row.took, time.Since(began), name)
			}
			if row.want != "abcdefghij" {
				assert.Equal(t, &ended{int64(len(row.want)), lost, ErrLate}, err, name)
				assert.NotEqual(t, "close the first", p.log[len(p.log)-1], name)
				assert.ErrorIs(t, p.sent[len(p.sent)-1].Context().Err(), context.DeadlineExceeded, name)
			}
			require.NoError(t, p.Body.Close())
		})
	}
}

// The context of a request has the deadline of the Read, or an earlier one of the caller.
func TestDeadlineOfAContinuation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, own := range []time.Duration{0, 4 * time.Second, time.Hour} {
			s := &sender{from: getRequest(t, "http://h.test/")}
			want := time.Now().Add(10 * time.Second)
			if own > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), own)
				defer cancel()
				s.from = s.from.WithContext(ctx)
				want = time.Now().Add(min(own, 10*time.Second))
			}
			s.send = func(req *http.Request) (*http.Response, error) {
				until, ok := req.Context().Deadline()
				assert.True(t, ok && until.Equal(want), "%v: %v", own, until)
				<-req.Context().Done()
				assert.Equal(t, want, time.Now())
				assert.Equal(t, context.DeadlineExceeded, req.Context().Err())
				return nil, req.Context().Err()
			}
			resp := response(s.from, 200, testkit.CutAt("ab", lost), tag)
			_, err := io.ReadAll(wrapped(s, s.from, resp, 5).Body)
			assert.Equal(t, &ended{2, lost, context.DeadlineExceeded}, err)
		}
	})
}

// Close ends a Read at once, wherever it is, and its error says so. Nobody is told.
func TestCloseDuringARead(t *testing.T) {
	hang := step{wait: time.Hour}
	for name, row := range map[string]struct {
		then func(*play) *http.Response
		err  error // nil: that of a closed part
		log  []string
	}{
		"in the request": {func(p *play) *http.Response {
			<-p.sent[0].Context().Done()
			return part("2-9/10", step{text: "cdefghij"})(p)
		}, http.ErrBodyReadAfterClose, []string{"close the first", "close the part"}},
		"in the part": {part("2-9/10", hang), nil, []string{"close the first", "close the part"}},
		"while comparing": {func(p *play) *http.Response {
			resp := again(hang)(p)
			resp.Header.Set("Etag", `"v1"`)
			resp.ContentLength = 10
			return resp
		}, http.ErrBodyReadAfterClose, []string{"close the first", "close the second", "close the second"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := begin(t, Terms{Max: 5, Again: 100}, 10, []string{tag}, []step{{text: "ab"}, {err: lost}}, row.then)
			p.final = func(err error) bool { return err != lost }
			began := time.Now()
			time.AfterFunc(time.Second, func() { _ = p.Body.Close() })
			text, err := p.read()
			assert.Equal(t, "ab", text, name)
			assert.Equal(t, time.Second, time.Since(began), name)
			if row.err != nil {
				assert.Equal(t, row.err, err, name)
			} else {
				assert.EqualError(t, err, "read of the closed the part", name)
			}
			assert.Nil(t, p.told, name)
			synctest.Wait() // Close may still be at it
			assert.Error(t, p.sent[0].Context().Err(), name)
			assert.Equal(t, row.log, p.log, name)
			_, err = p.Body.Read(make([]byte, 1))
			assert.Error(t, err, name)
		})
	}
	p := begin(t, Terms{Max: 5}, 10, []string{tag}, []step{{text: "ab", err: lost}})
	n, err := p.Body.Read(make([]byte, 10))
	assert.Equal(t, 2, n)
	assert.NoError(t, err, "the bytes come before the cut is judged")
	require.NoError(t, p.Body.Close())
	_, err = p.Body.Read(make([]byte, 10))
	assert.Equal(t, http.ErrBodyReadAfterClose, err)
	assert.Empty(t, p.sent, "nothing is sent for a body that is closed")
	p = begin(t, Terms{Max: 5}, 2, []string{tag}, []step{{text: "ab"}, hang})
	_, err = p.Body.Read(make([]byte, 2))
	require.NoError(t, err)
	require.NoError(t, p.Body.Close())
	_, err = p.Body.Read(make([]byte, 1))
	assert.EqualError(t, err, "read of the closed the first", "no clean end, although no byte is missing")
	assert.Nil(t, p.told)
}

// A second response that differs is the Fetcher's to close, and not the reader's.
func TestCloseAfterADifference(t *testing.T) {
	p := begin(t, Terms{Max: 5, Again: 1000}, -1, nil, []step{{text: strings.Repeat("x", 600)}, {err: lost}}, again(step{text: strings.Repeat("y", 600), err: io.EOF}))
	_, err := p.read()
	assert.Equal(t, &ended{600, lost, errDiffers}, err)
	require.NoError(t, p.Body.Close())
	assert.Equal(t, []string{"close the first", "close the second"}, p.log)
}

// A compressor in front of a file server may leave the range of the plain bytes, and then takes the
// length away.
func TestCodedPartWithoutALength(t *testing.T) {
	for length, whole := range map[int64]bool{8: true, -1: false} {
		coded := func(p *play) *http.Response {
			resp := part("2-9/10", step{text: "cdefghij", err: io.EOF})(p)
			resp.Header.Set("Content-Encoding", "br")
			resp.ContentLength = length
			return resp
		}
		p := begin(t, Terms{Max: 5}, 10, []string{tag, "Content-Encoding: br"}, []step{{text: "ab"}, {err: lost}}, coded)
		_, err := p.read()
		if whole {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "it is coded, and has no Content-Length")
		}
	}
}
