package report

import (
	"encoding/xml"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/lab/storm/internal/model"
	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// made returns a run that is back so long after the resume; negative: never.
func made(name string, back time.Duration) *record.Run {
	r := record.NewRun(50 * time.Second)
	r.Name, r.Words = name, "a rule in words"
	r.Stop, r.Resume, r.Rate, r.ServerLimit = 10*time.Second, 30*time.Second, 100, 30
	for i := range r.Samples {
		at := time.Duration(i) * record.Step
		r.Samples[i] = record.Sample{Sends: 10, Busy: i % 7}
		if at < r.Stop || back >= 0 && at >= r.Resume+back {
			r.Samples[i].Good = 10
		}
	}
	return r
}

// runsOf returns a run for each strategy. The server comes back with those that are
// coordinated.
func runsOf(strategies []model.Strategy) (all []*record.Run) {
	for _, st := range strategies {
		r := made(st.Name, map[bool]time.Duration{false: -1}[st.Coordinated()])
		r.Words, r.Aplomb, r.Coordinated = st.Words, st.Aplomb(), st.Coordinated()
		all = append(all, r)
	}
	return all
}

// storm returns runs as those of the experiment.
func storm() []*record.Run {
	all := runsOf(model.Strategies(time.Second))
	all[0].Files = 20_000
	for i := range all[0].Samples[400:] {
		all[0].Samples[400+i].Busy = 19_983
	}
	all[1].SentFrozen = 1_234_567
	return all
}

// The picture has colours for light and dark.
func TestWrite(t *testing.T) {
	files, err := Write(t.TempDir(), "A set-up.", storm())
	require.NoError(t, err)
	require.Len(t, files, 2)
	for i, file := range files {
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NoError(t, xml.Unmarshal(svg, new(struct{})))
		assert.Contains(t, string(svg), themes[i].ours)
		assert.NotContains(t, string(svg), themes[1-i].ours, "%s has a colour of the other", file)
	}
}

func TestFinding(t *testing.T) {
	const never = -1
	shared := func(back time.Duration) *record.Run {
		r := made("shared", back)
		r.Coordinated = true
		return r
	}
	own := func(back time.Duration) *record.Run { return made("own", back) }
	for _, c := range []struct {
		runs []*record.Run
		want string
	}{
		{[]*record.Run{own(never), own(8 * time.Second), shared(0)}, "only coordinated clients bring the server back at once"},
		{[]*record.Run{own(0), shared(0)}, "the server comes back with every strategy"},
		{[]*record.Run{own(never), shared(never)}, "the server comes back with none of these strategies"},
		{[]*record.Run{own(never), own(never), shared(8 * time.Second)}, "only coordinated clients bring the server back"},
		{[]*record.Run{own(never), own(8 * time.Second), shared(8 * time.Second)}, "the server comes back with 2 of 3 strategies"},
		{[]*record.Run{own(never), own(0), shared(0)}, "the server comes back with 2 of 3 strategies"},
		{[]*record.Run{shared(0)}, "the server comes back with every strategy"},
	} {
		assert.Equal(t, "After a 20 s freeze, "+c.want, Finding(c.runs))
	}
}

// The table of the experiment fits a terminal of 80 columns.
func TestTable(t *testing.T) {
	for _, more := range []bool{false, true} {
		var b strings.Builder
		require.NoError(t, Table(&b, storm(), more))
		for _, want := range append([]string{"aplomb, circuit breaker", "19,983*", "1,234,567", "0 s"}, columns...) {
			assert.Contains(t, b.String(), want, "the table")
		}
		for _, want := range append([]string{"100 %"}, details...)[:1] {
			assert.Equal(t, more, strings.Contains(b.String(), want), "the table with details %v has %q: %v", more, want, !more)
		}
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "columns: %s", line)
		}
	}
}
