package backoff

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"math"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ms     = time.Millisecond
	sec    = time.Second
	lowest = math.MinInt64
)

// formulas are all back-offs of this package, with their defaults and with what
// they promise.
var formulas = map[string]struct {
	backoff interface {
		Delayer
		kernel
		Validate() error
	}
	longest time.Duration // no wait is longer
	alive   time.Duration // by this much waits differ at the cap; 0: they do not
}{
	"Exponential":          {Exponential{}, 32 * sec, sec},
	"Exponential literal":  {Exponential{Literal: true}, 32 * sec, 0},
	"FullJitter":           {FullJitter{}, 20 * sec, 20 * sec},
	"EqualJitter":          {EqualJitter{}, 20 * sec, 10 * sec},
	"Decorrelated":         {Decorrelated{}, 20 * sec, 20*sec - 100*ms},
	"Decorrelated literal": {Decorrelated{Literal: true}, 20 * sec, 20*sec - 100*ms},
	"Randomized":           {Randomized{}, 60 * sec, 40 * sec},
	"Randomized literal":   {Randomized{Literal: true}, 90 * sec, 60 * sec},
	"Normal":               {Normal{}, 900 * sec, 900 * sec * 6 / 13},
	"Normal literal":       {Normal{Literal: true}, 1170 * sec, 540 * sec},
	"Geometric":            {Geometric{}, 10 * sec, 2 * sec},
	"Geometric literal":    {Geometric{Literal: true}, 10 * sec, 0},
	"Constant":             {Constant(sec), sec, 0},
}

// walk returns the first n waits for one random number, each following the one
// before it. It ends where the back-off stops.
func walk(k kernel, n int, u float64) []time.Duration {
	var waits []time.Duration
	var prev time.Duration
	for i := range n {
		if prev = k.at(i, prev, u); prev < 0 {
			break
		}
		waits = append(waits, prev)
	}
	return waits
}

// meets checks what every formula promises for one input. x and y stand for two
// random numbers.
func meets(t *testing.T, b interface {
	Delayer
	kernel
}, n int, prev time.Duration, x, y uint64, longest time.Duration) {
	t.Helper()
	u, v := float64(min(x, y)>>11)/(1<<53), float64(max(x, y)>>11)/(1<<53)
	low, high := b.at(n, prev, u), b.at(n, prev, v)
	if low < 0 || low > high || high > longest {
		t.Errorf("%#v at n %d, prev %d: %d for u %v, %d for u %v; not 0 ≤ low ≤ high ≤ %d", b, n, prev, low, u, high, v, longest)
	}
	if wait := b.Delay(n, prev); wait < 0 || wait > longest {
		t.Errorf("%#v: Delay(%d, %d) is %d; not from 0 to %d", b, n, prev, wait, longest)
	}
}

// highest is a field Max that is set to top, where zero means def.
func highest(top int64, def time.Duration) time.Duration {
	if top > 0 {
		return time.Duration(top)
	}
	return def
}

// exceeding is d · factor with room for float64's rounding.
func exceeding(d time.Duration, factor float64) time.Duration {
	x := float64(d) * factor * (1 + 1e-12)
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(x) + 1
}

func TestFormulasMeetTheirPromises(t *testing.T) {
	for name, formula := range formulas {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, formula.backoff.Validate())
			for _, n := range []int{lowest, -1, 0, 1, 2, 5, 31, 62, 63, 64, 1000, math.MaxInt64} {
				for _, prev := range []time.Duration{lowest, -1, 0, 1, sec, time.Hour, forever} {
					if formula.backoff == (Geometric{Literal: true}) && n > 3 {
						assert.Negative(t, formula.backoff.Delay(n, prev))
						continue
					}
					for _, x := range []uint64{0, 1 << 40, 1 << 63, math.MaxUint64} {
						meets(t, formula.backoff, n, prev, x, math.MaxUint64, formula.longest)
					}
				}
			}
		})
	}
}

func TestJitterIsAliveAtTheCap(t *testing.T) {
	for name, formula := range formulas {
		if formula.alive == 0 {
			continue
		}
		low, high := formula.longest, time.Duration(0)
		for range 1000 {
			wait := formula.backoff.Delay(1000, 0)
			if _, chained := formula.backoff.(Decorrelated); chained {
				wait = formula.backoff.Delay(1000, 20*sec)
			}
			low, high = min(low, wait), max(high, wait)
		}
		// The least likely to fail here is off by chance once in 10^100 runs:
		// the normal distribution, for which a quarter of the range is ±¾ σ.
		assert.Greater(t, high-low, formula.alive/4, name)
	}
}

