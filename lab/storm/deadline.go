// The deadline of an attempt travels in a header.

package main

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/transport"
)

const (
	// headerLeft has how many milliseconds the client waits from now on. The server counts
	// them from the moment at which it reads the request.
	headerLeft = "X-Envoy-Expected-Rq-Timeout-Ms"
	// headerUntil has the time of day at which the client leaves. The clients and the
	// server need the same clock.
	headerUntil = "X-Deadline"
)

// tellDeadline returns the hook that writes what such a server needs. It returns nil if the server
// does not look at deadlines.
func tellDeadline(d model.Drop) *transport.Trace {
	if d == model.DropNothing {
		return nil
	}
	return &transport.Trace{AttemptStart: func(ctx context.Context, a transport.AttemptStart) context.Context {
		if d == model.DropBegun {
			a.Header.Set(headerLeft, strconv.FormatInt(a.Deadline.Sub(a.Start).Milliseconds(), 10))
		} else {
			a.Header.Set(headerUntil, a.Deadline.Format(time.RFC3339Nano))
		}
		return ctx
	}}
}

// deadlineOf returns when the client leaves, as far as the header tells. It returns the zero time
// otherwise.
func deadlineOf(h http.Header, now time.Time) time.Time {
	if until, err := time.Parse(time.RFC3339Nano, h.Get(headerUntil)); err == nil {
		return until
	}
	if left, err := strconv.Atoi(h.Get(headerLeft)); err == nil {
		return now.Add(time.Duration(left) * time.Millisecond)
	}
	return time.Time{}
}
