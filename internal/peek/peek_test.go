package peek

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// A source is a body that checks that it is read by one reader at a time.
type source struct {
	io.Reader
	reading atomic.Bool
	reads   atomic.Int32
	closes  atomic.Int32
	onClose func() error
}

func (s *source) Read(p []byte) (int, error) {
	if !s.reading.CompareAndSwap(false, true) {
		panic("two Reads at a time")
	}
	defer s.reading.Store(false)
	s.reads.Add(1)
	return s.Reader.Read(p)
}

func (s *source) Close() error {
	s.closes.Add(1)
	if s.onClose != nil {
		return s.onClose()
	}
	return nil
}

func outcomeOf(body io.ReadCloser) Outcome {
	return Outcome{Response: &http.Response{StatusCode: 503, Body: body}}
}

func TestPeekKeepsTheBody(t *testing.T) {
	const text = "queue capacity reached"
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"in one piece":      func(r io.Reader) io.Reader { return r },
		"byte by byte":      iotest.OneByteReader,
		"in halves":         iotest.HalfReader,
		"data with the end": iotest.DataErrReader,
		"with empty Reads":  func(r io.Reader) io.Reader { return &stutter{r: r} },
	} {
		for _, n := range []int{1, 5, len(text), len(text) + 1, 1 << 20} {
			src := &source{Reader: wrap(strings.NewReader(text))}
			o := outcomeOf(src)
			want := text[:min(n, len(text))]
			assert.Equal(t, want, string(o.Peek(n)), name)
			assert.Equal(t, want[:1], string(o.Peek(1)), name)
			assert.Equal(t, text, string(o.Peek(100)), "%s: a longer look goes on", name)

			whole, err := io.ReadAll(o.Response.Body)
			require.NoError(t, err, name)
			assert.Equal(t, text, string(whole), name)
			require.NoError(t, o.Response.Body.Close())
			require.NoError(t, o.Response.Body.Close())
			assert.EqualValues(t, 1, src.closes.Load(), "times closed, %v", name)
			assert.Nil(t, o.Peek(1), "closed")
		}
	}
}

func TestPeekPassesTheReaderTest(t *testing.T) {
	text := strings.Repeat("0123456789", 2000)
	o := outcomeOf(&source{Reader: strings.NewReader(text)})
	o.Peek(7777)
	require.NoError(t, iotest.TestReader(o.Response.Body, []byte(text)))
}

// stutter returns nothing from every other Read.
type stutter struct {
	r    io.Reader
	odd  bool
	only bool
}

func (s *stutter) Read(p []byte) (int, error) {
	if s.odd = !s.odd; s.odd || s.only {
		return 0, nil
	}
	return s.r.Read(p)
}

func TestPeekOfNothing(t *testing.T) {
	body := func() io.ReadCloser { return &source{Reader: strings.NewReader("text")} }
	req := func(method string) *http.Request { return &http.Request{Method: method} }
	for name, o := range map[string]Outcome{
		"no response":      {},
		"no body":          {Response: &http.Response{StatusCode: 503}},
		"101":              {Response: &http.Response{StatusCode: 101, Body: body()}},
		"HEAD":             {Request: req("HEAD"), Response: &http.Response{StatusCode: 503, Body: body()}},
		"CONNECT":          {Request: req("CONNECT"), Response: &http.Response{StatusCode: 503, Body: body()}},
		"a response alone": {Response: &http.Response{StatusCode: 503, Body: body(), Request: req("HEAD")}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Nil(t, o.Peek(10))
			if o.Response == nil || o.Response.Body == nil {
				return
			}
			src, ok := o.Response.Body.(*source)
			require.True(t, ok, "pitfall 16: the body is not wrapped")
			assert.Zero(t, src.reads.Load(), "reads")
		})
	}
	o := outcomeOf(body())
	assert.Nil(t, o.Peek(0))
	assert.Nil(t, o.Peek(-1))
	assert.IsType(t, &source{}, o.Response.Body)

	o = outcomeOf(http.NoBody)
	assert.Equal(t, []byte{}, o.Peek(10))
	assert.Equal(t, http.NoBody, o.Response.Body)
}

