package replay

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Small is the size in bytes up to which a body is always kept for another attempt.
const Small = 64 << 10

// nopCloser is the type that io.NopCloser returns for a reader with WriteTo, as all
// readers in memory have it.
var nopCloser = reflect.TypeOf(io.NopCloser((*strings.Reader)(nil)))

// netHTTPGetBody holds the code of the functions that net/http sets as GetBody.
// Each call of such a function returns a new reader.
var netHTTPGetBody = func() (code [3]uintptr) {
	for i, r := range []io.Reader{bytes.NewBufferString("x"), bytes.NewReader([]byte("x")), strings.NewReader("x")} {
		if req, err := http.NewRequest(http.MethodPost, "http://h/", r); err == nil {
			code[i] = reflect.ValueOf(req.GetBody).Pointer()
		}
	}
	return code
}()

// memoryReader returns the reader behind a body, also inside io.NopCloser, if
// net/http makes a GetBody for the reader's type. It returns nil for other types.
// net/http looks at the same types to decide how a body is written.
func memoryReader(body any) any {
	if reflect.TypeOf(body) == nopCloser {
		body = reflect.ValueOf(body).Field(0).Interface()
	}
	switch body.(type) {
	case *strings.Reader, *bytes.Reader, *bytes.Buffer:
		return body
	}
	return nil
}

// inMemory reports whether a body is one of net/http's in-memory types. Reading
// it cannot fail.
func inMemory(body any) bool { return memoryReader(body) != nil }

// length returns how many bytes are left in a body that need not be read: NoBody, or one of
// net/http's types in memory. Of others, known is false.
func length(body any) (n int64, known bool) {
	if r, ok := memoryReader(body).(interface{ Len() int }); ok {
		return int64(r.Len()), true
	}
	return 0, body == http.NoBody
}

// SmallInMemory reports whether a body is in memory and has at most [Small] bytes.
// Sending such a body takes next to no time.
func SmallInMemory(body any) bool {
	r, ok := memoryReader(body).(interface{ Len() int })
	return ok && r.Len() <= Small
}

// Independent reports whether the request's body shares no state with any result
// of its GetBody, and whether its Close does nothing. That is known only of net/http's own
// GetBody, which copies what the request was made with, and of a body like those that
// net/http makes. Any other GetBody may seek one reader back and return the same reader
// each time. Nearly every request with a body asks this, so it does not look for the reader
// within the body.
func Independent(req *http.Request) bool {
	if req.GetBody == nil || reflect.TypeOf(req.Body) != nopCloser {
		return false
	}
	code := reflect.ValueOf(req.GetBody).Pointer()
	return code == netHTTPGetBody[0] || code == netHTTPGetBody[1] || code == netHTTPGetBody[2]
}

// copyOf returns a copy of a body in memory. The copy delivers the bytes that are
// left in the body, and shares nothing else with it. If the body is not in memory,
// copyOf returns nil.
func copyOf(body io.ReadCloser) io.ReadCloser {
	switch r := memoryReader(body).(type) {
	case *strings.Reader:
		own := *r
		return io.NopCloser(&own)
	case *bytes.Reader:
		own := *r
		return io.NopCloser(&own)
	case *bytes.Buffer:
		return io.NopCloser(bytes.NewReader(r.Bytes()))
	}
	return nil
}

// A memoryBody is a Body in memory. The function makes a copy of it that shares no state with
// other copies, and does not fail. The first attempt has the caller's body itself. The
// Close of a body in memory does nothing, so nothing need be closed in the end.
type memoryBody func() (io.ReadCloser, error)

func (make memoryBody) Next(_ context.Context, n int) (io.ReadCloser, func() (io.ReadCloser, error)) {
	if n == 1 {
		return nil, nil
	}
	body, _ := make()
	return body, nil
}

func (memoryBody) Rewind(context.Context, time.Duration) (getBody bool, err error) { return false, nil }

func (memoryBody) Broke() bool                   { return false }
func (memoryBody) Replayable() bool              { return true }
func (memoryBody) Why() error                    { return nil }
func (memoryBody) Concurrent() bool              { return true }
func (memoryBody) GetBody(context.Context) error { return nil }
func (memoryBody) Detach(context.Context)        {}
func (memoryBody) Finish()                       {}
