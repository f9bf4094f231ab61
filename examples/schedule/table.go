// The waits as text.

package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/aplomb-go/aplomb/policy/backoff"
)

func tables(w io.Writer, n int) error {
	out := bufio.NewWriter(w)
	for _, c := range curves {
		heading(out, c)
		waits(out, backoff.Bounds(c.backoff, n))
	}
	_, _ = fmt.Fprintln(out, "The two curves of the article on the storm")
	for _, c := range article {
		heading(out, c)
		waits(out, backoff.Bounds(c.backoff, n))
	}
	comparison(out)
	return out.Flush() // which keeps the first error
}

func heading(w io.Writer, c curve) { _, _ = fmt.Fprintf(w, "%s\n%s\n", c.name, c.about) }

func waits(w io.Writer, bounds []backoff.Bound) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "retry\tlowest\tmean\thighest\tcumulated\t")
	for i, b := range bounds {
		_, _ = fmt.Fprintf(t, "%d\t%v\t%v\t%v\t%v\t\n", i+1, round(b.Lowest), round(b.Mean), round(b.Highest), round(b.Cumulated))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(w)
}

// comparison prints the original's published table beside ours.
func comparison(w io.Writer) {
	_, _ = fmt.Fprint(w, "Randomized beside the table printed for github.com/cenkalti/backoff, in seconds\n"+
		"Each row there is computed from the one before it, cut to three decimals.\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "retry\tmean\tprinted\tlowest\tprinted\thighest\tprinted\t")
	for i, b := range backoff.Bounds(backoff.Randomized{Literal: true}, len(printed)) {
		p := printed[i]
		_, _ = fmt.Fprintf(t, "%d\t%.3f\t%.3f\t%.3f\t%.4g\t%.3f\t%.3f\t\n", i+1,
			b.Mean.Seconds(), p[0], b.Lowest.Seconds(), p[1], b.Highest.Seconds(), p[2])
	}
	_ = t.Flush()
}

// round keeps about four digits of a duration.
func round(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	digits := int(math.Log10(float64(d)))
	return d.Round(time.Duration(math.Pow10(max(0, digits-3))))
}
