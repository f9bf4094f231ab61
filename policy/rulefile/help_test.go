package rulefile

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/aplomb-go/aplomb/classify"
)

// A fault says what to write, also to a reader who knows another library.
func TestLoadSaysWhatToWrite(t *testing.T) {
	for rule, want := range map[string]string{
		// Modes and switches.
		`"cooldown": true`:                `rule.cooldown: "true" is none of off and on; write "on"`,
		`"cooldown": false`:               `rule.cooldown: "false" is none of off and on; write "off"`,
		`"pacing": 1`:                     `rule.pacing: "the number 1" is none of off and on`,
		`"pacing": {}`:                    `rule.pacing: "an object" is none of off and on`,
		`"cooldown": "inherit"`:           `rule.cooldown: leave the key out to inherit`,
		`"retry_after": {"beyond": true}`: `rule.retry_after.beyond: "true" is none of stop, cap and wait`,
		`"gate": {"mode": false}`:         `rule.gate.mode: "false" is none of off, wait and refuse; write "off"`,
		`"gate": "on"`:                    `rule.gate: the string "on" where an object is wanted; write fields, as in {"mode": "wait"}, or "off"`,
		`"gate": true`:                    `rule.gate: true where an object is wanted; write fields, as in {"mode": "wait"}, or "off"`,
		`"gate": {"max": true}`:           `rule.gate.max: true where a whole number is wanted`,
		`"budget": 0.2`:                   `rule.budget: the number 0.2 where an object is wanted; write fields, as in {"ratio": 0.2}, or "off"`,
		`"hedge": "95ms"`:                 `rule.hedge: the string "95ms" where an object is wanted; write fields, as in {"percentile": 98}, or "off"`,
		`"hedge": {"percentile": 0.98}`:   `rule.hedge.percentile: 0.98 is a share; did you mean 98?`,
		`"budget": {"ratio": 20}`:         `rule.budget.ratio: 20 is more than one retry for each request; did you mean 0.2, which is 20 %?`,

		// Back-offs.
		`"backoff": "constant"`:       `rule.backoff: "constant" is not the name of a back-off; write a name, an object such as {"type": "constant", "delay": "1s"}, or "none" for no wait`,
		`"backoff": "2s"`:             `rule.backoff: "2s" is not the name of a back-off; write a name, an object such as {"type": "constant", "delay": "1s"}`,
		`"backoff": "full"`:           `the names are decorrelated, equal_jitter, exponential, full_jitter, geometric, none, normal, randomized`,
		`"backoff": 2`:                `rule.backoff: the number 2 where a back-off is wanted; write a name, an object such as {"type": "constant"`,
		`"backoff": true`:             `rule.backoff: true where a back-off is wanted; write a name`,
		`"backoff": "off"`:            `or "none" for no wait`,
		`"backoff": {"type": "expo"}`: `rule.backoff.type: "expo" is not a type of back-off; known are exponential, full_jitter`,
		`"backoff": {"base": "1s"}`:   `rule.backoff: there is neither a "type" nor a "name" here; write "type": "exponential", or another type: full_jitter, equal_jitter`,
		`"backoff": {}`:               `write "type": "exponential", or another type: full_jitter`,
		`"backoff": {"type": "exponential", "initial_interval": "1s"}`: `rule.backoff.initial_interval: unknown key; the keys here are type, base, jitter, max, literal`,
		`"backoff": {"type": "exponential", "jitter": 0.5}`:            `rule.backoff.jitter: the number 0.5 has no unit; write "0.5s" for seconds or "0.5ms" for milliseconds`,
		`"backoff": {"type": "constant", "delay": "1s", "max": "2s"}`:  `rule.backoff.max: unknown key; the keys here are type, delay`,

		// Names that other libraries use.
		`"timeout": "5s"`:          `rule.timeout: unknown key; write "attempt_timeout", which bounds one attempt; the Timeout of an http.Client bounds the whole call`,
		`"retries": 3`:             `rule.retries: unknown key; write "attempts", which counts the first attempt, too`,
		`"max_retries": 0`:         `write "attempts", which counts the first attempt, too`,
		`"maxRetries": "3"`:        `write "attempts", which counts the first attempt, too`,
		`"max_attempts": 3`:        `write "attempts"`,
		`"jitter": true`:           `write "backoff", as in {"type": "exponential", "base": "1s", "max": "32s"}`,
		`"initial_interval": "1s"`: `write "backoff", as in`,
		`"max_elapsed_time": "1m"`: `write "max_elapsed", after which no retry starts`,
		`"status_codes": [503]`:    `write "classify", as in [{"status": [500, 502], "verdict": "ambiguous"}]`,
		`"retry_on": [503]`:        `write "classify", as in`,
		`"allowed_methods": []`:    `write "idempotent", as in ["GET", "PUT", "POST"], or "all"`,
		`"circuit_breaker": {}`:    `write "gate", as in {"mode": "wait", "max": 100}`,
		`"qps": 5`:                 `write "rate", as in {"per_second": 10}`,

		// Idempotent.
		`"idempotent": true`:       `rule.idempotent: true where a list of methods or a name is wanted; write "all", or methods such as ["GET", "PUT", "POST"]`,
		`"idempotent": false`:      `write "none", or methods`,
		`"idempotent": "post"`:     `rule.idempotent: methods are in capitals; write "POST"`,
		`"idempotent": []`:         `the list is empty; leave the key out`,
		`"idempotent": ["GET", 5]`: `rule.idempotent[1]: the number 5 where the name of a test for idempotent requests is wanted`,
		`"idempotent": "al"`:       `"al" is not the name of a test for idempotent requests; known are all, default, none`,
	} {
		_, _, err := Load(strings.NewReader(`{"rule": {`+rule+`}}`), Names{})
		if assert.Error(t, err, rule) {
			assert.Contains(t, err.Error(), want, rule)
		}
	}
	_, _, err := Load(strings.NewReader(`{"retries": 3}`), Names{})
	assert.EqualError(t, err, `line 1, column 2: retries: unknown key; write "attempts", which counts the first attempt, too, inside "rule" or inside a host of "hosts"`)
}

// Other formats are more liberal than JSON.
func TestLoadSaysWhatJSONLacks(t *testing.T) {
	for input, want := range map[string]string{
		"{\n  // the default\n  \"rule\": {}\n}": "line 2, column 3: not JSON: invalid character '/' looking for beginning of object key string; JSON has no comments",
		"{\"rule\": {} /* the default */}":       "JSON has no comments",
		"# rules\n{}":                            "line 1, column 1: not JSON: invalid character '#' looking for beginning of value; JSON has no comments",
		"{} // end":                              "JSON has no comments",
		`{"rule": {"attempts": 4,}}`:             "JSON has no trailing commas",
		`{"rule": {"classify": ["refusals", ]}}`: "JSON has no trailing commas",
	} {
		_, _, err := Load(strings.NewReader(input), Names{})
		if assert.Error(t, err, input) {
			assert.Contains(t, err.Error(), want, input)
		}
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
	rule := load(t, `"idempotent": ["POST"]`, Names{})
	assert.True(t, rule.Idempotent(&http.Request{Method: "POST"}))
}
