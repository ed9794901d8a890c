package front

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"portico.dev/internal/aggregation"
)

// Config configures a Front. Start with Default.
type Config struct {
	aggregation.Serving

	// Client has the address of the API server and the credentials, as a kubeconfig does. Required.
	Client *rest.Config
}

// Default returns the configuration without a Client: 127.0.0.1, a free port, no access log.
func Default() Config {
	c := Config{Serving: aggregation.DefaultServing()}
	c.BindAddress, c.ShutdownGrace = "127.0.0.1", 5*time.Second
	return c
}

// graceFlag is the flag of ShutdownGrace.
const graceFlag = "shutdown-grace"

// AddFlags adds a flag for each field that users change.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.BindAddress, "bind-address", c.BindAddress, "loopback address to listen on")
	fs.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "port to listen on with TLS; 0 picks a free one")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "timeout of requests that are not long-running")
	fs.DurationVar(&c.ShutdownGrace, graceFlag, c.ShutdownGrace, "how long requests in flight may take to finish at shutdown")
	fs.StringVar(&c.MemoryLimit, "memory-limit", c.MemoryLimit, "memory that this process may use, such as 2Gi; 0 for no limit")
	c.AddEngineFlags(fs)
}

// Validate reports every invalid setting.
func (c *Config) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--"+flag+": "+format, args...))
	}
	c.Serving.Validate(graceFlag, bad)
	if ip := net.ParseIP(c.BindAddress); ip != nil && !ip.IsLoopback() || c.BindAddress == "" {
		bad("bind-address", "%q is not a loopback address; whoever reaches the front acts with the credentials of its kubeconfig", c.BindAddress)
	}
	return errors.Join(errs...)
}
