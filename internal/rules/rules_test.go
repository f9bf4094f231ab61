package rules_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	mathbits "math/bits"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/host"
	"github.com/aplomb-go/aplomb/internal/host/budget"
	"github.com/aplomb-go/aplomb/internal/rules"
	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

func newRules(rule policy.Rule, hosts map[string]policy.Rule) (*rules.Ruleset, error) {
	set, faults := rules.NewRuleset(rule, hosts, new(rules.Owner))
	if len(faults) > 0 {
		return nil, rules.Join(faults)
	}
	return set, nil
}

// rulesFor makes a ruleset with a rule for each key.
func rulesFor(keys []string) (*rules.Ruleset, error) {
	hosts := map[string]policy.Rule{}
	for _, key := range keys {
		hosts[key] = policy.Rule{}
	}
	return newRules(policy.Rule{}, hosts)
}

// ruleOf returns the rule of a request, and the keys of its path and of its host.
func ruleOf(set *rules.Ruleset, method string, u *url.URL) (rule policy.Rule, keys []string) {
	r, ofHost := set.ForHost(host.KeyOf(u))
	if r.Paths != nil {
		if p := r.Paths.Find(cmp.Or(method, http.MethodGet), u); p != nil {
			r, keys = p.Rule, append(keys, p.Key)
		}
	}
	return r.Policy, append(keys, ofHost...)
}

func urlOf(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// A pathRow is a request, and the key of its rule. Without a host the target is at h.test.
type pathRow struct{ method, target, want string }

func (r pathRow) url() string {
	if strings.HasPrefix(r.target, "http:") {
		return r.target
	}
	return "http://h.test" + r.target
}

// pathTable compares Config.Hosts with http.ServeMux. Both are defined for each row.
var pathTable = []struct {
	keys []string
	rows []pathRow
}{
	{[]string{"h.test/v1/reports/", "h.test/v1/reports/daily", "h.test/v1/", "POST h.test/v1/charges", "h.test/exact"}, []pathRow{
		{"GET", "/v1/reports/", "h.test/v1/reports/"}, {"GET", "/v1/reports/7/rows", "h.test/v1/reports/"},
		{"GET", "/v1/reports/daily", "h.test/v1/reports/daily"},
		{"GET", "/v1/reports/daily/x", "h.test/v1/reports/"}, {"GET", "/v1/reports/daily/", "h.test/v1/reports/"},
		{"GET", "/v1/reports", ""}, // redirect
		{"GET", "/v1", ""},         // redirect
		{"GET", "/v1x", ""}, {"GET", "/v1/", "h.test/v1/"}, {"GET", "/v1/reportsx", "h.test/v1/"},
		{"POST", "/v1/charges", "POST h.test/v1/charges"}, {"PUT", "/v1/charges", "h.test/v1/"},
		{"post", "/v1/charges", "h.test/v1/"}, {"POST", "/v1/charges/", "h.test/v1/"},
		{"POST", "/v1/charges?x=/v1/reports/", "POST h.test/v1/charges"}, {"GET", "/exact", "h.test/exact"},
		{"GET", "/exact/", ""}, {"GET", "/Exact", ""}, {"GET", "/", ""}, {"GET", "", ""},
		{"GET", "/v1/../exact", ""}, {"GET", "/v1/./x", ""}, {"GET", "/v1//x", ""}, {"GET", "//v1/x", ""},
		{"GET", "/v1/..", ""}, {"GET", "/v1/.", ""}, {"GET", "/v1/.x", "h.test/v1/"},
		{"GET", "/v1/...", "h.test/v1/"}, {"GET", "/v1/..x/", "h.test/v1/"}, {"GET", "/v1/x//", ""},
		{"GET", "/v1/%2e%2e/exact", "h.test/v1/"}, {"GET", "/v1%2Fx", ""},
		{"GET", "/%76%31/reports/x", "h.test/v1/reports/"}, {"GET", "/v1/reports%2Fdaily", "h.test/v1/"},
		{"GET", "http://h.test:8080/v1/x", "h.test/v1/"},
	}},
	{[]string{"h.test/", "h.test/a%20b/", "h.test/%2F/x", "h.test/ü", "h.test/~u/$batch(1)", "h.test/%7Bid%7D", "h.test/a+b/", "h.test/a%2Fb", "h.test/c%25d", "GET h.test/verb", "HEAD h.test/verb", "DELETE h.test/verb"}, []pathRow{
		{"GET", "", "h.test/"}, {"GET", "/", "h.test/"}, {"GET", "/?q", "h.test/"},
		{"GET", "/a%20b/c", "h.test/a%20b/"}, {"GET", "/a+b/c", "h.test/a+b/"}, {"GET", "/a%2Bb/c", "h.test/a+b/"},
		{"GET", "/a%20b", ""}, // redirect
		{"GET", "/%2F/x", "h.test/%2F/x"}, {"GET", "/%2f/x", "h.test/%2F/x"}, {"GET", "/%C3%BC", "h.test/ü"},
		{"GET", "/%c3%bc", "h.test/ü"}, {"GET", "/ü", "h.test/ü"}, {"GET", "/~u/$batch(1)", "h.test/~u/$batch(1)"},
		{"GET", "/%7Eu/%24batch%281%29", "h.test/~u/$batch(1)"}, {"GET", "/%7Bid%7D", "h.test/%7Bid%7D"},
		{"GET", "/{id}", "h.test/%7Bid%7D"}, {"GET", "/17", "h.test/"}, {"GET", "/a%2fb", "h.test/a%2Fb"},
		{"GET", "/ab", "h.test/"}, {"GET", "/cd", "h.test/"}, {"GET", "/AZ%5A", "h.test/"},
		{"GET", "/verb", "GET h.test/verb"}, {"HEAD", "/verb", "HEAD h.test/verb"},
		{"DELETE", "/verb", "DELETE h.test/verb"}, {"PUT", "/verb", "h.test/"}, {"OPTIONS", "/x", "h.test/"},
		{"CONNECT", "/a/../b", "h.test/"}, {"CONNECT", "/rpc", "h.test/"},
		{"CONNECT", "/a%20b", "h.test/"}, // no redirect
	}},
	{[]string{"GET h.test/one/", "h.test/two", "h.test/two/", "CONNECT h.test/rpc", "[::1]/v1/", "other.test/v1/"}, []pathRow{
		{"HEAD", "/one/x", "GET h.test/one/"}, {"POST", "/one/x", ""}, {"POST", "/one", ""},
		{"GET", "/one", ""}, // redirect
		{"GET", "/two", "h.test/two"}, {"GET", "/two/", "h.test/two/"}, {"GET", "/two/three", "h.test/two/"},
		{"CONNECT", "/rpc", "CONNECT h.test/rpc"}, {"CONNECT", "", ""}, {"CONNECT", "/two/../rpc", "h.test/two/"},
		{"GET", "http://[::1]/v1/x", "[::1]/v1/"}, {"GET", "http://[::1]/v2/x", ""},
		{"GET", "http://other.test/v1/x", "other.test/v1/"}, {"GET", "http://third.test/v1/x", ""},
	}},
}

// The table has 73 rows, so that 60 remain if somebody thins it out.
func TestPathsAreThoseOfServeMux(t *testing.T) {
	rows := 0
	for _, part := range pathTable {
		set, err := rulesFor(part.keys)
		require.NoError(t, err)
		mux, ok := muxOf(part.keys)
		require.True(t, ok)
		for _, row := range part.rows {
			rows++
			u := urlOf(t, row.url())
			_, got := ruleOf(set, row.method, u)
			assert.Equal(t, row.want, append(got, "")[0], "%v", row)
			byMux, ok := muxChoice(t, mux, row.method, u)
			if assert.True(t, ok, "%v", row) {
				assert.Equal(t, row.want, byMux, "http.ServeMux: %v", row)
			}
		}
	}
	assert.GreaterOrEqual(t, rows, 60)
}

// muxOf registers the keys with a ServeMux. ok is false if it refuses one of them.
func muxOf(keys []string) (mux *http.ServeMux, ok bool) {
	defer func() { ok = recover() == nil }()
	mux = http.NewServeMux()
	for _, key := range keys {
		mux.HandleFunc(key, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Key", key) })
	}
	return mux, true
}

// muxChoice returns the pattern that a server would choose for a request that a client
// sends. It is empty if there is none or if the server would redirect.
func muxChoice(t testing.TB, mux *http.ServeMux, method string, u *url.URL) (key string, ok bool) {
	t.Helper()
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}}
	var wire bytes.Buffer
	if req.Write(&wire) != nil {
		return "", false
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		return "", false
	}
	h, _ := mux.Handler(got)
	w := headers{}
	h.ServeHTTP(w, got)
	return http.Header(w).Get("Key"), true
}

