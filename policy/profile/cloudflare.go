package profile

import (
	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// These are statuses of Cloudflare's edge about the server behind it.
const (
	serverDown         = 521
	serverUnreachable  = 523
	handshakeFailed    = 525
	invalidCertificate = 526
)

// Cloudflare returns a rule for api.cloudflare.com, and for services behind Cloudflare.
//
//   - RateLimit and RateLimit-Policy have the form of the IETF draft. When a limit is
//     exceeded, the status is 429 and Retry-After is in seconds.
//   - A 526 is final, because the certificate of the server behind Cloudflare is not valid.
//     So is every 4xx but 429.
//   - A POST is sent again after a 429. It is also sent again after a 521, 523 or 525, because
//     Cloudflare had no connection over which to send the request. After a 520, 522 or 524
//     the server may have acted, so only idempotent requests are sent again.
//   - Requests share a scope if they have the same API token, or the same API key in
//     X-Auth-Key.
//   - QuotaPacing is on. If a client exceeds the limit of the API, it is blocked for five minutes.
//
// The sources were read on 2026-11-22.
// https://developers.cloudflare.com/fundamentals/api/reference/limits/ (of 2026-04-20),
// https://developers.cloudflare.com/changelog/2025-09-03-rate-limiting-improvement and
// https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Cloudflare()) adds to it.
func Cloudflare() policy.Rule {
	return policy.Rule{
		Classify: judge(
			classify.OnStatus(classify.Refused, serverDown, serverUnreachable, handshakeFailed),
			classify.OnStatus(classify.Final, invalidCertificate),
		),
		QuotaPacing: policy.On,
	}
}
