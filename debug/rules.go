package debug

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/transport"
)

// A section is a part of a host's rule: the settings that come from the same source.
type section struct {
	Source   string   `json:"source"`
	Settings []string `json:"settings"`
}

// ruleOf returns the rule of a host. A setting that the rule of the host repeats from
// Config.Rule, or Config.Rule from the defaults, counts as one of the latter.
func ruleOf(t *transport.Transport, name string) []section {
	u, err := url.Parse(name)
	if err != nil {
		return nil
	}
	own, patterns := t.RuleFor(&http.Request{Method: http.MethodConnect, URL: u})
	shared, _ := t.RuleFor(&http.Request{URL: new(url.URL)}) // no pattern matches an empty host
	sections := []section{{Source: fmt.Sprintf("Config.Hosts%q", patterns)}, {Source: "Config.Rule"}, {Source: "default"}}
	all := [...]reflect.Value{reflect.ValueOf(own), reflect.ValueOf(shared), reflect.ValueOf(policy.Defaults())}
	for i := range all[0].NumField() {
		text := setting(all[0], i)
		from := 0
		switch {
		case text == "":
			continue
		case text == setting(all[2], i):
			from = 2
		case len(patterns) == 0 || text == setting(all[1], i):
			from = 1
		}
		sections[from].Settings = append(sections[from].Settings, text)
	}
	return slices.DeleteFunc(sections, func(s section) bool { return len(s.Settings) == 0 })
}

// setting returns the text of a field of a rule, or "" if it is zero. Of a back-off that is not
// of package backoff it has the type, because its String can say anything. Of a function it has
// the name.
func setting(rule reflect.Value, i int) string {
	field, value := rule.Type().Field(i), rule.Field(i)
	if !field.IsExported() || value.IsZero() {
		return ""
	}
	switch f := value.Interface().(type) {
	case classify.Func:
		return field.Name + ": " + namesOf(chain.Classifiers(f)...)
	case classify.RetryAfterFunc:
		return field.Name + ": " + namesOf(chain.Readers(f)...)
	}
	if value.Kind() == reflect.Func {
		return field.Name + ": " + namesOf(value.Interface())
	}
	if b, ok := value.Interface().(backoff.Backoff); ok {
		if typ := reflect.TypeOf(b); typ.PkgPath() != reflect.TypeFor[backoff.Constant]().PkgPath() {
			return field.Name + ": " + typ.String()
		}
	}
	var only policy.Rule
	reflect.ValueOf(&only).Elem().Field(i).Set(value)
	text := strings.TrimSuffix(strings.TrimPrefix(only.String(), "{"), "}")
	if group, ok := strings.CutPrefix(text, field.Name+": "+field.Name+"{"); ok {
		return field.Name + "{" + group
	}
	return text
}

// namesOf lists the names of functions.
func namesOf[F any](all ...F) string {
	names := make([]string, len(all))
	for i, f := range all {
		name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		names[i] = name[strings.LastIndexByte(name, '/')+1:]
	}
	return strings.Join(names, ", ")
}
