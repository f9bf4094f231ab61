// One download: ask, judge the response, copy, check, finish.

package get

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

var (
	errInterrupted = errors.New("interrupted")
	errAltered     = errors.New("not what was announced")
)

// A download is one target on its way. The transport does the retries and
// reconnects. This file continues a download after the process has ended.
type download struct {
	client   *http.Client
	rules    *transport.Transport
	throttle *throttle
	target   *target
	tracker  tracker
	verbose  bool        // the story of each request is told
	url      *url.URL    // of the target's URLs the one that is asked
	rule     policy.Rule // of its host
	hasty    bool        // other URLs may do better
	cut      string      // says where and why the body was cut last
}

// run downloads the target and tells the tracker.
func (d *download) run(ctx context.Context) error {
	var s summary
	var err error
	if d.target.out != nil {
		out := &passer{out: d.target.out, passed: sha256.New()}
		s.checked, err = d.anywhere(ctx, nil, func(ctx context.Context) (string, error) { return d.pass(ctx, out) })
	} else {
		s, err = d.toFile(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = errInterrupted // whatever it broke on the way
	}
	if err != nil {
		d.tracker.failed(err, s)
	} else {
		d.tracker.done(s.checked)
	}
	return err
}

// A summary is the result of a download.
type summary struct {
	checked string // the digests that agree
	kept    int64  // how much the next run can go on from
	sure    bool   // the server is known to send the rest
}

func (d *download) toFile(ctx context.Context) (s summary, err error) {
	p, err := openPart(d.target)
	if err != nil {
		return s, err
	}
	defer p.close()
	s.checked, err = d.anywhere(ctx, p, func(ctx context.Context) (string, error) { return d.fill(ctx, p) })
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		s.kept, s.sure = p.keeps()
	}
	return s, err
}

// fill writes the rest of the file, or the whole file, to the part. It returns the
// digests that agree.
func (d *download) fill(ctx context.Context, p *part) (string, error) {
	a, err := d.ask(ctx, p)
	if err != nil {
		return "", err
	}
	defer a.resp.Body.Close()
	w, err := p.accept(a, d.hasty)
	if err != nil {
		return "", err
	}
	d.tracker.started(a.offset, a.Total)
	size, err := d.copy(ctx, w, a)
	if err == nil {
		err = w.complete()
	}
	checked := ""
	if err == nil {
		d.tracker.checking()
		checked, err = check(ctx, p.file, size, a.Digest)
	}
	switch {
	case err == nil:
		return checked, p.cutTo(size)
	case !errors.Is(err, errAltered) || w.comparing():
		return "", err
	}
	if err := p.restart(nil, 0); err != nil { // there is nothing in it to go on from
		return "", err
	}
	if a.offset > 0 && len(d.target.urls) > 1 { // perhaps the beginning is wrong, which may be from elsewhere
		d.tracker.note(fmt.Sprintf("starts anew: %v", err))
		_ = a.resp.Body.Close()
		return d.fill(ctx, p)
	}
	return "", fmt.Errorf("%w; thrown away", err)
}

// pass passes the file on to stdout.
func (d *download) pass(ctx context.Context, out *passer) (string, error) {
	a, err := d.askWhole(ctx)
	if err != nil {
		return "", err
	}
	defer a.resp.Body.Close()
	d.tracker.started(0, a.Total)
	sums := newSums(a.Digest)
	out.rewind()
	_, err = d.copy(ctx, io.MultiWriter(sums, out), a)
	checked := ""
	if err == nil {
		err = out.complete()
	}
	if err == nil {
		checked, err = sums.compare()
	}
	if errors.Is(err, errAltered) {
		err = fmt.Errorf("%w; stdout has it already", err)
	}
	return checked, err
}

// An answer is a response whose body belongs into the file from offset on.
type answer struct {
	state
	strong   bool // state may be kept for a later run
	offset   int64
	moved    bool // the bytes before offset are of another server, and a digest agrees
	compares bool // the part is of another server, and nothing is known about it
	resp     *http.Response
}

