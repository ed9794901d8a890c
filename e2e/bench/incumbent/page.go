package incumbent

import (
	"bytes"
	"fmt"
	"net/http"
	"text/template"
	"time"

	"portico.dev/e2e/bench/measure"
	"portico.dev/e2e/bench/proxied"
)

// Markdown is the page of the report.
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

// Groups puts rows of one operation and one protocol together.
func (r *Report) Groups() []group {
	var all []group
	for _, row := range r.Proxied {
		title := row.Operation + ", clients speak " + proxied.Protocol(row.HTTP2)
		if len(all) == 0 || all[len(all)-1].Title != title {
			all = append(all, group{Title: title})
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, row)
	}
	return all
}

// Answer is what the GET of a dead backend was told.
func (r FaultRow) Answer() string {
	said := fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code))
	if r.Reason != "" {
		said = fmt.Sprintf("%d %s", r.Code, r.Reason)
	}
	return said + " after " + seconds(r.Answered)
}

// Namespace is what became of one that was deleted meanwhile.
func (r FaultRow) Namespace() string {
	if r.Waited {
		return "waits; gone " + seconds(r.Returned) + " after the return"
	}
	return "gone after " + seconds(r.Deleted) + ", without it"
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

const pageText = `# Beside kube-apiserver

Made on {{.Machine}}
The other side is kube-apiserver {{.Version}} with kube-controller-manager and etcd. The run took {{printf "%.0f" .Took.Seconds}} s.

    make bench-incumbent

Every server is a process of its own, on one machine with its clients. Both sides have the same serving certificate, tokens,
Roles, and audit policy (level Metadata, written to a file); both have RBAC and priority and fairness; and both are otherwise as
they come, which for audit means that kube-apiserver writes before it answers and that Portico does not. The etcd beside them is
built from the module that Portico embeds. The backends, and what they are asked, are those of [proxied.md](proxied.md).

Numbers are medians, the least and the greatest in brackets. **CPU is microseconds of one request, which is milliseconds of a
thousand.** Ratios are of ours to theirs and are taken in each round, in which what else the machine did met both: below 1 is
less. Clients share the cores, so requests per second and delays describe all processes together.

## In short

| | lines | ours to theirs | most, in | theirs is less in | of these within the noise |
|---|---|---|---|---|---|
{{- range .Ranges}}
| {{.What}} | {{.Lines}} | {{two .Least}} to {{two .Most}} | {{.Worst}} | {{.Cheaper}} | {{.Noisy}} |
{{- end}}
{{with .Behind}}
Lines in which theirs is less:

| | | ours to theirs |
|---|---|---|
{{- range .}}
| {{.What}} | {{.Line}} | {{x .Spread}} |
{{- end}}
{{else}}
There is no line in which theirs is less.
{{end}}
{{- range .Groups}}
## {{.Title}}

| at once | | CPU us | to theirs | requests/s | p50 ms | to theirs | p99 ms | to theirs | backend CPU us | RSS MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Rows}}
| {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{n .PerSecond}} | {{.P50}} | {{x .P50ToTheirs}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .BackendCPU}} | {{n .RSS}} |
{{- end}}
{{end}}
## Watches, proxied

A thousand events a second, of about 300 bytes. What a server does anyway in a second is in the CPU of a thousand events.

| streams | | CPU us of an event | to theirs | p50 ms | p99 ms | to theirs | RSS MiB |
|---|---|---|---|---|---|---|---|
{{- range .Watches}}
| {{.Streams}}, {{protocol .HTTP2}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{.P50}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .RSS}} |
{{- end}}

## Local objects

ConfigMaps of about 1 KB, by an administrator over HTTP/2; a list without more is of a hundred. An event's CPU is with the change
itself, shared by the watches. The embedded etcd is a part of its process, so that only the sums can be compared with it.

| | at once | | CPU us of the API server | to theirs | with etcd | to theirs | per second | p50 ms | to theirs | p99 ms | to theirs | RSS MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Local}}
| {{.Name}} | {{.Clients}} | {{.Who}} | {{.CPU}} | {{x .CPUToTheirs}} | {{.All}} | {{x .AllToTheirs}} | {{n .PerSecond}} | {{.P50}} | {{x .P50ToTheirs}} | {{.P99}} | {{x .P99ToTheirs}} | {{n .RSS}} |
{{- end}}

## Registrations

Single runs, side by side. An aggregator is everything in one: the API server, the controllers and the etcd. Memory is read
{{printf "%.0f" .Settings.Rest.Seconds}} s after all was made and {{printf "%.0f" .Settings.Idle.Seconds}} s in which nobody asked anything, whose CPU is shown.

| APIServices | side | RSS MiB | of these | CPU s of an idle minute | of these | /apis p50 ms | its CPU us | its bytes | registered in | first answer after, ms |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Registrations}}
| {{.APIServices}} | {{.Who}} | {{mib .RSS}} | {{range $i, $p := .Parts}}{{if $i}}, {{end}}{{$p.Name}} {{mib $p.RSS}}{{end}} | {{f1 .IdleCPU}} | {{range $i, $p := .Parts}}{{if $i}}, {{end}}{{f1 $p.IdleCPU}}{{end}} | {{.APIs}} | {{n .APIsCPU}} | {{.APIsBytes}} | {{if .APIServices}}{{seconds .Registered}}{{end}} | {{.Appeared}} |
{{- end}}

## A backend dies

Single runs, each on a pair of sides of its own: trust the seconds. The GET is sent when the backend is dead, before the
condition says so. The namespace has a ConfigMap in it, and is deleted when Available is False; the backend stays away for
{{seconds .Settings.Dead}} more at least, and until the GET has an answer.

| fault | side | the GET | Available=False after | Available=True, after the return | a namespace that is deleted |
|---|---|---|---|---|---|
{{- range .Faults}}
| {{.Fault}} | {{.Who}} | {{.Answer}} | {{seconds .Unavailable}} | {{seconds .Available}} | {{.Namespace}} |
{{- end}}

## Start, and size

From the start of the process to its first good /readyz, {{.Start.HowOften}} times on new data: Portico {{.Start.Ours}} ms, its etcd included,
and kube-apiserver {{.Start.Theirs}} ms, on an etcd that already ran; {{x .Start.ToTheirs}}.

| program | MB | MB without symbols and debug information |
|---|---|---|
{{- range .Programs}}
| {{.Name}} | {{mb .File}} | {{mb .Plain}} |
{{- end}}
`
