package proxied

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"portico.dev/e2e/environment"
)

// operation is an operation of clients.
type operation struct {
	name, method, below, body string
}

var operations = []operation{
	{name: "GET 1 KB", method: http.MethodGet, below: "/small"},
	{name: "list 100 KB", method: http.MethodGet},
	{name: "POST 1 KB", method: http.MethodPost, body: strings.Repeat(" ", 24) + `{"apiVersion":"bench-00000.example.com/v1","kind":"Thing","metadata":{"name":"new"},"data":"` + strings.Repeat("p", 900) + `"}`},
}

// Cell is one row of the table, without the server.
type Cell struct {
	Operation string `json:"operation"`
	HTTP2     bool   `json:"http2"`
	Clients   int    `json:"clients"`

	of operation
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %d at once", c.Operation, Protocol(c.HTTP2), c.Clients)
}

// Protocol returns the name of a protocol.
func Protocol(http2 bool) string {
	if http2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

// Cells returns every operation with both protocols and one, some and many concurrent clients.
func Cells() []Cell {
	var all []Cell
	for _, o := range operations {
		for _, http2 := range []bool{true, false} {
			for _, clients := range []int{1, 32, 256} {
				all = append(all, Cell{Operation: o.name, HTTP2: http2, Clients: clients, of: o})
			}
		}
	}
	return all
}

// Reads returns the cells without a request body.
func Reads() []Cell { return slices.DeleteFunc(Cells(), func(c Cell) bool { return c.of.body != "" }) }

// Load returns the request of the cell.
func (c Cell) Load(token string) environment.Ask {
	return environment.Ask{
		Method: c.of.method, Path: environment.Path(0) + c.of.below, Body: c.of.body, Token: token, HTTP2: c.HTTP2, Clients: c.Clients,
	}
}

// WatchCell is a number of watch streams with a total of a thousand events per second.
type WatchCell struct {
	HTTP2   bool   `json:"http2"`
	Streams int    `json:"streams"`
	Every   string `json:"every"` // between two events of one stream
}

// WatchCells returns the cells for both protocols.
func WatchCells() []WatchCell {
	return []WatchCell{{HTTP2: true, Streams: 1000, Every: "1s"}, {HTTP2: false, Streams: 100, Every: "100ms"}}
}

// Load returns the watch request.
func (c WatchCell) Load(token string) environment.Ask {
	return environment.Ask{Method: http.MethodGet, Path: environment.Path(0) + "?watch=true&every=" + c.Every, Token: token, HTTP2: c.HTTP2}
}

// Target is a limit on a ratio, with the measured value.
type Target struct {
	What  string  `json:"what"`
	Limit float64 `json:"limit"`
	// Got is the median of the worst cell.
	Got  float64 `json:"got"`
	Cell string  `json:"cell"`
	Kept bool    `json:"kept"`
}

// worst is Worst of the ordinary user.
func (r *Report) worst(is func(Row) bool, number func(Row) float64) (worst float64, where string) {
	return Worst(r.Rows, user, is, number)
}

// Worst returns the largest number in the rows of a subject, and its row.
func Worst(rows []Row, who string, is func(Row) bool, number func(Row) float64) (worst float64, where string) {
	worst = math.Inf(-1)
	for _, row := range rows {
		if got := number(row); row.Who == who && is(row) && got > worst {
			worst, where = got, row.String()
		}
	}
	return worst, where
}

// TargetsToNginx compares the front door for an ordinary user with nginx. It returns nil if nginx was not measured.
func (r *Report) TargetsToNginx() []Target {
	if !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Who == nginx }) {
		return nil
	}
	crowded := func(r Row) bool { return r.Clients > 1 }
	post := func(r Row) bool { return r.Operation == operations[2].name }
	cpu := func(r Row) float64 { return r.CPUToNginx.Median }
	var all []Target
	for _, t := range []struct {
		what   string
		limit  float64
		is     func(Row) bool
		number func(Row) float64
	}{
		{"CPU of GET 1 KB and list 100 KB, HTTP/2, at 32 and 256", 1.3, func(r Row) bool { return crowded(r) && r.HTTP2 && !post(r) }, cpu},
		{"CPU over HTTP/1.1 and of POST, at 32 and 256", 1.5, func(r Row) bool { return crowded(r) && (!r.HTTP2 || post(r)) }, cpu},
		{"CPU one at a time", 2, func(r Row) bool { return !crowded(r) }, cpu},
		{"p99 in any cell", 1.1, func(Row) bool { return true }, func(r Row) float64 { return r.P99ToNginx.Median }},
	} {
		got, where := r.worst(t.is, t.number)
		all = append(all, Target{What: t.what, Limit: t.limit, Got: got, Cell: where, Kept: got <= t.limit})
	}
	return all
}

// Targets compares the front door for an ordinary user with the bare proxy that uses HTTP/2 to the backend.
func (r *Report) Targets() []Target {
	cpu := func(r Row) float64 { return r.CPUToH2.Median }
	crowded := func(r Row) bool { return r.Clients > 1 }
	var all []Target
	add := func(what string, limit, got float64, where string) {
		all = append(all, Target{What: what, Limit: limit, Got: got, Cell: where, Kept: got <= limit})
	}
	got, where := r.worst(func(r Row) bool { return r.of.name == operations[0].name && crowded(r) }, cpu)
	add("CPU of GET 1 KB at 32 and 256", 1.0, got, where)
	got, where = r.worst(func(r Row) bool { return r.of.name == operations[1].name }, cpu)
	add("CPU of list 100 KB", 0.8, got, where)
	got, where = r.worst(func(Row) bool { return true }, cpu)
	add("CPU in any cell", 1.15, got, where)
	got, where = r.worst(func(Row) bool { return true }, func(r Row) float64 { return r.P99ToH2.Median })
	add("p99 in any cell", 1.2, got, where)
	for _, w := range r.Watches {
		if w.Who == user && w.HTTP2 {
			// The idle CPU of a front door has a separate target (seconds per idle minute).
			add("CPU of a watch event, its own", 1.1, w.OwnToH2.Median, fmt.Sprintf("%d streams, %s", w.Streams, Protocol(w.HTTP2)))
		}
	}
	return all
}