func TestPeekReportsAnErrorInItsPlace(t *testing.T) {
	broken, reads := errors.New("broken"), 0
	for name, r := range map[string]io.Reader{
		"told once": readFunc(func(p []byte) (int, error) {
			if reads++; reads > 1 {
				return 0, io.EOF
			}
			return copy(p, "some"), broken
		}),
		"after the bytes": io.MultiReader(strings.NewReader("some"), iotest.ErrReader(broken)),
		"with the bytes":  iotest.DataErrReader(io.MultiReader(strings.NewReader("some"), iotest.ErrReader(broken))),
	} {
		o := outcomeOf(&source{Reader: r})
		assert.Equal(t, "some", string(o.Peek(100)), name)
		assert.Equal(t, "some", string(o.Peek(100)), name)
		got, err := io.ReadAll(o.Response.Body)
		assert.Equal(t, "some", string(got), name)
		require.ErrorIs(t, err, broken, name)
		_, err = o.Response.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, broken, name)
	}
}

// TestPeekedBytesStay: later Reads do not write over what Peek returned.
func TestPeekedBytesStay(t *testing.T) {
	o := outcomeOf(&source{Reader: strings.NewReader(strings.Repeat("a", 100) + strings.Repeat("b", 9000))})
	head := o.Peek(200)
	want := string(head)
	_, err := io.ReadFull(o.Response.Body, make([]byte, 150))
	require.NoError(t, err)
	assert.Equal(t, want, string(head))
}

func TestPeekGivesUpOnEmptyReads(t *testing.T) {
	src := &source{Reader: &stutter{only: true}}
	assert.Equal(t, []byte{}, outcomeOf(src).Peek(10))
	assert.EqualValues(t, 100, src.reads.Load(), "reads")
	some := &stutter{r: iotest.OneByteReader(strings.NewReader(strings.Repeat("a", 200)))}
	assert.Len(t, outcomeOf(&source{Reader: some}).Peek(200), 200, "not in a row")
	assert.Equal(t, []any{64 << 10, 4 << 10, 100, time.Second, 5 * time.Second, 50 * time.Millisecond},
		[]any{Limit, peekChunk, emptyReads, peekWait, briefly, closeGrace}, "the figures that the comments name")
}

// A patient is a source that says how long Peek may wait.
type patient struct {
	*source
	wait time.Duration
}

func (p patient) PeekWait() time.Duration { return p.wait }
func (p patient) ResumeTried() bool       { return p.wait > 0 }

// TestPeekIsBoundedInTime: a stalled body holds up the response for Wait,
// once, and what arrives later is not lost.
func TestPeekIsBoundedInTime(t *testing.T) {
	for name, tt := range map[string]struct{ wait, want time.Duration }{
		"by default": {0, time.Second},
		"shorter":    {100 * time.Millisecond, 100 * time.Millisecond},
		"longer":     {time.Minute, time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			r, w := io.Pipe()
			src := &source{Reader: r, onClose: r.Close}
			o := outcomeOf(patient{src, tt.wait})
			go func() { _, _ = io.WriteString(w, "some") }()

			start := time.Now()
			assert.Equal(t, "some", string(o.Peek(10)))
			assert.Equal(t, tt.want, time.Since(start))
			assert.Equal(t, tt.wait > 0, o.Response.Body.(*peekedBody).ResumeTried())
			assert.Equal(t, "some", string(o.Peek(10)))
			assert.Equal(t, "some", string(o.Peek(100)))
			assert.Equal(t, tt.want, time.Since(start), "one bound for all looks")

			go func() {
				time.Sleep(time.Hour)
				_, _ = io.WriteString(w, " more")
				_ = w.Close()
			}()
			synctest.Wait()
			assert.EqualValues(t, 2, src.reads.Load(), "one Read is waiting")
			whole, err := io.ReadAll(o.Response.Body)
			require.NoError(t, err)
			assert.Equal(t, "some more", string(whole))
			assert.Equal(t, tt.want+time.Hour, time.Since(start))
		})
	}
}

