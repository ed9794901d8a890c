package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the reports for programs.
func WriteJSON(w io.Writer, reports []*Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		APIServices []*Report `json:"apiServices"`
	}{append([]*Report{}, reports...)})
}

// WriteSummary writes a line for each APIService.
func WriteSummary(w io.Writer, reports []*Report) error {
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "APISERVICE\tSERVICE\tSTATE\tCAUSE")
	for _, r := range reports {
		state, cause := r.state(), ""
		if r.Broken != nil {
			cause = r.Broken.Cause
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.APIService, r.Service, state, cause)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) state() string {
	if r.Broken != nil {
		return "broken at " + r.Broken.Hop
	}
	for _, h := range r.Hops {
		if h.State == Unknown {
			return "ok, as far as it can be seen"
		}
	}
	return "ok"
}

// WriteText writes one report for people: every hop, then the first that is broken and how to mend it.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.APIService)
	if r.Service != "" {
		fmt.Fprintf(&b, " -> %s", r.Service)
	}
	b.WriteString("\n")
	for _, h := range r.Hops {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-21s %-8s %s", h.Name, h.State, h.Found), " ") + "\n")
	}
	if d := r.Broken; d != nil {
		fmt.Fprintf(&b, "\n  first broken hop: %s\n  cause: %s\n", d.Hop, d.Cause)
		if d.Found != "" {
			fmt.Fprintf(&b, "  found: %s\n", d.Found)
		}
		if len(d.Mend) > 0 {
			b.WriteString("  mend:\n")
		}
		for _, line := range d.Mend {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
