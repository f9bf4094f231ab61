package peek

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func streamOf(body io.Reader, header ...string) Outcome {
	h := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return Outcome{Response: &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Body: io.NopCloser(body)}}
}

func TestFirstEvent(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	for name, tt := range map[string]struct {
		text  string
		ok    bool
		event Event
	}{
		"plain":                  {"data: a\n\ndata: b\n\n", true, Event{Data: []byte("a")}},
		"with a type":            {"event: error\ndata: {}\n\n", true, Event{Type: "error", Data: []byte("{}")}},
		"comments first":         {": hello\n\n:\n\n\ndata:a\n\n", true, Event{Data: []byte("a")}},
		"CRLF":                   {"event: e\r\ndata: a\r\ndata: b\r\n\r\n", true, Event{Type: "e", Data: []byte("a\nb")}},
		"CR":                     {"event: e\rdata: a\rdata: b\r\r", true, Event{Type: "e", Data: []byte("a\nb")}},
		"a byte order mark":      {"\xef\xbb\xbfdata: a\n\n", true, Event{Data: []byte("a")}},
		"one space only":         {"data:  a\n\n", true, Event{Data: []byte(" a")}},
		"data without a colon":   {"data\n\n", true, Event{}},
		"an event without data":  {"event: a\n\nevent: b\nid: 1\ndata: c\n\n", true, Event{Type: "b", Data: []byte("c")}},
		"a skipped event":        {"event: ping\ndata: {}\n\ndata: a\n\n", true, Event{Data: []byte("a")}},
		"torn":                   {"data: a\n", false, Event{}},
		"nothing but comments":   {": a\n\n: b\n\n", false, Event{}},
		"longer than is read":    {"data: " + long + "\n\n", false, Event{}},
		"empty":                  {"", false, Event{}},
		"as long as can be read": {"data: " + long[:65528] + "\n\n", true, Event{Data: []byte(long[:65528])}},
	} {
		for way, wrap := range map[string]func(io.Reader) io.Reader{
			"in one piece": func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
		} {
			if way == "byte by byte" && len(tt.text) > 1000 {
				continue
			}
			o := streamOf(wrap(strings.NewReader(tt.text)))
			e, ok, err := o.FirstEvent(func(e Event) bool { return e.Type == "ping" })
			require.NoError(t, err, name)
			assert.Equal(t, tt.ok, ok, name)
			assert.Equal(t, tt.event.Type, e.Type, name)
			assert.Equal(t, string(tt.event.Data), string(e.Data), name)
			all, err := io.ReadAll(o.Response.Body)
			require.NoError(t, err)
			assert.Equal(t, tt.text, string(all), name)
		}
	}
}

// Only an event stream is looked at, and only if it can be read.
func TestFirstEventOfOtherResponses(t *testing.T) {
	src := &source{Reader: strings.NewReader("data: a\n\n")}
	for name, o := range map[string]Outcome{
		"JSON":       streamOf(src, "Content-Type", "application/json"),
		"compressed": streamOf(src, "Content-Encoding", "gzip"),
		"no type":    {Response: &http.Response{StatusCode: 200, Body: src}},
		"a failure":  {Response: &http.Response{StatusCode: 500, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: src}},
		"an error":   {Err: io.EOF},
	} {
		_, ok, err := o.FirstEvent(nil)
		assert.False(t, ok, name)
		assert.NoError(t, err, name)
	}
	assert.Zero(t, src.reads.Load(), "reads")
}

// The first event may take minutes. A look after it returns at once, and the reader
// waits for no byte that has arrived.
func TestFirstEventWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			for range 20 {
				time.Sleep(15 * time.Second)
				_, _ = io.WriteString(w, ": still here\n\n")
			}
			_, _ = io.WriteString(w, "data: a\n\n")
		}()
		start := time.Now()
		o := streamOf(r)
		for range 2 {
			_, ok, err := o.FirstEvent(nil)
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, 5*time.Minute, time.Since(start))
		}
		require.NoError(t, o.Response.Body.Close())
	})
}

// A body that fails, and a caller who has gone, are told.
func TestAwaitEnds(t *testing.T) {
	never := func([]byte) bool { return false }
	synctest.Test(t, func(t *testing.T) {
		cut := errors.New("cut")
		head, err := streamOf(io.MultiReader(strings.NewReader("da"), iotest.ErrReader(cut))).Await(100, never)
		assert.Equal(t, "da", string(head))
		assert.Equal(t, cut, err)
		_, _, err = streamOf(io.MultiReader(strings.NewReader("data: a\n\n"), iotest.ErrReader(cut))).FirstEvent(func(Event) bool { return true })
		assert.Equal(t, cut, err, "after an event that does not count")

		r, w := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o := streamOf(r)
		o.Request = (&http.Request{}).WithContext(ctx)
		start := time.Now()
		head, err = o.Await(100, never)
		assert.Empty(t, head)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(start))
		_ = w.Close()

		o = streamOf(strings.NewReader("abcdef"))
		head, err = o.Await(4, never)
		assert.NoError(t, err)
		assert.Equal(t, "abcd", string(head))
		assert.Equal(t, "abcdef", string(o.Peek(100)), "a later Peek has a time of its own")
		require.NoError(t, o.Response.Body.Close())
		head, err = o.Await(4, never)
		assert.Nil(t, head)
		assert.Error(t, err)

		r, w = io.Pipe()
		go func() { _, _ = io.WriteString(w, "data: a\n\n") }()
		o = streamOf(r)
		start = time.Now()
		for range 2 {
			_, ok, err := o.FirstEvent(func(Event) bool { return true })
			assert.False(t, ok)
			assert.NoError(t, err)
			assert.Equal(t, 5*time.Second, time.Since(start), "after an event that does not count")
		}
		_ = w.Close()

		head, err = Outcome{Response: &http.Response{StatusCode: 200, Body: http.NoBody}}.Await(4, never)
		assert.NotNil(t, head)
		assert.Equal(t, io.EOF, err)
	})
}

func FuzzFirstEvent(f *testing.F) {
	f.Add("event: a\r\ndata: b\r\n\r\n", uint8(3))
	f.Add("\xef\xbb\xbfdata\r\rdata:x\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		want, ok, _ := firstEvent([]byte(text), nil)
		for n := 0; n < len(text); n += int(step) + 1 {
			if got, early, _ := firstEvent([]byte(text[:n]), nil); early {
				assert.True(t, ok)
				assert.Equal(t, want, got)
			}
		}
	})
}
