package policy

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
)

// A fault says what to write, also to somebody who knows another library.
func TestLoadSaysWhatToWrite(t *testing.T) {
	for rule, want := range map[string]string{
		// Modes and switches.
		`"cooldown": true`:              `rule.cooldown: true where a switch is wanted; write "on"`,
		`"cooldown": false`:             `rule.cooldown: false where a switch is wanted; write "off"`,
		`"pacing": 1`:                   `rule.pacing: the number 1 where a switch is wanted; write one of "off", "on"`,
		`"excess": true`:                `rule.excess: true where a mode is wanted; write one of "stop", "cap", "wait"`,
		`"rate_mode": {}`:               `rule.rate_mode: an object where a rate mode is wanted; write one of "fixed", "adaptive"`,
		`"gate": "on"`:                  `rule.gate: the string "on" where an object is wanted; write its fields, as in {"mode": "wait"}, or "off"`,
		`"gate": true`:                  `rule.gate: true where an object is wanted; write its fields, as in {"mode": "wait"}, or "off"`,
		`"gate": false`:                 `rule.gate: false where an object is wanted; write "off"`,
		`"gate": {"max": true}`:         `rule.gate.max: true where a whole number is wanted`,
		`"budget": 0.2`:                 `rule.budget: the number 0.2 where an object is wanted; write its fields, as in {"ratio": 0.2}, or "off"`,
		`"hedge": "95ms"`:               `rule.hedge: the string "95ms" where an object is wanted; write its fields, as in {"percentile": 98}, or "off"`,
		`"hedge": {"percentile": 0.98}`: `rule.hedge.percentile: 0.98 is a share; did you mean 98?`,
		`"budget": {"ratio": 20}`:       `rule.budget.ratio: 20 is more than one retry for each request; did you mean 0.2, which is 20 %?`,

		// Back-offs.
		`"backoff": "constant"`:       `rule.backoff: "constant" needs a delay; write {"type": "constant", "delay": "1s"}, or "none" for no wait`,
		`"backoff": "fixed"`:          `rule.backoff: "fixed" needs a delay; write {"type": "constant", "delay": "1s"}, or "none" for no wait`,
		`"backoff": "2s"`:             `rule.backoff: "2s" is not the name of a back-off; write {"type": "constant", "delay": "2s"} for a wait that stays the same`,
		`"backoff": 2`:                `rule.backoff: the number 2 where a back-off is wanted; write {"type": "constant", "delay": "1s"}, or "none" for no wait`,
		`"backoff": true`:             `rule.backoff: true where a back-off is wanted; write {"type": "exponential"}, or "none" for no wait`,
		`"backoff": "off"`:            `rule.backoff: "off" is not the name of a back-off; write "none" for no wait; "attempts": 1 turns retries off`,
		`"backoff": "full"`:           `rule.backoff: "full" is not the name of a back-off; did you mean "full_jitter"?`,
		`"backoff": {"type": "expo"}`: `rule.backoff.type: "expo" is not a type of back-off; did you mean "exponential"?`,
		`"backoff": {"base": "1s"}`:   `rule.backoff: there is neither a "type" nor a "name" here; write "type": "exponential" beside it; types with such fields are decorrelated, equal_jitter, exponential, full_jitter`,
		`"backoff": {"delay": "1s"}`:  `write "type": "constant" beside it`,
		`"backoff": {"interval": "1s", "max": "9s", "multiplier": 2}`:  `write "type": "randomized" beside it`,
		`"backoff": {"pause": "1s"}`:                                   `write "type": "exponential" with "base" and "max", or another type: constant, `,
		`"backoff": {}`:                                                `write {"type": "exponential"}, or another type: constant, `,
		`"backoff": {"type": "exponential", "initial_interval": "1s"}`: `rule.backoff.initial_interval: unknown field; did you mean "base"?`,
		`"backoff": {"type": "randomized", "initial_interval": "1s"}`:  `unknown field; did you mean "interval"?`,
		`"backoff": {"type": "exponential", "max_delay": "1s"}`:        `unknown field; did you mean "max"?`,
		`"backoff": {"type": "exponential", "jitter": 0.5}`:            `rule.backoff.jitter: the number 0.5 has no unit; write "0.5s" for seconds or "0.5ms" for milliseconds`,

		// Names that other libraries use.
		`"timeout": "5s"`:          `rule.timeout: unknown field; did you mean "attempt_timeout"? It bounds one attempt; a Timeout of the http.Client bounds the whole call`,
		`"retries": 3`:             `rule.retries: unknown field; did you mean "attempts": 4? It counts the first send, too`,
		`"max_retries": 0`:         `did you mean "attempts": 1? It counts the first send, too`,
		`"maxRetries": "3"`:        `did you mean "attempts"? It counts the first send, too`,
		`"max_attempts": 3`:        `did you mean "attempts"?`,
		`"jitter": true`:           `did you mean "backoff"? It is an object, as in {"type": "exponential", "base": "1s", "max": "32s"}`,
		`"initial_interval": "1s"`: `did you mean "backoff"? It is an object`,
		`"max_elapsed_time": "1m"`: `did you mean "elapsed"? No retry starts later`,
		`"status_codes": [503]`:    `did you mean "classify"?`,
		`"retry_on": [503]`:        `did you mean "classify"? As in [{"status": [500, 502], "verdict": "ambiguous"}]`,
		`"allowed_methods": []`:    `did you mean "idempotent"? As in ["GET", "PUT", "POST"], or "all"`,
		`"circuit_breaker": {}`:    `did you mean "gate"? As in {"start": 10, "max": 100}`,
		`"qps": 5`:                 `did you mean "rate"?`,

		// Idempotent.
		`"idempotent": true`:            `rule.idempotent: true where a test for idempotent requests is wanted; write "all", or a list of methods such as ["GET", "PUT", "POST"]`,
		`"idempotent": false`:           `write "none", or a list`,
		`"idempotent": "post"`:          `rule.idempotent: methods are in capitals; write "POST"`,
		`"idempotent": ["GET", "PATH"]`: `rule.idempotent[1]: "PATH" is not a method; did you mean "PATCH"?`,
		`"idempotent": []`:              `the list is empty; leave the key out`,
		`"idempotent": ["GET", 5]`:      `rule.idempotent[1]: the number 5 where the name of a test for idempotent requests is wanted`,
		`"idempotent": "al"`:            `"al" is not the name of a test for idempotent requests; did you mean "all"?`,
	} {
		_, _, err := Load(strings.NewReader(`{"rule": {`+rule+`}}`), Names{})
		if assert.Error(t, err, rule) {
			assert.Contains(t, err.Error(), want, rule)
		}
	}
	_, _, err := Load(strings.NewReader(`{"retries": 3}`), Names{})
	assert.EqualError(t, err, `line 1, column 2: retries: unknown field; did you mean "attempts": 4? It counts the first send, too; it belongs inside "rule" or inside a host of "hosts"`)
	_, _, err = Load(strings.NewReader(`{"defaults": {}}`), Names{})
	assert.EqualError(t, err, `line 1, column 2: defaults: unknown field; did you mean "rule"?`)
}

