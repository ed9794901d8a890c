package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"time"

	"portico.dev/internal/drill"
)

//go:embed page.html
var pageHTML string

// HTML is one page that needs nothing but itself: for each drill its verdict, the timeline, and all tables.
func HTML(results []*drill.Result) ([]byte, error) {
	page, err := template.New("page").Funcs(template.FuncMap{
		"timeline": func(r *drill.Result) *timeline { return newTimeline(r.History) },
		"outcomes": outcomes,
		"duration": duration,
		"join":     func(words []string) string { return strings.Join(words, " ") },
		"clock":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"add":      func(a, b float64) float64 { return a + b },
		"half":     func(f float64) float64 { return f / 2 },
		"px":       func(f float64) string { return fmt.Sprintf("%.1f", f) },
	}).Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("template of the report: %w", err)
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Results": results, "Tally": tally(results)})
	return out.Bytes(), err
}
