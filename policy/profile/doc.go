// Package profile has rules for kinds of services ([API], [Service]), and for well-known
// APIs, such as GitHub, AWS, OpenAI and Stripe. The latter are made from the providers'
// documentation. A profile is a [policy.Rule] for the hosts of a provider:
//
//	transport.Config{
//		Hosts: map[string]policy.Rule{
//			"api.github.com":  profile.GitHub(),
//			"*.amazonaws.com": profile.AWS(),
//		},
//	}
//
// Lay the fields that do not suit over it. A Classify and a RetryAfter are then asked before those
// of the profile. To assign to a field replaces what the profile knows.
//
//	policy.Rule{MaxAttempts: 3, Classify: own}.Or(profile.OpenAI())
//
// In a file of package rulefile, {"profile": "openai", "max_attempts": 3} does the
// same. Package rulefile lists the names.
//
// # What a profile knows
//
//   - Classify and RetryAfter know the header fields and bodies by which the provider says
//     that it refuses a request, and how long to wait.
//   - Classify also knows which refusals are final. If a quota is paid for, for
//     instance, waiting does not refill it. "Every other 4xx" does not mean 408, 421
//     and 425, which are retried as in every rule.
//   - Classify knows after which responses the provider surely did not act. Then any
//     method is sent again. After all other failures only idempotent requests are sent
//     again, as [classify.Default] says.
//   - ThrottleKey knows which requests share a quota. If it is nil, these are the requests
//     with the same credentials.
//   - A few fields have a limit that the provider documents, if it is the same for all
//     users.
//
// Every other field is zero and inherits. In particular, MaxAttempts, Backoff and the
// timeouts depend on the caller and not on the provider. If a server asks for a longer
// wait than MaxRetryAfter, such as the rest of an hour, the caller gets the response at
// once.
//
// Responses of status 400 and above are looked at. Some APIs report errors with status
// 200. AWS looks into the three responses of S3 that can have an error inside, and OpenAI
// and Anthropic look at the first event of a stream. They wait for it as long as the
// caller's context and StallTimeout allow. All other successes go to the caller unread, as those
// of Slack's Web API and of GitHub's GraphQL API.
//
// Providers change their APIs. Each function names its sources and the day on which
// they were read. docs/profiles.md sums all profiles up in a table.
//
// The files:
//
//	profile.go     the parts that profiles share
//	kinds.go       API and Service
//	inside.go      errors inside a success
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