// headers is a ResponseWriter of which only the header counts.
type headers http.Header

func (h headers) Header() http.Header         { return http.Header(h) }
func (h headers) Write(p []byte) (int, error) { return len(p), nil }
func (h headers) WriteHeader(int)             {}

// Things that http.ServeMux does not have, or sees in another way.
func TestPathsBeyondServeMux(t *testing.T) {
	set, err := rulesFor([]string{
		"API.Example.com./v1/", "api.example.com:8443/v1/", "*.example.com/v1/", "*.example.com", "[::1]:8080/", "h.test/v1/", "h.test/v2/",
	})
	require.NoError(t, err)
	for _, row := range []struct {
		method string
		u      url.URL
		want   string
	}{
		{"", url.URL{Scheme: "https", Host: "api.EXAMPLE.com.:443", Path: "/v1/x"}, "API.Example.com./v1/"},
		{"", url.URL{Scheme: "https", Host: "api.example.com:8443", Path: "/v1/x"}, "api.example.com:8443/v1/"},
		{"", url.URL{Scheme: "https", Host: "api.example.com:8443", Path: "/v2"}, "*.example.com"},
		{"", url.URL{Scheme: "https", Host: "b.example.com", Path: "/v1/x"}, "*.example.com/v1/"},
		{"", url.URL{Scheme: "https", Host: "b.example.com", Path: "/V1/x"}, "*.example.com"},
		{"", url.URL{Scheme: "https", Host: "example.com", Path: "/v1/x"}, ""},
		{"", url.URL{Scheme: "http", Host: "[::1]:8080"}, "[::1]:8080/"},
		{"", url.URL{Scheme: "http", Host: "[::1]"}, ""},
		{"OPTIONS", url.URL{Scheme: "http", Host: "h.test", Path: "*"}, ""},
		{"OPTIONS", url.URL{Scheme: "http", Host: "h.test", Opaque: "*"}, ""},
		{"GET", url.URL{Scheme: "http", Host: "h.test", Opaque: "//h.test/v1/x", Path: "/v1/x"}, ""},
		{"GET", url.URL{Scheme: "http", Host: "h.test", Path: "v1/x"}, ""},
		{"CONNECT", url.URL{Scheme: "http", Host: "[::1]:8080"}, ""},
		{"GET", url.URL{Scheme: "http", Host: "h.test", Path: "/v1/x", RawPath: "/v2/x"}, "h.test/v1/"}, // no encoding of the path
		{"GET", url.URL{Scheme: "http", Host: "h.test", Path: "/v1/a/b", RawPath: "/v1%2Fa/b"}, ""},
		{"GET", url.URL{Scheme: "http", Host: "h.test", Path: "/v1/a", RawPath: "/v1/%"}, "h.test/v1/"},
		{"GET", url.URL{Scheme: "http", Host: "h.test", Path: "/" + strings.Repeat("ä", 200), RawPath: "/" + strings.Repeat("%C3%a4", 200)}, ""},
	} {
		_, got := ruleOf(set, row.method, &row.u)
		assert.Equal(t, row.want, append(got, "")[0], "%s %+v", row.method, row.u)
	}
}

