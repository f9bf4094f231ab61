// What a body keeps of its header, to find it again in a second response.

package resume

import (
	"hash/maphash"
	"math/bits"
	"net/http"
	"strings"
)

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
	if h := resp.Header; h["Content-Encoding"] != nil || h["Repr-Digest"] != nil {
		f.coding, f.digest = hashOf(h["Content-Encoding"]), hashOf(h["Repr-Digest"])
	}
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

// isQuota reports whether a field says what is left of a quota. The name has no X- in front.
func isQuota(name string) bool {
	return strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "Rate-Limit") ||
		strings.HasPrefix(name, "Ms-Ratelimit") || strings.HasPrefix(name, "Anthropic-Ratelimit")
}

// hashOf returns 0 if there are no values.
func hashOf(values []string) uint32 {
	var sum uint64
	for _, v := range values {
		sum = bits.RotateLeft64(sum, 7) ^ maphash.String(seed, v)
	}
	return uint32(sum ^ sum>>32)
}
