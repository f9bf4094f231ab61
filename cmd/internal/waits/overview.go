// The waits as text.

package waits

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/aplomb-go/aplomb/internal/bounds"
)

// tables prints the means of all back-offs, and with all a table for each of them.
func tables(w io.Writer, n int, all bool) error {
	out := bufio.NewWriter(w)
	overviewTable(out, n)
	if !all {
		_, _ = fmt.Fprintln(out, "\n-all prints the lowest and highest waits as well.")
		return out.Flush()
	}
	for _, c := range allCurves() {
		_, _ = fmt.Fprintf(out, "\n%s\n%s\n", c.name, c.about)
		Print(out, Table(c.backoff, n))
	}
	return out.Flush() // which keeps the first error
}

// overviewTable has a row for each back-off, which fits a terminal of 80 columns.
func overviewTable(w io.Writer, n int) {
	_, _ = fmt.Fprint(w, "A back-off says how long to wait before each retry. These are the back-offs of\n"+
		"package policy/backoff, with their defaults:\n\n")
	for _, c := range allCurves() {
		_, _ = fmt.Fprintf(w, "%-21s %s\n", c.name, c.about)
	}
	_, _ = fmt.Fprint(w, "\nTheir mean waits before some of the retries, and the sum of the means:\n\n")
	shown := picked(n)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(retry int) string, sum string) {
		_, _ = fmt.Fprintf(t, "%s\t", fmt.Sprintf("%-20s", name))
		for _, retry := range shown {
			_, _ = fmt.Fprintf(t, "%s\t", cell(retry))
		}
		_, _ = fmt.Fprintf(t, "%s\t\n", sum)
	}
	row("retry", strconv.Itoa, fmt.Sprintf("1 to %d", n))
	for _, c := range allCurves() {
		waits := bounds.Of(c.backoff, n)
		row(c.name, func(retry int) string {
			if retry > len(waits) {
				return "-" // the back-off has stopped
			}
			return Short(waits[retry-1].Mean)
		}, Short(waits[len(waits)-1].Cumulated))
	}
	_ = t.Flush()
}

// picked are the retries that the overview shows. The last of them is n.
func picked(n int) (list []int) {
	for _, retry := range []int{1, 2, 3, 5, 8} {
		if retry < n {
			list = append(list, retry)
		}
	}
	return append(list, n)
}
