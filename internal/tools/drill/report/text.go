package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"portico.dev/internal/tools/drill"
)

// Text writes a table of the drills, followed by the expectations that failed. The table has a column of violated
// expectations if there are any.
func Text(out io.Writer, results []*drill.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := "DRILL\tVERDICT\tDETECTED\tRECOVERED\tITS CLIENTS SAW\tTOOK"
	violated := slices.ContainsFunc(results, func(r *drill.Result) bool { return r.Violation() != "" })
	if violated {
		header += "\tVIOLATED"
	}
	fmt.Fprintln(w, header)
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s", r.Drill, r.VerdictText(),
			measured(r, drill.TimeToDetect), recovered(r), clientsSaw(r), r.Took)
		if violated {
			fmt.Fprintf(w, "\t%s", cmp.Or(r.Violation(), "-"))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if err := complaints(out, r); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n", tally(results))
	return err
}

// recovered returns a dash for a subject that stayed available, because it did not have to recover.
func recovered(r *drill.Result) string {
	if measured(r, drill.TimeToDetect) == "no" {
		return "-"
	}
	return measured(r, drill.TimeToRecover)
}

// measured formats a measure, or a dash if it is missing.
func measured(r *drill.Result, name string) string {
	for _, m := range r.Measures {
		switch {
		case m.Name != name:
		case m.Never:
			return "no"
		default:
			return m.Seconds.String()
		}
	}
	return "-"
}

// clientsSaw summarizes the outcomes for the subject's clients during the fault.
func clientsSaw(r *drill.Result) string {
	sum := map[string]int{}
	for _, row := range r.Traffic {
		if row.Who == drill.Subject && row.Verb != "watch" && row.Phase == "during" {
			for outcome, n := range row.Outcomes {
				sum[outcome] += n
			}
		}
	}
	return outcomes(sum)
}

// outcomes formats the counts, the most frequent first.
func outcomes(sum map[string]int) string {
	if len(sum) == 0 {
		return "-"
	}
	keys := slices.SortedFunc(maps.Keys(sum), func(a, b string) int { return cmp.Or(cmp.Compare(sum[b], sum[a]), cmp.Compare(a, b)) })
	parts := make([]string, 0, len(keys))
	for _, k := range keys {
		parts = append(parts, fmt.Sprintf("%d× %s", sum[k], k))
	}
	return strings.Join(parts, ", ")
}

func complaints(out io.Writer, r *drill.Result) error {
	if r.Verdict == drill.Passed {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s", r.Drill, r.Verdict)
	if r.Why != "" {
		fmt.Fprintf(&b, ": %s", r.Why)
	}
	b.WriteByte('\n')
	for _, f := range r.Findings {
		if !f.Holds {
			fmt.Fprintf(&b, "  expected: %s\n      seen: %s\n", f.Expected, f.Seen)
		}
	}
	for _, l := range r.Left {
		fmt.Fprintf(&b, "  left behind: %s\n", l)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// tally counts the drills by verdict, the passed ones with excused requests, and the violated expectations.
func tally(results []*drill.Result) string {
	count := map[drill.Verdict]int{}
	excused, violated := 0, 0
	for _, r := range results {
		count[r.Verdict]++
		violated += len(r.Violated)
		if r.Verdict == drill.Passed && r.Excused > 0 {
			excused++
		}
	}
	passed := fmt.Sprintf("%d passed", count[drill.Passed])
	if excused > 0 {
		passed += fmt.Sprintf(" (%d with excused requests)", excused)
	}
	parts := []string{passed}
	for _, v := range []drill.Verdict{drill.Failed, drill.Broken, drill.Skipped} {
		if count[v] == 0 {
			continue
		}
		part := fmt.Sprintf("%d %s", count[v], v)
		if v == drill.Failed && violated > 0 {
			part += fmt.Sprintf(" (expectations violated: %d)", violated)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
