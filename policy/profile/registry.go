package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// DockerHub returns a rule for registry-1.docker.io, auth.docker.io and
// hub.docker.com. It is [Registry] with the limits of Docker Hub.
//
//   - Signals: Retry-After, in seconds or as a Unix time.
//   - Final: a 429 that says "pull rate limit" and names no wait. That quota is for
//     hours. Requests beyond the limit against abuse get another 429.
//   - POST is sent again after any other 429 and after a 503.
//   - Scope: the whole host. Pulls count per user or per address. The tokens differ by
//     repository and last for minutes, so they do not tell.
//
// Sources, read on 2026-11-22: https://docs.docker.com/docker-hub/usage/,
// https://docs.docker.com/docker-hub/usage/pulls/ and
// https://docs.docker.com/docker-hub/troubleshoot/.
func DockerHub() policy.Rule {
	rule := Registry()
	rule.Classify = judge(pullLimit(), unavailable())
	return rule
}

// pullLimit recognises a used-up quota of pulls without the time of its end.
func pullLimit() classify.Func {
	says := onWords(classify.Final, []int{http.StatusTooManyRequests}, "pull rate limit")
	return func(o classify.Outcome) classify.Verdict {
		if _, ok := classify.DefaultHint(o); ok {
			return classify.Unknown
		}
		return says(o)
	}
}

// Registry returns a rule for OCI registries, such as ghcr.io, quay.io, public.ecr.aws
// and *.dkr.ecr.*.amazonaws.com.
//
//   - Signals: the error code TOOMANYREQUESTS comes with status 429, and UNAVAILABLE
//     with 503. Retry-After is in seconds, and some registries send a Unix time.
//   - Final: every other 4xx.
//   - POST is sent again after a 429, and after a 503 with or without a wait. A
//     registry sends these before it touches an upload. If it did act on a PATCH, the
//     Content-Range of the next PATCH does not fit and gets a 416. Any other 5xx is
//     ambiguous.
//   - Scope: the whole host, because the tokens differ by repository and last for
//     minutes, and limits do not.
//
// Blobs are often redirected to another host, which needs a rule of its own.
//
// Sources, read on 2026-11-22: https://github.com/opencontainers/distribution-spec/blob/main/spec.md,
// https://github.com/distribution/distribution/blob/main/registry/api/errcode/register.go and
// https://docs.aws.amazon.com/AmazonECR/latest/userguide/common-errors.html.
func Registry() policy.Rule {
	return policy.Rule{
		Classify: judge(unavailable()),
		Hint:     classify.DefaultHint,
		Scope:    wholeHost,
	}
}

// unavailable gives a refusal for each 503.
func unavailable() classify.Func {
	return classify.OnStatus(classify.Refused, http.StatusServiceUnavailable)
}
