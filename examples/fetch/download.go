// One download: ask, judge the response, copy, check, finish.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/transport"
)

var (
	errInterrupted = errors.New("interrupted")
	errAltered     = errors.New("not what the server announced")
)

// A download is one target on its way. The transport does the retries and
// reconnects. This file continues a download after the process has ended.
type download struct {
	client  *http.Client
	target  *target
	tracker tracker
}

// run downloads the target and tells the tracker.
func (d *download) run(ctx context.Context) error {
	s, err := d.toFile(ctx)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted // whatever it broke on the way
	}
	if err != nil {
		d.tracker.failed(err, s.kept)
	} else {
		d.tracker.done(s.checked)
	}
	return err
}

// A summary is the result of a download.
type summary struct {
	checked string // the digests that agree
	kept    int64  // how much the next run can go on from
}

func (d *download) toFile(ctx context.Context) (s summary, err error) {
	p, err := openPart(d.target)
	if err != nil {
		return s, err
	}
	defer p.close()
	defer func() {
		if errors.Is(err, errAltered) {
			p.discard() // there is nothing in it to go on from
		}
		if _, offset, ok := p.rest(); ok && err != nil && !p.gone {
			s.kept = offset
		}
	}()
	a, err := d.ask(ctx, p)
	if err != nil {
		return s, err
	}
	defer a.resp.Body.Close()
	if err := p.accept(a); err != nil {
		return s, err
	}
	d.tracker.started(a.offset, a.Total)
	size, err := d.copy(p, a)
	if err != nil {
		return s, err
	}
	d.tracker.checking()
	if s.checked, err = check(ctx, p.file, size, a.Digest); err != nil {
		return s, err
	}
	return s, p.finish()
}

// An answer is a response whose body belongs into the file from offset on.
type answer struct {
	state
	strong bool // state may be kept for a later run
	offset int64
	resp   *http.Response
}

// ask requests the rest of an earlier run's file, or the whole file if there is
// none. If the server has changed its file, it answers the first request with
// the whole file as well, because of If-Range (RFC 9110 §13.1.5).
func (d *download) ask(ctx context.Context, p *part) (answer, error) {
	kept, offset, ok := p.rest()
	if !ok {
		return d.askWhole(ctx)
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
		if err == nil {
			d.tracker.note("starts anew: " + whyWhole(a, kept))
		}
		return a, err
	}
	_ = resp.Body.Close()
	return d.askWhole(ctx)
}

func whyWhole(a answer, kept state) string {
	if a.strong && a.same(kept) {
		return "the server sends no parts"
	}
	return "the server's file has changed"
}

// continues checks that a 206 is the rest of the part, up to the end.
func (d *download) continues(resp *http.Response, kept state, offset int64) (answer, error) {
	first, last, total, ok := contentRange(resp)
	now, strong := stateOf(d.target.url, resp, total)
	if kept.ETag == "" {
		strong = true // the date was judged when it was new
	}
	switch {
	case !ok:
		return answer{}, errors.New("the answer does not say which part it is")
	case !strong || !now.same(kept):
		return answer{}, errors.New("the answer is a part of another file")
	case first != offset || last != total-1:
		return answer{}, errors.New("the answer is not the part that was asked for")
	}
	if now.Digest == "" {
		now.Digest = kept.Digest
	}
	return answer{state: now, strong: true, offset: offset, resp: resp}, nil
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
		return answer{}, statusError(resp)
	}
	s, strong := stateOf(d.target.url, resp, resp.ContentLength)
	return answer{state: s, strong: strong, resp: resp}, nil
}

// get sends a request with header fields given as pairs.
func (d *download) get(ctx context.Context, header ...string) (*http.Response, error) {
	ctx = transport.WithTrace(ctx, &transport.Trace{Event: d.event})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.target.url.String(), nil)
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
	return d.client.Do(req)
}

// event reports what the transport does about failures.
func (d *download) event(e transport.Event) {
	switch e.Reason {
	case transport.ReasonRetry:
		d.tracker.retry(e)
	case transport.ReasonResume:
		d.tracker.resumed(e)
	}
}

// accept prepares the part for the response's bytes.
func (p *part) accept(a answer) error {
	switch {
	case a.offset > 0:
		return p.cutTo(a.offset)
	case a.strong:
		return p.restart(&a.state)
	}
	return p.restart(nil)
}

// copy writes the body to the part and returns the part's size.
func (d *download) copy(p *part, a answer) (int64, error) {
	w := &counter{w: p.file, tracker: d.tracker}
	n, err := io.Copy(w, a.resp.Body)
	if e, ok := errors.AsType[*transport.IntegrityError](err); ok {
		return a.offset + n, altered(e.Field, e.Got, e.Want)
	}
	size := a.offset + n
	switch {
	case w.err != nil:
		return size, w.err
	case err != nil:
		return size, err
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

// statusError returns an error with the response's status and, if there were
// several attempts, their number.
func statusError(resp *http.Response) error {
	text := fmt.Sprintf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if h := transport.HistoryOf(resp); h.Reason != transport.ReasonFinal {
		text += gaveUp(len(h.Attempts), h.Reason)
	}
	return errors.New(text)
}

// inShort returns the text of an error without the URL, which the user knows.
func inShort(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return inShort(e.Err) + gaveUp(len(e.Attempts), e.Reason)
	}
	return strings.TrimPrefix(err.Error(), "transport: ")
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
