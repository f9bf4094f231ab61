package literature

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/soak"
)

var update = flag.Bool("update", false, "play all experiments in full and write the tables of ../README.md")

const document = "../README.md"

// played plays the experiments, in full or a tenth of each, and returns the figures. Every sixth client is
// enough for a quick test, and the default of aplomb in each setting. make soak has all.
func played(t *testing.T) map[key]Figures {
	all := *update || soak.Size(false, true)
	cells, others := map[key]Figures{}, 0
	var mu sync.Mutex
	t.Run("play", func(t *testing.T) {
		for _, m := range Models() {
			for _, s := range m.Settings {
				others++ // so that each setting has other clients
				for _, a := range m.arms() {
					if a.Name != byDefault {
						if others++; !all && others%6 != 0 {
							continue
						}
					}
					t.Run(fmt.Sprint(m.Name, "/", s.Name, "/", a.Name), func(t *testing.T) {
						t.Parallel()
						f := figuresOf(t, m, s, a)
						mu.Lock()
						defer mu.Unlock()
						cells[key{m.Name, s.Name, a.Name}] = f
					})
				}
			}
		}
	})
	return cells
}

func figuresOf(t *testing.T, m *Model, s Setting, a Arm) Figures {
	runs, part := max(1, s.Runs), 1.0
	if !*update {
		runs, part = (runs+9)/10, 0.1
	}
	var c Record
	for seed := range uint64(runs) {
		synctest.Test(t, func(*testing.T) { m.play(s, a, seed, part, &c) })
	}
	return m.figures(s, &c)
}

// The tables of the document are what the experiments say. With -update the experiments are
// played in full and the tables written. Otherwise a tenth is played, and each figure has to be
// near that of the tables.
func TestTables(t *testing.T) {
	cells := played(t)
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), tableStart)
	require.True(t, ok, "%s lacks %q", document, tableStart)
	table, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s lacks %q", document, tableEnd)
	written := parse(table)
	if *update {
		maps.Copy(written, cells) // those that did not run stay
		table = tables(written)
		require.NoError(t, os.WriteFile(document, []byte(before+tableStart+table+tableEnd+after), 0o644))
	}
	written = parse(table)
	assert.Equal(t, tables(written), table, "make storm-literature writes the tables")
	for _, m := range Models() {
		for _, s := range m.Settings {
			for _, a := range m.arms() {
				k := key{m.Name, s.Name, a.Name}
				if f, ok := cells[k]; ok && !(written[k][Back] > 10) { // else each run loses another share
					compare(t, k, written[k], f, s.Runs > 1)
				}
			}
		}
	}
}

// compare checks the figures of a tenth of an experiment. When a server is back only shows in all
// runs together.
func compare(t *testing.T, k key, want, got Figures, several bool) {
	for i := range want {
		if Figure(i) != Back || !several {
			near(t, k, Figure(i), want[i], got[i])
		}
	}
}

// near checks a figure. In a tenth of an experiment whose server fails at random, chance moves load and success.
func near(t *testing.T, k key, i Figure, want, got float64) {
	t.Helper()
	off := math.Abs(want - got)
	switch {
	case math.IsNaN(want) && math.IsNaN(got), want == got:
	case i == Load || i == Outage:
		assert.Less(t, off, 0.2*want+0.06, "%v: load %v instead of %v", k, got, want)
	case i == Success:
		assert.Less(t, off, 8.0, "%v: success %v instead of %v", k, got, want)
	case i == Back:
		assert.Equal(t, want > 10, got > 10, "%v: back after %v s instead of %v", k, got, want)
	case i == Lost:
		assert.Equal(t, want > 0, got > 0, "%v: %v lost instead of %v", k, got, want)
	default:
		assert.Less(t, off, 0.3*want, "%v: time %v instead of %v", k, got, want)
	}
}

// cellsOf reads the figures of the document.
func cellsOf(t *testing.T) map[key]Figures {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	return parse(string(text))
}

// The clients of the authors do what the authors say, within 5 %.
func TestPublished(t *testing.T) {
	cells := cellsOf(t)
	for _, m := range Models() {
		assert.NotEmpty(t, m.Published, "%s", m.Name)
		for _, p := range m.Published {
			got := cells[key{m.Name, p.Setting, p.Arm}][p.Figure]
			if p.Figure == Back {
				assert.Equal(t, math.IsInf(p.Value, 1), math.IsInf(got, 1), "%s: %+v: %v", m.Name, p, got)
				continue
			}
			if p.Figure == Lost {
				assert.Equal(t, p.Value > 0, got > 0, "%s: %+v: %v", m.Name, p, got)
				continue
			}
			assert.InEpsilon(t, p.Value, got, 0.05, "%s: %+v", m.Name, p)
			if p.Figure == Load && m.TimeName == "p99" && p.Value > 1 {
				assert.InDelta(t, p.Value-1, got-1, 0.05*(p.Value-1)+0.005, "%s: extra load: %+v", m.Name, p) // the table has two digits
			}
		}
	}
}

// These are the rules for all experiments. Where a fault ends, the host is back within 10 s, and
// no client of the authors has both less load and more success. Otherwise the document says why.
// A tenth of a percent is chance. While nothing succeeds, there is at most 1.25 times the load: half a second is no outage yet.
func TestRules(t *testing.T) {
	cells := cellsOf(t)
	for _, m := range Models() {
		for _, s := range m.Settings {
			for _, a := range m.ours() {
				f := cells[key{m.Name, s.Name, a.Name}]
				assert.False(t, f[Back] > 10 && !m.said(s, a), "%s, %s, %s: back after %v s", m.Name, s.Name, a.Name, f[Back])
				assert.False(t, f[Outage] > 1.25 && !m.said(s, a), "%s, %s, %s: load %v while nothing succeeds", m.Name, s.Name, a.Name, f[Outage])
				for _, other := range m.Arms {
					g := cells[key{m.Name, s.Name, other.Name}]
					if g[Load] < f[Load] && g[Success] > f[Success]+0.15 && better(f, g) && !m.said(s, a) {
						t.Errorf("%s, %s: %s is better than %s: %v and %v", m.Name, s.Name, other.Name, a.Name, g, f)
					}
				}
			}
		}
	}
}

// better reports whether g has more success than f, or is faster if both always succeed.
func better(f, g Figures) bool {
	if f[Success] == 100 && g[Success] == 100 {
		return g[Time] < f[Time]
	}
	return g[Success] > f[Success]
}

func (m *Model) said(s Setting, a Arm) bool {
	for _, w := range m.Why {
		if (w.Setting == "" || w.Setting == s.Name) && (w.Arm == "" || w.Arm == a.Name) {
			return true
		}
	}
	return false
}
