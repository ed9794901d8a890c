package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico.dev/internal/adoption"
	"portico.dev/internal/engine"
)

// Config configures a gateway. Start with Default.
type Config struct {
	// Kubeconfig is a file that says how to reach the API server. Default "": the service account of the pod.
	Kubeconfig string
	// Namespace, Service and ServicePort are where API servers reach this gateway. Namespace has its Secret, ConfigMaps and Lease too.
	// Default $POD_NAMESPACE, or portico-gateway; portico-gateway; 443.
	Namespace   string
	Service     string
	ServicePort int32
	// BindAddress and SecurePort are what requests are accepted on. Default every address, 8443; port 0 is any free one.
	BindAddress string
	SecurePort  int
	// MetricsBindAddress is where /metrics is served, over HTTP and to everybody who reaches it. Default "": nowhere.
	MetricsBindAddress string
	// EndpointRouting sends requests to the endpoints of Services and not to their cluster IPs. Default true: without it a dead endpoint
	// is not noticed.
	EndpointRouting bool
	// Zone is the zone of this process. Endpoints of the same zone are preferred. Default none.
	Zone string
	// EgressSelectorConfigFile has the tunnel to the network of extension servers (cluster). Default none.
	EgressSelectorConfigFile string
	// MaxInFlight and MaxMutatingInFlight bound requests that are not long-running; negative: no bound. Default 400 and 200.
	MaxInFlight, MaxMutatingInFlight int
	// RequestTimeout ends requests that are not long-running. Default 60 s, as kube-apiserver.
	RequestTimeout time.Duration
	// GoawayChance asks this part of the requests over HTTP/2 to come by another connection next time, so that the connections of API
	// servers are spread over the replicas, and at most one in a minute. Default 0.001.
	GoawayChance float64
	// ShutdownDelay keeps serving after readyz has turned false; ShutdownGrace is how long requests may take then. Default 5 s and 20 s.
	ShutdownDelay, ShutdownGrace time.Duration
	// AccessLog logs a line for each request. Default false.
	AccessLog bool
	// MemoryLimit is like 256Mi. Near it requests are refused. Default "": the limit of the control group; "0": none.
	MemoryLimit string
	// HTTPEngine and BackendEngine are the implementations of HTTP for API servers and for extension servers.
	HTTPEngine, BackendEngine engine.Name
}

// Default returns the configuration of a pod of deploy/gateway.
func Default() Config {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = "portico-gateway"
	}
	return Config{
		Namespace: namespace, Service: "portico-gateway", ServicePort: 443, SecurePort: 8443, EndpointRouting: true,
		MaxInFlight: 400, MaxMutatingInFlight: 200, RequestTimeout: time.Minute, GoawayChance: 0.001,
		ShutdownDelay: 5 * time.Second, ShutdownGrace: 20 * time.Second,
		HTTPEngine: engine.Portico, BackendEngine: engine.Portico,
	}
}

// AddFlags adds a flag for each field.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig of the API server; default the service account of the pod")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace, "namespace of the gateway's Service, Secret, ConfigMaps and Lease; default $POD_NAMESPACE")
	fs.StringVar(&c.Service, "service", c.Service, "name of the Service by which API servers reach the gateway")
	fs.Int32Var(&c.ServicePort, "service-port", c.ServicePort, "port of --service")
	fs.StringVar(&c.BindAddress, "bind-address", c.BindAddress, "IP address that the gateway listens on; default all")
	fs.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "port that the gateway listens on; 0 is any free one")
	fs.StringVar(&c.MetricsBindAddress, "metrics-bind-address", c.MetricsBindAddress, "host:port on which /metrics is served over HTTP to everybody who can reach it; default none")
	fs.BoolVar(&c.EndpointRouting, "enable-aggregator-routing", c.EndpointRouting, "send requests to endpoints of Services instead of their cluster IPs")
	fs.StringVar(&c.EgressSelectorConfigFile, "egress-selector-config-file", c.EgressSelectorConfigFile, "EgressSelectorConfiguration of apiserver.k8s.io/v1beta1, whose cluster is the tunnel by which extension servers are reached; default none")
	fs.StringVar(&c.Zone, "zone", c.Zone, "zone of this process; endpoints of the same zone are preferred")
	fs.IntVar(&c.MaxInFlight, "max-requests-inflight", c.MaxInFlight, "limit of concurrent reads that are not watches, negative for none")
	fs.IntVar(&c.MaxMutatingInFlight, "max-mutating-requests-inflight", c.MaxMutatingInFlight, "limit of concurrent writes, negative for none")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "how long a request may take that is not long-running")
	fs.Float64Var(&c.GoawayChance, "goaway-chance", c.GoawayChance, "part of the requests over HTTP/2 whose clients are asked to come by another connection, so that connections are spread over replicas, at most one in a minute; at most 0.02")
	fs.DurationVar(&c.ShutdownDelay, "shutdown-delay-duration", c.ShutdownDelay, "how long requests are served after readyz has turned false")
	fs.DurationVar(&c.ShutdownGrace, "shutdown-grace", c.ShutdownGrace, "how long requests in flight may take after that")
	fs.BoolVar(&c.AccessLog, "access-log", c.AccessLog, "log one line for each request")
	fs.StringVar(&c.MemoryLimit, "memory-limit", c.MemoryLimit, "memory that this process may use, such as 256Mi; near it requests are refused and connections closed; default the limit of the control group, 0 for none")
	fs.Var(&c.HTTPEngine, "http-engine", "HTTP implementation that serves API servers: portico, or library (Go's net/http)")
	fs.Var(&c.BackendEngine, "backend-engine", "HTTP implementation that reaches extension servers: portico, or library (Go's net/http)")
}

// gateway is how API servers reach it.
func (c *Config) gateway() adoption.Service {
	return adoption.Service{Namespace: c.Namespace, Name: c.Service, Port: c.ServicePort}
}

// Validate says everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--"+flag+": "+format, args...))
	}
	for flag, name := range map[string]string{"namespace": c.Namespace, "service": c.Service} {
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			bad(flag, "%q: %s", name, strings.Join(why, "; "))
		}
	}
	if c.ServicePort < 1 || c.ServicePort > 65535 {
		bad("service-port", "%d is not a port", c.ServicePort)
	}
	if c.SecurePort < 0 || c.SecurePort > 65535 {
		bad("secure-port", "%d is not a port", c.SecurePort)
	}
	if c.BindAddress != "" && net.ParseIP(c.BindAddress) == nil {
		bad("bind-address", "%q is not an IP address", c.BindAddress)
	}
	if c.MetricsBindAddress != "" {
		if _, _, err := net.SplitHostPort(c.MetricsBindAddress); err != nil {
			bad("metrics-bind-address", "%q is not host:port", c.MetricsBindAddress)
		}
	}
	if c.GoawayChance < 0 || c.GoawayChance > 0.02 {
		bad("goaway-chance", "%v is not from 0 to 0.02", c.GoawayChance)
	}
	for flag, d := range map[string]time.Duration{"request-timeout": c.RequestTimeout, "shutdown-grace": c.ShutdownGrace} {
		if d <= 0 {
			bad(flag, "%s is not positive", d)
		}
	}
	if c.ShutdownDelay < 0 {
		bad("shutdown-delay-duration", "%s is negative", c.ShutdownDelay)
	}
	return errors.Join(errs...)
}
