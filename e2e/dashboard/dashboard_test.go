package dashboard

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/testkit"
)

const docs = "../../docs/"

// story is played once.
var story struct {
	once sync.Once
	*samples
}

func theStory(t *testing.T) *samples {
	story.once.Do(func() { story.samples = play(t) })
	require.NotNil(t, story.samples)
	return story.samples
}

// variables are those of Grafana, as it fills them in.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$job", "orders", "$host", ".*")

// A dashboard is one of Grafana, as far as the tests read it.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func theDashboard(t *testing.T) (d dashboard) {
	text := testkit.Must(os.ReadFile(docs + "grafana.json"))(t)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// TestDashboard: each query of the dashboard is correct and returns data, and each shows that
// something happens in the story.
func TestDashboard(t *testing.T) {
	dashboard := theDashboard(t)
	all, used, ids := theStory(t), map[string]bool{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], "%s: the id %d is there twice", p.Title, p.ID)
		ids[p.ID] = true
		assert.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, q := range p.Targets {
			expr := variables.Replace(q.Expr)
			assert.NotContains(t, expr, "$", p.Title)
			found := all.query(t, expr)
			assert.Greater(t, most(found), 0.0, "%s: %s", p.Title, expr)
			for _, name := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				assert.True(t, slices.ContainsFunc(found, func(s promql.Series) bool { return s.Metric.Get(name[1]) != "" }), "%s: no label %s", p.Title, name[1])
			}
			for _, name := range names(t, expr) {
				used[name] = true
			}
		}
	}
	assert.GreaterOrEqual(t, len(used), 19)
	for _, v := range dashboard.Templating.List {
		if v.Name == "datasource" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, m, v.Definition)
		found := all.query(t, variables.Replace(m[1]))
		assert.True(t, slices.ContainsFunc(found, func(s promql.Series) bool { return s.Metric.Get(m[2]) != "" }), v.Definition)
	}
}

// TestHostsInTrouble: the first panel names each host with its condition during the trouble,
// and none of them afterwards.
func TestHostsInTrouble(t *testing.T) {
	first := theDashboard(t).Panels[0]
	require.Equal(t, "Hosts in trouble", first.Title)
	all, during := theStory(t), []string{}
	for _, s := range all.query(t, variables.Replace(first.Targets[0].Expr)) {
		name := s.Metric.Get("server_address") + " " + s.Metric.Get("aplomb_reason")
		last := s.Floats[len(s.Floats)-1]
		assert.Equal(t, end, time.UnixMilli(last.T).Sub(all.began), "%s vanishes, so its last value stays in the legend", name)
		for _, p := range s.Floats {
			switch at := time.UnixMilli(p.T).Sub(all.began); {
			case at == well-5*time.Minute && p.F == 1:
				during = append(during, name)
			case at < trouble, at > well+5*time.Minute:
				assert.Zero(t, p.F, "%s after %v", name, at)
			}
		}
	}
	assert.ElementsMatch(t, []string{
		"gated.test circuit_open", "down.test circuit_open",
		"held.test throttled", "slow.test concurrency",
	}, during)
}

// TestRunbook: the panels that the runbook names are there.
func TestRunbook(t *testing.T) {
	text := testkit.Must(os.ReadFile(docs + "observability.md"))(t)
	_, runbook, _ := strings.Cut(string(text), "\n## Dashboard and alerts\n")
	titles := "\n"
	for _, p := range theDashboard(t).Panels {
		titles += p.Title + "\n"
	}
	named := regexp.MustCompile(`(?:at|panel,) "([^"]+)"`).FindAllStringSubmatch(runbook, -1)
	assert.Greater(t, len(named), 5)
	for _, name := range named {
		assert.Contains(t, titles, "\n"+name[1], "docs/observability.md")
	}
}

// names returns the names of the metrics in an expression.
func names(t *testing.T, expr string) (all []string) {
	parsed := testkit.Must(parser.NewParser(parser.Options{}).ParseExpr(expr))(t)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			all = append(all, v.Name)
		}
		return nil
	})
	return all
}

// A span is a time in which an alert fires, since the beginning of the story.
type span struct{ from, to time.Duration }

// fires returns when a rule fires, by what it fires for. It fires once its expression has
// held for the time of its "for" at each evaluation.
func fires(t *testing.T, all *samples, r rulefmt.Rule) map[string][]span {
	found := map[string][]span{}
	for _, s := range all.query(t, r.Expr) {
		name := s.Metric.Get("server_address")
		if name == "" {
			name = s.Metric.Get("instance")
		}
		var since, last time.Duration = -1, -1
		for _, p := range s.Floats {
			at := time.UnixMilli(p.T).Sub(all.began)
			if since < 0 || at-last > scrape {
				since = at
			}
			last = at
			if at-since < time.Duration(r.For) {
				continue
			}
			if n := len(found[name]); n == 0 || at-found[name][n-1].to > scrape {
				found[name] = append(found[name], span{at, at})
			}
			found[name][len(found[name])-1].to = at
		}
	}
	return found
}

// TestAlerts: each alert fires for the right hosts, soon after the trouble began, until soon
// after it is over, and never before.
func TestAlerts(t *testing.T) {
	groups, faults := rulefmt.ParseFile(docs+"alerts.yml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, faults)
	want := map[string]struct {
		hosts []string
		soon  time.Duration // after the beginning of the trouble
	}{
		"AplombHostDown":       {[]string{"down.test", "gated.test"}, 8 * time.Minute},
		"AplombRetriesWaiting": {[]string{"down.test", "gated.test"}, 8 * time.Minute},
		"AplombThrottled":      {[]string{"held.test"}, 16 * time.Minute},
		"AplombRetries":        {[]string{"flaky.test"}, 16 * time.Minute},
		"AplombRefused":        {[]string{"held.test", "paced.test", "slow.test"}, 16 * time.Minute},
		"AplombNotRetried":     {[]string{"orders.test"}, 16 * time.Minute},
		"AplombFleetLost":      {[]string{"10.0.0.1:8080"}, 3 * time.Minute},
	}
	runbook := testkit.Must(os.ReadFile(docs + "observability.md"))(t)
	all, seen := theStory(t), 0
	for _, group := range groups.Groups {
		for _, r := range group.Rules {
			seen++
			found := fires(t, all, r)
			for _, host := range want[r.Alert].hosts {
				spans := found[host]
				if !assert.Len(t, spans, 1, "%s for %s", r.Alert, host) {
					continue
				}
				assert.Greater(t, spans[0].from, trouble, "%s for %s", r.Alert, host)
				assert.LessOrEqual(t, spans[0].from, trouble+want[r.Alert].soon, "%s for %s", r.Alert, host)
				assert.GreaterOrEqual(t, spans[0].to, well-scrape, "%s for %s", r.Alert, host)
				assert.LessOrEqual(t, spans[0].to, well+6*time.Minute, "%s for %s", r.Alert, host)
				delete(found, host)
			}
			assert.Empty(t, found, r.Alert)
			for _, name := range []string{"summary", "runbook_url"} {
				assert.NotEmpty(t, r.Annotations[name], r.Alert)
			}
			_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "docs/observability.md#")
			assert.Equal(t, strings.ToLower(r.Alert), anchor)
			assert.True(t, strings.Contains(string(runbook), "\n### "+r.Alert+"\n"), "docs/observability.md lacks %s", r.Alert)
			assert.NotContains(t, labels.FromMap(r.Labels).Get("severity"), " ")
		}
	}
	assert.Equal(t, len(want), seen)
}
