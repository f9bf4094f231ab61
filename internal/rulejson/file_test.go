package rulejson

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/profile"
)

func parsed(t *testing.T, text string) *File {
	t.Helper()
	return testkit.Must(Parse(strings.NewReader(text), Names{}))(t)
}

// loaded is rulefile.Load, but for the type of its errors.
func loaded(r io.Reader, names Names) (policy.Rule, map[string]policy.Rule, error) {
	f, err := Parse(r, names)
	if err != nil {
		return policy.Rule{}, nil, err
	}
	rule, hosts := f.Rules()
	return rule, hosts, nil
}

func TestSchemaKey(t *testing.T) {
	_, _, err := loaded(strings.NewReader(`{"$schema": "rules.schema.json", "rule": {"max_attempts": 3}}`), Names{})
	require.NoError(t, err)
	for input, want := range map[string]string{
		`{"$schema": 1}`:                             "$schema\"]: the number 1 where the address of a JSON Schema is wanted",
		`{"$schema": "a", "$schema": "b"}`:           "the key is there twice",
		`{"rule": {"$schema": "a"}}`:                 "unknown key",
		`{"hosts": {"h": {"$schema": "a"}}}`:         "unknown key",
		`{"rule": {"rate_limit": {"$schema": "a"}}}`: "unknown key",
	} {
		_, _, err := loaded(strings.NewReader(input), Names{})
		assert.ErrorContains(t, err, want, input)
	}
}

func TestParseTellsProfileAndKeysApart(t *testing.T) {
	f := parsed(t, `{"hosts": {"h": {"profile": {"name": "github"}, "max_attempts": 4}}}`)
	part := f.Hosts["h"]
	assert.Equal(t, "github", part.Profile)
	assert.Equal(t, policy.Rule{MaxAttempts: 4}, part.Keys)
	assert.True(t, part.Base.Classify != nil && part.Rule.Classify != nil)
	assert.Equal(t, []int{0, 4}, []int{part.Base.MaxAttempts, part.Rule.MaxAttempts})
}

func TestLocate(t *testing.T) {
	f := parsed(t, "{\n \"rule\": {\"max_attempts\": 3},\n \"hosts\": {\"a \\\"]b\": {\n  \"concurrency\": {\"max\": 9}}}}")
	here := func(field string) string {
		return f.Locate(errors.Join(&policy.FieldError{Field: field, Err: errors.New("1 is wrong")})).Error()
	}
	assert.Equal(t, "line 2, column 27: rule.max_attempts: 1 is wrong", here("Rule.MaxAttempts"))
	assert.Equal(t, "line 2, column 10: rule: Concurrency.Max: 1 is wrong", here("Rule.Concurrency.Max"))
	assert.Equal(t, "line 4, column 26: hosts[\"a \\\"]b\"].concurrency.max: 1 is wrong", here(`Hosts["a \"]b"].Concurrency.Max`))
	assert.Equal(t, "line 3, column 12: hosts[\"a \\\"]b\"]: 1 is wrong", here(`Hosts["a \"]b"]`))
	assert.Equal(t, "line 1, column 1: 1 is wrong", here("Base"))
	assert.Equal(t, "line 1, column 1: 1 is wrong", here(`Hosts["other"].MaxAttempts`))
	other := errors.New("another error")
	assert.Equal(t, other, f.Locate(other))
	assert.NoError(t, f.Locate(nil))
}