// ask requests the rest of an earlier run's file, or the whole file if there is
// none. If the server has changed its file, it answers the first request with
// the whole file as well, because of If-Range (RFC 9110 §13.1.5). A part of another URL is
// only continued if a digest proves that it is of the same version. If there is none, the
// whole file is requested, and the part is compared with it.
func (d *download) ask(ctx context.Context, p *part) (answer, error) {
	kept, offset, ok := p.rest()
	if !ok {
		return d.askWhole(ctx)
	}
	if kept.URL != withoutUser(d.url) {
		return d.askElsewhere(ctx, kept, offset)
	}
	resp, err := d.get(ctx, "Range", fmt.Sprintf("bytes=%d-", offset), "If-Range", kept.validator())
	if err != nil {
		return answer{}, err
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		if a, err := d.continues(resp, kept, offset); err == nil {
			return a, nil
		} else {
			d.tracker.note("starts anew: " + err.Error())
		}
	case http.StatusRequestedRangeNotSatisfiable:
		d.tracker.note("starts anew: the server's file is shorter")
	default:
		a, err := d.whole(resp)
		switch {
		case err != nil:
		case a.same(kept):
			a.strong = false // the next run cannot go on, either
			d.tracker.note("starts anew: the server sends no parts")
		default:
			d.tracker.note("starts anew: the server's file has changed")
		}
		return a, err
	}
	_ = resp.Body.Close()
	return d.askWhole(ctx)
}

// continues checks that a 206 is the rest of the part, up to the end.
func (d *download) continues(resp *http.Response, kept state, offset int64) (answer, error) {
	first, last, total, ok := contentRange(resp)
	now, strong, err := d.stateOf(resp, total)
	kept.Digest = both(kept.Digest, d.target.digest)
	same := (strong || kept.ETag == "") && now.same(kept) // a date was judged when it was new
	switch {
	case !ok:
		return answer{}, errors.New("the answer does not say which part it is")
	case err != nil:
		return answer{}, err
	case !same && !now.equal(kept):
		return answer{}, errors.New("the answer is a part of another file")
	case first != offset || last != total-1:
		return answer{}, errors.New("the answer is not the part that was asked for")
	}
	digest := both(kept.Digest, now.Digest)
	if !strong {
		kept.Total = now.Total
		now = kept
	}
	now.Digest = digest
	return answer{state: now, strong: true, offset: offset, moved: !same, resp: resp}, nil
}

func (d *download) askWhole(ctx context.Context) (answer, error) {
	resp, err := d.get(ctx)
	if err != nil {
		return answer{}, err
	}
	return d.whole(resp)
}

// whole checks a 200.
func (d *download) whole(resp *http.Response) (answer, error) {
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return answer{}, newStatusError(resp)
	}
	s, strong, err := d.stateOf(resp, resp.ContentLength)
	if err != nil {
		_ = resp.Body.Close()
		return answer{}, err
	}
	return answer{state: s, strong: strong, resp: resp}, nil
}

// stateOf describes the representation of a response. Its digests are those of the server and
// of the command line.
func (d *download) stateOf(resp *http.Response, total int64) (s state, strong bool, err error) {
	s, strong = stateOf(d.url, resp, total)
	if _, differ := compared(s.Digest, d.target.digest); differ {
		err = fmt.Errorf("%w: the server has a file with another digest", errAltered)
	}
	s.Digest = both(s.Digest, d.target.digest)
	return s, strong, err
}

// get sends a request with header fields given as pairs.
func (d *download) get(ctx context.Context, header ...string) (*http.Response, error) {
	ctx = transport.WithTrace(ctx, &transport.Trace{Event: d.event, AttemptStart: d.asks})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url.String(), nil)
	if err != nil {
		return nil, err
	}
	// A body that is compressed on the way cannot be continued, so ask for
	// none.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Want-Repr-Digest", "sha-256=2, sha-512=1")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := d.client.Do(req)
	if d.verbose {
		for line := range strings.Lines(transport.Explain(resp, err)) {
			d.tracker.note(strings.TrimRight(line, "\n"))
		}
	}
	return resp, err
}

