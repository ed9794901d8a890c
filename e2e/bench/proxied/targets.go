package proxied

import (
	"fmt"
	"math"
)

// Target is a promise about ratios, and how it was kept.
type Target struct {
	What  string  `json:"what"`
	Limit float64 `json:"limit"`
	// Got is the worst cell's median.
	Got  float64 `json:"got"`
	Cell string  `json:"cell"`
	Kept bool    `json:"kept"`
}

// Targets judges the front door for an ordinary user, by the bare proxy that speaks HTTP/2 to the backend.
func (r *Report) Targets() []Target {
	rows := func(is func(Row) bool, number func(Row) float64) (worst float64, where string) {
		worst = math.Inf(-1)
		for _, row := range r.Rows {
			if got := number(row); row.Who == user && is(row) && got > worst {
				worst, where = got, row.String()
			}
		}
		return worst, where
	}
	cpu := func(r Row) float64 { return r.CPUToH2.Median }
	crowded := func(r Row) bool { return r.Clients > 1 }
	var all []Target
	add := func(what string, limit, got float64, where string) {
		all = append(all, Target{What: what, Limit: limit, Got: got, Cell: where, Kept: got <= limit})
	}
	got, where := rows(func(r Row) bool { return r.of.name == operations[0].name && crowded(r) }, cpu)
	add("CPU of GET 1 KB at 32 and 256", 1.0, got, where)
	got, where = rows(func(r Row) bool { return r.of.name == operations[1].name }, cpu)
	add("CPU of list 100 KB", 0.8, got, where)
	got, where = rows(func(Row) bool { return true }, cpu)
	add("CPU in any cell", 1.15, got, where)
	got, where = rows(func(Row) bool { return true }, func(r Row) float64 { return r.P99ToH2.Median })
	add("p99 in any cell", 1.2, got, where)
	for _, w := range r.Watches {
		if w.Who == user && w.HTTP2 {
			// What a front door does when nobody asks it has a target of its own (seconds of an idle minute).
			add("CPU of a watch event, its own", 1.1, w.OwnToH2.Median, fmt.Sprintf("%d streams, %s", w.Streams, Protocol(w.HTTP2)))
		}
	}
	return all
}