func TestTheWholeSpreadIsPossibleAtTheCap(t *testing.T) {
	for name, formula := range formulas {
		prev := time.Duration(0)
		if _, chained := formula.backoff.(Decorrelated); chained {
			prev = 20 * sec
		}
		low, high := formula.backoff.at(1000, prev, 0), formula.backoff.at(1000, prev, justBelowOne)
		assert.InDelta(t, formula.alive, high-low, 2, name)
	}
}

// A wait whose random number is kept would come out the same every time.
func TestEachWaitDrawsAnew(t *testing.T) {
	for name, formula := range formulas {
		if formula.alive == 0 && name != "Exponential literal" {
			continue
		}
		seen := map[time.Duration]bool{}
		for range 200 {
			seen[formula.backoff.Delay(1, 3*sec)] = true
		}
		assert.Greater(t, len(seen), 50, name)
	}
}

func TestDelayDoesNotAllocate(t *testing.T) {
	for name, formula := range formulas {
		var b Delayer = formula.backoff
		assert.Zero(t, testing.AllocsPerRun(100, func() { b.Delay(3, sec) }), name)
	}
}

func TestDrawsAreUniform(t *testing.T) {
	counts := make([]int, 11)
	const grid = 1100
	for i := range grid {
		counts[between(5, 15, float64(i)/grid)-5]++
	}
	for i, n := range counts {
		assert.Equal(t, grid/11, n, "of %d", i+5)
	}
	assert.Equal(t, forever, between(0, forever, justBelowOne)+1023, "float64 has no more digits than that")
	assert.Equal(t, 3*sec, between(3*sec, 2*sec, 0.5))
}

func TestArithmeticKeepsToItsBounds(t *testing.T) {
	assert.Equal(t, forever, times(forever, 2, forever))
	assert.Equal(t, forever-65, times(forever-65, 1, forever))
	assert.Equal(t, 5*sec, times(sec, math.Inf(1), 5*sec))
	assert.Equal(t, 5*sec, times(sec, math.NaN(), 5*sec))
	assert.Zero(t, times(sec, math.Inf(-1), 5*sec))
	assert.Zero(t, times(sec, 1, -1))
	assert.Equal(t, forever, plus(forever, 1))
	assert.Equal(t, forever, plus(forever-1, 1))
	assert.Equal(t, 3*sec, plus(sec, 2*sec))
	assert.Equal(t, sec, grow(sec, 2, lowest, forever))
	assert.Equal(t, forever, grow(1, 2, 63, forever))
}

func TestValidateNamesEveryBadField(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		backoff interface{ Validate() error }
		want    string // the fields, in order
	}{
		{Exponential{Base: -1, Max: -1}, "Base Max"},
		{Exponential{Jitter: -1}, ""},
		{Exponential{Max: 500 * ms}, "Max Max"}, // less than the default Base and Spread
		{Exponential{Base: 100 * ms, Max: 500 * ms}, ""},
		{Exponential{Base: 500 * ms, Max: 500 * ms}, ""},
		{Exponential{Base: 100 * ms, Jitter: sec, Max: 500 * ms}, "Max"},
		{Exponential{Base: 100 * ms, Max: 500 * ms, Literal: true}, ""},
		{Exponential{Base: 100 * ms, Jitter: 100 * ms, Max: 500 * ms}, ""},
		{FullJitter{Base: -1, Max: -1}, "Base Max"},
		{FullJitter{Base: 2, Max: 1}, "Max"},
		{EqualJitter{Max: 1}, "Max"},
		{Decorrelated{Base: time.Minute}, "Max"},
		{Randomized{Interval: -1, Multiplier: 0.5, MaxInterval: -1, RandomizationFactor: 1.5},
			"Interval Multiplier MaxInterval RandomizationFactor"},
		{Randomized{Multiplier: nan, RandomizationFactor: nan}, "Multiplier RandomizationFactor"},
		{Randomized{Multiplier: inf, RandomizationFactor: -inf}, "Multiplier RandomizationFactor"},
		{Randomized{Multiplier: 1, RandomizationFactor: 1}, ""},
		{Randomized{RandomizationFactor: -1}, ""},
		{Randomized{Multiplier: -2}, "Multiplier"},
		{Randomized{MaxInterval: 100 * ms}, "MaxInterval"},
		{Normal{MinDelay: -1, Factor: -1, MaxDelay: -1, Jitter: 0.34}, "MinDelay Factor MaxDelay Jitter"},
		{Normal{Factor: 1, Jitter: 1.0 / 3}, ""},
		{Normal{Factor: 2.7, Jitter: -0.5}, ""},
		{Normal{MinDelay: 2, MaxDelay: 1}, "MaxDelay"},
		{Geometric{First: -1, Rate: nan, Max: -1, Jitter: inf}, "First Rate Max Jitter"},
		{Geometric{First: 2 * sec, Max: sec}, "Max"},
		{Geometric{Jitter: 0.5, Literal: true}, "Jitter"},
		{Geometric{Jitter: -1, Literal: true}, ""},
		{Constant(-1), ""},
	} {
		var got []string
		if err := test.backoff.Validate(); err != nil {
			for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
				var fault *Invalid
				require.ErrorAs(t, part, &fault)
				got = append(got, fault.Field)
			}
		}
		assert.Equal(t, test.want, strings.Join(got, " "), "%+v", test.backoff)
	}
	assert.EqualError(t, Exponential{Max: 500 * ms, Base: 1, Jitter: sec}.Validate(), "Max: 500ms is less than Jitter (1s)")
	assert.EqualError(t, Normal{Jitter: nan}.Validate(), "Jitter: NaN is not a number up to 0.3333")
}

