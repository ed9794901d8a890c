package main

import (
	"errors"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"portico.dev/internal/extension/extserver"
	"portico.dev/internal/logging"
)

// defaultPort is where metrics-server's documentation has always had it for servers without privileges.
const defaultPort = 4443

// serveFlags are the flags that are not options of the server as they stand.
type serveFlags struct {
	kubeconfig, authentication, authorization string
	logging                                   logging.Options
}

func serveCommand() *cobra.Command {
	flags := serveFlags{logging: logging.Default()}
	var o extserver.Options
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve metrics.k8s.io for this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := flags.logging.New()
			if err != nil {
				return err
			}
			o.Logger = log
			if err := flags.clients(&o); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				// The live heap is a few megabytes: collecting it twice as often costs nothing that can be measured, and
				// keeps the whole under 25 MiB also when many connect at once.
				debug.SetGCPercent(50)
			}
			server, err := extserver.New(o)
			if err != nil {
				return err
			}
			return server.Run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig of the front door; required")
	f.StringVar(&flags.authentication, "authentication-kubeconfig", "", "kubeconfig for TokenReview and the trust ConfigMap (default --kubeconfig)")
	f.StringVar(&flags.authorization, "authorization-kubeconfig", "", "kubeconfig for SubjectAccessReview (default --kubeconfig)")
	flags.logging.AddFlags(f)
	f.StringVar(&o.BindAddress, "bind-address", "0.0.0.0", "IP address to listen on")
	f.IntVar(&o.Port, "secure-port", defaultPort, "port to listen on; 0 takes a free one")
	f.StringVar(&o.CertFile, "tls-cert-file", "", "serving certificate (PEM); followed when it changes (default: one made by itself)")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	f.StringVar(&o.CAFile, "tls-ca-file", "", "what --tls-cert-file chains to, for the caBundle (default --tls-cert-file)")
	f.StringVar(&o.NodeName, "node-name", "", "name of the Node that this machine is (default: host name in lower case)")
	f.DurationVar(&o.MetricResolution, "metric-resolution", 10*time.Second, "how often the machine is measured")
	f.BoolVar(&o.Register, "register", true, "write the Service and the APIServices, and keep them")
	f.StringVar(&o.ServiceNamespace, "service-namespace", "kube-system", "namespace of the Service; it must exist")
	f.StringVar(&o.ServiceName, "service-name", "portico-extserver", "name of the Service")
	f.StringVar(&o.ExternalName, "service-external-name", "localhost", "DNS name under which the front door reaches this server")
	f.StringSliceVar(&o.AdvertiseAddresses, "advertise-address", nil,
		"IP addresses under which the front door reaches this server; makes a Service with an EndpointSlice instead of a DNS name")
	f.BoolVar(&o.AnonymousAuth, "anonymous-auth", false, "let callers without credentials ask, as system:anonymous")
	f.StringSliceVar(&o.AlwaysAllowPaths, "authorization-always-allow-paths", []string{"/healthz", "/livez", "/readyz"},
		"paths that need no permission")
	f.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", 400, "requests at once, without watches; more are answered 429")
	f.DurationVar(&o.RequestTimeout, "request-timeout", time.Minute, "time for one request, without watches")
	f.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 0, "how long to serve on after /readyz begins to fail")
	f.BoolVar(&o.Profiling, "profiling", true, "serve /debug/pprof/ to those who may get it")
	f.BoolVar(&o.AccessLog, "access-log", false, "log every request")
	return c
}

func (f serveFlags) clients(o *extserver.Options) error {
	if f.kubeconfig == "" {
		return errors.New("--kubeconfig is required: it says which front door vouches for callers")
	}
	for _, c := range []struct {
		file string
		into **rest.Config
	}{{f.kubeconfig, &o.Client}, {f.authentication, &o.AuthenticationClient}, {f.authorization, &o.AuthorizationClient}} {
		if c.file == "" {
			continue
		}
		var err error
		if *c.into, err = extserver.LoadClient(c.file); err != nil {
			return err
		}
	}
	return nil
}
