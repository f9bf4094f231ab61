// A file that several URLs serve.
//
// The first URL is asked first, and then the others, in the order of the command line. A part
// of an earlier run is continued where it came from, so that URL comes first. At first each URL
// has a few seconds for its retries, because another URL may do at once. If it has another
// version than the part, the part stays. If none has sent the file, each is asked again, has all
// retries of its rule, and may replace the part.

package get

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// brief is how long a URL is retried while there are others that were not asked yet.
const brief = 3 * time.Second

// errOther is about a URL that is passed over, because the part may still be continued.
var errOther = errors.New("it has another version than the part")

// A nowhereError says that no URL has sent the file.
type nowhereError struct {
	text    string
	altered bool // one of them has sent another file than it announced
}

func (e *nowhereError) Error() string        { return e.text }
func (e *nowhereError) Is(target error) bool { return e.altered && target == errAltered }

// anywhere calls once for one URL after the other, until the file is whole. p is nil for
// stdout.
func (d *download) anywhere(ctx context.Context, p *part, once func(context.Context) (string, error)) (string, error) {
	if len(d.target.urls) == 1 {
		d.aim(d.target.urls[0])
		return d.repeated(ctx, once)
	}
	d.hasty = true
	now, later := inOrder(d.target.urls, p), []*url.URL(nil)
	altered := false
	for {
		d.aim(now[0])
		checked, err := d.visit(ctx, once)
		if err == nil || ctx.Err() != nil || !d.mayMove(err) {
			return checked, err
		}
		altered = altered || errors.Is(err, errAltered)
		if !isFinal(err) {
			later = append(later, now[0])
		}
		if now = now[1:]; len(now) == 0 && d.hasty {
			now, later, d.hasty = inOrder(later, p), nil, false
		}
		text := transport.SafeURL(d.url) + ": " + inShort(err)
		if len(now) == 0 {
			return "", &nowhereError{text + "; none of the " + counted(len(d.target.urls), "URL") + " has sent the file", altered}
		}
		d.tracker.moves(text + "; asks " + transport.SafeURL(now[0]))
	}
}

// aim makes the following requests go to a URL.
func (d *download) aim(u *url.URL) {
	d.url = u
	d.rule, _ = d.rules.RuleOf(http.MethodGet, u)
}

// visit calls once for the URL at hand, or again and again if it is the last hope.
func (d *download) visit(ctx context.Context, once func(context.Context) (string, error)) (string, error) {
	if !d.hasty {
		return d.repeated(ctx, once)
	}
	if d.rule.MaxElapsed <= 0 || d.rule.MaxElapsed > brief {
		ctx = transport.WithRule(ctx, policy.Rule{MaxElapsed: brief})
	}
	return once(ctx)
}

// inOrder returns the URLs, and first the one that a part came from.
func inOrder(urls []*url.URL, p *part) []*url.URL {
	urls = slices.Clone(urls)
	if p == nil {
		return urls
	}
	if kept, _, ok := p.rest(); ok {
		if i := slices.IndexFunc(urls, func(u *url.URL) bool { return withoutUser(u) == kept.URL }); i > 0 {
			from := urls[i]
			copy(urls[1:], urls[:i])
			urls[0] = from
		}
	}
	return urls
}

// mayMove reports whether another URL can help against an error. It cannot if the error is
// about the disk, or if stdout has the wrong bytes already.
func (d *download) mayMove(err error) bool {
	if errors.Is(err, errAltered) {
		return d.target.out == nil
	}
	_, asked := errors.AsType[*url.Error](err)
	_, answered := errors.AsType[*statusError](err)
	_, cut := errors.AsType[*cutError](err)
	return asked || answered || cut || errors.Is(err, errDiffers) || errors.Is(err, errOther)
}

// isFinal reports whether the same URL would most likely fail again in the same way.
func isFinal(err error) bool {
	status, ok := errors.AsType[*statusError](err)
	return ok && status.refused() || errors.Is(err, errAltered) || errors.Is(err, errDiffers)
}

// askElsewhere asks a URL for the rest of a part that came from another URL, if there is a
// digest. Its request has no If-Range, because the validator is that of the other server.
// Without a digest it asks for the whole file, with which the part is compared.
func (d *download) askElsewhere(ctx context.Context, kept state, offset int64) (answer, error) {
	if len(digests(both(kept.Digest, d.target.digest))) > 0 {
		resp, err := d.get(ctx, "Range", fmt.Sprintf("bytes=%d-", offset))
		if err != nil {
			return answer{}, err
		}
		switch resp.StatusCode {
		case http.StatusPartialContent:
			if a, err := d.continues(resp, kept, offset); err == nil {
				return a, nil
			}
		case http.StatusRequestedRangeNotSatisfiable:
		default:
			return d.compares(resp, kept)
		}
		_ = resp.Body.Close()
	}
	resp, err := d.get(ctx)
	if err != nil {
		return answer{}, err
	}
	return d.compares(resp, kept)
}

// compares makes the whole file of one server be compared with the part of another.
func (d *download) compares(resp *http.Response, kept state) (answer, error) {
	a, err := d.whole(resp)
	if err != nil {
		return a, err
	}
	if _, differ := compared(a.Digest, kept.Digest); d.hasty && (differ || !a.alike(kept)) {
		_ = resp.Body.Close()
		return a, errOther
	}
	a.compares = true
	d.tracker.note("fetches the file from its beginning, and compares the part with it")
	return a, nil
}
