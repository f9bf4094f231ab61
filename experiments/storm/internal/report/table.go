// Package report shows runs as a table, as pictures, and as a page with both.
package report

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

// columns are the table's heads.
var columns = []string{
	"strategy", "sends while frozen", "found at the resume", "peak at the server", "peak after that",
	"back after", "rate at the end", "lost", "open at the end", "p50", "p99",
}

// explained explains the columns.
var explained = []string{
	"sends while frozen: attempts begun from the stop to the resume",
	"found at the resume: requests in the server's sockets then; known in a simulation only",
	"peak at the server: the most requests in progress after the resume; then the most after that had gone below the server's limit",
	"back after: from the resume to the first 2 s with at least 95 % of the healthy rate that stay so for 5 s",
	"rate at the end: successes in the last 10 s, as a share of the healthy rate",
	"lost, open: requests that were given up, and that were neither given up nor answered at the end",
	"p50, p99: from the call to the answer, waits included, of requests begun after the recovery",
}

// row returns the figures of a run as text. If there are several runs, the figures
// are medians.
func row(r *record.Run) []string {
	f := r.Median()
	found, back, later := "–", "never", "–"
	if r.Found > 0 {
		found = fmt.Sprint(r.Found)
	}
	if f.Recovered >= 0 {
		back = fmt.Sprintf("%.1f s", f.Recovered.Seconds())
	}
	if f.Later > 0 {
		later = fmt.Sprint(f.Later)
	}
	return []string{
		r.Name, fmt.Sprint(f.SentFrozen), found, fmt.Sprint(f.Peak), later, back,
		fmt.Sprintf("%.0f %%", 100*f.LastGood), fmt.Sprint(f.Lost), fmt.Sprint(f.Open), took(f.P50), took(f.P99),
	}
}

func took(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return d.Round(time.Millisecond).String()
}

// Table writes the figures of all runs, and the rule of each.
func Table(w io.Writer, runs []*record.Run) error {
	out := bufio.NewWriter(w)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		_, _ = fmt.Fprint(t, c, map[bool]string{true: "\n", false: "\t"}[i == len(columns)-1])
	}
	for _, r := range runs {
		cells := row(r)
		for i, c := range cells {
			_, _ = fmt.Fprint(t, c, map[bool]string{true: "\n", false: "\t"}[i == len(cells)-1])
		}
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(out)
	for _, line := range explained {
		_, _ = fmt.Fprintln(out, line)
	}
	_, _ = fmt.Fprintln(out)
	for _, r := range runs {
		_, _ = fmt.Fprintf(out, "%s: %s\n", r.Name, r.Rule)
	}
	return out.Flush() // which keeps the first error
}
