package migrating

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aplomb-go/aplomb/transport"
)

// handled goes around a transport.Transport.
type handled struct{ next http.RoundTripper }

func (h handled) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.next.RoundTrip(req)
	if e, ok := errors.AsType[*transport.Error](err); ok && e.Reason == transport.ReasonAttempts {
		return nil, fmt.Errorf("the shop is down after %d attempts: %w", len(e.Attempts), err)
	}
	if past := transport.HistoryOf(resp); past.Reason == transport.ReasonAttempts {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the shop is down after %d attempts: %s", len(past.Attempts), resp.Status)
	}
	return resp, err
}
