package extserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/metricsapi"
	"portico.dev/internal/extserver/registration"
	"portico.dev/internal/run"
	"portico.dev/pkg/extension"
)

// Sources of metrics.k8s.io.
const (
	FromHost       = "host"
	FromKubelets   = "kubelet"
	FromPrometheus = "prometheus"
	FromNowhere    = "none"
)

// MetricsOptions configure metrics.k8s.io.
type MetricsOptions struct {
	// Source is FromHost (default), FromKubelets, FromPrometheus, or FromNowhere, which disables metrics.k8s.io.
	Source string
	// Resolution is the interval of measurements. Default: 10 s for the host, 15 s otherwise.
	Resolution time.Duration

	// ProcPath and CgroupPath are the mount points of procfs and cgroups. Default: /proc and /sys/fs/cgroup.
	ProcPath, CgroupPath string
	// HostPods selects the pods of this machine: auto, kubepods, units, processes, none. Default: auto.
	HostPods string
	// HostNamespace is the namespace of pods that do not exist in Kubernetes. HostMaxPods limits their number. Default: host
	// and 1000.
	HostNamespace string
	HostMaxPods   int

	// NodeSelector selects the Nodes to scrape. Default: all.
	NodeSelector string
	// Kubelet configures the connections to kubelets. Client, NodeSelector, Resolution and Logger are set from the other
	// options.
	Kubelet metricsapi.KubeletConfig
	// KubeletAddressTypes are the address types of a Node to try, in order of preference. Default: as in metrics-server.
	KubeletAddressTypes []string

	// PrometheusNodeQueries selects the queries for nodes: node-exporter (default) or cadvisor. PrometheusWindow is the
	// window of rates.
	PrometheusNodeQueries string
	PrometheusWindow      time.Duration
}

// measured is a source of metrics.k8s.io with its error state.
type measured interface {
	metricsapi.Source
	LastError() error
}

func (o Options) metricsPart() (*part, error) {
	switch o.Metrics.Source {
	case "", FromHost:
		return o.hostPart()
	case FromKubelets:
		return o.kubeletPart()
	case FromPrometheus:
		return o.prometheusPart()
	case FromNowhere:
		return nil, nil
	}
	return nil, fmt.Errorf("--metrics-source %q: it is one of %s, %s, %s, %s", o.Metrics.Source, FromHost, FromKubelets, FromPrometheus, FromNowhere)
}

func metricsOf(source measured, stored extension.Check, members ...run.Member) *part {
	return &part{
		resources: fixed(metricsapi.Resources(source)...),
		members:   members,
		sources:   func() []extension.Source { return []extension.Source{{Name: "metrics", LastError: source.LastError}} },
		ready:     []extension.Check{stored},
	}
}

func (o Options) hostPart() (*part, error) {
	m := o.Metrics
	nodes, err := newNodeLabels(o.Client, o.NodeName, o.Logger)
	if err != nil {
		return nil, err
	}
	sampler, err := metricsapi.NewHostSource(metricsapi.HostConfig{
		Node: o.NodeName, NodeLabels: nodes.Get, Pods: metricsapi.Grouping(m.HostPods), PodNamespace: m.HostNamespace,
		MaxPods: m.HostMaxPods, ProcPath: m.ProcPath, CgroupPath: m.CgroupPath, Resolution: m.Resolution, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	p := metricsOf(sampler, extension.Check{Name: "metric-storage-ready", Check: sampler.Stored},
		member("host metrics", sampler.Run), member("node labels", nodes.Run))
	p.live = []extension.Check{{Name: "metric-collection-timely", Check: sampler.Timely}}
	p.needs = []registration.Rule{{Groups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}
	return p, nil
}

// describedNeeds returns the permissions to list the described objects, because their labels select metrics.
func describedNeeds() registration.Rule {
	return registration.Rule{Groups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}}
}

func (o Options) kubeletPart() (*part, error) {
	m := o.Metrics
	selector, err := labels.Parse(m.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("--node-selector: %w", err)
	}
	c := m.Kubelet
	c.Client, c.NodeSelector, c.Resolution, c.Logger = o.Client, selector, m.Resolution, o.Logger
	for _, t := range m.KubeletAddressTypes {
		c.AddressTypes = append(c.AddressTypes, corev1.NodeAddressType(t))
	}
	source, err := metricsapi.NewKubeletSource(c)
	if err != nil {
		return nil, err
	}
	p := metricsOf(source, extension.Check{Name: "metric-storage-ready", Check: source.Stored}, member("kubelets", source.Run))
	p.needs = []registration.Rule{
		describedNeeds(),
		{Groups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	}
	return p, nil
}

func (o Options) prometheusPart() (*part, error) {
	m := o.Metrics
	server, err := o.Prometheus.config()
	if err != nil {
		return nil, err
	}
	queries, err := m.nodeQueries()
	if err != nil {
		return nil, err
	}
	source, err := metricsapi.NewPrometheusSource(metricsapi.PrometheusConfig{
		Prometheus: server, Queries: queries, Window: m.PrometheusWindow, Resolution: m.Resolution, Client: o.Client, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	p := metricsOf(source, extension.Check{Name: "metric-storage-ready", Check: source.Stored}, member("prometheus metrics", source.Run))
	p.needs = []registration.Rule{describedNeeds()}
	return p, nil
}

func (m MetricsOptions) nodeQueries() (metricsapi.Queries, error) {
	switch name := cmp.Or(m.PrometheusNodeQueries, "node-exporter"); name {
	case "node-exporter":
		return metricsapi.NodeExporterQueries(), nil
	case "cadvisor":
		return metricsapi.CAdvisorQueries(), nil
	default:
		return metricsapi.Queries{}, fmt.Errorf("--prometheus-node-queries %q: it is node-exporter or cadvisor", name)
	}
}

const (
	labelInterval = time.Minute
	labelTimeout  = 10 * time.Second
	// maxNodeBytes limits the size of the response. etcd does not store larger objects.
	maxNodeBytes = 2 << 20
)

// nodeLabels tracks the labels of this machine's Node object, so that clients can select its metrics by them. If the Node
// does not exist or cannot be read, its metrics have no labels.
type nodeLabels struct {
	http   *http.Client
	url    string
	log    *zap.Logger
	labels atomic.Pointer[map[string]string]
}

func newNodeLabels(client *rest.Config, node string, log *zap.Logger) (*nodeLabels, error) {
	c, err := rest.HTTPClientFor(client)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(client)
	if err != nil {
		return nil, fmt.Errorf("address of the front door: %w", err)
	}
	own := *c // client-go shares clients between callers with equal configurations
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &nodeLabels{http: &own, url: base.JoinPath("api", "v1", "nodes", url.PathEscape(node)).String(), log: log}, nil
}

// Get returns the last labels, nil before the first read.
func (n *nodeLabels) Get() map[string]string {
	if l := n.labels.Load(); l != nil {
		return *l
	}
	return nil
}

// Run reads the labels periodically until ctx ends.
func (n *nodeLabels) Run(ctx context.Context) error {
	defer n.http.CloseIdleConnections()
	tick := time.NewTicker(labelInterval)
	defer tick.Stop()
	for {
		labels, err := n.read(ctx)
		if err != nil {
			n.log.Debug("failed to get the labels of the Node", zap.Error(err))
		} else {
			n.labels.Store(&labels)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (n *nodeLabels) read(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	answer, err := n.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxNodeBytes))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the front door answered %d", answer.StatusCode)
	}
	var node metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &node); err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	return node.Labels, nil
}
