package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"strings"

	"portico.dev/internal/tools/drill"
)

var (
	//go:embed page.css
	pageStyle string
	//go:embed legend.html
	pageLegend string
)

// HTML returns a self-contained page with the verdict, the timeline and all tables of each drill. It does not use
// html/template, which would account for a third of a small program. Every value passes through page.add, which
// escapes it. No value is placed in a script, a style or an attribute that holds an external URL.
func HTML(results []*drill.Result) []byte {
	var p page
	p.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Drills: %s</title>
<style>
`, tally(results))
	p.WriteString(pageStyle)
	p.add(`</style>
</head>
<body>
<h1>Drills: %s</h1>
<table>
<tr><th>drill</th><th>verdict</th><th>what happens</th><th class="num">took</th></tr>`, tally(results))
	for _, r := range results {
		p.add("\n"+`<tr><td><a href="#%[1]s">%[1]s</a></td><td class="%[2]s">%[3]s</td><td>%[4]s</td><td class="num">%[5]s</td></tr>`, r.Drill, r.Verdict, verdict(r), r.Title, r.Took)
	}
	p.WriteString("\n</table>\n")
	p.WriteString(pageLegend)
	for _, r := range results {
		p.result(r)
	}
	p.WriteString("\n</body>\n</html>\n")
	return p.Bytes()
}

// page is the buffer of a page.
type page struct{ bytes.Buffer }

// add appends a format whose verbs are all %s. Strings are escaped; numbers are pixels.
func (p *page) add(format string, values ...any) {
	texts := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case float64:
			texts[i] = fmt.Sprintf("%.1f", v)
		case drill.Seconds:
			texts[i] = duration(v)
		default:
			texts[i] = html.EscapeString(fmt.Sprint(v))
		}
	}
	fmt.Fprintf(&p.Buffer, format, texts...)
}

// verdict returns the verdict with the excused requests and the violated expectation.
func verdict(r *drill.Result) string {
	if violation := r.Violation(); violation != "" {
		return r.VerdictText() + ": " + violation
	}
	return r.VerdictText()
}

func (p *page) result(r *drill.Result) {
	p.add("\n"+`<h2 id="%[1]s">%[1]s <span class="%[2]s">%[3]s</span></h2>`+"\n", r.Drill, r.Verdict, r.VerdictText())
	p.add("<p>%s. Against %s, %s, in %s.", r.Title, r.Server, r.Began.UTC().Format("2006-01-02 15:04:05 UTC"), r.Took)
	if r.Why != "" {
		p.add(" <b>%s</b>", r.Why)
	}
	p.WriteString("</p>\n")
	if tl := newTimeline(r.History); tl != nil {
		p.timeline(tl)
	}
	p.WriteString("\n")
	if len(r.Findings) > 0 {
		p.WriteString("<table>\n<tr><th></th><th>expected</th><th>seen</th></tr>")
		for _, f := range r.Findings {
			holds := `<span class="failed">&#10007; no</span>`
			if f.Holds {
				holds = `<span class="passed">&#10003; yes</span>`
			}
			p.WriteString("\n<tr><td>" + holds)
			p.add(`</td><td>%s</td><td data-name="seen">%s</td></tr>`, f.Expected, f.Seen)
		}
		p.WriteString("\n</table>")
	}
	p.WriteString("\n")
	if len(r.Measures) > 0 {
		p.WriteString(`<table>` + "\n" + `<tr><th>measure</th><th class="num">time</th></tr>`)
		for _, m := range r.Measures {
			never := ""
			if m.Never {
				never = "not in "
			}
			p.add("\n"+`<tr><td>%s</td><td class="num">%s%s</td></tr>`, m.Name, never, m.Seconds)
		}
		p.WriteString("\n</table>")
	}
	p.WriteString("\n")
	p.traffic(r.Traffic)
	p.WriteString("\n")
	if len(r.Commands) > 0 {
		p.WriteString("<details><summary>commands that were run</summary>")
		for _, c := range r.Commands {
			p.add("<div><code>%s</code>, exit status %s after %s</div><pre>%s</pre>", strings.Join(c.Args, " "), c.Exit, c.Took, c.Output)
		}
		p.WriteString("</details>")
	}
	p.WriteString("\n")
	if len(r.Left) > 0 {
		p.WriteString(`<p class="failed">Left behind: `)
		for _, left := range r.Left {
			p.add("%s ", left)
		}
		p.WriteString("</p>")
	}
	p.WriteString("\n")
}

func (p *page) traffic(rows []drill.Row) {
	if len(rows) == 0 {
		return
	}
	p.WriteString(`<details><summary>what each verb saw</summary><table>
<tr><th>party</th><th>verb</th><th>phase</th><th class="num">requests</th><th>outcomes</th><th class="num">median</th><th class="num">longest</th></tr>`)
	for _, r := range rows {
		p.add("\n"+`<tr><td>%s</td><td>%s</td><td>%s</td><td class="num">%s</td><td>%s</td><td class="num" data-name="median">%s</td><td class="num" data-name="longest">%s</td></tr>`,
			r.Who, r.Verb, r.Phase, r.Count, outcomes(r.Outcomes), r.Median, r.Max)
	}
	p.WriteString("\n</table></details>")
}

func (p *page) timeline(tl *timeline) {
	p.add("\n"+`<div class="picture">`+"\n"+`<svg viewBox="0 0 %[1]s %[2]s" width="%[1]s" role="img" aria-label="timeline`, tl.Width, tl.Height)
	for _, row := range tl.Rows {
		p.add("; %s", row.Text)
	}
	p.WriteString(`">`)
	for _, t := range tl.Ticks {
		p.add(`<line class="tick" x1="%[1]s" x2="%[1]s" y1="24" y2="%[2]s"/><text x="%[1]s" y="%[3]s" text-anchor="middle">%[4]s</text>`, t.X, tl.ConditionY, tl.Height, t.Name)
	}
	p.add("\n"+`<rect class="fault" x="%s" width="%s" y="24" height="%s"/>`+"\n", tl.Fault.X, tl.Fault.W, tl.ConditionY)
	for _, row := range tl.Rows {
		p.add(`<text x="0" y="%s" dy="11">%s</text>`, row.Y, row.Name)
		for _, m := range row.Marks {
			p.mark(m, row.Y)
		}
		p.WriteString("\n")
	}
	p.add(`<text x="0" y="%s" dy="13">Available</text>`, tl.ConditionY)
	for _, c := range tl.Condition {
		p.add(`<rect class="%s" x="%s" width="%s" y="%s" height="16"/>`, c.Class, c.X, c.W, tl.ConditionY)
	}
	p.WriteString("\n")
	for _, m := range tl.Moments {
		p.add(`<line class="moment" x1="%[1]s" x2="%[1]s" y1="16" y2="%[2]s"/><text x="%[1]s" y="12">%[3]s</text>`, m.X, tl.ConditionY, m.Name)
	}
	p.WriteString("\n</svg>\n</div>\n")
}

// mark draws the end of a request in the row that begins at y.
func (p *page) mark(m mark, y float64) {
	if m.Class == "lost" {
		p.add(`<path class="lost" d="M%[1]s %[2]s l%[3]s -12 l%[3]s 12 z"><title>%[4]s</title></path>`, m.X, y+12, m.W/2, m.Title)
		return
	}
	height := 12
	switch m.Class {
	case "ok":
		y, height = y+6, 6
	case "wait":
		y, height = y+8, 2
	}
	p.add(`<rect class="%s" x="%s" width="%s" y="%s" height="%s"><title>%s</title></rect>`, m.Class, m.X, m.W, y, height, m.Title)
}
