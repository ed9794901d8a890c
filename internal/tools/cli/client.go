package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
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
	f.AddKubeconfig(fs)
	fs.DurationVar(&f.Timeout, "timeout", f.Timeout, "timeout of each request")
}

// AddKubeconfig adds the flags that select the kubeconfig and its context.
func (f *ClientFlags) AddKubeconfig(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server; default $KUBECONFIG, then ~/.kube/config")
	fs.StringVar(&f.Context, "context", "", "context of the kubeconfig; default its current one")
}

// Config returns the client configuration of the API server.
func (f *ClientFlags) Config() (*rest.Config, error) {
	config, _, err := f.Credentials()
	if err != nil {
		return nil, err
	}
	config.Timeout = f.Timeout
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	return config, nil
}

// Credentials returns the address of the API server with the credentials, and the default namespace.
func (f *ClientFlags) Credentials() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	chosen := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	if config, err = chosen.ClientConfig(); err != nil {
		return nil, "", kubeconfigError(rules, err)
	}
	namespace, _, err = chosen.Namespace()
	return config, namespace, err
}

// kubeconfigError describes why no API server is known. client-go's error does not name the missing files.
func kubeconfigError(rules *clientcmd.ClientConfigLoadingRules, err error) error {
	exists := func(file string) bool {
		_, err := os.Stat(file)
		return !errors.Is(err, fs.ErrNotExist)
	}
	files := slices.DeleteFunc(slices.Clone(rules.Precedence), func(file string) bool { return file == "" })
	switch {
	case rules.ExplicitPath != "" && !exists(rules.ExplicitPath):
		return fmt.Errorf("--kubeconfig: %s does not exist; name the kubeconfig of the API server", rules.ExplicitPath)
	case rules.ExplicitPath != "" || slices.ContainsFunc(files, exists):
		return fmt.Errorf("read the kubeconfig (--kubeconfig or $KUBECONFIG): %w", err)
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return fmt.Errorf("$KUBECONFIG: %s does not exist; correct the variable, or name the kubeconfig with --kubeconfig", strings.Join(files, ", "))
	}
	return fmt.Errorf("no kubeconfig: %s does not exist; name one with --kubeconfig or $KUBECONFIG", strings.Join(files, ", "))
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