func TestSettings(t *testing.T) {
	f, err := Parse(strings.NewReader(`{
	  "rule": {"backoff": {"type": "constant", "delay": "2s"}, "profile": "aws", "stall_timeout": "off", "max_elapsed_time": "1h30m", "replay_buffer": "12MiB",
	    "retry_budget": {"min_per_second": 0.5}},
	  "hosts": {
	    "h": {"retry_after": ["hour"], "profile": "github", "replay_buffer": 1000, "max_refetch": "off",
	      "retry_budget": {"min_per_second": "off"}, "rate_limit": {"per_second": 0.5}, "circuit_breaker": "on", "concurrency": {"max": 7}},
	    "i": {"profile": "service", "rate_limit": {"per_second": 2.5}, "concurrency": {"fail_fast": "on"}, "hedge": {"delay": "1h"}}
	  }
	}`), hour)
	require.NoError(t, err)
	for pattern, want := range map[string]map[string][2]string{
		"": {
			"max_attempts": {"6", "default"}, "max_retry_after": {"1m", "default"}, "max_elapsed_time": {"1h30m", "rule"},
			"backoff": {`{"type":"constant","delay":"2s"}`, "rule"}, "stall_timeout": {"off", "rule"}, "replay_buffer": {"12MiB", "rule"},
			"classify": {"of the profile", `profile "aws" of rule`}, "retry_after": {"of the profile", `profile "aws" of rule`},
			"concurrency.enabled": {"off", "default"}, "concurrency.max": {"off", "default"},
			"hedge.enabled": {"off", "default"}, "rate_limit.burst": {"off", "default"}, "retry_budget.enabled": {"on", "default"},
			"retry_budget.min_per_second": {"0.5", "rule"}, "circuit_breaker.enabled": {"off", "default"}, "circuit_breaker.fail_fast": {"off", "default"},
		},
		"h": {
			"classify":      {`of the profile, then profile "aws" of rule`, `profile "github" of host "h"`},
			"retry_after":   {`["hour"], then profile "github" of host "h", then profile "aws" of rule`, `host "h"`},
			"replay_buffer": {"1000", `host "h"`}, "max_refetch": {"off", `host "h"`},
			"retry_budget.min_per_second": {"off", `host "h"`}, "circuit_breaker.enabled": {"on", `host "h"`},
			"rate_limit.per_second": {"0.5", `host "h"`}, "rate_limit.burst": {"1", "default"},
			"concurrency.enabled": {"on", "default"}, "concurrency.max": {"7", `host "h"`},
		},
		"i": {
			"backoff":          {"exponential, base 50ms, max 1s", `profile "service" of host "i"`},
			"rate_limit.burst": {"3", "default"}, "concurrency.enabled": {"off", "default"}, "concurrency.max": {"off", "default"},
			"hedge.enabled": {"on", "default"}, "hedge.delay": {"1h", `host "i"`},
		},
	} {
		got := map[string][2]string{}
		for _, s := range f.Settings(pattern) {
			got[s.Key] = [2]string{s.Value, s.Source}
		}
		for key, pair := range want {
			assert.Equal(t, pair, got[key], "%q %s", pattern, key)
		}
	}
}

// The cost of the faults of a file grows with the file, not with its square. With the
// square this test would take minutes.
func TestLocateInALargeFile(t *testing.T) {
	n := soak.Size(1<<15, 1<<18)
	var text strings.Builder
	text.WriteString(`{"hosts":{"h":{}`)
	for i := range n {
		fmt.Fprintf(&text, `,"*%d":{}`, i)
	}
	text.WriteString(`,"*7":{}}}`)
	l := &loader{document: document{data: []byte(text.String())}}
	f := &File{data: l.data, root: l.parse()}
	faults := make([]error, n)
	for i := range faults {
		faults[i] = &policy.FieldError{Field: fmt.Sprintf("Hosts[%q]", "*"+strconv.Itoa(i)), Err: fmt.Errorf("%d is wrong", i)}
	}
	err := f.Locate(errors.Join(faults...))
	located, ok := errors.AsType[Errors](err)
	require.True(t, ok)
	assert.Len(t, located, maxFaults+1)
	assert.Equal(t, `line 1, column 26: hosts["*1"]: 1 is wrong`, located[1].Error())
	assert.Contains(t, located[7].Error(), `hosts["*7"]: 7 is wrong`, "the first member counts")
	assert.Contains(t, err.Error(), fmt.Sprintf("there are %d more faults", n-maxFaults))
}