// What Validate refuses, Delay takes for the default.
func TestRefusedFieldsCountAsDefaults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct{ bad, good kernel }{
		{Exponential{Base: -1, Max: -1}, Exponential{}},
		{FullJitter{-1, -1}, FullJitter{}},
		{EqualJitter{-1, -1}, EqualJitter{}},
		{Decorrelated{Base: -1, Max: -1}, Decorrelated{}},
		{Randomized{-1, nan, -1, nan, false}, Randomized{}},
		{Randomized{-1, inf, -1, -inf, true}, Randomized{Literal: true}},
		{Randomized{-1, 0.9, -1, 1.1, false}, Randomized{}},
		{Normal{-1, nan, -1, nan, false}, Normal{}},
		{Normal{-1, -inf, -1, 0.34, true}, Normal{Literal: true}},
		{Geometric{-1, nan, -1, inf, false}, Geometric{}},
	} {
		for _, u := range []float64{0, 0.3, 0.5, justBelowOne} {
			assert.Equal(t, walk(test.good, 20, u), walk(test.bad, 20, u), "%+v", test.bad)
		}
	}
}

// The tables in the comments of the types are what the formulas give.
func TestTablesInComments(t *testing.T) {
	documented := map[string]Delayer{
		"Exponential": Exponential{}, "FullJitter": FullJitter{}, "EqualJitter": EqualJitter{},
		"Decorrelated": Decorrelated{}, "Randomized": Randomized{}, "Normal": Normal{},
		"Geometric": Geometric{}, "Constant": Constant(2 * sec),
	}
	files := token.NewFileSet()
	for _, file := range []string{"exponential.go", "jitter.go", "randomized.go", "normal.go", "geometric.go", "constant.go"} {
		parsed, err := goparser.ParseFile(files, file, nil, goparser.ParseComments)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			name := types.Specs[0].(*ast.TypeSpec).Name.Name
			_, table, _ := strings.Cut(types.Doc.Text(), "\tretry")
			table, _, _ = strings.Cut("\tretry"+table, "\n\n")
			table = strings.TrimRight(table, "\n")
			assert.Equal(t, waitsTable(documented[name], strings.Count(table, "\n")), table, name)
			delete(documented, name)
		}
	}
	assert.Empty(t, documented, "types without a comment")
}

// waitsTable prints the first n waits of b to the millisecond, as the comments
// do.
func waitsTable(b Delayer, n int) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = w.Write([]byte("|" + strings.Join(cells, "\t") + "\n")) }
	row("retry", "lowest", "mean", "highest")
	for i, wait := range Bounds(b, n) {
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

func TestConstant(t *testing.T) {
	for _, wait := range []time.Duration{lowest, -1, 0, 1, sec, forever} {
		for _, n := range []int{-1, 0, 1, math.MaxInt64} {
			assert.Equal(t, wait, Constant(wait).Delay(n, sec))
		}
	}
	assert.Empty(t, Bounds(Constant(-1), 3))
	assert.Equal(t, []Bound{{}, {}}, Bounds(Constant(0), 2))
}