// TestPeekLateTakesWhatIsThere: when time is over no further Read is started,
// but what one brought meanwhile is seen.
func TestPeekLateTakesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		src := &source{Reader: r, onClose: r.Close}
		o := outcomeOf(src)
		assert.Empty(t, o.Peek(10))
		_, _ = io.WriteString(w, "late")
		synctest.Wait()
		assert.Equal(t, "late", string(o.Peek(10)))
		assert.EqualValues(t, 1, src.reads.Load(), "reads")
		require.NoError(t, o.Response.Body.Close())
	})
}

func TestPeekEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r, _ := io.Pipe()
		src := &source{Reader: r, onClose: r.Close}
		o := outcomeOf(src)
		o.Request = (&http.Request{Method: "GET"}).WithContext(ctx)
		start := time.Now()
		assert.Empty(t, o.Peek(10))
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		require.NoError(t, o.Response.Body.Close())

		src = &source{Reader: strings.NewReader("text")}
		o.Response.Body = src
		assert.Empty(t, o.Peek(10))
		assert.Zero(t, src.reads.Load(), "no Read for a caller who has gone")
	})
}

// closedWhileRead closes the body while a Read of it waits, and returns the error of the Read.
func closedWhileRead(t *testing.T, o Outcome) error {
	t.Helper()
	got := make(chan error)
	go func() {
		_, err := o.Response.Body.Read(make([]byte, 1))
		got <- err
	}()
	synctest.Wait()
	require.NoError(t, o.Response.Body.Close())
	return <-got
}

// TestCloseDoesNotWaitForARead: for net/http's bodies, whose Close ends their
// Read, and for those whose Close waits for it.
func TestCloseDoesNotWaitForARead(t *testing.T) {
	inBubble(t, "a Close that ends the Read", func(t *testing.T) {
		r, _ := io.Pipe()
		src := &source{Reader: r, onClose: r.Close}
		o := outcomeOf(src)
		o.Peek(1)
		start := time.Now()
		require.NoError(t, o.Response.Body.Close())
		assert.Zero(t, time.Since(start))
		_, err := o.Response.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})
	inBubble(t, "a Close that waits for the Read", func(t *testing.T) {
		response := make(chan struct{})
		var read sync.WaitGroup
		read.Add(1)
		src := &source{
			Reader: readFunc(func([]byte) (int, error) {
				defer read.Done()
				<-response
				return 0, io.EOF
			}),
			onClose: func() error { read.Wait(); return nil },
		}
		o := outcomeOf(src)
		o.Peek(1)
		start := time.Now()
		require.NoError(t, o.Response.Body.Close())
		require.NoError(t, o.Response.Body.Close())
		assert.Equal(t, 50*time.Millisecond, time.Since(start))
		close(response)
		synctest.Wait() // and the bubble ends only when all goroutines have
		assert.EqualValues(t, 1, src.closes.Load(), "times closed")
	})
	inBubble(t, "a Read of the caller's that waits", func(t *testing.T) {
		r, _ := io.Pipe()
		o := outcomeOf(&source{Reader: r, onClose: r.Close})
		o.Peek(1)
		require.Error(t, closedWhileRead(t, o))
	})
	inBubble(t, "a Read of the caller's, of a source whose Close ends nothing", func(t *testing.T) {
		response := make(chan struct{})
		o := outcomeOf(&source{Reader: readFunc(func([]byte) (int, error) { <-response; return 0, io.EOF })})
		o.Peek(1)
		require.ErrorIs(t, closedWhileRead(t, o), http.ErrBodyReadAfterClose)
		close(response)
	})
	inBubble(t, "a Read that has returned", func(t *testing.T) {
		r, w := io.Pipe()
		o := outcomeOf(&source{Reader: r, onClose: r.Close})
		o.Peek(1)
		_ = w.Close()
		synctest.Wait()
		require.NoError(t, o.Response.Body.Close())
	})
}