// The rule of a path lies over that of its host, and has no limits of the host.
func TestRulesOfPaths(t *testing.T) {
	f := parsed(t, `{"rule": {"max_attempts": 2}, "hosts": {
	  "h": {"max_elapsed_time": "1m", "rate_limit": {"per_second": 5}},
	  "POST h/v1/": {"profile": "openai", "max_attempts": 4}
	}}`)
	got := map[string]string{}
	for _, s := range f.Settings("POST h/v1/", "h") {
		got[s.Key] = s.Source
	}
	for key, source := range map[string]string{
		"max_attempts": `path "POST h/v1/"`, "max_elapsed_time": `host "h"`, "rate_limit.per_second": `host "h"`,
		"classify": `profile "openai" of path "POST h/v1/"`, "replay_buffer": "default",
	} {
		assert.Equal(t, source, got[key], key)
	}
	_, _, err := loaded(strings.NewReader(`{"hosts": {"h": {"rate_limit": {"per_second": 5}}, "GET h/v1/": {"max_attempts": 4, "quota_pacing": "on"}}}`), Names{})
	var faults Errors
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 1)
	assert.Equal(t, `hosts["GET h/v1/"].quota_pacing`, faults[0].Key)
	assert.Contains(t, faults[0].Err.Error(), "is a limit of the host")
}

// load loads a rule, given as the members of its object.
func load(t *testing.T, members string, names Names) policy.Rule {
	t.Helper()
	rule, _, err := loaded(strings.NewReader(`{"rule": {`+members+`}}`), names)
	require.NoError(t, err, members)
	return rule
}

// posted returns the outcome of a POST, with header lines.
func posted(code int, body string, header ...string) classify.Outcome {
	o := response(code, body)
	for _, line := range header {
		key, value, _ := strings.Cut(line, ": ")
		o.Response.Header.Set(key, value)
	}
	return o
}

func TestLoadEveryProfile(t *testing.T) {
	files := testkit.Must(filepath.Glob("../../policy/profile/*.go"))(t)
	functions := 0
	for _, file := range files {
		text := testkit.Must(os.ReadFile(file))(t)
		functions += len(regexp.MustCompile(`(?m)^func [A-Z]\w*\(\) policy\.Rule `).FindAll(text, -1))
	}
	assert.Len(t, builtinProfiles(), functions, "each profile has a name")
	for name, want := range builtinProfiles() {
		assert.Equal(t, want.String(), load(t, `"profile": "`+name+`"`, Names{}).String())
		assert.Equal(t, want.String(), load(t, `"profile": {"name": "`+name+`"}`, Names{}).String())
	}
}

// The fields of the rule override the profile, one by one.
func TestFieldsOverrideTheProfile(t *testing.T) {
	rule := load(t, `"max_attempts": 4, "profile": "github", "max_retry_after": "10m", "throttle_key": "host"`, Names{})
	assert.Equal(t, 4, rule.MaxAttempts)
	assert.Equal(t, 10*time.Minute, rule.MaxRetryAfter)
	assert.Empty(t, rule.ThrottleKey(&http.Request{Header: http.Header{"Authorization": {"Bearer a"}}}))

	rule = load(t, `"profile": "discord", "rate_limit": "off", "quota_pacing": "off", "idempotent": ["default", "POST"]`, Names{})
	assert.Equal(t, policy.RateLimit{Enabled: policy.Off, PerSecond: 50, Burst: 1}, rule.RateLimit)
	assert.Equal(t, policy.Switch(policy.Off), rule.QuotaPacing)
	assert.True(t, rule.Idempotent(&http.Request{Method: http.MethodPost}))
}

// Classifiers and hints of the rule are asked before the profile's.
func TestClassifyAndHintAddToTheProfile(t *testing.T) {
	names := Names{RetryAfter: map[string]classify.RetryAfterFunc{"body": func(o classify.Outcome) (time.Duration, bool) {
		return 3 * time.Second, len(o.Peek(1)) > 0
	}}}
	rule := load(t, `"profile": "openai", "classify": {"status": [409, 503], "class": "ambiguous"}, "retry_after": "body"`, names)
	const slowDown = `{"error": {"code": "slow_down"}}`
	assert.Equal(t, classify.Ambiguous, rule.Classify(posted(409, "")))
	assert.Equal(t, classify.Ambiguous, rule.Classify(posted(503, slowDown)), "the rule is asked first")
	assert.Equal(t, classify.Refused, profile.OpenAI().Classify(posted(503, slowDown)))
	assert.Equal(t, classify.Final, rule.Classify(posted(429, `{"error": {"type": "insufficient_quota"}}`)), "the profile knows the others")

	for want, o := range map[time.Duration]classify.Outcome{
		3 * time.Second: posted(429, "3", "Retry-After: 5"),
		5 * time.Second: posted(429, ``, "Retry-After: 5"),
	} {
		wait, ok := rule.RetryAfter(o)
		assert.True(t, ok)
		assert.Equal(t, want, wait)
	}
}

