// The table of features in docs/compare.md.

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aplomb-go/aplomb/faults"
	"github.com/aplomb-go/aplomb/internal/testserver"
)

var update = flag.Bool("update", false, "write the tables of features to docs/compare.md")

const comparison = "../docs/compare.md"

// A feature is a row of the table. Either probe measures every cell, or the cells come
// from names.
type feature struct {
	name  string
	ours  string   // aplomb's cell
	shown []string // behind a yes of aplomb's: DIRECTORY.Test, or the directory of an example

	probe func(*testing.T, *library) string

	// names has an exported name, package.Name, of each library that has the feature. No
	// exported name of another library matches absent, apart from those in but.
	names  map[string]string
	absent *regexp.Regexp
	but    []string
}

const yes, no = "yes", "no"

var features = []feature{
	{name: "sends a GET again after a 503", ours: yes, shown: []string{"transport.TestRetriesWithTheFormulasWaits", "examples/default"}, probe: sendsAgain},
	{name: "sends a POST once if the server may have acted", ours: yes, shown: []string{"transport.TestPOST", "examples/quickstart"}, probe: sendsOnce},
	{name: "never comes back before the time in Retry-After", ours: yes, shown: []string{"transport.TestServersWait"}, probe: obeys},
	{name: "holds other requests back for that time", ours: yes, shown: []string{"transport.TestOneIsToldAndAllWait", "examples/cooldown"}, probe: holdsOthers},
	{name: "gives up at once if the wait would pass the deadline", ours: yes, shown: []string{"transport.TestDeadlineIsSeenBeforeTheSleep"}, probe: foresees},
	{name: "ends its wait with the context", ours: yes, shown: []string{"transport.TestCancelDuringTheWait"}, probe: endsWaits},
	{name: "returns the last response when it gives up", ours: yes, shown: []string{"transport.TestGivesUpWithTheLastResponse"}, probe: returnsTheLast},
	{name: "limits the retries to a host that is down, by default", ours: yes, shown: []string{"transport.TestBudgetBoundsAnOutage", "examples/budget"}, probe: limitsRetries},
	{name: "continues a cut download", ours: yes, shown: []string{"faults.TestCutBodiesAreResumed", "examples/fetch"}, probe: continues},
	{name: "sends an upload while it reads it", ours: yes, shown: []string{"transport.TestUploadStreams"}, probe: streams},
	{name: "keeps an upgraded connection writable", ours: yes, shown: []string{"transport.TestUpgradesOverTheWire"}, probe: upgrades},

	{name: "is an `http.RoundTripper`", ours: yes, shown: []string{"transport.TestContractReturnsTheResponse"},
		names:  map[string]string{"retryablehttp": "retryablehttp.RoundTripper", "rehttp": "rehttp.Transport", "failsafehttp": "failsafehttp.NewRoundTripper"},
		absent: regexp.MustCompile(`\.(New)?RoundTrip(per)?$`), but: []string{"resty.RoundTrip"}}, // of its digest authentication
	{name: "bounds the time of an attempt", ours: yes, shown: []string{"transport.TestAttemptTimeout"},
		names: map[string]string{"retryablehttp": "retryablehttp.HTTPClient", "rehttp": "rehttp.PerAttemptTimeout", "failsafehttp": "timeout.New",
			"heimdall": "httpclient.WithHTTPTimeout", "resty": "resty.SetTimeout", "azcore": "policy.TryTimeout"}},
	{name: "has a retry budget", ours: yes, shown: []string{"transport.TestBudgetInEveryWindow", "examples/budget"},
		names: map[string]string{"failsafehttp": "retrypolicy.WithBudget"}, absent: regexp.MustCompile(`(?i)budget`)},
	{name: "hedges", ours: yes, shown: []string{"transport.TestHedgeCutsTheTail", "examples/hedge"},
		names: map[string]string{"failsafehttp": "hedgepolicy.NewWithDelay"}, absent: regexp.MustCompile(`(?i)hedg`)},
	{name: "limits the rate of requests", ours: yes, shown: []string{"transport.TestRateLimit", "examples/rate"},
		names:  map[string]string{"failsafehttp": "ratelimiter.NewSmooth", "resty": "resty.SetRateLimiter"},
		absent: regexp.MustCompile(`(?i)ratelimit`), but: []string{"retryablehttp.RateLimitLinearJitterBackoff"}}, // reads Retry-After
	{name: "has a circuit breaker, or limits requests in flight", ours: yes, shown: []string{"transport.TestGateAgainstAHangingServer", "examples/gate"},
		names:  map[string]string{"failsafehttp": "circuitbreaker.NewBuilder", "heimdall": "hystrix.NewClient"},
		absent: regexp.MustCompile(`(?i)circuit|breaker|bulkhead|hystrix|concurren`)},
	{name: "shares limits between processes", ours: yes, shown: []string{"transport.TestFleetHold", "transport.TestFleetRate", "examples/fleet"},
		absent: regexp.MustCompile(`(?i)redis|distributed|fleet|cluster`)},
	{name: "knows rules of providers", ours: yes, shown: []string{"policy/profile.TestProfiles"},
		absent: regexp.MustCompile(`(?i)github|openai|stripe`)},
	{name: "has rules for each host", ours: yes, shown: []string{"transport.TestMostSpecificRule", "examples/hosts"},
		absent: regexp.MustCompile(`(?i)perhost|hosts`)},
	{name: "reads rules from a file, and takes new ones", ours: yes, shown: []string{"policy/rulefile.TestLoad", "transport.TestUpdateKeepsHostState", "examples/hosts"},
		absent: regexp.MustCompile(`(?i)loadrule|rulefile|update`)},
	{name: "says why there was no retry", ours: yes, shown: []string{"transport.TestEvents", "examples/quickstart"},
		absent: regexp.MustCompile(`(?i)reason`)},
	{name: "has OpenTelemetry", ours: yes, shown: []string{"otel.TestSpans", "examples/metrics"},
		names: map[string]string{"azcore": "policy.TracingProvider"}, absent: regexp.MustCompile(`(?i)otel|telemetry|trac(e|ing)`),
		but: []string{"resty.EnableTrace", "resty.DisableTrace", "resty.TraceInfo"}}, // times of net/http/httptrace
	{name: "plays faults for tests", ours: yes, shown: []string{"faults.TestWaitsOfARule"},
		names: map[string]string{"azcore": "fake.ErrorResponder"}, absent: regexp.MustCompile(`(?i)\.fault|fake`)},
	{name: "retries other functions than requests", ours: yes, shown: []string{"policy.TestDoSucceeds", "examples/database"},
		names: map[string]string{"failsafehttp": "failsafe.Executor", "resty": "resty.Backoff"}},

	{name: "returns something else instead (fallback)", ours: no,
		names: map[string]string{"failsafehttp": "fallback.NewWithResult", "heimdall": "hystrix.WithFallbackFunc"}, absent: regexp.MustCompile(`(?i)fallback`)},
	{name: "caches responses", ours: no,
		names: map[string]string{"failsafehttp": "cachepolicy.NewBuilder"}, absent: regexp.MustCompile(`(?i)cache`)},
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

// in runs a probe over a server that plays a plan, in virtual time.
func in(t *testing.T, l *library, plan faults.Plan, delay time.Duration, use func(*testing.T, doer, *faults.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := faults.New(nil, plan)
		use(t, l.newClient(terms{base: server, delay: delay}), server)
	})
}

