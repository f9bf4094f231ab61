package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/resume"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/transport"
)

// A trailerBody sets its response's trailer at its end, as net/http does.
type trailerBody struct {
	io.Reader
	resp    **http.Response
	trailer http.Header
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		for name, values := range b.trailer {
			(*b.resp).Trailer[name] = values
		}
	}
	return n, err
}

func (b *trailerBody) Close() error { return nil }

// withTrailer is a response with an announced trailer that comes at its end.
func withTrailer(req *http.Request, code int, body io.Reader, trailer http.Header, header ...string) *http.Response {
	var resp *http.Response
	resp = newResponse(req, code, &trailerBody{body, &resp, trailer}, header...)
	resp.Trailer = http.Header{}
	for name := range trailer {
		resp.Trailer[name] = nil
	}
	return resp
}

// Given a body without a length that is cut, when the rest gets a 416 whose total
// is the number of bytes read, then the body is complete.
func TestUnsatisfiableRestProvesTheEnd(t *testing.T) {
	const text = "0123456789"
	for _, row := range []struct {
		name   string
		code   int
		header []string
		length int64
		rng    string
		ok     bool
	}{
		{name: "bytes */10", code: 416, header: []string{"Content-Range: bytes */10"}, ok: true},
		{name: "with the validator", code: 416, header: []string{"Content-Range: BYTES */10", `ETag: "v1"`}, ok: true},
		{name: "under another validator", code: 416, header: []string{"Content-Range: bytes */10", `ETag: "v2"`}},
		{name: "under a weak validator", code: 416, header: []string{"Content-Range: bytes */10", `ETag: W/"v1"`}},
		{name: "longer", code: 416, header: []string{"Content-Range: bytes */11"}},
		{name: "shorter", code: 416, header: []string{"Content-Range: bytes */9"}},
		{name: "unknown total", code: 416, header: []string{"Content-Range: bytes */*"}},
		{name: "a range", code: 416, header: []string{"Content-Range: bytes 0-9/10"}},
		{name: "another unit", code: 416, header: []string{"Content-Range: items */10"}},
		{name: "twice", code: 416, header: []string{"Content-Range: bytes */10", "Content-Range: bytes */10"}},
		{name: "no total", code: 416},
		{name: "404", code: 404, header: []string{"Content-Range: bytes */10"}},
		{name: "an end was promised", code: 416, header: []string{"Content-Range: bytes */10"}, length: 20},
		{name: "a range was promised", code: 416, header: []string{"Content-Range: bytes */10"}, rng: "bytes 0-19/*"},
	} {
		t.Run(row.name, func(t *testing.T) {
			first := func(req *http.Request) (*http.Response, error) {
				code, header := 200, []string{`ETag: "v1"`}
				if row.rng != "" {
					code, header = 206, append(header, "Content-Range: "+row.rng)
				}
				resp := newResponse(req, code, testkit.CutAt(text, io.ErrUnexpectedEOF), header...)
				if row.length > 0 {
					resp.ContentLength = row.length
				}
				return resp, nil
			}
			base := script(first, status(row.code, row.header...))
			req := newRequest(t, http.MethodGet, "http://h.test/", nil)
			if row.rng != "" {
				req.Header.Set("Range", "bytes=0-19")
			}
			resp, err := over(t, transport.Config{Rule: quick}, base).RoundTrip(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, text, string(got))
			base.sent(t, 2)
			if row.ok {
				assert.NoError(t, err)
			} else {
				assert.Equal(t, io.ErrUnexpectedEOF, err)
			}
		})
	}
}

// A 416 does not bring back announced trailers that are lost.
func TestUnsatisfiableRestWithLostTrailers(t *testing.T) {
	first := func(req *http.Request) (*http.Response, error) {
		return withTrailer(req, 200, testkit.CutAt("0123456789", io.ErrUnexpectedEOF), http.Header{"X-T": nil}, `ETag: "v1"`), nil
	}
	resp, err := get(t, over(t, transport.Config{Rule: quick}, script(first, status(416, "Content-Range: bytes */10"))), t.Context())
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
}

