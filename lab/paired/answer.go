// The servers of a world.

package paired

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/lab/internal/virtual"
)

// The header fields by which a server knows a call and the repetition of an arrival.
const (
	callField  = "X-Call"
	ghostField = "X-Ghost"
)

// A tenant is whose requests a server counts together.
type tenant struct {
	route *route
	id    int
}

// A running request is one that excludes others of its tenant. Another may replace it.
type running struct{ replace context.CancelCauseFunc }

// receive notes an arrival.
func (w *world) receive(s *site, r *testserver.Received) testserver.Step {
	id, err := strconv.Atoi(r.Header.Get(callField))
	if err != nil || id >= len(w.plan.calls) {
		return testserver.Status(http.StatusBadRequest)
	}
	a := &arrival{call: w.plan.calls[id], site: s, conn: r.Conn, stream: r.Stream, http2: r.Proto == "HTTP/2.0", rest: r.Header.Get("Range") != "", at: w.now(), left: never, failed: never, over: never}
	w.mu.Lock()
	if first := s.gone[r.Conn]; first > 0 && r.Stream > first {
		w.mu.Unlock()
		return testserver.Hang()
	}
	if n, err := strconv.Atoi(r.Header.Get(ghostField)); err == nil {
		a.n, a.ghost = n+w.haunts[[2]int{id, n}], true
		w.haunts[[2]int{id, n}]++
	} else {
		w.counts[id]++
		a.n = w.counts[id]
	}
	a.reused, s.used[r.Conn] = s.used[r.Conn], true
	poisoned := r.Conn <= s.poisoned
	w.arrivals = append(w.arrivals, a)
	w.mu.Unlock()
	return testserver.After(func(ctx context.Context) testserver.Step {
		leaves := func() { w.with(func() { a.left = min(a.left, w.now()) }) }
		stop := context.AfterFunc(ctx, leaves)
		defer func() {
			if stop() && ctx.Err() != nil { // what waited for ctx was woken first
				leaves()
			}
		}()
		w.with(func() { w.busy[a] = true })
		defer w.with(func() { delete(w.busy, a) })
		if poisoned {
			return w.failing(a, testserver.RSTStream(testserver.InternalError), !a.http2)
		}
		return w.answer(ctx, a, r)
	})
}

// answer returns what a server does about an arrival, when it does it.
func (w *world) answer(ctx context.Context, a *arrival, r *testserver.Received) testserver.Step {
	c, route := a.call, a.call.route
	switch a.site.bad {
	case unwell:
		return w.refuse(a, http.StatusServiceUnavailable, 0)
	case resetting:
		return w.failing(a, testserver.ResetBeforeHeaders(), true)
	}
	if step, refused := w.limit(a); refused {
		return step
	}
	f := w.plan.fate(c, a.n)
	a.fate = f.kind
	if f.kind == wants11 && w.plan.http2 && !a.http2 {
		f.kind, a.fate = well, well // as it wanted
	}
	if f.kind == refuses || f.kind == goesAway || f.kind == wants11 {
		if f.kind == goesAway && a.http2 {
			time.Sleep(time.Millisecond) // net/http fails a request that is being written just then
			w.goAway(a)
		}
		step, _ := f.kind.step(a.http2)
		return w.failing(a, step, !a.http2)
	}
	takes := w.plan.takes(c, a.n)
	if f.kind == isSlow {
		if takes *= 20; a.site.host.deaf {
			takes = min(takes, longestDeaf)
		}
	}
	if !a.site.host.drops { // the server does not notice that a client leaves
		ctx = context.WithoutCancel(ctx)
	}
	if route.alone != nil {
		key := tenant{route, c.tenant}
		limited, replace := context.WithCancelCause(ctx)
		defer replace(nil)
		mine := &running{replace}
		var other *running
		w.with(func() {
			if other = w.running[key]; other == nil || route.alone.replaces {
				w.running[key] = mine
			}
		})
		switch {
		case other != nil && !route.alone.replaces:
			return w.refuse(a, route.alone.status, route.alone.wait)
		case other != nil:
			other.replace(errReplaced)
		}
		ctx = limited
		defer w.with(func() {
			if w.running[key] == mine {
				delete(w.running, key)
			}
		})
	}
	switch {
	case w.work(ctx, a.site.host, takes):
		return w.deliver(a, f, r)
	case context.Cause(ctx) == errReplaced:
		return w.refuse(a, route.alone.status, route.alone.wait)
	}
	return testserver.Step{} // the client has left, and nothing was done
}

// errReplaced says that another request has replaced this one.
var errReplaced = errors.New("replaced")

// refuse answers with a status, and has not acted.
func (w *world) refuse(a *arrival, status, wait int) testserver.Step {
	w.with(func() {
		a.status, a.wait, a.over = status, wait, w.now()
		if retried(status, wait > 0) {
			a.failed = w.now()
		}
	})
	step := testserver.Status(status).Body(problem(status)).Header("X-Status", strconv.Itoa(status))
	if wait > 0 {
		step = step.Header("Retry-After", strconv.Itoa(wait))
	}
	return step
}