// send sends a request, and returns the result.
func send(ctx context.Context, client doer, method, body string) outcome {
	return exchange{method: method, body: body}.ask(ctx, client, "http://shop.example.com/"+strings.ToLower(method))
}

func asked(ok bool) string {
	if ok {
		return yes
	}
	return no
}

func sent(t *testing.T, l *library, method, body string, step faults.Step) (n int) {
	in(t, l, faults.Always(step), shortDelay, func(t *testing.T, client doer, server *faults.Transport) {
		send(t.Context(), client, method, body)
		n = len(server.Records())
	})
	return n
}

func sendsAgain(t *testing.T, l *library) string {
	return asked(sent(t, l, http.MethodGet, "", faults.Status(503)) > 1)
}

func sendsOnce(t *testing.T, l *library) string {
	return asked(sent(t, l, http.MethodPost, "order", faults.Status(503)) == 1 && sent(t, l, http.MethodPost, "order", faults.Reset()) == 1)
}

func obeys(t *testing.T, l *library) string {
	earliest := time.Hour
	for range 10 { // because of jitter
		in(t, l, faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass()), shortDelay, func(t *testing.T, client doer, server *faults.Transport) {
			start := time.Now()
			send(t.Context(), client, http.MethodGet, "")
			earliest = min(earliest, server.Records()[1].Time.Sub(start))
		})
	}
	return asked(earliest >= 10*time.Second)
}

