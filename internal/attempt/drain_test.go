package attempt

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/internal/replay"
)

// A scripted body reads and closes as it is told.
type scripted struct {
	read   func(p []byte) (int, error)
	close  func()
	closes atomic.Int32
}

func (b *scripted) Read(p []byte) (int, error) { return b.read(p) }
func (b *scripted) Close() error {
	b.closes.Add(1)
	if b.close != nil {
		b.close()
	}
	return nil
}

// bytesOf reads n bytes in pieces, the last with the end of the body.
func bytesOf(n int) func(p []byte) (int, error) {
	r := io.LimitReader(neverEnds{}, int64(n))
	return r.Read
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return min(len(p), 1000), nil }

// A drain reads a body to its end if it is short enough, and closes it once in any case.
func TestDrain(t *testing.T) {
	hang := func() { time.Sleep(time.Hour) }
	later := time.Duration(0)
	for name, row := range map[string]struct {
		length int64
		read   func(p []byte) (int, error)
		close  func()
		gone   bool          // the caller
		late   bool          // there is no time to read
		zipped bool          // net/http decompresses it, so only the end of its context surely ends a Read
		timed  bool          // its Close ends its context
		end    time.Duration // of the caller's time; 0: it has no deadline
		whole  int           // bytes; -1: it is not whole
		took   time.Duration
	}{
		"short":                    {length: 10, read: bytesOf(10), whole: 10},
		"of unknown length":        {length: -1, read: bytesOf(10), whole: 10},
		"as long as may be":        {length: 64 << 10, read: bytesOf(64 << 10), whole: 64 << 10},
		"too long":                 {length: -1, read: bytesOf(64<<10 + 1), whole: -1},
		"known to be too long":     {length: 64<<10 + 1, read: func([]byte) (int, error) { panic("it is read") }, whole: -1},
		"the caller has gone":      {length: 10, read: func([]byte) (int, error) { t.Error("it is read"); return 0, io.EOF }, gone: true, whole: -1},
		"gzipped":                  {length: -1, read: func([]byte) (int, error) { t.Error("it is read"); return 0, io.EOF }, zipped: true, whole: -1},
		"gzipped, timed":           {length: -1, read: bytesOf(10), zipped: true, timed: true, whole: 10},
		"gzipped, with a deadline": {length: -1, read: func([]byte) (int, error) { t.Error("it is read"); return 0, io.EOF }, zipped: true, end: time.Hour, whole: -1},
		"no time":                  {length: 10, read: func([]byte) (int, error) { t.Error("it is read"); return 0, io.EOF }, late: true, whole: -1},
		"no time, its Close hangs": {length: 10, read: bytesOf(10), close: hang, late: true, whole: -1, took: 5 * time.Millisecond},
		"its Read hangs":           {length: 10, read: func([]byte) (int, error) { hang(); return 0, io.EOF }, whole: -1, took: 250 * time.Millisecond},
		"the caller leaves":        {length: 10, read: func([]byte) (int, error) { hang(); return 0, io.EOF }, end: time.Second / 9, whole: -1, took: time.Second / 9},
		"long, its Close hangs":    {length: 64<<10 + 1, close: hang, whole: -1, took: 250 * time.Millisecond},
		"its Close hangs":          {length: 10, read: bytesOf(10), close: hang, whole: -1, took: 250 * time.Millisecond},
		"a byte now and then": {length: -1, read: func([]byte) (int, error) {
			assert.LessOrEqual(t, later, 250*time.Millisecond)
			time.Sleep(time.Millisecond)
			later += time.Millisecond
			return 1, nil
		}, whole: -1, took: 250 * time.Millisecond},
		"an error":                {length: 10, read: func([]byte) (int, error) { return 3, io.ErrUnexpectedEOF }, whole: -1},
		"a panic":                 {length: 10, read: func([]byte) (int, error) { panic("read") }, whole: -1},
		"a panic of Close":        {length: 10, read: bytesOf(10), close: func() { panic("close") }, whole: 10},
		"an end of its goroutine": {length: 10, read: func([]byte) (int, error) { runtime.Goexit(); return 0, nil }, whole: -1},
		"a bad count":             {length: 10, read: func(p []byte) (int, error) { return len(p) + 1, nil }, whole: -1},
		"empty Reads for ever":    {length: 10, read: func([]byte) (int, error) { time.Sleep(time.Millisecond); return 0, nil }, whole: -1, took: 250 * time.Millisecond},
	} {
		inBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.gone {
				cancel()
			}
			until := time.Now().Add(250 * time.Millisecond)
			if row.late {
				until = time.Now()
			}
			if row.end > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.end)
				defer cancel()
			}
			b, w, began := &scripted{read: row.read, close: row.close}, new(bytes.Buffer), time.Now()
			resp := &http.Response{Body: b, ContentLength: row.length, Uncompressed: row.zipped}
			if row.timed {
				resp.Body = &attemptBody{ReadCloser: b, ctx: attemptOf(ctx, hourly)}
			}
			whole := (&drain{to: w}).within(ctx, resp, until)
			assert.Equal(t, row.took, time.Since(began))
			assert.Equal(t, row.whole >= 0, whole)
			if whole {
				assert.Equal(t, row.whole, w.Len())
			}
			time.Sleep(2 * time.Hour)
			assert.EqualValues(t, 1, b.closes.Load(), "Closes")
		})
	}
}

