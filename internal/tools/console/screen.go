package console

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

// tone is the color of a cell. A cell that needs attention is red if the terminal has colors. Its text is sufficient
// without colors.
type tone int

const (
	plain tone = iota
	good
	bad
	dim
	strong
)

// cell is the text of one column of a line.
type cell struct {
	text string
	tone tone
}

// line is one line of a list. open is the APIService that Enter shows, if there is one.
type line struct {
	cells []cell
	open  string
}

// list is a section as a table.
type list struct {
	titles []string
	lines  []line
	empty  string // shown if lines is empty
}

// The sections of the terminal, in the order of their keys.
var sections = []string{"APIServices", "Endpoints", "Timeline", "Namespaces", "Routes", "Sources"}

// section returns the list of a section. It requires mu.
func (s *state) section(name string, now time.Time) list {
	switch name {
	case "APIServices":
		return s.listAPIServices(now)
	case "Endpoints":
		return s.listEndpoints()
	case "Timeline":
		return s.listTimeline(now)
	case "Namespaces":
		return s.listNamespaces(now)
	case "Routes":
		return s.listRoutes()
	}
	return s.listSources()
}

func toneOf(state string) tone {
	switch state {
	case stateUp, "well", "ready", "True":
		return good
	case stateDown, "False":
		return bad
	}
	return dim
}

func ageOf(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t))
}

// listAPIServices lists APIServices that need attention first.
func (s *state) listAPIServices(now time.Time) list {
	l := list{titles: []string{"NAME", "STATE", "SINCE", "REPLICAS", "WAY", "REASON"}, empty: "no APIServices were read yet"}
	rows := slices.SortedFunc(maps.Values(s.rows), compareRows)
	for _, r := range rows {
		reach := 0
		for _, v := range r.Verdicts {
			if v.State == stateUp {
				reach++
			}
		}
		replicas := cell{text: "-", tone: dim}
		if len(r.Verdicts) > 0 {
			replicas = cell{text: fmt.Sprintf("%d/%d", reach, len(r.Verdicts))}
			if reach < len(r.Verdicts) {
				replicas.tone = bad
			}
		}
		reason := ""
		if r.State == stateDown || r.State == stateUnknown {
			reason = strings.TrimSuffix(r.Reason+": "+r.Message, ": ")
		}
		for _, n := range r.Notes {
			reason = strings.TrimSpace(reason + " [" + n.Type + "=" + n.Status + "]")
		}
		l.lines = append(l.lines, line{open: r.Name, cells: []cell{
			{r.Name, strong}, r.stateCell(), {ageOf(r.Since, now), plain}, replicas, {r.way(), plain}, {reason, plain},
		}})
	}
	return l
}

// stateCell returns the state in a word.
func (r *row) stateCell() cell {
	if r.Degraded {
		return cell{"degraded", bad}
	}
	return cell{r.State, toneOf(r.State)}
}

// way formats the hops of a request with their states.
func (r *row) way() string {
	if r.Service == "" {
		return "served here"
	}
	var b strings.Builder
	for i, h := range r.Hops {
		if i == 0 {
			b.WriteString(h.From)
		}
		b.WriteString(map[string]string{stateDown: " -x-> ", stateUp: " -> "}[h.State])
		if h.State != stateDown && h.State != stateUp {
			b.WriteString(" -?-> ")
		}
		b.WriteString(h.To)
	}
	return b.String()
}

func number(v value) string {
	if math.IsNaN(float64(v)) {
		return "-"
	}
	return fmt.Sprintf("%.3g", float64(v))
}

// spark draws the latest values as bars, scaled to the largest value.
func spark(values []value, width int) string {
	const bars = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-width):]
	most := value(0)
	for _, v := range values {
		if v > most { // false for NaN
			most = v
		}
	}
	var b strings.Builder
	for _, v := range values {
		switch {
		case math.IsNaN(float64(v)):
			b.WriteByte(' ')
		case most == 0:
			b.WriteRune([]rune(bars)[0])
		default:
			b.WriteRune([]rune(bars)[int(v/most*7)])
		}
	}
	return b.String()
}

const sparkWidth = 30

