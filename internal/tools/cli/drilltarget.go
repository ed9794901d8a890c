package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/tools/drill"
)

// Fronts starts front doors for drills.
type Fronts interface {
	// AddFlags adds flags to `drill run`.
	AddFlags(*pflag.FlagSet)
	// Start starts n front doors. It returns a function that stops them, unless there is an error.
	Start(ctx context.Context, n int, log *zap.Logger) ([]drill.Target, func() error, error)
}

// targets returns the targets of the drills, and a function to call after the drills.
func (o *drillOptions) targets(ctx context.Context, log *zap.Logger) ([]drill.Target, func() error, error) {
	if o.kubeconfig == "" && o.context == "" && o.Fronts != nil {
		if o.iKnow != "" || o.advertise != "" || o.bind != "" || o.gateway != "" || o.cluster != "" || len(o.replicas) > 0 {
			return nil, nil, errors.New("--i-know-this-is, --advertise-address, --bind-address, --gateway, --cluster and --replica belong to --kubeconfig or --context")
		}
		targets, end, err := o.Fronts.Start(ctx, o.atOnce, log)
		for i := range targets {
			targets[i].Command, targets[i].APIRoute = backendCommand(), o.apiRoute
		}
		return targets, end, err
	}
	if o.kubeconfig == "" && o.context == "" {
		return nil, nil, errors.New("drills break things on purpose: name the cluster, with --context or --kubeconfig")
	}
	if o.atOnce > 1 {
		return nil, nil, errors.New("--parallel is for front doors of our own: drills on one server disturb each other")
	}
	t, err := o.foreignTarget()
	if err == nil {
		err = t.Check(ctx)
	}
	return []drill.Target{t}, func() error { return nil }, err
}

// foreignTarget returns the API server of a kubeconfig. It refuses one that looks like production.
func (o *drillOptions) foreignTarget() (drill.Target, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	raw, err := loader.RawConfig()
	if err != nil {
		return drill.Target{}, kubeconfigError(rules, err)
	}
	name := cmp.Or(o.context, raw.CurrentContext)
	config, err := loader.ClientConfig()
	if err != nil {
		return drill.Target{}, kubeconfigError(rules, err)
	}
	names := []string{name, config.Host, o.cluster}
	if c := raw.Contexts[name]; c != nil {
		names = append(names, c.Cluster, c.AuthInfo, c.Namespace)
	}
	if why := drill.LooksLikeProduction(names...); why != "" && o.iKnow != name {
		return drill.Target{}, fmt.Errorf("%s: drills break things on purpose; if that is meant, say --i-know-this-is %q", why, name)
	}
	t := drill.Target{
		Name: name, Config: config, Advertise: o.advertise, Bind: o.bind, Command: backendCommand(), Kubeconfig: cmp.Or(o.kubeconfig, rules.GetDefaultFilename()), Context: name,
		APIRoute: o.apiRoute, Cluster: o.cluster,
	}
	if t.Bind == "" && t.Advertise != "" {
		t.Bind = "0.0.0.0"
	}
	if o.gateway != "" {
		gateway, err := adoption.ParseService(o.gateway)
		if err != nil {
			return drill.Target{}, fmt.Errorf("--gateway: %w", err)
		}
		t.Gateway = &gateway
	}
	for _, address := range o.replicas {
		at, err := url.Parse(address)
		if err != nil || at.Scheme != "https" || at.Host == "" {
			return drill.Target{}, fmt.Errorf("--replica %q: an address such as https://10.0.0.2:6443 is wanted", address)
		}
		further := rest.CopyConfig(config)
		further.Host = address
		t.Replicas = append(t.Replicas, further)
	}
	return t, nil
}

// backendCommand returns the command that starts this program as an extension server, or nil if the path of the
// program is unknown.
func backendCommand() []string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{program, "drill", "backend"}
}