// The program can have profiles of its own. Its names come first.
func TestProfilesOfTheProgram(t *testing.T) {
	names := Names{
		Profile:  map[string]policy.Rule{"github": {MaxAttempts: 2}, "house": {Classify: classify.Refusals, RetryAfter: classify.RetryAfter}},
		Classify: map[string]classify.Func{"default": classify.Signals},
	}
	assert.Equal(t, policy.Rule{MaxAttempts: 2}, load(t, `"profile": "github"`, names))
	assert.Equal(t, 2, load(t, `"profile": "github", "idempotent": "all", "classify": "default"`, names).MaxAttempts, "it has nothing to contradict")
	assert.NotNil(t, load(t, `"profile": "house", "classify": "default"`, names).Classify, "a name of the program")
	assert.Equal(t, 1, load(t, `"cost": "one"`, names).Cost(nil))
}

func TestProfileFaults(t *testing.T) {
	const known = "anthropic, api, aws, azure, cloudflare, discord, docker_hub, github, gone, google_cloud, openai, registry, service, slack, stripe"
	for members, want := range map[string]string{
		`"profile": "githb"`:             `line 1, column 22: rule.profile: "githb" is not the name of a profile; known are ` + known,
		`"profile": {"name": "GitHub"}`:  `line 1, column 31: rule.profile.name: "GitHub" is not the name of a profile; known are ` + known,
		`"profile": ["github", "slack"]`: `line 1, column 22: rule.profile: a list where the name of a profile is wanted`,
		`"profile": ""`:                  `line 1, column 22: rule.profile: the string is empty`,
		`"profile": "gone"`:              `line 1, column 22: rule.profile: "gone" is empty in the table of names`,
		`"provider": "github"`:           `line 1, column 11: rule.provider: unknown key; write "profile", as in "github"`,
		`"classify": ["signals", "default"], "profile": "openai"`: `line 1, column 35: rule.classify[1]: "default" contradicts the profile "openai", ` +
			`which would never be asked, because "default" decides everything; leave "default" out`,
		`"profile": "openai", "classify": [{"status": 409, "class": "ambiguous"}, "refusals"]`: `line 1, column 84: rule.classify[1]: "refusals" contradicts the profile "openai", ` +
			`which knows which 429 and 503 are refusals; leave "refusals" out`,
		`"profile": "stripe", "idempotent": "all"`: `line 1, column 46: rule.idempotent: "all" contradicts the profile "stripe", ` +
			`which knows when a POST may be sent again; leave "idempotent" out, or write methods, as in ["default", "POST"]`,
		`"profile": "slack", "max_attempts": 1001`: `line 1, column 47: rule.max_attempts: 1001 is more than 1000 attempts`,
	} {
		rule, _, err := loaded(strings.NewReader(`{"rule": {`+members+`}}`), Names{Profile: map[string]policy.Rule{"gone": {}}})
		assert.Zero(t, rule)
		assert.EqualError(t, err, want, members)
	}
}

// All faults are reported at once.
func TestAllProfileFaultsAtOnce(t *testing.T) {
	_, _, err := loaded(strings.NewReader(`{"hosts": {
  "a": {"profile": "github", "retry_after": "none", "idempotent": "all", "max_attempts": 1001, "classify": "default"},
  "b": {"profile": "gitlab"}
}}`), Names{})
	all := err.(Errors)
	var paths []string
	for _, fault := range all {
		paths = append(paths, fault.Key)
	}
	assert.Equal(t, []string{`hosts["a"].retry_after`, `hosts["a"].idempotent`, `hosts["a"].max_attempts`, `hosts["a"].classify`, `hosts["b"].profile`}, paths)
}