// Keys that http.ServeMux refuses, and keys that can only be mistakes.
func TestBadPatterns(t *testing.T) {
	for why, keys := range map[string][]string{
		"has an empty name":               {"/v1/"},
		"begins or ends with a space":     {" h.test/v1/", "h.test "},
		"has a space in its path":         {"h.test/a b"},
		`no path; write "POST h.test/"`:   {"POST h.test"},
		"is no token":                     {"PO(ST h.test/"},
		"so write GET":                    {"get h.test/v1/"},
		"has braces":                      {"h.test/v1/{id}"},
		`has a "*" in its path`:           {"h.test/v1/*"},
		"has a query":                     {"h.test/v1?x=1"},
		"control character":               {"h.test/v1\n"},
		"matches no request":              {"h.test//v1", "h.test/v1/../v2", "h.test/v1/."},
		"write %25":                       {"h.test/100%"},
		"range of addresses":              {"10.0.0.0/8"},
		"would match every host":          {"*/v1/", "*"},
		"names several hosts":             {"GET a.test,b.test/v1/", "a.example.com,b.example"},
		"is empty":                        {""},
		"has a scheme":                    {"https://api.example.com"},
		"is not a host":                   {"user@api.example.com", "api.example.com?x", "api'example.com", "a%2eexample.com"},
		"no path":                         {"api example.com"},
		"looks like a regular expression": {"~^api", "api[0-9].example.com", "api{1,2}.example.com"},
		"no regular expression":           {"[a-z]"},
		"no IPv6 address":                 {"[1.2.3.4]", "[::1", "::1]", "[::1]]"},
		"is not ASCII":                    {"bücher.example"},
		`has a "*" elsewhere`:             {"api.*.example.com", "*api.example.com"},
		"without brackets":                {"2001:db8::1"},
		"has a port that is not": {
			"example.com:80:80", "api.example.com:",
			"api.example.com:http", "api.example.com:0", "api.example.com:65536",
		},
		`empty name; "*.example.com" means all names below one`: {".example.com"},
		"empty name":                  {"api..example.com", "*.", ":8443"},
		`"*." in front of an address`: {"*.1.2.3.4"},
	} {
		for _, key := range keys {
			_, err := rulesFor([]string{key})
			assert.ErrorContains(t, err, why, "%q", key)
			assert.ErrorContains(t, err, fmt.Sprintf("Hosts[%q]", rules.Shown(key)))
		}
	}
}

// A key may be a URL by mistake, with a password or a token.
func TestFaultsOfKeysHideSecrets(t *testing.T) {
	for key, shown := range map[string]string{
		"https://me:s3cret@h.test": "https://xxxxx@h.test", "me:s3/cret@h.test /v1": "xxxxx@h.test /v1", "me:s3?cret@h.test": "xxxxx@h.test",
		"h.test/v1?token=s3cret": "h.test/v1?xxxxx", "https://h.test/v1#s3cret": "https://h.test/v1#xxxxx", "h.test?token=s3cret a": "h.test?xxxxx",
		"https://h.test/?m=a@b&key=s3cret": "https://xxxxx@b&xxxxx", "h.test?key=s3cret&to=https://h": "h.test?xxxxx", "?s3cret": "?xxxxx",
	} {
		_, err := newRules(policy.Rule{}, map[string]policy.Rule{key: {MaxAttempts: 5000}})
		assert.ErrorContains(t, err, fmt.Sprintf("Hosts[%q].MaxAttempts: ", shown))
		assert.ErrorContains(t, err, fmt.Sprintf("Hosts[%q]: %[1]q ", shown))
		assert.NotContains(t, err.Error(), "cret")
	}
	assert.Equal(t, "h.test:8080/@me", rules.Shown("h.test:8080/@me"), "a good key has no secrets")
}

