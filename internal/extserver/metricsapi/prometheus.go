package metricsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/prometheus"
	"portico.dev/internal/run"
)

// PrometheusConfig configures a PrometheusSource.
type PrometheusConfig struct {
	// Prometheus configures the client of the server. Required.
	Prometheus prometheus.Config
	// Queries are the queries for metrics. Each one defaults to the query in NodeExporterQueries.
	Queries Queries
	// Window is the window of rates. It should contain at least four scrapes. Default: 2 minutes.
	Window time.Duration
	// Resolution is the interval at which the server is queried, independently of requests. Default: 15 s.
	Resolution time.Duration
	// MaxAge is the maximum age of the last successful response that is still served. Default: 3 times Resolution.
	MaxAge time.Duration
	// Client configures the API server that provides the labels of Nodes and Pods. Default: none; label selectors then match
	// nothing.
	Client *rest.Config
	// Logger logs failures. Default: no logging.
	Logger *zap.Logger
}

func (c PrometheusConfig) withDefaults() (PrometheusConfig, error) {
	c.Window = cmp.Or(c.Window, 2*time.Minute)
	c.Resolution = cmp.Or(c.Resolution, 15*time.Second)
	c.MaxAge = cmp.Or(c.MaxAge, 3*c.Resolution)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	if c.Window < time.Second || c.Resolution < 0 || c.MaxAge < 0 {
		return c, errors.New("prometheus source: the window must be at least 1s, other durations not negative")
	}
	queries, err := c.Queries.withDefaults()
	c.Queries = queries.withWindow(c.Window)
	return c, err
}

// PrometheusSource queries a Prometheus server for the usage of nodes and pods periodically while Run runs.
type PrometheusSource struct {
	Cache
	config      PrometheusConfig
	prometheus  *prometheus.Client
	nodes, pods *lister // nil without Client
	trouble     atomic.Pointer[error]
}

// NewPrometheusSource returns a PrometheusSource. It reads the files that c names.
func NewPrometheusSource(c PrometheusConfig) (*PrometheusSource, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &PrometheusSource{config: c}
	if s.prometheus, err = prometheus.New(c.Prometheus); err != nil {
		return nil, err
	}
	if c.Client == nil {
		return s, nil
	}
	listing := listerConfig{Client: c.Client, Logger: c.Logger}
	if s.nodes, err = newNodeLabelLister(listing); err != nil {
		return nil, err
	}
	s.pods, err = newPodLabelLister(listing)
	return s, err
}

// Run queries the server until ctx ends.
func (s *PrometheusSource) Run(ctx context.Context) error {
	defer s.prometheus.Close()
	g := run.Group{}
	if s.nodes != nil {
		g.Add(run.Member{Name: "nodes", Run: s.nodes.Run})
		g.Add(run.Member{Name: "pods", Run: s.pods.Run})
	}
	g.Add(run.Member{Name: "prometheus", Run: s.sample})
	return g.Run(ctx)
}

func (s *PrometheusSource) sample(ctx context.Context) error {
	return run.Every(ctx, s.config.Resolution, func(ctx context.Context) { s.refresh(ctx, time.Now()) })
}

// answer is the result of one query.
type answer struct {
	samples  []prometheus.Sample
	warnings []string
}

// refresh sends the four queries, with the same evaluation time. If only the queries for nodes or only the queries for pods
// fail, the other results are published.
func (s *PrometheusSource) refresh(ctx context.Context, at time.Time) {
	q := s.config.Queries
	var nodeCPU, nodeMemory, podCPU, podMemory answer
	nodesErr := s.both(ctx, at, "nodes", q.NodeCPU, q.NodeMemory, &nodeCPU, &nodeMemory)
	podsErr := s.both(ctx, at, "pods", q.ContainerCPU, q.ContainerMemory, &podCPU, &podMemory)
	if ctx.Err() != nil {
		return
	}
	err := errors.Join(nodesErr, podsErr)
	if err != nil {
		s.config.Logger.Warn("failed to query Prometheus", zap.Error(err))
	}
	s.trouble.Store(&err)
	if nodesErr != nil && podsErr != nil {
		return // the published data age and expire
	}
	m := Measurement{
		Nodes:   nodeUsages(nodeCPU.samples, nodeMemory.samples, s.config.Queries.NodeLabels, s.config.Window),
		Pods:    podUsages(podCPU.samples, podMemory.samples, s.config.Window),
		Expires: at.Add(s.config.MaxAge),
	}
	for _, a := range []answer{nodeCPU, nodeMemory, podCPU, podMemory} {
		for _, text := range a.warnings {
			m.Warnings = append(m.Warnings, "prometheus: "+text)
		}
	}
	if err != nil {
		m.Warnings = append(m.Warnings, err.Error())
	}
	s.describe(&m)
	s.Publish(m)
}

