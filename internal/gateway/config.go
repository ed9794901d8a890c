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

	"portico.dev/internal/aggregation"
	"portico.dev/internal/gateway/adoption"
)

// Config configures a gateway. Start with Default.
type Config struct {
	aggregation.Serving

	// Kubeconfig is the file for connections to the API server. Default "": the service account of the pod.
	Kubeconfig string
	// Namespace, Service and ServicePort identify the Service at which API servers reach this gateway. Namespace also
	// contains its Secret, ConfigMaps and Lease. Default $POD_NAMESPACE, or portico-gateway; portico-gateway; 443.
	Namespace   string
	Service     string
	ServicePort int32
	// MetricsBindAddress is the address on which /metrics is served over HTTP without authentication. Default "":
	// disabled.
	MetricsBindAddress string
	// Listener is used instead of BindAddress and SecurePort. Run closes it. Default nil.
	Listener net.Listener
}

// Default returns the configuration of a pod of deploy/gateway.
func Default() Config {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = "portico-gateway"
	}
	c := Config{Serving: aggregation.DefaultServing(), Namespace: namespace, Service: "portico-gateway", ServicePort: 443}
	c.SecurePort, c.GoawayChance, c.ShutdownDelay, c.ShutdownGrace = 8443, 0.001, 5*time.Second, 20*time.Second
	return c
}

// graceFlag is the flag of ShutdownGrace.
const graceFlag = "shutdown-grace"

// AddFlags adds a flag for each field.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig of the API server; default the service account of the pod")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace, "namespace of the gateway's Service, Secret, ConfigMaps and Lease; default $POD_NAMESPACE")
	fs.StringVar(&c.Service, "service", c.Service, "name of the Service by which API servers reach the gateway")
	fs.Int32Var(&c.ServicePort, "service-port", c.ServicePort, "port of --service")
	fs.StringVar(&c.MetricsBindAddress, "metrics-bind-address", c.MetricsBindAddress, "host:port on which /metrics is served over HTTP without authentication; default none")
	fs.StringVar(&c.EgressSelectorConfigFile, "egress-selector-config-file", c.EgressSelectorConfigFile, "EgressSelectorConfiguration of apiserver.k8s.io/v1beta1, whose egress cluster is the tunnel to extension servers; default none")
	fs.IntVar(&c.MaxRequestsInFlight, "max-requests-inflight", c.MaxRequestsInFlight, "limit of concurrent reads that are not watches, negative for none")
	fs.IntVar(&c.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", c.MaxMutatingRequestsInFlight, "limit of concurrent writes, negative for none")
	c.AddListenFlags(fs, graceFlag)
	c.AddRequestFlags(fs)
	c.AddEngineFlags(fs)
	fs.Lookup("bind-address").Usage += "; default all"
	fs.Lookup("goaway-chance").Usage += ", and one GOAWAY per minute"
}

// gateway returns the Service at which API servers reach this gateway.
func (c *Config) gateway() adoption.Service {
	return adoption.Service{Namespace: c.Namespace, Name: c.Service, Port: c.ServicePort}
}

// Validate reports every invalid setting.
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
	c.Serving.Validate(graceFlag, bad)
	if c.MetricsBindAddress != "" {
		if _, _, err := net.SplitHostPort(c.MetricsBindAddress); err != nil {
			bad("metrics-bind-address", "%q is not host:port", c.MetricsBindAddress)
		}
	}
	return errors.Join(errs...)
}