// A fault says what to write, also to a reader who knows another library.
func TestLoadSaysWhatToWrite(t *testing.T) {
	for rule, want := range map[string]string{
		// Modes and switches.
		`"share_retry_after": true`:         `rule.share_retry_after: "true" is none of off and on; write "on"`,
		`"share_retry_after": false`:        `rule.share_retry_after: "false" is none of off and on; write "off"`,
		`"quota_pacing": 1`:                 `rule.quota_pacing: "the number 1" is none of off and on`,
		`"quota_pacing": {}`:                `rule.quota_pacing: "an object" is none of off and on`,
		`"share_retry_after": "inherit"`:    `rule.share_retry_after: leave the key out to inherit`,
		`"concurrency": {"enabled": false}`: `rule.concurrency.enabled: "false" is none of off and on; write "off"`,
		`"concurrency": true`:               `rule.concurrency: true where an object is wanted; write fields, as in {"max": 100}, or "on" or "off"`,
		`"max_attempts": "off"`:             `rule.max_attempts: "off" is not a number of attempts; write 1 to turn retries off`,
		`"concurrency": {"max": true}`:      `rule.concurrency.max: true where a whole number is wanted`,
		`"retry_budget": 0.2`:               `rule.retry_budget: the number 0.2 where an object is wanted; write fields, as in {"ratio": 0.2}, or "on" or "off"`,
		`"hedge": "95ms"`:                   `rule.hedge: the string "95ms" where an object is wanted; write fields, as in {"percentile": 98}, or "on" or "off"`,
		`"hedge": {"percentile": 0.98}`:     `rule.hedge.percentile: 0.98 is not above 1 and at most 99.9; 98 sends 2 % more`,
		`"retry_budget": {"ratio": 20}`:     `rule.retry_budget.ratio: 20 is more than one retry for each request; 0.2 is 20 %`,

		// Back-offs.
		`"backoff": "constant"`: `rule.backoff: "constant" is not the name of a back-off; write a name, or an object such as {"type": "constant", "delay": "0s"} for no wait`,
		`"backoff": "2s"`:       `rule.backoff: "2s" is not the name of a back-off; write a name, or an object such as {"type": "constant", "delay": "0s"}`,
		`"backoff": "full"`:     `the names are exponential, geometric, google, normal, randomized`,
		`"backoff": 2`:          `rule.backoff: the number 2 where a back-off is wanted; write a name, or an object such as {"type": "constant"`,
		`"backoff": true`:       `rule.backoff: true where a back-off is wanted; write a name`,
		`"backoff": "off"`:      `"delay": "0s"} for no wait`,
		`"backoff": {}`:         `write "type": "exponential", or another type: google`,
		`"backoff": {"type": "exponential", "initial_interval": "1s"}`: `rule.backoff.initial_interval: unknown key; the keys here are type, base, factor, max, jitter, jitter_factor`,
		`"backoff": {"type": "exponential", "jitter": 0.5}`:            `rule.backoff.jitter: the number 0.5 where a jitter is wanted`,
		`"backoff": {"type": "constant", "delay": "1s", "max": "2s"}`:  `rule.backoff.max: unknown key; the keys here are type, delay`,

		// Names that other libraries use.
		`"timeout": "5s"`:          `rule.timeout: unknown key; write "attempt_timeout", which bounds one attempt; the Timeout of an http.Client bounds the whole call`,
		`"retries": 3`:             `rule.retries: unknown key; write "max_attempts", which counts the first attempt, too`,
		`"maxRetries": "3"`:        `write "max_attempts", which counts the first attempt, too`,
		`"attempts": 3`:            `write "max_attempts"`,
		`"jitter": true`:           `write "backoff", as in {"type": "exponential", "base": "1s", "max": "32s"}`,
		`"initial_interval": "1s"`: `write "backoff", as in`,
		`"max_elapsed": "1m"`:      `write "max_elapsed_time", after which no retry starts`,
		`"status_codes": [503]`:    `write "classify", as in [{"status": [500, 502], "class": "ambiguous"}]`,
		`"allowed_methods": []`:    `write "idempotent", as in ["GET", "PUT", "POST"], or "all"`,
		`"circuitBreaker": {}`:     `write "circuit_breaker", as in {"enabled": "on", "fail_fast": "on"}`,
		`"circuit_breaker": {}`:    `the object is empty; leave the key out to inherit, or write fields, as in {"enabled": "on", "fail_fast": "on"}`,
		`"bulkhead": 5`:            `write "concurrency", as in {"max": 100}`,
		`"qps": 5`:                 `write "rate_limit", as in {"per_second": 10}`,

		// Idempotent.
		`"idempotent": true`:       `rule.idempotent: true where a list of methods or a name is wanted; write "all", or methods such as ["GET", "PUT", "POST"]`,
		`"idempotent": false`:      `write "none", or methods`,
		`"idempotent": "post"`:     `rule.idempotent: methods are in capitals; write "POST"`,
		`"idempotent": ["GET", 5]`: `rule.idempotent[1]: the number 5 where the name of a test for idempotent requests is wanted`,
		`"idempotent": "al"`:       `"al" is not the name of a test for idempotent requests; known are all, default, none`,
	} {
		_, _, err := loaded(strings.NewReader(`{"rule": {`+rule+`}}`), Names{})
		assert.ErrorContains(t, err, want, rule)
	}
	_, _, err := loaded(strings.NewReader(`{"retries": 3}`), Names{})
	assert.EqualError(t, err, `line 1, column 2: retries: unknown key; write "max_attempts", which counts the first attempt, too, inside "rule" or inside a host of "hosts"`)
}

