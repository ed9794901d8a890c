package load

import (
	"bytes"
	"fmt"
	"text/template"
	"time"

	"portico.dev/e2e/measure"
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

Every request is a GET of 1 KB through an APIService, over HTTP/2, by a user that RBAC authorizes. Where the request rate is fixed, every request has
a scheduled time. Its latency counts from that time, even if the request is sent later. Numbers with brackets are a median, with the minimum and the maximum
in brackets. "Own CPU" is the CPU per request over all rounds, garbage collection included, minus the CPU of the same front door without requests. "Peak"
is the peak resident memory during the measurement.
{{- if .APIServices}}

## Requests over many APIServices

{{.Settings.APIServices.PerSecond}} requests a second are distributed evenly over all APIServices of a front door. Each APIService has its own Service, group and backend, with a separate
port, certificate and certificate authority. Each backend gets one request before the measurement, so that the front door has an open connection to it. The
front doors run side by side and are loaded in turn, in {{.Settings.APIServices.Rounds}} rounds of {{.Settings.APIServices.Cell}}. An idle front door pings and probes every backend and polls its documents. At this request
rate, the idle CPU is a large part of the total.

| APIServices | requests/s | CPU us per request | ratio to the first row | idle CPU, ms/s | own CPU us | own CPU, ratio to the first row | p50 ms | p99 ms | p99, ratio to the first row | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{{- range .APIServices}}
| {{.APIServices}} | {{n .PerSecond.Median}} | {{.CPU}} | {{x .Ratio}} | {{.Idle}} | {{f1 .Own}} | {{x1 .OwnRatio}} | {{.P50}} | {{.P99}} | {{x .P99Ratio}} | {{mib .Peak}} |
{{- end}}

Targets: own CPU and p99 at most 1.05x.
{{- end}}
{{- if .Connections}}

## Many connections

{{.Settings.Connections.PerSecond}} requests a second are distributed evenly over all connections, for {{.Settings.Connections.Cell}}. All connections come from one client process. Each is a TLS connection with HTTP/2.
10,000 connections with 10 requests a second each would be 100,000 requests a second, for which the clients alone need more than two cores. Therefore the
rate is the same for few and for many connections, and the ratio shows the cost of the additional connections. "KiB each" is the growth of the memory since
before the connections were opened, up to the peak, per connection.

| | connections | requests/s | CPU us per request | ratio to the server's first row | p50 ms | p99 ms | CPU us to open one | KiB each | peak MiB |
|---|---|---|---|---|---|---|---|---|---|
{{- range .Connections}}
| {{.Who}} | {{.Connections}} | {{n .PerSecond}} | {{f1 .CPU}} | {{x1 .Ratio}} | {{f2 .P50}} | {{f2 .P99}} | {{n .Opening}} | {{kib .Each}} | {{mib .Peak}} |
{{- end}}
{{- end}}
{{- if .Bindings}}

## Changing bindings

{{.Settings.Bindings.Clients}} concurrent clients send requests over HTTP/2 to two front doors in turn, in {{.Settings.Bindings.Rounds}} rounds of {{.Settings.Bindings.Cell}}. Each front door has an embedded etcd. A change replaces the user of a
binding, through the front door. {{.Settings.Bindings.Changes}} changes a second cover half of 50,000 bindings in ten minutes. "Without requests" is the CPU in the same state while no client sends
requests. It includes the writes of the changes, in etcd too. "Own CPU" excludes it.

| bindings | namespaces | state | changes | requests/s | CPU us per request | without requests, CPU ms/s | own CPU us | own CPU, ratio to the first row | garbage collection us | p99 ms | kept MiB | peak MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
{{- range .Bindings}}
| {{.Bindings}} | {{.Namespaces}} | {{.State}} | {{.Changed}} | {{n .PerSecond.Median}} | {{.CPU}} | {{f1 .Anyway}} | {{f1 .Own}} | {{x1 .OwnRatio}} | {{.Collecting}} | {{.P99}} | {{mib .Kept}} | {{mib .Peak}} |
{{- end}}

Target: own CPU at most 1.05x. "Kept" is the memory in use after a garbage collection, stacks included.
{{- end}}
{{- with .OpenAPI}}

## Large OpenAPI documents

{{$.Settings.OpenAPI.Backends}} backends, each with its own APIService, port and certificate, are registered at {{$.Settings.OpenAPI.Registered}} a second. Each has an OpenAPI version 3 document of at least {{$.Settings.OpenAPI.Bytes}} bytes.
The documents are merged when the front door's index lists all of them. Then a client reads them one by one. The CPU is the front door's CPU since the first
registration, minus the CPU of the other requests at the cost per request measured before. Latencies during the registration are the highest of all
seconds.

| MB served | registered in s | merged in s | CPU s | RSS MiB before | peak MiB | kept MiB | requests/s | p50 ms before | p50 ms during | p99 ms before | p99 ms during |
|---|---|---|---|---|---|---|---|---|---|---|---|
| {{mb .Served}} | {{s .Registered}} | {{s .Merged}} | {{f1 .CPU}} | {{mib .Before}} | {{mib .Peak}} | {{mib .Kept}} | {{n .Meanwhile.PerSecond}} | {{f2 .Quiet.P50}} | {{f2 .Meanwhile.P50}} | {{f2 .Quiet.P99}} | {{f2 .Meanwhile.P99}} |
{{- end}}
`))
