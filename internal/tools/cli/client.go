package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/tools/toolclient"
)

// ClientFlags select the API server of a command, with the flag names of kubectl.
type ClientFlags struct {
	Kubeconfig, Context string
	// Timeout of each request. Default 10 s.
	Timeout time.Duration
}

// Add adds the flags.
func (f *ClientFlags) Add(fs *pflag.FlagSet) {
	f.Timeout = cmp.Or(f.Timeout, 10*time.Second)
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server; default $KUBECONFIG, then ~/.kube/config")
	fs.StringVar(&f.Context, "context", "", "context of the kubeconfig; default its current one")
	fs.DurationVar(&f.Timeout, "timeout", f.Timeout, "timeout of each request")
}

// Config returns the client configuration of the API server.
func (f *ClientFlags) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (--kubeconfig or $KUBECONFIG): %w", err)
	}
	config.Timeout = f.Timeout
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	return config, nil
}

// RESTClient returns a client for paths of a front door outside the Kubernetes APIs.
func (f *ClientFlags) RESTClient() (rest.Interface, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	client, err := toolclient.New(config)
	if err != nil {
		return nil, fmt.Errorf("client of the front door: %w", err)
	}
	return client.REST(), nil
}