// Other formats are more liberal than JSON.
func TestLoadSaysWhatJSONLacks(t *testing.T) {
	for input, want := range map[string]string{
		"{\n  // the default\n  \"rule\": {}\n}": "line 2, column 3: not JSON: invalid character '/' looking for beginning of object key string; JSON has no comments",
		"{\"rule\": {} /* the default */}":       "JSON has no comments",
		"# rules\n{}":                            "line 1, column 1: not JSON: invalid character '#' looking for beginning of value; JSON has no comments",
		"{} // end":                              "JSON has no comments",
		`{"rule": {"max_attempts": 4,}}`:         "JSON has no trailing commas",
		`{"rule": {"classify": ["refusals", ]}}`: "JSON has no trailing commas",
	} {
		_, _, err := loaded(strings.NewReader(input), Names{})
		assert.ErrorContains(t, err, want, input)
	}
}

// A file can say that POST may be repeated.
func TestLoadIdempotent(t *testing.T) {
	methods := []string{"", "GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "PURGE"}
	names := Names{Idempotent: map[string]func(*http.Request) bool{
		"mine": func(req *http.Request) bool { return req.Method == "PATCH" },
		"POST": classify.Idempotent, // the caller's names win
	}}
	for _, row := range []struct {
		text string
		want []string
	}{
		{`"all"`, methods},
		{`["all"]`, methods},
		{`"none"`, nil},
		{`["GET", "PUT", "PATCH"]`, []string{"", "GET", "PUT", "PATCH"}},
		{`"PATCH"`, []string{"PATCH"}},
		{`["default", "PATCH"]`, []string{"", "GET", "HEAD", "PUT", "DELETE", "PATCH"}},
		{`["GET", {"name": "mine"}]`, []string{"", "GET", "PATCH"}},
		{`["PURGE", "none"]`, []string{"PURGE"}},
		{`"POST"`, []string{"", "GET", "HEAD", "PUT", "DELETE"}},
	} {
		rule := load(t, `"idempotent": `+row.text, names)
		for _, method := range methods {
			req := &http.Request{Method: method, Header: http.Header{}}
			assert.Equal(t, slices.Contains(row.want, method), rule.Idempotent(req), "%s and %q", row.text, method)
		}
	}
	assert.True(t, load(t, `"idempotent": ["POST"]`, Names{}).Idempotent(&http.Request{Method: "POST"}))
}

// A file lists what differs from another, and says how much it leaves out.
func TestChanges(t *testing.T) {
	parse := func(text string) *File { return parsed(t, text) }
	var hosts []string
	for i := range 25 {
		hosts = append(hosts, fmt.Sprintf(`"h%02d": {"max_attempts": 2}`, i))
	}
	many := parse(`{"hosts": {` + strings.Join(hosts, ",") + `}}`)
	all := many.Changes(nil)
	require.Len(t, all, 21, "changes")
	assert.Equal(t, []string{`hosts["h00"].max_attempts: 2`, "and 5 more"}, []string{all[0], all[20]})
	assert.Empty(t, many.Changes(many))
	assert.Equal(t, []string{`rule.hedge: removed`, `rule.hedge.percentile: 98`},
		parse(`{"rule": {"hedge": {"percentile": 98}}}`).Changes(parse(`{"rule": {"hedge": "off"}}`)))
}
