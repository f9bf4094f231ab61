package rulejson

import (
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/formula"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

var update = flag.Bool("update", false, "write docs/rules.schema.json")

const schemaFile = "../../docs/rules.schema.json"

// The schema is made from the types, tables and words of the loader. So a new field
// or name is in the schema, or this test fails. The module tools compares how the
// schema and the loader judge files.
func TestSchemaIsThatOfTheLoader(t *testing.T) {
	text := testkit.Must(json.MarshalIndent(schema(t), "", "  "))(t)
	text = append(text, '\n')
	if *update {
		require.NoError(t, os.WriteFile(schemaFile, text, 0o644))
	}
	have := testkit.Must(os.ReadFile(schemaFile))(t)
	assert.Equal(t, string(text), string(have), "run go test ./internal/rulejson -run Schema -update")
}

// An object is a JSON object.
type object = map[string]any

// bounds are the bounds of numbers that policy.Rule.Validate knows.
var bounds = map[string]object{
	"RateLimit.PerSecond":      {"maximum": 1e9},
	"RetryBudget.Ratio":        {"maximum": 1},
	"RetryBudget.MinPerSecond": {"maximum": 1e6},
	"Hedge.Percentile":         {"exclusiveMinimum": 1, "maximum": 99.9},
	"Rule.ReplayBuffer":        {"maximum": 64 << 20},
	"Rule.MaxRefetch":          {"maximum": 1 << 30},

	"Exponential.Factor":             {"minimum": 1},
	"Geometric.Rate":                 {"minimum": 1},
	"Normal.Factor":                  {"minimum": 1},
	"Normal.Jitter":                  {"maximum": 1.0 / 3},
	"Randomized.Multiplier":          {"minimum": 1},
	"Randomized.RandomizationFactor": {"maximum": 1},
}

// A schemer makes the schema.
type schemer struct {
	t    *testing.T
	docs map[string]string // of fields, by type and name
}

func schema(t *testing.T) object {
	s := schemer{t, map[string]string{}}
	for _, dir := range []string{"../../policy", "../../policy/backoff"} {
		s.read(dir)
	}
	rule := s.fields(reflect.TypeFor[policy.Rule]())
	rule["profile"] = described("A rule of package profile that this rule is laid over.", named1(slices.Sorted(maps.Keys(builtinProfiles()))))
	return object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://raw.githubusercontent.com/aplomb-go/aplomb/main/docs/rules.schema.json",
		"title":       "Rules of aplomb",
		"description": "A file that package policy/rulefile reads. The package refuses a few more values, such as times below a microsecond. It also knows the names that the program gives it.",
		"type":        "object",
		"properties": object{
			"$schema": object{"type": "string", "minLength": 1, "description": "The address of this schema, for editors."},
			"rule":    object{"$ref": "#/$defs/rule", "description": "The rule for all hosts."},
			"hosts": object{
				"type": "object", "additionalProperties": object{"$ref": "#/$defs/rule"}, "patternProperties": object{"/": object{"$ref": "#/$defs/pathRule"}},
				"description": "Rules of hosts by pattern, such as api.example.com, api.example.com:8443 or *.example.com. A pattern inherits from the wider patterns, and then from rule. A pattern with a path, such as api.example.com/v1/ or POST api.example.com/charges, has the rule of a path, which inherits from that of its host.",
			},
		},
		"additionalProperties": false,
		"$defs": object{
			"rule":     object{"type": "object", "properties": rule, "additionalProperties": false},
			"pathRule": object{"allOf": []any{object{"$ref": "#/$defs/rule"}, object{"properties": limits(reflect.TypeFor[policy.Rule](), nil)}}},
			"duration": object{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`, "examples": []string{"250ms", "5s", "1m30s"}},
			"positive": object{"$ref": "#/$defs/duration", "pattern": "[1-9]"},
			"size": object{"anyOf": []any{
				object{"type": "integer", "minimum": 1},
				object{"type": "string", "pattern": `^0*[1-9][0-9]* *(` + strings.Join(units(), "|") + `)$`, "examples": []string{"64KiB", "1MiB"}},
			}},
			"backoff":   s.backoffs(),
			"clause":    clause(),
			"class":     object{"enum": wordsOf(classes)},
			"errorType": object{"enum": wordsOf(errorTypes)},
			"status":    object{"type": "integer", "minimum": 100, "maximum": 999},
		},
	}
}

// limits forbids the fields that the rule of a path must not have, and the profiles that
// have such fields.
func limits(typ reflect.Type, index []int) object {
	forbidden := object{}
	for i := range keysOf(typ) {
		f, at := typ.Field(i), append(slices.Clone(index), i)
		if isOfHost(at) {
			forbidden[snake(f.Name)] = false
		} else if f.Type.Kind() == reflect.Struct {
			if some := limits(f.Type, at); len(some) == f.Type.NumField() {
				forbidden[snake(f.Name)] = false
			} else if len(some) > 0 {
				forbidden[snake(f.Name)] = object{"properties": some}
			}
		}
	}
	if index == nil {
		var allowed []string
		for _, name := range slices.Sorted(maps.Keys(builtinProfiles())) {
			if len(rules.ValidateRequest(builtinProfiles()[name], "")) == 0 {
				allowed = append(allowed, name)
			}
		}
		forbidden["profile"] = named1(allowed)
	}
	return forbidden
}

// isOfHost reports whether a field is a limit that all requests to a host share.
func isOfHost(index []int) bool {
	var r policy.Rule
	switch v := reflect.ValueOf(&r).Elem().FieldByIndex(index); v.Kind() {
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), nil))
	case reflect.Int, reflect.Int8, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(0.5)
	}
	return slices.ContainsFunc(rules.ValidateRequest(r, ""), func(f *policy.FieldError) bool { return strings.Contains(f.Error(), "is a limit of the host") })
}

func units() (names []string) {
	for _, u := range sizeUnits {
		names = append(names, u.name)
	}
	return names
}

// fields returns the schemas of a struct's fields by their keys.
func (s *schemer) fields(typ reflect.Type) object {
	all := object{}
	for i := range keysOf(typ) {
		f := typ.Field(i)
		doc := s.docs[typ.Name()+"."+f.Name]
		require.NotEmpty(s.t, doc, "%s.%s has no comment", typ.Name(), f.Name)
		all[snake(f.Name)] = described(doc, s.field(typ, i))
	}
	return all
}

func described(text string, schema object) object {
	schema = maps.Clone(schema)
	schema["description"] = text
	return schema
}

func (s *schemer) field(typ reflect.Type, i int) object {
	f := typ.Field(i)
	bound := bounds[typ.Name()+"."+f.Name]
	number := func(kind string, low object) object {
		n := object{"type": kind}
		maps.Copy(n, low)
		maps.Copy(n, bound)
		return orWord(canBeOff(typ, i), n)
	}
	switch reflect.New(f.Type).Interface().(type) {
	case *backoff.Backoff:
		return object{"$ref": "#/$defs/backoff"}
	case *classify.Func:
		return oneOrMore(object{"$ref": "#/$defs/clause"})
	case *classify.RetryAfterFunc:
		name := object{"type": "string", "minLength": 1, "description": "A name that the program gives."}
		return oneOrMore(object{"anyOf": []any{name, closed(object{"name": name}, "name")}})
	case *func(*http.Request) bool:
		return oneOrMore(object{"anyOf": append(named1(slices.Sorted(maps.Keys(idempotent)))["anyOf"].([]any),
			object{"type": "string", "pattern": "^[A-Z-]+$", "examples": []string{"POST", "PATCH"}})})
	case *func(*http.Request) string:
		if f.Name == "IdempotencyKey" {
			return named1(slices.Sorted(maps.Keys(keys)))
		}
		return named1(slices.Sorted(maps.Keys(scopes)))
	case *func(*http.Request) int:
		return named1(slices.Sorted(maps.Keys(costs)))
	case *policy.Switch:
		return object{"enum": []string{"off", "on"}}
	case *backoff.Jitter:
		return object{"enum": formula.Jitters}
	case *time.Duration:
		return orWord(canBeOff(typ, i), object{"$ref": "#/$defs/positive"})
	case *int:
		if f.Name == "MaxAttempts" {
			return object{"type": "integer", "minimum": 1, "maximum": 1000} // an Off has an error of its own
		}
		return number("integer", object{"minimum": 1})
	case *int64:
		size := object{"$ref": "#/$defs/size"}
		maps.Copy(size, bound) // of a number; a string is not bounded
		return orWord(canBeOff(typ, i), size)
	case *float64:
		return number("number", object{"exclusiveMinimum": 0})
	}
	require.Contains(s.t, groups, f.Type, "%v is neither a value nor a group", f.Type)
	return object{"anyOf": []any{object{"type": "object", "properties": s.fields(f.Type), "additionalProperties": false, "minProperties": 1}, object{"enum": []string{"off", "on"}}}}
}

// orWord adds the word "off".
func orWord(off bool, schema object) object {
	if !off {
		return schema
	}
	return object{"anyOf": []any{schema, object{"const": "off"}}}
}

// oneOrMore is a list of items. A single item needs no brackets.
func oneOrMore(item object) object {
	return object{"anyOf": []any{item, object{"type": "array", "items": item, "minItems": 1}}}
}

// named1 is a name, which is written "name" or {"name": "name"}.
func named1(names []string) object {
	return object{"anyOf": []any{object{"enum": names}, closed(object{"name": object{"enum": names}}, "name")}}
}

func closed(properties object, required ...string) object {
	return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func (s *schemer) backoffs() object {
	all := named1(slices.Sorted(maps.Keys(formulas)))["anyOf"].([]any)
	for _, name := range formulaNames {
		fields := object{"delay": described("The wait. It may be 0s.", object{"$ref": "#/$defs/duration"})}
		required := []string{"type", "delay"}
		if name != "constant" {
			fields, required = s.fields(reflect.TypeOf(formulas[name])), required[:1]
		}
		fields["type"] = object{"const": name}
		one := closed(fields, required...)
		if name == "exponential" {
			one["allOf"] = jitters()
		}
		all = append(all, one)
	}
	return object{"anyOf": all}
}

// jitters bounds the fields that have a meaning for some kinds of jitter only.
func jitters() (rules []any) {
	for _, kind := range formula.Jitters {
		then := object{}
		switch e := (formula.Exponential{Jitter: kind, Base: time.Second, JitterFactor: 2}).Validate(); {
		case e == nil:
			continue
		case strings.Contains(e.Error(), "has no effect"):
			then["jitter_factor"] = false
		case kind == "normal":
			then["jitter_factor"] = object{"maximum": 1.0 / 3}
		default:
			then["jitter_factor"] = object{"maximum": 1}
		}
		if (formula.Exponential{Jitter: kind, Factor: 3}).Validate() != nil {
			then["factor"] = false
		}
		rules = append(rules, object{
			"if":   object{"properties": object{"jitter": object{"const": kind}}, "required": []string{"jitter"}},
			"then": object{"properties": then},
		})
	}
	return rules
}

func clause() object {
	verdict, status := object{"$ref": "#/$defs/class"}, oneOrMore(object{"$ref": "#/$defs/status"})
	all := named1(slices.Sorted(maps.Keys(classifiers)))["anyOf"].([]any)
	return object{"anyOf": append(all,
		closed(object{"status": status, "class": verdict}, "status", "class"),
		closed(object{"body": object{"type": "string", "minLength": 1}, "status": status, "class": verdict}, "body", "class"),
		closed(object{"error": oneOrMore(object{"$ref": "#/$defs/errorType"}), "class": verdict}, "error", "class"),
	)}
}

// read reads the comments of the fields of all structs in a directory.
func (s *schemer) read(dir string) {
	for _, file := range testkit.Must(filepath.Glob(dir + "/*.go"))(s.t) {
		code := testkit.Must(os.ReadFile(file))(s.t)
		for _, typ := range regexp.MustCompile(`(?s)\ntype (\w+) struct {\n(.*?)\n}\n`).FindAllStringSubmatch(string(code), -1) {
			for _, field := range regexp.MustCompile(`((?m:^\t//.*\n)+)\t(\w+) `).FindAllStringSubmatch(typ[2], -1) {
				s.docs[typ[1]+"."+field[2]] = plainText(regexp.MustCompile(`(?m)^\t// ?`).ReplaceAllString(field[1], ""))
			}
		}
	}
}

// plainText returns the first paragraph of a comment on one line.
func plainText(doc string) string {
	doc, _, _ = strings.Cut(doc, "\n\n")
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(doc), " "))
}
