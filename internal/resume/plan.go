// The fingerprint of the first header, to find it again in a second response, and whether the body can be
// continued at all.

package resume

import (
	"hash/maphash"
	"io"
	"math/bits"
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/internal/auth"
	"github.com/aplomb-go/aplomb/internal/replay"
)

// Terms are the continuations that the rule and the caller allow.
type Terms struct {
	Max        int   // continuations in a row without progress
	Again      int64 // bytes that are fetched a second time; not positive: none
	Repeatable bool  // the request may be sent again, whatever its method
}

// A Plan has the facts of the first response by which a body can be continued. From then on the
// header is the caller's, who may change it. Offsets count the bytes of the representation.
type Plan struct {
	resp      *http.Response // the caller's; it gets the Trailer of the last part
	part      io.ReadCloser  // the body of the response that is read now
	validator string         // sent in If-Range: an entity tag or a date; "": everything is fetched again
	fingerprint

	begin int64 // of the body
	pos   int64 // of the next byte
	end   int64 // of the body, or unknown
	stop  int64 // where the part ends, or unknown
	total int64 // length of the representation, or unknown; if everything is fetched again, the announced end

	left  int32 // how many bytes may still be fetched a second time
	limit int16 // of continuations in a row without progress
	keeps bool  // the bytes are hashed, because a second response may bring them again

	// Compares reports whether everything is fetched again after a cut, because no range can be
	// asked for. The bytes that the reader has are compared then.
	Compares bool
}

// An Impossible says why nothing can continue a body.
type Impossible string

// The reasons why nothing can continue a body.
const (
	ErrOff         Impossible = "transport: the rule or the caller allows no further request"
	ErrStatus      Impossible = "transport: the response is an error"
	ErrMethod      Impossible = "transport: for a body only a GET or QUERY is sent again, or a request with WithIdempotent"
	ErrBody        Impossible = "transport: the request has a body, and is not sent again for that of the response"
	ErrFinal       Impossible = "transport: another request would not help"
	ErrBelow       Impossible = "transport: a Transport below has asked for the rest"
	ErrRange       Impossible = "transport: the response has a Content-Range, and its status is not 206"
	ErrStream      Impossible = "transport: the response is a stream"
	ErrNoRanges    Impossible = "transport: the server says Accept-Ranges: none, or the request has a signature of its range, and it is not sent again whole"
	ErrNoValidator Impossible = "transport: the response has no strong validator, and the request is not sent again whole"
	ErrAgain       Impossible = "transport: there is no rest to ask for, and too many bytes to fetch them again (MaxRefetch)"
	ErrMayStream   Impossible = "transport: a body without a length may be a stream if it has fewer than 512 bytes or came with a pause, so it is not fetched again"
)

// Error returns the reason.
func (i Impossible) Error() string { return string(i) }

// streamTypes are the media types of streams. They tell events as they happen, and have no end that
// the reader waits for. Their last letters rule out nearly all other types.
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

// Check reports whether the body of resp, the response to req, can be continued after a cut. There
// is a body. If it cannot be continued, the error says why. Check does not allocate. It sees nearly
// every response, and nearly none is cut. So it only looks at the header, and a cut does the rest.
func Check(req *http.Request, resp *http.Response, may *Terms) (p Plan, err error) {
	get, query := req.Method == http.MethodGet || req.Method == "", req.Method == "QUERY"
	bare := req.Body == nil || req.Body == http.NoBody
	whole := bare || replay.Independent(req) // it has its body again
	reads := get && bare || query && whole   // it only asks for content
	again := may.Again > 0 && (reads || may.Repeatable && whole)
	f, length, partial := fields(resp.Header), resp.ContentLength, resp.StatusCode == http.StatusPartialContent
	switch {
	case resp.StatusCode/100 != 2:
		return p, ErrStatus
	case !reads && !again && (get || query || may.Repeatable && may.Again > 0):
		return p, ErrBody
	case !reads && !again && may.Repeatable:
		return p, ErrAgain
	case !reads && !again:
		return p, ErrMethod
	case !partial && f["Content-Range"] != nil:
		return p, ErrRange
	}
	p = Plan{resp: resp, part: resp.Body, end: unknown, total: unknown, left: int32(max(may.Again, 0)), limit: int16(may.Max)}
	located := resp.StatusCode == http.StatusOK && len(req.Header["Range"]) == 0 // some servers send a range with this status
	switch {
	case partial:
		located = p.setSpan(f, length) && len(req.Header["Range"]) == 1
	case length > 0:
		p.end, p.total = length, length
	}
	media, accepts := strings.TrimSpace(strings.Join(f["Content-Type"], ", ")), strings.Join(f["Accept-Ranges"], ",") // RFC 9110 §14.3
	tag := strings.Join(f["Etag"], ", ")
	switch opaque := strings.TrimSuffix(strings.TrimPrefix(tag, `"`), `"`); {
	case !reads || !located || resp.Uncompressed: // ranges are defined for GET and QUERY only (RFC 9110 §14.2, RFC 10008)
	case len(f["Content-Encoding"]) > 1 || length < 0 && f.isCoded(): // see checkRange
	case length < 0 && f.isMultipart():
	case len(f["Etag"]) == 0 && len(f["Last-Modified"]) == 1:
		p.validator = f.strongDate()
	case opaque != "" && len(opaque) == len(tag)-2 && !strings.ContainsFunc(opaque, func(c rune) bool { return c == '"' || c <= ' ' || c == 0x7f }):
		p.validator = tag // a strong one; the grammar (RFC 9110 §8.8.3) allows an empty tag, but that identifies nothing
	}
	bears := req.Header["Authorization"] != nil || req.Header["Signature-Input"] != nil || req.URL != nil && req.URL.RawQuery != ""
	ranged := p.validator != "" && accepts != "none" && !(bears && auth.SignsRange(req))
	if (!ranged || p.end == unknown) && isStream(req, media, length) { // or else it is a file, whatever its type
		return p, ErrStream
	}
	switch {
	case ranged:
	case again: // its end is where the base transport says it is, whatever length was announced
		p.Compares, p.validator, p.end, p.total = true, "", unknown, unknown
		if length > 0 {
			p.total = p.begin + length
		}
	case p.validator != "":
		return p, ErrNoRanges
	default:
		return p, ErrNoValidator
	}
	p.keeps = again && (!ranged || !partial && accepts != "bytes")
	p.pos, p.stop, p.fingerprint = p.begin, p.end, fingerprintOf(resp, p.keeps)
	return p, nil
}

