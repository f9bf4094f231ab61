// What did the writer of a file probably mean? The names and forms of other
// libraries, and what to write in their place.

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// An alias is a key of another library. One of the keys in to stands for it
// here: the first that is known at its place.
type alias struct {
	to  []string
	say string // more about the difference; "" if there is none
}

const (
	sayAttempts = "it counts the first send, too"
	sayTimeout  = "it bounds one attempt; a Timeout of the http.Client bounds the whole call"
	sayBackoff  = `as in {"type": "exponential", "base": "1s", "max": "32s"}`
	saySpread   = "each type of back-off has its own jitter"
	sayStatus   = `as in [{"status": [500, 502], "verdict": "ambiguous"}]`
	sayGate     = `as in {"start": 10, "max": 100}`
	sayMethods  = `as in ["GET", "PUT", "POST"], or "all"`
)

// aliases are the keys of other libraries, folded as by fold.
var aliases = map[string]alias{
	"retries":               {[]string{"attempts"}, sayAttempts},
	"retry":                 {[]string{"attempts"}, sayAttempts},
	"maxretries":            {[]string{"attempts"}, sayAttempts},
	"maxretry":              {[]string{"attempts"}, sayAttempts},
	"retrymax":              {[]string{"attempts"}, sayAttempts},
	"numretries":            {[]string{"attempts"}, sayAttempts},
	"retrycount":            {[]string{"attempts"}, sayAttempts},
	"retrylimit":            {[]string{"attempts"}, sayAttempts},
	"maxretryattempts":      {[]string{"attempts"}, sayAttempts},
	"maxattempts":           {[]string{"attempts"}, ""},
	"maxtries":              {[]string{"attempts"}, ""},
	"tries":                 {[]string{"attempts"}, ""},
	"timeout":               {[]string{"attempt_timeout"}, sayTimeout},
	"requesttimeout":        {[]string{"attempt_timeout"}, sayTimeout},
	"pertrytimeout":         {[]string{"attempt_timeout"}, ""},
	"perattempttimeout":     {[]string{"attempt_timeout"}, ""},
	"responseheadertimeout": {[]string{"attempt_timeout"}, ""},
	"readtimeout":           {[]string{"stall_timeout"}, ""},
	"idletimeout":           {[]string{"stall_timeout"}, ""},
	"totaltimeout":          {[]string{"elapsed"}, "no retry starts later"},
	"maxelapsedtime":        {[]string{"elapsed"}, "no retry starts later"},
	"maxelapsed":            {[]string{"elapsed"}, "no retry starts later"},
	"maxduration":           {[]string{"elapsed"}, "no retry starts later"},
	"deadline":              {[]string{"elapsed"}, "no retry starts later"},
	"jitter":                {[]string{"randomization_factor", "backoff"}, saySpread},
	"randomization":         {[]string{"randomization_factor", "jitter", "backoff"}, saySpread},
	"strategy":              {[]string{"type", "backoff"}, ""},
	"kind":                  {[]string{"type"}, ""},
	"delay":                 {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"wait":                  {[]string{"delay", "base", "interval", "min_delay", "first", "backoff"}, ""},
	"interval":              {[]string{"delay", "base", "min_delay", "first", "backoff"}, ""},
	"retrydelay":            {[]string{"delay", "base", "interval", "min_delay", "first", "backoff"}, ""},
	"retryinterval":         {[]string{"delay", "base", "interval", "min_delay", "first", "backoff"}, ""},
	"initial":               {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"initialinterval":       {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"initialdelay":          {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"initialbackoff":        {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"basedelay":             {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"mindelay":              {[]string{"base", "interval", "first", "backoff"}, ""},
	"min":                   {[]string{"base", "interval", "min_delay", "first"}, ""},
	"retrywaitmin":          {[]string{"base", "interval", "min_delay", "first", "backoff"}, ""},
	"retrywaitmax":          {[]string{"max", "max_interval", "max_delay", "backoff"}, ""},
	"maxdelay":              {[]string{"max", "max_interval", "backoff"}, ""},
	"maxinterval":           {[]string{"max", "max_delay", "backoff"}, ""},
	"maxbackoff":            {[]string{"max", "max_interval", "max_delay", "backoff"}, ""},
	"maximumbackoff":        {[]string{"max", "max_interval", "max_delay", "backoff"}, ""},
	"maxwait":               {[]string{"max", "max_interval", "max_delay", "backoff"}, ""},
	"cap":                   {[]string{"max", "max_interval", "max_delay", "excess"}, ""},
	"multiplier":            {[]string{"factor", "rate", "backoff"}, ""},
	"factor":                {[]string{"multiplier", "rate", "backoff"}, ""},
	"exponent":              {[]string{"multiplier", "factor", "rate", "backoff"}, ""},
	"backofffactor":         {[]string{"multiplier", "factor", "rate", "backoff"}, ""},
	"backoffpolicy":         {[]string{"backoff"}, ""},
	"status":                {[]string{"classify"}, sayStatus},
	"statuscodes":           {[]string{"status", "classify"}, sayStatus},
	"retryon":               {[]string{"classify"}, sayStatus},
	"retryablestatuscodes":  {[]string{"classify"}, sayStatus},
	"statusforcelist":       {[]string{"classify"}, sayStatus},
	"retryafter":            {[]string{"max_retry_after", "hint"}, "it is respected by default"},
	"respectretryafter":     {[]string{"hint"}, "Retry-After is respected by default"},
	"methods":               {[]string{"idempotent"}, sayMethods},
	"retrymethods":          {[]string{"idempotent"}, sayMethods},
	"allowedmethods":        {[]string{"idempotent"}, sayMethods},
	"retrynonidempotent":    {[]string{"idempotent"}, sayMethods},
	"nonidempotent":         {[]string{"idempotent"}, sayMethods},
	"ratelimit":             {[]string{"rate"}, "in sends per second"},
	"rps":                   {[]string{"rate"}, ""},
	"qps":                   {[]string{"rate"}, ""},
	"requestspersecond":     {[]string{"rate"}, ""},
	"circuitbreaker":        {[]string{"gate"}, sayGate},
	"breaker":               {[]string{"gate"}, sayGate},
	"bulkhead":              {[]string{"gate"}, sayGate},
	"concurrency":           {[]string{"gate"}, sayGate},
	"maxconcurrency":        {[]string{"gate"}, sayGate},
	"maxinflight":           {[]string{"gate"}, sayGate},
	"limit":                 {[]string{"max"}, ""},
	"retrybudget":           {[]string{"budget"}, ""},
	"hedging":               {[]string{"hedge"}, ""},
	"hedgingdelay":          {[]string{"after", "hedge"}, ""},
	"retryratio":            {[]string{"ratio"}, ""},
	"percent":               {[]string{"ratio", "percentile"}, ""},
	"quantile":              {[]string{"percentile"}, "in percent, such as 98"},
	"minretriespersecond":   {[]string{"per_second"}, ""},
	"resume":                {[]string{"resumes"}, ""},
	"maxbody":               {[]string{"buffer_body"}, ""},
	"default":               {[]string{"rule"}, ""},
	"defaults":              {[]string{"rule"}, ""},
	"global":                {[]string{"rule"}, ""},
	"host":                  {[]string{"hosts"}, ""},
}

// otherName ends a fault about a key of another library; "" if it is none of
// those.
func otherName(n *node, known []string) string {
	a, ok := aliases[fold(n.key)]
	if !ok {
		return ""
	}
	i := slices.IndexFunc(a.to, func(to string) bool { return slices.Contains(known, to) })
	if i < 0 {
		return ""
	}
	text := "did you mean " + quote(a.to[i])
	if retries, ok := n.value.(json.Number); ok && a.say == sayAttempts {
		if v, err := strconv.Atoi(retries.String()); err == nil && 0 <= v && v < maxAttempts {
			text += ": " + strconv.Itoa(v+1)
		}
	}
	text += "?"
	switch {
	case a.to[i] == "backoff":
		text += " It is an object, " + sayBackoff
	case a.say != "" && i == 0:
		text += " " + strings.ToUpper(a.say[:1]) + a.say[1:]
	}
	return text
}

// otherTypes are the names that other libraries have for types of back-off.
var otherTypes = map[string]string{
	"fixed": "constant", "linear": "constant", "static": "constant", "expo": "exponential", "google": "exponential",
	"exponentialbackoff": "exponential", "exponentialjitter": "full_jitter", "jitter": "full_jitter",
	"full": "full_jitter", "random": "full_jitter", "equal": "equal_jitter", "decorrelatedjitter": "decorrelated",
}

const sayConstant = `write {"type": "constant", "delay": "1s"}, or "none" for no wait`

// helpBackoff notes what to write in the place of a back-off that is neither a
// known name nor an object; false if there is nothing better to say than that
// it is not known.
func (l *loader) helpBackoff(n *node) bool {
	text, isText := n.value.(string)
	if _, given := l.names.Backoffs[text]; isText && (given || builtinBackoffs[text] != nil) {
		return false
	}
	other := otherTypes[fold(text)]
	switch n.value.(type) {
	case json.Number:
		l.fault(n, "%s where a back-off is wanted; "+sayConstant, n.what())
	case bool:
		l.fault(n, `%s where a back-off is wanted; write {"type": "exponential"}, or "none" for no wait`, n.what())
	default:
		switch _, unit := parseDuration(text); {
		case !isText:
			return false
		case text == "off":
			l.fault(n, `"off" is not the name of a back-off; write "none" for no wait; "attempts": 1 turns retries off`)
		case text == "constant", other == "constant":
			l.fault(n, `%s needs a delay; `+sayConstant, quote(text))
		case unit:
			l.fault(n, `%s is not the name of a back-off; write {"type": "constant", "delay": %[1]s} for a wait that stays the same`, quote(text))
		case other != "":
			l.fault(n, "%s is not the name of a back-off; did you mean %s?", quote(text), quote(other))
		default:
			return false
		}
	}
	return true
}

// helpType returns what to write into a back-off without a type, as far as its
// fields tell.
func helpType(n *node) string {
	if len(n.kids) == 0 {
		return `write {"type": "exponential"}, or another type: ` + join(backoffTypeNames)
	}
	fit := slices.DeleteFunc(slices.Clone(backoffTypeNames), func(name string) bool {
		return !slices.ContainsFunc(n.kids, func(kid *node) bool { return slices.Contains(backoffFields[name], kid.key) })
	})
	// The types that know most of the fields come first.
	knows := func(name string) (count int) {
		for _, kid := range n.kids {
			if slices.Contains(backoffFields[name], kid.key) {
				count++
			}
		}
		return count
	}
	slices.SortStableFunc(fit, func(a, b string) int { return knows(b) - knows(a) })
	if len(fit) == 0 {
		return `write "type": "exponential" with "base" and "max", or another type: ` + join(backoffTypeNames)
	}
	best := knows(fit[0])
	fit = slices.DeleteFunc(fit, func(name string) bool { return knows(name) < best })
	like := fit[0]
	if slices.Contains(fit, "exponential") {
		like = "exponential"
	}
	text := fmt.Sprintf(`write "type": %q beside it`, like)
	if len(fit) > 1 {
		text += "; types with such fields are " + join(fit)
	}
	return text
}

// helpSwitch returns what to write in the place of a value that is no word of
// an enumeration; "" if that is not known.
func helpSwitch(n *node, words []string) string {
	on, ok := n.value.(bool)
	word := "off"
	if on {
		word = "on"
	}
	if !ok || !slices.Contains(words, word) {
		return "write one of " + quoteAll(words)
	}
	return "write " + quote(word)
}

func quoteAll(words []string) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = quote(word)
	}
	return strings.Join(list, ", ")
}

// helpSyntax returns what is probably wrong with a text that is not JSON, at
// the offset that encoding/json names; "" if that is not known.
func helpSyntax(data []byte, pos int) string {
	if pos >= len(data) {
		return ""
	}
	before := bytes.TrimRight(data[max(0, pos-maxQuote):pos], " \t\r\n")
	after := data[pos:min(len(data), pos+maxQuote)]
	word := strings.TrimLeft(string(after), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
	switch c := data[pos]; {
	case c == '/', c == '#':
		return "JSON has no comments"
	case (c == '}' || c == ']') && bytes.HasSuffix(before, []byte(",")):
		return "JSON has no trailing commas; take away the comma before it"
	case c == '\'', c == '`':
		return "strings are in double quotes"
	case c == '"' && len(before) > 0 && !bytes.ContainsAny(before[len(before)-1:], "{[,:"):
		return "a comma is missing before it, or a colon"
	case len(word) == len(after):
		return ""
	case strings.HasPrefix(strings.TrimLeft(word, " "), ":"):
		return "keys are in double quotes"
	}
	return "strings are in double quotes"
}

// fieldsOf lists the fields of a struct as they are written in a file.
func fieldsOf(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		var name strings.Builder
		for i, c := range f.Name {
			if i > 0 && unicode.IsUpper(c) {
				name.WriteByte('_')
			}
			name.WriteRune(unicode.ToLower(c))
		}
		names = append(names, name.String())
	}
	return names
}