// Pairs of keys that http.ServeMux refuses are an error of New.
func TestConflictingPaths(t *testing.T) {
	for _, row := range []struct{ a, b, why string }{
		{"POST h.test/v1/", "h.test/v1/x", `conflicts with "POST h.test/v1/": both match POST /v1/x`},
		{"HEAD h.test/", "GET h.test/v1/x/", `conflicts with "HEAD h.test/": both match HEAD /v1/x/`},
		{"h.test/v1/x", "h.test/v1/%78", "means the same requests as"},
		{"GET h.test/v1/x", "GET h.test/v1/%78", "means the same requests as"},
		{"h.test/v1/", "H.test./v1/", "means the same requests as"},
		{"GET h.test/v1/", "GET  h.test/v1/", "means the same requests as"},
		{"GET h.test/v1/", "h.test/v1/", ""}, {"GET h.test/v1/", "HEAD h.test/v1/x", ""},
		{"GET h.test/v1/", "HEAD h.test/v1/", ""}, {"POST h.test/v1/", "GET h.test/v1/x", ""},
		{"POST h.test/v1/", "h.test/v1", ""}, {"POST h.test/v1/x", "h.test/v1/", ""},
		{"POST h.test/v1/", "h.test/v2/", ""}, {"POST h.test/v1/", "h.test:8080/v1/x", ""},
	} {
		_, err := rulesFor([]string{row.a, row.b})
		assert.Contains(t, fmt.Sprint(err), cmp.Or(row.why, "<nil>"), "%v", row)
		if !strings.Contains(row.a+row.b, ":") {
			_, ok := muxOf([]string{row.a, strings.Replace(row.b, "H.test.", "h.test", 1)})
			assert.Equal(t, row.why == "", ok, "http.ServeMux: %v", row)
		}
	}
}

// TestPatternsThatMeanTheSame: case, a trailing dot and the spelling of an IPv6 address
// make no difference; a port does.
func TestPatternsThatMeanTheSame(t *testing.T) {
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"az09.example.com", "AZ09.example.COM", true}, {"api.example.com", "api.example.com.", true},
		{"*.example.com", "*.Example.com.", true}, {"api.example.com:8443", "api.example.com.:8443", true},
		{"[::1]", "[::1]:8080", false}, {"[2001:DB8::1]", "[2001:db8::1]", true},
		{"[::1]", "[0:0:0:0:0:0:0:1]", true}, {"[fe80::1%eth0]:80", "[FE80:0::1%eth0]:80", true},
		{"[fe80::1%eth0]", "[fe80::1]", false}, {"api.example.com", "api.example.com:443", false},
		{"api.example.com:80", "api.example.com:443", false}, {"*.example.com", "example.com", false},
	} {
		hosts := map[string]policy.Rule{row.a: {}, row.b: {}}
		_, err := newRules(policy.Rule{}, hosts)
		assert.Equal(t, row.same, err != nil, "%s and %s", row.a, row.b)
		if row.same && err != nil {
			assert.ErrorContains(t, err, "means the same requests as")
		}
	}
}

// compareWithMux compares Config.Hosts with http.ServeMux for a list of keys and a request.
func compareWithMux(t testing.TB, keys []string, method, target string) {
	set, err := rulesFor(keys)
	mux, ok := muxOf(keys)
	if err != nil || !ok {
		require.False(t, err == nil && len(keys) > 0, "http.ServeMux refuses %q", keys)
		return // we refuse a few keys more
	}
	u, err := url.Parse("http://h.test" + target)
	if err != nil || u.Host != "h.test" || u.User != nil {
		return
	}
	want, ok := muxChoice(t, mux, method, u)
	if !ok {
		return
	}
	_, got := ruleOf(set, method, u)
	require.Equal(t, want, append(got, "")[0], "%q: %s %q", keys, method, target)
}

func FuzzPaths(f *testing.F) {
	for _, part := range pathTable {
		var own []string
		for _, key := range part.keys {
			if method, path, ok := strings.Cut(key, "h.test"); ok {
				own = append(own, method+path)
			}
		}
		for _, row := range part.rows {
			if target, ok := strings.CutPrefix(row.url(), "http://h.test"); ok {
				f.Add(strings.Join(own, "\n"), row.method, target)
			}
		}
	}
	f.Fuzz(func(t *testing.T, list, method, target string) {
		var keys []string
		for line := range strings.SplitSeq(list, "\n") {
			i := strings.IndexByte(line, '/')
			if i < 0 || len(keys) == 20 {
				return
			}
			keys = append(keys, line[:i]+"h.test"+line[i:])
		}
		slices.Sort(keys)
		compareWithMux(t, slices.Compact(keys), method, target)
	})
}