// Given a server of net/http whose chunked response is cut before its last chunk,
// its response to the request for the rest proves that nothing is missing.
func TestCutBeforeTheLastChunk(t *testing.T) {
	const text = "some text"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if req.Header.Get("Range") != "" {
			http.ServeContent(w, req, "text.txt", time.Time{}, strings.NewReader(text))
			return
		}
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	tr := mustNew(t, transport.Config{Rule: quick})
	defer tr.CloseIdleConnections()
	resp := mustRoundTrip(t, tr, newRequest(t, http.MethodGet, srv.URL, nil))
	got, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	assert.Equal(t, text, string(got))
}

// Callers compare errors with ==. Given a body whose first reconnect shows that it
// cannot be resumed, then the body ends with the base transport's own error, and
// the event has the reason.
func TestNotResumedEndsWithTheBareError(t *testing.T) {
	for name, next := range map[string]answer{
		"200":               status(200, `ETag: "v1"`),
		"404":               status(404),
		"416":               status(416),
		"another validator": status(206, `ETag: "v2"`, "Content-Range: bytes 4-9/10"),
		"another start":     status(206, `ETag: "v1"`, "Content-Range: bytes 5-9/10"),
		"an error that no retry would help against": faults.Fail(errors.New("bad request")),
		"503, and then 404":                         nil,
	} {
		for _, size := range []int{4, resume.MinProgress} {
			t.Run(name, func(t *testing.T) {
				first := func(req *http.Request) (*http.Response, error) {
					resp := newResponse(req, 200, testkit.CutAt(strings.Repeat("x", size), io.ErrUnexpectedEOF), `ETag: "v1"`)
					resp.ContentLength = 1 << 20
					return resp, nil
				}
				base := script(first, next)
				if next == nil {
					base = script(first, status(503), status(404))
				}
				seen := &recorder{}
				resp, err := get(t, over(t, transport.Config{Rule: quick}, base), seen.on(t.Context()))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				assert.Len(t, got, size)
				assert.True(t, err == io.ErrUnexpectedEOF, "%T: %v", err, err)
				_, again := resp.Body.Read(make([]byte, 1))
				assert.True(t, again == io.ErrUnexpectedEOF)
				last := seen.all[len(seen.all)-1]
				assert.Contains(t, []transport.Reason{transport.ReasonMismatch, transport.ReasonFinal}, last.Reason)
				assert.EqualValues(t, size, last.Offset)
				assert.Error(t, last.Err)
				var e *transport.ResumeError
				if last.Reason == transport.ReasonMismatch && assert.ErrorAs(t, last.Err, &e) {
					assert.Error(t, e.Cause)
				}
			})
		}
	}
}

// Given a body that was continued once and cannot be continued again, then its
// error says where it ended and why.
func TestNotResumedAgainEndsWithAResumeError(t *testing.T) {
	first := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 200, testkit.CutAt("0123", io.ErrUnexpectedEOF), `ETag: "v1"`), nil
	}
	second := func(req *http.Request) (*http.Response, error) {
		return newResponse(req, 206, testkit.CutAt("45", io.ErrUnexpectedEOF), `ETag: "v1"`, "Content-Range: bytes 4-9/10"), nil
	}
	resp, err := get(t, over(t, transport.Config{Rule: quick}, script(first, second, status(404))), t.Context())
	require.NoError(t, err)
	var got bytes.Buffer
	_, err = got.ReadFrom(resp.Body)
	assert.Equal(t, "012345", got.String())
	e := errorAs[*transport.ResumeError](t, err)
	assert.Equal(t, transport.ReasonMismatch, e.Reason)
	assert.EqualValues(t, 6, e.Offset)
}
