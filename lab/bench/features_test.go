// The table of features in README.md.

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/lab/internal/document"
	"github.com/aplomb-go/aplomb/lab/internal/exports"
)

var update = flag.Bool("update", false, "write the tables of features to README.md")

const (
	root       = "../.."
	comparison = "README.md"
)

// A feature is a row of the table.
type feature struct {
	name  string
	ours  string   // aplomb's cell
	shown []string // behind a yes of aplomb's: DIRECTORY.Test, or the directory of an example

	// probe tries the feature, and returns the cell. setups says how a library is told to
	// have it. A library without a set-up of its own is tried in the set-up of the other
	// tables. Without a probe the cells come from names.
	probe  func(*testing.T, *library) string
	setups map[string]func(terms) doer

	// names has an exported name, package.Name, of each library that has the feature or a
	// set-up for it. The feature of a library in untried is not tried.
	names   map[string]string
	untried []string

	// If there is no probe, no exported name of another library matches absent, apart from
	// those in but.
	absent *regexp.Regexp
	but    []string
}

const yes, no = "yes", "no"

var features = []feature{
	{name: "sends a GET again after a 503", ours: yes, shown: []string{"transport.TestRetriesWithTheFormulasWaits", "examples/default"}, probe: sendsAgain},
	{name: "sends a POST once if the server may have acted", ours: yes, shown: []string{"transport.TestPOST", "cmd/internal/demo"}, probe: sendsOnce},
	{name: "never comes back before the time in Retry-After", ours: yes, shown: []string{"transport.TestServersWait"}, probe: obeys},
	{name: "holds the other requests of a shared limit back for that time", ours: yes, shown: []string{"transport.TestOneIsToldAndAllWait"}, probe: holdsOthers, setups: sharingSetups},
	{name: "gives up at once if the wait would pass the deadline", ours: yes, shown: []string{"transport.TestDeadlineIsSeenBeforeTheSleep"}, probe: foresees},
	{name: "ends its wait with the context", ours: yes, shown: []string{"transport.TestCancelDuringTheWait"}, probe: endsWaits},
	{name: "returns the last response when it gives up", ours: yes, shown: []string{"transport.TestGivesUpWithTheLastResponse"}, probe: returnsTheLast},
	{name: "limits the retries to a host that is down, by default", ours: yes, shown: []string{"transport.TestBudgetInEveryWindow"}, probe: limitsRetries},
	{name: "continues a cut download", ours: yes, shown: []string{"faults.TestCutBodiesAreResumed", "examples/download"}, probe: continues(`"v1"`)},
	{name: "completes a cut download that has neither ETag nor Last-Modified", ours: yes, shown: []string{"transport.TestACutAnswerIsFetchedAgain"}, probe: continues("")},
	{name: "sends an upload while it reads it", ours: yes, shown: []string{"transport.TestUploadStreams"}, probe: streams},
	{name: "keeps an upgraded connection writable", ours: yes, shown: []string{"transport.TestUpgradesOverTheWire"}, probe: upgrades},

	{name: "is an `http.RoundTripper`", ours: yes, shown: []string{"transport.TestContractReturnsTheResponse"},
		names:  map[string]string{"retryablehttp": "retryablehttp.RoundTripper", "rehttp": "rehttp.Transport", "failsafehttp": "failsafehttp.NewRoundTripper"},
		absent: regexp.MustCompile(`\.(New)?RoundTrip(per)?$`), but: []string{"resty.RoundTrip"}}, // of its digest authentication
	{name: "bounds the time of an attempt", ours: yes, shown: []string{"transport.TestAttemptTimeout"}, probe: bounds, setups: boundSetups,
		names: map[string]string{"retryablehttp": "retryablehttp.HTTPClient", "rehttp": "rehttp.PerAttemptTimeout", "failsafehttp": "timeout.New",
			"heimdall": "httpclient.WithHTTPClient", "resty": "resty.SetTimeout", "azcore": "policy.TryTimeout"}},
	{name: "bounds the time until there is a connection", ours: yes, shown: []string{"transport.TestUnsentPOSTIsRetried"}, probe: connects, setups: connectSetups},
	{name: "takes a new HTTP/2 connection after a timeout", ours: yes, shown: []string{"transport.TestDeathUnderLoad", "transport.TestDeathAfterDeath"}, probe: leaves, setups: boundSetups},
	{name: "tries another address of the host", ours: yes, shown: []string{"transport.TestOneAddressIsBad"}, probe: detours},
	{name: "checks the health of HTTP/2 connections by default", ours: yes, shown: []string{"transport.TestDefaultBaseChecksTheHealthOfConnections"}, probe: checksHealth},
	{name: "has a retry budget", ours: yes, shown: []string{"transport.TestBudgetInEveryWindow"}, probe: limitsRetries, setups: budgetSetups,
		names: map[string]string{"failsafehttp": "retrypolicy.WithBudget"}},
	{name: "hedges", ours: yes, shown: []string{"transport.TestHedgeCutsTheTail"}, probe: hedges, setups: hedgeSetups,
		names: map[string]string{"failsafehttp": "hedgepolicy.NewWithDelay"}},
	{name: "limits the rate of requests", ours: yes, shown: []string{"transport.TestRateLimit"}, probe: limitsRate, setups: rateSetups,
		names: map[string]string{"failsafehttp": "ratelimiter.NewSmoothBuilder", "resty": "resty.SetRateLimiter"}},
	{name: "has a circuit breaker, or limits requests in flight", ours: yes, shown: []string{"transport.TestBreakerThatFailsFast"}, probe: breaks, setups: breakerSetups,
		names: map[string]string{"failsafehttp": "circuitbreaker.NewBuilder", "heimdall": "hystrix.NewClient"}, untried: []string{"heimdall"}},
	{name: "paces by quotas of tokens or points", ours: yes, shown: []string{"transport.TestQuotaInTokens"},
		absent: regexp.MustCompile(`(?i)cost|quota`)},
	{name: "shares limits between processes", ours: yes, shown: []string{"transport.TestFleetHold", "transport.TestFleetRate", "lab/fleet"}, probe: shares, setups: fleetSetups},
	{name: "knows rules of providers", ours: yes, shown: []string{"policy/profile.TestProfiles"}, probe: knowsProviders, setups: providerSetups},
	{name: "has rules for each host", ours: yes, shown: []string{"internal/rules.TestMostSpecificPattern", "examples/hosts"}, probe: distinguishesHosts, setups: hostSetups,
		names: map[string]string{"retryablehttp": "retryablehttp.CheckRetry", "rehttp": "rehttp.RetryFn", "failsafehttp": "retrypolicy.AbortIf",
			"resty": "resty.AddRetryCondition", "azcore": "policy.ShouldRetry"}},
	{name: "has rules for each path, and for a single request", ours: yes, shown: []string{"internal/rules.TestPathsAreThoseOfServeMux", "transport.TestRulesAreInherited"}, probe: distinguishesPaths, setups: hostSetups,
		names: map[string]string{"retryablehttp": "retryablehttp.CheckRetry", "rehttp": "rehttp.RetryFn", "failsafehttp": "retrypolicy.AbortIf",
			"resty": "resty.AddRetryCondition", "azcore": "policy.ShouldRetry"}},
	{name: "sends an idempotency key, the same on each attempt", ours: yes, shown: []string{"transport.TestOneActionAndOneResponse"},
		absent: regexp.MustCompile(`(?i)idempotency`)},
	{name: "tells a hook the deadline of each attempt", ours: yes, shown: []string{"transport.TestDeadlineOfAnAttempt"},
		absent: regexp.MustCompile(`(?i)attemptdeadline`)},
	{name: "takes a changed file of rules by itself", ours: yes, shown: []string{"policy/rulefile.TestWatchReadsAtIntervals"},
		absent: regexp.MustCompile(`(?i)watchfile|reload|rulefile`)},
	{name: "reports all faults of a configuration at once", ours: yes, shown: []string{"transport.TestMustNew"},
		absent: regexp.MustCompile(`FieldError|ConfigErrors`)},
	{name: "reads rules from a file, and takes new ones", ours: yes, shown: []string{"internal/rulejson.TestLoad", "transport.TestUpdateKeepsHostState", "examples/hosts"},
		absent: regexp.MustCompile(`(?i)loadrule|rulefile|update`)},
	{name: "says why there was no retry", ours: yes, shown: []string{"transport.TestAttemptEnds", "transport.TestExplain", "cmd/internal/demo"}, probe: saysWhy, setups: reasonSetups,
		names: map[string]string{"retryablehttp": "retryablehttp.StandardClient", "failsafehttp": "retrypolicy.ExceededError", "azcore": "log.SetListener"}},
	{name: "has OpenTelemetry", ours: yes, shown: []string{"otel.TestSpans", "lab/metrics"},
		names: map[string]string{"azcore": "policy.TracingProvider"}, absent: regexp.MustCompile(`(?i)otel|telemetry|trac(e|ing)`),
		but: []string{"resty.EnableTrace", "resty.DisableTrace", "resty.TraceInfo"}}, // times of net/http/httptrace
	{name: "shows the state of its hosts on a page", ours: yes, shown: []string{"lab/page.TestPage", "debug.TestNoSecrets"},
		absent: regexp.MustCompile(`(?i)debugpage|dashboard`)},
	{name: "plays faults for tests", ours: yes, shown: []string{"faults.TestWaitsOfARule"},
		names: map[string]string{"azcore": "fake.ErrorResponder"}, absent: regexp.MustCompile(`(?i)\.fault|fake`)},
	{name: "retries other functions than requests", ours: yes, shown: []string{"retry.TestDoSucceeds", "examples/database"},
		names: map[string]string{"failsafehttp": "failsafe.Executor", "resty": "resty.Backoff"}},

	{name: "returns something else instead (fallback)", ours: no, probe: fallsBack, setups: fallbackSetups,
		names:   map[string]string{"retryablehttp": "retryablehttp.ErrorHandler", "failsafehttp": "fallback.NewBuilderWithFunc", "heimdall": "hystrix.WithFallbackFunc"},
		untried: []string{"heimdall"}},
	{name: "caches responses", ours: no, probe: caches, setups: cacheSetups,
		names: map[string]string{"failsafehttp": "cachepolicy.NewBuilder"}},
	{name: "lets urgent requests go first", ours: no,
		names: map[string]string{"failsafehttp": "priority.Prioritizer"}, absent: regexp.MustCompile(`(?i)priori`)},
	{name: "works for gRPC", ours: no,
		names: map[string]string{"failsafehttp": "failsafegrpc.NewUnaryClientInterceptor"}, absent: regexp.MustCompile(`(?i)grpc`)},
	{name: "protects servers as well", ours: no,
		names: map[string]string{"failsafehttp": "failsafehttp.NewHandler"}, absent: regexp.MustCompile(`NewHandler`)},
	{name: "encodes and decodes JSON", ours: no,
		names: map[string]string{"resty": "resty.SetJSONMarshaler", "azcore": "runtime.UnmarshalAsJSON"}, absent: regexp.MustCompile(`(?i)json`)},
	{name: "authenticates", ours: no,
		names: map[string]string{"resty": "resty.SetAuthToken", "azcore": "policy.AuthorizationHandler"}, absent: regexp.MustCompile(`(?i)auth`)},
}

