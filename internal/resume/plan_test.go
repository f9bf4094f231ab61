package resume

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A 200 to a request for the rest is used only if it is the same representation, and if
// there are not too many bytes to skip. TestHeadersAgree says more about the headers.
func TestAWholeResponseForTheRest(t *testing.T) {
	for name, tt := range map[string]struct {
		body   func(*Body)
		second func(*http.Response)
		err    string // "": it is used
	}{
		"the same":           {},
		"another status":     {second: func(r *http.Response) { r.StatusCode = 203 }, err: "its status is 203"},
		"no body":            {second: func(r *http.Response) { r.Body = nil }, err: "no body"},
		"another length":     {second: func(r *http.Response) { r.ContentLength = 11 }, err: "its header differs"},
		"neither has one":    {body: func(b *Body) { b.end = unknown }, second: func(r *http.Response) { r.ContentLength = -1 }},
		"another validator":  {second: func(r *http.Response) { r.Header.Set("Etag", `"v2"`) }, err: "its header differs"},
		"nothing kept":       {body: func(b *Body) { b.keeps = false }, err: "were not kept"},
		"nothing left":       {body: func(b *Body) { b.left = 0 }, err: "MaxRefetch"},
		"just enough left":   {body: func(b *Body) { b.left = 4 }},
		"not enough is left": {body: func(b *Body) { b.left = 3 }, err: "MaxRefetch"},
	} {
		b := &Body{Plan: Plan{validator: `"v1"`, pos: 4, end: 10, total: 10, left: 100, keeps: true}}
		length := int64(10)
		if name == "neither has one" {
			length = -1
		}
		first := &http.Response{StatusCode: 200, ContentLength: length, Header: http.Header{"Etag": {`"v1"`}, "Repr-Digest": {"sha-256=:AAAA:"}}}
		b.fingerprint = fingerprintOf(first, true)
		second := &http.Response{StatusCode: 200, ContentLength: 10, Body: http.NoBody, Header: http.Header{"Etag": {`"v1"`}, "Repr-Digest": {"sha-256=:AAAA:"}}}
		if tt.body != nil {
			tt.body(b)
		}
		if tt.second != nil {
			tt.second(second)
		}
		again, err := b.check(second)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.True(t, again, name)
	}
}

// A 416 proves nothing about a body that is fetched again.
func TestA416ToTheWholeRequest(t *testing.T) {
	second := &http.Response{StatusCode: 416, Header: http.Header{"Content-Range": {"bytes */4"}}}
	b := &Body{Plan: Plan{resp: new(http.Response), pos: 4, end: unknown, total: unknown, validator: `"v1"`}}
	assert.True(t, b.complete(second))
	b.Compares = true
	assert.False(t, b.complete(second))
}

