// A caller: what it asks, and what it gets.

package paired

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// An outcome is what a call got.
type outcome struct {
	began   time.Duration
	head    time.Duration // when the headers came; never: they did not
	first   time.Duration // when the first byte of the body came
	ended   time.Duration
	gap     time.Duration // the longest time of a Read
	status  int
	header  http.Header
	body    []byte
	err     error // of the call or of the body; nil: the caller has what it wanted
	ofBody  bool  // err is that of the body
	endless bool  // it had not ended at the horizon
	late    bool  // its deadline has passed
	skipped bool  // its caller's call before it had not ended at the horizon
	source  bool  // the source of the request's body failed
}

// took returns how long the call took.
func (o *outcome) took() time.Duration { return o.ended - o.began }

// errSource is the error of a broken source.
var errSource = errors.New("the source of the body is broken")

// brokenBy are what sources of bodies fail with. Some look like errors of a connection.
var brokenBy = [...]error{
	errSource,
	fmt.Errorf("%w: %w", errSource, io.ErrUnexpectedEOF),
	&net.OpError{Op: "read", Net: "tcp", Err: fmt.Errorf("%w: %w", errSource, syscall.ECONNRESET)},
	fmt.Errorf("%w: %w", errSource, os.ErrDeadlineExceeded),
}

// A source is a body that fails after some bytes.
type source struct {
	r      io.Reader
	by     error
	failed *bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err == io.EOF {
		*s.failed = true
		return n, s.by
	}
	return n, err
}

// errTime is that of the bare transport with a timeout.
var errTime = errors.New("no headers in time")

// pauseOfReader is that of a slow one, after each Read.
const pauseOfReader = 50 * time.Millisecond

// ask makes a call. If n is set, it is the ghost of its nth arrival.
func (w *world) ask(ctx context.Context, client http.RoundTripper, c *call, n int) (o outcome) {
	if ctx.Err() != nil {
		return outcome{skipped: true, err: ctx.Err(), head: never, first: never}
	}
	w.asked.Add(1)
	if c.strike != nil && n == 0 { // in the middle of the call
		time.AfterFunc(w.plan.takes(c, 1)/2, func() { w.strike(c.strike) })
	}
	horizon := ctx
	if c.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	var timer *time.Timer
	if w.kind.timeout > 0 {
		limited, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		timer = time.AfterFunc(w.kind.timeout, func() { cancel(errTime) })
		defer timer.Stop()
		ctx = limited
	}
	failed := false
	o = outcome{began: w.now(), head: never, first: never}
	defer func() {
		o.ended = w.now()
		o.source = failed
		if o.err != nil {
			o.endless = horizon.Err() != nil
			o.late = c.deadline > 0 && o.took() >= c.deadline
		}
	}()
	resp, err := client.RoundTrip(w.request(ctx, c, n, &failed))
	if timer != nil {
		timer.Stop()
	}
	if err != nil {
		o.err = err
		return o
	}
	defer resp.Body.Close()
	o.head, o.status, o.header = w.now(), resp.StatusCode, resp.Header.Clone()
	w.read(c, resp.Body, &o)
	return o
}

// request makes the request of a call.
func (w *world) request(ctx context.Context, c *call, n int, failed *bool) *http.Request {
	var body io.Reader
	if c.route.size > 0 {
		body = bytes.NewReader(text(c.route.size, w.plan.seed, uint64(c.id)))
		if c.fails > 0 && n == 0 {
			body = &source{io.LimitReader(body, int64(c.fails)), brokenBy[c.id/2%len(brokenBy)], failed}
		}
	}
	req, err := http.NewRequestWithContext(ctx, c.route.method, w.plan.url(c), body)
	if err != nil {
		panic(err)
	}
	if c.fails > 0 && n == 0 {
		req.ContentLength = int64(c.route.size)
		if c.id%2 == 0 {
			req.GetBody = func() (io.ReadCloser, error) {
				again := bytes.NewReader(text(c.route.size, w.plan.seed, uint64(c.id)))
				return io.NopCloser(&source{io.LimitReader(again, int64(c.fails)), brokenBy[c.id/2%len(brokenBy)], failed}), nil
			}
		}
	}
	req.Header.Set(callField, strconv.Itoa(c.id))
	if n > 0 {
		req.Header.Set(ghostField, strconv.Itoa(n))
	}
	req.Header.Set("Accept-Encoding", "identity") // net/http decompresses nothing, so each byte is seen
	if c.route.doc.coded {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	token := "Bearer all"
	if c.route.tenant == "token" {
		token = fmt.Sprint("Bearer ", c.tenant)
	}
	req.Header.Set("Authorization", token)
	return req
}

// read reads a response as its caller does.
func (w *world) read(c *call, body io.Reader, o *outcome) {
	enough := -1 // bytes after which the caller reads no more
	if doc := c.route.doc; o.status == http.StatusOK && !doc.coded {
		switch c.reads {
		case decodes:
			enough = doc.size
		case leaves:
			enough = doc.size / 2
		}
	}
	p := make([]byte, 4096)
	for last := w.now(); enough < 0 || len(o.body) < enough; last = w.now() {
		room := len(p)
		if enough >= 0 {
			room = min(room, enough-len(o.body))
		}
		k, err := body.Read(p[:room])
		if k > 0 && o.first == never {
			o.first = w.now()
		}
		o.gap = max(o.gap, w.now()-last)
		o.body = append(o.body, p[:k]...)
		if err == io.EOF {
			return
		}
		if err != nil {
			o.err, o.ofBody = err, true
			return
		}
		if c.reads == readsSlowly {
			time.Sleep(pauseOfReader)
		}
	}
}