func (s *state) listEndpoints() list {
	l := list{
		titles: []string{"SERVICE", "REPLICA", "STATE", "IN FLIGHT", "REQUESTS/S", "MEDIAN MS", "SLOWEST MS", "EJECTIONS", "REQUESTS/S, LATELY"},
		empty:  "no APIServices with a backend are known: a Portico front door or gateway reports them",
	}
	for _, b := range s.backendsOf(pool{}, listPoints) {
		state := cell{"well", good}
		if b.Trouble {
			state = cell{"in trouble", bad}
		}
		l.lines = append(l.lines, line{cells: []cell{
			{strings.TrimSuffix(b.Name+" ("+b.Trust+")", " ()"), strong}, {b.Replica, dim}, state, {fmt.Sprint(b.InFlight), plain}, {number(latest(b.Series.Rate)), plain},
			{number(latest(b.Series.Median)), plain}, {number(latest(b.Series.Slowest)), plain}, {fmt.Sprint(b.Ejections), plain}, {spark(b.Series.Rate, sparkWidth), dim},
		}})
		for _, e := range b.Endpoints {
			state := cell{e.State, toneOf(e.State)}
			if state.tone != good {
				state.tone = bad
			}
			l.lines = append(l.lines, line{cells: []cell{
				{"  " + e.Address, plain}, {e.Zone, dim}, state, {fmt.Sprint(e.InFlight), plain}, {}, {}, {}, {fmt.Sprint(e.Ejections), plain}, {e.LastFailure, plain},
			}})
		}
	}
	return l
}

func (s *state) listTimeline(now time.Time) list {
	l := list{titles: []string{"AGE", "OBJECT", "WHAT", "CHANGE", "REASON"}, empty: "no changes yet"}
	for _, m := range s.timeline.moments {
		t := plain
		if m.Bad {
			t = bad
		} else if m.Good {
			t = good
		}
		change := m.To
		if m.From != "" {
			change = m.From + " -> " + m.To
		}
		reason := m.Reason
		if m.Message != "" {
			reason += ": " + m.Message
		}
		entry := line{cells: []cell{{ageOf(m.At, now), plain}, {m.Object + " " + m.Name, strong}, {m.What, plain}, {change, t}, {reason, plain}}}
		if m.Object == "APIService" {
			entry.open = m.Name
		}
		l.lines = append(l.lines, entry)
	}
	return l
}

// listNamespaces includes the debts of deleted namespaces.
func (s *state) listNamespaces(now time.Time) list {
	l := list{titles: []string{"NAMESPACE", "SINCE", "STATE", "HELD UP BY"}, empty: "no namespace is being deleted"}
	section, _ := s.sections[sectionNamespaces].content.(namespaces)
	for _, n := range section.Shown {
		state := cell{"terminating", plain}
		if n.Stuck {
			state = cell{"stuck", bad}
		}
		var by []string
		open := ""
		for _, c := range n.By {
			by = append(by, c.Kind+" "+c.Name)
			if c.Kind == "APIService" && open == "" {
				open = c.Name
			}
		}
		l.lines = append(l.lines, line{open: open, cells: []cell{{n.Name, strong}, {ageOf(n.Since, now), plain}, state, {strings.Join(by, ", "), plain}}})
	}
	owed, _ := s.sections[sectionDebts].content.(debtList)
	for _, d := range owed.Shown {
		l.lines = append(l.lines, line{open: d.APIService, cells: []cell{
			{d.Namespace, strong}, {ageOf(d.Since, now), plain}, {"debt, " + d.State, plain}, {"APIService " + d.APIService + ": " + d.Message, plain},
		}})
	}
	return l
}

func (s *state) listRoutes() list {
	l := list{titles: []string{"ROUTE", "BACKEND", "STATE", "REQUESTS/S", "FAILING/S", "LATELY", "MESSAGE"}, empty: "there are no APIRoutes"}
	section, _ := s.sections[sectionRoutes].content.(apiRoutes)
	for _, r := range section.Shown {
		l.lines = append(l.lines, line{cells: []cell{{r.Name, strong}, {}, {r.State, toneOf(r.State)}, {}, {}, {}, {r.Message, plain}}})
		for _, b := range r.Backends {
			l.lines = append(l.lines, line{cells: []cell{
				{}, {b.Name, plain}, {b.State, toneOf(b.State)}, {number(b.Rate), plain}, {number(b.Failing), plain}, {spark(b.Series, sparkWidth), dim}, {b.Message, plain},
			}})
		}
	}
	return l
}

func (s *state) listSources() list {
	l := list{titles: []string{"WHAT IS READ", "STATE", "EVERY", ""}}
	for _, o := range s.overview.Sources {
		state, why := cell{"waiting", dim}, ""
		switch {
		case o.OK:
			state = cell{"read", good}
		case o.Missing != "":
			state, why = cell{"not there", dim}, o.Missing
		case o.Error != "":
			state, why = cell{"failed", bad}, o.Error
		}
		l.lines = append(l.lines, line{cells: []cell{{o.Name, strong}, state, {fmt.Sprintf("%.0fs", o.Every), plain}, {why, plain}}})
	}
	return l
}

