// A server.

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// doors is the number of ports that the server listens on. Connections between two
// addresses differ by their ports, and the client has some 28,000 ports for each
// port of the server. When most of them are in use, the system spends its time on
// the search for a free port.
const doors = 8

// serverFiles is how many files a server would like to open.
const serverFiles = 1 << 20

// serve is the main function of the server. Its first line on stdout has the
// number of files that it may open, and its addresses. Each further line reports the
// most requests in progress. The server ends when stdin ends, and so whenever the
// program that started it ends.
func serve(stdin io.Reader, stdout io.Writer) error {
	files := raiseFiles(serverFiles)
	w := &works{model: model.DefaultServer(), added: make(chan struct{}, 1)}
	srv := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	var addrs []string
	for range doors {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addrs = append(addrs, l.Addr().String())
		go func() { _ = srv.Serve(l) }()
	}
	if _, err := fmt.Fprintln(stdout, files, strings.Join(addrs, " ")); err != nil {
		return err
	}
	go w.run()
	go w.tell(stdout, record.Step)
	_, err := io.Copy(io.Discard, stdin)
	return err
}

// works are the requests in progress.
type works struct {
	model model.Server

	mu    sync.Mutex // guards everything below
	line  []*work    // in the order in which they check whether they are done
	head  int
	busy  int
	most  int // the most requests in progress since the last report
	added chan struct{}
}

type work struct {
	began, look time.Time
	done        chan struct{}
}

// ServeHTTP does not look at the request's context, because this server does not
// notice that a client has left.
func (w *works) ServeHTTP(rw http.ResponseWriter, _ *http.Request) {
	x := w.begin(time.Now())
	<-x.done
	_, _ = io.WriteString(rw, "ok\n") // a client that has left does not receive it
}

// begin adds a request to the requests in progress.
func (w *works) begin(now time.Time) *work {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &work{began: now, look: now.Add(w.model.Tick), done: make(chan struct{})}
	w.line = append(w.line, x)
	w.busy++
	w.most = max(w.most, w.busy)
	select {
	case w.added <- struct{}{}:
	default:
	}
	return x
}

// run lets each request check, every tick, whether it has spent its time. A single
// goroutine does this for all requests. With tens of thousands of requests in
// progress a timer for each would be the bottleneck instead of the model.
func (w *works) run() {
	for {
		next, ok := w.look(time.Now())
		if !ok {
			<-w.added
			continue
		}
		time.Sleep(max(time.Until(next), 200*time.Microsecond))
	}
}

// look lets the requests check whose time has come, and returns when the next
// request checks. ok is false if there is none.
func (w *works) look(now time.Time) (next time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.head < len(w.line) {
		x := w.line[w.head]
		if x.look.After(now) {
			return x.look, true
		}
		w.line[w.head] = nil
		w.head++
		if now.Sub(x.began) >= w.model.Delay(w.busy) {
			w.busy--
			close(x.done)
		} else {
			x.look = now.Add(w.model.Tick)
			w.line = append(w.line, x)
		}
		if w.head > 1000 && w.head > len(w.line)/2 {
			w.line = append(w.line[:0], w.line[w.head:]...)
			w.head = 0
		}
	}
	return time.Time{}, false
}

// tell reports again and again the most requests in progress since the last report.
func (w *works) tell(to io.Writer, every time.Duration) {
	for range time.Tick(every) {
		w.mu.Lock()
		most := w.most
		w.most = w.busy
		w.mu.Unlock()
		if _, err := fmt.Fprintln(to, most); err != nil {
			os.Exit(1) // the reader has gone
		}
	}
}
