package extserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options make a Server. The zero value of a field is its default.
type Options struct {
	// Client is how the front door is reached, and as whom. Required. See LoadClient.
	Client *rest.Config
	// AuthenticationClient and AuthorizationClient are for TokenReview and the trust ConfigMap, and for
	// SubjectAccessReview. Default: Client.
	AuthenticationClient, AuthorizationClient *rest.Config

	// BindAddress and Port are where the server listens. Port 0 takes a free one. Default address: 0.0.0.0.
	BindAddress string
	Port        int
	// CertFile and KeyFile are the serving certificate. Default: one made by itself, for the service's names,
	// localhost and the addresses of this machine that it listens on.
	CertFile, KeyFile string
	// CAFile is what CertFile chains to, for the caBundle. Default: CertFile itself.
	CAFile string
	// CertDir keeps the authority and the certificate that the server makes by itself over restarts. Default: memory.
	CertDir string
	// CAOverlap is how long a replaced CA certificate stays in caBundle. Default a day.
	CAOverlap time.Duration

	// NodeName is the Node that this machine is. Default: the host name in lower case.
	NodeName string

	// What is hosted, and from where.
	Metrics       MetricsOptions
	Prometheus    PrometheusOptions
	CustomMetrics CustomMetricsOptions
	Projects      ProjectsOptions
	Declared      DeclaredOptions

	// Register writes the Service and the APIServices through the API.
	Register bool
	// ServiceNamespace and ServiceName name the Service. Default kube-system and portico-extserver.
	ServiceNamespace, ServiceName string
	// ExternalName is the DNS name under which a front door reaches this machine. Default localhost.
	ExternalName string
	// AdvertiseAddresses make a Service with an EndpointSlice of them instead.
	AdvertiseAddresses []string
	// ServiceSelector makes a Service that selects this server's pods instead.
	ServiceSelector map[string]string
	// CreateRegistration has Manifests and Rights let the server create and delete its own Service, EndpointSlice and
	// APIServices. It changes nothing in the server itself.
	CreateRegistration bool

	// AnonymousAuth lets callers without credentials ask, as system:anonymous. Default: 401.
	AnonymousAuth bool
	// AlwaysAllowPaths and AlwaysAllowGroups are let through without asking the front door. Defaults of
	// kube-apiserver's delegated authorization: /healthz, /livez, /readyz; system:masters.
	AlwaysAllowPaths, AlwaysAllowGroups []string

	MaxRequestsInFlight int
	RequestTimeout      time.Duration
	ShutdownDelay       time.Duration
	Profiling           bool
	AccessLog           bool
	Logger              *zap.Logger
	// WhenReady is called once, when the server serves. Optional.
	WhenReady func()
}

func (o Options) withDefaults() (Options, error) {
	if o.Client == nil {
		return o, errors.New("a kubeconfig is required: it says which front door vouches for callers")
	}
	if o.AuthenticationClient == nil {
		o.AuthenticationClient = o.Client
	}
	if o.AuthorizationClient == nil {
		o.AuthorizationClient = o.Client
	}
	if o.ServiceNamespace == "" {
		o.ServiceNamespace = "kube-system"
	}
	if o.ServiceName == "" {
		o.ServiceName = "portico-extserver"
	}
	if o.ExternalName == "" {
		o.ExternalName = "localhost"
	}
	if o.BindAddress == "" {
		o.BindAddress = "0.0.0.0"
	}
	if o.AlwaysAllowPaths == nil {
		o.AlwaysAllowPaths = []string{"/healthz", "/livez", "/readyz"}
	}
	if o.AlwaysAllowGroups == nil {
		o.AlwaysAllowGroups = []string{"system:masters"}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
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
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if o.CertFile != "" && o.CertDir != "" {
		return errors.New("--cert-dir is for a certificate that the server makes by itself, and --tls-cert-file names another")
	}
	if len(o.ServiceSelector) > 0 && len(o.AdvertiseAddresses) > 0 {
		return errors.New("--service-selector and --advertise-address exclude each other: EndpointSlices are kept by Kubernetes, or by this server")
	}
	if r := o.Metrics.Resolution; r < 0 || (r > 0 && r < time.Second) {
		return fmt.Errorf("--metric-resolution %s: must be at least 1s", r)
	}
	return nil
}

// serviceHost is the name by which a front door checks the certificate.
func (o Options) serviceHost() string { return o.ServiceName + "." + o.ServiceNamespace + ".svc" }

func (o Options) names() []string {
	names := []string{o.serviceHost(), "localhost"}
	if o.ExternalName != "localhost" {
		names = append(names, o.ExternalName)
	}
	return names
}

func (o Options) addresses() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, text := range append([]string{o.BindAddress}, o.AdvertiseAddresses...) {
		if ip := net.ParseIP(text); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			ips = append(ips, ip)
		}
	}
	return ips
}

// LoadClient reads a kubeconfig. The pace of requests is the library's default for extension servers.
func LoadClient(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "extserver"
	return config, nil
}

// AddFlags binds the options to flags, but for the clients.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.addServingFlags(fs)
	o.addRegistrationFlags(fs)
	o.addMetricsFlags(fs)
	o.addHostedFlags(fs)
	o.addRequestFlags(fs)
}

