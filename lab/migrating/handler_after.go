package migrating

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/transport"
)

var errClosed = errors.New("the shop is closed")

// handled goes around a transport.Transport.
type handled struct{ next http.RoundTripper }

func isClosed(o classify.Outcome) classify.Verdict {
	if o.Response != nil && o.Response.Header.Get("X-Shop") == "closed" {
		return classify.Final
	}
	return classify.Unknown
}

func (h handled) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.next.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("no order: %w", err)
	}
	past := transport.HistoryOf(resp)
	switch {
	case isClosed(classify.Outcome{Response: resp}) == classify.Final:
		err = errClosed
	case past.Reason != transport.ReasonFinal: // it gave up
		err = fmt.Errorf("no order after %d attempts: %s, %v", len(past.Attempts), resp.Status, past.Reason)
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}
