// The names in the tables of the document exist.

package migrating

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/PuerkitoBio/rehttp"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/cachepolicy"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The compiler checks that the libraries have these names. The first column of the
// tables has no others.

func retryablehttpNames(c *retryablehttp.Client, r *retryablehttp.Request) []any {
	return []any{c.RetryMax, c.RetryWaitMin, c.RetryWaitMax, retryablehttp.DefaultBackoff, retryablehttp.LinearJitterBackoff,
		retryablehttp.RateLimitLinearJitterBackoff, c.Backoff, c.CheckRetry, retryablehttp.DefaultRetryPolicy,
		retryablehttp.ErrorPropagatedRetryPolicy, c.ErrorHandler, retryablehttp.PassthroughErrorHandler, c.RequestLogHook,
		c.ResponseLogHook, c.Logger, c.PrepareRetry, c.HTTPClient, c.StandardClient, retryablehttp.NewRequest,
		retryablehttp.FromRequest, r.SetBody}
}

func rehttpNames(t *rehttp.Transport, f rehttp.RetryFn, d rehttp.DelayFn) []any {
	return []any{f, d, rehttp.RetryMaxRetries, rehttp.RetryStatuses, rehttp.RetryStatusInterval, rehttp.RetryTemporaryErr,
		rehttp.RetryTimeoutErr, rehttp.RetryIsErr, rehttp.RetryHTTPMethods, rehttp.RetryAny, rehttp.RetryAll,
		rehttp.ConstDelay, rehttp.ExpJitterDelay, t.PerAttemptTimeout, t.PreventRetryWithBody}
}

type response = *http.Response

func failsafeNames(b retrypolicy.Builder[response], e retrypolicy.ExceededError) []any {
	return []any{e, b.WithMaxRetries, b.WithMaxAttempts, b.WithMaxDuration, b.WithDelay, b.WithBackoff, b.WithBackoffFactor,
		b.WithJitter, b.WithJitterFactor, b.WithDelayFunc, failsafehttp.DelayFunc, b.HandleIf, b.AbortIf, b.AbortOnErrors,
		b.ReturnLastFailure, b.WithBudget, b.OnRetry, b.OnRetriesExceeded, timeout.New[response],
		circuitbreaker.NewBuilder[response], bulkhead.New[response], adaptivelimiter.NewBuilder[response],
		hedgepolicy.NewWithDelay[response], hedgepolicy.NewWithDelayQuantile[response], ratelimiter.NewSmooth[response],
		ratelimiter.NewBursty[response], adaptivethrottler.NewBuilder[response], fallback.NewWithResult[response],
		cachepolicy.NewBuilder[response]}
}

func heimdallNames(c *httpclient.Client) []any {
	return []any{httpclient.WithRetryCount, heimdall.NewConstantBackoff, heimdall.NewExponentialBackoff,
		httpclient.WithRetrier, heimdall.NewRetrierFunc, httpclient.WithHTTPTimeout, httpclient.WithHTTPClient, c.AddPlugin}
}

func restyNames(c *resty.Client) []any {
	return []any{c.SetRetryCount, c.SetRetryWaitTime, c.SetRetryMaxWaitTime, c.AddRetryCondition,
		c.AddRetryAfterErrorCondition, c.SetRetryAfter, c.AddRetryHook, c.SetRetryResetReaders, c.SetTimeout}
}

func backoffNames(e *backoff.ExponentialBackOff, z backoff.ZeroBackOff, s backoff.StopBackOff) []any {
	return []any{z, s, backoff.NewExponentialBackOff, e.InitialInterval, e.RandomizationFactor, e.Multiplier, e.MaxInterval,
		backoff.NewConstantBackOff, backoff.WithMaxTries, backoff.WithMaxElapsedTime, backoff.WithNotify, backoff.Permanent,
		backoff.RetryAfter}
}

func loopNames() []any { return nil }

// standardNames are the names of the standard library in the second column.
func standardNames(c *http.Client, rt http.RoundTripper, l *slog.Logger) []any {
	return []any{c, rt, l, http.NewRequest}
}

// namesOf has the function with the names of each section with a table.
var namesOf = map[string]any{
	"go-retryablehttp": retryablehttpNames, "rehttp": rehttpNames, "failsafe-go": failsafeNames, "heimdall": heimdallNames,
	"resty": restyNames, "cenkalti/backoff": backoffNames, "a hand-written loop": loopNames,
	"": standardNames, // for the second column
}

// TestNames: the names in the first column of a table belong to the library, and those
// in the second column to aplomb.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	compiled, ours := compiledNames(t), listedNames(t)
	span, name := regexp.MustCompile("`([^`]*)`"), regexp.MustCompile(`[A-Za-z_][\w.]*`)
	heading, rows := "", 0
	for line := range strings.Lines(string(text)) {
		if after, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.TrimSpace(after)
		}
		cells := strings.Split(line, "|")
		if namesOf[heading] == nil || heading == "" || len(cells) != 4 {
			continue
		}
		rows++
		for _, s := range span.FindAllStringSubmatch(cells[1], -1) {
			assert.True(t, compiled[heading][s[1]] || s[1] == "select", "%s: the library has no %s, or names_test.go lacks it", heading, s[1])
		}
		for _, s := range span.FindAllStringSubmatch(cells[2], -1) {
			for _, n := range name.FindAllString(s[1], -1) {
				assert.False(t, !ours[n] && !compiled[""][n] && n != "Retry" && n != "After", "%s: aplomb has no %s", heading, n)
			}
		}
	}
	assert.GreaterOrEqual(t, rows, 50, "the document has only %d rows of options", rows)
}

// compiledNames returns, for each section, the names that its function uses: Name and
// package.Name.
func compiledNames(t *testing.T) map[string]map[string]bool {
	file, err := parser.ParseFile(token.NewFileSet(), "names_test.go", nil, 0)
	require.NoError(t, err)
	functions := map[string]*ast.FuncDecl{}
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			functions[f.Name.Name] = f
		}
	}
	names := map[string]map[string]bool{}
	for heading, f := range namesOf {
		full := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		set := map[string]bool{}
		names[heading] = set
		ast.Inspect(functions[full[strings.LastIndexByte(full, '.')+1:]], func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					set[s.Sel.Name], set[x.Name+"."+s.Sel.Name] = true, true
				}
			}
			return true
		})
	}
	return names
}

// listedNames returns the exported names of docs/api: package.Name, Type.Field, and the
// fields of the types that users write without their type.
func listedNames(t *testing.T) map[string]bool {
	files, err := filepath.Glob("../../docs/api/*.txt")
	require.True(t, err == nil && len(files) > 0, "%v, %v", files, err)
	names := map[string]bool{}
	exported := regexp.MustCompile(`(?m)^(?:type|func|const|var|field) (?:\(\*?(\w+)\)\.)?([\w.]+)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		base := strings.TrimSuffix(filepath.Base(file), ".txt")
		base = base[strings.LastIndex(base, "-")+1:]
		for _, m := range exported.FindAllStringSubmatch(string(text), -1) {
			names[base+"."+m[2]] = true
			names[m[2]] = true // Type.Field
			kind, field, ok := strings.Cut(m[2], ".")
			switch {
			case ok && (kind == "Rule" || base == "backoff"):
				names[field] = true
			case ok: // RateLimit.Burst and the like
				names[kind+"."+field] = true
			}
		}
	}
	return names
}
