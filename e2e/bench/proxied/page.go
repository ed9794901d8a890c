package proxied

import (
	"bytes"
	"fmt"
	"text/template"

	"portico.dev/e2e/measure"
)

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, map[string]any{"R": r, "Groups": Groups(r.Rows), "Targets": r.Targets(), "ToNginx": r.TargetsToNginx(), "IdleFront": r.Idle[user], "IdleBare": r.Idle[bareH2]})
	return b.Bytes(), err
}

// Group is one table.
type Group struct {
	Title string
	Rows  []Row
}

// Groups groups the rows by operation and protocol.
func Groups(rows []Row) []Group {
	var all []Group
	for _, row := range rows {
		title := row.Operation + ", clients speak " + Protocol(row.HTTP2)
		if len(all) == 0 || all[len(all)-1].Title != title {
			all = append(all, Group{Title: title})
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, row)
	}
	return all
}

// Times renders a ratio. It is empty if the ratio is.
func Times(s measure.Spread) string {
	if s == (measure.Spread{}) {
		return ""
	}
	return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max)
}

// Number renders a median. It is empty if the spread is: allocations of nginx are not counted.
func Number(s measure.Spread) string {
	if s == (measure.Spread{}) {
		return ""
	}
	return fmt.Sprintf("%.0f", s.Median)
}

var page = template.Must(template.New("proxied").Funcs(template.FuncMap{
	"x": Times, "protocol": Protocol, "n": Number,
	"two": func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"yes": func(b bool) string { return map[bool]string{true: "yes", false: "**no**"}[b] },
}).Parse(`# Proxied requests, compared with a bare reverse proxy

Made by ` + "`make bench`" + ` on {{.R.Machine}}
{{.R.Rounds}} rounds of {{.R.Cell}} for each cell; the run took {{printf "%.0f" .R.Took.Seconds}} s.

The backend, two bare ` + "`httputil.ReverseProxy`" + ` servers, nginx where it is installed, the front door and the clients run on one machine. Each server is a
separate process. Connections to the backend use TLS with client certificates. The bare proxies neither authenticate nor log
requests. The front door authenticates a token, authorizes by RBAC, applies API Priority and Fairness, and writes audit events
at level Metadata to a file.

Numbers are medians of the rounds; the minimum and the maximum are in brackets. **CPU is microseconds per request, which equals
milliseconds per thousand requests.** Ratios are computed within each round, so that other load on the machine affects both
sides. Ratios can be compared between machines; absolute numbers cannot. The clients share the cores with the servers, so
requests per second describe all processes together.

## Targets: an ordinary user, compared with the bare proxy that uses HTTP/2 to the backend

| | at most | worst median | in | met |
|---|---|---|---|---|
{{- range .Targets}}
| {{.What}} | {{two .Limit}} | {{two .Got}} | {{.Cell}} | {{yes .Kept}} |
{{- end}}
{{if .ToNginx}}
## Targets: the same user, compared with nginx

nginx has one worker process, speaks HTTP/1.1 over TLS with client certificates to the backend, and keeps these connections. It does none of the
things that the front door does for a request either.

| | at most | worst median | in | met |
|---|---|---|---|---|
{{- range .ToNginx}}
| {{.What}} | {{two .Limit}} | {{two .Got}} | {{.Cell}} | {{yes .Kept}} |
{{- end}}
{{end -}}
{{range .Groups}}
## {{.Title}}

| at once | | CPU us | to bare, HTTP/2 out | to bare, HTTP/1.1 out | to nginx | requests/s | p50 ms | p99 ms | p99 to bare | p99 to nginx | backend, client CPU us | allocations | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToH2}} | {{x .CPUToH1}} | {{x .CPUToNginx}} | {{n .PerSecond}} | {{.P50}} | {{.P99}} | {{x .P99ToH2}} | {{x .P99ToNginx}} | {{n .BackendCPU}}, {{n .ClientCPU}} | {{n .Allocations}} | {{n .Peak}} |
{{- end}}
{{end}}
## Watches

The backend sends a thousand events a second of about 300 bytes each. The backend and the client use the same clock, so the
delay is the difference of their times. An idle front door is a complete API server with an etcd and uses {{printf "%.0f" .IdleFront}} us of CPU a
second; a bare proxy uses {{printf "%.0f" .IdleBare}}. A thousandth of that is part of the CPU of each event. "Its own" leaves it out.

| streams | | CPU us of an event | to bare, HTTP/2 out | to bare, HTTP/1.1 out | its own | its own, to bare | p50 ms | p99 ms | backend, client CPU us | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .R.Watches}}
| {{.Streams}}, {{protocol .HTTP2}} | {{.Who}} | {{.CPU}} | {{x .CPUToH2}} | {{x .CPUToH1}} | {{.Own}} | {{x .OwnToH2}} | {{.P50}} | {{.P99}} | {{n .BackendCPU}}, {{n .ClientCPU}} | {{n .Peak}} |
{{- end}}

## The cost of single settings

GET 1 KB, HTTP/2, 32 at once, by the ordinary user. The front doors run side by side and differ in one flag.

| | CPU us | to the first | p99 ms | allocations |
|---|---|---|---|---|
{{- range .R.Options}}
| {{.Who}} | {{.CPU}} | {{x .CPUToH2}} | {{.P99}} | {{n .Allocations}} |
{{- end}}
`))
