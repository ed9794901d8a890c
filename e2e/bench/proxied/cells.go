package proxied

import (
	"fmt"
	"net/http"
	"strings"

	"portico.dev/e2e/bench/environment"
)

// operation is something that clients do.
type operation struct {
	name, method, below, body string
}

var operations = []operation{
	{name: "GET 1 KB", method: http.MethodGet, below: "/small"},
	{name: "list 100 KB", method: http.MethodGet},
	{name: "POST 1 KB", method: http.MethodPost, body: strings.Repeat(" ", 24) + `{"apiVersion":"bench-00000.example.com/v1","kind":"Thing","metadata":{"name":"new"},"data":"` + strings.Repeat("p", 900) + `"}`},
}

// Cell is one line of the table but for whom is asked.
type Cell struct {
	Operation string `json:"operation"`
	HTTP2     bool   `json:"http2"`
	Clients   int    `json:"clients"`

	of operation
}

func (c Cell) String() string {
	return fmt.Sprintf("%s, %s, %d at once", c.Operation, Protocol(c.HTTP2), c.Clients)
}

// Protocol is its name.
func Protocol(http2 bool) string {
	if http2 {
		return "HTTP/2"
	}
	return "HTTP/1.1"
}

// Cells are every operation, by clients of both protocols, one, some and many at once.
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

// Ask is the cell's request.
func (c Cell) Ask(token string) environment.Ask {
	return environment.Ask{
		Method: c.of.method, Path: environment.Path(0) + c.of.below, Body: c.of.body, Token: token, HTTP2: c.HTTP2, Clients: c.Clients,
	}
}

// WatchCell is watch streams: the events of all together are a thousand a second.
type WatchCell struct {
	HTTP2   bool   `json:"http2"`
	Streams int    `json:"streams"`
	Every   string `json:"every"` // between two events of one stream
}

// WatchCells are over both protocols.
func WatchCells() []WatchCell {
	return []WatchCell{{HTTP2: true, Streams: 1000, Every: "1s"}, {HTTP2: false, Streams: 100, Every: "100ms"}}
}

// Ask is the watch.
func (c WatchCell) Ask(token string) environment.Ask {
	return environment.Ask{Method: http.MethodGet, Path: environment.Path(0) + "?watch=true&every=" + c.Every, Token: token, HTTP2: c.HTTP2}
}
