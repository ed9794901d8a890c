package extserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

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
	// CAOverlap is how long a replaced authority stays in the caBundle. Default a day.
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
