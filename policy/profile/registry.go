package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// DockerHub returns a rule for registry-1.docker.io, auth.docker.io and hub.docker.com. It
// is [Registry] with the limits of Docker Hub.
//
//   - Retry-After is in seconds or is a Unix time.
//   - If a 429 says "pull rate limit" and names no wait, it is final, because that quota is
//     for six hours. If the limit against abuse is exceeded, Docker Hub sends another 429.
//   - A POST is sent again after any other 429 and after a 503.
//   - All requests to a host share a scope. Pulls count per user or per address. The tokens
//     differ by repository and last for minutes, so they do not tell users apart.
//
// The sources were read on 2026-11-22. https://docs.docker.com/docker-hub/usage/,
// https://docs.docker.com/docker-hub/usage/pulls/ and
// https://docs.docker.com/docker-hub/troubleshoot/.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.DockerHub()) adds to it.
func DockerHub() policy.Rule {
	rule := Registry()
	rule.Classify = judge(pullLimit(), unavailable())
	return rule
}

// pullLimit recognises a used-up quota of pulls without the time of its end.
func pullLimit() classify.Func {
	says := onWords(classify.Final, http.StatusTooManyRequests, "pull rate limit")
	return func(o classify.Outcome) classify.Class {
		if _, ok := classify.RetryAfter(o); ok {
			return classify.Unknown
		}
		return says(o)
	}
}

// Registry returns a rule for OCI registries, such as ghcr.io, quay.io, public.ecr.aws and
// *.dkr.ecr.*.amazonaws.com. If blobs are redirected to another host, that host needs a
// rule of its own.
//
//   - A refusal has status 429 and the error code TOOMANYREQUESTS, or status 503 and the
//     error code UNAVAILABLE. Retry-After is in seconds, or is a Unix time.
//   - Every other 4xx is final.
//   - A POST is sent again after a 429, and after a 503 even if it names no wait, because a
//     registry sends these before it touches an upload. If a registry did act on a PATCH,
//     the Content-Range of the next PATCH does not fit and gets a 416. After any other 5xx
//     only idempotent requests are sent again.
//   - All requests to a host share a scope, because the tokens differ by repository and
//     last for minutes, and the limits do not.
//
// The sources were read on 2026-11-22.
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md,
// https://github.com/distribution/distribution/blob/main/registry/api/errcode/register.go and
// https://docs.aws.amazon.com/AmazonECR/latest/userguide/common-errors.html.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Registry()) adds to it.
func Registry() policy.Rule {
	return policy.Rule{
		Classify:    judge(unavailable()),
		ThrottleKey: policy.KeyByHost,
	}
}

// unavailable gives a refusal for each 503.
func unavailable() classify.Func {
	return classify.OnStatus(classify.Refused, http.StatusServiceUnavailable)
}
