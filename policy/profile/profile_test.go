package profile_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/internal/chain"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/policy"
	"github.com/aplomb-go/aplomb/policy/backoff"
	"github.com/aplomb-go/aplomb/policy/profile"
	"github.com/aplomb-go/aplomb/policy/rulefile"
	"github.com/aplomb-go/aplomb/transport"
)

// A response is written as it goes over the wire, without the version of HTTP. In it
// {unix+N} is a Unix time N seconds from now, and {instant+N} the same in the form
// of RFC 3339.

const ok = "200 OK\n\n"

var placeholder = regexp.MustCompile(`\{(unix|instant)\+(\d+)\}`)

// parse makes a response of its text.
func parse(t testing.TB, text string, req *http.Request) *http.Response {
	t.Helper()
	text = placeholder.ReplaceAllStringFunc(text, func(s string) string {
		parts := placeholder.FindStringSubmatch(s)
		seconds := testkit.Must(strconv.Atoi(parts[2]))(t)
		at := time.Now().Add(time.Duration(seconds) * time.Second)
		if parts[1] == "unix" {
			return strconv.FormatInt(at.Unix(), 10)
		}
		return at.UTC().Format(time.RFC3339)
	})
	head, body, _ := strings.Cut(text, "\n\n")
	wire := "HTTP/1.1 " + strings.ReplaceAll(head, "\n", "\r\n") + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(wire)), req)
	require.NoError(t, err, text)
	return resp
}

// ofProviders returns the profiles without those for kinds of services.
func ofProviders() map[string]policy.Rule {
	rules := map[string]policy.Rule{}
	for name, p := range providers {
		rules[name] = p.rule()
	}
	return rules
}

// told returns what reads the waits of a rule over the default rule.
func told(rule policy.Rule) classify.RetryAfterFunc {
	return chain.FirstRetryAfter(rule.RetryAfter, classify.RetryAfter)
}

// inBubble runs a subtest in virtual time.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// A script is a base transport that gives the responses in turn, and then success.
type script struct {
	t     testing.TB
	texts []string

	mu   sync.Mutex // guards sent
	sent int
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ok
	if s.sent < len(s.texts) {
		text = s.texts[s.sent]
	}
	s.sent++
	return parse(s.t, text, req), nil
}

// newTransport makes a Transport with a profile. It has no back-off, so that every
// wait is the server's.
func newTransport(t testing.TB, base http.RoundTripper, rule policy.Rule) *transport.Transport {
	t.Helper()
	rule.Backoff = backoff.Constant(0)
	tr, err := transport.New(transport.Config{Base: base, Hosts: map[string]policy.Rule{"provider.test": rule}})
	require.NoError(t, err)
	return tr
}

// request makes a request of a line such as "POST /v1/charges" and header lines. The
// host is provider.test unless the line names another.
func request(t testing.TB, text string) *http.Request {
	t.Helper()
	lines := strings.Split(text, "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	var body io.Reader
	if method == http.MethodPost || method == http.MethodPatch {
		body = strings.NewReader(`{"some": "body"}`)
	}
	if strings.HasPrefix(path, "/") {
		path = "https://provider.test" + path
	}
	req := testkit.Must(http.NewRequestWithContext(t.Context(), method, path, body))(t)
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ": ")
		req.Header.Set(key, value)
	}
	return req
}