// cells returns the cells of a row, aplomb's first.
func (f *feature) cells(t *testing.T) []string {
	row := []string{f.ours}
	if f.probe != nil {
		assert.Equal(t, f.ours, f.probe(t, f.setup(&ours[0])), "%s: aplomb", f.name)
	}
	for i := range peers {
		l := &peers[i]
		if f.tries(l.name) {
			row = append(row, f.probe(t, f.setup(l)))
		} else {
			row = append(row, asked(f.names[l.name] != ""))
		}
	}
	return row
}

func (f *feature) tries(library string) bool {
	return f.probe != nil && !slices.Contains(f.untried, library)
}

// setup returns the library as it is set up for this row.
func (f *feature) setup(l *library) *library {
	client := f.setups[l.name]
	if client == nil {
		return l
	}
	told := *l
	told.client = client
	return &told
}

// TestFeatures: README.md has the table of features and what is behind it. Behind
// each yes of aplomb's is a test or an example that exists. Behind the cells of the
// others is an experiment, or a name that they export, or that they export no such name.
func TestFeatures(t *testing.T) {
	exported := map[string]map[string]bool{}
	for i := range peers {
		exported[peers[i].name] = exports.Of(t, peers[i].module)
	}
	var rows, behind bytes.Buffer
	heads := writeHeads(t, &rows)
	fmt.Fprintf(&behind, "| | aplomb | the others |\n|---|---|---|\n")
	for i := range features {
		f := &features[i]
		f.check(t, exported)
		fmt.Fprintf(&rows, "| %s | %s |\n", f.name, strings.Join(f.cells(t), " | "))
		fmt.Fprintf(&behind, "| %s | %s | %s |\n", f.name, links(f.shown), f.evidence())
	}
	versions := []string{goVersion(t, root)}
	for i := range peers {
		versions = append(versions, goVersion(t, exports.Module(t, "Dir", peers[i].module)))
	}
	fmt.Fprintf(&rows, "| needs Go | %s |\n", strings.Join(versions, " | "))

	tables := map[string]string{"features": rows.String(), "behind the features": behind.String()}
	document.Compare(t, comparison, tables, *update, func(old, now string) bool { return old == now })
	checkShort(t, heads)
}

