package nodes

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"portico.dev/e2e/measure"
)

// The API servers and their processes.
const (
	ours          = "Portico"
	others        = "kube-apiserver"
	serverProcess = "API server"
	etcdProcess   = "etcd"
)

// Classes of calls with objectives in Kubernetes: the 99th percentile of calls that change one object, and of calls
// that read one, is at most one second. For lists it is at most 30 s.
const (
	mutating = "changes one object"
	single   = "reads one object"
	lists    = "lists"
)

var classes = []string{mutating, single, lists}

// objective returns the limit of a class in milliseconds.
func objective(class string) float64 {
	if class == lists {
		return 30_000
	}
	return 1000
}

// Report contains the results.
type Report struct {
	Machine measure.Machine `json:"machine"`
	// Version of kube-apiserver.
	Version  string        `json:"kubeAPIServer"`
	Settings Settings      `json:"settings"`
	Took     time.Duration `json:"tookNanoseconds"`
	Rows     []*Row        `json:"servers"`
}

// Row contains the results of one API server.
type Row struct {
	Who    string  `json:"server"`
	Phases []Phase `json:"phases"`
	Probes []Probe `json:"probes"`
	// Calls and SLI contain all calls of the run, from the metrics of the server: the total duration, and the
	// duration without webhooks and queues.
	Calls []Calls `json:"calls"`
	SLI   []Calls `json:"sli"`
}

// Phase contains the results of one part of the run.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Uses    []Use   `json:"processes"`
}

// Use contains the resources that a process used in a phase: CPU in seconds, memory in MiB.
type Use struct {
	Process string  `json:"process"`
	CPU     float64 `json:"cpuSeconds"`
	// Peak is the peak resident memory, RSS the resident memory at the end.
	Peak float64 `json:"rssPeakMiB"`
	RSS  float64 `json:"rssMiB"`
}

