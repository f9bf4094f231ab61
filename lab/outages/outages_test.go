package outages

import (
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/policy"
)

var (
	only = flag.String("only", "", "a regular expression: the stories whose names match; none: the main stories")
	who  = flag.String("clients", "aplomb|off|retryablehttp|rehttp", "a regular expression of clients")
)

// chosen returns the stories that -only chooses, or those with these names, or all.
func chosen(t *testing.T, names []string) (some []*story) {
	pattern, err := regexp.Compile(*only)
	require.NoError(t, err)
	for _, s := range stories() {
		if *only != "" && pattern.MatchString(s.name) || *only == "" && (names == nil || slices.Contains(names, s.name)) {
			some = append(some, s)
		}
	}
	if require.NotEmpty(t, some); *only == "" && names != nil {
		require.Len(t, some, len(names))
	}
	return some
}

// TestTable plays stories and prints the table.
func TestTable(t *testing.T) {
	if !testing.Verbose() {
		t.Skip("make outages prints the table")
	}
	pattern, err := regexp.Compile("^(" + *who + ")$")
	require.NoError(t, err)
	var rows []*row
	for _, s := range chosen(t, shown) {
		for _, c := range clients {
			if pattern.MatchString(c.name) || c.name == plain.name && s.refuses {
				rows = append(rows, &row{story: s, client: c})
			}
		}
	}
	t.Run("play", func(t *testing.T) {
		for _, r := range rows {
			t.Run(r.story.name+"/"+r.client.name, func(t *testing.T) {
				t.Parallel()
				r.figures = played(t, r.story, r.client)
			})
		}
	})
	markdown(os.Stdout, rows)
}

var plays sync.Map // of a story and a client: a function that returns the figures

// played returns the figures of a story with a client. It plays them once in a run of the tests.
func played(t *testing.T, s *story, c client) figures {
	once, _ := plays.LoadOrStore(s.name+" "+c.name, sync.OnceValue(func() (f figures) {
		synctest.Test(t, func(*testing.T) { f = s.play(c) })
		return f
	}))
	return once.(func() figures)()
}

// peersIn returns the figures of the others in a story.
func peersIn(t *testing.T, s *story) peers {
	return func(c client) figures { return played(t, s, c) }
}

// TestBounds judges aplomb beside the others. make test-rest judges some of the stories, and make soak all.
func TestBounds(t *testing.T) {
	for _, s := range chosen(t, soak.Size(short, nil)) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, b := range bounds {
				if !b.of(s) {
					continue
				}
				got, most, say := played(t, s, aplomb)[b.figure], b.most(s, peersIn(t, s)), t.Logf
				if got > most {
					say = t.Errorf
				}
				say("%s, %s: %.4g, asked at most %.4g", s.name, b.name, got, most)
			}
		})
	}
}

// TestSabotage checks that each bound sees a client that breaks it.
func TestSabotage(t *testing.T) {
	refused := aplombWith("refused", policy.Rule{Concurrency: policy.Concurrency{Max: 20}})
	seen := map[string]bool{}
	for _, row := range []struct {
		bound, story string
		client
	}{
		{"lost", "open-2/503/10s", plain},
		{"while down", "open-200/503/20s", re},
		{"while down, closed", "closed-8-0ms/503/20s", off},
		{"while down, as off", "restarts/200", re},
		{"while down, breaker", "breaker-200/503/20s", retryable},
		{"peak", "open-200/503/20s", off},
		{"peak, told the same time", "together/429", retryable},
		{"done", "open-200/503/20s", off},
		{"back", "capacity-0.8-100T/503/5s", retryable},
		{"goodput", "overload-2-1T", off},
		{"attempts", "overload-2-1T", off},
		{"attempts, half", "half/2s-0.05", off},
		{"in time, half", "half/2s", late},
		{"no slower", "random-0.1-wait/500", late},
		{"no slower beside", "beside-10/s", late},
		{"nothing waits", "full/deadlines", refused},
	} {
		seen[row.bound] = true
		t.Run(row.bound, func(t *testing.T) {
			t.Parallel()
			all := stories()
			s := all[slices.IndexFunc(all, func(s *story) bool { return s.name == row.story })]
			b := bounds[slices.IndexFunc(bounds, func(b bound) bool { return b.name == row.bound })]
			require.True(t, b.of(s))
			assert.Greater(t, played(t, s, row.client)[b.figure], b.most(s, peersIn(t, s)))
		})
	}
	for _, b := range bounds {
		assert.True(t, seen[b.name], b.name)
	}
}

// late waits for 40 s before its first retry.
var late = client{"late", func(_ *story, base http.RoundTripper) http.RoundTripper {
	when := rehttp.RetryAll(rehttp.RetryMaxRetries(5), rehttp.RetryStatusInterval(500, 600))
	return rehttp.NewTransport(base, when, rehttp.ConstDelay(40*time.Second))
}}
