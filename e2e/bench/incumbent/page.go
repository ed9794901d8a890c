package incumbent

import (
	"bytes"
	"fmt"
	"net/http"
	"text/template"
	"time"

	"portico.dev/e2e/bench/proxied"
	"portico.dev/e2e/measure"
)

// Markdown renders the report as a page.
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

// Groups groups the rows by operation and protocol.
func (r *Report) Groups() []group {
	var all []group
	for _, row := range r.Proxied {
		title := row.Operation + " over " + proxied.Protocol(row.HTTP2)
		if len(all) == 0 || all[len(all)-1].Title != title {
			all = append(all, group{Title: title})
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, row)
	}
	return all
}

// Answer formats the response to the GET while the backend was dead.
func (r FaultRow) Answer() string {
	said := fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code))
	if r.Reason != "" {
		said = fmt.Sprintf("%d %s", r.Code, r.Reason)
	}
	return said + " after " + seconds(r.Answered)
}

// Namespace describes the deletion of the namespace while the backend was dead.
func (r FaultRow) Namespace() string {
	if r.Waited {
		return "waits; gone " + seconds(r.Returned) + " after the recovery"
	}
	return "gone after " + seconds(r.Deleted) + ", during the failure"
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

const pageText = `# Portico and kube-apiserver compared

Made on {{.Machine}}
Portico is compared with kube-apiserver {{.Version}}, which runs with kube-controller-manager and etcd. The run took {{printf "%.0f" .Took.Seconds}} s.

    make bench-incumbent

Every server is a separate process on one machine; the clients run there too. Both sides use the same serving certificate, tokens,
Roles and audit policy (level Metadata, written to a file). Both use RBAC and API Priority and Fairness. All other settings are the
defaults. By default, kube-apiserver writes audit events before it responds, and Portico does not. The separate etcd is built from
the module that Portico embeds. The backends and the requests are the same as in [proxied.md](proxied.md).

Numbers are medians; the minimum and the maximum are in brackets. **CPU is in microseconds per request, which equals milliseconds
per thousand requests.** A ratio is Portico's number divided by kube-apiserver's. Ratios are computed within each round, so that
other load on the machine affects both sides. The clients share the cores with the servers, so requests per second and latencies
describe all processes together.

## Summary

| | rows | ratio | highest, in | kube-apiserver lower in | of these within the noise |
|---|---|---|---|---|---|
{{- range .Ranges}}
| {{.What}} | {{.Lines}} | {{two .Least}} to {{two .Most}} | {{.Worst}} | {{.Cheaper}} | {{.Noisy}} |
{{- end}}
{{with .Behind}}
Rows in which kube-apiserver's number is lower:

| | | ratio |
|---|---|---|
{{- range .}}
| {{.What}} | {{.Line}} | {{x .Spread}} |
{{- end}}
{{else}}
No row has a lower number for kube-apiserver.
{{end}}
{{- range .Groups}}
## {{.Title}}

| at once | | CPU us | ratio | requests/s | p50 ms | ratio | p99 ms | ratio | backend CPU us | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{n .PerSecond}} | {{.P50}} | {{x .P50ToTheirs}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .BackendCPU}} | {{n .Peak}} |
{{- end}}
{{end}}
## Watches, proxied

The backend sends a thousand events a second of about 300 bytes each. The CPU per event includes a thousandth of the server's idle CPU per
second.

| streams | | CPU us per event | ratio | p50 ms | p99 ms | ratio | peak MiB |
|---|---|---|---|---|---|---|---|
{{- range .Watches}}
| {{.Streams}}, {{protocol .HTTP2}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{.P50}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .Peak}} |
{{- end}}

## Local objects

An administrator reads and writes ConfigMaps of about 1 KB over HTTP/2. "list 100" has a hundred objects. The CPU per watch event
includes the change itself, divided by the number of watches. The embedded etcd runs inside the Portico process, so only the
numbers "with etcd" can be compared with it.

| | at once | | CPU us of the API server | ratio | with etcd | ratio | per second | p50 ms | ratio | p99 ms | ratio | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Local}}
| {{.Name}} | {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{.All}} | {{x .AllToTheirs}} | {{n .PerSecond}} | {{.P50}} | {{x .P50ToTheirs}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .Peak}} |
{{- end}}

## Registrations

These are single runs, side by side. The ` + "`aggregator`" + ` process contains the API server, the controllers and the etcd. After all objects
are created, the measurement waits {{printf "%.0f" .Settings.Rest.Seconds}} s. The next {{printf "%.0f" .Settings.Idle.Seconds}} s without requests give the idle CPU. Memory is read at their end;
the peak is the sum of the peaks of the processes since their start.

| APIServices | side | RSS MiB | peak MiB | RSS by process | CPU s per idle minute | CPU by process | /apis p50 ms | /apis CPU us | /apis bytes | registered in | first response after, ms |
|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Registrations}}
| {{.APIServices}} | {{.Who}} | {{mib .RSS}} | {{mib .Peak}} | {{range $i, $p := .Parts}}{{if $i}}, {{end}}{{$p.Name}} {{mib $p.RSS}}{{end}} | {{f1 .IdleCPU}} | {{range $i, $p := .Parts}}{{if $i}}, {{end}}{{f1 $p.IdleCPU}}{{end}} | {{.APIs}} | {{n .APIsCPU}} | {{.APIsBytes}} | {{if .APIServices}}{{seconds .Registered}}{{end}} | {{.Appeared}} |
{{- end}}

## A backend fails

These are single runs, each fault on its own pair of servers, so fractions of seconds are not significant. The GET is sent after the backend
fails and before the Available condition becomes False. The namespace contains a ConfigMap and is deleted when Available is False.
The backend stays down for at least {{seconds .Settings.Dead}} after that, and until the GET is answered.

| fault | side | response to the GET | Available=False after | Available=True, after the recovery | deleted namespace |
|---|---|---|---|---|---|
{{- range .Faults}}
| {{.Fault}} | {{.Who}} | {{.Answer}} | {{seconds .Unavailable}} | {{seconds .Available}} | {{.Namespace}} |
{{- end}}

## Start-up time and size

Time from the start of the process to the first successful ` + "`/readyz`" + `, {{.Start.HowOften}} times with empty storage: Portico {{.Start.Ours}} ms, its etcd
included; kube-apiserver {{.Start.Theirs}} ms, with an etcd that was already running; ratio {{x .Start.ToTheirs}}.

| program | MB | MB without symbols and debug information |
|---|---|---|
{{- range .Programs}}
| {{.Name}} | {{mb .File}} | {{mb .Plain}} |
{{- end}}
`