// Probe contains the results of one client while Pods were created. Times are in milliseconds.
type Probe struct {
	Name     string  `json:"name"`
	Class    string  `json:"class"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Example  string  `json:"failedWith,omitempty"`
	P50      float64 `json:"p50ms"`
	P99      float64 `json:"p99ms"`
	Max      float64 `json:"maxms"`
}

// Calls contains the calls of one class. Times are in milliseconds.
type Calls struct {
	Class string  `json:"class"`
	Count float64 `json:"count"`
	P99   float64 `json:"p99ms"`
	// Worst is the kind of call in the class with the highest p99, among kinds with at least a hundred calls.
	// WorstP99 is its p99.
	Worst    string  `json:"worst"`
	WorstP99 float64 `json:"worstP99ms"`
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(n int64) float64        { return float64(n) / (1 << 20) }

// The names of the metrics at both servers. They exclude calls without a bounded duration, such as watches. The
// Kubernetes objectives apply to the second metric, which has wider buckets.
const (
	durationMetric = "apiserver_request_duration_seconds"
	sliMetric      = "apiserver_request_sli_duration_seconds"
)

// enoughCalls is the minimum number of calls for a meaningful p99.
const enoughCalls = 100

// callsOf parses the calls in a page of metrics.
func callsOf(page []byte, metric string) ([]Calls, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	family := families[metric]
	if family == nil {
		return nil, fmt.Errorf("no metric %s", metric)
	}
	all := map[string]*histogram{}
	kinds := map[string]map[string]*histogram{}
	for _, m := range family.Metric {
		class, kind := classify(m)
		if class == "" {
			continue
		}
		if all[class] == nil {
			all[class], kinds[class] = &histogram{}, map[string]*histogram{}
		}
		if kinds[class][kind] == nil {
			kinds[class][kind] = &histogram{}
		}
		all[class].add(m.Histogram)
		kinds[class][kind].add(m.Histogram)
	}
	var result []Calls
	for _, class := range classes {
		if all[class] == nil {
			continue
		}
		c := Calls{Class: class, Count: all[class].count, P99: all[class].quantile(0.99) * 1000}
		for kind, h := range kinds[class] {
			if p99 := h.quantile(0.99) * 1000; h.count >= enoughCalls && (p99 > c.WorstP99 || p99 == c.WorstP99 && kind < c.Worst) {
				c.Worst, c.WorstP99 = kind, p99
			}
		}
		result = append(result, c)
	}
	return result, nil
}

// classify returns the class and the kind of a call. The class is empty for calls that do not concern resources.
func classify(m *dto.Metric) (class, kind string) {
	labels := map[string]string{}
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["resource"] == "" {
		return "", ""
	}
	kind = labels["verb"] + " " + labels["resource"]
	if sub := labels["subresource"]; sub != "" {
		kind += "/" + sub
	}
	switch labels["verb"] {
	case "POST", "PUT", "PATCH", "APPLY", "DELETE":
		return mutating, kind
	case "GET":
		return single, kind
	case "LIST", "DELETECOLLECTION":
		return lists, kind
	}
	return "", ""
}

// histogram is the sum of several histograms.
type histogram struct {
	count   float64
	buckets map[float64]float64 // cumulative counts by upper bound in seconds
}

func (h *histogram) add(of *dto.Histogram) {
	if h.buckets == nil {
		h.buckets = map[float64]float64{}
	}
	h.count += float64(of.GetSampleCount())
	for _, b := range of.Bucket {
		h.buckets[b.GetUpperBound()] += float64(b.GetCumulativeCount())
	}
}

// quantile interpolates linearly within a bucket, like Prometheus. Values above the last finite bound count as that
// bound.
func (h *histogram) quantile(q float64) float64 {
	bounds := make([]float64, 0, len(h.buckets))
	for bound := range h.buckets {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	rank, below, from := q*h.count, 0.0, 0.0
	for _, bound := range bounds {
		if math.IsInf(bound, 1) {
			break
		}
		upTo := h.buckets[bound]
		if upTo >= rank && upTo > below {
			return from + (bound-from)*(rank-below)/(upTo-below)
		}
		below, from = upTo, bound
	}
	return from
}

// server sums a number over the processes of the API server, including a separate etcd.
func (p Phase) server(number func(Use) float64) (total float64) {
	for _, u := range p.Uses {
		if u.Process == serverProcess || u.Process == etcdProcess {
			total += number(u)
		}
	}
	return total
}

// The phases, in their order.
const (
	empty = iota
	nodesReady
	podsAvailable
	full
	phases
)

// Estimate contains the resources that an API server and its etcd need for a number of Nodes and Pods, extrapolated
// linearly from the results.
type Estimate struct {
	Who string
	// IdlePerThousand is in milliseconds of CPU per second for a thousand Nodes. PerPod is in milliseconds of CPU to
	// create a Pod.
	IdlePerThousand, PerPod float64
	// KiBPerNode is the memory for a Node with its Pods, because the two cannot be separated.
	KiBPerNode float64
	// Idle is in cores, Memory in MiB. Cores is the CPU in cores while podsPerSecond Pods are created per second.
	Idle, Memory, Cores float64
}

// large is the maximum number of Nodes that Kubernetes supports.
const large = 5000

// podsPerSecond is the rate at which Pods are created in the estimate.
const podsPerSecond = 100

// Estimates returns the estimates for large Nodes, with the same number of Pods per Node as in the run.
func (r *Report) Estimates() (all []Estimate) {
	for _, row := range r.Rows {
		if len(row.Phases) != phases {
			continue
		}
		cpu := func(u Use) float64 { return u.CPU }
		rss := func(u Use) float64 { return u.RSS }
		idle := func(p Phase) float64 { return p.server(cpu) / p.Seconds }
		n := float64(r.Settings.Nodes)
		e := Estimate{Who: row.Who}
		perNode := max(0, idle(row.Phases[full])-idle(row.Phases[empty])) / n
		perNodeMiB := max(0, row.Phases[full].server(rss)-row.Phases[empty].server(rss)) / n
		perPod := row.Phases[podsAvailable].server(cpu) / float64(r.Settings.Pods)
		e.IdlePerThousand, e.PerPod, e.KiBPerNode = perNode*1000*1000, perPod*1000, perNodeMiB*1024
		e.Idle = idle(row.Phases[empty]) + perNode*large
		e.Memory = row.Phases[empty].server(rss) + perNodeMiB*large
		e.Cores = e.Idle + perPod*podsPerSecond
		all = append(all, e)
	}
	return all
}

// Target is a Kubernetes objective with the measured value.
type Target struct {
	Who, What  string
	Limit, Got float64
}

// IsMet reports whether the measured value is within the objective.
func (t Target) IsMet() bool { return t.Got <= t.Limit }

// Targets compares both servers with the objectives, by their metrics and by the probes. The worst value of a class
// counts.
func (r *Report) Targets() (all []Target) {
	for _, row := range r.Rows {
		for _, c := range row.SLI {
			all = append(all, Target{row.Who, c.Class + ", by its metrics, worst kind of call", objective(c.Class), max(c.P99, c.WorstP99)})
		}
		for _, class := range classes {
			worst := 0.0
			for _, p := range row.Probes {
				if p.Class == class {
					worst = max(worst, p.P99)
				}
			}
			all = append(all, Target{row.Who, class + ", by a client", objective(class), worst})
		}
	}
	slices.SortStableFunc(all, func(a, b Target) int { return cmp.Compare(a.What, b.What) })
	return all
}

// Busy reports whether the machine had other load. The CPU and memory of a process are then valid, but latencies are
// not.
func (r *Report) Busy() bool {
	load, err := strconv.ParseFloat(r.Machine.Load, 64)
	return err == nil && load > float64(r.Machine.Cores)
}

// Failed describes the failed requests of all probes of a server.
func (r *Row) Failed() string {
	var said []string
	for _, p := range r.Probes {
		if p.Failed > 0 {
			said = append(said, fmt.Sprintf("%d of %s (%s)", p.Failed, p.Name, p.Example))
		}
	}
	return strings.Join(said, ", ")
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, r)
	return b.Bytes(), err
}

// number formats a number with three significant digits.
func number(f float64) string {
	if f == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 3), f)
}

func perSecond(p Phase, u Use) string { return number(u.CPU / p.Seconds * 1000) }

var page = template.Must(template.New("nodes").Funcs(template.FuncMap{"n": number, "perSecond": perSecond}).Parse(`# Many Nodes

Made on {{.Machine}}
kube-apiserver, kube-controller-manager and kube-scheduler are {{.Version}}. The run took {{printf "%.0f" .Took.Seconds}} s.

    make bench-nodes

{{if .Busy}}The machine had other load, as the load average shows. CPU and memory of each process are still valid. Times, and results that depend on
times, are not. To check the objectives, repeat the run on an otherwise idle machine.

{{end}}The cluster has {{.Settings.Nodes}} Nodes, simulated by kwok, and {{.Settings.Pods}} Pods in Deployments of 100. The API servers run one after the other,
each with a new cluster and the same kube-controller-manager, kube-scheduler and kwok. All processes run on this machine, so times include
the CPU that these programs use. Portico runs its etcd in the same process; kube-apiserver has a separate etcd of the same version. Both write
every request to an audit log. All controllers run in kube-controller-manager, with its client rate limit raised to 1000 requests per second.

## Phases

CPU is in seconds, and in milliseconds per second. Memory is in MiB.
{{range .Rows}}
### {{.Who}}

| phase | duration s | process | CPU s | CPU ms/s | peak memory | memory at the end |
|---|---|---|---|---|---|---|
{{range $p := .Phases}}{{range .Uses}}| {{$p.Name}} | {{n $p.Seconds}} | {{.Process}} | {{n .CPU}} | {{perSecond $p .}} | {{n .Peak}} | {{n .RSS}} |
{{end}}{{end}}{{end}}
## API calls in the servers' metrics

The table contains all calls of the run, from ` + "`apiserver_request_duration_seconds`" + `, which excludes watches. Times are in milliseconds. The worst kind
of call has the highest p99 among the kinds with at least a hundred calls.

| | API server | calls | p99 | worst kind of call | its p99 |
|---|---|---|---|---|---|
{{range $r := .Rows}}{{range .Calls}}| {{.Class}} | {{$r.Who}} | {{n .Count}} | {{n .P99}} | {{.Worst}} | {{n .WorstP99}} |
{{end}}{{end}}
## API calls of a client

While Pods are created, a client sends requests at a constant rate: for one object every {{.Settings.Every}}, for a list every {{.Settings.EveryList}}. Times
are in milliseconds and include the complete response.

| | API server | requests | p50 | p99 | longest |
|---|---|---|---|---|---|
{{range $r := .Rows}}{{range .Probes}}| {{.Name}} | {{$r.Who}} | {{.Requests}} | {{n .P50}} | {{n .P99}} | {{n .Max}} |
{{end}}{{end}}
{{range .Rows}}{{with .Failed}}Failed requests: {{.}}.
{{end}}{{end}}
## Kubernetes objectives

Kubernetes requires a p99 under 1 s for calls that read or change one object, and under 30 s for lists
([definition](https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md)). Times are in milliseconds. Results "by its metrics"
are from ` + "`apiserver_request_sli_duration_seconds`" + `, as in the definition. The smallest bucket of that metric is 50 ms, so lower values are not exact.

| | API server | objective | result |
|---|---|---|---|
{{range .Targets}}| {{.What}} | {{.Who}} | {{n .Limit}} | {{n .Got}}{{if not .IsMet}}: **not met**{{end}} |
{{end}}
## 5,000 Nodes

This is a linear extrapolation of the run, for the API server and its etcd together:

- Idle CPU and memory without Nodes are from the first phase. The difference between the last and the first phase counts as the cost of the
  Nodes with their Pods: each Node renews its lease every ten seconds and reports its status every fifteen minutes.
- The CPU of a Pod is the CPU of the phase in which the Pods become available, divided by their number. A Pod causes about six writes: its
  creation, its binding, its status, its Events, and the status of its ReplicaSet and Deployment. It includes their delivery to watches.

| | idle CPU ms/s per 1,000 Nodes | KiB per Node with its Pods | CPU ms per Pod | idle CPU at 5,000 Nodes, cores | memory at 5,000 Nodes, MiB | CPU at 100 new Pods a second, cores |
|---|---|---|---|---|---|---|
{{range .Estimates}}| {{.Who}} | {{n .IdlePerThousand}} | {{n .KiBPerNode}} | {{n .PerPod}} | {{n .Idle}} | {{n .Memory}} | {{n .Cores}} |
{{end}}
The extrapolation excludes etcd's disk, and two costs of real Nodes. Their status is longer than kwok's, because it lists images. Each kubelet and
kube-proxy watches its Pods, Services and EndpointSlices, while kwok has one watch for all Nodes. Memory is the resident memory at the end of a
phase. The garbage collector lets it grow under load; the tables of the phases contain the peaks.
`))
