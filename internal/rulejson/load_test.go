package rulejson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// samples has a value for every key of a rule and the field that results. It is
// nil for a function, which cannot be compared.
var samples = map[string]struct {
	json string
	want any
}{
	"max_attempts":    {`4`, 4},
	"backoff":         {`{"type": "exponential", "max": "64s"}`, backoff.Exponential{Max: 64 * time.Second}},
	"classify":        {`["refusals"]`, nil},
	"retry_after":     {`"hour"`, nil},
	"idempotent":      {`{"name": "default"}`, nil},
	"attempt_timeout": {`"5s"`, 5 * time.Second},
	"connect_timeout": {`"1s"`, time.Second},

	"first_event_timeout": {`"5m"`, 5 * time.Minute},
	"max_elapsed_time":    {`"1m30s"`, 90 * time.Second},
	"max_retry_after":     {`"2m"`, 2 * time.Minute},
	"stall_timeout":       {`"30s"`, 30 * time.Second},
	"rate_limit":          {`{"enabled": "on", "per_second": 2.5, "burst": 5}`, policy.RateLimit{Enabled: policy.On, PerSecond: 2.5, Burst: 5}},
	"retry_budget":        {`{"enabled": "on", "ratio": 0.1, "min_per_second": "off"}`, policy.RetryBudget{Enabled: policy.On, Ratio: 0.1, MinPerSecond: -1}},
	"share_retry_after":   {`"off"`, policy.Switch(policy.Off)},
	"throttle_key":        {`"host"`, nil},
	"idempotency_key":     {`"uuid"`, nil},
	"quota_pacing":        {`"on"`, policy.On},
	"cost":                {`"one"`, nil},
	"circuit_breaker":     {`{"enabled": "on", "fail_fast": "on"}`, policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}},
	"concurrency":         {`{"enabled": "on", "fail_fast": "on", "max": 50}`, policy.Concurrency{Enabled: policy.On, FailFast: policy.On, Max: 50}},
	"hedge":               {`{"enabled": "on", "delay": "50ms", "percentile": 98, "unsafe_methods": "on"}`, policy.Hedge{Enabled: policy.On, Delay: 50 * time.Millisecond, Percentile: 98, UnsafeMethods: policy.On}},
	"replay_buffer":       {`"16MiB"`, int64(16 << 20)},
	"resume":              {`"off"`, policy.Switch(policy.Off)},
	"max_refetch":         {`"2MiB"`, int64(2 << 20)},
}

// hour has a function of the program.
var hour = Names{RetryAfter: map[string]classify.RetryAfterFunc{"hour": func(classify.Outcome) (time.Duration, bool) { return time.Hour, true }}}

