// Package profile has rules for well-known providers, made from their
// documentation. A profile is a [policy.Rule] for the hosts of a provider:
//
//	transport.Config{
//		Hosts: map[string]policy.Rule{
//			"api.github.com":  profile.GitHub(),
//			"*.amazonaws.com": profile.AWS(),
//		},
//	}
//
// A profile is a value, so change the fields that do not suit:
//
//	rule := profile.OpenAI()
//	rule.Attempts = 3
//
// In a file of package rulefile, {"profile": "github", "attempts": 4} does the
// same. [All] lists the names.
//
// # What a profile knows
//
//   - Signals: the header fields and bodies by which the provider says that it
//     refuses a request, and how long to wait. They are in Classify and Hint.
//   - Final refusals: a quota that waiting does not refill, for instance. "Every
//     other 4xx" does not mean 408, 421 and 425, which are retried as in every rule.
//   - POST: after which responses the provider surely did not act, so that any
//     method may be sent again. After all other failures only idempotent requests
//     are sent again, as [classify.Default] says.
//   - Scope: which requests share a quota. A nil Scope means the credentials of the
//     request.
//   - Limits that the provider documents, and that are the same for all its users.
//
// Every other field is zero and inherits. In particular, Attempts, Backoff and the
// timeouts depend on the caller and not on the provider. A wait longer than
// RetryAfter.Max, such as a quota of an hour, gives the caller the response at
// once.
//
// Only responses of status 400 and above are looked at. Some APIs report errors
// with status 200, as Slack's Web API and GitHub's GraphQL API can. The caller gets
// these responses.
//
// Providers change their APIs. Each function names its sources and the day on which
// they were read. docs/profiles.md sums all profiles up in a table.
//
// The files:
//
//	profile.go     All, and the parts that profiles share
//	github.go      GitHub
//	aws.go         AWS
//	azure.go       Azure
//	google.go      GoogleCloud
//	openai.go      OpenAI
//	anthropic.go   Anthropic
//	stripe.go      Stripe
//	slack.go       Slack
//	discord.go     Discord
//	cloudflare.go  Cloudflare
//	registry.go    DockerHub and Registry
package profile