// problem is the body of a response without a document.
func problem(status int) string { return fmt.Sprintf("problem %d", status) }

// failing answers with a fault. If the whole connection fails, so do the others on it.
func (w *world) failing(a *arrival, step testserver.Step, whole bool) testserver.Step {
	w.with(func() {
		for _, b := range w.arrivals {
			if b == a || whole && b.site == a.site && b.conn == a.conn {
				b.fail(w.now())
			}
		}
	})
	if !a.http2 && whole && a.site.bad != resetting {
		if a.fate == well { // a poisoned connection of HTTP/1.1
			return testserver.ResetBeforeHeaders()
		}
	}
	return step
}

// goAway notes that the server has looked at no later stream of a connection. net/http sends those
// requests again by itself. Whether they came just before the GOAWAY or just behind it is chance,
// so they are no arrivals.
func (w *world) goAway(a *arrival) {
	w.with(func() {
		if first := a.site.gone[a.conn]; first == 0 || a.stream < first {
			a.site.gone[a.conn] = a.stream
		}
		w.arrivals = slices.DeleteFunc(w.arrivals, func(b *arrival) bool {
			b.undone = b.undone || b.site == a.site && b.conn == a.conn && b.stream > a.stream && b.over > w.now()
			if b.undone && !b.ghost {
				w.counts[b.call.id]--
			}
			return b.undone
		})
	})
}

// deliver returns the end of an arrival that was worked on.
func (w *world) deliver(a *arrival, f fate, r *testserver.Received) testserver.Step {
	undone := false
	if w.with(func() { undone = a.undone }); undone {
		return testserver.Hang()
	}
	if status := f.kind.status(); status != 0 {
		wait := 0
		if f.kind == saysBusy || f.kind == says429 {
			wait = f.wait
		} else if status != http.StatusNotFound {
			w.with(func() { a.acted = f.acts })
		}
		return w.refuse(a, status, wait)
	}
	if step, ok := f.kind.step(a.http2); ok {
		w.with(func() { a.acted = f.acts })
		return w.failing(a, step, false)
	}
	w.with(func() { a.acted, a.status = true, http.StatusOK })
	a.rep = w.rep(a, f)
	return w.document(a, f, r)
}