func TestLoadReadsEveryField(t *testing.T) {
	typ := reflect.TypeFor[policy.Rule]()
	assert.Len(t, samples, len(keysOf(typ)))
	for i, key := range keysOf(typ) {
		t.Run(key, func(t *testing.T) {
			require.Contains(t, samples, key, "the test needs a sample")
			got := reflect.ValueOf(load(t, fmt.Sprintf("%q: %s", key, samples[key].json), hour))
			for j := range typ.NumField() {
				assert.Equal(t, i != j, got.Field(j).IsZero(), "%s is set", typ.Field(j).Name)
			}
			if want := samples[key].want; want != nil {
				assert.Equal(t, want, got.Field(i).Interface())
			}
			if group := got.Field(i); group.Kind() == reflect.Struct {
				require.Contains(t, groups, group.Type())
				for j := range group.NumField() {
					assert.False(t, group.Field(j).IsZero(), "the sample needs %s", group.Type().Field(j).Name)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	rule, hosts, err := loaded(strings.NewReader(`{
	  "rule": {"max_attempts": 4, "backoff": "geometric", "max_elapsed_time": "1m", "max_retry_after": "off"},
	  "hosts": {
	    "api.example.com": {"max_attempts": 1, "attempt_timeout": "off", "max_elapsed_time": "off", "rate_limit": "off",
	                        "replay_buffer": "off", "backoff": {"type": "constant", "delay": "0s"}, "concurrency": "off"},
	    "*.example.com": {"rate_limit": {"per_second": 10, "burst": 5}, "replay_buffer": 1048576, "max_retry_after": "off"},
	    "localhost:8080": {}
	  }
	}`), Names{})
	require.NoError(t, err)
	assert.Equal(t, policy.Rule{MaxAttempts: 4, Backoff: backoff.Geometric{}, MaxElapsedTime: time.Minute, MaxRetryAfter: -1}, rule)
	assert.Equal(t, map[string]policy.Rule{
		"api.example.com": {MaxAttempts: 1, AttemptTimeout: -1, MaxElapsedTime: -1, RateLimit: policy.RateLimit{Enabled: policy.Off}, ReplayBuffer: -1,
			Backoff: backoff.Constant(0), Concurrency: policy.Concurrency{Enabled: policy.Off}},
		"*.example.com":  {RateLimit: policy.RateLimit{PerSecond: 10, Burst: 5}, ReplayBuffer: 1 << 20, MaxRetryAfter: policy.Off},
		"localhost:8080": {},
	}, hosts)
}

func TestLoadLittle(t *testing.T) {
	for _, input := range []string{`{}`, "\ufeff {\r\n}\n", `{"rule": {}}`, `{"hosts": {}}`} {
		rule, hosts, err := loaded(strings.NewReader(input), Names{})
		require.NoError(t, err, input)
		assert.Zero(t, rule, input)
		assert.Empty(t, hosts, input)
	}
}

// written has a back-off of each type. None of its fields is zero.
var written = map[string]backoff.Backoff{
	"exponential": backoff.Exponential{Base: 1500 * time.Microsecond, Factor: 1.5, Max: 64 * time.Second, Jitter: backoff.JitterNormal, JitterFactor: 0.2},
	"google":      backoff.Google{MaximumBackoff: 64 * time.Second},
	"geometric":   backoff.Geometric{Time: time.Second, Rate: 1.5, Max: 10 * time.Second},
	"normal":      backoff.Normal{MinDelay: time.Nanosecond, Factor: 3, MaxDelay: time.Minute, Jitter: 0.25},
	"randomized":  backoff.Randomized{InitialInterval: time.Second, RandomizationFactor: 0.25, Multiplier: 1.25, MaxInterval: time.Hour},
	"constant":    backoff.Constant(5 * time.Second),
}

// write returns a back-off as a file describes it.
func write(t *testing.T, name string, b backoff.Backoff) string {
	object := map[string]any{"type": name}
	if c, ok := b.(backoff.Constant); ok {
		object["delay"] = time.Duration(c).String()
	} else {
		v := reflect.ValueOf(b)
		for i := range v.NumField() {
			require.False(t, v.Field(i).IsZero(), "%s.%s has no sample", name, v.Type().Field(i).Name)
			value := v.Field(i).Interface()
			if d, ok := value.(time.Duration); ok {
				value = d.String()
			}
			object[snake(v.Type().Field(i).Name)] = value
		}
	}
	text := testkit.Must(json.Marshal(map[string]any{"rule": map[string]any{"backoff": object}}))(t)
	return string(text)
}

func TestLoadEveryBackoff(t *testing.T) {
	types := map[reflect.Type]bool{} // each has a name
	for _, name := range formulaNames {
		require.Contains(t, written, name, "the test needs a sample")
		types[reflect.TypeOf(written[name])] = true
	}
	assert.Len(t, types, len(formulaNames))
	for name, b := range written {
		t.Run(name, func(t *testing.T) {
			rule, _, err := loaded(strings.NewReader(write(t, name, b)), Names{})
			require.NoError(t, err)
			assert.Equal(t, b, rule.Backoff)
			if name == "constant" {
				return
			}
			for _, short := range []string{`"` + name + `"`, `{"name": "` + name + `"}`, `{"type": "` + name + `"}`} {
				rule := load(t, `"backoff": `+short, Names{})
				assert.Equal(t, reflect.Zero(reflect.TypeOf(b)).Interface(), rule.Backoff, short)
			}
		})
	}
	rule := load(t, `"backoff": {"type": "constant", "delay": "0s"}`, Names{})
	assert.Equal(t, backoff.Constant(0), rule.Backoff)
	rule = load(t, `"backoff": "slow"`, Names{Backoff: map[string]backoff.Backoff{"slow": backoff.Constant(time.Minute)}})
	assert.Equal(t, backoff.Constant(time.Minute), rule.Backoff)
}

func TestLoadFaults(t *testing.T) {
	for _, tt := range []struct{ name, input, want string }{
		// The input as a whole.
		{"empty", "", "line 1, column 1: the input is empty; write at least {}"},
		{"blank", " \n ", "line 1, column 1: the input is empty; write at least {}"},
		{"not an object", `[]`, "line 1, column 1: a list where an object is wanted"},
		{"cut off", "{\n\"rule\": {", "line 2, column 9: not JSON: unexpected end of JSON input"},
		{"comma", "{\"rule\": {\n  \"attempts\": 4,\n}}", "line 3, column 1: not JSON: invalid character '}' looking for beginning of object key string; JSON has no trailing commas"},
		{"more", "{}\n{}", "line 2, column 1: not JSON: invalid character '{' after top-level value"},
		{"encoding", "{\"r\xffle\": {}}", "line 1, column 4: this byte is not UTF-8"},
		{"deep", `{"rule": ` + strings.Repeat(`[`, 16) + strings.Repeat(`]`, 16) + `}`,
			"line 1, column 25: rule[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: nested more than 16 levels deep"},

		// Keys.
		{"unknown", "{\n  \"hosts\": {\n    \"*.example.com\": {\"attemps\": 3}\n  }\n}",
			`line 3, column 23: hosts["*.example.com"].attemps: unknown key; write "max_attempts", which counts the first attempt, too`},
		{"a pattern beside another fault", `{"rule": {"max_attempts": -1}, "hosts": {"https://h": {}, "a.example": {"concurrency": {"max": 5, "enabled": "on"}, "retry_budget": {"ratio": "off", "min_per_second": "off"}}, "A.example": {}}}`,
			"line 1, column 27: rule.max_attempts: the number -1 is negative; write 1 to turn retries off\n" +
				"line 1, column 42: hosts[\"https://h\"]: \"https://h\" has a scheme; leave it out\n" +
				"line 1, column 59: hosts[\"a.example\"]: \"a.example\" means the same requests as \"A.example\"\n" +
				"line 1, column 133: hosts[\"a.example\"].retry_budget: would earn no retries at all; \"enabled\": \"off\" turns the budget off, \"max_attempts\": 1 the retries"},
		{"on without a max", `{"rule": {"concurrency": {"enabled": "on"}, "max_attempts": -1}, "hosts": {"h": {"concurrency": {"enabled": "on"}}}}`,
			"line 1, column 38: rule.concurrency.enabled: on needs a \"max\", the most requests that the host takes at a time\n" +
				"line 1, column 61: rule.max_attempts: the number -1 is negative; write 1 to turn retries off"},
		{"column counts characters", `{"$schema": "ü", "rule": {"räte": 1}}`,
			`line 1, column 27: rule["räte"]: unknown key; no key of a rule is like it`},
		{"spelt as in Go", `{"rule": {"AttemptTimeout": "5s"}}`, `line 1, column 11: rule.AttemptTimeout: unknown key; did you mean "attempt_timeout"?`},
		{"a secret in a key", `{"hosts": {"https://me:s3cret@h/?token=s3cret": {"resume": 1}}}`,
			`line 1, column 12: hosts["https://xxxxx@h/?xxxxx"]: "https://xxxxx@h/?xxxxx" has a scheme; leave it out
line 1, column 60: hosts["https://xxxxx@h/?xxxxx"].resume: "the number 1" is none of off and on`},
		{"one level too high", `{"max_attempts": 3}`, `line 1, column 2: max_attempts: unknown key; it belongs inside "rule" or inside a host of "hosts"`},
		{"nothing like it", `{"rule": {"backoff": {"type": "google", "colour": "red"}}}`,
			`line 1, column 41: rule.backoff.colour: unknown key; the keys here are type, maximum_backoff`},
		{"twice", `{"rule": {"max_attempts": 1, "max_attempts": 2}}`, "line 1, column 30: rule.max_attempts: the key is there twice"},
		{"host twice", `{"hosts": {"a": {}, "a": {}}}`, `line 1, column 21: hosts["a"]: the key is there twice`},
		{"rules twice", `{"rule": {}, "rule": {}}`, `line 1, column 14: rule: the key is there twice`},
		{"long key", `{"` + strings.Repeat("x", 100) + `": 1}`,
			`line 1, column 2: ["` + strings.Repeat("x", 60) + `…"]: unknown key; the keys here are rule, hosts`},

		// Values.
		{"rule of the wrong type", `{"rule": "fast"}`, `line 1, column 10: rule: the string "fast" where an object is wanted`},
		{"hosts of the wrong type", `{"hosts": ["a"]}`, `line 1, column 11: hosts: a list where an object of hosts and their rules is wanted`},
		{"host of the wrong type", `{"hosts": {"a": null}}`, `line 1, column 17: hosts["a"]: null where an object is wanted`},
		{"count as a string", `{"rule": {"max_attempts": "4"}}`, `line 1, column 27: rule.max_attempts: the string "4" where a whole number is wanted`},
		{"count with a fraction", `{"rule": {"max_attempts": 4.0}}`, `line 1, column 27: rule.max_attempts: the number 4.0 is not a whole number; write it in digits only`},
		{"count out of range", `{"rule": {"max_attempts": 99999999999999999999}}`, `line 1, column 27: rule.max_attempts: the number 99999999999999999999 is out of range`},
		{"zero", `{"rule": {"max_attempts": 0}}`, `line 1, column 27: rule.max_attempts: zero means the default; leave the key out; write 1 to turn retries off`},
		{"negative", `{"rule": {"rate_limit": {"per_second": -1}}}`, `line 1, column 40: rule.rate_limit.per_second: the number -1 is negative`},
		{"nothing to turn off", `{"rule": {"rate_limit": {"burst": "off"}}}`, `line 1, column 35: rule.rate_limit.burst: the string "off" where a whole number is wanted`},
		{"number as a boolean", `{"rule": {"rate_limit": {"per_second": true}}}`, `line 1, column 40: rule.rate_limit.per_second: true where a number is wanted`},
		{"number out of range", `{"rule": {"rate_limit": {"per_second": 1e999}}}`, `line 1, column 40: rule.rate_limit.per_second: the number 1e999 is out of range`},
		{"duration as a number", `{"rule": {"max_elapsed_time": 5}}`, `line 1, column 31: rule.max_elapsed_time: the number 5 has no unit; write "5s" for seconds or "5ms" for milliseconds`},
		{"duration without a unit", `{"rule": {"max_elapsed_time": "5"}}`, `line 1, column 31: rule.max_elapsed_time: "5" is not a duration; write it like "250ms", "5s" or "1m30s"`},
		{"duration too long", `{"rule": {"max_elapsed_time": "9999999h"}}`, `line 1, column 31: rule.max_elapsed_time: "9999999h" is not a duration; write it like "250ms", "5s" or "1m30s"`},
		{"duration of zero", `{"rule": {"max_elapsed_time": "0s"}}`, `line 1, column 31: rule.max_elapsed_time: zero means the default; leave the key out; write "off" to turn it off`},
		{"duration as an object", `{"rule": {"max_elapsed_time": {}}}`, `line 1, column 31: rule.max_elapsed_time: an object where a duration such as "250ms" is wanted`},
		{"size", `{"rule": {"replay_buffer": "1 MeB"}}`, `line 1, column 28: rule.replay_buffer: "1 MeB" is not a size; write it in bytes or like "64KiB" or "1MiB"`},
		{"size too large for a number", `{"rule": {"replay_buffer": "9999999999GiB"}}`, `line 1, column 28: rule.replay_buffer: "9999999999GiB" is not a size; write it in bytes or like "64KiB" or "1MiB"`},
		{"switch", `{"rule": {"resume": "Stop"}}`, `line 1, column 21: rule.resume: "Stop" is none of off and on`},
		{"empty string", `{"$schema": ""}`, `line 1, column 13: ["$schema"]: the string is empty`},
		{"jitter", `{"rule": {"backoff": {"type": "exponential", "jitter": "off"}}}`, `line 1, column 56: rule.backoff.jitter: "off" is not a jitter; known are add, full, equal, decorrelated, proportional, normal, none`},

		// What Validate finds, at the field.
		{"invalid", "{\"rule\": {\n\"attempts\": 1001}}", `line 2, column 1: rule.attempts: unknown key; write "max_attempts", which counts the first attempt, too`},
		{"invalid in a host", `{"hosts": {"a": {"replay_buffer": "65MiB"}}}`, `line 1, column 35: hosts["a"].replay_buffer: 68157440 is more than 64 MiB (67108864 bytes)`},
		{"invalid back-off", `{"rule": {"backoff": {"type": "normal", "factor": 0.5}}}`,
			`line 1, column 51: rule.backoff.factor: 0.5 is not a finite number of at least 1`},
		{"invalid back-off by name", `{"rule": {"backoff": "broken"}}`, `line 1, column 22: rule.backoff: Base: -1ns is negative`},
		{"nil back-off by name", `{"rule": {"backoff": "typed nil"}}`,
			`line 1, column 22: rule.backoff: (*backoff.Exponential)(nil) is nil behind an interface that is not; leave the field nil to inherit`},

		// Back-offs, classifiers and names.
		{"back-off without a type", `{"rule": {"backoff": {"max": "5s"}}}`, `line 1, column 22: rule.backoff: there is neither a "type" nor a "name" here; write "type": "exponential", or another type: google, geometric, normal, randomized, constant`},
		{"back-off of no type", `{"rule": {"backoff": {"type": "exponental"}}}`, `line 1, column 31: rule.backoff.type: "exponental" is not a type of back-off; known are exponential, google, geometric, normal, randomized, constant`},
		{"back-off by type and name", `{"rule": {"backoff": {"type": "exponential", "name": "exponential"}}}`,
			`line 1, column 46: rule.backoff.name: unknown key; the keys here are type, base, factor, max, jitter, jitter_factor`},
		{"constant without delay", `{"rule": {"backoff": {"type": "constant"}}}`, `line 1, column 22: rule.backoff: there is no "delay" here`},
		{"constant that stops", `{"rule": {"backoff": {"type": "constant", "delay": "-1s"}}}`, `line 1, column 52: rule.backoff.delay: the string "-1s" is negative`},
		{"no classifiers", `{"rule": {"classify": []}}`, `line 1, column 23: rule.classify: the list is empty; leave the key out`},
		{"classifier about nothing", `{"rule": {"classify": [{"class": "final"}]}}`, `line 1, column 24: rule.classify[0]: the item needs a status, a body, an error or a name`},
		{"classifier about too much", `{"rule": {"classify": [{"status": 500, "error": "reset", "class": "final"}]}}`,
			`line 1, column 24: rule.classify[0]: the item is about several things; give each an item of its own`},
		{"no class", `{"rule": {"classify": [{"status": 500}]}}`, `line 1, column 24: rule.classify[0]: there is no "class" here; it is one of final, refused, ambiguous`},
		{"class too many", `{"rule": {"classify": [{"name": "refusals", "class": "final"}]}}`, `line 1, column 24: rule.classify[0]: there must be a "name" here, and nothing else`},
		{"bad class", `{"rule": {"classify": {"status": 500, "class": "unknown"}}}`, `line 1, column 48: rule.classify.class: "unknown" is not a class; known are final, refused, ambiguous`},
		{"bad status", `{"rule": {"classify": {"status": [100, 999, 1000], "class": "final"}}}`, `line 1, column 45: rule.classify.status[2]: the number 1000 is not a status code`},
		{"low status", `{"rule": {"classify": {"status": 99, "class": "final"}}}`, `line 1, column 34: rule.classify.status: the number 99 is not a status code`},
		{"bad type", `{"rule": {"classify": {"error": "rest", "class": "final"}}}`, `line 1, column 33: rule.classify.error: "rest" is not a type of error; known are canceled, timeout, dns, dial, tls, reset, protocol, _OTHER`},
		{"empty text", `{"rule": {"classify": {"body": "", "class": "final"}}}`, `line 1, column 32: rule.classify.body: the string is empty`},
		{"nothing is left", `{"rule": {"classify": ["default", {"status": 409, "class": "ambiguous"}]}}`,
			`line 1, column 35: rule.classify[1]: this is never asked, because "default" before it decides everything; put "default" last`},
		{"nothing is left by an object", `{"rule": {"classify": [{"name": "default"}, "refusals"]}}`,
			`line 1, column 45: rule.classify[1]: this is never asked, because "default" before it decides everything; put "default" last`},
		{"unknown name", `{"rule": {"classify": ["refusal"]}}`, `line 1, column 24: rule.classify[0]: "refusal" is not the name of a classifier; known are default, refusals, signals`},
		{"name of the wrong type", `{"rule": {"retry_after": 5}}`, `line 1, column 26: rule.retry_after: the number 5 where the name of a RetryAfter function is wanted`},
		{"name misspelt", `{"rule": {"idempotent": {"nam": "x"}}}`, `line 1, column 25: rule.idempotent: there must be a "name" here, and nothing else`},
		{"nil in the table", `{"rule": {"retry_after": "gone"}}`, `line 1, column 26: rule.retry_after: "gone" is nil in the table of names`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule, hosts, err := loaded(strings.NewReader(tt.input), Names{
				RetryAfter: map[string]classify.RetryAfterFunc{"gone": nil},
				Backoff:    map[string]backoff.Backoff{"broken": backoff.Exponential{Base: -1}, "typed nil": (*backoff.Exponential)(nil)},
			})
			require.EqualError(t, err, tt.want)
			assert.Zero(t, rule)
			assert.Nil(t, hosts)
			_, ok := errors.AsType[Errors](err)
			assert.True(t, ok, "the error is Errors")
		})
	}
}

func TestLoadReportsAllFaultsInOrder(t *testing.T) {
	_, _, err := loaded(strings.NewReader(`{
  "hosts": {
    "a": {"max_attempts": 1001, "rate_limit": {"burst": 0}},
    "b": {"atempts": 3, "backoff": {"type": "exponential", "base": 1, "max": "x"}}
  },
  "rule": {"replay_buffer": "65MiB", "classify": ["x1y2", {"status": "all", "class": "never"}]}
}`), Names{})
	require.EqualError(t, err, `line 3, column 27: hosts["a"].max_attempts: 1001 is more than 1000 attempts
line 3, column 57: hosts["a"].rate_limit.burst: zero means the default; leave the key out
line 4, column 11: hosts["b"].atempts: unknown key; write "max_attempts", which counts the first attempt, too
line 4, column 68: hosts["b"].backoff.base: the number 1 has no unit; write "1s" for seconds or "1ms" for milliseconds
line 4, column 78: hosts["b"].backoff.max: "x" is not a duration; write it like "250ms", "5s" or "1m30s"
line 6, column 29: rule.replay_buffer: 68157440 is more than 64 MiB (67108864 bytes)
line 6, column 51: rule.classify[0]: "x1y2" is not the name of a classifier; known are `+join(slices.Sorted(maps.Keys(classifiers)))+`
line 6, column 70: rule.classify[1].status: the string "all" where a whole number is wanted
line 6, column 86: rule.classify[1].class: "never" is not a class; known are final, refused, ambiguous`)

	fault := err.(Errors)[0]
	assert.Equal(t, `hosts["a"].max_attempts`, fault.Key)
	assert.Equal(t, [2]int{3, 27}, [2]int{fault.Line, fault.Column})
	field, ok := errors.AsType[*policy.FieldError](fault)
	require.True(t, ok, "what Validate found is still there")
	assert.Equal(t, "MaxAttempts", field.Field)
	assert.EqualError(t, field.Err, "1001 is more than 1000 attempts")
}

func TestLoadCountsFaultsBeyondAHundred(t *testing.T) {
	var input strings.Builder
	for i := range 150 {
		fmt.Fprintf(&input, "%q: {\"attempts\": 0},\n", fmt.Sprint("host", i))
	}
	_, _, err := loaded(strings.NewReader(`{"hosts": {`+input.String()+`"last": {}}}`), Names{})
	all, ok := errors.AsType[Errors](err)
	require.True(t, ok)
	require.Len(t, all, 101)
	assert.EqualError(t, all[100], "line 100, column 12: there are 50 more faults")
}

func TestLoadIsBounded(t *testing.T) {
	_, _, err := loaded(strings.NewReader("{}"+strings.Repeat(" ", MaxInput-2)), Names{})
	require.NoError(t, err, "1 MiB exactly")
	_, _, err = loaded(strings.NewReader("{}"+strings.Repeat(" ", MaxInput-1)), Names{})
	require.EqualError(t, err, "rulefile: rules are longer than 1 MiB")
	_, _, err = loaded(strings.NewReader(strings.Repeat("[", MaxInput)), Names{})
	require.Error(t, err)
	size := soak.Size(128<<10, MaxInput)
	for _, line := range []string{`"rate": 1,`, `"x": 1,`, `"classify": [{}, {}, {}],`, "\n"} { // each takes work per fault
		_, _, err = loaded(strings.NewReader(`{"rule": {`+strings.Repeat(line, (size-40)/len(line))+`"rate_limit": {"burst": 0}}}`), Names{})
		all, ok := errors.AsType[Errors](err)
		require.True(t, ok, line)
		assert.LessOrEqual(t, len(all), maxFaults+1, line)
	}
	_, _, err = loaded(iotest.ErrReader(io.ErrClosedPipe), Names{})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.EqualError(t, err, "rulefile: reading rules: io: read/write on closed pipe")
}

func TestLoadListsAFewNamesOnly(t *testing.T) {
	names := Names{Backoff: map[string]backoff.Backoff{}}
	for i := range 50 {
		names.Backoff[fmt.Sprintf("a%02d", i)] = backoff.Exponential{}
	}
	_, _, err := loaded(strings.NewReader(`{"rule": {"backoff": "zzzzzz"}}`), names)
	require.ErrorContains(t, err, "the names are a00, a01, a02")
	require.ErrorContains(t, err, fmt.Sprintf("a31 and %d more", 18+len(formulas)))
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0B": 0, "512B": 512, "64KiB": 64 << 10, "64 KiB": 64 << 10, "1MiB": 1 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40, "1TB": 1e12,
		"3kB": 3000, "3KB": 3000, "5MB": 5e6, "1GB": 1e9, "9223372036854775807B": 1<<63 - 1,
	} {
		got, ok := parseSize(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "B", "MiB", "1", "1.5MiB", "-1B", "+1B", "1mib", "0x1B", "9223372036854775808B", "8589934592GiB"} {
		_, ok := parseSize(text)
		assert.False(t, ok, text)
	}
}

// response makes an outcome with a response, to ask the loaded classifier.
func response(status int, body string) classify.Outcome {
	request, _ := http.NewRequest(http.MethodPost, "http://a.test/", nil)
	return classify.Outcome{Request: request, Response: &http.Response{
		StatusCode: status, Header: http.Header{}, Request: request, Body: io.NopCloser(strings.NewReader(body)),
	}}
}

func broken(err error) classify.Outcome {
	request, _ := http.NewRequest(http.MethodPost, "http://a.test/", nil)
	return classify.Outcome{Request: request, Err: err}
}

func TestLoadClassify(t *testing.T) {
	const full = "the queue capacity is exhausted"
	names := Names{Classify: map[string]classify.Func{
		"teapots": classify.OnStatus(classify.Refused, http.StatusTeapot),
		"default": classify.OnStatus(classify.Ambiguous, http.StatusOK),
	}}
	for _, tt := range []struct {
		json    string
		outcome classify.Outcome
		want    classify.Class
	}{
		{`[{"status": [500, 502], "class": "final"}]`, response(502, ""), classify.Final},
		{`[{"status": [500, 502], "class": "final"}]`, response(503, ""), classify.Unknown},
		{`{"status": 500, "class": "refused"}`, response(500, ""), classify.Refused},
		{`{"body": "queue capacity", "class": "ambiguous"}`, response(400, full), classify.Ambiguous},
		{`{"body": "queue capacity", "class": "ambiguous"}`, response(200, full), classify.Unknown},
		{`{"body": "queue capacity", "status": 200, "class": "ambiguous"}`, response(200, full), classify.Ambiguous},
		{`{"body": "queue capacity", "status": [400], "class": "ambiguous"}`, response(500, full), classify.Unknown},
		{`{"error": ["reset", "timeout"], "class": "refused"}`, broken(io.ErrUnexpectedEOF), classify.Refused},
		{`{"error": "dial", "class": "refused"}`, broken(io.ErrUnexpectedEOF), classify.Unknown},
		{`["signals", {"name": "refusals"}]`, response(429, ""), classify.Refused},
		{`"refusals"`, response(429, ""), classify.Refused},
		{`["teapots"]`, response(418, ""), classify.Refused},
		{`"default"`, response(200, ""), classify.Ambiguous}, // the caller's, not the built-in one
		{`["default", "refusals"]`, response(429, ""), classify.Refused},
		{`["refusals", {"status": 418, "class": "ambiguous"}, "teapots"]`, response(418, ""), classify.Ambiguous},
		{`[{"status": 500, "class": "final"}, {"status": [500, 501], "class": "refused"}]`, response(500, ""), classify.Final},
		{`[{"status": 500, "class": "final"}, {"status": [500, 501], "class": "refused"}]`, response(501, ""), classify.Refused},
	} {
		rule := load(t, `"classify": `+tt.json, names)
		assert.Equal(t, tt.want, rule.Classify(tt.outcome), "%s", tt.json)
	}
}

func TestLoadHints(t *testing.T) {
	late := response(503, "")
	late.Response.Header.Set("Retry-After", "7")
	names := Names{RetryAfter: map[string]classify.RetryAfterFunc{
		"hour": hour.RetryAfter["hour"],
		"none": func(classify.Outcome) (time.Duration, bool) { return 0, false },
	}}
	for text, want := range map[string]time.Duration{
		`"hour"`:                   time.Hour,
		`["none", "hour"]`:         time.Hour,
		`[{"name": "none"}]`:       7 * time.Second, // the default is asked last
		`"none", "profile": "aws"`: 7 * time.Second,
	} {
		rule := load(t, `"retry_after": `+text, names).Or(policy.Defaults())
		wait, ok := rule.RetryAfter(late)
		assert.True(t, ok, text)
		assert.Equal(t, want, wait, text)
	}
}

// A setting that can be off is written "off". An empty group looks like a setting
// and would inherit, so it is refused.
func TestLoadOff(t *testing.T) {
	for _, key := range []string{
		"attempt_timeout", "max_elapsed_time", "stall_timeout", "rate_limit", "retry_budget", "share_retry_after",
		"quota_pacing", "circuit_breaker", "concurrency", "hedge", "replay_buffer", "resume",
	} {
		rule, _, err := loaded(strings.NewReader(fmt.Sprintf(`{"rule": {%q: "off"}}`, key)), Names{})
		if assert.NoError(t, err, key) {
			assert.Contains(t, rule.String(), "off", key)
		}
	}
	for typ, example := range groups {
		key := snake(typ.Name())
		_, _, err := loaded(strings.NewReader(fmt.Sprintf(`{"rule": {%q: {}}}`, key)), Names{})
		assert.ErrorContains(t, err, `the object is empty`, key)
		_, _, err = loaded(strings.NewReader(fmt.Sprintf(`{"rule": {%q: %s}}`, key, example)), Names{})
		assert.NoError(t, err, key)
	}
}

// Every classifier of package classify has a name in files.
func TestBuiltinNamesForgetNothing(t *testing.T) {
	files := testkit.Must(filepath.Glob("../../classify/*.go"))(t)
	var funcs []string
	for _, file := range files {
		text := testkit.Must(os.ReadFile(file))(t)
		for _, f := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(o Outcome\) Class `).FindAllStringSubmatch(string(text), -1) {
			funcs = append(funcs, snake(f[1]))
		}
	}
	assert.ElementsMatch(t, funcs, slices.Collect(maps.Keys(classifiers)))
}

// FuzzLoad: whatever the input, there is no panic; what loads is valid and has
// a sound position for every fault when it does not.
func FuzzLoad(f *testing.F) {
	for key, sample := range samples {
		f.Add([]byte(fmt.Sprintf(`{"rule": {%q: %s}, "hosts": {"a": {%q: "off"}}}`, key, sample.json, key)))
	}
	f.Add([]byte("\ufeff{\r\n\"rule\": {\"rate\": 1e999, \"rate\": -0}}"))
	f.Add([]byte(`{"rule": {"classify": [{"body": "x", "status": [400], "class": "final"}, {"error": ["dns"]}, "signals", [[]]]}}`))
	f.Add([]byte(`{"rule": {"profile": "stripe", "classify": ["default"], "retry_after": {"name": "mine"}}, "hosts": {"a": {"profile": {"name": "aws"}, "idempotent": "all"}}}`))
	f.Add([]byte(`{"hosts": {"": {"backoff": {"type": "normal", "jitter": 0.3, "factor": 1e308}}, "\u0000\ud800": null}}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		rule, hosts, err := loaded(strings.NewReader(string(input)), Names{})
		if err == nil {
			for host, r := range hosts {
				require.NoError(t, r.Validate(), host)
				_ = r.Or(rule).String()
			}
			require.NoError(t, rule.Validate())
			return
		}
		require.Zero(t, rule)
		require.Nil(t, hosts)
		require.NotEmpty(t, err.Error())
		all, _ := errors.AsType[Errors](err)
		for i, fault := range all {
			require.Positive(t, fault.Line)
			require.Positive(t, fault.Column)
			require.NotEmpty(t, fault.Err.Error())
			require.NotContains(t, fault.Error(), "\n", "one line per fault")
			require.True(t, i == 0 || all[i-1].Line <= fault.Line, "in order")
		}
	})
}