// describeRow returns the page of an APIService. It requires mu.
func (s *state) describeRow(name string, now time.Time) []line {
	r := s.rows[name]
	if r == nil {
		return []line{{cells: []cell{{"APIService " + name + " is gone", bad}}}}
	}
	var out []line
	say := func(title string, text string, t tone) {
		out = append(out, line{cells: []cell{{fmt.Sprintf("%-10s", title), dim}, {text, t}}})
	}
	say("state", r.State+" for "+ageOf(r.Since, now), toneOf(r.State))
	say("way", r.way(), plain)
	if r.Reason != "" {
		say("reason", r.Reason, plain)
	}
	if r.Message != "" {
		say("message", r.Message, plain)
	}
	for _, v := range r.Verdicts {
		say("verdict", fmt.Sprintf("%s %s: %s %s %s", v.Of, v.Replica, v.State, v.Reason, v.Message), toneOf(v.State))
	}
	for _, n := range r.Notes {
		say("condition", fmt.Sprintf("%s: %s=%s %s: %s", n.Severity, n.Type, n.Status, n.Reason, n.Message), bad)
	}
	for _, m := range s.timeline.entriesAbout("APIService", name) {
		t := plain
		if m.Bad {
			t = bad
		}
		say("changed", fmt.Sprintf("%s ago: %s %s -> %s %s", ageOf(m.At, now), m.What, m.From, m.To, m.Reason), t)
	}
	return out
}

// printable sanitizes external text, which must not move the cursor, break lines or hide other text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r): // control and format characters, including bidirectional controls
			return '?'
		}
		return r
	}, s)
}

// widths returns the column widths: the widest cell of each column, at most maxColumn. The last column takes the
// remaining space.
func (l *list) widths() []int {
	w := make([]int, len(l.titles))
	for i, t := range l.titles {
		w[i] = len(t)
	}
	for _, ln := range l.lines {
		for i, c := range ln.cells {
			w[i] = max(w[i], min(maxColumn, len([]rune(c.text))))
		}
	}
	return w
}

// maxColumn bounds every column but the last one.
const maxColumn = 48

// painter formats lines for a given terminal width.
type painter struct {
	width  int
	colour bool
}

var codes = map[tone]string{good: "32", bad: "31", dim: "2", strong: "1"}

// paint truncates cells to the width of the terminal. A selected line is shown in reverse video.
func (p painter) paint(cells []cell, widths []int, selected bool) string {
	var b strings.Builder
	if selected {
		b.WriteString("\x1b[7m")
	}
	left := p.width
	for i, c := range cells {
		if left <= 0 {
			break
		}
		text := []rune(printable(c.text))
		width := left
		if i < len(cells)-1 && widths != nil {
			width = min(widths[i], left)
		}
		if len(text) > width {
			text = append(text[:max(0, width-1)], '…')
		}
		code := codes[c.tone]
		if p.colour && code != "" {
			b.WriteString("\x1b[" + code + "m")
		}
		b.WriteString(string(text))
		if p.colour && code != "" {
			b.WriteString("\x1b[22;39m")
		}
		left -= len(text)
		if i < len(cells)-1 {
			gap := 1
			if widths != nil {
				gap = min(left, width-len(text)+2)
			}
			b.WriteString(strings.Repeat(" ", gap))
			left -= gap
		}
	}
	if selected {
		b.WriteString(strings.Repeat(" ", max(0, left)) + "\x1b[27m")
	}
	return b.String()
}

// wrap breaks the last cell of lines that are too long.
func wrap(lines []line, width int) (out []line) {
	for _, l := range lines {
		used := 0
		for _, c := range l.cells[:len(l.cells)-1] {
			used += len([]rune(c.text)) + 1
		}
		last := l.cells[len(l.cells)-1]
		text := []rune(printable(last.text))
		room := max(10, width-used)
		for first := true; first || len(text) > 0; first = false {
			n := min(len(text), room)
			if n < len(text) {
				if space := strings.LastIndexByte(string(text[:n]), ' '); space > 0 {
					n = len([]rune(string(text[:n])[:space])) + 1
				}
			}
			cells := slices.Clone(l.cells)
			if !first {
				for i := range cells {
					cells[i].text = strings.Repeat(" ", len([]rune(cells[i].text)))
				}
			}
			cells[len(cells)-1].text = string(text[:n])
			out = append(out, line{cells: cells, open: l.open})
			text = text[n:]
		}
	}
	return out
}
