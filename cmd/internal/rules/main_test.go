package rules

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/transport"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs the command line.
func call(t *testing.T, base http.RoundTripper, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, world{stdin: strings.NewReader("{}"), stdout: &out, stderr: &err, base: base})
	return code, out.String(), err.String()
}

func TestGolden(t *testing.T) {
	const rules = "testdata/rules.json"
	busy := faults.Status(429).Header("RateLimit", `"default";r=0;t=30`).Header("RateLimit-Policy", `"default";q=100;w=60`).RetryAfter(5 * time.Second)
	for _, tt := range []struct {
		name string
		step faults.Step
		code int
		args []string
	}{
		{"check", faults.Pass(), 0, []string{rules}},
		{"check-json", faults.Pass(), 0, []string{"-json", rules}},
		{"check-stdin", faults.Pass(), 0, []string{"-"}},
		{"faults", faults.Pass(), 1, []string{"testdata/faults.json"}},
		{"faults-json", faults.Pass(), 1, []string{"-json", "testdata/faults.json"}},
		{"faults-together", faults.Pass(), 1, []string{"testdata/together.json"}},
		{"faults-paths", faults.Pass(), 1, []string{"testdata/paths.json"}},
		{"faults-limits", faults.Pass(), 1, []string{"testdata/limits.json"}},
		{"faults-half", faults.Pass(), 1, []string{"testdata/half.json"}},
		{"faults-missing", faults.Pass(), 1, []string{"testdata/missing.json"}},
		{"faults-directory", faults.Pass(), 1, []string{"testdata"}},
		{"explain-default", faults.Pass(), 0, []string{"-", "https://user:secret@other.test:8443/path?key=secret#secret"}},
		{"explain-github", faults.Pass(), 0, []string{rules, "https://api.github.com/repos"}},
		{"explain-wildcard", faults.Pass(), 0, []string{"-deadline", "3s", rules, "https://a.example.com"}},
		{"explain-path", faults.Pass(), 0, []string{"-method", "POST", rules, "https://api.github.com/graphql"}},
		{"explain-json", faults.Pass(), 0, []string{"-json", "-deadline", "600ms", rules, "https://a.example.com"}},
		{"against-success", faults.Status(200), 0, []string{"-against", "http://h.test/"}},
		{"against-busy", busy, 0, []string{"-against", "http://h.test/?key=secret"}},
		{"against-busy-json", busy, 0, []string{"-json", "-against", "http://h.test/"}},
		{"against-post", faults.ConnReset(), 0, []string{"-method", "POST", "-against", "http://a.example.com/", rules}},
		{"against-path", faults.Status(502), 0, []string{"-method", "POST", "-against", "http://api.github.com/graphql", rules}},
		{"against-long", faults.Status(503).RetryAfter(time.Hour), 0, []string{"-against", "http://a.example.com/", rules}},
		{"against-deadline", faults.Status(503).RetryAfter(20 * time.Second), 0, []string{"-deadline", "10s", "-against", "http://h.test/"}},
		{"against-hang", faults.Hang(), 0, []string{"-against", "http://h.test/"}},
		{"help", faults.Pass(), 0, []string{"-h"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := faults.New(nil, faults.Script(tt.step))
				code, stdout, stderr := call(t, base, tt.args...)
				assert.Equal(t, tt.code, code)
				if strings.HasPrefix(tt.name, "against") {
					assert.Len(t, base.Records(), 1, "requests that arrived")
					// The jitter on a server's wait is random.
					stdout = jitter(stdout)
				} else {
					assert.Empty(t, base.Records())
				}
				golden(t, tt.name, stdout+stderr)
				if code == 0 && !strings.HasSuffix(tt.name, "json") {
					for text := range strings.Lines(stdout) {
						assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(text, "\n")), 80, text)
					}
				}
				assert.NotContains(t, stdout+stderr, "secret")
			})
		})
	}
}

// jitter replaces the digits of a wait after its point.
func jitter(text string) string {
	var b strings.Builder
	for part := range strings.Lines(text) {
		i := strings.Index(part, `"wait": `)
		if j := strings.Index(part, "yes, after "); j >= 0 {
			i = j
		}
		if dot := strings.IndexByte(part, '.'); i >= 0 && dot > i {
			part = part[:dot] + " and jitter\n"
		}
		b.WriteString(part)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-unknown"}, {"a", "b", "c"}, {"-", "example.com"}, {"-", "ftp://example.com"}, {"-", "http://%zz"}, {"-deadline", "-1s", "-"},
		{"-deadline", "5", "-"}, {"-header", "none", "-against", "http://h.test/"}, {"-against", "h.test"}, {"-against", "http://h.test/", "-", "http://h.test/"},
		{"-method", "G T", "-against", "http://h.test/"},
	} {
		base := faults.New(nil, nil)
		code, stdout, stderr := call(t, base, args...)
		assert.Equal(t, 2, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, "aplomb rules: ", args)
		assert.Empty(t, base.Records(), args)
	}
}