func (s *PrometheusSource) both(ctx context.Context, at time.Time, what, cpu, memory string, toCPU, toMemory *answer) error {
	g, ctx := errgroup.WithContext(ctx)
	ask := func(query string, to *answer) func() error {
		return func() (err error) {
			to.samples, to.warnings, err = s.prometheus.Query(ctx, query, at)
			return err
		}
	}
	g.Go(ask(cpu, toCPU))
	g.Go(ask(memory, toMemory))
	if err := g.Wait(); err != nil {
		return fmt.Errorf("metrics of %s: %w", what, err)
	}
	return nil
}

// describe adds labels for selectors. Nodes and pods that the API server does not have are kept without labels: its lists may
// lag behind, or it may have other nodes.
func (s *PrometheusSource) describe(m *Measurement) {
	if s.nodes == nil {
		return
	}
	for i := range m.Nodes {
		o, _ := s.nodes.Lookup("", m.Nodes[i].Name)
		m.Nodes[i].Labels = o.Labels
	}
	for i := range m.Pods {
		o, _ := s.pods.Lookup(m.Pods[i].Namespace, m.Pods[i].Name)
		m.Pods[i].Labels = o.Labels
	}
}

// LastError returns the current errors, nil if all queries succeed.
func (s *PrometheusSource) LastError() error {
	var err error
	if p := s.trouble.Load(); p != nil {
		err = *p
	}
	if s.nodes == nil {
		return err
	}
	return errors.Join(err, s.nodes.LastError(), s.pods.LastError())
}

// Stored returns nil if there is data to serve (metrics-server's readiness check metric-storage-ready).
func (s *PrometheusSource) Stored(context.Context) error {
	return s.Filled(s.LastError())
}

// nodeUsages joins CPU and memory of nodes. It omits nodes without one of them.
func nodeUsages(cpu, memory []prometheus.Sample, labels []string, window time.Duration) []NodeUsage {
	bytes := map[string]float64{}
	for _, s := range memory {
		if name := nodeName(s.Metric, labels); name != "" && validValue(s.Value) {
			bytes[name] = s.Value
		}
	}
	var out []NodeUsage
	for _, s := range cpu {
		name := nodeName(s.Metric, labels)
		set, ok := bytes[name]
		if !ok || !validValue(s.Value) {
			continue
		}
		out = append(out, NodeUsage{
			Name:  name,
			Usage: Usage{Cores: s.Value, WorkingSet: uint64(set)},
			Span:  Span{Timestamp: s.Timestamp, Window: window},
		})
	}
	return out
}

// nodeName returns the first of labels that is present, without a port and in lower case, as in Node names.
func nodeName(metric map[string]string, labels []string) string {
	for _, label := range labels {
		name := metric[label]
		if name == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		return strings.ToLower(name)
	}
	return ""
}

type containerKey struct {
	PodKey
	container string
}

func containerOf(metric map[string]string) (containerKey, bool) {
	k := containerKey{PodKey{Namespace: metric["namespace"], Name: metric["pod"]}, metric["container"]}
	return k, k.Namespace != "" && k.Name != "" && k.container != ""
}

