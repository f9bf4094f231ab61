// All profiles by name, and the parts that profiles share.

package profile

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// All returns all profiles by the names that they have in rule files. The map is a
// new one with each call.
func All() map[string]policy.Rule {
	return map[string]policy.Rule{
		"github":       GitHub(),
		"aws":          AWS(),
		"azure":        Azure(),
		"google_cloud": GoogleCloud(),
		"openai":       OpenAI(),
		"anthropic":    Anthropic(),
		"stripe":       Stripe(),
		"slack":        Slack(),
		"discord":      Discord(),
		"cloudflare":   Cloudflare(),
		"docker_hub":   DockerHub(),
		"registry":     Registry(),
	}
}

// memory is how much of a request body is kept for a retry. The SDKs of cloud
// storage send parts of 5 to 16 MiB in bodies that hide GetBody and Seek.
const memory = 16 << 20

// judge returns the classifier of a profile. A server that forbids a retry is
// obeyed first. own are the provider's own rules. At last come the signals that ask
// for a retry, and the rule that a 429, or a 503 that names a wait, is a refusal.
func judge(own ...classify.Func) classify.Func {
	return classify.First(forbidden, classify.First(own...), classify.Signals, classify.Refusals)
}

// forbidden is classify.Signals without its reasons for a retry. Such a reason
// would hide that the server did not act.
func forbidden(o classify.Outcome) classify.Verdict {
	if v := classify.Signals(o); v == classify.Final {
		return v
	}
	return classify.Unknown
}

// onWords returns a classifier that gives v to responses with one of the words in
// the first 64 KiB of their body. Without codes it looks at every response of
// status 400 or above. A word in quotes matches a JSON string as a whole.
func onWords(v classify.Verdict, codes []int, words ...string) classify.Func {
	return classify.OnBody(v, 0, func(head []byte) bool {
		return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(head, []byte(w)) })
	}, codes...)
}

// withToken returns the name of a scope for a provider whose Authorization is a
// token, which is the same in all requests of a client.
func withToken(req *http.Request, part string) string {
	return req.Header.Get("Authorization") + "\n" + part
}

// wholeHost is the scope of a provider that counts clients by something that is
// not in the request, such as their address.
func wholeHost(*http.Request) string { return "" }