// asks reports that a request leaves the queues.
func (d *download) asks(ctx context.Context, _ transport.AttemptStart) context.Context {
	d.tracker.asks()
	return ctx
}

// event reports what the transport does about failures. A cut body is reported
// when it goes on, because only then it is known that it does.
func (d *download) event(e transport.Event) {
	switch {
	case e.Reason == transport.ReasonRetry:
		d.tracker.retry(e)
	case e.Reason == transport.ReasonResume:
		d.cut = fmt.Sprintf("cut off at %s (%s)", sizeText(e.Offset), inShort(e.Err))
	case e.Kind == transport.KindReconnect && e.Reason == transport.ReasonFinal && e.Status == http.StatusPartialContent:
		d.tracker.resumed(d.cut)
	}
}

// copy writes the body to w and returns the size of the file so far.
func (d *download) copy(ctx context.Context, w io.Writer, a answer) (int64, error) {
	c := &counter{w: w, tracker: d.tracker}
	n, err := io.Copy(c, d.throttle.reader(ctx, a.resp.Body))
	if e, ok := errors.AsType[*transport.IntegrityError](err); ok {
		return a.offset + n, altered(e.Field, e.Got, e.Want)
	}
	size := a.offset + n
	switch {
	case c.err != nil:
		return size, c.err
	case err != nil:
		return size, &cutError{err: err, at: size, weak: !a.strong}
	case a.Total >= 0 && size != a.Total:
		return size, altered("length", strconv.FormatInt(size, 10), strconv.FormatInt(a.Total, 10))
	}
	return size, nil
}

// A counter reports the written bytes to the tracker. It keeps the errors of
// the file apart from those of the network.
type counter struct {
	w       io.Writer
	tracker tracker
	err     error
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.err = err
	c.tracker.wrote(n)
	return n, err
}

// contentRange reads "bytes first-last/total" (RFC 9110 §14.4). It does not
// accept the total "*", because the size of the whole file is needed.
func contentRange(resp *http.Response) (first, last, total int64, ok bool) {
	values := resp.Header.Values("Content-Range")
	if len(values) != 1 || strings.HasPrefix(resp.Header.Get("Content-Type"), "multipart/byteranges") {
		return 0, 0, -1, false
	}
	s, unit := strings.CutPrefix(values[0], "bytes ")
	span, size, _ := strings.Cut(s, "/")
	from, to, _ := strings.Cut(span, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	ok = unit && errors.Join(err1, err2, err3) == nil && 0 <= first && first <= last && last < total
	return first, last, total, ok
}

// A statusError is a response that brings no file.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// refused reports whether the same request will most likely fail again.
func (e *statusError) refused() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return e.code < 500
}

// newStatusError returns an error with the response's status and, if there were
// several attempts, their number.
func newStatusError(resp *http.Response) error {
	text := strings.TrimSpace(fmt.Sprintf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	if h := transport.HistoryOf(resp); h.Reason != transport.ReasonFinal {
		text += gaveUp(len(h.Attempts), h.Reason)
	}
	return &statusError{resp.StatusCode, text}
}

// inShort returns the text of an error in one line, without the URL, which the
// user knows.
func inShort(err error) string {
	if text := tlsText(err); text != "" {
		return text
	}
	if e, ok := errors.AsType[*nowhereError](err); ok {
		return e.text
	}
	if e, ok := errors.AsType[*policy.LimitError](err); ok && e.Last != nil {
		return fmt.Sprintf("%s; gave up after %s", inShort(e.Last), counted(e.Attempts, "start"))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return inShort(e.Err) + gaveUp(len(e.Attempts), e.Reason)
	}
	return strings.TrimPrefix(transport.SafeError(err, nil), "transport: ")
}

// gaveUp says how many attempts were made. If the number does not explain it,
// it also says why there were no more.
func gaveUp(requests int, reason transport.Reason) string {
	text := "; gave up after " + counted(requests, "request")
	if reason != transport.ReasonAttempts {
		text += " (" + strings.ReplaceAll(reason.String(), "_", " ") + ")"
	}
	return text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
