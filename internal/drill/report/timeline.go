package report

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"portico.dev/internal/drill"
)

const (
	// left and width are where time runs, in pixels; rowHeight is for one verb of one component.
	left      = 130.0
	width     = 900.0
	rowHeight = 16.0
	top       = 30.0
	// maxMarks bounds the requests that are drawn of one row.
	maxMarks = 2000
)

// timeline is a drill as a picture: a row for each verb of each component, a mark for each request, the fault as a band, and
// lines where it was detected and where all was well again.
type timeline struct {
	Width, Height, Left float64
	Rows                []timelineRow
	Fault               span
	Moments             []moment
	Condition           []span
	ConditionY          float64
	Ticks               []moment
}

type timelineRow struct {
	Name  string
	Y     float64
	Marks []mark
	// Text says in words what the marks show.
	Text string
}

type mark struct {
	span
	Class, Title string
}

type span struct {
	X, W  float64
	Class string
}

type moment struct {
	X    float64
	Name string
}

// newTimeline draws a history; nil when there is too little of it.
func newTimeline(h *drill.History) *timeline {
	if h == nil || h.Began.IsZero() || !h.Ended.After(h.Began) {
		return nil
	}
	scale := width / h.Ended.Sub(h.Began).Seconds()
	at := func(t time.Time) float64 {
		return left + min(max(t.Sub(h.Began).Seconds()*scale, 0), width)
	}
	tl := &timeline{Width: left + width + 20, Left: left}
	tl.addRows(h, at)
	tl.ConditionY = top + float64(len(tl.Rows))*rowHeight
	tl.Height = tl.ConditionY + rowHeight + 30
	tl.condition(h, at)
	tl.moments(h, at)
	for s := time.Duration(0); s <= h.Ended.Sub(h.Began); s += tickEvery(h.Ended.Sub(h.Began)) {
		tl.Ticks = append(tl.Ticks, moment{at(h.Began.Add(s)), fmt.Sprintf("%d s", int(s.Seconds()))})
	}
	return tl
}

func tickEvery(length time.Duration) time.Duration {
	switch {
	case length <= 20*time.Second:
		return time.Second
	case length <= 100*time.Second:
		return 5 * time.Second
	}
	return 30 * time.Second
}

func (tl *timeline) addRows(h *drill.History, at func(time.Time) float64) {
	index := map[string]int{}
	counts := map[string]map[string]int{}
	for _, row := range drill.Rows(h) {
		name := row.Who + " " + row.Verb
		if counts[name] == nil {
			counts[name] = map[string]int{}
		}
		for outcome, n := range row.Outcomes {
			counts[name][outcome] += n
		}
		if _, there := index[name]; !there {
			index[name] = len(tl.Rows)
			tl.Rows = append(tl.Rows, timelineRow{Name: name, Y: top + float64(len(tl.Rows))*rowHeight})
		}
	}
	for i := range tl.Rows {
		tl.Rows[i].Text = tl.Rows[i].Name + ": " + outcomes(counts[tl.Rows[i].Name])
	}
	for _, r := range h.Requests {
		l := &tl.Rows[index[r.Who+" "+r.Verb]]
		if len(l.Marks) == maxMarks {
			continue
		}
		l.Marks = append(l.Marks, marksOf(r, at)...)
	}
}

// markWidth is the least width of a mark.
const markWidth = 3.0

// marksOf draws a request: a thin line for the time that it waited, and a mark where it ended. A request that was made during
// the fault and answered after it does not look like an answer during the fault. A watch is drawn in whole, and what ended it
// at its end.
func marksOf(r drill.Request, at func(time.Time) float64) []mark {
	from, to := at(r.Start), at(r.Start.Add(r.Took))
	title := strings.TrimSpace(fmt.Sprintf("%s after %s %s %s", r.Outcome(), duration(drill.Seconds(r.Took)), r.Reason, r.Failure))
	end := mark{span: span{X: max(to-markWidth, from), W: markWidth}, Class: classOf(r), Title: title}
	switch {
	case r.Verb == "watch" && r.Code == http.StatusOK && r.OK():
		return []mark{{span: span{X: from, W: max(to-from, markWidth)}, Class: "ok", Title: title}}
	case r.Verb == "watch" && r.Code == http.StatusOK:
		return []mark{{span: span{X: from, W: max(to-from, markWidth)}, Class: "ok", Title: "open"}, end}
	case to-from <= markWidth:
		return []mark{end}
	}
	return []mark{{span: span{X: from, W: to - from}, Class: "wait", Title: "waiting"}, end}
}

// duration is a time for people: milliseconds below a second.
func duration(s drill.Seconds) string {
	switch d := time.Duration(s); {
	case d >= time.Second:
		return s.String()
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
}

func classOf(r drill.Request) string {
	switch {
	case r.OK():
		return "ok"
	case r.Failure != "":
		return "lost"
	case r.Code == 429:
		return "limited"
	}
	return "refused"
}

// condition draws Available from one observation to the next.
func (tl *timeline) condition(h *drill.History, at func(time.Time) float64) {
	for i, s := range h.Observations {
		end := h.Ended
		if i+1 < len(h.Observations) {
			end = h.Observations[i+1].At
		}
		class := "unavailable"
		if s.Available() {
			class = "available"
		}
		tl.Condition = append(tl.Condition, span{X: at(s.At), W: max(at(end)-at(s.At), 0), Class: class})
	}
}

func (tl *timeline) moments(h *drill.History, at func(time.Time) float64) {
	if h.Broke.IsZero() {
		return
	}
	end := h.Ended
	if !h.Mended.IsZero() {
		end = h.Mended
	}
	tl.Fault = span{X: at(h.Broke), W: at(end) - at(h.Broke)}
	if t, came := h.Detected(); came {
		tl.Moments = append(tl.Moments, moment{at(t), "detected"})
	}
	if t, came := h.Recovered(); came && t.After(h.Mended) {
		tl.Moments = append(tl.Moments, moment{at(t), "recovered"})
	}
}
