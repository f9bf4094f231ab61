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

// Cloudflare returns a rule for api.cloudflare.com, and for services behind
// Cloudflare.
//
//   - Signals: RateLimit and RateLimit-Policy of the IETF draft. With a 429 comes
//     Retry-After, in seconds.
//   - Final: a 526, because the certificate of the server behind Cloudflare is not
//     valid, and every 4xx but 408, 421, 425 and 429.
//   - POST is sent again after a 429, and after a 521, 523 or 525, because Cloudflare
//     had no connection over which to send the request. After a 520, 522 or 524 the
//     server may have acted.
//   - Scope: the API token, or the API key in X-Auth-Key.
//   - Limits: pacing, because a client that passes the limit of the API is blocked for
//     five minutes.
//
// Sources, read on 2026-11-22:
// https://developers.cloudflare.com/fundamentals/api/reference/limits/ (of 2026-04-20),
// https://developers.cloudflare.com/changelog/2025-09-03-rate-limiting-improvement and
// https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/.
func Cloudflare() policy.Rule {
	return policy.Rule{
		Classify: judge(
			classify.OnStatus(classify.Refused, serverDown, serverUnreachable, handshakeFailed),
			classify.OnStatus(classify.Final, invalidCertificate),
		),
		Hint:   classify.DefaultHint,
		Pacing: policy.On,
	}
}