// A response is continued in no other way than these.
func TestCheck(t *testing.T) {
	const weak = `W/"a"`
	get := &http.Request{Method: http.MethodGet}
	signed := &http.Request{Method: http.MethodGet, Header: http.Header{"Authorization": {"SharedKey account:signature"}}}
	for name, tt := range map[string]struct {
		req      *http.Request
		header   http.Header
		again    bool
		err      error
		compares bool
	}{
		"a strong tag":             {get, http.Header{"Etag": {`"a"`}}, false, nil, false},
		"a strong tag, or again":   {get, http.Header{"Etag": {`"a"`}}, true, nil, false},
		"a strong tag, no ranges":  {get, http.Header{"Etag": {`"a"`}, "Accept-Ranges": {"none"}}, false, ErrNoRanges, false},
		"a signature":              {signed, http.Header{"Etag": {`"a"`}}, false, ErrNoRanges, false},
		"a signature, so again":    {signed, http.Header{"Etag": {`"a"`}}, true, nil, true},
		"no ranges, so again":      {get, http.Header{"Etag": {`"a"`}, "Accept-Ranges": {"none"}}, true, nil, true},
		"a weak tag":               {get, http.Header{"Etag": {weak}}, false, ErrNoValidator, false},
		"a weak tag, so again":     {get, http.Header{"Etag": {weak}}, true, nil, true},
		"a stream":                 {get, http.Header{"Content-Type": {"Text/Event-Stream; x"}}, true, ErrStream, false},
		"pictures":                 {get, http.Header{"Content-Type": {"multipart/x-mixed-replace"}}, true, ErrStream, false},
		"lines":                    {get, http.Header{"Content-Type": {"application/x-ndjson"}}, true, ErrStream, false},
		"a stream with a tag":      {get, http.Header{"Etag": {`"a"`}, "Content-Type": {"text/event-stream"}}, true, nil, false},
		"that has no length":       {get, http.Header{"Etag": {`"a"`}, "Content-Type": {"text/event-stream"}}, true, ErrStream, false},
		"a QUERY":                  {&http.Request{Method: "QUERY"}, http.Header{"Etag": {`"a"`}}, false, nil, false},
		"a QUERY with a body":      {query("x"), http.Header{"Etag": {`"a"`}}, false, nil, false},
		"a QUERY with a pipe":      {&http.Request{Method: "QUERY", Body: readCloser{}}, http.Header{"Etag": {`"a"`}}, false, ErrBody, false},
		"a POST":                   {&http.Request{Method: http.MethodPost}, nil, false, ErrMethod, false},
		"a POST that may be again": {&http.Request{Method: http.MethodPost}, http.Header{"Etag": {`"a"`}}, true, nil, true},
	} {
		resp := &http.Response{StatusCode: 200, ContentLength: 10, Header: tt.header, Body: readCloser{}}
		if name == "that has no length" {
			resp.ContentLength = -1
		}
		may := new(Terms)
		if tt.again {
			may.Again, may.Repeatable = 1, true
		}
		plan, err := Check(tt.req, resp, may)
		assert.Equal(t, tt.err, err, name)
		assert.Equal(t, tt.compares, err == nil && plan.Compares, name)
	}
	for _, of := range []string{"application/jsonlines", "application/vnd.amazon.eventstream", "application/vnd.docker.raw-stream", "application/connect+json"} {
		_, err := Check(get, &http.Response{StatusCode: 200, ContentLength: 10, Header: http.Header{"Content-Type": {of}}, Body: readCloser{}}, &Terms{Again: 1})
		assert.Equal(t, ErrStream, err, of)
	}
}

// query returns a QUERY with a body that net/http makes again.
func query(text string) *http.Request {
	req, _ := http.NewRequest("QUERY", "http://h.test/", strings.NewReader(text))
	return req
}

type readCloser struct{}

func (readCloser) Read([]byte) (int, error) { return 0, nil }
func (readCloser) Close() error             { return nil }

