// Package rulefile reads rules for retrying HTTP requests from JSON, so that they can be
// changed without a new build.
//
//	{
//	  "rule": {
//	    "max_attempts": 4,
//	    "backoff": {"type": "exponential", "max": "32s"},
//	    "classify": ["refusals", {"status": [500, 502], "class": "final"}],
//	    "max_retry_after": "2m"
//	  },
//	  "hosts": {
//	    "*.example.com": {"attempt_timeout": "5s", "rate_limit": {"per_second": 10, "burst": 5}},
//	    "POST api.example.com/charges": {"attempt_timeout": "500ms"}
//	  }
//	}
//
// The keys of hosts are those of transport.Config.Hosts. A key with a slash has the rule of a
// path, which has none of the limits that all requests to a host share.
//
// Both keys may be missing. The input {} gives a zero rule and no hosts. A third key,
// "$schema", is for editors, and Load ignores its value. docs/rules.schema.json is a
// JSON Schema of the format. With it editors complete and check a file.
//
// # Fields
//
// The key of a field is its Go name in snake case, such as attempt_timeout for
// [policy.Rule].AttemptTimeout. The fields of a group form an object. A missing key
// inherits, as a zero field does.
//
//   - A duration is a string with units, such as "250ms" or "1m30s".
//   - A size is a number of bytes, or a string such as "64KiB" or "1MiB".
//   - A switch is "on" or "off".
//   - "off" stands for policy.Off. A whole group can be "on" or "off", too, which is
//     its field Enabled. Zero, a negative number and an empty group are faults.
//   - A name is written "refusals" or {"name": "refusals"}. Names come from the
//     lists below and from [Names].
//
// # Profiles
//
// A rule can start from a profile of package profile or of [Names]:
//
//	"hosts": {
//	  "api.github.com": {"profile": "github", "max_attempts": 4}
//	}
//
// The names are api, service, github, aws, azure, google_cloud, openai, anthropic, stripe, slack,
// discord, cloudflare, docker_hub and registry. The other keys of the rule override
// the profile. The items of classify and retry_after are asked first. If they have no answer,
// the profile is asked, and then the rules that this rule inherits from. A value that would
// turn off by accident what the profile knows is a fault. These are "default" and "refusals"
// in classify, and "all" in idempotent.
//
// # Functions and back-offs
//
//   - backoff is a name, or an object with a "type" and the fields of that type in
//     snake case. The types are exponential, google, geometric, normal, randomized,
//     and constant with a "delay", which may be "0s". The names are those of all
//     types but constant, for the type with its defaults.
//   - classify is a list. The first item with an opinion decides. An item is one of
//     the names default, refusals and signals, or an object with a "class"
//     (final, refused, ambiguous) and one of these keys: "status", a list of codes;
//     "error", a list of types (canceled, timeout, dns, dial, tls, reset, protocol,
//     _OTHER); or "body", a text in the body of a response. A body is searched if
//     the status is 400 or above, or is in the "status" of the same item.
//     "default" decides everything, so it has to be the last item.
//   - retry_after is a list of names from Names. The first function with an answer counts.
//     classify.RetryAfter is always asked last.
//   - idempotent is a list of methods, such as ["GET", "PUT", "POST"], and names. A
//     request is idempotent if one of the items says so, so ["default", "POST"]
//     adds POST to the standard methods. The names are default, none and all. Use
//     all for a service to which no repetition does harm.
//   - idempotency_key is the name uuid, for a random key for each POST and PATCH, none, or a
//     name from Names.
//   - throttle_key is one of the names credentials, route, and host, which does not tell
//     requests apart, or a name from Names.
//   - cost is the name one, which makes each request cost 1, or a name from Names.
//
// A list of one item needs no brackets.
//
// The files:
//
//	load.go   Load, Names and Error
//	watch.go  Watcher, which reads a file again when it changes
package rulefile