// A Close during a Read ends the context first, because the base's Close may wait for the Read.
func TestCloseDuringARead(t *testing.T) {
	for _, first := range []string{"Read", "Close"} {
		synctest.Test(t, func(t *testing.T) {
			a := attemptOf(t.Context(), hourly)
			wait := func() { <-a.Done() }
			b := &attemptBody{&scripted{read: func([]byte) (int, error) { wait(); return 0, a.Err() }, close: wait}, a}
			began, calls := time.Now(), map[string]func(){"Read": func() { _, _ = b.Read(nil) }, "Close": func() { _ = b.Close() }}
			go calls[first]()
			synctest.Wait()
			assert.NoError(t, a.Err())
			delete(calls, first)
			for _, call := range calls {
				call()
			}
			assert.ErrorIs(t, a.Err(), context.Canceled)
			assert.Zero(t, time.Since(began))
		})
	}
}

// A body in memory is closed without a goroutine, however little time there is.
func TestDrainOfABodyInMemory(t *testing.T) {
	small := func() io.ReadCloser { return io.NopCloser(strings.NewReader("news")) }
	watched := &watchedBody{attemptBody: attemptBody{ReadCloser: small(), ctx: attemptOf(t.Context(), hourly)}}
	for name, row := range map[string]struct {
		body io.ReadCloser
		want bool
	}{
		"plain":          {small(), true},
		"of an attempt":  {&attemptBody{small(), attemptOf(t.Context(), hourly)}, true},
		"that may stall": {watched, true},
		"with its slot":  {&slotBody{ReadCloser: &attemptBody{ReadCloser: small()}}, true},
		"large":          {io.NopCloser(bytes.NewReader(make([]byte, replay.Small+1))), false},
		"another":        {body("news"), false},
	} {
		small, _ := InMemory(row.body)
		assert.Equal(t, row.want, small, name)
	}
	a := attemptOf(t.Context(), hourly)
	Dismiss(t.Context(), &http.Response{Body: &attemptBody{ReadCloser: small(), ctx: a}})
	assert.Error(t, a.Err(), "its body is closed")
}

// A response that the caller may still get is kept whole, or not at all.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room Room
		resp := &http.Response{StatusCode: 503, Body: body("later"), ContentLength: 5}
		kept := Keep(t.Context(), resp, time.Now().Add(second), &room)
		text, err := io.ReadAll(kept.Response.Body)
		assert.NoError(t, err)
		assert.Equal(t, "later", string(text))
		assert.Equal(t, 503, kept.Response.StatusCode)
		assert.NotSame(t, resp, kept.Response)
		kept.End(true)
		assert.Zero(t, Keep(t.Context(), &http.Response{Body: body("later")}, time.Now(), &room), "there was no time")
		assert.Zero(t, Keep(t.Context(), nil, time.Now().Add(second), &room))
		assert.Zero(t, room.used.Load())
	})
}