// What the status, the length and the header say of the bytes, and of a second response.
func TestCheckKeepsTheHeader(t *testing.T) {
	const length, again = 10, 100
	type kept struct {
		ranged, keeps           bool
		begin, end, stop, total int64
	}
	ranged, unranged := kept{true, true, 0, unknown, unknown, unknown}, kept{false, true, 0, unknown, unknown, unknown}
	whole := kept{false, true, 0, unknown, unknown, length} // all of it is fetched again
	for name, row := range map[string]struct {
		status int    // 0: 200
		open   bool   // it has no length
		header string // fields of the response; one without a value is removed
		part   string // the Content-Range of a 206
		asked  string // Range
		query  string
		err    error
		want   kept
	}{
		"a tag":                     {want: kept{true, true, 0, 10, 10, 10}},
		"and ranges":                {header: "Accept-Ranges: bytes", want: kept{true, false, 0, 10, 10, 10}},
		"no ranges":                 {header: "Accept-Ranges: none", want: whole},
		"no length":                 {open: true, want: ranged},
		"no tag, no length":         {open: true, header: "Etag", want: unranged},
		"a 203":                     {status: 203, want: whole},
		"a 299":                     {status: 299, want: whole},
		"a 300":                     {status: 300, err: ErrStatus},
		"coded":                     {header: "Content-Encoding: br", want: kept{true, true, 0, 10, 10, 10}},
		"coded, no length":          {open: true, header: "Content-Encoding: br", want: unranged},
		"not coded, no length":      {open: true, header: "Content-Encoding: Identity", want: ranged},
		"coded twice":               {header: "Content-Encoding: br\nContent-Encoding: br", want: whole},
		"several parts":             {open: true, header: "Content-Type: Multipart/Byteranges; x", want: unranged},
		"a watch":                   {open: true, header: "Content-Type: a/b", query: "watch=true", err: ErrStream},
		"a watch in short":          {open: true, header: "Content-Type: a/b", query: "watch=1", err: ErrStream},
		"a watch by its type":       {open: true, header: "Content-Type: a/b;stream=watch", err: ErrStream},
		"no watch":                  {open: true, header: "Content-Type: a/b", want: ranged},
		"a watch with a length":     {header: "Content-Type: a/b\nEtag", query: "watch=1", want: whole},
		"a type like a stream":      {open: true, header: "Content-Type: application/ndjsop", want: ranged},
		"a range as a whole":        {asked: "0-4", want: whole},
		"a part without a 206":      {header: "Content-Range: bytes 0-9/10", err: ErrRange},
		"a part":                    {part: "5-14/100", asked: "5-14", want: kept{true, false, 5, 15, 15, 100}},
		"a part of some whole":      {part: "5-14/*", asked: "5-14", want: kept{true, false, 5, 15, 15, unknown}},
		"a part that was not asked": {part: "5-14/100", want: kept{false, true, 5, unknown, unknown, 15}},
		"a part of another length":  {part: "5-13/100", asked: "5-13", want: kept{false, true, 5, unknown, unknown, 15}},
		"a part without a range":    {part: "*/100", asked: "5-14", want: whole},
		"many parts":                {header: "Content-Type: multipart/byteranges", part: "5-14/100", asked: "5-14", want: whole},
		"decompressed":              {want: whole},
	} {
		req := getRequest(t, "http://h.test/?"+row.query)
		resp := response(req, cmp.Or(row.status, 200), http.NoBody, `ETag: "v1"`)
		resp.Uncompressed = name == "decompressed"
		if resp.ContentLength = length; row.open {
			resp.ContentLength = -1
		}
		for line := range strings.SplitSeq(row.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				resp.Header.Add(name, value)
			} else {
				resp.Header.Del(name)
			}
		}
		if row.asked != "" {
			req.Header.Set("Range", "bytes="+row.asked)
		}
		if row.part != "" {
			resp.StatusCode = 206
			resp.Header.Set("Content-Range", "bytes "+row.part)
		}
		plan, err := Check(req, resp, &Terms{Again: again})
		if assert.Equal(t, row.err, err, name); err != nil {
			continue
		}
		assert.Equal(t, row.want, kept{!plan.Compares, plan.keeps, plan.begin, plan.end, plan.stop, plan.total}, name)
		assert.Equal(t, row.want.ranged, plan.validator != "", name)
		assert.Equal(t, row.want.keeps, plan.header != 0, name)
		assert.Equal(t, plan.begin, plan.pos, name)
		assert.EqualValues(t, again, plan.left, name)
	}
}

// Only GET and QUERY have ranges. Other requests are sent again if they may be.
func TestCheckOfMethods(t *testing.T) {
	for method, want := range map[string][2]error{"": {nil, nil}, "GET": {nil, nil}, "QUERY": {nil, nil}, "HEAD": {ErrMethod, nil}, "PUT": {ErrMethod, nil}} {
		for i, repeatable := range []bool{false, true} {
			resp := &http.Response{StatusCode: 200, ContentLength: 10, Header: http.Header{"Etag": {`"a"`}}}
			plan, err := Check(&http.Request{Method: method}, resp, &Terms{Again: 1, Repeatable: repeatable})
			assert.Equal(t, want[i], err, "%s %v", method, repeatable)
			assert.Equal(t, want[i] == nil && want[0] != nil, plan.Compares, "%s %v", method, repeatable)
		}
		_, err := Check(&http.Request{Method: method}, &http.Response{StatusCode: 200, ContentLength: 10}, &Terms{Repeatable: true})
		assert.Error(t, err, "%s: nothing is fetched a second time", method)
		assert.NotEqual(t, ErrMethod, err, "%s may be repeated", method)
	}
	piped := &http.Request{Method: http.MethodGet, Body: readCloser{}}
	for _, repeatable := range []bool{false, true} {
		_, err := Check(piped, &http.Response{StatusCode: 200, ContentLength: 10}, &Terms{Again: 1, Repeatable: repeatable})
		assert.Equal(t, ErrBody, err, "its body is not at hand again")
	}
}