// Given a body that breaks the contract of io.Reader, a look at it ends there,
// and a later Read says so in the goroutine of whoever reads: a panic is raised
// again, and any other fault is an error.
func TestPeekOfABadBody(t *testing.T) {
	for name, row := range map[string]struct {
		read   func(p []byte) (int, error)
		panics any
	}{
		"Read panics":              {func([]byte) (int, error) { panic("bad body") }, "bad body"},
		"Read panics with nil":     {func([]byte) (int, error) { panic(nil) }, &runtime.PanicNilError{}},
		"Read ends its goroutine":  {func([]byte) (int, error) { runtime.Goexit(); return 0, nil }, nil},
		"a count above the length": {func(p []byte) (int, error) { return len(p) + 1, nil }, nil},
		"a negative count":         {func([]byte) (int, error) { return -1, nil }, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			first := true
			src := &source{Reader: readFunc(func(p []byte) (int, error) {
				if first {
					first = false
					return copy(p, "some"), nil
				}
				return row.read(p)
			})}
			o := outcomeOf(src)
			assert.Equal(t, "some", string(o.Peek(100)))
			assert.Equal(t, "some", string(o.Peek(200)))
			p := make([]byte, 100)
			n, err := o.Response.Body.Read(p)
			assert.Equal(t, "some", string(p[:n]))
			require.NoError(t, err)
			for range 2 {
				if row.panics != nil {
					func() {
						defer func() { assert.IsType(t, row.panics, recover()) }()
						_, _ = o.Response.Body.Read(p)
						t.Error("no panic")
					}()
					continue
				}
				n, err = o.Response.Body.Read(p)
				assert.Zero(t, n)
				assert.ErrorContains(t, err, "body's Read ")
			}
			require.NoError(t, o.Response.Body.Close())
			assert.EqualValues(t, 1, src.closes.Load(), "times closed")
		})
	}
}

// Given a Close that panics during a look's Read, the panic ends nothing else.
func TestCloseThatPanicsAfterPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		response := make(chan struct{})
		o := outcomeOf(&source{
			Reader:  readFunc(func([]byte) (int, error) { <-response; return 0, io.EOF }),
			onClose: func() error { panic("bad close") },
		})
		o.Peek(1)
		assert.NoError(t, o.Response.Body.Close())
		close(response)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// A coded body is peeked decoded, and read as it came.
func TestPeekDecodes(t *testing.T) {
	text := `{"error":{"code":"insufficient_quota"}}` + strings.Repeat(" ", 100<<10)
	code := func(w func(io.Writer) io.WriteCloser) string {
		var b bytes.Buffer
		z := w(&b)
		_, _ = io.WriteString(z, text)
		_ = z.Close()
		return b.String()
	}
	gzipped := code(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	for name, tt := range map[string]struct{ coding, body, want string }{
		"gzip":                     {"gzip", gzipped, text},
		"gzip, by its old name":    {"X-GZIP", gzipped, text},
		"gzip, cut":                {"gzip", gzipped[:64], text},
		"deflate":                  {"deflate", code(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }), text},
		"deflate without a frame":  {"deflate", code(func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z }), text},
		"not coded as it says":     {"gzip", text, text},
		"a coding that is unknown": {"br", gzipped, gzipped},
		"none":                     {"", text, text},
	} {
		for _, n := range []int{10, 64 << 10} {
			src := &source{Reader: iotest.HalfReader(strings.NewReader(tt.body))}
			o := outcomeOf(src)
			o.Response.Header = http.Header{"Content-Encoding": {tt.coding}}
			got := string(o.Peek(n))
			assert.LessOrEqual(t, len(got), n, name)
			assert.True(t, strings.HasPrefix(tt.want, got), "%s: %d bytes", name, len(got))
			assert.GreaterOrEqual(t, len(got), min(n, len(tt.want), 39), name)
			rest, err := io.ReadAll(o.Response.Body)
			require.NoError(t, err, name)
			assert.Equal(t, tt.body, string(rest), name)
		}
	}
}
