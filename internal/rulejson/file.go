// File, and the places of faults that are found after Load.

package rulejson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/policy"
)

// A File is a file of rules together with the parts that its rules are made of.
type File struct {
	// Rule is the rule for all hosts.
	Rule Part
	// Hosts are the rules of hosts and paths by their patterns.
	Hosts map[string]Part

	data []byte
	root *node
}

// A Part is a rule of a file.
type Part struct {
	// Rule is the rule as rulefile.Load returns it.
	Rule policy.Rule
	// Keys has only the settings of the rule's keys, without the profile.
	Keys policy.Rule
	// Profile is the name of the profile, and Base is its rule. Without a profile
	// they are zero.
	Profile string
	Base    policy.Rule

	node *node
}

// maxChanges bounds the changes that Changes lists.
const maxChanges = 20

// Changes lists the changes since an older file, which may be nil, as in `rule.max_attempts: 4 → 6`. If there are more
// than it lists, the last item says how many.
func (f *File) Changes(old *File) (list []string) {
	before, now := map[string]string{}, map[string]string{}
	if old != nil {
		old.root.leaves(before)
	}
	f.root.leaves(now)
	for path := range before {
		if _, ok := now[path]; !ok {
			now[path] = ""
		}
	}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		switch was, is := before[path], now[path]; {
		case was == is:
		case was == "":
			list = append(list, path+": "+is)
		case is == "":
			list = append(list, path+": removed")
		default:
			list = append(list, path+": "+was+" → "+is)
		}
	}
	if more := len(list) - maxChanges; more > 0 {
		list = append(list[:maxChanges], fmt.Sprintf("and %d more", more))
	}
	return list
}

// leaves adds the values below n by their paths.
func (n *node) leaves(to map[string]string) {
	switch text, isText := n.value.(string); {
	case len(n.kids) > 0:
		for _, kid := range n.kids {
			kid.leaves(to)
		}
	case isText:
		to[n.path()] = quote(text)
	case n.isObject():
		to[n.path()] = "{}"
	case n.isList():
		to[n.path()] = "[]"
	default:
		text, _ := json.Marshal(n.value)
		to[n.path()] = string(text)
	}
}

// Locate returns the places of the faults that transport.New and
// transport.Transport.Update find in the rules of the file. These are wrong
// patterns of hosts, and rules that are wrong together. Any other error is returned
// as it is.
func (f *File) Locate(err error) error {
	faults := rules.FaultsOf(err, "")
	if len(faults) == 0 {
		return err
	}
	l := &loader{document: document{data: f.data}}
	for _, fault := range faults {
		l.locate(f.root, fault)
	}
	return l.err()
}

// locate notes a fault of a transport.Config. Its field begins with Rule or with
// Hosts["pattern"].
func (l *loader) locate(root *node, fault *policy.FieldError) {
	here, n := *fault, root
	if list, ok := strings.CutPrefix(here.Field, "Hosts["); ok {
		quoted, _ := strconv.QuotedPrefix(list)
		pattern, _ := strconv.Unquote(quoted)
		n, here.Field = root.member("hosts").member(pattern), strings.TrimPrefix(list[len(quoted):], "]")
	} else if field, ok := strings.CutPrefix(here.Field, "Rule."); ok {
		n, here.Field = root.member("rule"), "."+field
	}
	if field, ok := strings.CutPrefix(here.Field, "."); ok && n != nil {
		here.Field = field
		l.invalid(n, &here)
		return
	}
	if n == nil {
		n = root
	}
	l.note(n.keyPos, n, fault, "%s", inJSON(fault.Err.Error()))
}