// The source of each value is a rule that has this value, and the value is that of
// the rule that a Transport applies.
func TestSourcesHaveTheirValues(t *testing.T) {
	file, err := load("testdata/rules.json", world{})
	require.NoError(t, err)
	tr, err := newTransport(file, transport.Config{})
	require.NoError(t, err)
	for target, want := range map[string][]string{
		"https://api.github.com": {"api.github.com"}, "https://api.github.com/graphql": {"POST api.github.com/graphql", "api.github.com"},
		"https://b.example.com": {"*.example.com"}, "http://other.test": nil,
	} {
		u, err := url.Parse(target)
		require.NoError(t, err)
		rule, patterns := tr.RuleFor(&http.Request{Method: http.MethodPost, URL: u})
		assert.Equal(t, want, patterns)
		layers := map[string]policy.Rule{"default": policy.Defaults(), "rule": file.Rule.Keys}
		for _, pattern := range patterns {
			of := "host " + strconv.Quote(pattern)
			if strings.Contains(pattern, "/") {
				of = "path " + strconv.Quote(pattern)
			}
			part := file.Hosts[pattern]
			layers[of] = part.Keys
			layers[`profile "`+part.Profile+`" of `+of] = part.Base
		}
		settings := file.Settings(patterns...)
		i := 0
		eachField(reflect.ValueOf(rule), nil, func(index []int, v reflect.Value) {
			s := settings[i]
			i++
			layer, ok := layers[s.Source]
			require.True(t, ok, s.Source)
			if from := reflect.ValueOf(layer).FieldByIndex(index); v.Kind() != reflect.Func {
				assert.Equal(t, v.Interface(), from.Interface(), s.Key)
			} else {
				assert.Equal(t, v.IsNil(), from.IsNil(), s.Key)
			}
		})
		assert.Len(t, settings, i)
	}
}

func eachField(v reflect.Value, index []int, f func([]int, reflect.Value)) {
	for i := range v.NumField() {
		at := append(append([]int(nil), index...), i)
		if field := v.Field(i); field.Kind() == reflect.Struct {
			eachField(field, at, f)
		} else if v.Type().Field(i).IsExported() {
			f(at, field)
		}
	}
}

// Over a real connection the server sees one request, whatever it responds.
func TestAgainstAServer(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("X-Test")+" "+r.Host)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"rule": {"backoff": {"type": "constant", "delay": "0s"}, "hedge": {"delay": "1ns"}}}`), 0o600))
	code, _, stderr := call(t, nil, "-against", server.URL, rules)
	require.Equal(t, 1, code, "a hedge after a nanosecond is a mistake: %s", stderr)
	require.NoError(t, os.WriteFile(rules, []byte(`{"rule": {"backoff": {"type": "constant", "delay": "0s"}, "hedge": {"delay": "1us"}}}`), 0o600))
	code, stdout, stderr := call(t, nil, "-json", "-method", "PUT", "-header", "X-Test: yes", "-header", "Host: other.test", "-against", server.URL, rules)
	require.Equal(t, 0, code, stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	assert.Equal(t, []string{"PUT yes other.test"}, seen)
	assert.EqualValues(t, 503, got["status"])
	assert.Equal(t, true, got["retry"])
	assert.Equal(t, "retry", got["reason"])
	assert.Equal(t, "ambiguous", got["class"])
}

// Nobody listens, so there is an error of the network.
func TestAgainstNobody(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	code, stdout, _ := call(t, nil, "-method", "POST", "-against", server.URL)
	require.Equal(t, 0, code)
	assert.Contains(t, stdout, "kind dial")
	assert.Contains(t, stdout, "yes, after")
}

// An interrupted is a base whose user gives up while it waits.
type interrupted func()

func (give interrupted) RoundTrip(req *http.Request) (*http.Response, error) {
	give()
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out, err bytes.Buffer
	code := run(ctx, []string{"-against", "http://h.test/"}, world{stdout: &out, stderr: &err, base: interrupted(cancel)})
	assert.Equal(t, 0, code, err.String())
	assert.Contains(t, out.String(), "canceled")
}

// A signal ends a command that waits for its input.
func TestEndsWhileItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nobody, write := io.Pipe()
		defer func() { assert.NoError(t, write.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var out, err bytes.Buffer
		assert.Equal(t, exitFaults, run(ctx, []string{"-"}, world{stdin: nobody, stdout: &out, stderr: &err}))
		assert.Equal(t, "aplomb rules: context deadline exceeded\n", err.String())
	})
}