// send sends a request and returns the status, the time until the response, and the
// error.
func send(t testing.TB, tr http.RoundTripper, text string) (status int, waited time.Duration, err error) {
	t.Helper()
	start := time.Now()
	resp, err := tr.RoundTrip(request(t, text))
	if err != nil {
		return 0, time.Since(start), err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, time.Since(start), nil
}

// fetch sends a request and returns the body of the response.
func fetch(t testing.TB, tr http.RoundTripper, text string) (body string, err error) {
	t.Helper()
	resp := testkit.Must(tr.RoundTrip(request(t, text)))(t)
	all, err := io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	return string(all), err
}

// A provider is the test of one profile.
type provider struct {
	rule func() policy.Rule
	// path is the path of the requests; "" is /.
	path string
	// refused are responses after which a POST is sent again.
	refused map[string]string
	// ambiguous are responses after which a GET is sent again, and a POST is not.
	ambiguous map[string]string
	// final are responses after which nothing is sent again.
	final map[string]string
	// waits are responses and the shortest time after which the request comes back.
	waits map[string]wait
	// together are pairs of requests that share a wait, and apart are pairs that do
	// not. The first request of a pair is refused by the response limit, which is a 429
	// with a Retry-After if it is empty.
	limit    string
	together map[string][2]string
	apart    map[string][2]string
}

type wait struct {
	response string
	want     time.Duration
}

func TestProfiles(t *testing.T) {
	for name, p := range providers {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, p.rule().Or(policy.Defaults()).Validate())
			byName, _, err := rulefile.Load(strings.NewReader(`{"rule": {"profile": "`+name+`"}}`), rulefile.Names{})
			require.NoError(t, err)
			assert.Equal(t, p.rule().String(), byName.String())
			for kind, n := range map[string]int{"refused": len(p.refused), "ambiguous": len(p.ambiguous), "final": len(p.final),
				"waits": len(p.waits), "together": len(p.together), "apart": len(p.apart)} {
				assert.NotZero(t, n, "the profile has no test for %s", kind)
			}
			p.retries(t)
			p.waitsLong(t)
			p.scopes(t)
		})
	}
}

// retries tests after which responses requests are sent again.
func (p provider) retries(t *testing.T) {
	for kind, tt := range map[string]struct {
		responses map[string]string
		get, post int
	}{
		"refused":   {p.refused, 2, 2},
		"ambiguous": {p.ambiguous, 2, 1},
		"final":     {p.final, 1, 1},
	} {
		for name, response := range tt.responses {
			for method, want := range map[string]int{http.MethodGet: tt.get, http.MethodPost: tt.post} {
				inBubble(t, kind+"/"+name+"/"+method, func(t *testing.T) {
					base := &script{t: t, texts: []string{response}}
					resp := testkit.Must(newTransport(t, base, p.rule()).RoundTrip(request(t, method+" "+p.at())))(t)
					testkit.Count(t, want, base.sent, "request sent")
					assert.Equal(t, want == 2, resp.StatusCode == http.StatusOK, "status %d", resp.StatusCode)
					text := testkit.Must(io.ReadAll(resp.Body))(t)
					if _, body, _ := strings.Cut(response, "\n\n"); want == 1 {
						assert.Equal(t, body, string(text), "the body is still there")
					}
					require.NoError(t, resp.Body.Close())
				})
			}
		}
	}
}

func (p provider) at() string { return cmp.Or(p.path, "/") }

// waitsLong tests the waits and their units. Jitter of up to a second may be added.
func (p provider) waitsLong(t *testing.T) {
	for name, w := range p.waits {
		inBubble(t, "wait/"+name, func(t *testing.T) {
			base := &script{t: t, texts: []string{w.response}}
			_, waited, err := send(t, newTransport(t, base, p.rule()), "POST "+p.at())
			require.NoError(t, err)
			testkit.Count(t, 2, base.sent, "request sent")
			assert.GreaterOrEqual(t, waited, w.want)
			assert.LessOrEqual(t, waited, w.want+min(w.want, time.Second))
		})
	}
}

// scopes tests which requests share a wait, if the rule shares waits. The first request is told
// to wait. A second later the other request comes.
func (p provider) scopes(t *testing.T) {
	for kind, pairs := range map[string]map[string][2]string{"together": p.together, "apart": p.apart} {
		for name, pair := range pairs {
			inBubble(t, kind+"/"+name, func(t *testing.T) {
				tr := newTransport(t, &script{t: t, texts: []string{cmp.Or(p.limit, "429 Too Many Requests\nRetry-After: 20\n\n")}}, policy.Rule{ShareRetryAfter: policy.On}.Or(p.rule()))
				done := make(chan error)
				go func() {
					resp, err := tr.RoundTrip(request(t, pair[0]))
					if err == nil {
						_ = resp.Body.Close()
					}
					done <- err
				}()
				time.Sleep(time.Second)
				_, waited, err := send(t, tr, pair[1])
				require.NoError(t, err)
				if kind == "together" {
					assert.Greater(t, waited, 5*time.Second)
				} else {
					assert.Less(t, waited, time.Second)
				}
				require.NoError(t, <-done)
			})
		}
	}
}