// A small body in memory is kept as it is, and takes no room. It is closed if nobody gets it. That of an attempt with
// a context of its own is read, because its Close ends the context.
func TestKeptAsItIs(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		var room Room
		b := &http.Response{Body: http.NoBody}
		kept := Keep(t.Context(), b, time.Time{}, &room)
		assert.Same(t, b, kept.Response)
		kept.End(delivered)
		assert.Zero(t, room.used.Load())

		small := &http.Response{Body: io.NopCloser(strings.NewReader("news")), ContentLength: 4}
		kept = Keep(t.Context(), small, time.Time{}, &room)
		assert.Same(t, small, kept.Response)
		assert.Zero(t, room.used.Load())

		closed := &scripted{}
		kept.Response.Body = closed
		kept.End(delivered)
		assert.Equal(t, !delivered, closed.closes.Load() == 1, "closed if nobody gets it")
	}
	var room Room
	a := attemptOf(t.Context(), hourly)
	own := &http.Response{Body: &attemptBody{io.NopCloser(strings.NewReader("news")), a}, ContentLength: 4}
	kept := Keep(t.Context(), own, time.Time{}, &room)
	assert.Same(t, own, kept.Response)
	assert.NoError(t, a.Err())
	kept.End(false)
	assert.Error(t, a.Err(), "its body is closed")
	assert.Zero(t, room.used.Load())
	new(Kept).End(false)
}

// All responses that are kept take at most 16 MiB. Each has as much room as its body, and gives it back at its end. If a
// body may be as long as a drain allows, it needs so much room before it is read.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, 16<<20, maxKept)
		keep := func(room *Room, known, n int64, read func([]byte) (int, error)) (Kept, *scripted) {
			b := &scripted{read: read}
			if read == nil {
				b.read = bytesOf(int(n))
			}
			return Keep(t.Context(), &http.Response{Body: b, ContentLength: known}, time.Now().Add(second), room), b
		}
		for name, row := range map[string]struct {
			used  int64 // by others
			known int64 // length
			n     int64
			read  func([]byte) (int, error)
			kept  bool
			peak  int64 // that it takes before it is read
		}{
			"empty":                {known: 0, kept: true},
			"short":                {known: 10, n: 10, kept: true, peak: 10},
			"of unknown length":    {known: -1, n: 10, kept: true, peak: DrainBytes},
			"as long as may be":    {known: DrainBytes, n: DrainBytes, kept: true, peak: DrainBytes},
			"known to be too long": {known: DrainBytes + 1, n: DrainBytes + 1, peak: DrainBytes},
			"too long":             {known: -1, n: DrainBytes + 1, peak: DrainBytes},
			"it breaks":            {known: 10, read: func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }, peak: 10},
			"the last room":        {used: maxKept - 10, known: 10, n: 10, kept: true, peak: 10},
			"no room":              {used: maxKept - 9, known: 10, n: 10},
			"perhaps no room":      {used: maxKept - DrainBytes + 1, known: -1, n: 10},
			"room for the longest": {used: maxKept - DrainBytes, known: -1, n: 10, kept: true, peak: DrainBytes},
		} {
			var room Room
			room.used.Store(row.used)
			var peak int64
			read := row.read
			if read == nil {
				read = bytesOf(int(row.n))
			}
			kept, b := keep(&room, row.known, row.n, func(p []byte) (int, error) { peak = room.used.Load() - row.used; return read(p) })
			assert.EqualValues(t, 1, b.closes.Load(), "%s: the body of the base is closed", name)
			assert.Equal(t, row.kept, kept.Response != nil, name)
			if row.known <= DrainBytes {
				assert.Equal(t, row.peak, peak, name)
			}
			size := map[bool]int64{true: row.n}[row.kept]
			assert.Equal(t, row.used+size, room.used.Load(), name)
			kept.End(true)
			assert.Equal(t, row.used, room.used.Load(), "%s: it gives its room back", name)
		}
		var room Room
		var all []Kept
		for range 300 {
			if kept, _ := keep(&room, -1, DrainBytes, nil); kept.Response != nil {
				all = append(all, kept)
			}
		}
		assert.Len(t, all, maxKept/DrainBytes)
		for i := range all {
			all[i].End(i%2 == 0)
		}
		assert.Zero(t, room.used.Load())
	})
}

// Discard takes a quarter of a second at most, and Dismiss only the time of a Close.
func TestDiscardAndDismiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func() *http.Response {
			return &http.Response{Body: &scripted{read: func([]byte) (int, error) { time.Sleep(time.Hour); return 0, io.EOF }, close: func() { time.Sleep(time.Hour) }}}
		}
		began := time.Now()
		Discard(t.Context(), hangs())
		assert.Equal(t, 250*time.Millisecond, time.Since(began))
		began = time.Now()
		Dismiss(t.Context(), hangs())
		assert.Equal(t, 5*time.Millisecond, time.Since(began))
		time.Sleep(3 * time.Hour)
		for _, nothing := range []*http.Response{nil, {}, {Body: http.NoBody}} {
			Discard(t.Context(), nothing)
		}
	})
}