// Random paths of few segments meet each other often.
func TestRandomPathsAreThoseOfServeMux(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	segments := []string{"a", "b", "%61", "a%2Fb", "a%252Fb", "..", ".", "", "ü", "a.b"}
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	path := func() (p string) {
		for range r.IntN(4) {
			p += "/" + pick(segments...)
		}
		return p + pick("", "/")
	}
	for range soak.Size(5_000, 200_000) {
		var keys []string
		for range 1 + r.IntN(5) {
			key := pick("", "", "GET ", "HEAD ", "POST ", "CONNECT ") + "h.test" + path()
			if _, err := rulesFor(append(keys, key)); err == nil && strings.Contains(key, "/") && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		compareWithMux(t, keys, pick("GET", "HEAD", "POST", "CONNECT", "PUT"), path())
	}
}

// A RawPath counts if package url takes it for the path.
func TestRawPathsAreThoseOfPackageURL(t *testing.T) {
	set, err := rulesFor([]string{"h.test/a%2Fb/"})
	require.NoError(t, err)
	check := func(path, raw string) {
		u := &url.URL{Scheme: "http", Host: "h.test", Path: "/a/b/x" + path, RawPath: "/a%2Fb/x" + raw}
		_, keys := ruleOf(set, http.MethodGet, u)
		assert.Equal(t, u.EscapedPath() == u.RawPath, len(keys) == 1, "%q for %q", raw, path)
	}
	for c := range 256 {
		char := string([]byte{byte(c)})
		check(char, char)
		for _, format := range []string{"%%%02x", "%%%02X", "%%%01x", "%%%02x%%", "%%0%02x", "%%+%01x"} {
			check(char, fmt.Sprintf(format, c))
		}
	}
	check("x", "y")
	check("x", "")
	check("", "x")
}

// Each rule inherits from all wider ones, and their functions are asked in the same order.
func TestEverythingInherits(t *testing.T) {
	layers := []string{
		"request", "b.a.test:80/p", "b.a.test:80", "b.a.test", "*.a.test:80", "*.a.test", "*.test:80", "*.test", "rule",
	}
	for bits := range 1 << len(layers) {
		var asked, want []string
		made := func(i int) (rule policy.Rule) {
			if bits>>i&1 == 1 {
				rule.MaxAttempts = 10 + i
				rule.Classify = func(classify.Outcome) classify.Class { asked = append(asked, layers[i]); return classify.Unknown }
			}
			return rule
		}
		hosts := map[string]policy.Rule{}
		for i, name := range layers {
			if bits>>i&1 == 1 {
				if want = append(want, name); i > 0 && i < len(layers)-1 {
					hosts[name] = made(i)
				}
			}
		}
		set, err := newRules(made(len(layers)-1), hosts)
		require.NoError(t, err)
		u := &url.URL{Scheme: "http", Host: "b.a.test", Path: "/p"}
		r, keys := set.ForHost(host.KeyOf(u))
		if r.Paths != nil {
			p := r.Paths.Find(http.MethodGet, u)
			r, keys = p.Rule, append([]string{p.Key}, keys...)
		}
		r, err = (&rules.RequestRule{Policy: made(0)}).CompleteOver(r)
		require.NoError(t, err)
		r.Policy.Classify(classify.Outcome{})
		assert.Equal(t, want, asked)
		assert.Equal(t, strings.Join(slices.DeleteFunc(want, func(l string) bool { return l == "request" || l == "rule" }), " "), strings.Join(keys, " "))
		most := 6
		if bits > 0 {
			most = 10 + mathbits.TrailingZeros(uint(bits))
		}
		assert.Equal(t, most, r.Policy.MaxAttempts)
	}
}

// Two rules that are right each can be wrong together, which is said once, of the more specific one.
func TestWrongTogether(t *testing.T) {
	some := policy.RetryBudget{Ratio: 0.5}
	off, floorless := policy.RetryBudget{Ratio: policy.Off}, policy.RetryBudget{MinPerSecond: policy.Off}
	_, err := newRules(policy.Rule{RetryBudget: off}, map[string]policy.Rule{
		"*.test":       {RetryBudget: floorless},
		"a.test":       {MaxAttempts: 2},
		"a.test/p":     {MaxAttempts: 3},
		"*.other":      {RetryBudget: some},
		"*.other:81":   {RetryBudget: off},
		"b.other":      {RetryBudget: floorless},
		"c.other":      {RetryBudget: policy.RetryBudget{Ratio: 0.5, MinPerSecond: policy.Off}},
		"c.other/path": {MaxAttempts: 3},
	})
	_, once := newRules(policy.Rule{}, map[string]policy.Rule{"a.test": {MaxAttempts: 5000}})
	assert.EqualError(t, once, `Hosts["a.test"].MaxAttempts: 5000 is more than 1000 attempts`)
	_, once = newRules(policy.Rule{}, map[string]policy.Rule{"https://h.test": {Concurrency: policy.Concurrency{Max: 5}, MaxAttempts: 5000}})
	assert.EqualError(t, once, "Hosts[\"https://h.test\"].MaxAttempts: 5000 is more than 1000 attempts\n"+
		"Hosts[\"https://h.test\"]: \"https://h.test\" has a scheme; leave it out", "it is no path, so its rule may have limits")
	_, once = newRules(policy.Rule{MaxAttempts: 5000}, map[string]policy.Rule{"a.test": {MaxElapsedTime: time.Hour}})
	assert.EqualError(t, once, "Rule.MaxAttempts: 5000 is more than 1000 attempts")
	_, once = newRules(policy.Rule{}, map[string]policy.Rule{"a.test/p": {QuotaPacing: policy.On}})
	assert.ErrorContains(t, once, `Hosts["a.test/p"].QuotaPacing: this is a limit of the host`)
	const text = ": would earn no retries at all; Enabled: policy.Off turns the budget off, MaxAttempts: 1 the retries"
	assert.EqualError(t, err, `Hosts["*.test"].RetryBudget`+text+"\n"+`Hosts["b.other"].RetryBudget`+text)

	on, three := policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.On}}, policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.Off, Max: 3}}
	_, err = newRules(policy.Rule{}, map[string]policy.Rule{"*.test": three, "a.test": on, "b": on})
	assert.EqualError(t, err, `Hosts["b"].Concurrency.Enabled: on needs a Max, the most requests that the host takes at a time`)
	_, err = newRules(on, map[string]policy.Rule{"b": {Concurrency: policy.Concurrency{Enabled: 2}}})
	assert.EqualError(t, err, "Rule.Concurrency.Enabled: on needs a Max, the most requests that the host takes at a time\n"+
		`Hosts["b"].Concurrency.Enabled: Switch(2) is none of off and on`)
}

