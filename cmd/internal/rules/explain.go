// The rule of a request, the source of each value, and the waits.

package rules

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/cmd/internal/waits"
	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/internal/redact"
	"github.com/aplomb-go/aplomb/internal/rulejson"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

// A summary says that a file is fine.
type summary struct {
	File   string   `json:"file"`
	Faults []fault  `json:"faults"`
	Hosts  []string `json:"hosts"`
}

func newSummary(name string, f *rulejson.File) summary {
	return summary{File: name, Faults: []fault{}, Hosts: append([]string{}, slices.Sorted(maps.Keys(f.Hosts))...)}
}

func (s summary) print(w io.Writer) {
	hosts := "no rules of hosts"
	if n := len(s.Hosts); n > 0 {
		hosts = fmt.Sprintf("rules for %s", strings.Join(s.Hosts, ", "))
	}
	wrap(w, "", fmt.Sprintf("%s: no faults; %s", s.File, hosts))
}

// An explanation is the rule of a request.
type explanation struct {
	Method   string             `json:"method"`
	URL      string             `json:"url"`
	Pattern  string             `json:"pattern"`
	Patterns []string           `json:"patterns"` // all patterns whose rules are in it, the most specific first
	Settings []rulejson.Setting `json:"settings"`
	Waits    []waits.Row        `json:"waits"`
	Attempts int                `json:"max_attempts"`
	Notes    []string           `json:"notes"`
}

func explain(o options, f *rulejson.File) (*explanation, error) {
	t, err := newTransport(f, transport.Config{})
	if err != nil {
		return nil, err
	}
	rule, patterns := t.RuleFor(&http.Request{Method: o.method, URL: o.url})
	return &explanation{
		Method: o.method, URL: safe(o.url), Pattern: append(patterns, "")[0], Patterns: append([]string{}, patterns...),
		Settings: f.Settings(patterns...), Attempts: max(rule.MaxAttempts, 1),
		Waits: table(rule, o.deadline), Notes: notes(rule, o.deadline),
	}, nil
}

// safe returns a URL without its userinfo, query and fragment, and without other secrets.
func safe(u *url.URL) string {
	c := *u
	c.User, c.RawQuery, c.ForceQuery = nil, "", false
	return redact.URL(&c)
}

// mostWaits bounds the table of a rule with up to 1000 attempts.
const mostWaits = 30

// table returns the waits of a rule. The rule allows no retry later than MaxElapsedTime, and no
// retry at or after the deadline.
func table(rule policy.Rule, deadline time.Duration) []waits.Row {
	rows := waits.Table(rule.Backoff, min(max(rule.MaxAttempts, 1)-1, mostWaits))
	for i := range rows {
		rows[i].Note = reached(time.Duration(rows[i].Earliest), time.Duration(rows[i].Latest), rule.MaxElapsedTime, deadline)
	}
	return rows
}

// reached says whether a limit of time ends the retries before a retry.
func reached(earliest, latest, elapsed, deadline time.Duration) string {
	never, maybe := "", ""
	for _, limit := range []struct {
		name    string
		on      bool
		earlier func(time.Duration) bool // is the retry within the limit?
	}{
		{"max_elapsed_time", elapsed > 0, func(at time.Duration) bool { return at <= elapsed }},
		{"deadline", deadline > 0, func(at time.Duration) bool { return at < deadline }},
	} {
		switch {
		case !limit.on || limit.earlier(latest):
		case limit.earlier(earliest) && maybe == "":
			maybe = "perhaps past " + limit.name
		case !limit.earlier(earliest) && never == "":
			never = "past " + limit.name
		}
	}
	if never != "" {
		return never
	}
	return maybe
}

// notes are sentences about the rule as a whole.
func notes(rule policy.Rule, deadline time.Duration) []string {
	var all []string
	if rule.MaxAttempts <= 1 {
		return append(all, "There is one attempt and no retry.")
	}
	if n := rule.MaxAttempts - 1; n > mostWaits {
		all = append(all, fmt.Sprintf("The table has the first %d of %d retries.", mostWaits, n))
	}
	if b := bounds.Of(rule.Backoff, 4); len(b) == 4 && b[3].Highest > b[0].Highest {
		all = append(all, "After a timeout a wait that is shorter in the table may last up to "+waits.Short(b[3].Highest)+".")
	}
	longest := waits.Short(rule.MaxRetryAfter)
	if rule.MaxRetryAfter < 0 {
		all = append(all, "If the server asks for a wait, the first retry comes after it. Later retries take the longer of both.")
	} else {
		all = append(all, "If the server asks for a wait, the first retry comes after it. Later retries take the longer of both. If the server asks for more than "+longest+", there is no retry.")
	}
	if rule.AttemptTimeout > 0 {
		all = append(all, "The times leave out the attempts, each of which may take up to "+waits.Short(rule.AttemptTimeout)+" until its headers.")
	} else {
		all = append(all, "The times leave out the attempts, whose time has no bound.")
	}
	if rule.MaxElapsedTime > 0 {
		all = append(all, "No retry starts later than "+waits.Short(rule.MaxElapsedTime)+" after the first attempt (max_elapsed_time).")
	}
	if deadline > 0 {
		all = append(all, "No wait goes past the deadline of "+waits.Short(deadline)+".")
	}
	return all
}

// applies names the rule of a request by its patterns.
func applies(patterns []string) string {
	names := make([]string, len(patterns))
	for i, p := range patterns {
		names[i] = fmt.Sprintf("host %q", p)
		if strings.Contains(p, "/") {
			names[i] = fmt.Sprintf("path %q", p)
		}
	}
	switch len(names) {
	case 0:
		return "the rule for all hosts"
	case 1:
		return "the rule of " + names[0]
	}
	return "the rule of " + names[0] + ", over that of " + strings.Join(names[1:], " and of ") + ","
}

func (e *explanation) print(w io.Writer) {
	wrap(w, "", fmt.Sprintf("%s %s: %s applies.", e.Method, e.URL, applies(e.Patterns)))
	line(w)
	var off []string
	key, value := 0, 0
	var rows []rulejson.Setting
	for _, s := range e.Settings {
		if s.Value == "off" && s.Source == "default" {
			off = append(off, s.Key)
			continue
		}
		rows = append(rows, s)
		key, value = max(key, len(s.Key)), max(value, len(s.Value))
	}
	value = min(value, 24)
	for _, s := range rows {
		row(w, s.Key, key, s.Value, value, s.Source)
	}
	if len(off) > 0 {
		line(w)
		wrap(w, "  ", "off by default: "+strings.Join(off, ", "))
	}
	line(w)
	if len(e.Waits) > 0 {
		waits.Print(w, e.Waits)
		line(w)
	}
	for _, n := range e.Notes {
		wrap(w, "", n)
	}
}