// writeHeads writes the heads of a table of all libraries, with their versions, and returns them.
func writeHeads(t *testing.T, w io.Writer) []string {
	heads := []string{"", ours[0].name}
	for i := range peers {
		heads = append(heads, peers[i].name+" "+exports.Module(t, "Version", peers[i].module))
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	return heads
}

// checkShort checks that the README of the repository shows two rows of outages and three of features, as they are in
// README.md. Its heads have no versions.
func checkShort(t *testing.T, heads []string) {
	whole := testkit.Must(os.ReadFile(comparison))(t)
	text := testkit.Must(os.ReadFile(root + "/README.md"))(t)
	head := regexp.MustCompile(` v[0-9.]+`).ReplaceAllString("| "+strings.Join(heads, " | ")+" |", "")
	_, short, found := strings.Cut(string(text), head+"\n|---|---|---|---|---|---|---|---|\n")
	require.True(t, found, "README.md lacks %s", head)
	short, _, _ = strings.Cut(short, "\n\n")
	_, outages, _ := strings.Cut(string(whole), "<!-- outages -->\n")
	outages, _, _ = strings.Cut(outages, "\n\n")
	rows := strings.SplitAfter(short+"\n", "\n")
	require.Len(t, rows, 6, "with an empty one")
	for i, row := range rows[:5] {
		assert.Contains(t, string(whole), "\n"+row, "README.md")
		assert.Equal(t, i < 2, strings.Contains(outages, row), row)
	}
}

// check finds out whether what is behind the row exists.
func (f *feature) check(t *testing.T, exported map[string]map[string]bool) {
	assert.False(t, f.ours == yes && len(f.shown) == 0, "%s: nothing is behind the yes", f.name)
	for _, what := range f.shown {
		assert.NoError(t, exists(what), "%s", f.name)
	}
	for i := range peers {
		library := peers[i].name
		if name := f.names[library]; name != "" {
			assert.True(t, exported[library][name], "%s: %s does not export %s", f.name, library, name)
			continue
		}
		if f.probe != nil || f.absent == nil {
			continue
		}
		for name := range exported[library] {
			assert.False(t, f.absent.MatchString(name) && !slices.Contains(f.but, name), "%s: %s exports %s", f.name, library, name)
		}
	}
}

// exists looks for an example, or for a test in the files of a directory.
func exists(what string) error {
	dir, test, isTest := strings.Cut(what, ".")
	if !isTest {
		_, err := os.Stat(filepath.Join(root, what, "main.go"))
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\nfunc "+test+"(t *testing.T)")) {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("there is no %s in %s", test, dir))
}

// links makes links of what is behind a yes.
func links(shown []string) string {
	if len(shown) == 0 {
		return "none"
	}
	var list []string
	for _, what := range shown {
		if dir, test, ok := strings.Cut(what, "."); ok {
			list = append(list, fmt.Sprintf("`%s` in [%s](../../%s)", test, dir, dir))
		} else {
			list = append(list, fmt.Sprintf("[%s](../../%s)", what, what))
		}
	}
	return strings.Join(list, ", ")
}

// evidence says what is behind the cells of the others.
func (f *feature) evidence() string {
	var used, untried []string
	for i := range peers {
		switch name := f.names[peers[i].name]; {
		case name == "":
		case f.tries(peers[i].name):
			used = append(used, "`"+name+"`")
		default:
			untried = append(untried, "`"+name+"`")
		}
	}
	var list []string
	switch {
	case f.probe != nil && used == nil:
		list = append(list, "tried")
	case f.probe != nil:
		list = append(list, "tried, with "+strings.Join(used, ", "))
	case untried == nil:
		list = append(list, "no such name")
	}
	if untried != nil {
		list = append(list, "exported: "+strings.Join(untried, ", "))
	}
	return strings.Join(list, "; ")
}

// goVersion is the oldest Go that compiles a module, to its go.mod.
func goVersion(t *testing.T, dir string) string {
	text := testkit.Must(os.ReadFile(filepath.Join(dir, "go.mod")))(t)
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if m == nil {
		return "any"
	}
	return string(m[1])
}
