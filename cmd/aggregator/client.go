package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clientFlags say which API server a command speaks to, in the words of kubectl.
type clientFlags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *clientFlags) add(fs *pflag.FlagSet) {
	if f.timeout == 0 {
		f.timeout = 10 * time.Second
	}
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the API server; default $KUBECONFIG, then ~/.kube/config")
	fs.StringVar(&f.context, "context", "", "context of the kubeconfig; default its current one")
	fs.DurationVar(&f.timeout, "timeout", f.timeout, "how long to wait for each answer")
}

func (f *clientFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (--kubeconfig or $KUBECONFIG): %w", err)
	}
	config.Timeout = f.timeout
	config.UserAgent = "aggregator"
	return config, nil
}
