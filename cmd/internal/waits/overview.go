// The waits as text.

package waits

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/aplomb-go/aplomb/internal/bounds"
	"github.com/aplomb-go/aplomb/policy/backoff"
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
		heading(out, c)
		Print(out, Table(c.backoff, n))
	}
	_, _ = fmt.Fprintln(out, "\nThe two curves of the article on the storm")
	for _, c := range articleCurves() {
		heading(out, c)
		Print(out, Table(c.backoff, n))
	}
	comparison(out)
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

func heading(w io.Writer, c curve) { _, _ = fmt.Fprintf(w, "\n%s\n%s\n", c.name, c.about) }

// comparison prints the original's published table beside ours.
func comparison(w io.Writer) {
	_, _ = fmt.Fprint(w, "\nRandomized beside the table printed for github.com/cenkalti/backoff, in seconds\n"+
		"Each row there is computed from the one before it, cut to three decimals.\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "retry\tmean\tprinted\tlowest\tprinted\thighest\tprinted\t")
	for i, b := range bounds.Of(backoff.Randomized{}, len(printed)) {
		p := printed[i]
		_, _ = fmt.Fprintf(t, "%d\t%.3f\t%.3f\t%.3f\t%.4g\t%.3f\t%.3f\t\n", i+1,
			b.Mean.Seconds(), p[0], b.Lowest.Seconds(), p[1], b.Highest.Seconds(), p[2])
	}
	_ = t.Flush()
}

// printed is the table of github.com/cenkalti/backoff's defaults as that library's
// documentation prints it, in seconds: interval, lowest, highest.
var printed = [][3]float64{
	{0.5, 0.25, 0.75},
	{0.75, 0.375, 1.125},
	{1.125, 0.562, 1.687},
	{1.687, 0.8435, 2.53},
	{2.53, 1.265, 3.795},
	{3.795, 1.897, 5.692},
	{5.692, 2.846, 8.538},
	{8.538, 4.269, 12.807},
	{12.807, 6.403, 19.210},
}