// document answers with a document, or a part of it.
func (w *world) document(a *arrival, f fate, r *testserver.Received) testserver.Step {
	doc, rep := a.call.route.doc, a.rep
	from, total := 0, len(rep.body)
	if a.rest && rep.etag != "" {
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		if tag := r.Header.Get("If-Range"); tag != "" && tag != rep.etag {
			from = 0
		}
	}
	var step testserver.Step
	switch plain := rep.plain; {
	case from > 0 && f.kind == lies:
		step = testserver.Status(http.StatusOK).Body(string(rep.body[min(from, total):])).Header("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, total-1, total)).Header("ETag", rep.etag)
	case from > 0 && plain != nil && from < len(plain): // a proxy that codes what it is given
		step = testserver.Status(http.StatusPartialContent).Body(string(packed(plain[from:]))).Header("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(plain)-1, len(plain))).Header("ETag", rep.etag)
	case rep.etag != "" && plain == nil:
		step = testserver.Content(rep.body, rep.etag)
	default:
		step = testserver.Status(http.StatusOK).Body(string(rep.body))
		if from = 0; rep.etag != "" {
			step = step.Header("ETag", rep.etag)
		}
	}
	for name, values := range rep.fields {
		step = step.Header(name, values[0])
	}
	if doc.chunked || rep.plain != nil {
		step = step.Chunked()
	}
	left := max(total-from, 0)
	sent := left
	if cut := f.kind == cutClosed || f.kind == cutReset || f.kind == cutSilent; cut || f.kind == unended {
		if cut {
			sent = min(int(f.place*float64(left)), max(left-1, 0))
		}
		end := map[fateKind]testserver.End{cutClosed: testserver.Close, cutReset: testserver.Reset, cutSilent: testserver.Stall, unended: testserver.Close}[f.kind]
		if a.http2 && end != testserver.Stall {
			step = step.RSTAt(int64(sent), testserver.InternalError)
		} else {
			step = step.CutAt(int64(sent), end)
		}
	}
	took := time.Duration(0)
	if doc.every > 0 {
		step = step.Drip(doc.piece, doc.every)
		took = time.Duration((sent+doc.piece-1)/doc.piece) * doc.every
	}
	at := w.now() + took
	w.with(func() {
		if a.over = at; sent < left || f.kind == unended {
			a.over, a.failed = never, min(a.failed, at)
		}
	})
	return step
}

// rep returns the representation for an arrival.
func (w *world) rep(a *arrival, f fate) *rep {
	r := a.call.route
	doc := r.doc
	if doc.stream {
		return w.stream(a, doc)
	}
	coded := doc.coded || f.kind == codes
	key := fmt.Sprint(r.id, f.version, coded)
	if known, ok := w.plan.reps.Load(key); ok {
		return known.(*rep)
	}
	size := doc.size
	if f.version > 0 && !doc.tagged {
		size = min(size, max(size-f.version, 1)) // nobody has to guess from the length alone
	}
	body := text(doc.size, w.plan.seed, uint64(r.id))
	if f.version > 0 {
		other := text(doc.size, w.plan.seed, uint64(r.id), uint64(f.version))
		from := 0
		if doc.late {
			from = min(40, doc.size/2)
		}
		copy(body[from:], other[from:])
	}
	made := &rep{fields: http.Header{"Content-Type": {doc.media}}, body: body[:size]}
	if doc.marked {
		made.fields.Set("X-Next-Cursor", fmt.Sprint("cursor-", f.version))
	}
	if doc.tagged {
		made.etag = fmt.Sprintf(`"%d-%d"`, r.id, f.version)
	}
	if coded {
		made.plain, made.body = made.body, packed(made.body)
		made.fields.Set("Content-Encoding", "gzip")
	}
	known, _ := w.plan.reps.LoadOrStore(key, made)
	return known.(*rep)
}

// stream returns a stream of pieces. Each is told once, to whoever listens.
func (w *world) stream(a *arrival, doc *document) *rep {
	var b bytes.Buffer
	for i := range doc.size / doc.piece {
		size := doc.piece
		event := fmt.Sprintf(`{"call":%d,"event":%d.%d`, a.call.id, a.n, i)
		if i == 0 && doc.beats {
			event, size = `{"heartbeat":true`, min(size, 450) // so that two streams differ within 512 bytes
		}
		if doc.media == "text/event-stream" {
			event = "data: " + event
		}
		b.WriteString(event + "}")
		for b.Len() < i*doc.piece+size-2 {
			b.WriteByte(' ')
		}
		b.WriteString("\n\n")
	}
	return &rep{fields: http.Header{"Content-Type": {doc.media}}, body: b.Bytes(), from: a}
}

func packed(p []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(p)
	_ = z.Close()
	return b.Bytes()
}

// A usage is what has been used up of a limit.
type usage struct {
	window time.Duration
	left   float64
	at     time.Duration
}

// limit refuses an arrival that a limit does not let pass.
func (w *world) limit(a *arrival) (testserver.Step, bool) {
	l := a.call.route.limit
	if l == nil {
		return testserver.Step{}, false
	}
	if l.by == "" {
		if !a.call.guilty {
			return testserver.Step{}, false
		}
		return w.refuse(a, l.status, l.wait), true
	}
	key := l.by + a.call.route.host.name
	switch l.by {
	case "route":
		key += a.call.route.path
	case "tenant":
		key += strconv.Itoa(a.call.tenant)
	}
	wait, now, ok := 0, w.now(), false
	w.with(func() {
		u := w.used[key]
		if u == nil {
			u = &usage{left: float64(l.n)}
			w.used[key] = u
		}
		rate := float64(l.n) / float64(l.window)
		switch {
		case l.bucket:
			u.left, u.at = min(float64(l.n), u.left+float64(now-u.at)*rate), now
			wait = int(max((1-u.left)/rate, 0)/float64(time.Second)) + 1
		default:
			if begun := now / l.window * l.window; begun > u.window {
				u.window, u.left = begun, float64(l.n)
			}
			wait = int((u.window+l.window-now)/time.Second) + 1
		}
		if ok = u.left >= 1; ok {
			u.left--
		}
	})
	if ok {
		return testserver.Step{}, false
	}
	if l.silent {
		wait = 0
	}
	return w.refuse(a, l.status, wait), true
}

// A queue is that of the workers of a host.
type queue struct {
	mu      sync.Mutex
	free    int
	waiters []chan struct{}
}

// enter waits for a worker, or until the context ends.
func (q *queue) enter(ctx context.Context) bool {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return true
	}
	turn := make(chan struct{}, 1)
	q.waiters = append(q.waiters, turn)
	q.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiters, turn); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		return false
	}
	q.next() // its turn came as it left
	return false
}

// next gives the worker to the next; the lock is held.
func (q *queue) next() {
	if len(q.waiters) == 0 {
		q.free++
		return
	}
	q.waiters[0] <- struct{}{}
	q.waiters = q.waiters[1:]
}

func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next()
}

// work does the work of a request. It returns false if the context has ended before.
func (w *world) work(ctx context.Context, h *host, takes time.Duration) bool {
	if h.workers > 0 {
		q := w.queues[h.id]
		if !q.enter(ctx) {
			return false
		}
		defer q.leave()
	}
	if w.now() < h.cold {
		takes = takes*5 + 200*time.Millisecond
	}
	end := w.now() + takes
	for _, f := range h.freezes {
		if f.from < end && w.now() < f.to {
			end += f.to - max(f.from, w.now())
		}
	}
	return virtual.Pause(ctx, end-w.now()) == nil
}