// The cost of a configuration grows with its entries, not with their square. With the square
// it would take minutes in full length.
func TestManyPatterns(t *testing.T) {
	hosts := map[string]policy.Rule{}
	for i := range soak.Size(1<<10, 1<<15) {
		hosts[fmt.Sprintf("M%d h.test/a/", i)] = policy.Rule{MaxAttempts: 2}
		hosts[fmt.Sprintf("GET h.test/a/%d", i)] = policy.Rule{MaxAttempts: 3}
		hosts[fmt.Sprintf("a%d.test/x", i)] = policy.Rule{MaxAttempts: 4}
		hosts[fmt.Sprintf("b%d.test", i)] = policy.Rule{MaxAttempts: 5}
	}
	set, err := newRules(policy.Rule{}, hosts)
	require.NoError(t, err)
	for pattern, want := range map[string]int{"M77 http://h.test/a/b": 2, "GET http://h.test/a/99": 3, "GET http://a99.test/x": 4, "GET http://b99.test/": 5} {
		method, raw, _ := strings.Cut(pattern, " ")
		u := urlOf(t, raw)
		rule, _ := ruleOf(set, method, u)
		assert.Equal(t, want, rule.MaxAttempts, pattern)
	}
	for i := range 1000 {
		hosts[fmt.Sprintf("h.test/a/%d", i)] = policy.Rule{}
	}
	_, err = newRules(policy.Rule{}, hosts)
	assert.Len(t, rules.FaultsOf(err, ""), 1000)
	assert.ErrorContains(t, err, `conflicts with "M`)
}

// The host is chosen first. The most specific pattern comes first, with a port before one without, and a name is below a
// pattern with a wildcard only if a label stands in front. A pattern with a path takes nothing from the paths of a less
// specific host, and leaves the rule of its host as it was.
func TestMostSpecificPattern(t *testing.T) {
	set, err := rulesFor([]string{"*.test", "*.test:80", "*.a.test", "*.a.test:80", "b.a.test", "b.a.test:80", "[::1]", "[::1]:80",
		"*.a.test/p", "c.test/p", "b.a.test:80/p", "*.d.a.test/p", "e.test:81/p", "POST f.test/p"})
	require.NoError(t, err)
	for raw, want := range map[string]string{
		"http://test/":            "",
		"http://x.test/":          "*.test:80 *.test",
		"http://x.test:81/":       "*.test",
		"http://a.test/":          "*.test:80 *.test",
		"http://xa.test:81/":      "*.test",
		"http://x.a.test/":        "*.a.test:80 *.a.test *.test:80 *.test",
		"http://x.y.a.test:81/":   "*.a.test *.test",
		"http://b.a.test/":        "b.a.test:80 b.a.test *.a.test:80 *.a.test *.test:80 *.test",
		"http://b.a.test:81/":     "b.a.test *.a.test *.test",
		"http://x.b.a.test:81/":   "*.a.test *.test",
		"http://[::1]/":           "[::1]:80 [::1]",
		"http://[0:0::1]/":        "[::1]:80 [::1]",
		"http://[::1]:81/":        "[::1]",
		"http://x.a.test:81/p":    "*.a.test/p *.a.test *.test",
		"http://x.a.test/p":       "*.a.test:80 *.a.test *.test:80 *.test",
		"http://c.test/p":         "c.test/p *.test:80 *.test",
		"http://c.test:81/p":      "c.test/p *.test",
		"http://b.a.test/p":       "b.a.test:80/p b.a.test:80 b.a.test *.a.test:80 *.a.test *.test:80 *.test",
		"http://b.a.test:81/p":    "b.a.test *.a.test *.test",
		"http://B.A.TEST.:80/p":   "b.a.test:80/p b.a.test:80 b.a.test *.a.test:80 *.a.test *.test:80 *.test",
		"http://elsewhere.com/p":  "",
		"http://x.d.a.test/p":     "*.d.a.test/p *.a.test:80 *.a.test *.test:80 *.test",
		"http://x.d.a.test:81/p":  "*.d.a.test/p *.a.test *.test",
		"http://e.test:81/p":      "e.test:81/p *.test",
		"http://e.test/p":         "*.test:80 *.test",
		"http://f.test/p":         "*.test:80 *.test",
		"https://x.a.test:8443/p": "*.a.test/p *.a.test *.test",
	} {
		u := urlOf(t, raw)
		_, patterns := ruleOf(set, http.MethodGet, u)
		assert.Equal(t, want, strings.Join(patterns, " "), raw)
	}
}