// defaultPort is where metrics-server's documentation has always had it for servers without privileges.
const defaultPort = 4443

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "bind-address", "0.0.0.0", "IP address to listen on")
	fs.IntVar(&o.Port, "secure-port", defaultPort, "port to listen on with TLS; 0 picks a free one")
	fs.StringVar(&o.CertFile, "tls-cert-file", "", "serving certificate (PEM); reloaded when it changes (default: a generated one)")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	fs.StringVar(&o.CAFile, "tls-ca-file", "", "CA certificates of --tls-cert-file, written into caBundle (default --tls-cert-file)")
	fs.StringVar(&o.CertDir, "cert-dir", "", "directory that keeps the generated certificate over restarts (default: memory)")
	fs.DurationVar(&o.CAOverlap, "ca-overlap", 24*time.Hour, "how long a replaced CA certificate stays in caBundle")
}

func (o *Options) addRegistrationFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Register, "register", true, "keep the Service and the APIServices up to date, as far as this server is authorized to")
	fs.BoolVar(&o.CreateRegistration, "create-registration", false,
		"for manifests: also print roles that allow the server to create and delete its own Service, EndpointSlice and APIServices")
	fs.StringVar(&o.ServiceNamespace, "service-namespace", "kube-system", "namespace of the Service; it must exist")
	fs.StringVar(&o.ServiceName, "service-name", "portico-extserver", "name of the Service")
	fs.StringVar(&o.ExternalName, "service-external-name", "localhost", "DNS name by which the front door reaches this server")
	fs.StringSliceVar(&o.AdvertiseAddresses, "advertise-address", nil,
		"IP addresses under which the front door reaches this server; makes a Service with an EndpointSlice instead of a DNS name")
	fs.StringToStringVar(&o.ServiceSelector, "service-selector", nil,
		"labels of this server's pods, for a Service whose EndpointSlices Kubernetes keeps, instead of a DNS name")
}

func (o *Options) addMetricsFlags(fs *pflag.FlagSet) {
	m := &o.Metrics
	fs.StringVar(&m.Source, "metrics-source", FromHost, "where metrics.k8s.io comes from: host, kubelet, prometheus or none")
	fs.DurationVar(&m.Resolution, "metric-resolution", 0, "interval of measurements (default 10s for host, 15s for the others)")
	fs.StringVar(&o.NodeName, "node-name", "", "name of the Node object of this machine (default: host name in lower case)")
	fs.StringVar(&m.HostPods, "host-pods", "auto", "what the PodMetrics of this machine describe: auto, kubepods, units, processes or none")
	fs.StringVar(&m.HostNamespace, "host-namespace", "host", "namespace of the PodMetrics that describe units or processes")
	fs.IntVar(&m.HostMaxPods, "host-max-pods", 1000, "maximum number of PodMetrics of this machine")
	fs.StringVar(&m.CgroupPath, "cgroup-path", "/sys/fs/cgroup", "where cgroups are mounted")
	fs.StringVar(&m.NodeSelector, "node-selector", "", "label selector of the Nodes whose kubelets are scraped (default: all)")
	fs.StringSliceVar(&m.KubeletAddressTypes, "kubelet-preferred-address-types", nil, "address types of a Node to try, in order (default Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP)")
	fs.IntVar(&m.Kubelet.Port, "kubelet-port", 0, "port of kubelets (default: what the Node says, then 10250)")
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
	fs.BoolVar(&o.Projects.Enabled, "projects", false, "enable projects: the namespaces that each caller may see, and requests for new ones")
	fs.StringVar(&o.Projects.Group, "project-group", "project.portico.dev", "API group of projects: project.portico.dev, or project.openshift.io for OpenShift's clients")
	fs.StringSliceVar(&o.Projects.Roles, "project-roles", []string{"admin"}, "ClusterRoles that the requester of a project is bound to in it")
	fs.IntVar(&o.Projects.MaxPerUser, "project-limit", 0, "maximum number of projects that one user may request (default: no limit)")
	fs.DurationVar(&o.Projects.PollInterval, "project-poll-interval", 15*time.Second, "interval at which watches of projects look for changes")
	fs.StringSliceVar(&o.Declared.Paths, "resources", nil, "YAML files that declare resources, or directories of them; reloaded when they change")
	fs.BoolVar(&o.Declared.AllowExec, "allow-exec-sources", false, "allow --resources to run commands, with the rights of this server")
}

func (o *Options) addRequestFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.AnonymousAuth, "anonymous-auth", false, "accept requests without a credential as user system:anonymous")
	fs.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", []string{"/healthz", "/livez", "/readyz"},
		"paths that need no permission")
	fs.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", 400, "maximum number of concurrent requests, without watches; further ones get 429")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", time.Minute, "timeout of requests that are not watches")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 0, "how long to keep serving after /readyz begins to fail at shutdown")
	fs.BoolVar(&o.Profiling, "profiling", true, "serve profiles at /debug/pprof/ to users who are authorized for the path")
	fs.BoolVar(&o.AccessLog, "access-log", false, "log one line for each request")
}