// Other formats are more liberal than JSON.
func TestLoadSaysWhatJSONLacks(t *testing.T) {
	for input, want := range map[string]string{
		"{\n  // the default\n  \"rule\": {}\n}":    "line 2, column 3: not JSON: invalid character '/' looking for beginning of object key string; JSON has no comments",
		"{\"rule\": {} /* the default */}":          "JSON has no comments",
		"# rules\n{}":                               "line 1, column 1: not JSON: invalid character '#' looking for beginning of value; JSON has no comments",
		"{} // end":                                 "JSON has no comments",
		`{"rule": {"attempts": 4,}}`:                "JSON has no trailing commas; take away the comma before it",
		`{"rule": {"classify": ["refusals", ]}}`:    "JSON has no trailing commas; take away the comma before it",
		`{'rule': {}}`:                              "strings are in double quotes",
		`{"rule": {"excess": 'cap'}}`:               "strings are in double quotes",
		`{"rule": {"excess": cap}}`:                 "strings are in double quotes",
		`{rule: {}}`:                                "keys are in double quotes",
		"rule:\n  attempts: 4\n":                    "keys are in double quotes",
		`{"rule": {"attempts": 4 "excess": "cap"}}`: "a comma is missing before it, or a colon",
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
		rule, _, err := Load(strings.NewReader(`{"rule": {"idempotent": `+row.text+`}}`), names)
		require.NoError(t, err, row.text)
		for _, method := range methods {
			req := &http.Request{Method: method, Header: http.Header{}}
			assert.Equal(t, slices.Contains(row.want, method), rule.Idempotent(req), "%s and %q", row.text, method)
		}
	}
	rule, _, err := Load(strings.NewReader(`{"rule": {"idempotent": ["POST"]}}`), Names{})
	require.NoError(t, err)
	assert.True(t, rule.Idempotent(&http.Request{Method: "POST"}))
}

// An alias that leads nowhere, or hides a key of ours, would help nobody.
func TestAliasesLeadSomewhere(t *testing.T) {
	tables := map[string][]string{"rule": fieldsOf(Rule{}), "budget": keyNames(budgetKeys), "gate": keyNames(gateKeys), "hedge": keyNames(hedgeKeys), "file": keyNames(fileKeys), "clause": keyNames(clauseKeys), "type": {"type"}}
	for name, fields := range backoffFields {
		tables[name] = fields
	}
	assert.ElementsMatch(t, keyNames(ruleKeys), tables["rule"])
	for from, a := range aliases {
		assert.Equal(t, fold(from), from)
		for _, to := range a.to {
			found := false
			for _, known := range tables {
				found = found || slices.Contains(known, to)
			}
			assert.True(t, found, "%s for %s is known nowhere", to, from)
		}
	}
	for name, known := range tables {
		for _, key := range known {
			a := aliases[fold(key)]
			assert.NotContains(t, a.to, key, "%s of %s", key, name)
		}
	}
	for name := range backoffTypes {
		assert.NotEmpty(t, backoffFields[name], name)
	}
	for from, to := range otherTypes {
		assert.Contains(t, backoffTypes, to, from)
		assert.NotContains(t, backoffTypes, from)
	}
}
