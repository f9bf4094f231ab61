// Request bodies of all shapes. They check how they are read.

package simulate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var errBody = errors.New("simulate: the request's body failed")

// A reqBody is a caller's request body. It complains if two goroutines use it
// at the same time. Close is an exception, because a base transport may close a
// body during a Read.
type reqBody struct {
	call    *call
	content text
	size    int64
	using   atomic.Int32
	closed  chan struct{}
	closes  atomic.Int32

	mu  sync.Mutex // guards pos
	pos int64
}

func newReqBody(c *call) *reqBody {
	b := &reqBody{call: c, content: c.content, size: c.plan.size, closed: make(chan struct{})}
	c.bodies = append(c.bodies, b)
	return b
}

// use notes that a goroutine reads or seeks.
func (b *reqBody) use(what string) func() {
	if b.using.Add(1) > 1 {
		b.call.violate(OneReader, "a %s of the request's body beside another use of it", what)
	}
	return func() { b.using.Add(-1) }
}

func (b *reqBody) Read(p []byte) (int, error) {
	defer b.use("Read")()
	plan := b.call.plan
	time.Sleep(plan.slow)
	b.mu.Lock()
	pos := b.pos
	b.mu.Unlock()
	end := b.size
	if plan.fault != sound {
		end = plan.faultAt
	}
	if pos >= end {
		return 0, b.ended()
	}
	n := int(min(int64(len(p)), end-pos))
	b.content.fill(p[:n], pos)
	b.mu.Lock()
	b.pos = pos + int64(n)
	b.mu.Unlock()
	return n, nil
}

// ended returns the result of a Read at the end of the body or at its fault.
func (b *reqBody) ended() error {
	switch b.call.plan.fault {
	case fails:
		return errBody
	case panics:
		panic(&scripted{"the request's body"})
	case blocks:
		select {
		case <-b.closed:
		case <-b.call.world.over:
		}
		return errBody
	}
	return io.EOF
}

func (b *reqBody) Close() error {
	if b.closes.Add(1) == 1 {
		close(b.closed)
	}
	return nil
}

// A seekBody is a reqBody with a Seek method.
type seekBody struct{ *reqBody }

func (b seekBody) Seek(offset int64, whence int) (int64, error) {
	defer b.use("Seek")()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.size
	}
	b.pos = offset
	return offset, nil
}

// setBody gives the request its body, in the shape of the plan.
func (c *call) setBody(req *http.Request) {
	if c.plan.shape == noBody {
		return
	}
	if !c.plan.chunked {
		req.ContentLength = c.plan.size
	} else {
		req.ContentLength = -1
	}
	switch c.plan.shape {
	case inMemory:
		content := c.content.bytes(c.plan.size)
		req.ContentLength = c.plan.size
		req.Body = io.NopCloser(bytes.NewReader(content))
		req.GetBody = func() (io.ReadCloser, error) {
			c.hook("getbody")
			return io.NopCloser(bytes.NewReader(content)), nil
		}
	case seekable:
		req.Body = seekBody{newReqBody(c)}
	case stream:
		req.Body = newReqBody(c)
	case fresh, noGetBody:
		req.Body = newReqBody(c)
		req.GetBody = c.newGetBody()
	case same:
		body := seekBody{newReqBody(c)}
		req.Body = body
		req.GetBody = func() (io.ReadCloser, error) {
			c.hook("getbody")
			_, err := body.Seek(0, io.SeekStart)
			return body, err
		}
	case piped:
		req.Body = c.pipe()
	}
}

// newGetBody returns a GetBody whose readers are independent of each other.
// With the shape noGetBody it makes only one reader.
func (c *call) newGetBody() func() (io.ReadCloser, error) {
	var calls atomic.Int32
	return func() (io.ReadCloser, error) {
		c.hook("getbody")
		if c.plan.shape == noGetBody && calls.Add(1) > 1 {
			return nil, errBody
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return newReqBody(c), nil
	}
}

// pipe returns a body whose writer runs in a goroutine until the pipe is
// closed.
func (c *call) pipe() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		from := newPipeSource(c)
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, make([]byte, 4<<10))
		_ = w.CloseWithError(err)
	}()
	body := newReqBody(c)
	return &pipeBody{r, body}
}

// A pipeBody is the reading end of a pipe, watched by a reqBody.
type pipeBody struct {
	*io.PipeReader
	watch *reqBody
}

func (b *pipeBody) Read(p []byte) (int, error) {
	defer b.watch.use("Read")()
	return b.PipeReader.Read(p)
}

func (b *pipeBody) Close() error {
	_ = b.watch.Close()
	return b.PipeReader.Close()
}

// newPipeSource returns the bytes that the writer of a pipe writes.
func newPipeSource(c *call) io.Reader {
	plan := *c.plan
	if plan.fault == panics {
		plan.fault = fails
	}
	return &reqBody{call: &call{plan: &plan, world: c.world}, content: c.content, size: plan.size, closed: make(chan struct{})}
}