// A profile sets only the fields that depend on the provider, and reads responses whole.
func TestFieldsOfProfiles(t *testing.T) {
	const kept = "ReplayBuffer: 16777216"
	want := map[string]string{
		"github":       "{Classify: func, RetryAfter: func, MaxRetryAfter: 2m0s, ShareRetryAfter: on, ThrottleKey: func}",
		"aws":          "{Classify: func, RetryAfter: func, " + kept + "}",
		"azure":        "{Classify: func, " + kept + "}",
		"google_cloud": "{Classify: func, RetryAfter: func, Idempotent: func, " + kept + "}",
		"openai":       "{Classify: func, RetryAfter: func}",
		"anthropic":    "{Classify: func, RetryAfter: func}",
		"stripe":       "{Classify: func, ThrottleKey: func}",
		"slack":        "{Classify: func, ShareRetryAfter: on, ThrottleKey: func}",
		"discord":      "{Classify: func, RetryAfter: func, RateLimit: RateLimit{PerSecond: 50, Burst: 1}, ShareRetryAfter: on, ThrottleKey: func, QuotaPacing: on}",
		"cloudflare":   "{Classify: func, QuotaPacing: on}",
		"docker_hub":   "{Classify: func, ThrottleKey: func}",
		"registry":     "{Classify: func, ThrottleKey: func}",
	}
	for name, rule := range ofProviders() {
		assert.Equal(t, want[name], rule.String(), name)
	}
}

// The profile of a success costs nothing.
func TestSuccessCostsNothing(t *testing.T) {
	req := request(t, "POST /v1/things")
	o := classify.Outcome{Request: req, Response: parse(t, ok, req)}
	for name, rule := range ofProviders() {
		assert.Zero(t, testing.AllocsPerRun(100, func() { rule.Classify(o) }), name)
	}
}

// A coded body is judged as its content, and reaches the caller as it came.
func TestCodedBodies(t *testing.T) {
	for name, p := range providers {
		rule := p.rule()
		for kind, responses := range map[string]map[string]string{"refused": p.refused, "ambiguous": p.ambiguous, "final": p.final} {
			for title, text := range responses {
				head, body, _ := strings.Cut(text, "\n\n")
				if strings.HasPrefix(head, "200") || body == "" {
					continue // nobody looks into the body of a success that is coded
				}
				req := request(t, "POST "+p.at())
				want := rule.Classify(classify.Outcome{Request: req, Response: parse(t, text, req)})
				wait, named := told(rule)(classify.Outcome{Request: req, Response: parse(t, text, req)})
				for coding, coded := range map[string]string{"gzip": zip(t, gzip.NewWriter, body), "deflate": zip(t, zlib.NewWriter, body)} {
					o := classify.Outcome{Request: req, Response: parse(t, head+"\nContent-Encoding: "+coding+"\n\n"+coded, req)}
					assert.Equal(t, want, rule.Classify(o), "%s: %s: %s in %s", name, kind, title, coding)
					got, ok := told(rule)(o)
					assert.Equal(t, named, ok, "%s: %s: %s in %s", name, kind, title, coding)
					assert.InDelta(t, wait, got, float64(time.Second), "%s: %s: %s in %s", name, kind, title, coding)
					rest := testkit.Must(io.ReadAll(o.Response.Body))(t)
					assert.Equal(t, coded, string(rest), "%s: %s: %s in %s", name, kind, title, coding)
				}
			}
		}
	}
}

func zip[W io.WriteCloser](t *testing.T, writer func(io.Writer) W, text string) string {
	t.Helper()
	var b strings.Builder
	w := writer(&b)
	testkit.Must(io.WriteString(w, text))(t)
	require.NoError(t, w.Close())
	return b.String()
}

