// Settings, which explain the rule of a host or path value by value.

package rulejson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Setting is a value of a complete rule, and where it comes from.
type Setting struct {
	// Key is the path of the key, such as retry_after.max.
	Key string `json:"key"`
	// Value is the value as a file has it, without quotes. "off" stands for a
	// setting that does nothing.
	Value string `json:"value"`
	// Source is "default", "rule", `host "*.example.com"`, `path "api.example.com/v1/"`, or
	// `profile "github" of host "api.github.com"`, for instance. If functions are
	// asked in turn, it is that of the first, and Value names those of the others.
	Source string `json:"source"`
}

// A layer is a rule that gives its values to a complete rule.
type layer struct {
	rule   policy.Rule
	source string
	part   *Part // nil: the defaults, or a profile
}

// layers returns the rules that a complete rule is made of. A field has the value of
// the first layer in which it is not zero, as policy.Rule.Or has it.
func (f *File) layers(patterns []string) []layer {
	var all []layer
	add := func(p Part, of string) {
		all = append(all, layer{p.Keys, of, &p})
		if p.Profile != "" {
			all = append(all, layer{rule: p.Base, source: "profile " + strconv.Quote(p.Profile) + " of " + of})
		}
	}
	for _, pattern := range patterns {
		kind := "host "
		if strings.Contains(pattern, "/") {
			kind = "path "
		}
		if p, ok := f.Hosts[pattern]; ok {
			add(p, kind+strconv.Quote(pattern))
		}
	}
	add(f.Rule, "rule")
	return append(all, layer{rule: policy.Defaults(), source: "default"})
}

// Settings lists every value of a complete rule, in the order of the fields of
// [policy.Rule]. patterns are the keys of the rules in the file that it is made of, the most
// specific first. Keys that the file does not have are left out. Without patterns, the
// settings are those of all other hosts. transport.Transport.RuleFor finds the patterns
// of a URL.
func (f *File) Settings(patterns ...string) []Setting {
	layers := f.layers(patterns)
	var whole policy.Rule
	for _, l := range layers {
		whole = whole.Or(l.rule)
	}
	var all []Setting
	v := reflect.ValueOf(whole)
	for i, key := range keysOf(v.Type()) {
		if field := v.Field(i); field.Kind() != reflect.Struct {
			all = append(all, f.setting(key, layers, whole, i))
		} else {
			for j := range field.NumField() {
				all = append(all, f.setting(key+"."+snake(field.Type().Field(j).Name), layers, whole, i, j))
			}
		}
	}
	return all
}

// setting explains the field with an index.
func (f *File) setting(key string, layers []layer, whole policy.Rule, index ...int) Setting {
	value := reflect.ValueOf(whole).FieldByIndex(index)
	s := Setting{Key: key, Source: "default", Value: f.value(key, whole, value)}
	var over policy.Rule
	for _, l := range layers {
		if reflect.ValueOf(l.rule).FieldByIndex(index).IsZero() {
			continue
		}
		known := parts(over, index)
		over = over.Or(l.rule)
		if known > 0 { // the functions of l are asked later, if at all
			if parts(over, index) > known && l.source != "default" {
				s.Value += ", then " + l.source
			}
			continue
		}
		s.Source = l.source
		if value.Kind() == reflect.Func || value.Kind() == reflect.Interface {
			s.Value = f.described(key, l, value)
		}
		if parts(over, index) == 0 {
			break
		}
	}
	return s
}

// parts returns how many functions a Classify or a RetryAfter asks in turn. Of any other field it is zero.
func parts(rule policy.Rule, index []int) int {
	switch f := reflect.ValueOf(rule).FieldByIndex(index).Interface().(type) {
	case classify.Func:
		return len(chain.Classifiers(f))
	case classify.RetryAfterFunc:
		return len(chain.Readers(f))
	}
	return 0
}

// value writes a value that is no function.
func (f *File) value(key string, whole policy.Rule, v reflect.Value) string {
	if v.IsZero() {
		return unset(key, whole)
	}
	switch v := v.Interface().(type) {
	case policy.Switch:
		return v.String()
	case time.Duration:
		return durationText(v)
	case int64:
		return sizeText(v)
	case int:
		return orOff(float64(v))
	case float64:
		return orOff(v)
	case string:
		return v
	}
	return ""
}

// unset returns the meaning of a field that is zero in a complete rule.
func unset(key string, whole policy.Rule) string {
	group, _, _ := strings.Cut(key, ".")
	limits := map[string]bool{
		"rate_limit": whole.RateLimit != policy.RateLimit{}, "concurrency": whole.Concurrency.Max > 0, "hedge": whole.Hedge != policy.Hedge{},
	}[group]
	switch {
	case key == "throttle_key":
		return "credentials"
	case key == "cost":
		return "1"
	case key == "rate_limit.burst" && whole.RateLimit.PerSecond > 0:
		return orOff(math.Ceil(whole.RateLimit.PerSecond))
	case key == "retry_budget.enabled", strings.HasSuffix(key, ".enabled") && limits:
		return "on"
	}
	return "off"
}

func orOff(n float64) string {
	if n < 0 {
		return "off"
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

func durationText(d time.Duration) string {
	if d < 0 {
		return "off"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return strings.Replace(text, "h0m", "h", 1)
}

func sizeText(n int64) string {
	if n < 0 {
		return "off"
	}
	for _, unit := range slices.Backward(sizeUnits[:4]) { // TiB to KiB
		if n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// described describes a function or a back-off by the text of its key, or else by
// the layer that it comes from.
func (f *File) described(key string, l layer, v reflect.Value) string {
	if l.part != nil {
		return f.text(l.part.node.member(key))
	}
	if b, ok := v.Interface().(backoff.Backoff); ok {
		return backoffText(b)
	}
	if l.source == "default" {
		return "default"
	}
	return "of the profile"
}

// text returns a value of the file on one line.
func (f *File) text(n *node) string {
	if n == nil {
		return ""
	}
	if s, ok := n.value.(string); ok {
		return s
	}
	var raw json.RawMessage
	var b bytes.Buffer
	if json.NewDecoder(bytes.NewReader(f.data[n.pos:])).Decode(&raw) != nil || json.Compact(&b, raw) != nil {
		return "" // cannot happen, because the file was read
	}
	return b.String()
}

// backoffText describes a back-off that is not in the file.
func backoffText(b backoff.Backoff) string {
	if c, ok := b.(backoff.Constant); ok {
		return "constant " + durationText(time.Duration(c))
	}
	for name, formula := range formulas {
		if reflect.TypeOf(formula) == reflect.TypeOf(b) {
			v := reflect.ValueOf(b)
			for i := range v.NumField() {
				if !v.Field(i).IsZero() {
					name += fmt.Sprintf(", %s %v", snake(v.Type().Field(i).Name), v.Field(i))
				}
			}
			return name
		}
	}
	return fmt.Sprintf("%T", b)
}
