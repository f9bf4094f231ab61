package bounds

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestBounds(t *testing.T) {
	got := Of(backoff.Exponential{}, 7)
	require.Len(t, got, 7)
	var total time.Duration
	for i, mean := range []time.Duration{1500, 2500, 4500, 8500, 16500, 31500, 31500} {
		total += mean * ms
		assert.Equal(t, mean*ms, got[i].Lowest+500*ms)
		assert.Equal(t, mean*ms, got[i].Highest-500*ms)
		assert.InDelta(t, mean*ms, got[i].Mean, 10)
		assert.InDelta(t, total, got[i].Cumulated, 100)
	}
}

func TestBoundsEnd(t *testing.T) {
	assert.Len(t, Of(backoff.Geometric{}, 50), 4)
	for _, n := range []int{-1, 0} {
		assert.Empty(t, Of(backoff.Exponential{}, n))
	}
	assert.Equal(t, Of(backoff.Exponential{}, 8), Of(nil, 8))
	assert.Empty(t, Of(struct{ backoff.Exponential }{}, 3), "a type that embeds a formula may have waits of its own")
}

// Where prev matters, the extremes are those of a whole chain, and the mean is
// that over all chains: below the cap (base + 3·mean)/2, by the formula.
func TestBoundsOfAChain(t *testing.T) {
	got := Of(backoff.Exponential{Base: 100 * ms, Max: time.Hour, Jitter: backoff.JitterDecorrelated}, 6)
	mean := 100.0
	for i, high := range []time.Duration{300, 900, 2700, 8100, 24300, 72900} {
		mean = (100 + 3*mean) / 2
		assert.Equal(t, 100*ms, got[i].Lowest)
		assert.Equal(t, high*ms, got[i].Highest)
		assert.InEpsilon(t, mean*float64(ms), got[i].Mean, 1e-6)
	}
	got = Of(backoff.Exponential{Base: 100 * ms, Max: sec, Jitter: backoff.JitterDecorrelated}, 4)
	for i, mean := range []float64{200, 350, 455.5, 481.5} { // of a million chains, which the cap bends
		assert.InEpsilon(t, mean*float64(ms), got[i].Mean, 0.002)
	}
}

func TestBoundsSumsDoNotOverflow(t *testing.T) {
	got := Of(backoff.Constant(math.MaxInt64), 3)
	assert.Equal(t, Bound{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}, got[2])
}

func TestBoundsOfConstants(t *testing.T) {
	assert.Empty(t, Of(backoff.Constant(backoff.Stop), 3))
	assert.Equal(t, []Bound{{}, {}}, Of(backoff.Constant(0), 2))
}

// documented are the formulas whose comments have tables.
var documented = map[string]backoff.Backoff{
	"Exponential": backoff.Exponential{}, "Google": backoff.Google{}, "Geometric": backoff.Geometric{}, "Normal": backoff.Normal{},
	"Randomized": backoff.Randomized{}, "Constant": backoff.Constant(2 * sec),
}

// The tables in the comments of the types are what the formulas give.
func TestTablesInComments(t *testing.T) {
	code, err := os.ReadFile("../../policy/backoff/backoff.go")
	require.NoError(t, err)
	found := 0
	for _, typ := range regexp.MustCompile(`((?m:^//.*\n)+)type (\w+) `).FindAllStringSubmatch(string(code), -1) {
		_, table, ok := strings.Cut(typ[1], "\tretry")
		if !ok {
			continue
		}
		found++
		table, _, _ = strings.Cut("\tretry"+strings.ReplaceAll(table, "//\t", "\t"), "\n//")
		table = strings.TrimRight(table, "\n")
		b := documented[typ[2]]
		require.NotNil(t, b, typ[2])
		assert.Equal(t, waitsTable(b, strings.Count(table, "\n")), table, typ[2])
		assert.Zero(t, testing.AllocsPerRun(100, func() { b.Delay(3, sec) }), typ[2])
	}
	assert.Len(t, documented, found)
}

// waitsTable prints the first n waits of b to the millisecond, as the comments
// do.
func waitsTable(b backoff.Backoff, n int) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = w.Write([]byte("|" + strings.Join(cells, "\t") + "\n")) }
	row("retry", "lowest", "mean", "highest")
	for i, wait := range Of(b, n) {
		row(strconv.Itoa(i+1), seconds(wait.Lowest), seconds(wait.Mean), seconds(wait.Highest))
	}
	w.Flush()
	return strings.TrimSuffix(strings.ReplaceAll(text.String(), "|", "\t"), "\n")
}

func seconds(d time.Duration) string {
	if d = d.Round(ms); 0 < d && d < sec {
		return d.String()
	}
	return strconv.FormatFloat(float64(d/ms)/1000, 'f', -1, 64) + "s"
}