// What a complete rule turns on.
func TestResolved(t *testing.T) {
	own := func(classify.Outcome) classify.Class { return classify.Final }
	for name, row := range map[string]struct {
		rule policy.Rule
		on   string // besides what the zero rule turns on; a minus is in front of what it turns off
	}{
		"zero":       {policy.Rule{}, ""},
		"rate":       {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1}}, "RateLimit Limited Gated"},
		"cost":       {policy.Rule{RateLimit: policy.RateLimit{PerSecond: 1}, Cost: func(*http.Request) int { return 1 }}, "RateLimit Limited Gated Loops"},
		"cost alone": {policy.Rule{Cost: func(*http.Request) int { return 1 }}, ""},
		"pacing":     {policy.Rule{QuotaPacing: policy.On}, "QuotaPacing Limited Gated"},
		"limiter":    {policy.Rule{Concurrency: policy.Concurrency{Max: 1}}, "Concurrency Limited Gated"},
		"no limiter": {policy.Rule{Concurrency: policy.Concurrency{Enabled: policy.Off, Max: 1}}, ""},
		"no Max":     {policy.Rule{Concurrency: policy.Concurrency{FailFast: policy.On}}, ""},
		"breaker":    {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On}}, "Breaker"},
		"fails fast": {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.On, FailFast: policy.On}}, "Breaker FailsFast"},
		"no breaker": {policy.Rule{CircuitBreaker: policy.CircuitBreaker{Enabled: policy.Off, FailFast: policy.On}}, ""},
		"hedge":      {policy.Rule{Hedge: policy.Hedge{Delay: time.Second}}, "Hedge Loops"},
		"shared":     {policy.Rule{ShareRetryAfter: policy.On}, "Gated"},
		"idempotent": {policy.Rule{Idempotent: func(*http.Request) bool { return true }}, ""},
		"default":    {policy.Rule{Idempotent: classify.Idempotent, Classify: classify.Default, RetryAfter: classify.RetryAfter}, ""},
		"classify":   {policy.Rule{Classify: own}, "Peeks"},
		"hint":       {policy.Rule{RetryAfter: func(classify.Outcome) (time.Duration, bool) { return 0, true }}, "Peeks"},
		"timeout":    {policy.Rule{AttemptTimeout: time.Second}, "Timed"},
		"stall":      {policy.Rule{StallTimeout: time.Second}, "Timed"},
		"once":       {policy.Rule{MaxAttempts: 1}, "-Resumes"},
		"resume":     {policy.Rule{Resume: policy.Off}, "-Resumes"},
	} {
		var on []string
		r := reflect.ValueOf(resolve(t, row.rule)).Elem()
		for i := range r.NumField() {
			if f := r.Field(i); f.Kind() == reflect.Bool {
				if name := r.Type().Field(i).Name; name != "Resumes" {
					on = append(on, map[bool][]string{true: {name}}[f.Bool()]...)
				} else if !f.Bool() {
					on = append(on, "-"+name)
				}
			}
		}
		assert.Equal(t, row.on, strings.Join(on, " "), name)
	}
	r := resolve(t, policy.Rule{AttemptTimeout: 300 * time.Millisecond})
	assert.Equal(t, []time.Duration{300 * time.Millisecond, 300 * time.Millisecond}, []time.Duration{r.Timeouts.After, r.Later.After})
	r = resolve(t, policy.Rule{AttemptTimeout: policy.Off, RetryBudget: policy.RetryBudget{Enabled: policy.Off}})
	assert.Equal(t, 2*time.Minute, r.Later.After)
	assert.Equal(t, budget.Config{Ratio: -1, PerSecond: -1}.Complete(), r.Settings.Budget)
	assert.Equal(t, budget.Config{Ratio: 0.5, PerSecond: 7}, resolve(t, policy.Rule{RetryBudget: policy.RetryBudget{Ratio: 0.5, MinPerSecond: 7}}).Settings.Budget)

	for most, want := range map[time.Duration]time.Duration{policy.Off: time.Hour, 7 * time.Second: 7 * time.Second} {
		s := resolve(t, policy.Rule{MaxRetryAfter: most}).Settings
		assert.Equal(t, []time.Duration{want, want}, []time.Duration{s.Throttle.Max, s.Pacing.MaxWait}, most)
	}

	assert.Equal(t, 2*time.Minute, resolve(t, policy.Rule{Concurrency: policy.Concurrency{Max: 1}}).Later.After)
}

func resolve(t *testing.T, rule policy.Rule) *rules.Resolved {
	t.Helper()
	set, err := newRules(rule, nil)
	require.NoError(t, err)
	r, key := set.ForHost(host.Key{Scheme: "http", Host: "h.test"})
	assert.Empty(t, key)
	return r
}

