package extension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/logging"
)

// Options configure a Server. For each field, the zero value selects the default.
type Options struct {
	// Client configures the connection and the identity for the front door. Default: read from Kubeconfig.
	Client *rest.Config
	// AuthenticationClient is for TokenReview and the trust ConfigMap, AuthorizationClient for SubjectAccessReview. Default:
	// read from the kubeconfigs below, or Client.
	AuthenticationClient, AuthorizationClient *rest.Config
	// Kubeconfig is the kubeconfig file for Client. Default: the service account of the pod.
	Kubeconfig string
	// AuthenticationKubeconfig and AuthorizationKubeconfig are the kubeconfig files for the other two clients.
	AuthenticationKubeconfig, AuthorizationKubeconfig string

	// BindAddress and Port are the address of the listener. Port 0 selects a free port. Default address: 0.0.0.0.
	BindAddress string
	Port        int
	// NoListener disables the listener. The program serves requests through Server.Handler. Port and CAFile are then the
	// values for the registration.
	NoListener bool
	// CertFile and KeyFile are the serving certificate. Default: a generated certificate for the DNS names of the Service,
	// localhost, and the addresses of this machine that the server listens on.
	CertFile, KeyFile string
	// CAFile contains the CA certificates of CertFile, for the caBundle. Default: CertFile.
	CAFile string
	// CertDir is the directory for the generated authority and certificate, which keeps them across restarts. Default:
	// memory.
	CertDir string
	// CAOverlap is how long a replaced CA certificate stays in caBundle. Default: one day.
	CAOverlap time.Duration

	// Register writes the Service and the APIServices through the API. Default: false; AddFlags sets it to true.
	Register bool
	// ServiceNamespace and ServiceName identify the Service. Defaults: kube-system, and the group of the first resource with
	// dashes instead of dots.
	ServiceNamespace, ServiceName string
	// ExternalName is the DNS name of this machine for the front door. Default: localhost.
	ExternalName string
	// AdvertiseAddresses select a Service with an EndpointSlice of these addresses instead of an ExternalName.
	AdvertiseAddresses []string
	// ServiceSelector selects a Service for the pods with these labels instead of an ExternalName.
	ServiceSelector map[string]string
	// CreateRegistration adds permissions to Manifests and Rights that allow the server to create and delete its Service,
	// EndpointSlice and APIServices. It does not affect the server.
	CreateRegistration bool
	// Needs lists the permissions that the hosted resources require, for Manifests and Rights.
	Needs []Rule

	// AnonymousAuth accepts requests without credentials as system:anonymous. Default: they are rejected with 401.
	AnonymousAuth bool
	// AlwaysAllowPaths and AlwaysAllowGroups are allowed without a request to the front door. Defaults as in kube-apiserver's
	// delegated authorization: /healthz, /livez and /readyz; system:masters.
	AlwaysAllowPaths, AlwaysAllowGroups []string

	// Sources, Live and Ready are documented in Config.
	Sources     func() []Source
	Live, Ready []Check
	// Background lists tasks that run with the server, such as filling a cache or keeping a connection. They start before the
	// server listens and stop after it.
	Background []Background

	// MaxRequestsInFlight, RequestTimeout, ShutdownDelay, Profiling and AccessLog are documented in Config.
	MaxRequestsInFlight int
	RequestTimeout      time.Duration
	ShutdownDelay       time.Duration
	Profiling           bool
	AccessLog           bool
	// AccessLogPath is the file to which the access log is appended instead of to Logger, if AccessLog is true. "-" is standard
	// output. The file is created with mode 0600, and rotated at 100 MB; the last ten rotated files are kept. Requests do not
	// wait for it. Default: Logger.
	AccessLogPath string
	// AuditLogPath is the file to which audit events are appended; see Config.AuditLog. "-" is standard output. The file is
	// created with mode 0600. It stays open, so rotate it by copying and truncating. Default: no audit events.
	AuditLogPath string
	// Logger receives the log. Default: no logging.
	Logger *zap.Logger
	// WhenReady is called once, when the server is ready. Optional.
	WhenReady func()
}

// Background is a task that runs until its context ends. If Run returns earlier, the server stops with its error.
type Background struct {
	Name string
	Run  func(ctx context.Context) error
}

