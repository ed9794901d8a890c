package load

import (
	"bytes"
	"fmt"
	"text/template"
	"time"

	"portico.dev/e2e/bench/measure"
)

// Report contains the results. Parts that were not measured are empty.
type Report struct {
	Machine     measure.Machine  `json:"machine"`
	Settings    Settings         `json:"settings"`
	Took        time.Duration    `json:"tookNanoseconds"`
	APIServices []*APIServiceRow `json:"apiServices,omitempty"`
	Connections []*ConnectionRow `json:"connections,omitempty"`
	Bindings    []*BindingRow    `json:"bindings,omitempty"`
	OpenAPI     *OpenAPIRow      `json:"openAPI,omitempty"`
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

var page = template.Must(template.New("load").Funcs(template.FuncMap{
	"mib": func(n float64) string { return fmt.Sprintf("%.0f", n/(1<<20)) },
	"kib": func(n float64) string { return fmt.Sprintf("%.1f", n/(1<<10)) },
	"mb":  func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) },
	"x":   func(s measure.Spread) string { return fmt.Sprintf("%.2fx (%.2f..%.2f)", s.Median, s.Min, s.Max) },
	"x1":  func(f float64) string { return fmt.Sprintf("%.2fx", f) },
	"f1":  func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"f2":  func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"n":   func(f float64) string { return fmt.Sprintf("%.0f", f) },
	"s":   func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) },
}).Parse(`# Many APIServices, connections, bindings and documents under load

Made by ` + "`go run ./e2e/bench load`" + ` on {{.Machine}}
The run took {{printf "%.0f" .Took.Seconds}} s.

Every request is a GET of 1 KB through an APIService, over HTTP/2, by a user whom RBAC authorizes. Where requests have a rate, each is due at its own
moment, and its time begins then, whether it could be sent or not. Several numbers are a median, and the minimum and the maximum in brackets. "Its own" is the CPU of
all rounds together, garbage collection included, without what the front door does in the same time without requests. "Peak" is the largest resident
memory meanwhile.
{{- if .APIServices}}

## Requests over many APIServices

{{.Settings.APIServices.PerSecond}} requests a second go to all APIServices of a front door in turn. Each APIService has a Service, a group, and a backend of its own, with a port, a certificate and a
certificate authority. Each had a request before, so that there are connections. The front doors run side by side and are loaded in turn, in {{.Settings.APIServices.Rounds}} rounds of {{.Settings.APIServices.Cell}}. An idle front door pings and probes every backend and polls its
documents; with so few requests, that is most of what it does.

| APIServices | requests/s | CPU us of a request | to the first row | idle, CPU ms of a second | its own | its own, to the first row | p50 ms | p99 ms | to the first row | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .APIServices}}
| {{.APIServices}} | {{n .PerSecond.Median}} | {{.CPU}} | {{x .Ratio}} | {{.Idle}} | {{f1 .Own}} | {{x1 .OwnRatio}} | {{.P50}} | {{.P99}} | {{x .P99Ratio}} | {{mib .Peak}} |
{{- end}}

Targets: a request's own CPU, and p99, at most 1.05x.
{{- end}}
{{- if .Connections}}

## Many connections

{{.Settings.Connections.PerSecond}} requests a second go over all connections in turn, for {{.Settings.Connections.Cell}}. All connections come from one client process; each is a TLS connection with HTTP/2.
10,000 connections with 10 requests a second each would be 100,000 requests a second, which takes more than two cores for the clients alone: the rate is the same for few and
for many connections, so that what a connection costs is seen. "KiB each" is the growth of the peak over the memory before the connections were opened.

| | connections | requests/s | CPU us of a request | to the first of its rows | p50 ms | p99 ms | CPU us to open one | KiB each | peak MiB |
|---|---|---|---|---|---|---|---|---|---|
{{- range .Connections}}
| {{.Who}} | {{.Connections}} | {{n .PerSecond}} | {{f1 .CPU}} | {{x1 .Ratio}} | {{f2 .P50}} | {{f2 .P99}} | {{n .Opening}} | {{kib .Each}} | {{mib .Peak}} |
{{- end}}
{{- end}}
{{- if .Bindings}}

## Bindings that change

{{.Settings.Bindings.Clients}} clients ask at once, over HTTP/2, in {{.Settings.Bindings.Rounds}} rounds of {{.Settings.Bindings.Cell}}, of two front doors with an embedded etcd each, in turn. A change gives a binding another user, through the
front door. {{.Settings.Bindings.Changes}} changes a second are half of 50,000 bindings in ten minutes. "Without requests" is the CPU of the same state when nobody asks: it includes the writes of the
changes, in etcd too, and is not part of what a request costs "of its own".

| bindings | in namespaces | | changes | requests/s | CPU us of a request | without requests, CPU ms of a second | its own | its own, to the first row | of it garbage collection, us | p99 ms | kept MiB | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Bindings}}
| {{.Bindings}} | {{.Namespaces}} | {{.State}} | {{.Changed}} | {{n .PerSecond.Median}} | {{.CPU}} | {{f1 .Anyway}} | {{f1 .Own}} | {{x1 .OwnRatio}} | {{.Collecting}} | {{.P99}} | {{mib .Kept}} | {{mib .Peak}} |
{{- end}}

Target: at most 1.05x. "Kept" is the memory in use after a garbage collection, stacks included.
{{- end}}
{{- with .OpenAPI}}

## Much OpenAPI

{{$.Settings.OpenAPI.Backends}} backends of their own, as above, are registered, {{$.Settings.OpenAPI.Registered}} a second, each with a document of OpenAPI version 3 of at least {{$.Settings.OpenAPI.Bytes}} bytes. They are merged when the index of the front door has all of
them. Then all are read one by one. The CPU is the front door's from the first registration on, without the requests, which cost what they did before. Of requests
meanwhile, the worst second is told.

| MB served | registered in s | merged in s | CPU s | RSS MiB before | peak MiB | kept MiB | requests/s | p50 ms before | p50 ms meanwhile | p99 ms before | p99 ms meanwhile |
|---|---|---|---|---|---|---|---|---|---|---|---|
| {{mb .Served}} | {{s .Registered}} | {{s .Merged}} | {{f1 .CPU}} | {{mib .Before}} | {{mib .Peak}} | {{mib .Kept}} | {{n .Meanwhile.PerSecond}} | {{f2 .Quiet.P50}} | {{f2 .Meanwhile.P50}} | {{f2 .Quiet.P99}} | {{f2 .Meanwhile.P99}} |
{{- end}}
`))