func TestKeys(t *testing.T) {
	for _, row := range []struct {
		field, wait string
		status      int
		keyed, used classify.Class // with a key, and with one that an earlier attempt has used
	}{
		{"Idempotency-Key", "1", 409, classify.Ambiguous, classify.Ambiguous},
		{"X-Idempotency-Key", "1", 409, classify.Ambiguous, classify.Ambiguous},
		{"Idempotency-Key", "", 409, classify.Final, classify.Ambiguous},
		{"Other", "1", 409, classify.Final, classify.Ambiguous},
		{"Idempotency-Key", "1", 422, classify.Final, classify.Final},
		{"Idempotency-Key", "1", 404, classify.Ambiguous, classify.Ambiguous}, // the rule knows it
	} {
		known := classify.OnStatus(classify.Ambiguous, 404)
		r := resolve(t, policy.Rule{Classify: known, IdempotencyKey: func(*http.Request) string { return "k" }})
		o := classify.Outcome{Request: &http.Request{Method: "POST", Header: http.Header{row.field: {"k"}}}, Response: &http.Response{StatusCode: row.status, Header: http.Header{}}}
		if row.wait != "" {
			o.Response.Header.Set("Retry-After", row.wait)
		}
		assert.Equal(t, row.keyed, r.Classify(o), row)
		assert.Equal(t, row.used, r.KeyInUse(o), row)
		assert.Equal(t, classify.Ambiguous, r.Classify(classify.Outcome{Request: o.Request, Err: io.ErrUnexpectedEOF}), row)
		assert.Equal(t, row.status == 404, resolve(t, policy.Rule{Classify: known}).Classify(o) == classify.Ambiguous, row)
	}
	req := &http.Request{Header: http.Header{"Accept-Language": {"b"}}}
	assert.Same(t, req, rules.Keyless(req))
	keyed := rules.WithKey(req, "k")
	assert.Equal(t, []http.Header{{"Accept-Language": {"b"}}, {"Accept-Language": {"b"}, "Idempotency-Key": {"k"}}}, []http.Header{req.Header, keyed.Header})
	for _, name := range []string{"idempotency-key", "X-IDEMPOTENCY-KEY", "My-Idempotent-Token", "Idempoten"} {
		keyed.Header[name] = []string{"k"}
	}
	assert.Equal(t, http.Header{"Accept-Language": {"b"}}, rules.Keyless(keyed).Header)
	assert.Len(t, keyed.Header, 6)
	for name, want := range map[string]bool{"idempotency-KEY": true, "x-idempotency-key": true, "Idempotent": false} {
		assert.Equal(t, want, rules.HasKey(http.Header{name: {""}}), name)
	}
}

// A context completes its rule once for each rule of a host, and keeps few.
func TestCompleteOver(t *testing.T) {
	own := &rules.RequestRule{Policy: policy.Rule{MaxAttempts: 3}}
	set, _ := rules.NewRuleset(policy.Rule{MaxElapsedTime: time.Minute}, nil, new(rules.Owner))
	base, _ := set.ForHost(host.Key{})
	r, err := own.CompleteOver(base)
	require.NoError(t, err)
	assert.Equal(t, []any{3, time.Minute}, []any{r.Policy.MaxAttempts, r.Policy.MaxElapsedTime})
	again, _ := own.CompleteOver(base)
	assert.Same(t, r, again)
	updated, _ := rules.NewRuleset(policy.Rule{}, nil, set.Owner)
	base, _ = updated.ForHost(host.Key{})
	other, _ := own.CompleteOver(base)
	assert.Zero(t, other.Policy.MaxElapsedTime)
	assert.Len(t, *own.Made.Load(), 1, "what Update replaced is forgotten")
	for range 2 * rules.MaxCompleted {
		_, _ = own.CompleteOver(resolve(t, policy.Rule{}))
	}
	assert.Len(t, *own.Made.Load(), rules.MaxCompleted)
	for range 2 {
		wrong := &rules.RequestRule{Policy: policy.Rule{MaxAttempts: 5000}}
		_, err = wrong.CompleteOver(base)
		assert.ErrorContains(t, err, "WithRule.MaxAttempts: 5000 is more than")
	}
}

// Each field belongs to the host or may differ between its requests. A new field has to be
// listed, and if it belongs to the host, ValidateRequest has to know it.
func TestFieldsOfTheHostAndOfTheRequest(t *testing.T) {
	ofHost := []string{"MaxRetryAfter", "RateLimit", "RetryBudget", "ShareRetryAfter", "ThrottleKey", "QuotaPacing", "CircuitBreaker", "Concurrency", "Hedge.Percentile"}
	ofRequest := []string{
		"MaxAttempts", "Backoff", "Classify", "RetryAfter", "Idempotent", "IdempotencyKey", "AttemptTimeout", "ConnectTimeout", "FirstEventTimeout",
		"MaxElapsedTime", "StallTimeout", "Cost", "Hedge.Enabled", "Hedge.Delay", "Hedge.UnsafeMethods", "ReplayBuffer", "Resume", "MaxRefetch",
	}
	for _, name := range slices.Concat(ofHost, ofRequest) {
		var rule policy.Rule
		v := reflect.ValueOf(&rule).Elem()
		for part := range strings.SplitSeq(name, ".") {
			v = v.FieldByName(part)
		}
		if v.Kind() == reflect.Struct {
			v = v.Field(0)
		}
		switch {
		case v.CanInt():
			v.SetInt(1)
		case v.CanFloat():
			v.SetFloat(2)
		case v.Kind() == reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), nil))
		default:
			v.Set(reflect.ValueOf(backoff.Constant(1)))
		}
		faults := rules.ValidateRequest(rule, "")
		isLimit := slices.ContainsFunc(faults, func(f *policy.FieldError) bool {
			return f.Field == name && strings.Contains(f.Error(), "is a limit of the host")
		})
		assert.Equal(t, slices.Contains(ofHost, name), isLimit, "%s: %v", name, faults)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.Rule]()) {
		assert.True(t, !f.IsExported() || slices.ContainsFunc(slices.Concat(ofHost, ofRequest), func(name string) bool { return strings.HasPrefix(name, f.Name) }), f.Name)
	}
	assert.Empty(t, rules.ValidateRequest(policy.Rule{}, ""))
	assert.Len(t, rules.ValidateRequest(policy.Rule{MaxAttempts: 5000, RateLimit: policy.RateLimit{PerSecond: 1}}, ""), 2)
}