// isStream reports whether a second request would bring other events.
func isStream(req *http.Request, media string, length int64) bool {
	for _, t := range streamTypes {
		if end := len(t) - 1; len(media) > end && media[end]|0x20 == t[end] && strings.EqualFold(media[:end], t[:end]) {
			return true
		}
	}
	if length >= 0 || media == "" || req.URL == nil {
		return false
	}
	// A watch of Kubernetes has the media type of any other JSON or protobuf response.
	return strings.Contains(media, "=watch") || strings.Contains(req.URL.RawQuery, "watch=true") || strings.Contains(req.URL.RawQuery, "watch=1")
}

// seed is the key of the hashes of headers. Only a server that knows it could make another header
// with the same 64 or 32 bits.
var seed = maphash.MakeSeed()

// A fingerprint has keyed hashes of the parts of a header that a second response has to repeat.
type fingerprint struct {
	header uint64 // of the status, the length and nearly all fields; 0: nothing is compared
	coding uint32 // of the Content-Encoding; 0: none
	digest uint32 // of the Repr-Digest; 0: none
}

// fingerprintOf returns the fingerprint of a response. header is set if all of it is compared. The
// caller has the header of the first response and will have the body of the second, so all fields
// must be the same then. The exceptions say nothing of the body.
func fingerprintOf(resp *http.Response, all bool) (f fingerprint) {
	f.coding, f.digest = hashOf(resp.Header["Content-Encoding"]), hashOf(resp.Header["Repr-Digest"])
	if !all {
		return f
	}
	f.header = uint64(resp.StatusCode)<<48 ^ uint64(resp.ContentLength)
	if resp.Uncompressed {
		f.header ^= 1 << 47
	}
	for name, values := range resp.Header {
		if strings.HasSuffix(name, "d") && (strings.HasSuffix(name, "Request-Id") || strings.HasSuffix(name, "Requestid") ||
			strings.HasSuffix(name, "Req-Id") || strings.HasSuffix(name, "Trace-Id") || strings.HasSuffix(name, "Traceid") || strings.HasSuffix(name, "Correlation-Id")) {
			continue
		}
		switch name {
		case "Date", "Age", "Expires", // when it was made, and until when a cache may keep it
			"Set-Cookie",                                   // of the session that the caller now has
			"Connection", "Keep-Alive", "Via", "X-Varnish", // the way that it came
			"X-Cache", "X-Cache-Hits", "X-Timer", "Cache-Status", "Cf-Cache-Status", "X-Amz-Cf-Pop",
			"X-Served-By", "X-Server", "X-Backend", "X-Backend-Server", // which server of many made it
			"Server-Timing", "X-Runtime", "X-Response-Time", "X-Envoy-Upstream-Service-Time", // how long that took
			"X-Envoy-Attempt-Count", "Openai-Processing-Ms", "X-Ms-Request-Duration-Ms",
			"Cf-Ray", "Cf-Auditlog-Id", "Audit-Id", "X-Amz-Id-2", "X-Amz-Cf-Id", "X-Amz-Apigw-Id", // its number in a log or a trace
			"X-Guploader-Uploadid", "X-Ms-Activity-Id", "X-Ms-Operation-Identifier", "X-Msedge-Ref", "X-Slack-Unique-Id",
			"X-Cloud-Trace-Context", "Traceparent", "Tracestate", "X-B3-Spanid",
			"Nel", "Report-To", "Reporting-Endpoints": // where a browser reports faults; the address has a token
			continue
		}
		if short := strings.TrimPrefix(name, "X-"); len(short) > 4 {
			switch short[:4] { // four bytes are quickly compared
			case "Rate", "Ms-R", "Anth":
				if isQuota(short) {
					continue
				}
			}
		}
		for i, value := range values { // the fields in any order, as a map has none
			f.header += bits.RotateLeft64(maphash.Comparable(seed, struct{ name, value string }{name, value}), i)
		}
	}
	return f
}

// isQuota reports whether a field tells the rest of a quota. The name has no X- in front.
func isQuota(name string) bool {
	return strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "Rate-Limit") ||
		strings.HasPrefix(name, "Ms-Ratelimit") || strings.HasPrefix(name, "Anthropic-Ratelimit")
}

// hashOf returns 0 if there are no values.
func hashOf(values []string) uint32 {
	if len(values) == 0 {
		return 0
	}
	return uint32(maphash.String(seed, strings.Join(values, ", ")))
}
