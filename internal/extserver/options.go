package extserver

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/pkg/extension"
)

// Options configure a Server. For each field, the zero value selects the default.
type Options struct {
	extension.Options

	// NodeName is the name of this machine's Node. Default: the host name in lower case.
	NodeName string

	// The hosted resources and their sources.
	Metrics       MetricsOptions
	Prometheus    PrometheusOptions
	CustomMetrics CustomMetricsOptions
	Projects      ProjectsOptions
	Declared      DeclaredOptions
}

// serviceName is the default name of the Service.
const serviceName = "portico-extserver"

func (o Options) withDefaults() (Options, error) {
	if o.Client == nil {
		var err error
		if o.Client, err = LoadClient(o.Kubeconfig); err != nil {
			return o, err
		}
	}
	o.ServiceName = cmp.Or(o.ServiceName, serviceName)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("host name of this machine: %w; give --node-name", err)
		}
		o.NodeName = strings.ToLower(name)
	}
	return o, o.validate()
}

func (o Options) validate() error {
	if problems := validation.IsDNS1123Subdomain(o.NodeName); len(problems) > 0 {
		return fmt.Errorf("node name %q: %s; give another --node-name", o.NodeName, strings.Join(problems, ", "))
	}
	if r := o.Metrics.Resolution; r < 0 || (r > 0 && r < time.Second) {
		return fmt.Errorf("--metric-resolution %s: must be at least 1s", r)
	}
	return nil
}

// LoadClient reads a kubeconfig. Rate limits have client-go's defaults.
func LoadClient(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "extserver"
	return config, nil
}

// AddFlags adds a flag for each option, except for the clients.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.ServiceName = cmp.Or(o.ServiceName, serviceName)
	o.AddServerFlags(fs)
	o.addMetricsFlags(fs)
	o.addHostedFlags(fs)
}

func (o *Options) addMetricsFlags(fs *pflag.FlagSet) {
	m := &o.Metrics
	fs.StringVar(&m.Source, "metrics-source", FromHost, "source of metrics.k8s.io: host, kubelet, prometheus or none")
	fs.DurationVar(&m.Resolution, "metric-resolution", 0, "interval of measurements (default 10s for host, 15s for the others)")
	fs.StringVar(&o.NodeName, "node-name", "", "name of the Node object of this machine (default: host name in lower case)")
	fs.StringVar(&m.HostPods, "host-pods", "auto", "objects reported as PodMetrics of this machine: auto, kubepods, units, processes or none")
	fs.StringVar(&m.HostNamespace, "host-namespace", "host", "namespace of the PodMetrics that describe units or processes")
	fs.IntVar(&m.HostMaxPods, "host-max-pods", 1000, "maximum number of PodMetrics of this machine")
	fs.StringVar(&m.CgroupPath, "cgroup-path", "/sys/fs/cgroup", "mount point of the cgroup file system")
	fs.StringVar(&m.NodeSelector, "node-selector", "", "label selector of the Nodes whose kubelets are scraped (default: all)")
	fs.StringSliceVar(&m.KubeletAddressTypes, "kubelet-preferred-address-types", nil, "address types of a Node to try, in order (default Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP)")
	fs.IntVar(&m.Kubelet.Port, "kubelet-port", 0, "port of kubelets (default: the port in the status of the Node, or 10250)")
	fs.StringVar(&m.Kubelet.CAFile, "kubelet-certificate-authority", "", "CA certificates of kubelets (default: the kubeconfig's)")
	fs.StringVar(&m.Kubelet.CertFile, "kubelet-client-certificate", "", "client certificate for kubelets (default: the kubeconfig's)")
	fs.StringVar(&m.Kubelet.KeyFile, "kubelet-client-key", "", "key of --kubelet-client-certificate")
	fs.StringVar(&m.Kubelet.BearerTokenFile, "kubelet-token-file", "", "file with the bearer token for kubelets (default: the kubeconfig's)")
	fs.BoolVar(&m.Kubelet.Insecure, "kubelet-insecure-tls", false, "do not verify the certificates of kubelets")
	fs.DurationVar(&m.Kubelet.Timeout, "kubelet-request-timeout", 10*time.Second, "timeout of one request to a kubelet")
	fs.StringVar(&m.PrometheusNodeQueries, "prometheus-node-queries", "node-exporter", "exporter of node metrics in Prometheus: node-exporter or cadvisor")
	fs.DurationVar(&m.PrometheusWindow, "prometheus-window", 2*time.Minute, "window of rate queries to Prometheus")
}

func (o *Options) addHostedFlags(fs *pflag.FlagSet) {
	p := &o.Prometheus
	fs.StringVar(&p.URL, "prometheus-url", "", "URL of the Prometheus server for --metrics-source=prometheus and --custom-metrics-rules")
	fs.StringVar(&p.CAFile, "prometheus-ca-file", "", "CA certificates of the Prometheus server (default: the system's)")
	fs.StringVar(&p.TokenFile, "prometheus-token-file", "", "file with the bearer token for the Prometheus server")
	fs.StringArrayVar(&p.Headers, "prometheus-header", nil, `additional header of requests to the Prometheus server, "Name: value"; may be repeated`)
	fs.StringSliceVar(&o.CustomMetrics.Rules, "custom-metrics-rules", nil, "rule files of prometheus-adapter; enables custom.metrics.k8s.io and external.metrics.k8s.io")
	fs.DurationVar(&o.CustomMetrics.RelistInterval, "metrics-relist-interval", time.Minute, "interval at which the series of the rules are listed")
	fs.DurationVar(&o.CustomMetrics.MaxAge, "metrics-max-age", 10*time.Minute, "maximum age of the last sample of a series that is listed as a metric")
	fs.BoolVar(&o.Projects.Enabled, "projects", false, "enable the project API, which lists the namespaces that a user may access and accepts requests for new ones")
	fs.StringVar(&o.Projects.Group, "project-group", "project.portico.dev", "API group of projects: project.portico.dev, or project.openshift.io for OpenShift's clients")
	fs.StringSliceVar(&o.Projects.Roles, "project-roles", []string{"admin"}, "ClusterRoles bound to the requester in the namespace of a new project")
	fs.IntVar(&o.Projects.MaxPerUser, "project-limit", 0, "maximum number of projects that one user may request (default: no limit)")
	fs.DurationVar(&o.Projects.PollInterval, "project-poll-interval", 15*time.Second, "interval at which watches of projects check for changes")
	fs.StringSliceVar(&o.Declared.Paths, "resources", nil, "YAML files, or directories of YAML files, that declare resources; reloaded when they change")
	fs.BoolVar(&o.Declared.AllowExec, "allow-exec-sources", false, "allow --resources to run commands with the permissions of this server")
}
