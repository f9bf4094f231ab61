package resume

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A listener is the sender of an event stream that is never continued.
type listener struct {
	teller
	held int64
}

func (*listener) Lost(error) bool { return false }
func (*listener) Reconnect(*http.Request, int64, error, bool) (*http.Response, error) {
	return nil, io.ErrUnexpectedEOF
}
func (*listener) AtLeast(time.Duration) {}
func (*listener) Held() bool            { return false }
func (l *listener) Memory() func(int64) bool {
	return func(n int64) bool { l.held = n; return true }
}

// listen returns a stream with a body.
func listen(t *testing.T, body io.Reader) (*Events, *listener) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h.test/", nil)
	require.NoError(t, err)
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}
	e, l := new(Events), new(listener)
	e.Wrap(l, new(Body), req, resp, 5)
	return e, l
}

// After Close the reader gets no event that was kept.
func TestEventsAfterClose(t *testing.T) {
	e, _ := listen(t, iotest.OneByteReader(strings.NewReader("data: a\n\ndata: b\n\n")))
	p := make([]byte, 3)
	n, err := e.Read(p)
	require.NoError(t, err)
	assert.Equal(t, "dat", string(p[:n]))
	require.NoError(t, e.Close())
	_, err = e.Read(p)
	assert.Equal(t, http.ErrBodyReadAfterClose, err)
}

// The memory of a large event does not stay with the stream, and is given back.
func TestMemoryOfALargeEvent(t *testing.T) {
	large := "data: " + strings.Repeat("x", 200_000) + "\n\n"
	e, l := listen(t, io.MultiReader(strings.NewReader(large+"data: y"), iotest.ErrReader(io.ErrNoProgress)))
	p := make([]byte, 1000)
	most, got := int64(0), 0
	for got < len(large) {
		n, err := e.Read(p)
		require.NoError(t, err)
		got += n
		most = max(most, l.held)
	}
	assert.Equal(t, len(large), got)
	assert.GreaterOrEqual(t, most, int64(len(large)))
	assert.LessOrEqual(t, cap(e.buf), keptRoom, "the next event is under way")
	assert.Less(t, l.held, int64(1000))
	_, err := e.Read(p)
	assert.Equal(t, io.ErrNoProgress, err)
	assert.Empty(t, e.buf)
}

// An event that is too large passes through before it is complete.
func TestATooLargeEventPassesThrough(t *testing.T) {
	text := "id: 1\n\ndata: " + strings.Repeat("x", maxEvent)
	e, _ := listen(t, io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrNoProgress)))
	got, err := io.ReadAll(e)
	assert.Equal(t, io.ErrNoProgress, err)
	assert.Equal(t, len(text), len(got))
	assert.Equal(t, ErrBigEvent, e.cannot())
}

// A body that can still be read after Close takes no memory.
func TestMemoryOfEventsAfterClose(t *testing.T) {
	e, l := listen(t, strings.NewReader("data: "+strings.Repeat("x", 3*ownRoom)+"\n\n"))
	p := make([]byte, 2*ownRoom)
	n, err := e.body.Read(p)
	require.NoError(t, err)
	assert.Zero(t, e.take(p[:n]))
	assert.EqualValues(t, n, l.held)
	require.NoError(t, e.Close())
	assert.Zero(t, l.held)
	n, _ = e.body.Read(p[:ownRoom/2])
	assert.Zero(t, e.take(p[:n]))
	assert.Zero(t, l.held)
}
