// The table of a back-off.

package waits

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/policy/backoff"
)

// A Row is the wait before a retry. Earliest, Total and Latest are the lowest, the mean and
// the highest time of the retry since the first attempt began, if attempts take no time.
type Row struct {
	Retry    int     `json:"retry"` // from 1
	Lowest   Seconds `json:"lowest"`
	Mean     Seconds `json:"mean"`
	Highest  Seconds `json:"highest"`
	Earliest Seconds `json:"earliest"`
	Total    Seconds `json:"total"`
	Latest   Seconds `json:"latest"`
	Note     string  `json:"note,omitzero"` // stands below the row
}

// Table returns the waits before the first n retries.
func Table(b backoff.Backoff, n int) (rows []Row) {
	var earliest, latest time.Duration
	for i, b := range bounds.Of(b, n) {
		earliest, latest = earliest+b.Lowest, latest+b.Highest
		rows = append(rows, Row{
			Retry: i + 1, Lowest: Seconds(b.Lowest), Mean: Seconds(b.Mean), Highest: Seconds(b.Highest),
			Earliest: Seconds(earliest), Total: Seconds(b.Cumulated), Latest: Seconds(latest),
		})
	}
	return rows
}

// Print prints a table. It fits a terminal of 80 columns.
func Print(w io.Writer, rows []Row) {
	_, _ = fmt.Fprintln(w, "retry  lowest    mean      highest   total: lowest  mean      highest")
	for _, r := range rows {
		text := fmt.Sprintf("%-5d  %-8v  %-8v  %-8v  %-13v  %-8v  %-8v", r.Retry, r.Lowest, r.Mean, r.Highest, r.Earliest, r.Total, r.Latest)
		_, _ = fmt.Fprintln(w, strings.TrimRight(text, " "))
		if r.Note != "" {
			_, _ = fmt.Fprintln(w, "       "+r.Note)
		}
	}
}

// Seconds is a duration that is a number of seconds in JSON.
type Seconds time.Duration

// MarshalJSON returns the number.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// String returns Short of the duration.
func (s Seconds) String() string { return Short(time.Duration(s)) }

// Short writes a duration with three digits or so.
func Short(d time.Duration) string {
	for unit := time.Nanosecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			d = d.Round(unit)
			break
		}
	}
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return strings.Replace(text, "h0m", "h", 1)
}
