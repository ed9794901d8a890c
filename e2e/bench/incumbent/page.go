package incumbent

import (
	"bytes"
	"fmt"
	"net/http"
	"text/template"
	"time"

	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/bench/proxied"
)

// Markdown is the page of the report.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

// group is one table of proxied requests.
type group struct {
	Title string
	Rows  []ProxiedRow
}

// Groups puts rows of one operation and one protocol together.
func (r *Report) Groups() []group {
	var all []group
	for _, row := range r.Proxied {
		title := row.Operation + ", clients speak " + proxied.Protocol(row.HTTP2)
		if len(all) == 0 || all[len(all)-1].Title != title {
			all = append(all, group{Title: title})
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, row)
	}
	return all
}

// Answer is what the GET of a dead backend was told.
func (r FaultRow) Answer() string {
	said := fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code))
	if r.Reason != "" {
		said = fmt.Sprintf("%d %s", r.Code, r.Reason)
	}
	return said + " after " + seconds(r.Answered)
}

// Namespace is what became of one that was deleted meanwhile.
func (r FaultRow) Namespace() string {
	if r.Waited {
		return "waits; gone " + seconds(r.Returned) + " after the return"
	}
	return "gone after " + seconds(r.Deleted) + ", without it"
}

func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.0f ms", ms(d))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func times(s measure.Spread) string {
	switch {
	case s == (measure.Spread{}):
		return ""
	case s.Min == s.Max:
		return fmt.Sprintf("%.2fx", s.Median)
	}
	return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max)
}

var page = template.Must(template.New("incumbent").Funcs(template.FuncMap{
	"x": times, "protocol": proxied.Protocol, "seconds": seconds,
	"n":   func(s measure.Spread) string { return fmt.Sprintf("%.0f", s.Median) },
	"f1":  func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"two": func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"mib": func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"mb":  func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) },
}).Parse(pageText))
