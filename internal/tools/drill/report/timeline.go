package report

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"portico.dev/internal/tools/drill"
)

const (
	// left and width are the position of the time axis in pixels. rowHeight is the height of one verb of one
	// component.
	left      = 130.0
	width     = 900.0
	rowHeight = 16.0
	top       = 30.0
	// maxMarks bounds the number of requests drawn in one row.
	maxMarks = 2000
)

// timeline is the diagram of a drill: a row for each verb of each component, a mark for each request, the fault as a
// band, and lines at detection and recovery.
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
	// Text is the text alternative of the marks.
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

// newTimeline lays out a history. It returns nil if the history is too short.
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

// markWidth is the minimum width of a mark.
const markWidth = 3.0

// marksOf draws a request as a thin line while it waits and a mark where it ended. A request that was sent during the
// fault and answered after it must not look like a response during the fault. A watch is drawn in full length, with a
// mark at its end if it failed.
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

// duration formats a duration, in milliseconds below one second.
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

// condition draws the Available condition from one observation to the next.
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
