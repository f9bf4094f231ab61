package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aplomb-go/aplomb/lab/storm/internal/record"
)

// columns are the heads of the short table. It fits 80 columns.
var columns = []string{"back after", "strategy", "sent while frozen", "peak"}

// row returns the figures of a run as text. If there are several runs, the figures
// are medians.
func row(r *record.Run) []string {
	return []string{verdict(r), r.Name, count(r.Median().SentFrozen), starred(r)}
}

// details are the heads of the other figures.
var details = []string{"strategy", "at end", "lost", "open", "p50", "p99"}

func detailsOf(r *record.Run) []string {
	f := r.Median()
	return []string{
		r.Name, fmt.Sprintf("%.0f %%", 100*f.LastGood), count(f.Lost), count(f.Open), took(f.P50), took(f.P99),
	}
}

func took(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// explained and explainedDetails explain the columns.
func explained(runs []*record.Run) []string {
	r := runs[0]
	return append([]string{
		fmt.Sprintf("back after: the time from the resume to the first 2 s with 95 %% of the usual rate that stay so for 5 s. Never: not within the %s of the run.", Seconds(r.End-r.Resume)),
		"sent while frozen: attempts that began while the server was frozen.",
		fmt.Sprintf("peak: the most requests in progress at the server after the resume. Up to %s it is quick.", count(r.ServerLimit)),
	}, notes(runs)...)
}

var explainedDetails = []string{
	"at end: successes in the last 10 s, as a share of the usual rate.",
	"lost, open: requests that were given up, and requests without a response at the end.",
	"p50, p99: the time from the call to the response, waits included, of requests that began after the server was back.",
}

// Table writes the finding and the figures of the runs. With more it also writes the other
// figures and the rules.
func Table(w io.Writer, runs []*record.Run, more bool) error {
	out := bufio.NewWriter(w)
	_, _ = fmt.Fprintf(out, "%s\n\n", Wrap(Finding(runs)+".", "  ", 80))
	table(out, columns, runs, row, 2)
	_, _ = fmt.Fprintln(out)
	list(out, explained(runs))
	if more {
		_, _ = fmt.Fprintln(out)
		table(out, details, runs, detailsOf, 1)
		_, _ = fmt.Fprintln(out)
		list(out, explainedDetails)
		if lines := shared(runs); lines != nil {
			_, _ = fmt.Fprintln(out)
			list(out, lines)
		}
		_, _ = fmt.Fprintln(out)
		list(out, rules(runs))
	}
	return out.Flush() // which keeps the first error
}

// shared says how much the processes of a fleet told each other, and with what effect.
// It returns nothing if there is no fleet.
func shared(runs []*record.Run) (all []string) {
	if !slices.ContainsFunc(runs, func(r *record.Run) bool { return r.Median().OpsStorm > 0 }) {
		return nil
	}
	for _, r := range runs {
		f := r.Median()
		text := fmt.Sprintf("%s: %s attempts from 3 s after the freeze on", r.Name, count(f.SentLate))
		if f.OpsStorm > 0 {
			text += fmt.Sprintf("; %.2f operations of the backend per request in peace, and %.2f from the freeze until 10 s after the resume", f.OpsPeace, f.OpsStorm)
		}
		all = append(all, text+".")
	}
	return all
}

// rules describes the clients of each run.
func rules(runs []*record.Run) (all []string) {
	for _, r := range runs {
		all = append(all, r.Name+": "+r.Words+".")
	}
	return all
}

// table writes a table of the runs. The first texts of a row stand at the left, and the
// numbers after them at the right.
func table(out io.Writer, heads []string, runs []*record.Run, row func(*record.Run) []string, texts int) {
	rows := [][]string{heads}
	for _, r := range runs {
		rows = append(rows, row(r))
	}
	width := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, c := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range rows {
		var line strings.Builder
		for i, c := range cells {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i < texts {
				line.WriteString(c + space + "  ")
			} else {
				line.WriteString(space + c + "  ")
			}
		}
		_, _ = fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}

func list(out io.Writer, lines []string) {
	for _, l := range lines {
		_, _ = fmt.Fprintln(out, Wrap(l, "  ", 80))
	}
}

// Wrap breaks a text into lines of at most so many columns. All but the first begin
// with the indent.
func Wrap(text, indent string, columns int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > columns:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
