// Responses that are streams: they tell events as they happen, and have no end that
// the reader waits for.

package resume

import (
	"net/http"
	"strings"
	"time"
)

// pause is the time without bytes after which a body without a length may be a stream.
const pause = 200 * time.Millisecond

// lacksLength reports whether no header has said where the body ends.
func (b *Body) lacksLength() bool { return b.end == unknown && b.total == unknown }

// streamTypes are the media types of streams.
var streamTypes = [...]string{
	"text/event-stream",         // WHATWG HTML, "Server-sent events"
	"application/x-ndjson",      // JSON texts in lines
	"application/ndjson",        //
	"application/jsonl",         // and application/jsonlines
	"application/x-jsonlines",   //
	"application/stream+json",   //
	"application/json-seq",      // RFC 7464
	"multipart/x-mixed-replace", // pictures of a camera
	"application/grpc",          // and application/grpc-web, application/grpc+proto
	"application/connect+",      // streams of the Connect protocol

	"application/vnd.amazon.eventstream",
	"application/vnd.docker.raw-stream", // the output of a container
	"application/vnd.docker.multiplexed-stream",
}

// isStream reports whether a response with these values of Content-Type is a stream. A second
// request would bring other events, so a stream is never fetched again.
func isStream(req *http.Request, resp *http.Response, values []string) bool {
	if len(values) == 0 {
		return false
	}
	full := strings.TrimSpace(values[0])
	for _, t := range streamTypes {
		end := len(t) - 1 // whose letter rules out nearly all types
		if len(full) > end && full[end]|0x20 == t[end] && strings.EqualFold(full[:end], t[:end]) {
			return true
		}
	}
	return resp.ContentLength < 0 && isWatch(req, full)
}

// isWatch reports whether a response without a length is a watch of Kubernetes, which
// has the media type of any other JSON or protobuf response.
func isWatch(req *http.Request, mediaType string) bool {
	return strings.Contains(mediaType, "=watch") || req.URL != nil &&
		(strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1"))
}
