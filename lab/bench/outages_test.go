// The table of outages in README.md.

package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
	"github.com/aplomb-go/aplomb/internal/testkit"
	"github.com/aplomb-go/aplomb/lab/internal/document"
	"github.com/aplomb-go/aplomb/lab/outages"
)

// An outage is a row of the table.
type outage struct {
	text   string
	story  string                      // of package outages
	setups map[string]func(terms) doer // how a library is told what the story needs, as in features
}

var outageRows = []outage{
	{"8 workers, 20,000 files, 503 for 20 s: lost/sent", "closed-8-0ms/503/20s", nil},
	{"64 workers, 80,000 files, 503 for 20 s: lost/sent", "closed-64-0ms/503/20s", nil},
	{"2/s, 503 for 10 s: lost/sent", "open-2/503/10s", nil},
	{"200/s, 503 for 20 s: lost/sent", "open-200/503/20s", nil},
	{"200/s, silent for 10 s, attempts of 1 s: lost/sent", "open-200/silent/10s", boundSetups},
	{"200/s, no connections for 0.5 s of every 3 s: lost/sent", "restarts/200", nil},
	{"500/s, a tenth gets 503 with Retry-After: 1: lost", "random-0.1-wait/500", nil},
}

// TestOutages: README.md has the table of outages. Aplomb loses nothing in them. make compare and make soak play them.
func TestOutages(t *testing.T) {
	if soak.Size(true, false) && !*update && !testing.Verbose() {
		t.Skip("make compare ONLY=outages plays the outages")
	}
	var table strings.Builder
	writeHeads(t, &table)
	for _, row := range outageRows {
		cells := []string{row.text}
		f := feature{setups: row.setups}
		for i, l := range described()[1:] { // without net/http
			synctest.Test(t, func(t *testing.T) {
				lost, sent, err := outages.Play(row.story, func(base http.RoundTripper) http.RoundTripper {
					return doing{f.setup(&l).newClient(terms{base: base, usual: true})}
				})
				require.NoError(t, err)
				assert.False(t, i == 0 && lost > 0, "aplomb loses %d: %s", lost, row.text)
				cell := fmt.Sprint(lost)
				if strings.Contains(row.text, "/sent") {
					cell += fmt.Sprint("/", sent)
				}
				cells = append(cells, cell)
			})
		}
		fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | "))
	}
	if testing.Verbose() {
		fmt.Print(table.String())
	}
	document.Compare(t, comparison, map[string]string{"outages": table.String()}, *update, near)
}

var number = regexp.MustCompile(`[0-9]+`)

// near reports whether two tables have the same text, and numbers that differ by three standard deviations at most, as if
// each of them were a count of independent events. Most waits are random.
func near(old, now string) bool {
	was, is := number.FindAllString(old, -1), number.FindAllString(now, -1)
	if number.ReplaceAllString(old, "") != number.ReplaceAllString(now, "") || len(was) != len(is) {
		return false
	}
	for i := range was {
		a, _ := strconv.ParseFloat(was[i], 64)
		b, _ := strconv.ParseFloat(is[i], 64)
		if math.Abs(a-b) > 3*math.Sqrt(a+b) {
			return false
		}
	}
	return true
}

// TestNear: a figure of chance may differ, and neither a text nor another figure.
func TestNear(t *testing.T) {
	for _, row := range []struct {
		old, now string
		want     bool
	}{
		{"| 0/15 |", "| 0/18 |", true},
		{"| 2664/8000 |", "| 2700/8100 |", true},
		{"| 0/15 |", "| 0/40 |", false},
		{"| 984 |", "| 1359 |", false},
		{"| 0 |", "| 0/0 |", false},
		{"| GETs 0 |", "| PUTs 0 |", false},
	} {
		assert.Equal(t, row.want, near(row.old, row.now), "%s, %s", row.old, row.now)
	}
}

// TestBodiesInMemoryHaveNoWriteTo: the base of the questions about cost has bodies as net/http has them. A WriteTo would
// copy the whole body at once.
func TestBodiesInMemoryHaveNoWriteTo(t *testing.T) {
	req := testkit.Must(target{url: anyURL}.request(t.Context(), http.MethodGet))(t)
	resp := testkit.Must((&flaky{body: "x"}).RoundTrip(req))(t)
	defer resp.Body.Close()
	_, ok := resp.Body.(io.WriterTo)
	assert.False(t, ok)
}