// A quota that is refilled too late gives the caller the response at once. Further
// requests of the scope wait as long as the profile waits, and then they go.
func TestGitHubStopsAtAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{t: t, texts: []string{githubPrimary(3000)}}
		tr := newTransport(t, base, profile.GitHub())
		status, waited, err := send(t, tr, "GET /repos/a/b")
		require.NoError(t, err)
		assert.Equal(t, http.StatusForbidden, status)
		assert.Zero(t, waited)
		status, waited, err = send(t, tr, "GET /search/issues")
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, "another quota")
		assert.Zero(t, waited)
		_, waited, err = send(t, tr, "GET /repos/a/c")
		require.NoError(t, err)
		assert.GreaterOrEqual(t, waited, 2*time.Minute)
		testkit.Count(t, 3, base.sent, "request sent")
	})
}

// What a request says about itself decides whether it may be repeated after a lost
// response or an ambiguous one.
func TestConditions(t *testing.T) {
	const failure = "500 Internal Server Error\n\n{}"
	for name, tt := range map[string]struct {
		rule     policy.Rule
		request  string
		response string
		want     int
	}{
		"google: none":             {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o", failure, 1},
		"google: generation":       {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o?ifGenerationMatch=0", failure, 2},
		"google: metageneration":   {profile.GoogleCloud(), "PATCH /storage/v1/b/a?ifMetagenerationMatch=3", failure, 2},
		"google: header":           {profile.GoogleCloud(), "POST /a/o\nX-Goog-If-Generation-Match: 0", failure, 2},
		"google: second header":    {profile.GoogleCloud(), "PATCH /a/o\nX-Goog-If-Metageneration-Match: 3", failure, 2},
		"google: request id":       {profile.GoogleCloud(), "POST /compute/v1/projects/a/zones/b/instances?requestId=1", failure, 2},
		"google: empty condition":  {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o?ifGenerationMatch=", failure, 1},
		"google: a chunk":          {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o?upload_id=1\nContent-Range: bytes 0-9/*", failure, 2},
		"google: no chunk":         {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o?upload_id=1", failure, 1},
		"google: no upload":        {profile.GoogleCloud(), "POST /upload/storage/v1/b/a/o\nContent-Range: bytes 0-9/*", failure, 1},
		"stripe: 409 without key":  {profile.Stripe(), "POST /v1/charges", "409 Conflict\n\n{}", 1},
		"stripe: 409 with key":     {profile.Stripe(), "POST /v1/charges\nIdempotency-Key: 1", "409 Conflict\n\n{}", 2},
		"stripe: stored 500":       {profile.Stripe(), "POST /v1/charges\nIdempotency-Key: 1", failure, 1},
		"stripe: 500 and a yes":    {profile.Stripe(), "POST /v1/charges\nIdempotency-Key: 1", "500 Error\nStripe-Should-Retry: true\n\n{}", 2},
		"stripe: 500 of API v2":    {profile.Stripe(), "POST /v2/core/events\nIdempotency-Key: 1", failure, 2},
		"stripe: 500 for a GET":    {profile.Stripe(), "GET /v1/charges", failure, 2},
		"aws: S3 by its host":      {profile.AWS(), "POST https://bucket.s3.eu-north-1.amazonaws.com/a?uploads", "503 Error\n\n", 2},
		"aws: S3 by its old host":  {profile.AWS(), "POST https://s3-eu-west-1.amazonaws.com/bucket/a?uploads", "503 Error\n\n", 2},
		"aws: S3 Express":          {profile.AWS(), "POST https://bucket--x-s3.s3express-use1-az4.us-east-1.amazonaws.com/a?uploads", "503 Error\n\n", 2},
		"aws: S3's own 500":        {profile.AWS(), "POST /bucket/key?uploadId=abc", "500 Error\n\n" + s3Failure("InternalError"), 2},
		"aws: its 500, no match":   {profile.AWS(), "POST /bucket/key?uploadId=abc\nIf-None-Match: *", "500 Error\n\n" + s3Failure("InternalError"), 1},
		"aws: its 500, a match":    {profile.AWS(), "POST /bucket/key?uploadId=abc\nIf-Match: \"abc\"", "500 Error\n\n" + s3Failure("InternalError"), 1},
		"aws: its 500 to a select": {profile.AWS(), "POST /bucket/key?select", "500 Error\n\n" + s3Failure("InternalError"), 1},
		"azure: Cosmos DB":         {profile.Azure(), "POST https://account.documents.azure.com/dbs/a/colls/b/docs", "503 Error\n\n", 2},
		"aws: another service":     {profile.AWS(), "POST https://sqs.eu-north-1.amazonaws.com/", "503 Error\n\n", 1},
		"aws: S3 is only a label":  {profile.AWS(), "POST https://s3.example.com/", "503 Error\n\n", 1},
		"registry: PATCH refused":  {profile.Registry(), "PATCH /v2/a/blobs/uploads/1\nContent-Range: 0-15", "503 Error\n\n", 2},
		"registry: PATCH failed":   {profile.Registry(), "PATCH /v2/a/blobs/uploads/1\nContent-Range: 0-15", failure, 1},
		"slack: an error with 200": {profile.Slack(), "POST /api/chat.postMessage", `200 OK` + "\n\n" + `{"ok": false, "error": "ratelimited"}`, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			base := &script{t: t, texts: []string{tt.response}}
			tt.rule.Backoff = backoff.Constant(0)
			tr := testkit.Must(transport.New(transport.Config{Base: base, Rule: tt.rule}))(t)
			_, _, err := send(t, tr, tt.request)
			require.NoError(t, err)
			testkit.Count(t, tt.want, base.sent, "request sent")
		})
	}
}

// Discord counts down the requests of a route. The profile waits for the end of the
// window instead of running into a 429, and only on this route.
func TestDiscordWaitsForItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		left, end := limit, time.Now().Add(10*time.Second)
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			if !strings.HasPrefix(req.URL.Path, "/api/v10/channels/1/") {
				return parse(t, ok, req), nil
			}
			if !time.Now().Before(end) {
				left, end = limit, time.Now().Add(10*time.Second)
			}
			left--
			require.GreaterOrEqual(t, left, 0, "too many requests in a window")
			return parse(t, fmt.Sprintf("200 OK\nX-Ratelimit-Limit: %d\nX-Ratelimit-Remaining: %d\nX-Ratelimit-Reset: %d.000\n\n", limit, left, end.Unix()), req), nil
		})
		tr := newTransport(t, base, profile.Discord())
		start := time.Now()
		for range 2 * limit {
			_, _, err := send(t, tr, "POST /api/v10/channels/1/messages")
			require.NoError(t, err)
		}
		assert.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		assert.Less(t, time.Since(start), 21*time.Second)
		_, waited, err := send(t, tr, "POST /api/v10/channels/2/messages")
		require.NoError(t, err)
		assert.Less(t, waited, time.Second, "another route")
	})
}

// Discord allows 50 requests per second in all.
func TestDiscordKeepsTheGlobalLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, &script{t: t}, profile.Discord())
		start := time.Now()
		for i := range 101 {
			_, _, err := send(t, tr, fmt.Sprintf("GET /api/v10/channels/%d", i))
			require.NoError(t, err)
		}
		assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
		assert.Less(t, time.Since(start), 3*time.Second)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return f(req)
}

// FuzzProfiles feeds odd responses to all profiles. Hints never return a negative
// wait, and no function panics.
func FuzzProfiles(f *testing.F) {
	for _, p := range providers {
		for _, group := range []map[string]string{p.refused, p.ambiguous, p.final} {
			for _, response := range group {
				f.Add(response, "POST", p.at())
			}
		}
		for _, w := range p.waits {
			f.Add(w.response, "GET", p.at())
		}
	}
	for _, code := range []int{200, 400, 403, 409, 449, 500, 503, 526, 529, 999} {
		f.Add(fmt.Sprint(code, " Odd\n\n"), "POST", "/")
	}
	f.Add("429 Odd\nRetry-After: -1, 1e300, NaN\nX-Amz-Retry-After: 99999999999999999999\n\n{\"retry_after\": -1}", "", "//api//v10")
	f.Fuzz(func(t *testing.T, response, method, path string) {
		head, body, _ := strings.Cut(response, "\n\n")
		wire := "HTTP/1.1 " + head + "\r\n\r\n" + body
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://provider.test/", nil)
		require.NoError(t, err)
		req.Method, req.URL.Path = method, path
		for name, rule := range ofProviders() {
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(wire)), nil)
			if err != nil {
				t.Skip()
			}
			o := classify.Outcome{Request: req, Response: resp}
			require.Contains(t, []classify.Class{classify.Unknown, classify.Final, classify.Refused, classify.Ambiguous}, rule.Classify(o), "%s: class", name)
			wait, ok := told(rule)(o)
			require.True(t, wait >= 0 && (ok || wait == 0), "%s: wait %v, %v", name, wait, ok)
			for _, req := range []*http.Request{nil, {}, {Method: http.MethodPost, URL: &url.URL{}}, req} { // one without a URL is legal
				rule.Classify(classify.Outcome{Request: req, Response: resp})
				told(rule)(classify.Outcome{Request: req, Response: resp})
				require.Equal(t, classify.Unknown, rule.Classify(classify.Outcome{Request: req}), name)
				require.Equal(t, classify.Unknown, rule.Classify(classify.Outcome{Request: req, Err: errors.New("odd")}), name)
				if rule.Idempotent != nil {
					rule.Idempotent(req)
				}
				if rule.ThrottleKey != nil && req != nil {
					assert.Equal(t, rule.ThrottleKey(req), rule.ThrottleKey(req), name)
				}
			}
		}
	})
}

// docs/profiles.md has every profile in its table. The comments of the functions name their
// sources, and the days on which they were read.
func TestDocumentIsComplete(t *testing.T) {
	text := testkit.Must(os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md")))(t)
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, row[1])
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(providers)), rows)
	files := testkit.Must(filepath.Glob("*.go"))(t)
	commented := 0
	for _, file := range files {
		code := testkit.Must(os.ReadFile(file))(t)
		for _, f := range regexp.MustCompile(`((?m:^//.*\n)+)func ([A-Z]\w*)\(\) policy\.Rule `).FindAllStringSubmatch(string(code), -1) {
			if f[2] == "API" || f[2] == "Service" {
				continue // for kinds of services
			}
			commented++
			assert.Contains(t, f[1], "https://", f[2])
			assert.Regexp(t, `read on \d{4}-\d\d-\d\d`, f[1], "%s: when were the sources read?", f[2])
		}
	}
	assert.Equal(t, commented, len(providers), "each profile has a test")
}

// The rules in docs/profiles.md can be loaded.
func TestDocumentedRulesLoad(t *testing.T) {
	text := testkit.Must(os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md")))(t)
	_, block, found := strings.Cut(string(text), "```json\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	_, hosts, err := rulefile.Load(strings.NewReader(block), rulefile.Names{})
	require.NoError(t, err)
	assert.Equal(t, 4, hosts["api.github.com"].MaxAttempts)
	assert.NotNil(t, hosts["api.github.com"].ThrottleKey, "the profile's")
}

// TestKinds checks the figures that the comments name.
func TestKinds(t *testing.T) {
	for name, rule := range map[string]policy.Rule{"API": profile.API(), "Service": profile.Service()} {
		assert.NoError(t, rule.Validate(), name)
		assert.NoError(t, rule.Or(policy.Defaults()).Validate(), name)
	}
	assert.Equal(t, 3*time.Second, profile.Service().MaxElapsedTime)
	waits := bounds.Of(profile.Service().Backoff, 2)
	require.Len(t, waits, 2)
	assert.Equal(t, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}, []time.Duration{waits[0].Lowest, waits[0].Highest})
	assert.Equal(t, []time.Duration{100 * time.Millisecond, 150 * time.Millisecond}, []time.Duration{waits[1].Lowest, waits[1].Highest})
}

func ExampleAPI() {
	rule := profile.API()
	rule.AttemptTimeout = 2 * time.Minute // this API takes long to respond
	fmt.Println(rule.AttemptTimeout, profile.API().AttemptTimeout)
	// Output: 2m0s 30s
}

func ExampleService() {
	rule := profile.Service()
	fmt.Println("at most", rule.MaxAttempts, "attempts of", rule.AttemptTimeout)
	// Output: at most 3 attempts of 1s
}