func (o Options) withDefaults(resources []Resource) (Options, error) {
	if err := o.loadClients(); err != nil {
		return o, err
	}
	o.ServiceNamespace = cmp.Or(o.ServiceNamespace, "kube-system")
	if o.ServiceName == "" && len(resources) > 0 {
		o.ServiceName = strings.ReplaceAll(resources[0].GroupVersion().Group, ".", "-")
	}
	o.ExternalName = cmp.Or(o.ExternalName, "localhost")
	o.BindAddress = cmp.Or(o.BindAddress, "0.0.0.0")
	if o.AlwaysAllowPaths == nil {
		o.AlwaysAllowPaths = []string{"/healthz", "/livez", "/readyz"}
	}
	if o.AlwaysAllowGroups == nil {
		o.AlwaysAllowGroups = []string{"system:masters"}
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o, o.validate()
}

func (o Options) validate() error {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if o.CertFile != "" && o.CertDir != "" {
		return errors.New("--cert-dir is for a certificate that the server makes by itself, and --tls-cert-file names another")
	}
	if len(o.ServiceSelector) > 0 && len(o.AdvertiseAddresses) > 0 {
		return errors.New("--service-selector and --advertise-address exclude each other: EndpointSlices are kept by Kubernetes, or by this server")
	}
	if o.NoListener && o.Register && (o.Port == 0 || o.CAFile == "") {
		return errors.New("a server without a listener registers the port and the CA certificates that it is given: set Port and CAFile")
	}
	return nil
}

// loadClients reads the kubeconfigs of the clients that are not set.
func (o *Options) loadClients() (err error) {
	if o.Client == nil {
		if o.Client, err = loadClient(o.Kubeconfig); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		file string
		into **rest.Config
	}{{o.AuthenticationKubeconfig, &o.AuthenticationClient}, {o.AuthorizationKubeconfig, &o.AuthorizationClient}} {
		if *c.into != nil {
			continue
		}
		if *c.into = o.Client; c.file != "" {
			if *c.into, err = loadClient(c.file); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadClient reads a kubeconfig. If kubeconfig is empty, it uses the service account of the pod.
func loadClient(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig is required outside of a pod: it says which front door vouches for callers (%w)", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// serviceHost returns the DNS name that a front door verifies the certificate against.
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

// defaultPort is the port that metrics-server documents for servers without privileges.
const defaultPort = 4443

// AddFlags adds a flag for each option, with kube-apiserver's name if it has the same meaning. The current field values are
// the defaults, except that register and profiling default to true.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.AddClientFlags(fs)
	o.AddServerFlags(fs)
}

// AddClientFlags adds the flags for the kubeconfigs.
func (o *Options) AddClientFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the front door (default: the service account of the pod)")
	fs.StringVar(&o.AuthenticationKubeconfig, "authentication-kubeconfig", o.AuthenticationKubeconfig, "kubeconfig for TokenReview and for the ConfigMap extension-apiserver-authentication (default --kubeconfig)")
	fs.StringVar(&o.AuthorizationKubeconfig, "authorization-kubeconfig", o.AuthorizationKubeconfig, "kubeconfig for SubjectAccessReview (default --kubeconfig)")
}

// AddServerFlags adds all flags except those for the kubeconfigs.
func (o *Options) AddServerFlags(fs *pflag.FlagSet) {
	o.addServingFlags(fs)
	o.addRegistrationFlags(fs)
	o.addRequestFlags(fs)
}

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "bind-address", cmp.Or(o.BindAddress, "0.0.0.0"), "IP address to listen on")
	fs.IntVar(&o.Port, "secure-port", cmp.Or(o.Port, defaultPort), "port to listen on with TLS; 0 picks a free one")
	fs.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "serving certificate (PEM); reloaded when it changes (default: a generated one)")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "key of --tls-cert-file")
	fs.StringVar(&o.CAFile, "tls-ca-file", o.CAFile, "CA certificates of --tls-cert-file, written into caBundle (default --tls-cert-file)")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "directory that keeps the generated certificate over restarts (default: memory)")
	fs.DurationVar(&o.CAOverlap, "ca-overlap", cmp.Or(o.CAOverlap, 24*time.Hour), "how long a replaced CA certificate stays in caBundle")
}

func (o *Options) addRegistrationFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Register, "register", true, "keep the Service and the APIServices up to date, as far as this server is authorized to")
	fs.BoolVar(&o.CreateRegistration, "create-registration", o.CreateRegistration,
		"for manifests: also print roles that allow the server to create and delete its own Service, EndpointSlice and APIServices")
	fs.StringVar(&o.ServiceNamespace, "service-namespace", cmp.Or(o.ServiceNamespace, "kube-system"), "namespace of the Service; it must exist")
	fs.StringVar(&o.ServiceName, "service-name", o.ServiceName, "name of the Service")
	fs.StringVar(&o.ExternalName, "service-external-name", cmp.Or(o.ExternalName, "localhost"), "DNS name by which the front door reaches this server")
	fs.StringSliceVar(&o.AdvertiseAddresses, "advertise-address", o.AdvertiseAddresses,
		"IP addresses by which the front door reaches this server; creates a Service with an EndpointSlice instead of a DNS name")
	fs.StringToStringVar(&o.ServiceSelector, "service-selector", o.ServiceSelector,
		"labels of this server's pods; creates a Service with a selector instead of a DNS name")
}

func (o *Options) addRequestFlags(fs *pflag.FlagSet) {
	paths := o.AlwaysAllowPaths
	if paths == nil {
		paths = []string{"/healthz", "/livez", "/readyz"}
	}
	fs.BoolVar(&o.AnonymousAuth, "anonymous-auth", o.AnonymousAuth, "accept requests without a credential as user system:anonymous")
	fs.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", paths,
		"paths that do not require authorization")
	fs.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", cmp.Or(o.MaxRequestsInFlight, 400), "maximum number of concurrent requests, excluding watches; further requests get 429")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", cmp.Or(o.RequestTimeout, time.Minute), "timeout of requests that are not watches")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "how long to keep serving after /readyz begins to fail at shutdown")
	fs.BoolVar(&o.Profiling, "profiling", true, "serve profiles at /debug/pprof/ to users who are authorized for the path")
	logging.AccessDestination{Enabled: &o.AccessLog, Path: &o.AccessLogPath}.AddTo(fs)
	fs.StringVar(&o.AuditLogPath, "audit-log-path", o.AuditLogPath, `append an audit event at level Metadata for each request to this file, one per line; "-" is standard output; default none`)
}