func holdsOthers(t *testing.T, l *library) (cell string) {
	in(t, l, faults.Script(faults.Status(503).RetryAfter(10*time.Second), faults.Pass()), shortDelay, func(t *testing.T, client doer, server *faults.Transport) {
		start := time.Now()
		var both sync.WaitGroup
		both.Go(func() { send(t.Context(), client, http.MethodGet, "") })
		both.Go(func() {
			time.Sleep(time.Second)
			send(t.Context(), client, http.MethodHead, "")
		})
		both.Wait()
		for _, r := range server.Records() {
			if r.Method == http.MethodHead {
				cell = asked(r.Time.Sub(start) >= 10*time.Second)
			}
		}
	})
	return cell
}

// foresees is about a wait that the server asks for, or otherwise the client's own.
func foresees(t *testing.T, l *library) (cell string) {
	in(t, l, faults.Always(faults.Status(503).RetryAfter(30*time.Second)), 30*time.Second, func(t *testing.T, client doer, _ *faults.Transport) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		send(ctx, client, http.MethodGet, "")
		cell = asked(time.Since(start) < time.Second)
	})
	return cell
}

func endsWaits(t *testing.T, l *library) (cell string) {
	in(t, l, faults.Always(faults.Status(503)), 30*time.Second, func(t *testing.T, client doer, _ *faults.Transport) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		send(ctx, client, http.MethodGet, "")
		cell = asked(time.Since(start) <= time.Second)
	})
	return cell
}

func returnsTheLast(t *testing.T, l *library) (cell string) {
	in(t, l, faults.Always(faults.Status(503).Body("sorry")), shortDelay, func(t *testing.T, client doer, _ *faults.Transport) {
		o := send(t.Context(), client, http.MethodGet, "")
		cell = asked(o.err == nil && o.read == int64(len("sorry")))
		if resp := l.carriedBy(o.err); resp != nil {
			_ = resp.Body.Close()
			cell = "in the error"
		}
	})
	return cell
}

func limitsRetries(t *testing.T, l *library) (cell string) {
	in(t, l, faults.Always(faults.Status(503)), shortDelay, func(t *testing.T, client doer, server *faults.Transport) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { send(t.Context(), client, http.MethodGet, "") })
		}
		all.Wait()
		cell = asked(len(server.Records()) < 200)
	})
	return cell
}

func continues(t *testing.T, l *library) (cell string) {
	synctest.Test(t, func(t *testing.T) {
		whole := testserver.Content(testserver.Pattern(1<<20), `"v1"`)
		server := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, whole.CutAt(256<<10, testserver.Close), whole)
		o := exchange{}.ask(t.Context(), l.newClient(terms{base: server.Transport(), delay: shortDelay}), server.URL)
		log := server.Log()
		switch {
		case o.err != nil || o.readErr != nil || o.read != 1<<20:
			cell = no
		case log[1].Header.Get("Range") == "":
			cell = "starts again"
		default:
			cell = yes
		}
	})
	return cell
}

func streams(t *testing.T, l *library) string {
	u, err := upload(l, 1<<20)
	if err != nil {
		t.Error(err)
	}
	return asked(u.before == 0)
}

func upgrades(t *testing.T, l *library) (cell string) {
	synctest.Test(t, func(t *testing.T) {
		server := testserver.Start(t, testserver.Config{Net: testserver.NewNet()}, testserver.SwitchProtocols("echo"))
		e := exchange{header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}}
		defer time.AfterFunc(time.Minute, server.Close).Stop() // some read until the end of the connection
		o := e.ask(t.Context(), l.newClient(terms{base: server.Transport(), delay: shortDelay}), server.URL)
		cell = no
		if o.err == nil && o.resp != nil {
			_, writable := o.resp.Body.(io.Writer)
			cell = asked(writable)
		}
	})
	return cell
}

// cells returns the cells of a row, aplomb's first.
func (f *feature) cells(t *testing.T) []string {
	row := []string{f.ours}
	if f.probe != nil {
		if got := f.probe(t, &ours[0]); got != f.ours {
			t.Errorf("%s: aplomb: %s", f.name, got)
		}
	}
	for i := range peers {
		cell := asked(f.names[peers[i].name] != "")
		if f.probe != nil {
			cell = f.probe(t, &peers[i])
		}
		row = append(row, cell)
	}
	return row
}

