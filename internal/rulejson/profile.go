// Rules over profiles.

package rulejson

import (
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// builtinProfiles returns the profiles by the names that they have in files.
func builtinProfiles() map[string]policy.Rule {
	return map[string]policy.Rule{
		"api":          profile.API(),
		"service":      profile.Service(),
		"github":       profile.GitHub(),
		"aws":          profile.AWS(),
		"azure":        profile.Azure(),
		"google_cloud": profile.GoogleCloud(),
		"openai":       profile.OpenAI(),
		"anthropic":    profile.Anthropic(),
		"stripe":       profile.Stripe(),
		"slack":        profile.Slack(),
		"discord":      profile.Discord(),
		"cloudflare":   profile.Cloudflare(),
		"docker_hub":   profile.DockerHub(),
		"registry":     profile.Registry(),
	}
}

// contradictions notes the built-in names that would turn off the knowledge of the
// profile by accident. A name of the program can mean anything.
func (l *loader) contradictions(n *node, base policy.Rule) {
	_, ownDefault := l.names.Classify["default"]
	_, ownRefusals := l.names.Classify["refusals"]
	_, ownAll := l.names.Idempotent["all"]
	judges := base.Classify != nil
	for _, c := range []struct {
		known              bool
		key, value, reason string
	}{
		{judges && !ownDefault, "classify", "default", `which would never be asked, because "default" decides everything; leave "default" out`},
		{judges && !ownRefusals, "classify", "refusals", `which knows which 429 and 503 are refusals; leave "refusals" out`},
		{judges && !ownAll, "idempotent", "all",
			`which knows when a POST may be sent again; leave "idempotent" out, or write methods, as in ["default", "POST"]`},
	} {
		for _, item := range n.member(c.key).items() {
			if item = nameOf(item); c.known && item.value == c.value {
				l.fault(item, "%s contradicts the profile %s, %s", quote(c.value), quote(nameOf(n.member("profile")).value.(string)), c.reason)
			}
		}
	}
}

// nameOf returns the value in which a name stands, which is written "name" or
// {"name": "name"}.
func nameOf(n *node) *node {
	if name := n.member("name"); name != nil {
		return name
	}
	return n
}
