// The cost of a large upload.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// An uploaded is the measured cost of an upload.
type uploaded struct {
	before int64 // bytes read from the source before the first byte of the request was written
	peak   int64 // the highest growth of the heap, of client and server, garbage included
}

// A kind of source says whether it can be read a second time.
type kind int

const (
	fromPipe kind = iota
	fromFile
)

// upload posts size bytes from a source to a server of its own.
func upload(l *library, size int64, from kind) (uploaded, error) {
	srv, err := testserver.New(testserver.Config{}, testserver.OK(""))
	if err != nil {
		return uploaded{}, err
	}
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	body, read, err := newSource(size, from)
	if err != nil {
		return uploaded{}, err
	}
	defer body.Close()
	var before atomic.Int64
	base := srv.Transport()
	base.DialContext = onFirstWrite(func() { before.Store(read.n.Load()) })
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, body)
	if err != nil {
		return uploaded{}, err
	}
	client := l.newClient(terms{base: base, delay: shortDelay})
	peak := watchHeap()
	resp, err := client.Do(req)
	grown := peak()
	if err != nil {
		return uploaded{}, err
	}
	defer resp.Body.Close()
	if log := srv.Log(); len(log) != 1 || log[0].BodyLength != size {
		return uploaded{}, fmt.Errorf("%s: the upload did not arrive whole and once", l.name)
	}
	return uploaded{before: before.Load(), peak: grown}, nil
}

// newSource makes a body of size bytes, and counts those that are read.
func newSource(size int64, from kind) (io.ReadCloser, *source, error) {
	if from == fromFile {
		return newFile(size)
	}
	r, w := io.Pipe()
	go func() {
		piece := make([]byte, 32<<10)
		for left := size; left > 0; left -= int64(len(piece)) {
			if _, err := w.Write(piece[:min(left, int64(len(piece)))]); err != nil {
				return
			}
		}
		_ = w.Close()
	}()
	s := &source{Reader: r, close: r.Close}
	return s, s, nil
}

// A source is a body that counts what is read of it.
type source struct {
	io.Reader
	close func() error
	n     atomic.Int64
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.n.Add(int64(n))
	return n, err
}

func (s *source) Close() error { return s.close() }

// A file is a source that can seek. It has no other method of an *os.File, because their
// reads would not be counted.
type file struct {
	*source
	io.Seeker
}

// newFile makes a file that is removed when it is closed.
func newFile(size int64) (io.ReadCloser, *source, error) {
	f, err := os.CreateTemp("", "upload")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return errors.Join(f.Close(), os.Remove(f.Name())) }
	if err := f.Truncate(size); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	s := &source{Reader: f, close: sync.OnceValue(remove)}
	return file{s, f}, s, nil
}

// onFirstWrite returns a dialer. The first write on its connections calls f.
func onFirstWrite(f func()) func(context.Context, string, string) (net.Conn, error) {
	once := sync.OnceFunc(f)
	var d net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &writeConn{conn, once}, nil
	}
}

type writeConn struct {
	net.Conn
	first func()
}

func (c *writeConn) Write(p []byte) (int, error) {
	c.first()
	return c.Conn.Write(p)
}

// watchHeap looks at the heap every millisecond. The function that it returns
// stops it and reports the highest growth in bytes.
func watchHeap() func() int64 {
	runtime.GC()
	start := heap()
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		peak := start
		for {
			select {
			case <-tick.C:
				peak = max(peak, heap())
			case <-stop:
				most <- max(peak, heap()) - start
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

func mebi(n int64) float64 { return float64(n) / (1 << 20) }
