package resume

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A 200 to a request for the rest is used only if it is the same representation, and if
// there are not too many bytes to skip.
func TestAWholeResponseForTheRest(t *testing.T) {
	for name, tt := range map[string]struct {
		body   func(*Body)
		second func(*http.Response)
		err    string // "": it is used
	}{
		"the same":           {},
		"another status":     {second: func(r *http.Response) { r.StatusCode = 203 }, err: "its status is 203"},
		"no body":            {second: func(r *http.Response) { r.Body = nil }, err: "no body"},
		"decompressed":       {second: func(r *http.Response) { r.Uncompressed = true }, err: "its header differs"},
		"another encoding":   {second: func(r *http.Response) { r.Header.Set("Content-Encoding", "gzip") }, err: "its header differs"},
		"two encodings":      {second: func(r *http.Response) { r.Header["Content-Encoding"] = []string{"", ""} }, err: "its header differs"},
		"another length":     {second: func(r *http.Response) { r.ContentLength = 11 }, err: "its header differs"},
		"no length":          {second: func(r *http.Response) { r.ContentLength = -1 }, err: "its header differs"},
		"neither has one":    {body: func(b *Body) { b.end = unknown }, second: func(r *http.Response) { r.ContentLength = -1 }},
		"another validator":  {second: func(r *http.Response) { r.Header.Set("Etag", `"v2"`) }, err: "its header differs"},
		"no validator":       {second: func(r *http.Response) { r.Header.Del("Etag") }, err: "its header differs"},
		"another digest":     {second: func(r *http.Response) { r.Header.Set("Repr-Digest", "sha-256=:BBBB:") }, err: "its header differs"},
		"another type":       {second: func(r *http.Response) { r.Header.Set("Content-Type", "a/b") }, err: "its header differs"},
		"nothing kept":       {body: func(b *Body) { b.keeps = false }, err: "were not kept"},
		"nothing left":       {body: func(b *Body) { b.left = 0 }, err: "Resume.Again"},
		"just enough left":   {body: func(b *Body) { b.left = 4 }},
		"not enough is left": {body: func(b *Body) { b.left = 3 }, err: "Resume.Again"},
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
		c, err := b.check(second)
		if tt.err != "" {
			assert.ErrorContains(t, err, tt.err, name)
			continue
		}
		assert.NoError(t, err, name)
		assert.EqualValues(t, 4, c.skip, name)
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
		"a QUERY with a pipe":      {&http.Request{Method: "QUERY", Body: readCloser{}}, http.Header{"Etag": {`"a"`}}, false, ErrMethod, false},
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
}

// query returns a QUERY with a body that net/http makes again.
func query(text string) *http.Request {
	req, _ := http.NewRequest("QUERY", "http://h.test/", strings.NewReader(text))
	return req
}

type readCloser struct{}

func (readCloser) Read([]byte) (int, error) { return 0, nil }
func (readCloser) Close() error             { return nil }
