package waits

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/internal/soak"
)

func TestTables(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, Run([]string{"-n", "4", "-all"}, &out, &out))
	for _, c := range allCurves() {
		assert.Contains(t, out.String(), c.name+"\n"+c.about, "no table of %s", c.name)
	}
}

// TestOverviewTable: for any number of retries the table fits 80 columns, and a row for
// each back-off ends with the sum.
func TestOverviewTable(t *testing.T) {
	for _, n := range soak.Size([]string{"1", "100"}, []string{"1", "2", "12", "100"}) {
		var out bytes.Buffer
		require.Zero(t, Run([]string{"-n", n}, &out, &out))
		for line := range strings.Lines(out.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 80, "-n %s columns: %s", n, line)
		}
		for _, c := range allCurves() {
			waits := bounds.Of(c.backoff, 1)
			assert.Equal(t, 2, strings.Count(out.String(), "\n"+c.name+"  ")+strings.Count(out.String(), "\n  "+c.name+"  "), "-n %s rows for %s", n, c.name)
			assert.False(t, n == "1" && !strings.Contains(out.String(), Short(waits[0].Mean)), "the mean of %s is missing", c.name)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Nanosecond: "1.23µs", 12345 * time.Microsecond: "12.3ms", 1999 * time.Millisecond: "2s",
		time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90*time.Minute + 500*time.Millisecond: "1h30m",
	} {
		assert.Equal(t, want, Short(d), "%v", d)
	}
}