// podUsages joins CPU and memory of containers. It omits a pod if one of its containers has memory but no rate yet, because
// an autoscaler would use the incomplete sum.
func podUsages(cpu, memory []prometheus.Sample, window time.Duration) []PodUsage {
	cores := map[containerKey]prometheus.Sample{}
	for _, s := range cpu {
		if k, ok := containerOf(s.Metric); ok && validValue(s.Value) {
			cores[k] = s
		}
	}
	pods := map[PodKey]*PodUsage{}
	halves := map[PodKey]bool{}
	for _, s := range memory {
		k, ok := containerOf(s.Metric)
		if !ok || !validValue(s.Value) {
			continue
		}
		rate, ok := cores[k]
		if !ok {
			halves[k.PodKey] = true
			continue
		}
		u := pods[k.PodKey]
		if u == nil {
			u = &PodUsage{Namespace: k.Namespace, Name: k.Name, Span: Span{Timestamp: rate.Timestamp, Window: window}}
			pods[k.PodKey] = u
		}
		u.Containers = append(u.Containers, ContainerUsage{
			Name: k.container, Usage: Usage{Cores: rate.Value, WorkingSet: uint64(s.Value)},
		})
	}
	out := make([]PodUsage, 0, len(pods))
	for key, u := range pods {
		if !halves[key] {
			out = append(out, *u)
		}
	}
	return out
}

// validValue reports whether v is a possible value of a counter. It rejects NaN and infinities.
func validValue(v float64) bool { return !math.IsNaN(v) && v >= 0 && v < 1<<62 }

// windowToken is the placeholder for the window in queries.
const windowToken = "$window"

// Queries are PromQL queries. $window is replaced by the configured window. Series without a label that identifies the node
// or container are skipped.
type Queries struct {
	// NodeCPU returns cores and NodeMemory returns the working set in bytes, with one series for each node.
	NodeCPU, NodeMemory string
	// ContainerCPU and ContainerMemory return one series for each container, with the labels namespace, pod and container.
	ContainerCPU, ContainerMemory string
	// NodeLabels are the labels that contain the node name; the first one that is present is used. A port is removed.
	// Default: node, nodename, kubernetes_io_hostname, instance.
	NodeLabels []string
}

// NodeExporterQueries returns queries that measure nodes with node_exporter, and containers with the kubelet's cAdvisor. CPU
// time and memory are defined as for HostSource. Nodes are joined with node_uname_info, because the label instance usually
// contains an address instead of a Node name.
func NodeExporterQueries() Queries {
	const called = ` * on (job, instance) group_left (nodename) node_uname_info`
	return Queries{
		NodeCPU:         `sum by (node, nodename, instance) (rate(node_cpu_seconds_total{mode=~"user|nice|system|irq|softirq"}[$window])` + called + `)`,
		NodeMemory:      `sum by (node, nodename, instance) ((node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)` + called + `)`,
		ContainerCPU:    `sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{container!="",container!="POD",pod!=""}[$window]))`,
		ContainerMemory: `sum by (namespace, pod, container) (container_memory_working_set_bytes{container!="",container!="POD",pod!=""})`,
	}
}

// CAdvisorQueries returns queries that measure nodes with cAdvisor's root cgroup, as in prometheus-adapter's sample.
func CAdvisorQueries() Queries {
	q := NodeExporterQueries()
	q.NodeCPU = `sum by (node, kubernetes_io_hostname, instance) (rate(container_cpu_usage_seconds_total{id="/"}[$window]))`
	q.NodeMemory = `sum by (node, kubernetes_io_hostname, instance) (container_memory_working_set_bytes{id="/"})`
	return q
}

func (q Queries) withDefaults() (Queries, error) {
	defaults := NodeExporterQueries()
	for _, pair := range []struct{ given, standard *string }{
		{&q.NodeCPU, &defaults.NodeCPU}, {&q.NodeMemory, &defaults.NodeMemory},
		{&q.ContainerCPU, &defaults.ContainerCPU}, {&q.ContainerMemory, &defaults.ContainerMemory},
	} {
		if strings.TrimSpace(*pair.given) == "" {
			*pair.given = *pair.standard
		}
	}
	if len(q.NodeLabels) == 0 {
		q.NodeLabels = []string{"node", "nodename", "kubernetes_io_hostname", "instance"}
	}
	for _, label := range q.NodeLabels {
		if label == "" {
			return q, errors.New("prometheus source: an empty label cannot name a node")
		}
	}
	return q, nil
}

// promDuration formats d for PromQL, in whole seconds.
func promDuration(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }

func (q Queries) withWindow(window time.Duration) Queries {
	for _, text := range []*string{&q.NodeCPU, &q.NodeMemory, &q.ContainerCPU, &q.ContainerMemory} {
		*text = strings.ReplaceAll(*text, windowToken, promDuration(window))
	}
	return q
}