// TestFeatures: docs/compare.md has the table of features and what is behind it. Behind
// each yes of aplomb's is a test or an example that exists. Behind the cells of the
// others is a measurement, or a name that they export, or that they export no such name.
func TestFeatures(t *testing.T) {
	exported := map[string]map[string]bool{}
	for i := range peers {
		exported[peers[i].name] = exportedBy(t, peers[i].module)
	}
	heads := []string{"", "aplomb"}
	for i := range peers {
		heads = append(heads, peers[i].name)
	}
	var rows, behind bytes.Buffer
	fmt.Fprintf(&rows, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	fmt.Fprintf(&behind, "| | aplomb | the others |\n|---|---|---|\n")
	for i := range features {
		f := &features[i]
		f.check(t, exported)
		fmt.Fprintf(&rows, "| %s | %s |\n", f.name, strings.Join(f.cells(t), " | "))
		fmt.Fprintf(&behind, "| %s | %s | %s |\n", f.name, links(f.shown), f.evidence())
	}
	versions := []string{goVersion(t, "..")}
	for i := range peers {
		versions = append(versions, goVersion(t, moduleDir(t, peers[i].module)))
	}
	fmt.Fprintf(&rows, "| needs Go | %s |\n", strings.Join(versions, " | "))

	text, err := os.ReadFile(comparison)
	if err != nil {
		t.Fatal(err)
	}
	got := text
	for name, table := range map[string]string{"features": rows.String(), "behind the features": behind.String()} {
		marked := regexp.MustCompile("<!-- " + name + " -->\n(\\|[^\n]*\n)*")
		if !marked.Match(text) {
			t.Errorf("docs/compare.md lacks <!-- %s -->", name)
		}
		got = marked.ReplaceAllLiteral(got, []byte("<!-- "+name+" -->\n"+table))
	}
	if *update {
		if err := os.WriteFile(comparison, got, 0o666); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(got, text) {
		t.Errorf("docs/compare.md differs; go -C bench test . -run Features -update writes it")
	}
}

// check finds out whether what is behind the row exists.
func (f *feature) check(t *testing.T, exported map[string]map[string]bool) {
	if f.ours == yes && len(f.shown) == 0 {
		t.Errorf("%s: nothing is behind the yes", f.name)
	}
	for _, what := range f.shown {
		if err := exists(what); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
	if f.probe != nil {
		return
	}
	for i := range peers {
		library := peers[i].name
		if name := f.names[library]; name != "" {
			if !exported[library][name] {
				t.Errorf("%s: %s does not export %s", f.name, library, name)
			}
			continue
		}
		for name := range exported[library] {
			if f.absent == nil {
				break
			}
			if f.absent.MatchString(name) && !slices.Contains(f.but, name) {
				t.Errorf("%s: %s exports %s", f.name, library, name)
			}
		}
	}
}

// exists looks for an example, or for a test in the files of a directory.
func exists(what string) error {
	dir, test, isTest := strings.Cut(what, ".")
	if !isTest {
		_, err := os.Stat(filepath.Join("..", what, "main.go"))
		return err
	}
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
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
			list = append(list, fmt.Sprintf("`%s` in [%s](../%s)", test, dir, dir))
		} else {
			list = append(list, fmt.Sprintf("[%s](../%s)", what, what))
		}
	}
	return strings.Join(list, ", ")
}

// evidence says what is behind the cells of the others.
func (f *feature) evidence() string {
	if f.probe != nil {
		return "measured"
	}
	var list []string
	for i := range peers {
		if name := f.names[peers[i].name]; name != "" {
			list = append(list, "`"+name+"`")
		}
	}
	if len(list) == 0 {
		return "no such name"
	}
	return strings.Join(list, ", ")
}

// moduleDir is where the source of a module is.
func moduleDir(t *testing.T, module string) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(module, err)
	}
	return strings.TrimSpace(string(out))
}

// goVersion is the oldest Go that compiles a module, to its go.mod.
func goVersion(t *testing.T, dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if m == nil {
		return "any"
	}
	return string(m[1])
}

// exportedBy returns the exported names of a module's packages as package.Name, with
// fields and methods as if they were the package's own. It leaves out internal packages,
// examples and tests.
func exportedBy(t *testing.T, module string) map[string]bool {
	names := map[string]bool{}
	root := moduleDir(t, module)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && slices.Contains([]string{"internal", "examples", "example", "testdata", "test"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		add := func(list ...*ast.Ident) {
			for _, name := range list {
				if name.IsExported() {
					names[file.Name.Name+"."+name.Name] = true
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name)
				return false
			case *ast.TypeSpec:
				add(n.Name)
			case *ast.ValueSpec:
				add(n.Names...)
			case *ast.Field:
				add(n.Names...)
			}
			return true
		})
		return nil
	})
	if err != nil || len(names) == 0 {
		t.Fatal(module, len(names), err)
	}
	return names
}
